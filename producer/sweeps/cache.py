"""A cache of recorded outputs in one file: what was paid for once, under the same settings, is not paid for again."""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from evalq.evalcore.errors import StorageError, WireError
from evalq.evalcore.model.calls import Output, Prompt
from evalq.producer.folder.lock import RunLock, holder

__all__ = ["Cache"]

_SCHEMA = (
    """create table if not exists outputs (
  target text not null, config text not null, prompt text not null, "case" text not null, repeat integer not null,
  output blob not null, primary key (target, config, prompt, "case", repeat)
) without rowid""",
    # Who is about to ask what: it counts while that sweep holds its lock, which the kernel gives back however it ends.
    """create table if not exists claims (
  target text not null, config text not null, prompt text not null, "case" text not null, holder text not null,
  primary key (target, config, prompt, "case")
) without rowid""",
)


class Cache:
    """Outputs by target, its settings' digest, the prompt's digest, case and repeat; errors are never kept.

    Several processes may use one file at once; of two sweeps that ask the same, the one that did not `claim` it waits.
    """

    def __init__(self, path: str | Path, then: str = "name another file with --cache, or omit it") -> None:
        """Raises StorageError for a file that is no cache or cannot be written; ``then`` says what to do there."""
        self._path = path
        self._then = then
        self._name = secrets.token_hex(6)
        self._lock: RunLock | None = None
        with self._telling():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            # Other sweeps may write to the same file: each holds it for one transaction.
            self._db = sqlite3.connect(path, timeout=30)
            with self._db:
                for table in _SCHEMA:
                    self._db.execute(table)

    def find(self, target: str, config: str, prompt: Prompt, repeats: Sequence[int]) -> dict[int, Output]:
        """{repeat: output} of those that are known. Raises WireError for a damaged entry."""
        query = (
            "select repeat, output from outputs where target = ? and config = ? and prompt = ?"
            ' and "case" = ? and repeat between ? and ?'
        )
        wanted = set(repeats)
        # A range, then exactly those: one query for each prompt instead of one for each repeat.
        bounds = (min(repeats), max(repeats)) if repeats else (0, -1)
        with self._telling():
            rows = self._db.execute(query, (target, config, prompt.digest, prompt.case, *bounds))
            return {repeat: Output.from_wire(data) for repeat, data in rows if repeat in wanted}

    def some(self, target: str, config: str, most: int) -> list[Output]:
        """Any outputs of a target under these settings, ``most`` at most. Raises WireError for a damaged entry."""
        query = "select output from outputs where target = ? and config = ? limit ?"
        with self._telling():
            return [Output.from_wire(data) for (data,) in self._db.execute(query, (target, config, most))]

    def keep(self, outputs: Sequence[Output]) -> None:
        """Add outputs; one that is known already stays as it is."""
        rows = [
            (output.target, output.config, output.prompt, output.case, output.repeat, msgspec.json.encode(output))
            for output in outputs
            if not output.failed
        ]
        with self._telling(), self._db:
            self._db.executemany("insert or ignore into outputs values (?, ?, ?, ?, ?, ?)", rows)

    def claim(self, target: str, config: str, prompts: Iterable[Prompt]) -> dict[str, int]:
        """Claim the right to ask all of these, until `close`: nobody else who asks first takes them from here.

        Where others have some of them nothing is claimed: returns how many each has, by its host and pid. All or
        nothing, so that no two sweeps ever wait for each other.
        """
        asked = {(prompt.digest, prompt.case) for prompt in prompts}
        with self._telling():
            if others := self._others(target, config, asked):  # asked often: a look need not stop those who write
                return others
            if self._lock is None:
                self._lock = RunLock.take(self._lock_of(self._name))
            with self._db:
                self._db.execute("begin immediate")
                for name in self._holders() - {self._name}:
                    if not holder(self._lock_of(name)):
                        self._db.execute("delete from claims where holder = ?", (name,))
                        # Nobody takes it again: each sweep has a name of its own.
                        self._lock_of(name).unlink(missing_ok=True)
                if others := self._others(target, config, asked):
                    return others
                rows = ((target, config, *question, self._name) for question in asked)
                self._db.executemany("insert or ignore into claims values (?, ?, ?, ?, ?)", rows)
        return {}

    def close(self) -> None:
        """Let go of the file, and of what was claimed."""
        with contextlib.suppress(sqlite3.Error), self._db:  # what stays there counts no more, without its lock
            if self._lock is not None:
                self._db.execute("delete from claims where holder = ?", (self._name,))
        self._db.close()
        if self._lock is not None:
            self._lock.release(remove=True)

    def _lock_of(self, name: str) -> Path:
        return Path(f"{self._path}.{name}.lock")

    def _holders(self) -> set[str]:
        return {name for (name,) in self._db.execute("select distinct holder from claims")}

    def _others(self, target: str, config: str, asked: set[tuple[str, str]]) -> dict[str, int]:
        """How many of these questions others have claimed who live."""
        query = 'select prompt, "case", holder from claims where target = ? and config = ? and holder != ?'
        rows = self._db.execute(query, (target, config, self._name))
        found = Counter(name for prompt, case, name in rows if (prompt, case) in asked)
        living = ((holder(self._lock_of(name)), count) for name, count in found.items())
        return {who: count for who, count in living if who}

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"{self._path}: this cache cannot be used: {error}; {self._then}") from error
        except WireError as error:
            raise WireError(f"{self._path}: {error}") from error
