"""Identity: what a thing is called is the hash of what it is.

    ObjectId = SHA-256( u8(len(tag)) ‖ tag ‖ u64be(len(body)) ‖ body )

`tag` names the kind and its format version, such as `huginn.block/1`, so the same body under two
kinds has two ids, and no two fields are ever joined without a length (ID-3). The text form is the
kind's prefix, a colon, and the digest in lower-case base32 without padding: `block:…`, 52
characters after the colon. `parse` accepts exactly that, one text for one id.

Each kind is a type of its own: a `BlockId` is not a `ContextId`, to mypy or at run time. An id
grants nothing, and a display name is never an id.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache, total_ordering
from typing import ClassVar, Final, Self

from protocol.errors import ContentError, CorruptObject

DIGEST_BYTES: Final = 32
_TEXT_CHARS: Final = 52


def framed_digest(tag: str, body: bytes) -> bytes:
    """The 32-byte digest of `body` under `tag` (ASCII, 1 to 255 bytes)."""
    digest = hashlib.sha256(_frame(tag) + len(body).to_bytes(8, "big"))
    digest.update(body)
    return digest.digest()


@cache
def _frame(tag: str) -> bytes:
    name = tag.encode("ascii")
    return bytes((len(name),)) + name


@total_ordering
class ObjectId:
    """A 32-byte digest of one kind. Immutable, hashable, ordered by digest within its kind."""

    TAG: ClassVar[str]
    PREFIX: ClassVar[str]

    __slots__ = ("digest",)
    digest: bytes

    def __init__(self, digest: bytes) -> None:
        if type(digest) is not bytes or len(digest) != DIGEST_BYTES:
            raise ContentError(f"a {type(self).__name__} is {DIGEST_BYTES} bytes of digest")
        object.__setattr__(self, "digest", digest)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        # Copies are made through __init__: the default way would set attributes.
        return type(self), (self.digest,)

    @classmethod
    def of(cls, body: bytes) -> Self:
        """The id of `body` as an object of this kind."""
        return cls(framed_digest(cls.TAG, body))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The id whose text form is `text`; raises ContentError for any other text."""
        prefix, _, encoded = text.partition(":")
        if prefix != cls.PREFIX:
            raise ContentError(
                f"{text!r:.80} is not a {cls.PREFIX} id: it must begin '{cls.PREFIX}:'"
            )
        try:
            if len(encoded) != _TEXT_CHARS or encoded != encoded.lower():
                raise ValueError
            parsed = cls(base64.b32decode(encoded.upper() + "===="))
        except ValueError:
            parsed = None
        # 52 characters hold four bits more than a digest: only the text that we write is an id.
        if parsed is None or str(parsed) != text:
            raise ContentError(
                f"{text!r:.80} is not a {cls.PREFIX} id: 52 base32 characters follow"
            )
        return parsed

    def check(self, body: bytes) -> bytes:
        """`body`, if it hashes to this id; raises CorruptObject otherwise (ID-5)."""
        if framed_digest(self.TAG, body) != self.digest:
            raise CorruptObject(f"the stored bytes of {self} do not hash to it", id=str(self))
        return body

    def __str__(self) -> str:
        return f"{self.PREFIX}:{base64.b32encode(self.digest).decode('ascii').rstrip('=').lower()}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __bytes__(self) -> bytes:
        return self.digest

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.digest == self.digest

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, ObjectId) or type(other) is not type(self):
            return NotImplemented
        return self.digest < other.digest

    def __hash__(self) -> int:
        return hash((self.PREFIX, self.digest))


class TextId(ObjectId):
    """UTF-8 content: the body is the text itself, no framing of its own."""

    TAG, PREFIX = "huginn.text/1", "text"


class BlockId(ObjectId):
    """One block: role, type, source and rendering, not the text itself (`TextId`)."""

    TAG, PREFIX = "huginn.block/1", "block"


class NodeId(ObjectId):
    """One node of a rope; a root's NodeId stands for its whole sequence of blocks."""

    TAG, PREFIX = "huginn.rope/1", "rope"


class PrefixId(ObjectId):
    """The first blocks of a sequence, up to one block boundary (SEQ-4)."""

    TAG, PREFIX = "huginn.prefix/1", "prefix"


class SequenceId(ObjectId):
    """A sequence: its root under a sequence contract. A context names it."""

    TAG, PREFIX = "huginn.sequence/1", "seq"


class ContextId(ObjectId):
    """A ContextAssembly: a sequence and every contract under which it is tokens (ASM-1)."""

    TAG, PREFIX = "huginn.context/1", "ctx"


class ContractId(ObjectId):
    """A registered contract: model, tokenizer, template, separator, budget, tool, media, …"""

    TAG, PREFIX = "huginn.contract/1", "contract"


class TransformId(ObjectId):
    """A transform: its name, its specification and the digest of its test vectors."""

    TAG, PREFIX = "huginn.transform/1", "transform"


class ProfileId(ObjectId):
    """A runtime profile: everything that can change a prefix state (KV-1)."""

    TAG, PREFIX = "huginn.profile/1", "profile"


class ChainId(ObjectId):
    """A state chain: a profile and every token id fed so far, advance by advance (KV-1)."""

    TAG, PREFIX = "huginn.chain/1", "chain"


class PageId(ObjectId):
    """The digest of one page's bytes."""

    TAG, PREFIX = "huginn.page/1", "page"


class StateId(ObjectId):
    """The digest over the page digests of a prompt: `state_digest` of a receipt."""

    TAG, PREFIX = "huginn.state/1", "state"


class ReceiptId(ObjectId):
    """A receipt. Receipts are kept by response id; their own id is reserved."""

    TAG, PREFIX = "huginn.receipt/1", "receipt"


class CapabilityId(ObjectId):
    """One link of a capability chain: the digest of what was signed, less the signature."""

    TAG, PREFIX = "huginn.cap/1", "cap"


class ArgumentsId(ObjectId):
    """The digest of a message body, which an invocation signs (`args_digest`)."""

    TAG, PREFIX = "huginn.arguments/1", "args"


class TokensId(ObjectId):
    """The digest of packed token ids: of a token stream, or of what one advance fed."""

    TAG, PREFIX = "huginn.tokens/1", "tokens"


class ParametersId(ObjectId):
    """The canonical parameters of a derivation, every default spelled out."""

    TAG, PREFIX = "huginn.parameters/1", "params"


class InvocationId(ObjectId):
    """One derivation as asked for: the transform and everything its result may depend on."""

    TAG, PREFIX = "huginn.derivation/1", "inv"


class EvidenceId(ObjectId):
    """One execution of an invocation, as the room that ran it testifies to it."""

    TAG, PREFIX = "huginn.evidence/1", "evidence"


class SourceId(ObjectId):
    """A source of events: its public key. Its name is a label, and never identity."""

    TAG, PREFIX = "huginn.source/1", "source"


class EventId(ObjectId):
    """One entry of a source's log, which names the one before it: the whole log up to there."""

    TAG, PREFIX = "huginn.event/1", "event"


PREFIX_TO_KIND: Final[dict[str, type[ObjectId]]] = {
    kind.PREFIX: kind for kind in ObjectId.__subclasses__()
}


def parse_any(text: str) -> ObjectId:
    """The id that `text` writes, of whichever kind; raises ContentError."""
    kind = PREFIX_TO_KIND.get(text.partition(":")[0])
    if kind is None:
        raise ContentError(f"{text!r:.80} is not an id: no kind has that prefix")
    return kind.parse(text)
