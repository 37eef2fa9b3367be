"""Random records of every kind that the product defines, made from their field types alone.

A record added to the product tomorrow is covered without a word here: `RECORDS` finds it, `Sampler`
reads its field types. A field type with more than one encoding (a float, a set, a date) is refused
with an AssertionError, which is itself a test. A record whose own check is too narrow to be met by
chance gets an entry in `MAKERS`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from protocol.capability import Capability
from protocol.caveats import (
    Caveat,
    DomainCaveat,
    NamespaceCaveat,
    RequestCaveat,
    ServiceCaveat,
)
from protocol.cbor import INT_MAX, INT_MIN, Value
from protocol.derivation import (
    DerivationEvidence,
    DerivationInvocation,
    ExecutionClass,
    Input,
    Output,
    numbered,
)
from protocol.errors import RequestError
from protocol.events import KINDS, Event, SourceKey
from protocol.ids import (
    DIGEST_BYTES,
    PREFIX_TO_KIND,
    CapabilityId,
    ContractId,
    EventId,
    EvidenceId,
    InvocationId,
    ObjectId,
    ParametersId,
    ProfileId,
    SourceId,
    TransformId,
)
from protocol.limits import CAPABILITY_LIFETIME_NS_MAX, CHAIN_LINKS_MAX
from protocol.record import Identified, Record, encode_record
from protocol.resource import Resource, Right
from protocol.signing import PUBLIC_BYTES, SEED_BYTES, Signer

R = TypeVar("R", bound=Record)

_TRIES = 2_000
_NESTING_MAX = 4
_DEFINES_A_RECORD = re.compile(r"^class \w+\([^)]*\b(Record|Identified)\b", re.MULTILINE)
_INTS = (0, 1, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, INT_MAX)
_INTS_BELOW = (-1, -24, -25, -256, -257, -65536, -65537, -(2**32), -(2**32) - 1, INT_MIN)
_LENGTHS = (0, 1, 2, 3, 4, 8, 16, 16, 23, 24, 32, 32, 32, 33, 64, 255)
# One, two, three and four bytes of UTF-8; a combining pair; what sorts apart in UTF-16 and UTF-8.
_LETTERS = ("a", "b", "z", "\x00", "/", "é", "e\u0301", "ß", "€", "\uffff", "\U00010000", "🐦")


def _modules() -> Iterator[ModuleType]:
    """Every module of `protocol`, and those of the other packages that define a record."""
    root = Path(__file__).parent.parent
    for package in ("protocol", "store", "profiles", "actors"):
        for path in sorted((root / package).rglob("*.py")):
            if package == "protocol" or _DEFINES_A_RECORD.search(path.read_text("utf-8")):
                parts = path.relative_to(root).with_suffix("").parts
                yield importlib.import_module(".".join(parts).removesuffix(".__init__"))


def _below(kind: type[R]) -> Iterator[type[R]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def _records() -> list[type[Record]]:
    names = {module.__name__ for module in _modules()}
    found = {kind for kind in _below(Record) if kind.__module__ in names and kind is not Identified}
    return sorted(found, key=lambda kind: (kind.__module__, kind.__qualname__))


RECORDS: Final[list[type[Record]]] = _records()
IDENTIFIED: Final[list[type[Identified]]] = [k for k in RECORDS if issubclass(k, Identified)]


class Sampler:
    """Draws values and records from `random`. `present`: the share of optional fields filled."""

    def __init__(self, random: Random, *, present: float = 0.5) -> None:
        self.random = random
        self.present = present

    def record(self, kind: type[R]) -> R:
        """One instance of `kind`, valid by its own check."""
        made = self._struct(kind, 0)
        assert isinstance(made, kind)
        return made

    def value(self, depth: int = 0) -> Value:
        """Any value of the encoding's profile, nested at most four deep."""
        choice = self.random.randrange(5 if depth >= _NESTING_MAX else 7)
        if choice == 0:
            return self.integer()
        if choice == 1:
            return self.random.choice((True, False, None))
        if choice == 2:
            return self.random.randbytes(self.random.choice(_LENGTHS))
        if choice < 5:
            return self.text()
        count = self.random.choice((0, 1, 2, 3, 5, 8, 24 if depth == 0 else 1))
        if choice == 5:
            return [self.value(depth + 1) for _ in range(count)]
        return {self.text(): self.value(depth + 1) for _ in range(count)}

    def integer(self, low: int = INT_MIN, high: int = INT_MAX) -> int:
        edges = [edge for edge in (low, *_INTS, *_INTS_BELOW, high) if low <= edge <= high]
        if self.random.random() < 0.5:
            return self.random.choice(edges)
        bits = self.random.randrange(64)
        drawn = self.random.getrandbits(bits) if bits else 0
        return min(max(drawn if self.random.random() < 0.5 else -1 - drawn, low), high)

    def text(self, low: int = 0, high: int = 300) -> str:
        length = min(max(self.random.choice((0, 1, 1, 2, 3, 7, 23, 24, 70)), low), high)
        if self.random.random() < 0.5:
            return "".join(self.random.choices("abcdefghijklmnop_", k=length))
        return "".join(self.random.choices(_LETTERS, k=length))[: max(high, low)]

    def _struct(self, kind: type[Any], depth: int) -> Any:
        if kind in MAKERS:
            return MAKERS[kind](self)
        info = inspect.type_info(kind)
        assert isinstance(info, inspect.StructType), f"{kind.__name__} is not a struct"
        refusal: RequestError | None = None
        for attempt in range(_TRIES):
            # A record's check may allow no instance with all, or none, of its optional fields.
            present = self.present if attempt < 20 else 0.5
            if attempt == 100:
                # A source may give the same again and again, as one does that is being shrunk.
                self.random = Random(self.random.getrandbits(32))
            fields = {
                field.name: self._field(field, depth + 1, f"{kind.__name__}.{field.name}")
                for field in info.fields
                if field.required or (self.random.random() < present and depth < _NESTING_MAX)
            }
            try:
                return kind(**fields)
            except RequestError as error:
                refusal = error
        raise AssertionError(
            f"{_TRIES} random {kind.__name__} were all refused, the last because {refusal}: "
            f"give it a maker in MAKERS of {__file__}"
        )

    def _field(self, field: inspect.Field, depth: int, where: str) -> Any:
        """A value for a field that is there: an optional one is left out, not filled with None."""
        kind = field.type
        if isinstance(kind, inspect.UnionType) and not field.required:
            kind = self.random.choice([t for t in kind.types if type(t) is not inspect.NoneType])
        return self._typed(kind, depth, where)

    def _typed(self, info: inspect.Type, depth: int, where: str) -> Any:
        if isinstance(info, inspect.Metadata):
            info = info.type
        match info:
            case inspect.UnionType():
                return self._typed(self.random.choice(info.types), depth, where)
            case inspect.ListType() | inspect.VarTupleType():
                items = [
                    self._typed(info.item_type, depth + 1, where) for _ in self._counted(depth)
                ]
                return items if isinstance(info, inspect.ListType) else tuple(items)
            case inspect.NamedTupleType():
                return info.cls(*(self._typed(f.type, depth + 1, where) for f in info.fields))
            case inspect.TupleType():
                return tuple(self._typed(item, depth + 1, where) for item in info.item_types)
            case inspect.DictType() if isinstance(info.key_type, inspect.StrType):
                return {
                    self.text(): self._typed(info.value_type, depth + 1, where)
                    for _ in self._counted(depth)
                }
            case inspect.StructType():
                return self._struct(info.cls, depth)
            case inspect.AnyType():
                return self.value(depth)
        return self._scalar(info, where)

    def _scalar(self, info: inspect.Type, where: str) -> Any:
        random = self.random
        match info:
            case inspect.BoolType():
                return random.random() < 0.5
            case inspect.IntType():
                low = INT_MIN if info.ge is None else info.ge
                return self.integer(low, INT_MAX if info.le is None else info.le)
            case inspect.StrType():
                return self.text(info.min_length or 0, info.max_length or 300)
            case inspect.BytesType():
                low, high = info.min_length or 0, info.max_length or 300
                return random.randbytes(min(max(random.choice(_LENGTHS), low), high))
            case inspect.CustomType() if (
                issubclass(info.cls, ObjectId) and info.cls is not ObjectId
            ):
                return info.cls(random.randbytes(DIGEST_BYTES))
            case inspect.EnumType():
                return random.choice(list(info.cls))
            case inspect.LiteralType():
                return random.choice(info.values)
            case inspect.NoneType():
                return None
        raise AssertionError(f"{where}: {info} has no single encoding; use another type")

    def _counted(self, depth: int) -> range:
        return range(self.random.choice((0, 1, 2, 3)) if depth < _NESTING_MAX else 0)


