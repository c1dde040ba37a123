"""Telling a person, a log file or a program how far a run is."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from evalcore.canonical import Json, canonical_json
from producer.standing import Standing, Watcher

__all__ = ["Reporter", "spell"]

LINE_SECONDS = 60.0


class Reporter:
    """Progress on standard error (a bar on a terminal, a line a minute elsewhere), or JSON lines on standard output."""

    def __init__(self, unit: str, *, quiet: bool, bar: bool, json_lines: bool, verbose: bool = False) -> None:
        self._unit = unit
        self._quiet = quiet
        self._bar = bar and sys.stderr.isatty() and not json_lines
        self._json = json_lines
        self._verbose = verbose

    def say(self, text: str) -> None:
        """A line for a person."""
        if not self._quiet and not self._json:
            print(text, file=sys.stderr, flush=True)  # noqa: T201 - standard error is this class's medium

    def detail(self, text: str) -> None:
        """A line for a person who asked for more (-v)."""
        if self._verbose:
            self.say(text)

    def event(self, name: str, **facts: Json) -> None:
        """A JSON line, where those were asked for: launch, progress, done or error."""
        if self._json:
            sys.stdout.buffer.write(canonical_json({"event": name, **facts}) + b"\n")
            sys.stdout.buffer.flush()

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

        def watch(standing: Standing) -> None:
            nonlocal said
            rate = pace.of(standing)
            self.event("progress", **_facts(standing))
            for line in standing.trouble:
                if (reason := _uncounted(line)) not in named:  # each host's reason once, when it comes
                    named.add(reason)
                    self.say(line)
            if time.monotonic() - said >= LINE_SECONDS:
                said = time.monotonic()
                self.say(_line(standing, rate, self._unit))

        return watch

    @contextlib.contextmanager
    def _rich(self) -> Iterator[Watcher]:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
        )
        pace = _Pace()
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("", total=None, note="")

            def watch(standing: Standing) -> None:
                note = _line(standing, pace.of(standing), self._unit)
                progress.update(task, total=standing.total_bytes, completed=standing.done_bytes, note=note)

            yield watch


class _Pace:
    """Records a second since the first look: what an earlier command or a cache had done is none of it."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def of(self, standing: Standing) -> float:
        now = time.monotonic()
        began, before = self._first = self._first or (now, standing.records)
        return (standing.records - before) / (now - began) if now > began else 0.0


def _line(standing: Standing, rate: float, unit: str) -> str:
    counted = f"{standing.records:,} of {standing.total_bytes:,} {standing.unit}" if standing.unit else ""
    line = f"{counted or f'{standing.records:,} {unit}'}, {rate:,.1f}/s"
    if standing.unit and rate > 0:
        line += f", {spell((standing.total_bytes - standing.records) / rate)} left"
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


def spell(seconds: float) -> str:
    """A time for a person, to the second or, where it has hours, to the minute."""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"


def _facts(standing: Standing) -> Mapping[str, Any]:
    stage = {"unit": standing.unit} if standing.unit else {}
    return {
        **stage,
        "records": standing.records,
        "done_bytes": standing.done_bytes,
        "total_bytes": standing.total_bytes,
        **({"trouble": list(standing.trouble)} if standing.trouble else {}),
    }
