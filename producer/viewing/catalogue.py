"""The runs that a viewer shows, in folders and in the ledger, and their progress."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from evalq.evalcore.errors import EvalqError, Incomplete, UsageError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.life import CALLS_OVER, DRIVEN, MEANING, next_step
from evalq.evalcore.views.markdown import visible
from evalq.producer.folder.documents import report_of
from evalq.producer.folder.files import CALLS, FURTHER, HEAD, JOURNAL, MANIFEST, RECORDS, RUNS
from evalq.producer.folder.journal import count_answers
from evalq.producer.folder.run_folder import RunFolder, is_private
from evalq.producer.invocation.finding import driver_hint, find
from evalq.producer.servers import Servers
from evalq.producer.sweep.head import read_head

if TYPE_CHECKING:
    from evalq.evalcore.compare.drift import DriftState
    from evalq.workers.ledger.detached import Reports
    from evalq.workers.ledger.history import Entry, HistoryKey
    from evalq.workers.ledger.progress import RunStatus
    from evalq.workers.ledger.sweep_model import SweepHeader, SweepStatus


# The ledger for pages. If the server does not answer, pages show the rest.

T = TypeVar("T")

_QUIET_SECONDS = 5.0
"""Pause after a server did not answer, so that not each part of a page waits."""


class Ledger:
    """The ledger of a viewer, empty without a server. Thread-safe."""

    def __init__(self, servers: Servers) -> None:
        """Connects, so that a wrong URL fails at the start. Raises what `Servers.client` raises."""
        self._servers = servers
        self._asking = threading.Lock()
        self._retry_at = 0.0
        self._created: dict[str, str] = {}
        self.trouble = ""
        """Why the server did not answer the last request; empty if it did."""
        if servers.named:
            _ = servers.client

    @property
    def named(self) -> bool:
        """Whether a server is named."""
        return self._servers.named

    @property
    def servers(self) -> Servers:
        """The servers, for callers that handle their errors."""
        return self._servers

    def ask(self, what: Callable[[Servers], T], otherwise: T) -> T:
        """The server's answer, or ``otherwise`` if there is none (see `trouble`)."""
        if not self.named or time.monotonic() < self._retry_at:
            return otherwise
        from evalq.workers.servers.errors import SERVER_ERRORS, explained

        try:
            with self._asking:  # clients of a ledger are not thread-safe
                found = what(self._servers)
        except Incomplete:  # it has expired
            return otherwise
        except EvalqError as error:
            self._note_failure(error)
        except SERVER_ERRORS as error:
            self._note_failure(explained(error, "the ledger's server"))
        else:
            self.trouble = ""
            return found
        return otherwise

    def _note_failure(self, error: EvalqError) -> None:
        self.trouble = str(error)
        self._retry_at = time.monotonic() + _QUIET_SECONDS

    def runs(self) -> list[str]:
        """Ids of all runs that have not expired."""
        from evalq.workers.ledger.calls import run_of

        def of(servers: Servers) -> list[str]:
            return sorted({*servers.runs.runs(), *map(run_of, servers.sweeps.runs())})

        return self.ask(of, [])

    def created(self, run: str) -> str:
        """The start of a run, in the form of run.json; empty if unknown. Cached."""
        if run not in self._created:
            seconds = self.ask(lambda servers: servers.runs.created(run), 0.0)
            if not seconds:
                return ""
            self._created[run] = datetime.fromtimestamp(seconds, UTC).isoformat()
        return self._created[run]

    def facts(self, run: str) -> tuple[str, str, str, str] | None:
        """(evaluator, suite, target, state) of a run, as far as known; None if the ledger does not have it."""
        status, header = self.status(run), self.ask(lambda servers: servers.runs.header(run), None)
        calls = self.sweep(run)
        target = calls[0].target if calls else ""
        # Judges are called after the target, so the state is that of the last calls.
        going = [each for each in self.about(run) if each[1].state not in CALLS_OVER]
        if status is not None and header is not None:
            return header.evaluator, header.suite, target, status.progress.state
        last = going[0] if going else calls
        return ("", "", target, last[1].state) if last else None

    def status(self, run: str) -> RunStatus | None:
        """The status of a run's evaluation."""
        return self.ask(lambda servers: servers.runs.poll(run), None)

    def sweep(self, run: str) -> tuple[SweepHeader, SweepStatus] | None:
        """The status of a run's live calls."""
        return self.ask(lambda servers: _calls(servers, run), None)

    def about(self, run: str) -> list[tuple[SweepHeader, SweepStatus]]:
        """The status of the calls about a run's outputs, such as those of judges."""

        def of(servers: Servers) -> list[tuple[SweepHeader, SweepStatus]]:
            found = (_calls(servers, name) for name in servers.sweeps.judge_sweeps(run))
            return [each for each in found if each is not None]

        return self.ask(of, [])

    def report(self, run: str) -> dict[str, Json] | None:
        """The report.json of a run in the ledger.

        Raises WireError if this evalq cannot read it.
        """
        data = self.ask(lambda servers: _reports(servers).report(run), None)
        return None if data is None else report_of(data, f"the ledger's record of run {run}")

    def cases(self, run: str) -> bytes | None:
        """The encoded cases of a run."""
        return self.ask(lambda servers: _reports(servers).cases(run), None)

    def places(self) -> list[HistoryKey]:
        """All histories."""
        return self.ask(lambda servers: servers.history.all(), [])

    def entries(self, evaluator: str, suite: str, target: str, most: int) -> list[Entry]:
        """The runs of a history, the newest first."""
        from evalq.workers.ledger.history import HistoryKey

        return self.ask(lambda servers: servers.history.entries(HistoryKey(evaluator, suite, target), most), [])

    def drift(self, evaluator: str, suite: str, target: str) -> list[DriftState]:
        """The drift of a history's chains."""
        from evalq.workers.ledger.history import HistoryKey

        return self.ask(lambda servers: servers.drift.states(HistoryKey(evaluator, suite, target)), [])


