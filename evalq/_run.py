"""A run as a notebook sees it: its state, its report, and its records, metrics and history as DataFrames."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import StorageError, UsageError, WireError
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.life import RunState
from evalq.evalcore.views.metrics import LABELS, Metric

if TYPE_CHECKING:
    import pandas as pd

    from evalq.evalcore.compare.summary import RunCases
    from evalq.evalcore.fold import Evaluation
    from evalq.producer.folder.run_folder import RunFolder
    from evalq.workers.ledger.history import Entry


__all__ = ["Run", "RunRequest", "computed", "open_run", "run_folder", "unwritten_cases"]

# Records, metrics and histories as pandas DataFrames, with the same column types whatever the values happen to be.

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


def require_pandas() -> None:
    """Raise UsageError without pandas: it is four times as large as evalq, and commands do without it."""
    if find_spec("pandas") is None:
        raise UsageError("a DataFrame needs pandas, which is not installed: pip install 'evalq[data]'")


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
    require_pandas()
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
    require_pandas()
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


class RunRequest(NamedTuple):
    """What a run was asked for, as far as it distinguishes runs."""

    evaluator: str
    suite: str = "default"
    target: str = ""
    tags: Mapping[str, str] = {}


class _Computed:
    """A run that was computed in this process and wrote nothing."""

    path = None
    state: RunState = "done"
    done = True

    def __init__(self, evaluator: Evaluator[Any, Any], evaluation: Evaluation, options: Mapping[str, Any]) -> None:
        self._evaluator = evaluator
        self._evaluation = evaluation
        self._options = options

    def evaluator(self) -> Evaluator[Any, Any]:
        return self._evaluator

    def options(self) -> Mapping[str, Any]:
        return self._options

    def report(self) -> dict[str, Json]:
        return self._evaluation.report

    def lines(self) -> Iterable[bytes]:
        return self._evaluation.lines

    def cases(self, asked: RunRequest) -> RunCases:
        from evalq.producer.outputs.cases import computed_cases

        lines, report = self._evaluation.lines, self._evaluation.report
        return computed_cases(self._evaluator, report, lines, suite=asked.suite, tags=dict(asked.tags))


class _Stored:
    """A run in its folder, which may change while it is looked at."""

    def __init__(self, folder: RunFolder) -> None:
        # Wherever the notebook goes: by a relative path another folder could answer for this run.
        self._folder = type(folder)(folder.path.absolute())
        self.path = self._folder.path

    @property
    def state(self) -> RunState:
        return self._folder.info().state

    @property
    def done(self) -> bool:
        return self._folder.reported

    def evaluator(self) -> Evaluator[Any, Any]:
        return plugins.get(self._folder.info().evaluator)

    def options(self) -> Mapping[str, Any]:
        return self._folder.info().request.options

    def report(self) -> dict[str, Json]:
        return self._folder.report()

    def lines(self) -> Iterable[bytes]:
        if not self.done:
            self.report()  # raises what to do next
        path = self._folder.records
        try:
            with path.open("rb") as stream:
                yield from stream
        except OSError as error:
            why = error.strerror or error
            where = "a run that others finished has its records where it was begun; else run the evaluation again"
            raise StorageError(f"{path}: {why}; {where}") from error


class Run:
    """What `evaluate`, `sweep` and `open_run` return. A run folder is read when something of it is asked for.

        run = evalq.open_run("evalq-runs/vs-0a1b2c3d4e")
        run.state                              # "done"
        run.report["records"]["scored"]
        run.records().query("status == 'error'")
        run.summary().pivot_table(index="agent", columns="metric", values="value")
        run.history("redis://localhost:6379/0").groupby("ended")["value"].mean()

    ``id`` is the run's id (empty where nothing was written), ``path`` its folder, absolute (None then); ``evaluator``,
    ``suite``, ``target`` (empty for recorded outputs) and ``tags`` are what it was asked for.
    """

    def __init__(self, source: _Computed | _Stored, run: str, asked: RunRequest) -> None:
        """A run comes from evalq.evaluate, evalq.sweep or evalq.open_run: nothing else makes one."""
        self._source = source
        self.id = run
        self.path = source.path
        self.evaluator = asked.evaluator
        self.suite = asked.suite
        self.target = asked.target
        self.tags = dict(asked.tags)

    @property
    def state(self) -> RunState:
        """How the run stands now: "done", or one of the other states that docs/reference/life.md lists."""
        return self._source.state

    @property
    def done(self) -> bool:
        """Whether it has its report."""
        return self._source.done

    @cached_property
    def report(self) -> dict[str, Json]:
        """report.json: `records` (counts), `results` (the evaluator's own numbers, unrounded), `faults`, `inputs`.

        Raises UsageError for a run that has none yet, with what to do next; WireError for a damaged one.
        """
        return self._source.report()

    def records(self) -> pd.DataFrame:
        """A row for each record, in input order: `record` (file and line), `id`, `status`, then the evaluator's own.

        All rows are held in memory: see `record_batches`. A column of true and false is ``boolean``, of whole numbers
        ``Int64``, of numbers ``float64``, of text ``string``; of anything else, lists and objects too, ``object``.
        Raises UsageError for a run without a report, WireError for damaged lines.
        """

        return records_frame(self._source.lines())

    def record_batches(self, size: int = 50_000) -> Iterator[pd.DataFrame]:
        """`records` in frames of ``size`` rows, so that a large run needs little memory.

        Every frame has the columns and types that the whole would have, for which the records are read twice. They are
        read from the run folder; where nothing was written all lines are in memory, as JSON: give a ``folder``.

            for frame in run.record_batches():
                frame.to_parquet(...)
        """

        if size < 1:
            raise UsageError(f"record_batches(size={size}): at least 1 row a frame")
        return record_batches(self._source.lines, size)

    def summary(self) -> pd.DataFrame:
        """A row for each value of the evaluator's metrics: the numbers that dashboards show.

        Columns: ``metric``, ``unit`` ("share" of 1, "points", "count", "seconds", "bits", "number" or "state") and
        ``state`` (the word for a value of unit "state") are ``string``, ``value`` is ``float64``; then a ``string``
        column for each label that the evaluator's metrics have (`agent`, `case`, ...), <NA> where a metric has none.
        """
        from evalq.evalcore.views.metrics import samples

        evaluator = self._source.evaluator()
        found = samples(evaluator.views.metrics, self.report)
        return summary_frame(evaluator, [(sample.metric, sample.labels, sample.value) for sample in found])

    def history(self, broker: str | None = None, *, ledger: str | None = None, most: int | None = None) -> pd.DataFrame:
        """`summary` of the finished runs of the same evaluator, suite and target, the oldest first.

        Before the columns of `summary` stand ``run`` (``string``), ``ended`` (``datetime64[ns, UTC]``), ``seconds``
        (``float64``, what its last session took) and the counts of records ``total``, ``scored``, ``unscored``,
        ``errors`` and ``dead`` (``int64``). ``most`` keeps to so many of the latest runs. ``broker`` and ``ledger``
        are URLs as the command line takes them; without, EVALQ_BROKER and EVALQ_LEDGER count. Runs that were
        evaluated without a server of the user's choice have no history.

        Raises UsageError without a URL, ConfigError for a wrong one, BrokerUnreachable, ServerRefused.
        """
        from evalq.workers.ledger.history import History, HistoryKey
        from evalq.workers.servers.connections import connect
        from evalq.workers.servers.errors import SERVER_ERRORS, explained
        from evalq.workers.settings import load_settings

        settings = load_settings(None, broker=broker, ledger=ledger)
        if not settings.broker and not settings.ledger:
            raise UsageError("history() needs a server: history(broker=URL), or EVALQ_BROKER")
        key = HistoryKey(self.evaluator, self.suite, self.target)
        with contextlib.closing(connect(settings.ledger_address, settings)) as client:
            try:
                entries = History(client, settings).entries(key, most)
            except SERVER_ERRORS as error:
                raise explained(error, f"the server at {settings.ledger_address}") from error
        return history_frame(self._source.evaluator(), reversed(entries))

    def __repr__(self) -> str:
        if self.path is None:
            return f"<evalq run of {self.evaluator}: done, and nothing is written>"
        from evalq.producer.folder.run_folder import RunFolder

        state = self.state
        return f"<evalq run {self.id}: {state}; {RunFolder(self.path).next_step(state)}>"

    def _repr_markdown_(self) -> str | None:
        """The report as a notebook shows it; None where there is none yet."""
        from evalq.evalcore.views.markdown import visible

        if not self.done:
            return None
        return visible(self._source.evaluator().views.markdown(self.report, self._source.options()))


def open_run(run: str | Path) -> Run:
    """The run in a folder: finished, or not (see `Run.state` and `Run.done`).

    ``run`` is the folder, or the id of a run in ./evalq-runs. Nothing in the folder is changed, and a run that
    another process drives can be opened.

        run = evalq.open_run("planagent-0a1b2c3d4e")
        if run.done:
            run.records().groupby("status").size()

    Raises UsageError where there is no run, WireError for a damaged run.json.
    """
    folder = run_folder(run)
    info = folder.info()
    return Run(_Stored(folder), info.run, RunRequest(info.evaluator, info.suite, info.target, info.tags))


def run_folder(run: str | Path) -> RunFolder:
    """The folder of a run: itself, or that of its id in ./evalq-runs. Raises UsageError where there is none."""
    from evalq.producer.folder.files import RUNS
    from evalq.producer.folder.run_folder import RunFolder

    path = Path(run)
    return RunFolder.existing(RUNS / path if not path.is_dir() and (RUNS / path).is_dir() else path)


def unwritten_cases(run: Run) -> RunCases | None:
    """A run that wrote nothing, as one side of a comparison; None for one that has a folder. Raises UsageError."""
    if not isinstance(run._source, _Computed):
        return None
    return run._source.cases(RunRequest(run.evaluator, run.suite, run.target, run.tags))


def computed(
    evaluator: Evaluator[Any, Any], evaluation: Evaluation, options: Mapping[str, Any], asked: RunRequest
) -> Run:
    """The run of an evaluation that wrote nothing."""
    return Run(_Computed(evaluator, evaluation, options), "", asked)
