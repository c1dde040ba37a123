"""Where looks at an approved run are counted: in the ledger for all machines, or beside this folder's baselines."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec

from evalq.evalcore.compare.looks import Look
from evalq.evalcore.errors import StorageError
from evalq.evalcore.files import open_appending, read_plain, write_atomic
from evalq.producer.comparing.baselines import FOLDER

if TYPE_CHECKING:
    from evalq.producer.servers import Servers

__all__ = ["Looks", "looks_of"]

_LOOKS = FOLDER / ".looks"


class Looks(Protocol):
    """Looks by the digest of baseline and policy, of a candidate and of its answers.

    `count` is how many there were, `take` gives the look by some answers of a candidate, the next where they are new,
    and `peek` tells it without counting it; `settle` says why a candidate is stopped: why it was stopped first.
    """

    def count(self, baseline: str) -> int: ...

    def peek(self, baseline: str, candidate: str, answers: str) -> Look: ...

    def take(self, baseline: str, candidate: str, answers: str) -> Look: ...

    def settle(self, baseline: str, candidate: str, stopped: str) -> str: ...


def looks_of(servers: Servers) -> Looks:
    """The server's, where one is named."""
    return servers.looks if servers.named else _FileLooks(_LOOKS)


# Bounded: errors are divided by these numbers, and whoever edits the file could make one of them 0.
_Number = Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]


class _Candidate(msgspec.Struct):
    looks: dict[str, tuple[_Number, _Number]] = {}
    stands: str = ""


class _Count(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0
    candidates: dict[str, _Candidate] = {}

    def look(self, candidate: str, answers: str) -> Look:
        """By some answers of a candidate: the one that it was before, or the next."""
        known = self.candidates.get(candidate, _Candidate())
        given = known.looks.get(answers, (self.count + 1, len(known.looks) + 1))
        return Look(*given, known.stands)


class _FileLooks:
    """A file for each baseline and policy, one process at a time. They are of this clone alone, and not committed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def count(self, baseline: str) -> int:
        path = self._folder / f"{baseline}.json"
        return self._read(path).count if path.exists() else 0

    def peek(self, baseline: str, candidate: str, answers: str) -> Look:
        with self._counted(baseline) as count:
            return count.look(candidate, answers)

    def take(self, baseline: str, candidate: str, answers: str) -> Look:
        with self._counted(baseline) as count:
            look = count.look(candidate, answers)
            known = count.candidates.setdefault(candidate, _Candidate())
            # A candidate that was stopped stays so: looking at it again decides nothing, and spends nothing.
            if answers not in known.looks and not known.stands:
                count.count, known.looks[answers] = look.number, (look.number, look.draw)
            return look

    def settle(self, baseline: str, candidate: str, stopped: str) -> str:
        with self._counted(baseline) as count:
            known = count.candidates.setdefault(candidate, _Candidate())
            # The first reason stays, whatever later answers say.
            # A reason may quote a name that is no UTF-8, and such text has no JSON: its bytes stay readable.
            known.stands = known.stands or stopped.encode(errors="backslashreplace").decode()
            return known.stands

    @contextmanager
    def _counted(self, baseline: str) -> Iterator[_Count]:
        """What is counted so far, and written back at the end. Raises StorageError."""
        path = self._folder / f"{baseline}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not (ignored := self._folder / ".gitignore").exists():
                write_atomic(ignored, b"*\n")
            with open_appending(self._folder / "lock") as lock:
                # Before it is read: two that read one count would take the same look.
                fcntl.flock(lock, fcntl.LOCK_EX)
                count = self._read(path) if path.exists() else _Count()
                before = msgspec.json.encode(count)
                yield count
                # Only what was counted: a peek leaves the file as it is.
                if (after := msgspec.json.encode(count)) != before:
                    write_atomic(path, after)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror or error}: looks at a baseline have to be counted") from error

    @staticmethod
    def _read(path: Path) -> _Count:
        try:
            return msgspec.json.decode(read_plain(path), type=_Count)
        except msgspec.DecodeError as error:
            raise StorageError(f"{path} is damaged ({error}): remove it, and looks are counted anew") from error
