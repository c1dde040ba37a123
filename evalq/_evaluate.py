"""Evaluating from Python: in this process, or through the queue exactly as the commands do it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evalq._data import Given, as_files
from evalq._run import Run, RunRequest, computed, open_run, run_folder
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, Request
from evalq.evalcore.errors import UsageError
from evalq.evalcore.naming import is_text

if TYPE_CHECKING:
    from evalq.producer.folder.job import Job, RunOptions
    from evalq.producer.monitor.progress import Reporter
    from evalq.producer.sweep.options import SweepOptions
    from evalq.producer.sweep.sweep import Sweep
    from evalq.workers.settings import Settings

__all__ = ["amount", "at_least_one", "evaluate", "extend", "resume", "sweep", "texts", "whole"]

# What a notebook passes, where no checker has seen it.


def whole(**given: Any) -> list[Any]:
    """Each as Python has whole numbers, or None. Raises UsageError for anything else."""
    found: list[int | None] = []
    for name, value in given.items():
        try:
            # numpy's are whole numbers, too, but no folder keeps those
            found.append(None if value is None else int(index(value)))
        except TypeError:
            raise UsageError(f"{name}={value!r}: a whole number") from None
    return found


def at_least_one(**given: Any) -> list[Any]:
    """Each as Python has whole numbers of 1 or more, or None. Raises UsageError for anything else."""
    found = whole(**given)
    for name, value in zip(given, found, strict=True):
        if value is not None and value < 1:
            raise UsageError(f"{name}={value}: at least 1 {'process' if name == 'workers' else 'record'}")
    return found


def amount(**given: Any) -> Any:
    """A number as Python has it, or None. Raises UsageError for anything else."""
    ((name, value),) = given.items()
    if value is not None and not isinstance(value, Real):
        raise UsageError(f"{name}={value!r}: a number")
    return None if value is None else float(value)


def texts(suite: Any, once: Any) -> tuple[str, str]:
    """Names of a run. Raises UsageError for those that are no texts: no folder and no ledger could keep them."""
    given = {"suite": suite, "once": "" if once is None else once}
    for name, value in given.items():
        if not isinstance(value, str):
            raise UsageError(f"{name}={value!r}: a text")
        if not is_text(value):
            raise UsageError(f"{name}={value!a}: not text in UTF-8")
    return _plain(given["suite"]), _plain(given["once"])


def checked_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    """The notes that a run is given. Raises UsageError for what is no text: no folder and no ledger could keep it."""
    given: Any = tags or {}  # no checker has seen what a notebook passes
    if not isinstance(given, Mapping):
        raise UsageError(f"tags={given!r}: a mapping of texts")
    for key, value in given.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise UsageError(f"tags={{{key!r}: {value!r}}}: both are texts")
        if not is_text(key + value):
            raise UsageError(f"tags={{{key!a}: {value!a}}}: not text in UTF-8")
    return {_plain(key): _plain(value) for key, value in given.items()}


def refuse_odd(folder: Any, **mappings: Any) -> None:
    """Raise UsageError for a folder that is no path, and for ``mappings`` that are neither mappings nor None."""
    for name, value in mappings.items():
        if value is not None and not isinstance(value, Mapping):
            raise UsageError(f"{name}={value!r}: a mapping")
    if not isinstance(folder, str | Path | None):
        raise UsageError(f"folder={folder!r}: a path")


def _plain(text: str) -> str:
    """As Python has texts: numpy's are such, too, but no folder keeps those."""
    return str.__str__(text)


Inputs = Any
"""Paths, or data: see `evaluate`."""
KEPT = Path("evalq-runs") / "data"
"""Cases that a program gave a sweep as data: the sweep reads them again."""


