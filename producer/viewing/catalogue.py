"""Which runs there are to look at, in folders here and in the ledger, and how each of them stands."""

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
from evalq.producer.invocation.finding import find, left_behind
from evalq.producer.servers import Servers
from evalq.producer.sweep.head import read_head

if TYPE_CHECKING:
    from evalq.evalcore.compare.drift import DriftState
    from evalq.workers.ledger.detached import Reports
    from evalq.workers.ledger.history import Entry, HistoryKey
    from evalq.workers.ledger.progress import RunStatus
    from evalq.workers.ledger.sweep_model import SweepHeader, SweepStatus


# What pages show of the ledger, where a server is named: one that is away costs its part of a page, not the page.

T = TypeVar("T")

_QUIET_SECONDS = 5.0
"""For so long a server that did not answer is not asked again: nobody waits for each part of a page anew."""


class Ledger:
    """The ledger of a viewer; without a server it is empty. For many threads at a time."""

    def __init__(self, servers: Servers) -> None:
        """Connects, so that a wrong URL is told when the viewer starts. Raises what `Servers.client` raises."""
        self._servers = servers
        self._asking = threading.Lock()
        self._again = 0.0
        self._created: dict[str, str] = {}
        self.trouble = ""
        """Why the server did not answer when it was asked last; empty while it does."""
        if servers.named:
            _ = servers.client

    @property
    def named(self) -> bool:
        """Whether there is one."""
        return self._servers.named

    @property
    def servers(self) -> Servers:
        """The servers themselves, for what reports its own errors."""
        return self._servers

    def ask(self, what: Callable[[Servers], T], otherwise: T) -> T:
        """What the server answers; ``otherwise`` where there is none, or it does not answer: `trouble` says why."""
        if not self.named or time.monotonic() < self._again:
            return otherwise
        from evalq.workers.servers.errors import SERVER_ERRORS, explained

        try:
            with self._asking:  # clients of a ledger keep what they read, for one thread at a time
                found = what(self._servers)
        except Incomplete:  # it expired
            return otherwise
        except EvalqError as error:
            self._missed(error)
        except SERVER_ERRORS as error:
            self._missed(explained(error, "the ledger's server"))
        else:
            self.trouble = ""
            return found
        return otherwise

    def _missed(self, error: EvalqError) -> None:
        self.trouble = str(error)
        self._again = time.monotonic() + _QUIET_SECONDS

    def runs(self) -> list[str]:
        """Ids of all runs that have not expired."""
        from evalq.workers.ledger.calls import run_of

        def of(servers: Servers) -> list[str]:
            return sorted({*servers.runs.runs(), *map(run_of, servers.sweeps.runs())})

        return self.ask(of, [])

    def created(self, run: str) -> str:
        """When a run was begun, as run.json says it; empty where that is not known. It is asked for once."""
        if run not in self._created:
            seconds = self.ask(lambda servers: servers.runs.created(run), 0.0)
            if not seconds:
                return ""
            self._created[run] = datetime.fromtimestamp(seconds, UTC).isoformat()
        return self._created[run]

    def facts(self, run: str) -> tuple[str, str, str, str] | None:
        """(evaluator, suite, target, state) of a run, as far as they are known; None for one that is not there."""
        look, header = self.look(run), self.ask(lambda servers: servers.runs.header(run), None)
        calls = self.sweep(run)
        target = calls[0].target if calls else ""
        # Calls about outputs follow those that gave them: the run is where the last of them are.
        going = [each for each in self.about(run) if each[1].state not in CALLS_OVER]
        if look is not None and header is not None:
            return header.evaluator, header.suite, target, look.progress.state
        last = going[0] if going else calls
        return ("", "", target, last[1].state) if last else None

    def look(self, run: str) -> RunStatus | None:
        """How a run's evaluation stands."""
        return self.ask(lambda servers: servers.runs.poll(run), None)

    def sweep(self, run: str) -> tuple[SweepHeader, SweepStatus] | None:
        """How a run's live calls stand."""

        return self.ask(lambda servers: _calls(servers, run), None)

    def about(self, run: str) -> list[tuple[SweepHeader, SweepStatus]]:
        """How the calls about a run's outputs stand, of judges for instance."""

        def of(servers: Servers) -> list[tuple[SweepHeader, SweepStatus]]:
            found = (_calls(servers, name) for name in servers.sweeps.judge_sweeps(run))
            return [each for each in found if each is not None]

        return self.ask(of, [])

    def report(self, run: str) -> dict[str, Json] | None:
        """The report.json of a run that workers finished, or whose command left it there.

        Raises WireError where it is none that this evalq reads.
        """
        data = self.ask(lambda servers: _reports(servers).report(run), None)
        return None if data is None else report_of(data, f"what the ledger has of run {run}")

    def cases(self, run: str) -> bytes | None:
        """How the cases of a run went."""
        return self.ask(lambda servers: _reports(servers).cases(run), None)

    def places(self) -> list[HistoryKey]:
        """All histories."""
        return self.ask(lambda servers: servers.history.all(), [])

    def entries(self, evaluator: str, suite: str, target: str, most: int) -> list[Entry]:
        """The runs of a history, the newest first."""
        from evalq.workers.ledger.history import HistoryKey

        return self.ask(lambda servers: servers.history.entries(HistoryKey(evaluator, suite, target), most), [])

    def drift(self, evaluator: str, suite: str, target: str) -> list[DriftState]:
        """How the chains of a history stand."""
        from evalq.workers.ledger.history import HistoryKey

        return self.ask(lambda servers: servers.drift.states(HistoryKey(evaluator, suite, target)), [])


