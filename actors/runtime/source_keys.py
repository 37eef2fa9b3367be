"""The keys of local sources, beside those of the rooms."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from actors.events.ports import KEY_PREFIX
from actors.ports import Entropy
from protocol.signing import Signer
from store.keys import KeyStore

_SUFFIX: Final = ".ed25519"


class StoredSourceKeys:
    """`SourceKeys` in the key directory `root`: a file for each, 0600, made the first time."""

    def __init__(self, root: Path, entropy: Entropy) -> None:
        self._store = KeyStore(root, entropy=entropy.draw)

    def signer(self, name: str) -> Signer:
        return Signer(bytes(self._store.ed25519(name)))

    def destroy(self, name: str) -> bool:
        return self._store.destroy(f"{name}{_SUFFIX}")

    def keep_only(self, names: Collection[str]) -> None:
        for path in sorted(self._store.root.glob(f"{KEY_PREFIX}*{_SUFFIX}")):
            if path.name.removesuffix(_SUFFIX) not in names:
                self._store.destroy(path.name)