def _capability(sampler: Sampler) -> Capability:
    random = sampler.random
    kinds: tuple[type[Any], ...] = (DomainCaveat, NamespaceCaveat, RequestCaveat, ServiceCaveat)
    drawn: Iterator[Caveat] = (
        sampler.record(kind) for kind in random.sample(kinds, random.randrange(4))
    )
    caveats: dict[bytes, Caveat] = {encode_record(caveat): caveat for caveat in drawn}
    nbf_ns = sampler.integer(0, 2**62)
    return Capability(
        v=1,
        kind="huginn.cap/1",
        iss=random.randbytes(32),
        aud=random.randbytes(32),
        sub=random.randbytes(32),
        res=sampler.record(Resource),
        rights=tuple(sorted(random.sample(list(Right), random.choice((1, 2, len(Right)))))),
        caveats=tuple(caveats[key] for key in sorted(caveats)),
        nbf_ns=nbf_ns,
        exp_ns=nbf_ns + sampler.integer(1, CAPABILITY_LIFETIME_NS_MAX),
        nonce=random.randbytes(16),
        depth_left=sampler.integer(0, CHAIN_LINKS_MAX - 1),
        parent=CapabilityId.of(b"parent") if random.random() < sampler.present else None,
    )


def _inputs(sampler: Sampler, count: int) -> tuple[Input, ...]:
    return numbered([(_label(sampler), _any_id(sampler)) for _ in range(count)])


