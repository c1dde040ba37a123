"""The progress of a job, for a person, a log file or a program."""

from __future__ import annotations

import contextlib
import copy
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from evalq.evalcore.model.canonical import Json, canonical_line
from evalq.evalcore.views.markdown import printed, visible
from evalq.producer.monitor.fleet import Fleet, format_duration

if TYPE_CHECKING:
    from evalq.workers.ledger.progress import Progress


AGAIN_SECONDS = 30.0
"""How often a reason for waiting is reported again."""


class ShownProgress(msgspec.Struct, frozen=True):
    """The progress of a job: records and bytes collected, total bytes, the ledger's counters, and the fleet.

    ``workers`` serve it; ``others`` are of another version ({code: how many}); ``lacking``: none has its evaluator.
    ``note`` is a remark for a person, ``unit`` the unit if it is not the job's records. ``trouble`` has a line for each
    host that failed.
    """

    records: int
    done_bytes: int
    total_bytes: int
    progress: Progress | None = None
    workers: int | None = None
    others: dict[str, int] = {}
    lacking: bool = False
    fleet: Fleet | None = None
    note: str = ""
    unit: str = ""
    trouble: tuple[str, ...] = ()


Watcher = Callable[[ShownProgress], None]


class StatusSink(Protocol):
    """A receiver of waiting times, such as `Reporter`."""

    def waiting(self, what: str, since: float, limit: float | None) -> None:
        """``what`` has lasted for ``since`` seconds; evalq waits up to ``limit`` in all (None: without end)."""

    def recovered(self, what: str, after: float) -> None:
        """``what`` is over, after ``after`` seconds."""


# The reporter of a run's progress.

STILL_SECONDS = 5.0
"""After this long without progress the rate is not shown."""