def evaluate(
    evaluator: str | Evaluator[Any, Any],
    inputs: Inputs,
    *,
    params: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    broker: str | None = None,
    ledger: str | None = None,
    workers: int | None = None,
    folder: str | Path | None = None,
    once: str = "",
    chunk_size: int | None = None,
    limit: int | None = None,
    suite: str = "default",
    tags: Mapping[str, str] | None = None,
    settings: str | Path | None = None,
    progress: bool = False,
) -> Run:
    """Evaluate ``inputs`` (files, folders, globs; one alone needs no list) and return the finished `Run`.

    ``inputs``, and ``options["outputs"]``, may be data, too: a pandas or polars frame, a pyarrow table, a record (a
    mapping), or a list or an iterator of records. docs/reference/python.md says what becomes of its values.

    Everything is computed in this process unless ``broker`` (a URL), ``workers`` (local worker processes to start;
    without a broker, over a private server) or ``ledger`` asks for the queue. The report is the same, byte for byte.

        evalq.evaluate("vs", "golden.yaml", options={"outputs": ["recorded.jsonl"]})
        evalq.evaluate("planagent", "results/*.csv", broker="redis://localhost:6379/0", suite="nightly")
        evalq.evaluate("checks", [], options={"outputs": frame, "map": "case=qid,output=answer,expected=gold"})

    ``params`` and ``options`` are the evaluator's: its page in
    docs/reference/evaluators lists them, an option under its longest flag with underscores (``skip_bad_lines=True``).
    In this process nothing is written and the records are held in memory, unless there is a ``folder``; through the
    queue the run folder is ``folder`` or evalq-runs/<run id>. ``chunk_size`` is in records, ``limit`` stops after so
    many, ``suite`` and ``tags`` are kept with the run, ``settings`` is a YAML file; through the queue, EVALQ_*
    variables say what it does not. ``progress`` shows a bar on standard error. Records without a result raise nothing:
    ``report["records"]`` counts them.

    The same ``once``, inputs, parameters, chunk size, limit, suite and version of evalq are one run, with a folder: a
    cell that is run again returns it, resumes it where it was left, or waits for the process that drives it.

    Raises InputError, ConfigError, UsageError or NothingEvaluated for what was given; InfrastructureErrors, such as
    BrokerUnreachable, WorkersLost or StorageError, for the machinery; Interrupted for Ctrl-C: see `resume`.
    """
    limit, chunk_size = at_least_one(limit=limit, chunk_size=chunk_size)
    suite, once = texts(suite, once)
    refuse_odd(folder, params=params, options=options)
    inline = broker is None and ledger is None and workers is None
    chosen = _chosen(evaluator)
    with as_files(chosen, inputs, options, limit) as given:
        if inline and folder is None and not once:
            kept = RunRequest("", suite, tags=checked_tags(tags))
            return _in_memory(chosen, given, params, kept, chunk_size, limit)
        # Empty, not None: EVALQ_BROKER must not move to a queue what was asked for in this process.
        ready = Ready(chosen, load(settings, *(("", "") if inline else (broker, ledger))), inline, workers)
        asked = ready.asked(folder, suite, tags, given, once=once, chunk_size=chunk_size, limit=limit)
        return ready.see_through(ready.job(given, params, asked), progress)