def _calls(servers: Servers, sweep: str) -> tuple[SweepHeader, SweepStatus] | None:
    header, look = servers.sweeps.header(sweep), servers.sweeps.poll(sweep)
    return None if header is None or look is None else (header, look)


def _reports(servers: Servers) -> Reports:
    from evalq.workers.ledger.detached import Reports

    return Reports(servers.runs, servers.settings)


_FRESH_SECONDS = 1.0
"""For so long what was found is taken as it was."""
_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class KnownRun:
    """A run that can be looked at; without a ``folder`` it is in the ledger only."""

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
    """Why nothing more is known of it."""
    noted: int = 0
    """When its folder was noted in last, in ns: it tells runs apart that were begun within a second, as in a list."""


class Catalogue:
    """The runs of one viewer. For many threads at a time."""

    def __init__(self, given: Sequence[str], ledger: Ledger) -> None:
        """``given`` are run folders, folders of them, and ids of runs here. Raises UsageError for anything else."""
        self._ledger = ledger
        self._parents = [RUNS]
        self._named: list[Path] = []
        self.asked: list[str] = []
        """The keys of the runs among ``given``."""
        self._read: dict[Path, tuple[_Stamp, KnownRun]] = {}
        self._found: dict[str, KnownRun] = {}
        self._looked = -_FRESH_SECONDS
        self._looking = threading.Lock()
        wanted = [self._place(name) for name in given]
        known = self.runs()
        for name, path in zip(given, wanted, strict=True):
            self.asked += [each.key for each in known if (each.folder and each.folder.path == path) or
                           (path is None and each.run == name and not each.folder)]  # fmt: skip

    def _place(self, name: str) -> Path | None:
        """The run folder that ``name`` is, also to be shown; None for a folder of runs, and for a run in the ledger."""
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
        """All of them, the latest begun first."""
        with self._looking:
            if time.monotonic() - self._looked >= _FRESH_SECONDS:
                self._found = self._look()
                self._looked = time.monotonic()
            return list(self._found.values())

    def get(self, key: str) -> KnownRun | None:
        """The run of this key."""
        self.runs()
        return self._found.get(key)

    def _look(self) -> dict[str, KnownRun]:
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
        """What the run.json in ``path`` says, read again when it was written again; None where it is gone."""
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
        "", info.run, info.evaluator, info.suite, info.target, info.state, info.started, info.tags, folder, noted=noted
    )


def _with_keys(runs: Sequence[KnownRun]) -> Iterable[KnownRun]:
    """Each with its id as key; where two have the same one, or it could not stand in an address, with a mark behind."""
    counts = Counter(_said(known.run) for known in runs)
    for known in runs:
        key = _said(known.run)
        place = str(known.folder.path.resolve()) if known.folder else ""
        mark = "~" + hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:8]
        marked = counts[key] > 1 or not key.strip(".")  # a browser takes dots for the folder above
        yield replace(known, key=key + (mark if marked else ""))


def _said(run: str) -> str:
    """An id, or the name of a folder, which may be no text at all, as it can stand on a page."""
    return visible(run.encode(errors="replace").decode())


# How a run stands that may still go: by what its folder holds so far, and by the ledger where that is named.

_SEAL, _ANSWER = b'\n{"seal":', b'\n{"call"'
"""What begins a line of a manifest, and one of a call log that is an answer: others tell of attempts and of givers."""
_BLOCK = 1 << 20
_MOST_FILES = 256

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RunProgress:
    """How a run stands: ``share`` of its work is done, where that is known, and ``going`` says that somebody is at it.

    ``meaning`` says what its state means, and ``then`` what its user can do next, where nobody is.
    """

    state: str
    going: bool = False
    share: float | None = None
    facts: Facts = ()
    meaning: str = ""
    then: str = ""

    @property
    def line(self) -> str:
        """The facts in few words."""
        return ", ".join(f"{name.lower()} {value}" for name, value in self.facts[:2])


@dataclass
class _Tail:
    """What was counted of a file that grows: lines up to ``end``, and those that are to be told apart."""

    inode: int
    end: int = 0
    lines: int = 0
    marked: dict[bytes, int] = field(default_factory=dict)
    last: bytes = b"\n"


