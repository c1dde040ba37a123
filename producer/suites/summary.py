"""The runs of a suite's matrix side by side: a row for each combination, in Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from evalq.evalcore.compare.outlook import level_in
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.views.markdown import escape, table, visible
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of
from evalq.producer.suites.suite_file import PlannedRun


class MeasureMean(msgspec.Struct, frozen=True):
    """A measure's mean over a run's cases, with its 95 % interval."""

    mean: float
    low: float
    high: float


class MatrixRow(msgspec.Struct, frozen=True):
    """A run of a matrix: its ``labels`` by axis, its ``measures`` by name, and its cost; or the ``error`` that it
    ended with. ``reused`` outputs are from earlier runs.
    """

    name: str
    labels: dict[str, str]
    run: str = ""
    measures: dict[str, MeasureMean] = {}
    outputs: int = 0
    errors: int = 0
    reused: int = 0
    cost: float = 0.0
    error: str = ""


Matrices = Mapping[str, Sequence[MatrixRow]]
"""{name of a matrix: its rows}."""


def matrix_rows(ended: Iterable[tuple[PlannedRun, RunFolder | None, str]]) -> dict[str, list[MatrixRow]]:
    """{name of a matrix: its rows} of runs, each with its folder, and with the error that it ended with."""
    found: dict[str, list[MatrixRow]] = {}
    for run, folder, error in ended:
        if run.base:
            found.setdefault(run.base, []).append(_row(run, folder, error))
    return found


def _row(run: PlannedRun, folder: RunFolder | None, error: str) -> MatrixRow:
    if folder is None or not folder.reported:
        return MatrixRow(run.name, run.labels, error=error)
    row = MatrixRow(run.name, run.labels, folder.info().run, error=error)
    if run.evaluator.measures is None:
        return row
    cases = cases_of(folder)
    used, lineage = cases.usage, cases.lineage
    return msgspec.structs.replace(
        row,
        measures=_measures(cases),
        outputs=used.outputs if used else 0,
        errors=used.errors if used else 0,
        reused=sum(lineage.reused.values()) if lineage else 0,
        cost=used.cost if used else 0.0,
    )


def _measures(run: RunCases) -> dict[str, MeasureMean]:
    levels = {measure.name: level_in(run.cases, measure) for measure in run.cases.measures}
    return {name: MeasureMean(level.mean, *level.interval()) for name, level in levels.items() if level is not None}


def matrix_text(rows: Matrices, level: int = 1) -> str:
    """A table for each matrix, under headings of a ``level``."""
    head = "#" * level
    return visible(
        "\n".join(part for name, each in rows.items() for part in (f"{head} {escape(name)}\n", _table(each)))
    )


def _table(rows: Sequence[MatrixRow]) -> str:
    axes = list(rows[0].labels)
    measures = list(dict.fromkeys(name for row in rows for name in row.measures))
    head = (*axes, *(f"{name} (95 %)" for name in measures), "outputs", "errors", "cost", "run")
    lines: list[tuple[Any, ...]] = []
    for row in rows:
        numbers = [_shown(row.measures.get(name)) for name in measures]
        outputs = f"{row.outputs:,}" + (f" ({row.reused:,} reused)" if row.reused else "")
        cost = f"{row.cost:.4g}" if row.cost else ""
        what = "; ".join(filter(None, (row.run, row.error)))
        lines.append((*row.labels.values(), *numbers, outputs, row.errors, cost, what))
    return table(head, lines)


def _shown(found: MeasureMean | None) -> str:
    return "" if found is None else f"{found.mean:.3g} ({found.low:.3g} to {found.high:.3g})"
