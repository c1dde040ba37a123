"""Telling a person, a log file or a program how far a run is."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from evalcore.canonical import Json, canonical_json
from producer.standing import Standing, Watcher

__all__ = ["Reporter"]

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
        began = said = time.monotonic()

        def watch(standing: Standing) -> None:
            nonlocal said
            self.event("progress", **_facts(standing))
            if time.monotonic() - said >= LINE_SECONDS:
                said = time.monotonic()
                self.say(_line(standing, said - began, self._unit))

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
        began = time.monotonic()
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("", total=None, note="")

            def watch(standing: Standing) -> None:
                note = _line(standing, time.monotonic() - began, self._unit)
                progress.update(task, total=standing.total_bytes, completed=standing.done_bytes, note=note)

            yield watch


def _line(standing: Standing, seconds: float, unit: str) -> str:
    rate = standing.records / seconds if seconds > 0 else 0.0
    line = f"{standing.records:,} {standing.unit or unit}, {rate:,.0f}/s"
    if standing.note:
        line += f", {standing.note}"
    progress = standing.progress
    if progress is not None:
        told = {"published again": progress.reconciled, "duplicates": progress.duplicates, "dead": progress.dead}
        line += "".join(f", {count:,} {word}" for word, count in told.items() if count)
    return f"{line}; {standing.fleet}" if standing.fleet else line


def _facts(standing: Standing) -> Mapping[str, Any]:
    stage = {"unit": standing.unit} if standing.unit else {}
    return {
        **stage,
        "records": standing.records,
        "done_bytes": standing.done_bytes,
        "total_bytes": standing.total_bytes,
    }
