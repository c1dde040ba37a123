"""Who drove a sweep in its folder last: whoever takes it over names that token to the ledger."""

from __future__ import annotations

import contextlib
from pathlib import Path

from evalq.evalcore.files import read_plain, write_atomic
from evalq.producer.folder.names import DRIVER

__all__ = ["LastDriver"]


class LastDriver:
    """The token in the file of a run folder at ``place``, which may keep it in another of ``files``."""

    def __init__(self, place: Path, files: Path) -> None:
        self._place = place
        self._path = files / DRIVER

    def token(self) -> str:
        """That of a driver that is dead, where the caller holds the folder's lock.

        Empty where nobody drove, or did so in the folder that this is a copy of.
        """
        with contextlib.suppress(OSError, ValueError):
            token, _, where = read_plain(self._path).decode().rpartition(" ")
            return token if where == self._where() else ""
        return ""

    def note(self, token: str) -> None:
        """Remember whoever drives from now on."""
        write_atomic(self._path, f"{token} {self._where()}".encode())

    def _where(self) -> str:
        found = self._place.stat()
        # A copy of the folder has another inode: it must not take over from the driver of the original.
        return f"{found.st_dev}:{found.st_ino}"