class ProgressReader:
    """The standings of runs; of files that grow only what is new is read. For many threads at a time."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._tails: OrderedDict[Path, _Tail] = OrderedDict()
        self._counting = threading.Lock()

    def of(self, known: KnownRun) -> RunProgress:
        """How a run stands now; of a folder that is gone, that it is."""
        if known.folder is None:
            return self._away(known)
        try:
            info = known.folder.info()
            alone = left_behind(known.folder, info)
            going = info.state in DRIVEN | {"detached"} and not alone
            standing = RunProgress(
                info.state,
                going,
                meaning=MEANING[info.state].partition(";")[0] if going else MEANING[info.state],
                then="" if going else alone or known.folder.next_step(info.state),
            )
        except (EvalqError, OSError) as error:
            return RunProgress("gone", then=str(error))
        if info.state == "done":
            return standing
        share, facts = self._in_ledger(info.run)
        if info.state == "detached" and not self._open(info.run):
            standing = replace(standing, going=False, then=known.folder.next_step(info.state))
        if not facts:
            share, facts = self._in_folder(known.folder.path)
        return replace(standing, share=share, facts=facts)

    def _away(self, known: KnownRun) -> RunProgress:
        facts = self._ledger.facts(known.run)
        if facts is None:
            return RunProgress("gone", then=self._ledger.trouble or "the ledger does not know this run any more")
        share, shown = self._in_ledger(known.run)
        state = facts[3]
        then = next_step(state, known.run) if state in MEANING and state != "open" else ""  # type: ignore[arg-type]  # one of its keys
        return RunProgress(state, state == "open", share, shown, "in the ledger only; its folder is elsewhere", then)

    def _open(self, run: str) -> bool:
        look, calls = self._ledger.look(run), self._ledger.sweep(run)
        return (look is not None and look.progress.state == "open") or (calls is not None and calls[1].state == "open")

    def _in_ledger(self, run: str) -> tuple[float | None, Facts]:
        look = self._ledger.look(run)
        if look is not None:
            return _of_chunks(look)
        return _of_calls(self._ledger.sweep(run), self._ledger.about(run))

    def _in_folder(self, path: Path) -> tuple[float | None, Facts]:
        """By the files that its driver adds to."""
        with self._counting:
            records = self._counted(path / (RECORDS + ".partial")).lines
            plan = self._counted(path / MANIFEST, _SEAL)
            answers = self._counted(path / CALLS, _ANSWER).marked.get(_ANSWER, 0)
            answered = self._journal(path / JOURNAL)
            recorded, total = self._about(path / FURTHER)
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

    def _about(self, path: Path) -> tuple[int, int]:
        """Calls about outputs that are recorded, and all of them."""
        recorded = total = 0
        for head in sorted(path.glob(f"[0-9]*/{HEAD}")):
            with contextlib.suppress(EvalqError):  # it may go at any moment
                total += read_head(head.parent, HEAD).header.total
                recorded += self._counted(head.with_name(CALLS), _ANSWER).marked.get(_ANSWER, 0)
        return recorded, total

    def _counted(self, path: Path, mark: bytes = b"") -> _Tail:
        """The lines of a file, and those that begin with ``mark``; one that is gone has none."""
        try:
            with open_input(path) as stream:
                tail = self._tail(path, os.fstat(stream.fileno()))
                stream.seek(tail.end)
                while block := stream.read(_BLOCK):
                    tail.lines += block.count(b"\n")
                    if mark:
                        # What begins a line may lie across two blocks: the end of the last one is looked at again.
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
        if tail is None or tail.inode != found.st_ino or tail.end > found.st_size:  # written anew, or taken back
            tail = self._tails[path] = _Tail(found.st_ino)
        self._tails.move_to_end(path)
        return tail


def _of_chunks(look: RunStatus) -> tuple[float | None, Facts]:
    progress = look.progress
    facts = [
        ("Records", f"{progress.records:,}"),
        ("Chunks", f"{progress.committed:,} of {progress.chunks:,}" + ("" if progress.sealed else " so far")),
        ("In work", f"{look.leases:,}"),
    ]
    facts += [("Dead records", f"{progress.dead:,}")] if progress.dead else []
    facts += [("Reason", progress.reason)] if progress.reason else []
    facts += [("Trouble", line) for line in look.trouble]
    return (progress.committed / progress.chunks if progress.sealed and progress.chunks else None), tuple(facts)


def _of_calls(
    calls: tuple[SweepHeader, SweepStatus] | None, about: Sequence[tuple[SweepHeader, SweepStatus]]
) -> tuple[float | None, Facts]:
    """Of the calls for outputs, where there are any, and of those about them."""
    every = [*([calls] if calls else []), *about]
    if not every:
        return None, ()
    facts = [("Calls", _so_many([calls]))] if calls else []
    facts += [("About the outputs", _so_many(about))] if about else []
    facts.append(("In flight", f"{sum(look.busy for _, look in every):,}"))
    errors, cost = sum(look.errors for _, look in every), sum(look.spent for _, look in every)
    facts += [("Errors", f"{errors:,}")] if errors else []
    facts += [("Cost", f"{cost:.4g}")] if cost else []
    facts += [("Reason", look.reason) for _, look in every if look.reason]
    return sum(look.known for _, look in every) / sum(header.total for header, _ in every), tuple(facts)


def _so_many(calls: Sequence[tuple[SweepHeader, SweepStatus]]) -> str:
    return f"{sum(look.known for _, look in calls):,} of {sum(header.total for header, _ in calls):,}"