class Reporter:
    """Progress on standard error (a bar on a terminal, a line a minute elsewhere), or JSON lines on standard output."""

    def __init__(
        self,
        unit: str,
        *,
        quiet: bool,
        bar: bool,
        json_lines: bool,
        verbose: bool = False,
        line_seconds: float = 60.0,
    ) -> None:
        """Progress is in ``unit``; without a ``bar`` a line comes every ``line_seconds``."""
        self._unit = unit
        self._quiet = quiet
        self._bar = bar and sys.stderr.isatty() and not json_lines
        self._json = json_lines
        self._verbose = verbose
        self._line_seconds = line_seconds
        self._freeze: Callable[[], None] = lambda: None
        self._name = ""

    def named(self, name: str) -> Reporter:
        """This reporter for one of several parts at once: its lines begin with its name, and there is no bar."""
        made = copy.copy(self)
        made._bar, made._name = False, f"{name}: "
        return made

    def say(self, text: str) -> None:
        """Print a line for a person."""
        if not self._quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Print a line even with --quiet: why nothing happens, or what went wrong."""
        if not self._json:
            # A closed stream or a full disk must not end the computation.
            with contextlib.suppress(OSError):
                print(printed(self._name + text), file=sys.stderr, flush=True)  # noqa: T201 - this class's medium

    def detail(self, text: str) -> None:
        """Print a line with --verbose."""
        if self._verbose:
            self.say(text)

    def event(self, name: str, **facts: Json) -> None:
        """Print a JSON line with --json: launch, progress, waiting, recovered, restarted, done or error."""
        if self._json:
            sys.stdout.buffer.write(canonical_line({"event": name, **facts}))
            sys.stdout.buffer.flush()

    def waiting(self, what: str, since: float = 0.0, limit: float | None = None) -> None:
        """Report what evalq has waited for during ``since`` seconds, and for how long it will wait in all (``limit``).
        Callers repeat it. It is printed even with --quiet."""
        how_long = f" ({since:.0f} s so far, {limit:g} s at most)" if limit else ""
        self._freeze()
        self.warn(f"waiting: {what}{how_long}")
        self.event("waiting", what=what, since=round(since, 1), limit=limit)

    def recovered(self, what: str, after: float) -> None:
        """Report that a wait of ``after`` seconds is over."""
        self.warn(f"resumed after {after:.0f} s of waiting")
        self.event("recovered", what=what, after=round(after, 1))

    def restarted(self, text: str) -> None:
        """Report that a process of this command ended and is started again."""
        self.warn(text)
        self.event("restarted", message=text)

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watcher]:
        """A function that takes each progress while a run is driven."""
        if self._bar and not self._quiet:
            with self._rich() as watch:
                yield watch
        else:
            yield self._lines()

    def _lines(self) -> Watcher:
        pace, printed_at = _Pace(), time.monotonic()
        named: set[str] = set()

        def watch(shown: ShownProgress) -> None:
            nonlocal printed_at
            pace.update(shown)
            self.event("progress", **_progress_facts(shown))
            for line in shown.trouble:
                if (reason := _without_count(line)) not in named:  # each host's reason once, when it comes
                    named.add(reason)
                    self.say(line)
            if time.monotonic() - printed_at >= self._line_seconds:
                printed_at = time.monotonic()
                self.say(_progress_line(shown, pace, self._unit))

        return watch

    @contextlib.contextmanager
    def _rich(self) -> Iterator[Watcher]:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        # Not markup: a path in brackets in a host's message would raise an error.
        columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[note]}", markup=False))
        pace = _Pace()
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("", total=None, note="")

            def watch(shown: ShownProgress) -> None:
                pace.update(shown)
                note = visible(_progress_line(shown, pace, self._unit))
                progress.update(task, total=shown.total_bytes, completed=shown.done_bytes, note=note)

            self._freeze = lambda: progress.update(task, note="waiting")
            try:
                yield watch
            finally:
                self._freeze = lambda: None


class _Pace:
    """The rate of a job since the first poll, without the work of earlier commands or a cache."""

    def __init__(self) -> None:
        self._first: tuple[float, ShownProgress] | None = None
        self._moved: tuple[float, tuple[int, int]] = 0.0, (-1, -1)
        self._still = 0.0
        self._records = self._bytes = 0.0

    def update(self, shown: ShownProgress) -> None:
        """Update the rate."""
        now = time.monotonic()
        began, first = self._first = self._first or (now, shown)
        if now > began:
            self._records = (shown.records - first.records) / (now - began)
            self._bytes = (shown.done_bytes - first.done_bytes) / (now - began)
        done = shown.records, shown.progress.committed if shown.progress else 0
        if done != self._moved[1]:
            self._moved = now, done
        self._still = now - self._moved[0]

    def __str__(self) -> str:
        if self._still >= STILL_SECONDS:
            return f"nothing new for {self._still:.0f} s"
        return f"{self._records:,.1f}/s"

    def left(self, shown: ShownProgress) -> str:
        """The remaining time at this rate; empty without a rate."""
        if self._still >= STILL_SECONDS or self._bytes <= 0:
            return ""
        return f", {format_duration((shown.total_bytes - shown.done_bytes) / self._bytes)} left"


def _progress_line(shown: ShownProgress, pace: _Pace, unit: str) -> str:
    counted = f"{shown.records:,} of {shown.total_bytes:,} {shown.unit}" if shown.unit else ""
    line = f"{counted or f'{shown.records:,} {unit}'}, {pace}{pace.left(shown)}"
    if shown.note:
        line += f", {shown.note}"
    progress = shown.progress
    if progress is not None:
        counts = {"published again": progress.reconciled, "duplicates": progress.duplicates, "dead": progress.dead}
        line += "".join(f", {count:,} {word}" for word, count in counts.items() if count)
    line = "; ".join([line, *shown.trouble])
    return f"{line}; {shown.fleet}" if shown.fleet else line


def _without_count(trouble: str) -> str:
    return re.sub(r" \([\d,]+ times\)$", "", trouble)


def _progress_facts(shown: ShownProgress) -> Mapping[str, Any]:
    stage = {"unit": shown.unit} if shown.unit else {}
    return {
        **stage,
        "records": shown.records,
        "done_bytes": shown.done_bytes,
        "total_bytes": shown.total_bytes,
        **({"trouble": list(shown.trouble)} if shown.trouble else {}),
    }