def _label(sampler: Sampler) -> str:
    return sampler.random.choice(("a", "sequence", "model_contract", "page-2", "z" * 64))


def _any_id(sampler: Sampler) -> ObjectId:
    kind = sampler.random.choice(list(PREFIX_TO_KIND.values()))
    return kind(sampler.random.randbytes(DIGEST_BYTES))


def _invocation(sampler: Sampler) -> DerivationInvocation:
    random = sampler.random
    present = iter([random.random() < sampler.present for _ in range(3)])
    bound = next(present)
    classes = (ExecutionClass.SNAPSHOT_BOUND,) if bound else (ExecutionClass.PURE,)
    others = (ExecutionClass.EFFECTFUL, ExecutionClass.NONDETERMINISTIC)
    return DerivationInvocation(
        format_version=1,
        execution_class=random.choice(classes + others),
        transform=TransformId(random.randbytes(DIGEST_BYTES)),
        transform_contract=ContractId(random.randbytes(DIGEST_BYTES)),
        inputs=_inputs(sampler, random.choice((0, 1, 2, 8))),
        parameters=ParametersId(random.randbytes(DIGEST_BYTES)),
        output_contract=ContractId(random.randbytes(DIGEST_BYTES)),
        runtime_profile=ProfileId(random.randbytes(DIGEST_BYTES)) if next(present) else None,
        snapshot=str(_any_id(sampler)) if bound else None,
        seed=sampler.integer() if next(present) else None,
    )


def _evidence(sampler: Sampler) -> DerivationEvidence:
    random = sampler.random
    return DerivationEvidence(
        format_version=1,
        invocation=InvocationId(random.randbytes(DIGEST_BYTES)),
        engine_build=sampler.text(1, 70) or "b",
        inputs=_inputs(sampler, random.choice((0, 1, 2, 8))),
        outputs=tuple(
            Output(_label(sampler), str(_any_id(sampler))) for _ in range(random.choice((0, 1, 3)))
        ),
        measurements={_label(sampler): sampler.integer() for _ in range(random.choice((0, 1, 2)))},
        authority_epoch=sampler.integer(0),
        domain=random.choice(("alice", "team/b", "Public.1")),
        executor=random.randbytes(PUBLIC_BYTES),
        verifier=EvidenceId(random.randbytes(DIGEST_BYTES))
        if random.random() < sampler.present
        else None,
    )


def _source_key(sampler: Sampler) -> SourceKey:
    return SourceKey(v=1, public_key=Signer(sampler.random.randbytes(SEED_BYTES)).public)


def _event(sampler: Sampler) -> Event:
    random = sampler.random
    staged = random.random() < sampler.present
    seq = sampler.integer(2) if random.random() < sampler.present else 1
    return Event(
        v=1,
        source=SourceId(random.randbytes(DIGEST_BYTES)),
        seq=seq,
        hlc=sampler.integer(1),
        kind=random.choice((*KINDS, "team/a.Deployed", "x.Y2")),
        subject=sampler.text(),
        body={sampler.text(): sampler.value(1) for _ in range(random.choice((0, 1, 2)))},
        prev=EventId(random.randbytes(DIGEST_BYTES)) if seq > 1 else None,
        before=sampler.text(1) if staged else None,
        after=sampler.text(1) if staged else None,
    )


# By record: how to make one, for those that `Sampler` cannot meet by chance.
MAKERS: Final[dict[type[Record], Callable[[Sampler], Record]]] = {
    Capability: _capability,
    DerivationInvocation: _invocation,
    DerivationEvidence: _evidence,
    SourceKey: _source_key,
    Event: _event,
}


def plain(value: Any) -> Any:
    """A record as a map, by reading its attributes: the second way, next to `to_value`."""
    if isinstance(value, Record):
        fields = msgspec.structs.fields(type(value))
        pairs = ((field.name, getattr(value, field.name)) for field in fields)
        tag = (
            {"type": type(value).__struct_config__.tag} if type(value).__struct_config__.tag else {}
        )
        optional = {field.name for field in fields if not field.required}
        return tag | {k: plain(v) for k, v in pairs if not (k in optional and v is None)}
    if isinstance(value, ObjectId):
        return bytes(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    # An enum is a subclass of str or int: what it stands for is the plain value.
    return value.value if hasattr(value, "value") else value
