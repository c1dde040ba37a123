"""Records, metrics and histories as pandas DataFrames, with the same column types whatever the values happen to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import WireError
from evalq.evalcore.views.metrics import LABELS, Metric

if TYPE_CHECKING:
    import pandas as pd

    from evalq.workers.ledger.history import Entry

__all__ = ["MetricValues", "history_frame", "record_batches", "records_frame", "summary_frame"]

MetricValues = Iterable[tuple[str, tuple[str, ...], float]]
"""(metric, values of its labels, value) each."""

_RECORD = ("record", "id", "status")
_COUNTS = ("total", "scored", "unscored", "errors", "dead")
_DTYPES: dict[frozenset[type], str] = {
    frozenset({bool}): "boolean",
    frozenset({int}): "Int64",
    frozenset({float}): "float64",
    frozenset({int, float}): "float64",
    frozenset({str}): "string",
}
_INT64 = range(-(2**63), 2**63)


class _Columns:
    """Columns in the order they are first seen, each with the type that holds all of its values."""

    def __init__(self) -> None:
        self._kinds: dict[str, set[type]] = {name: {str} for name in _RECORD}

    def see(self, row: dict[str, Any]) -> None:
        for name, value in row.items():
            kinds = self._kinds.setdefault(name, set())
            if value is not None:
                # a number too large for a column of integers stays the Python object it is
                kinds.add(object if type(value) is int and value not in _INT64 else type(value))

    def frame(self, rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
        dtypes = {name: _DTYPES.get(frozenset(kinds), "object") for name, kinds in self._kinds.items()}
        return _frame(rows, dtypes)


def records_frame(lines: Iterable[bytes]) -> pd.DataFrame:
    """All record lines. Raises WireError for one that is none."""
    rows, columns = list(_decoded(lines)), _Columns()
    for row in rows:
        columns.see(row)
    return columns.frame(rows)


def record_batches(lines: Callable[[], Iterable[bytes]], size: int) -> Iterator[pd.DataFrame]:
    """Frames of ``size`` rows, all with the same columns and types; ``lines`` is called twice, to know these first."""
    columns = _Columns()
    for row in _decoded(lines()):
        columns.see(row)
    rows = _decoded(lines())
    while block := list(islice(rows, size)):
        yield columns.frame(block)


def summary_frame(evaluator: Evaluator[Any, Any], values: MetricValues) -> pd.DataFrame:
    """A row for each value of the evaluator's metrics."""
    return _frame(list(_metric_rows(evaluator, values)), _metric_dtypes(evaluator))


def history_frame(evaluator: Evaluator[Any, Any], entries: Iterable[Entry]) -> pd.DataFrame:
    """A row for each value of the evaluator's metrics in each of ``entries``, in their order."""
    import pandas as pd

    rows = [
        {"run": entry.run, "ended": entry.ended, "seconds": entry.seconds}
        | {name: entry.records.get(name, 0) for name in _COUNTS}
        | row
        for entry in entries
        for row in _metric_rows(evaluator, entry.samples)
    ]
    dtypes = {"run": "string", "ended": "float64", "seconds": "float64", **dict.fromkeys(_COUNTS, "int64")}
    frame = _frame(rows, dtypes | _metric_dtypes(evaluator))
    frame["ended"] = pd.to_datetime(frame["ended"], unit="s", utc=True).astype("datetime64[ns, UTC]")
    return frame


def _frame(rows: Sequence[dict[str, Any]], dtypes: dict[str, str]) -> pd.DataFrame:
    import pandas as pd

    # Each column with its type: from the values alone pandas would give an empty or half-empty column another one.
    return pd.DataFrame(
        {name: pd.Series([row.get(name) for row in rows], dtype=dtype) for name, dtype in dtypes.items()}
    )


def _decoded(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    for number, line in enumerate(lines, 1):
        try:
            yield decode(line)
        except (ValueError, RecursionError) as error:
            raise WireError(f"records.jsonl:{number} is damaged: {error}") from error


def _metric_dtypes(evaluator: Evaluator[Any, Any]) -> dict[str, str]:
    used = {label for metric in _metrics(evaluator).values() for label in metric.labels}
    own = {"metric": "string", "unit": "string", "value": "float64", "state": "string"}
    return own | {label: "string" for label in LABELS if label in used}


def _metric_rows(evaluator: Evaluator[Any, Any], values: MetricValues) -> Iterator[dict[str, Any]]:
    """A row for each value; none for a metric that another version of the evaluator declared, and this one does not."""
    metrics = _metrics(evaluator)
    for name, labels, value in values:
        metric = metrics.get(name)
        if metric is not None and len(metric.labels) == len(labels):
            words = {number: text for text, number in metric.states}
            row = {"metric": name, "unit": metric.unit, "value": value, "state": words.get(value)}
            yield row | dict(zip(metric.labels, labels, strict=True))


def _metrics(evaluator: Evaluator[Any, Any]) -> dict[str, Metric]:
    return {metric.name: metric for metric in evaluator.views.metrics}