def sweep(
    evaluator: str | Evaluator[Any, Any],
    inputs: Inputs,
    *,
    target: str = "",
    targets: str | Path | None = None,
    repeat: int = 1,
    stop: Literal["", "when-decided"] = "",
    max_calls: int | None = None,
    max_cost: float | None = None,
    cache: str | Path | None = None,
    reuse: Sequence[str | Path] = (),
    keep_prompts: bool = True,
    params: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    broker: str | None = None,
    ledger: str | None = None,
    workers: int | None = None,
    calls: int | None = None,
    folder: str | Path | None = None,
    once: str = "",
    suite: str = "default",
    tags: Mapping[str, str] | None = None,
    settings: str | Path | None = None,
    progress: bool = False,
) -> Run:
    """Call an agent live for every case of ``inputs``, record what it answers, evaluate that, and return the `Run`.

    As `evalq vs GOLDEN --target NAME --repeat N` does: over ``broker``, or a private server that ends with the sweep.
    Without a ``target``, recorded outputs are judged: ``options={"outputs": ["outputs.jsonl"], "judge": "grader"}``.

        evalq.sweep("vs", "golden.yaml", target="local", targets="targets.yaml", repeat=20)

    ``target`` names an agent of the file ``targets``: with it this process's own helpers make at most ``calls`` calls
    at once; without it the fleet at ``broker`` calls. Each case is called ``repeat`` times, or with
    ``stop="when-decided"`` until its verdict is certain. ``max_calls`` and ``max_cost`` (in the target's currency)
    are budgets for the whole sweep. ``cache`` is a file that outputs of the same prompts are taken from and kept in;
    ``reuse`` names runs whose outputs are taken: a gate does not take them for fresh evidence. The run folder is
    ``folder`` or evalq-runs/<run id>; its outputs.jsonl holds every answer, and prompts.jsonl every prompt unless
    ``keep_prompts`` is False. With the same ``once`` and the same of
    everything else the sweep is one, that is paid once. The other arguments are those of `evaluate`.

    Calls without an answer raise nothing: `evalq retry RUN --errors` makes them again. Raises what `evaluate` raises,
    and UsageError for an evaluator that calls nobody. After Ctrl-C `resume` pays for nothing again that is recorded.
    """
    (repeat, max_calls), max_cost = whole(repeat=repeat, max_calls=max_calls), amount(max_cost=max_cost)
    suite, once = texts(suite, once)
    refuse_odd(folder, params=params, options=options)
    ready = Ready(evaluator, load(settings, broker, ledger, targets, calls), workers=workers)
    refuse_uncallable(ready.evaluator, repeat)
    live = live_options(target, repeat, stop, (max_calls or 0, max_cost or 0.0), cache, reuse, keep_prompts)
    with as_files(ready.evaluator, inputs, options, keep=KEPT) as given:
        asked = ready.asked(folder, suite, tags, given, once=once)
        return ready.see_through(ready.sweep(given, params, live, asked), progress)


def resume(
    run: str | Path,
    *,
    broker: str | None = None,
    ledger: str | None = None,
    workers: int | None = None,
    targets: str | Path | None = None,
    calls: int | None = None,
    max_calls: int | None = None,
    max_cost: float | None = None,
    settings: str | Path | None = None,
    progress: bool = False,
) -> Run:
    """Resume a run that was interrupted, paused or killed, and return it finished: what `evalq resume` does.

        evalq.resume("evalq-runs/vs-0a1b2c3d4e", max_calls=500)

    ``run`` is its folder, or the id of a run in ./evalq-runs. An evaluation goes on in this process unless ``broker``,
    ``workers`` or ``ledger`` asks for the queue; nothing that is computed is computed again. A sweep goes on over
    ``broker`` or a private server, with the targets file that it was begun with unless ``targets`` names another, under
    other budgets where ``max_calls`` and ``max_cost`` give them. The other arguments are those of `evaluate`.

    Raises UsageError for a run that is done (unless its budget ended it, and a larger one is given), Cancelled for one
    that was cancelled, AlreadyRunning where another process drives it, and what `evaluate` raises.
    """
    from evalq.producer.lifecycle.join import begin_larger, resume_any
    from evalq.producer.run.backend import Backend, refuse_ended
    from evalq.producer.sweep.head import holds_sweep

    at_least_one(workers=workers)
    (max_calls,), max_cost = whole(max_calls=max_calls), amount(max_cost=max_cost)
    folder = run_folder(run)
    inline = broker is None and ledger is None and workers is None and not holds_sweep(folder)
    servers = ("", "") if inline else (broker, ledger)
    chosen = load(settings, *servers, targets, calls)
    reporter = reporter_of(plugins.get(folder.info().evaluator), progress)
    backend, budgets = Backend(chosen, inline=inline, workers=workers), (max_calls, max_cost)
    begin_larger(folder, backend, budgets)
    refuse_ended(folder)
    resume_any(folder, backend, reporter, budgets)
    return open_run(folder.path)


