"""A run as a notebook sees it: its state, its report, and its records, metrics and history as DataFrames."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import StorageError, UsageError
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.life import RunState

if TYPE_CHECKING:
    import pandas as pd

    from evalq.evalcore.compare.summary import RunCases
    from evalq.evalcore.fold import Evaluation
    from evalq.producer.folder.run_folder import RunFolder

__all__ = ["Run", "RunRequest", "computed", "open_run", "run_folder", "unwritten_cases"]


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
            raise StorageError(f"{path}: {why}; run the evaluation again to have its records") from error


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
        from evalq._frames import records_frame

        return records_frame(self._source.lines())

    def record_batches(self, size: int = 50_000) -> Iterator[pd.DataFrame]:
        """`records` in frames of ``size`` rows, so that a large run needs little memory.

        Every frame has the columns and types that the whole would have, for which the records are read twice. They are
        read from the run folder; where nothing was written all lines are in memory, as JSON: give a ``folder``.

            for frame in run.record_batches():
                frame.to_parquet(...)
        """
        from evalq._frames import record_batches

        if size < 1:
            raise UsageError(f"record_batches(size={size}): at least 1 row a frame")
        return record_batches(self._source.lines, size)

    def summary(self) -> pd.DataFrame:
        """A row for each value of the evaluator's metrics: the numbers that dashboards show.

        Columns: ``metric``, ``unit`` ("share" of 1, "points", "count", "seconds", "bits", "number" or "state") and
        ``state`` (the word for a value of unit "state") are ``string``, ``value`` is ``float64``; then a ``string``
        column for each label that the evaluator's metrics have (`agent`, `case`, ...), <NA> where a metric has none.
        """
        from evalq._frames import summary_frame
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
        from evalq._frames import history_frame
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
