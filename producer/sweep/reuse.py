"""Outputs that are already paid for: from earlier runs (`--reuse`) and from a cache file (`--cache`)."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from evalq.evalcore.errors import StorageError, UsageError, WireError
from evalq.evalcore.files import open_input, read_plain
from evalq.evalcore.model.calls import Lineage, Output, Prompt
from evalq.producer.folder.call_log import UNANSWERED
from evalq.producer.folder.files import OUTPUTS
from evalq.producer.folder.lock import RunLock, holder
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.sweep.options import SweepOptions

# Outputs per step: each step is synced to disk, so single outputs would be slow, and all at once would take memory.
_STEP = 500


class SourceRun:
    """A run whose outputs another run reuses. Raises UsageError if it has no outputs file."""

    def __init__(self, path: str) -> None:
        self.folder = RunFolder.existing(Path(path))
        self.run = self.folder.info().run
        self.otherwise = 0
        """The number of outputs for the same prompts that were not reused, because the target had other settings."""
        if not self._outputs.is_file():
            info = self.folder.info()
            raise UsageError(
                f"{path}: no output of this run can be taken: it is {info.state} and has no {OUTPUTS}; "
                f"{self.folder.next_step(info.state)}"
            )

    def taken(
        self,
        prompts: Sequence[Prompt],
        live: SweepOptions,
        config: str,
        has: Callable[[int], bool] = lambda call: False,
    ) -> Iterator[list[Output]]:
        """The outputs that a sweep of ``prompts`` needs and does not have (``has``), in blocks.

        Only outputs under the target's settings ``config`` (a digest). Only failures that the agent caused; a sweep
        that extends this run gets all failures. Raises WireError for a damaged file.
        """
        # Compare the prompt as well as the id: a case may have another question now.
        numbers = {(prompt.case, prompt.digest): number for number, prompt in enumerate(prompts)}
        step: list[Output] = []
        for output in self._read():
            number = numbers.get((output.case, output.prompt))
            if number is None or output.target != live.target or output.repeat >= live.repeat:
                continue
            call = output.repeat * len(prompts) + number
            if output.config != config:
                self.otherwise += 1
            # An extension takes failures, too: only failures would get a second chance otherwise.
            elif not has(call) and (live.extends == self.run or not _unanswered(output)):
                step.append(msgspec.structs.replace(output, call=call))
            if len(step) == _STEP:
                yield step
                step = []
        yield step

    def _read(self) -> Iterator[Output]:
        with open_input(self._outputs) as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield Output.of_line(line)
                except WireError as error:
                    raise WireError(f"{self._outputs}:{number}: {error}") from error

    @property
    def _outputs(self) -> Path:
        return self.folder.own(OUTPUTS)

    @property
    def lineage(self) -> Lineage | None:
        """The lineage of this run: the runs whose outputs it reused itself."""
        return self.folder.info().lineage

    @property
    def report(self) -> str:
        """The digest of its report, which comparisons use; "" without a report."""
        if not self.folder.reported:
            return ""
        return hashlib.sha256(read_plain(self.folder.path / "report.json")).hexdigest()


def lineage_of(givers: Mapping[str, SourceRun], reused: Counter[str]) -> Lineage | None:
    """The lineage of a run that reused this many outputs of each of ``givers``; None if it reused none."""
    taken = {run: count for run, count in reused.items() if run and count > 0}
    if not taken:
        return None
    akin, number, first = set(taken), 1, ""
    # Sort by count and name, so that the lineage does not depend on the order of the named runs.
    for run in sorted(taken, key=lambda run: (-taken[run], run)):
        giver = givers[run]
        before = giver.lineage
        akin |= set(before.akin) if before else set()
        number = max(number, 1 + (before.number if before else 0))
        first = first or (before.first if before else "") or giver.report
    return Lineage(taken, tuple(sorted(akin)), number, first)


def _unanswered(output: Output) -> bool:
    return output.error.partition(":")[0] in UNANSWERED


# A cache of recorded outputs in one file.

_SCHEMA = (
    """create table if not exists outputs (
  target text not null, config text not null, prompt text not null, "case" text not null, repeat integer not null,
  output blob not null, primary key (target, config, prompt, "case", repeat)
) without rowid""",
    # Which sweep is asking what. A claim counts while that sweep holds its lock file; the kernel releases the lock even
    # if the process is killed.
    """create table if not exists claims (
  target text not null, config text not null, prompt text not null, "case" text not null, holder text not null,
  primary key (target, config, prompt, "case")
) without rowid""",
)


class Cache:
    """A file of outputs by target, settings' digest, prompt's digest, case and repeat; it never stores errors.

    Several processes may use one file at the same time. If two sweeps ask the same, one of them `claim`s it, and the
    other one waits.
    """

    def __init__(self, path: str | Path, then: str = "name another file with --cache, or omit it") -> None:
        """Raises StorageError if the file is no cache or cannot be written; ``then`` says in its message what to do."""
        self._path = path
        self._then = then
        self._name = secrets.token_hex(6)
        self._lock: RunLock | None = None
        with self._telling():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            # Other sweeps may write to the same file; each one locks it for one transaction.
            self._db = sqlite3.connect(path, timeout=30)
            with self._db:
                for table in _SCHEMA:
                    self._db.execute(table)

    def find(self, target: str, config: str, prompt: Prompt, repeats: Sequence[int]) -> dict[int, Output]:
        """{repeat: output} of the stored ones among ``repeats``. Raises WireError for a damaged entry."""
        query = (
            "select repeat, output from outputs where target = ? and config = ? and prompt = ?"
            ' and "case" = ? and repeat between ? and ?'
        )
        wanted = set(repeats)
        # Select a range and filter it: one query per prompt instead of one per repeat.
        bounds = (min(repeats), max(repeats)) if repeats else (0, -1)
        with self._telling():
            rows = self._db.execute(query, (target, config, prompt.digest, prompt.case, *bounds))
            return {repeat: Output.from_wire(data) for repeat, data in rows if repeat in wanted}

    def some(self, target: str, config: str, most: int) -> list[Output]:
        """Up to ``most`` outputs of a target under these settings. Raises WireError for a damaged entry."""
        query = "select output from outputs where target = ? and config = ? limit ?"
        with self._telling():
            return [Output.from_wire(data) for (data,) in self._db.execute(query, (target, config, most))]

    def keep(self, outputs: Sequence[Output]) -> None:
        """Add outputs without replacing stored ones."""
        rows = [
            (output.target, output.config, output.prompt, output.case, output.repeat, msgspec.json.encode(output))
            for output in outputs
            if not output.failed
        ]
        with self._telling(), self._db:
            self._db.executemany("insert or ignore into outputs values (?, ?, ?, ?, ?, ?)", rows)

    def claim(self, target: str, config: str, prompts: Iterable[Prompt]) -> dict[str, int]:
        """Claim all of these prompts until `close`, so that other sweeps wait for this one's answers.

        If others have claimed some, claim nothing, and return {host and pid: how many}. All or nothing, so that no two
        sweeps wait for each other.
        """
        asked = {(prompt.digest, prompt.case) for prompt in prompts}
        with self._telling():
            if others := self._others(target, config, asked):  # read first: frequent polls must not block writers
                return others
            if self._lock is None:
                self._lock = RunLock.take(self._lock_of(self._name))
            with self._db:
                self._db.execute("begin immediate")
                for name in self._holders() - {self._name}:
                    if not holder(self._lock_of(name)):
                        self._db.execute("delete from claims where holder = ?", (name,))
                        # Safe to remove: every sweep has its own lock file.
                        self._lock_of(name).unlink(missing_ok=True)
                if others := self._others(target, config, asked):
                    return others
                rows = ((target, config, *question, self._name) for question in asked)
                self._db.executemany("insert or ignore into claims values (?, ?, ?, ?, ?)", rows)
        return {}

    def close(self) -> None:
        """Close the file, and release the claims."""
        with contextlib.suppress(sqlite3.Error), self._db:  # claims that remain do not count without the lock
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
        """{host and pid: how many of these prompts it has claimed} of other living sweeps."""
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


def open_cache(path: str, then: str, stack: contextlib.ExitStack) -> Cache | None:
    """The cache at ``path``, which ``stack`` closes; None for an empty path. Raises what `Cache` raises."""
    if not path:
        return None
    cache = Cache(path, then)
    stack.callback(cache.close)
    return cache