def _calls(servers: Servers, sweep: str) -> tuple[SweepHeader, SweepStatus] | None:
    header, status = servers.sweeps.header(sweep), servers.sweeps.poll(sweep)
    return None if header is None or status is None else (header, status)


def _reports(servers: Servers) -> Reports:
    from evalq.workers.ledger.detached import Reports

    return Reports(servers.runs, servers.settings)


_FRESH_SECONDS = 1.0
"""The list of runs is read again after this time."""
_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class KnownRun:
    """A run of the viewer; without a ``folder`` it is in the ledger only."""

    key: str
    run: str
    evaluator: str = ""
    suite: str = ""
    target: str = ""
    state: str = ""
    started: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    folder: RunFolder | None = None
    trouble: str = ""
    """Why its facts are unknown."""
    lang: str = ""
    """The language that its report was asked for; empty for its evaluator's own."""
    interval: str = ""
    cost: float = 0.0
    duration: float | None = None
    noted: int = 0
    """The time of its run.json in ns, which orders runs that began within a second."""


class Catalogue:
    """The runs of one viewer. Thread-safe."""

    def __init__(self, given: Sequence[str], ledger: Ledger) -> None:
        """``given`` are run folders, folders of them, and ids of runs here. Raises UsageError for anything else."""
        self._ledger = ledger
        self._parents = [RUNS]
        self._named: list[Path] = []
        self.asked: list[str] = []
        """The keys of the runs among ``given``."""
        self._read: dict[Path, tuple[_Stamp, KnownRun]] = {}
        self._found: dict[str, KnownRun] = {}
        self._read_at = -_FRESH_SECONDS
        self._reading = threading.Lock()
        wanted = [self._resolve(name) for name in given]
        known = self.runs()
        for name, path in zip(given, wanted, strict=True):
            self.asked += [each.key for each in known if (each.folder and each.folder.path == path) or
                           (path is None and each.run == name and not each.folder)]  # fmt: skip

    def _resolve(self, name: str) -> Path | None:
        """Add the run or folder of runs ``name``; returns the path of a run folder, or None."""
        path = Path(name)
        if path.is_dir() and not (path / "run.json").is_file():
            if not any(path.glob("*/run.json")):
                raise UsageError(f"{path}: neither a run folder (it has no run.json) nor a folder of run folders")
            self._parents.append(path)
            return None
        try:
            found = find(name).path
        except UsageError:
            if name in self._ledger.runs():
                return None
            raise
        if found.parent not in self._parents:
            self._named.append(found)
        return found

    def runs(self) -> list[KnownRun]:
        """All runs, the latest begun first."""
        with self._reading:
            if time.monotonic() - self._read_at >= _FRESH_SECONDS:
                self._found = self._read_all()
                self._read_at = time.monotonic()
            return list(self._found.values())

    def get(self, key: str) -> KnownRun | None:
        """The run of this key."""
        self.runs()
        return self._found.get(key)

    def _read_all(self) -> dict[str, KnownRun]:
        paths = self._folders()
        folders = [known for path in paths if (known := self._known(path)) is not None]
        self._read = {path: read for path in paths if (read := self._read.get(path)) is not None}
        here = {known.run for known in folders}
        away = [KnownRun(run, run, started=self._ledger.created(run)) for run in self._ledger.runs() if run not in here]
        ordered = sorted([*folders, *away], key=lambda each: (each.started, each.noted, each.run), reverse=True)
        return {known.key: known for known in _with_keys(ordered)}

    def _folders(self) -> list[Path]:
        found = [path.parent for parent in self._parents for path in parent.glob("*/run.json")]
        distinct: dict[Path, Path] = {}
        for path in [*self._named, *(path for path in found if not is_private(path.name))]:
            distinct.setdefault(path.resolve(), path)
        return list(distinct.values())

    def _known(self, path: Path) -> KnownRun | None:
        """The run in ``path``, from a cache while run.json is unchanged; None if it is gone."""
        try:
            found = (path / "run.json").stat()
        except OSError:
            self._read.pop(path, None)
            return None
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        before = self._read.get(path)
        if before is None or before[0] != stamp:
            before = self._read[path] = (stamp, _known_run(path, found.st_ctime_ns))
        return before[1]