class Ready:
    """An evaluator, and the place where what it is asked is computed."""

    def __init__(
        self,
        evaluator: str | Evaluator[Any, Any],
        settings: Settings,
        inline: bool = False,
        workers: int | None = None,
    ) -> None:
        from evalq.producer.run.backend import Backend

        at_least_one(workers=workers)
        self.evaluator = _chosen(evaluator)
        _refuse_unregistered(self.evaluator)
        self._settings = settings
        self.backend = Backend(settings, inline=inline, workers=workers)

    def asked(
        self, folder: str | Path | None, suite: str, tags: Mapping[str, str] | None, given: Given, **more: Any
    ) -> RunOptions:
        """The options of a run of what was ``given``."""
        from evalq.producer.folder.job import RunOptions

        out, noted, unpack = None if folder is None else Path(folder), checked_tags(tags), self._settings.unpack_bytes
        return RunOptions(out=out, suite=suite, tags=noted, scratch=given.scratch, **more, unpack_bytes=unpack)

    def job(self, given: Given, params: Mapping[str, Any] | None, asked: RunOptions) -> Callable[[], Job]:
        """A function that begins an evaluation."""
        from evalq.producer.folder.job import Job

        request = _request(self.evaluator, given, params)
        return lambda: Job.start(self.evaluator, request, asked)

    def sweep(
        self, given: Given, params: Mapping[str, Any] | None, live: SweepOptions, asked: RunOptions
    ) -> Callable[[], Sweep]:
        """A function that begins a sweep."""
        from evalq.producer.sweep.sweep import Sweep

        request = _request(self.evaluator, given, params)
        return lambda: Sweep.start(self.evaluator, request, live, asked)

    def see_through(self, begin: Callable[[], Job | Sweep], progress: bool) -> Run:
        """A run that has its report: a new one, or the one that its key has already."""
        from evalq.producer.lifecycle.start import begin_or_join

        reporter = reporter_of(self.evaluator, progress)
        folder = begin_or_join(begin, self.backend, reporter, detach=False, command=False)
        if folder is None:
            raise AssertionError("only a detached run is left")
        return open_run(folder.path)


def _chosen(evaluator: str | Evaluator[Any, Any]) -> Evaluator[Any, Any]:
    return plugins.get(evaluator) if isinstance(evaluator, str) else evaluator


def live_options(
    target: str,
    repeat: int,
    stop: Literal["", "when-decided"],
    budgets: tuple[int, float],
    cache: str | Path | None,
    reuse: Sequence[str | Path],
    keep_prompts: bool,
) -> SweepOptions:
    from evalq.producer.sweep.options import SweepOptions

    if cache:
        from evalq.producer.sweep.reuse import Cache

        Cache(str(cache)).close()  # report an unusable cache before anything starts
    taken = tuple(str(run_folder(run).path.absolute()) for run in reuse)
    return SweepOptions(target, repeat, stop, *budgets, str(cache or ""), taken, keep_prompts=keep_prompts)


def _in_memory(
    evaluator: Evaluator[Any, Any],
    given: Given,
    params: Mapping[str, Any] | None,
    asked: RunRequest,
    chunk_size: int | None,
    limit: int | None,
) -> Run:
    """The run of an evaluation in this process, of which nothing is written."""
    from evalq.evalcore.fold import evaluate_files

    inputs, options, _ = given
    evaluation = evaluate_files(evaluator, inputs, params, options=options, chunk_size=chunk_size, limit=limit)
    return computed(evaluator, evaluation, dict(options or {}), asked._replace(evaluator=evaluator.name))


def refuse_uncallable(evaluator: Evaluator[Any, Any], repeat: int) -> None:
    """Raise UsageError for an evaluator that makes no live calls, or not so many."""
    if evaluator.calls is None:
        raise UsageError(f"{evaluator.name} calls nobody: evaluate recorded outputs with evalq.evaluate")
    if repeat != 1 and not evaluator.calls.repeats:
        raise UsageError(f"repeat={repeat}: {evaluator.name} calls each case once")


