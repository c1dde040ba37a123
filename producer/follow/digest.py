"""SHA-256 of an input that goes on growing, also in another process."""

from __future__ import annotations

import hashlib
from typing import Any

try:
    from rehashes import PySha256
except ImportError:  # there is no wheel for this platform
    PySha256 = None

__all__ = ["RunningSha256"]


class RunningSha256:
    """The digest of all bytes so far, with a state that can be kept where `rehashes` is installed.

    Without it (it has wheels for Linux only), or with a state that another version of it kept, the bytes have to be
    read again.
    """

    def __init__(self, state: bytes = b"") -> None:
        self._hash: Any = hashlib.sha256()
        if PySha256 is not None:
            self._hash = PySha256.deserialize(state) if state else PySha256()

    @classmethod
    def resume(cls, state: bytes, sha256: str) -> RunningSha256 | None:
        """Go on from a kept ``state``, whose digest was ``sha256``; None where that cannot be done here."""
        if PySha256 is None or not state:
            return None
        try:
            found = cls(state)
        except ValueError:
            return None
        return found if found.hexdigest() == sha256 else None

    def update(self, data: bytes) -> None:
        """Take in the next bytes."""
        self._hash.update(data)

    def hexdigest(self) -> str:
        """The digest of all bytes so far."""
        return str(self._hash.hexdigest() if PySha256 is None else self._hash.finalize())

    def state(self) -> bytes:
        """What `resume` goes on from; empty where it cannot be kept."""
        return b"" if PySha256 is None else bytes(self._hash.serialize())