def _known_run(path: Path, noted: int) -> KnownRun:
    folder = RunFolder(path)
    try:
        info = folder.info()
    except (EvalqError, OSError) as error:
        return KnownRun("", path.name, folder=folder, trouble=str(error))
    return KnownRun(
        "", info.run, info.evaluator, info.suite, info.target, info.state, info.started, info.tags, folder, noted=noted,
        lang=str(info.request.options.get("lang") or ""), interval=info.interval, cost=info.cost,
        duration=info.duration,
    )  # fmt: skip


def _with_keys(runs: Sequence[KnownRun]) -> Iterable[KnownRun]:
    """Add keys: the id, with a suffix if it is not unique or not usable in an address."""
    counts = Counter(_printable(known.run) for known in runs)
    for known in runs:
        key = _printable(known.run)
        path_text = str(known.folder.path.resolve()) if known.folder else ""
        mark = "~" + hashlib.sha256(path_text.encode(errors="surrogateescape")).hexdigest()[:8]
        marked = counts[key] > 1 or not key.strip(".")  # a browser takes dots for the folder above
        yield replace(known, key=key + (mark if marked else ""))


def _printable(run: str) -> str:
    """An id or a folder's name, which may not be UTF-8, as printable text."""
    return visible(run.encode(errors="replace").decode())


# The progress of a run, by the files in its folder and by the ledger.