def _refuse_unregistered(evaluator: Evaluator[Any, Any]) -> None:
    """Raise UsageError for an evaluator that a worker, or whoever resumes the run, would not find by its name."""
    if plugins.entries().get(evaluator.name) is None or plugins.get(evaluator.name) is not evaluator:
        raise UsageError(
            f"{evaluator.name}: an evaluator that is not installed can only be computed in this process, without a "
            "folder; register it under the entry-point group evalq.evaluators (docs/how-to/add-an-evaluator.md)"
        )


def load(
    file: str | Path | None,
    broker: str | None,
    ledger: str | None,
    targets: str | Path | None = None,
    calls: int | None = None,
) -> Settings:
    from evalq.workers.settings import load_settings

    named: dict[str, Any] = {"targets": str(targets) if targets else None, "calls": calls}
    return load_settings(file or os.environ.get("EVALQ_SETTINGS"), broker=broker, ledger=ledger, **named)


def _request(evaluator: Evaluator[Any, Any], given: Given, params: Mapping[str, Any] | None) -> Request:
    from evalq.evalcore.fold import request_of
    from evalq.producer.folder.files import RUNS

    request = request_of(evaluator, given.inputs, params or {}, given.options or {})
    return evaluator.command.prepare(request, RUNS / "traces").request


def reporter_of(evaluator: Evaluator[Any, Any], progress: bool) -> Reporter:
    from evalq.producer.monitor.progress import Reporter

    return Reporter(evaluator.records.unit, quiet=not progress, bar=progress, json_lines=False)


# Extending a finished sweep from Python, as `evalq extend` does it.


def extend(
    run: str | Path,
    *,
    repeat: int | None = None,
    target: str = "",
    cases: str | Path | Sequence[str | Path] = (),
    targets: str | Path | None = None,
    max_calls: int | None = None,
    max_cost: float | None = None,
    cache: str | Path | None = None,
    broker: str | None = None,
    ledger: str | None = None,
    workers: int | None = None,
    calls: int | None = None,
    folder: str | Path | None = None,
    once: str = "",
    tags: Mapping[str, str] | None = None,
    settings: str | Path | None = None,
    progress: bool = False,
) -> Run:
    """Ask the cases of a finished sweep more often, or of another target, in a new `Run`: what `evalq extend` does.

        more = evalq.extend("evalq-runs/vs-0a1b2c3d4e", repeat=100)
        other = evalq.extend("evalq-runs/vs-0a1b2c3d4e", target="candidate")

    ``run`` is its folder, or the id of a run in ./evalq-runs; it stays as it is. ``repeat`` is how often each case is
    asked in all, ``cases`` names files in place of its own. What it recorded is taken over where the target is the
    same, whose settings have to be what they were; `compare` and `gate` do not take that for fresh evidence. Without
    ``once`` the same call is one run: again it returns that, or resumes it. The targets file is that of ``run`` unless
    ``targets`` or ``broker`` is given. The other arguments are those of `sweep`.

    Raises UsageError for a run that cannot be extended so, and what `sweep` raises.
    """
    from evalq.producer.folder.job import RunOptions
    from evalq.producer.lifecycle.start import begin_or_join
    from evalq.producer.run.backend import Backend
    from evalq.producer.sweep.execute import with_targets
    from evalq.producer.sweep.extension import Extension

    at_least_one(workers=workers)
    (repeat, max_calls), max_cost = whole(repeat=repeat, max_calls=max_calls), amount(max_cost=max_cost)
    _, once = texts("", once)
    origin = run_folder(run)
    given = [cases] if isinstance(cases, str | Path) else list(cases)
    chosen = load(settings, broker, ledger, targets=str(targets) if targets else None, calls=calls)
    backend = with_targets(Backend(chosen, workers=workers), origin)
    wanted = Extension(repeat, target, [str(path) for path in given], max_calls, max_cost, str(cache or ""))
    asked = RunOptions(None if folder is None else Path(folder), tags=checked_tags(tags), once=once)
    reporter = reporter_of(plugins.get(origin.info().evaluator), progress)
    begun = begin_or_join(lambda: wanted.begin(origin, asked), backend, reporter, detach=False, command=False)
    assert begun is not None, "nothing is left to the fleet"
    return open_run(begun.path)
