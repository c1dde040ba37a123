"""What each observer said, beside what was true: rows of text for the page, from one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.chaos.seen.truth import Look, Truth

AFTER_END, AFTER_RESTART = 3.0, 8.0
"""Seconds from a mark to the scrape that counts for it, in which observers may catch up."""

Scrape = Mapping[str, Any]


class Row(NamedTuple):
    """``fact`` of the first scrape begun ``after`` seconds behind a mark; ``true`` from (truth, run's totals, time)."""

    title: str
    mark: str
    after: float
    fact: str
    true: Callable[[Truth, Mapping[str, int], float], float | str | None]
    moving: bool = False
    """Whether it changes while one looks: each cell then also says what was true when that scrape ended."""


def _done(truth: Truth, _: Mapping[str, int], at: float) -> float:
    return truth.done(at)


def _oldest(truth: Truth, _: Mapping[str, int], at: float) -> float:
    return truth.oldest(at)


def _queue(truth: Truth, _: Mapping[str, int], at: float) -> float | None:
    return truth.look(at).queue


def _alive(truth: Truth, _: Mapping[str, int], at: float) -> str:
    look: Look = truth.look(at)
    return f"{look.present}" if look.present == look.running else f"{look.present}, of which {look.running} run"


def _of_run(name: str) -> Callable[[Truth, Mapping[str, int], float], float]:
    return lambda _truth, run, _at: run[name]


def _counted(name: str) -> Callable[[Truth, Mapping[str, int], float], float]:
    return lambda truth, _run, _at: truth.totals()[name]


def _always(value: float) -> Callable[[Truth, Mapping[str, int], float], float]:
    return lambda _truth, _run, _at: value


_END, _AGAIN = ("end", AFTER_END), ("observers restarted", AFTER_RESTART)
ROWS = (
    Row("calm: workers alive", "calm", 0, "alive", _alive),
    Row("calm: messages in the queue", "calm", 0, "queue", _queue, True),
    Row("calm: oldest pending work, s", "calm", 0, "oldest", _oldest, True),
    Row("1 s after a worker's death: workers alive", "killed", 1, "alive", _alive),
    Row("32 s after it: workers alive", "killed long ago", 0, "alive", _alive),
    Row("a worker stopped for 15 s: workers alive", "stopped", 0, "alive", _alive),
    Row("it holds work: oldest pending work, s", "stopped", 0, "oldest", _oldest, True),
    Row("server away for 2 s: server answers", "server away", 2, "server", _always(0)),
    Row("server away for 2 s: chunks done", "server away", 2, "chunks", _done, True),
    Row("server back for 15 s: chunks done", "server back", 0, "chunks", _done, True),
    Row("server back for 15 s: workers alive", "server back", 0, "alive", _alive),
    Row("end: chunks done", *_END, "chunks", _of_run("chunks")),
    Row("end: records with a result", *_END, "records", _of_run("records")),
    Row("end: records dead", *_END, "dead", _of_run("dead")),
    Row("end: tasks that raised", *_END, "failed", _counted("failed")),
    Row("end: answers that came again", *_END, "duplicates", _counted("duplicates")),
    Row("end: messages of chunks sent again", *_END, "again", _counted("again")),
    Row("end: messages sent", *_END, "sent", _counted("sent")),
    Row("end: tasks begun", *_END, "begun", _counted("begun")),
    Row("end: tasks lost with their process", *_END, "rejected", _counted("rejected")),
    Row("end: still computed", *_END, "active", _always(0)),
    Row("end: workers alive", *_END, "alive", _alive),
    Row("observer restarted: chunks done", *_AGAIN, "chunks", _of_run("chunks")),
    Row("observer restarted: records with a result", *_AGAIN, "records", _of_run("records")),
    Row("observer restarted: workers alive", *_AGAIN, "alive", _alive),
)


def compare(
    truth: Truth, run: Mapping[str, int], marks: Mapping[str, float], scrapes: Mapping[str, Sequence[Scrape]]
) -> list[list[str]]:
    """Rows of (title, truth, a cell for each observer in the order of ``scrapes``). ``run``: truth.run_totals."""
    rows = []
    for row in ROWS:
        at = marks[row.mark] + row.after
        cells = [_cell(row, _first(lines, at), truth, run) for lines in scrapes.values()]
        rows.append([row.title, _text(row.true(truth, run, at)), *cells])
    return rows


def _first(lines: Sequence[Scrape], at: float) -> Scrape | None:
    return next((line for line in lines if line["began"] >= at), None)


def _cell(row: Row, scrape: Scrape | None, truth: Truth, run: Mapping[str, int]) -> str:
    if scrape is None or "facts" not in scrape:
        return "no answer"
    values = scrape["facts"].get(row.fact)
    if values is None:
        return "-"
    said = " / ".join("none" if value is None else _text(value) for value in values)
    return f"{said} (true: {_text(row.true(truth, run, scrape['ended']))})" if row.moving else said


def _text(value: float | str | None) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