_SEAL, _ANSWER = b'\n{"seal":', b'\n{"call"'
"""The beginning of a manifest's last line, and of an answer's line in a call log."""
_BLOCK = 1 << 20
_MOST_FILES = 256

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run: the ``share`` of its work that is done, if known; ``going``: a process drives it.

    ``meaning`` explains its state, and ``then`` is the user's next step if no process drives it.
    """

    state: str
    going: bool = False
    share: float | None = None
    facts: Facts = ()
    meaning: str = ""
    then: str = ""

    @property
    def line(self) -> str:
        """The first facts as one line."""
        return ", ".join(f"{name.lower()} {value}" for name, value in self.facts[:2])


@dataclass
class _Tail:
    """The counts of a growing file: lines up to ``end``, and lines with a mark."""

    inode: int
    end: int = 0
    lines: int = 0
    marked: dict[bytes, int] = field(default_factory=dict)
    last: bytes = b"\n"


class ProgressReader:
    """Reads the progress of runs; of growing files it reads only new data. Thread-safe."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._tails: OrderedDict[Path, _Tail] = OrderedDict()
        self._counting = threading.Lock()

    def of(self, known: KnownRun) -> RunProgress:
        """The progress of a run, or that its folder is gone."""
        if known.folder is None:
            return self._away(known)
        try:
            info = known.folder.info()
            alone = driver_hint(known.folder, info)
            going = info.state in DRIVEN | {"detached"} and not alone
            progress = RunProgress(
                info.state,
                going,
                meaning=MEANING[info.state].partition(";")[0] if going else MEANING[info.state],
                then="" if going else alone or known.folder.next_step(info.state),
            )
        except (EvalqError, OSError) as error:
            return RunProgress("gone", then=str(error))
        if info.state == "done":
            return progress
        share, facts = self._in_ledger(info.run)
        if info.state == "detached" and not self._open(info.run):
            progress = replace(progress, going=False, then=known.folder.next_step(info.state))
        if not facts:
            share, facts = self._in_folder(known.folder.path)
        return replace(progress, share=share, facts=facts)

    def _away(self, known: KnownRun) -> RunProgress:
        facts = self._ledger.facts(known.run)
        if facts is None:
            return RunProgress("gone", then=self._ledger.trouble or "the ledger does not know this run any more")
        share, shown = self._in_ledger(known.run)
        state = facts[3]
        then = next_step(state, known.run) if state in MEANING and state != "open" else ""  # type: ignore[arg-type]  # one of its keys
        return RunProgress(state, state == "open", share, shown, "in the ledger only; its folder is elsewhere", then)

    def _open(self, run: str) -> bool:
        status, calls = self._ledger.status(run), self._ledger.sweep(run)
        return (status is not None and status.progress.state == "open") or (
            calls is not None and calls[1].state == "open"
        )

    def _in_ledger(self, run: str) -> tuple[float | None, Facts]:
        status = self._ledger.status(run)
        if status is not None:
            return _of_chunks(status)
        return _of_calls(self._ledger.sweep(run), self._ledger.about(run))

    def _in_folder(self, path: Path) -> tuple[float | None, Facts]:
        """The progress by the files of its driver."""
        with self._counting:
            records = self._counted(path / (RECORDS + ".partial")).lines
            plan = self._counted(path / MANIFEST, _SEAL)
            answers = self._counted(path / CALLS, _ANSWER).marked.get(_ANSWER, 0)
            answered = self._journal(path / JOURNAL)
            recorded, total = self._judge_calls(path / FURTHER)
            while len(self._tails) > _MOST_FILES:
                self._tails.popitem(last=False)
        sealed = plan.marked.get(_SEAL, 0)
        chunks = max(0, plan.lines - 1 - sealed)
        facts = [("Records", f"{records:,}")] if records else []
        if chunks:
            facts.append(("Chunks", f"{answered:,} of {chunks:,}" + ("" if sealed else " so far")))
        else:
            facts += [("Answers recorded", f"{answers:,}")] if answers else []
            facts += [("About the outputs", f"{recorded:,} of {total:,}")] if total else []
        return (answered / chunks if sealed and chunks else None), tuple(facts)

    def _judge_calls(self, path: Path) -> tuple[int, int]:
        """The recorded calls about outputs, and the total."""
        recorded = total = 0
        for head in sorted(path.glob(f"[0-9]*/{HEAD}")):
            with contextlib.suppress(EvalqError):  # it may be removed at any moment
                total += read_head(head.parent, HEAD).header.total
                recorded += self._counted(head.with_name(CALLS), _ANSWER).marked.get(_ANSWER, 0)
        return recorded, total

    def _counted(self, path: Path, mark: bytes = b"") -> _Tail:
        """Count the lines of a file, and those that begin with ``mark``; none if it is gone."""
        try:
            with open_input(path) as stream:
                tail = self._tail(path, os.fstat(stream.fileno()))
                stream.seek(tail.end)
                while block := stream.read(_BLOCK):
                    tail.lines += block.count(b"\n")
                    if mark:
                        # A mark may lie across two blocks, so the end of the last block is searched again.
                        tail.marked[mark] = tail.marked.get(mark, 0) + (tail.last + block).count(mark)
                        tail.last = (tail.last + block)[-len(mark) + 1 :]
                    tail.end += len(block)
                return tail
        except OSError:
            return _Tail(0)

    def _journal(self, path: Path) -> int:
        with contextlib.suppress(OSError):
            tail = self._tail(path, path.stat())
            count, tail.end = count_answers(path, tail.end)
            tail.lines += count
            return tail.lines
        return 0

    def _tail(self, path: Path, found: os.stat_result) -> _Tail:
        tail = self._tails.get(path)
        if tail is None or tail.inode != found.st_ino or tail.end > found.st_size:  # written again, or truncated
            tail = self._tails[path] = _Tail(found.st_ino)
        self._tails.move_to_end(path)
        return tail


def _of_chunks(status: RunStatus) -> tuple[float | None, Facts]:
    progress = status.progress
    facts = [
        ("Records", f"{progress.records:,}"),
        ("Chunks", f"{progress.committed:,} of {progress.chunks:,}" + ("" if progress.sealed else " so far")),
        ("In work", f"{status.leases:,}"),
    ]
    facts += [("Dead records", f"{progress.dead:,}")] if progress.dead else []
    facts += [("Reason", progress.reason)] if progress.reason else []
    facts += [("Trouble", line) for line in status.trouble]
    return (progress.committed / progress.chunks if progress.sealed and progress.chunks else None), tuple(facts)


def _of_calls(
    calls: tuple[SweepHeader, SweepStatus] | None, about: Sequence[tuple[SweepHeader, SweepStatus]]
) -> tuple[float | None, Facts]:
    """The progress of the calls for outputs, and of those about them."""
    every = [*([calls] if calls else []), *about]
    if not every:
        return None, ()
    facts = [("Calls", _known_of([calls]))] if calls else []
    facts += [("About the outputs", _known_of(about))] if about else []
    facts.append(("In flight", f"{sum(status.busy for _, status in every):,}"))
    errors, cost = sum(status.errors for _, status in every), sum(status.spent for _, status in every)
    facts += [("Errors", f"{errors:,}")] if errors else []
    facts += [("Cost", f"{cost:.4g}")] if cost else []
    facts += [("Reason", status.reason) for _, status in every if status.reason]
    return sum(status.known for _, status in every) / sum(header.total for header, _ in every), tuple(facts)


def _known_of(calls: Sequence[tuple[SweepHeader, SweepStatus]]) -> str:
    return f"{sum(status.known for _, status in calls):,} of {sum(header.total for header, _ in calls):,}"
