"""How far a job is, as its driver tells it to a person, a log file or a program."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from evalq.evalcore.model.canonical import Json, canonical_line
from evalq.evalcore.views.markdown import visible
from evalq.producer.monitor.fleet import Fleet, format_duration

if TYPE_CHECKING:
    from evalq.workers.ledger.progress import Progress


AGAIN_SECONDS = 30.0
"""How often what is waited for is said again."""


class ShownProgress(msgspec.Struct, frozen=True):
    """How far a job is: records and bytes collected, bytes in all, and the ledger's counters and the fleet where
    there is one.

    ``workers`` serve it; ``others`` are of another version ({code: how many}); ``lacking``: none has its evaluator.
    ``note`` is more for a person, ``unit`` what is counted where that is not the job's records. ``trouble`` has a line
    for each host that failed at it.
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
    """Whoever is told (`evalq.producer.monitor.progress.Reporter`)."""

    def waiting(self, what: str, since: float, limit: float | None) -> None:
        """``what`` has lasted for ``since`` seconds, and is waited for up to ``limit`` in all; None: without end."""

    def recovered(self, what: str, after: float) -> None:
        """What was told is over, ``after`` seconds."""


# Telling a person, a log file or a program how far a run is.

STILL_SECONDS = 5.0
"""After so long without anything new, a rate is one of the past, and not shown."""


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
        """``unit`` is what is counted; without a ``bar`` a line comes every ``line_seconds``."""
        self._unit = unit
        self._quiet = quiet
        self._bar = bar and sys.stderr.isatty() and not json_lines
        self._json = json_lines
        self._verbose = verbose
        self._line_seconds = line_seconds
        self._freeze: Callable[[], None] = lambda: None

    def say(self, text: str) -> None:
        """A line for a person."""
        if not self._quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """A line that also who asked for quiet has to see: why nothing happens, or what went wrong on the way."""
        if not self._json:
            # Nobody may read it any more, or its disk be full: that is no reason to end what is computed.
            with contextlib.suppress(OSError):
                print(visible(text), file=sys.stderr, flush=True)  # noqa: T201 - standard error is this class's medium

    def detail(self, text: str) -> None:
        """A line for a person who asked for more (-v)."""
        if self._verbose:
            self.say(text)

    def event(self, name: str, **facts: Json) -> None:
        """A JSON line, where those were asked for: launch, progress, waiting, recovered, restarted, done or error."""
        if self._json:
            sys.stdout.buffer.write(canonical_line({"event": name, **facts}))
            sys.stdout.buffer.flush()

    def waiting(self, what: str, since: float = 0.0, limit: float | None = None) -> None:
        """Say what has stood still for ``since`` seconds, and how long it may in all; without ``limit``, as long as it
        takes. Said again while it lasts, and to who asked for quiet too."""
        how_long = f" ({since:.0f} s so far, {limit:g} s at most)" if limit else ""
        self._freeze()
        self.warn(f"waiting: {what}{how_long}")
        self.event("waiting", what=what, since=round(since, 1), limit=limit)

    def recovered(self, what: str, after: float) -> None:
        """Say that what was waited for, ``after`` seconds, is over."""
        self.warn(f"resumed after {after:.0f} s of waiting")
        self.event("recovered", what=what, after=round(after, 1))

    def restarted(self, text: str) -> None:
        """Say that a process of this command's own ended, and is started again."""
        self.warn(text)
        self.event("restarted", message=text)

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watcher]:
        """A function to be given every standing, for as long as a run is driven."""
        if self._bar and not self._quiet:
            with self._rich() as watch:
                yield watch
        else:
            yield self._lines()

    def _lines(self) -> Watcher:
        pace, said = _Pace(), time.monotonic()
        named: set[str] = set()

        def watch(standing: ShownProgress) -> None:
            nonlocal said
            pace.see(standing)
            self.event("progress", **_progress_facts(standing))
            for line in standing.trouble:
                if (reason := _uncounted(line)) not in named:  # each host's reason once, when it comes
                    named.add(reason)
                    self.say(line)
            if time.monotonic() - said >= self._line_seconds:
                said = time.monotonic()
                self.say(_progress_line(standing, pace, self._unit))

        return watch

    @contextlib.contextmanager
    def _rich(self) -> Iterator[Watcher]:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        # What hosts say of their troubles is no markup: a path in brackets would end the command.
        columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[note]}", markup=False))
        pace = _Pace()
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("", total=None, note="")

            def watch(standing: ShownProgress) -> None:
                pace.see(standing)
                note = visible(_progress_line(standing, pace, self._unit))
                progress.update(task, total=standing.total_bytes, completed=standing.done_bytes, note=note)

            self._freeze = lambda: progress.update(task, note="waiting")
            try:
                yield watch
            finally:
                self._freeze = lambda: None


class _Pace:
    """How fast a job has gone since the first look: what an earlier command or a cache had done is none of it."""

    def __init__(self) -> None:
        self._first: tuple[float, ShownProgress] | None = None
        self._moved: tuple[float, tuple[int, int]] = 0.0, (-1, -1)
        self._still = 0.0
        self._records = self._bytes = 0.0

    def see(self, standing: ShownProgress) -> None:
        """Take a look into account."""
        now = time.monotonic()
        began, first = self._first = self._first or (now, standing)
        if now > began:
            self._records = (standing.records - first.records) / (now - began)
            self._bytes = (standing.done_bytes - first.done_bytes) / (now - began)
        done = standing.records, standing.progress.committed if standing.progress else 0
        if done != self._moved[1]:
            self._moved = now, done
        self._still = now - self._moved[0]

    def __str__(self) -> str:
        if self._still >= STILL_SECONDS:
            return f"nothing new for {self._still:.0f} s"
        return f"{self._records:,.1f}/s"

    def left(self, standing: ShownProgress) -> str:
        """How long the rest takes at this pace; nothing where there is none."""
        if self._still >= STILL_SECONDS or self._bytes <= 0:
            return ""
        return f", {format_duration((standing.total_bytes - standing.done_bytes) / self._bytes)} left"


def _progress_line(standing: ShownProgress, pace: _Pace, unit: str) -> str:
    counted = f"{standing.records:,} of {standing.total_bytes:,} {standing.unit}" if standing.unit else ""
    line = f"{counted or f'{standing.records:,} {unit}'}, {pace}{pace.left(standing)}"
    if standing.note:
        line += f", {standing.note}"
    progress = standing.progress
    if progress is not None:
        told = {"published again": progress.reconciled, "duplicates": progress.duplicates, "dead": progress.dead}
        line += "".join(f", {count:,} {word}" for word, count in told.items() if count)
    line = "; ".join([line, *standing.trouble])
    return f"{line}; {standing.fleet}" if standing.fleet else line


def _uncounted(trouble: str) -> str:
    return re.sub(r" \([\d,]+ times\)$", "", trouble)


def _progress_facts(standing: ShownProgress) -> Mapping[str, Any]:
    stage = {"unit": standing.unit} if standing.unit else {}
    return {
        **stage,
        "records": standing.records,
        "done_bytes": standing.done_bytes,
        "total_bytes": standing.total_bytes,
        **({"trouble": list(standing.trouble)} if standing.trouble else {}),
    }
