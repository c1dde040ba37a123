"""A suite file: several evaluations, one run each.

    suite: nightly
    runs:
      - evaluator: planagent
        inputs: [results/plan_agent_*.csv]
        params: {rules: {stability: error_or_empty}}
      - evaluator: vs
        golden: golden.yaml
        outputs: [recorded.jsonl]
      - evaluator: vs
        golden: golden.yaml
        target: research-coordinator
        repeat: 50

    policy: policy.yaml
    baseline: main
    outputs: [gate/junit.xml]

Beside ``evaluator`` a run has its inputs (under the name its evaluator gives them), ``params``, ``chunk_size``,
``limit``, ``output`` (files as with -o) and any of the evaluator's options by name; where the evaluator can ask a
target, that (``target`` or ``judge``), ``repeat``, ``stop``, ``max_calls``, ``max_cost``, ``cache``, ``reuse``
(run folders, or ids) and ``keep_prompts``. Its ``name`` is that of its folder and of its report in the JSON; without
one the folder has the evaluator's name, numbered. Paths are relative to the file.

A ``prompt`` is the text around each question. A ``matrix`` makes a run of each combination of targets, parameters,
prompts and inputs (`evalq.producer.suites.matrix`).

``policy`` is a gate's policy, or the name of its file; drops are measured against ``baseline``. The command then
has the gate's exit code, and writes the decision to ``outputs``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from evalq.evalcore.compare.counting import USAGE_NUMBERS, why_no_number
from evalq.evalcore.compare.gate import run_meant
from evalq.evalcore.compare.numbers import why_no_change
from evalq.evalcore.compare.outlook import off_scale
from evalq.evalcore.compare.policy import CHANGES, Gate, Policy
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import (
    Evaluator,
    Option,
    Request,
    asks_recorded,
    inputs_of,
    live_calls,
    options_of,
)
from evalq.evalcore.contract.measures import number_at
from evalq.evalcore.contract.params import load_mapping, option_params, validate
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.errors import EvalqError, UsageError
from evalq.evalcore.records.inputs import stands_for
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.producer.folder.files import RUNS, TRACES
from evalq.producer.folder.own_runs import named_paths
from evalq.producer.outputs.requested import read_files, refuse_read
from evalq.producer.suites.matrix import Fault, combinations
from evalq.producer.suites.run_model import (
    AnyRun,
    FileLocation,
    Key,
    SuiteKeys,
    beside,
    checked,
    live_options,
    location_of,
    run_model,
    wrong,
)
from evalq.producer.sweep.options import SweepOptions
from evalq.workers.targets.spec import is_spec

if TYPE_CHECKING:
    from evalq.producer.folder.job import Job, RunOptions
    from evalq.producer.sweep.sweep import Sweep

TARGET_OPTIONS = ("target", "judge", "embedder")
"""Keys of a run that name a target."""

# Whether a run will have the numbers of the policy, checked before it is paid for.


def _why_unknown(path: str, evaluator: Evaluator[Any, Any], request: Request, *, live: bool) -> str:
    """Why the run of ``request`` has no number at ``path``; empty if it may have one.

    Empty, too, if its inputs cannot be found yet: starting the run reports that.
    """
    if any(path == measure.name for measure in (evaluator.measures.measures if evaluator.measures else ())):
        return ""
    try:
        live_keys = evaluator.command.request(_request_with_answers(evaluator, request) if live else request)
        params = validate(evaluator.Params, live_keys.params, "params")
        given = msgspec.structs.replace(request, options={}) if live else live_keys
        found = inputs_of(evaluator, given)
    except EvalqError:
        return ""
    return why_no_number(path, evaluator, params, [source.name for source in found], live=live)


def _why_no_passes(path: str, evaluator: Evaluator[Any, Any]) -> str:
    """Why no case of a run passes or fails by the number at ``path``; empty if each does."""
    measures = evaluator.measures.measures if evaluator.measures else ()
    passes = [measure.name for measure in measures if measure.kind == "pass"]
    if path in passes:
        return ""
    return f"single cases pass or fail by {', '.join(passes) or 'no number of this evaluator'}"


def _why_off_scale(gate: Gate, evaluator: Evaluator[Any, Any]) -> tuple[str, str] | None:
    """The key of ``gate`` whose value no run could have, or any run has, and the reason; None without one."""
    measure = gate.measure_in(evaluator.measures.measures if evaluator.measures else ())
    usage = gate.path.startswith("usage.")
    if measure is None and usage and gate.max is not None and gate.max < 0:
        return "max", f"max {gate.max:g}: no time, cost or count is below 0, so that no run could pass"
    # Only of these numbers a suite knows before its runs whether more or less of them is better.
    better = measure.better if measure else number_at(gate.path, USAGE_NUMBERS).better if usage else None
    if better and (why := why_no_change(gate, better)):
        key = next(name for name in CHANGES if getattr(gate, name) is not None)
        return key, why.removeprefix(f"{gate.metric}: ")
    return off_scale(gate, measure) if measure is not None else None


def _request_with_answers(evaluator: Evaluator[Any, Any], request: Request) -> Request:
    """The request that will evaluate the future answers, as far as it does not depend on them."""
    calls = live_calls(evaluator)
    if not calls.answers_suffice:
        return request
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        return calls.answered(request, Path(scratch) / "outputs.jsonl", Path(scratch))


class PlannedRun(msgspec.Struct):
    """One run of a suite, with its evaluator's ``request``; ``name`` may be empty. ``notes`` are to be shown.

    A run of a matrix has the name ``base`` in the file, and a label on each axis.
    """

    name: str
    evaluator: Evaluator[Any, Any]
    request: Request
    chunk_size: int | None
    limit: int | None
    outputs: list[Path]
    live: SweepOptions | None = None
    notes: tuple[str, ...] = ()
    base: str = ""
    labels: dict[str, str] = {}

    @property
    def called(self) -> str:
        """Its name in a policy: its own, or its evaluator's."""
        return self.name or self.evaluator.name

    def starter(self, suite: str, options: RunOptions, *, detach: bool) -> Callable[[], Job | Sweep]:
        """A function that begins it, with ``options`` that all runs of the suite have.

        Raises UsageError for a sweep that cannot be detached, if it is to be.
        """
        from evalq.producer.folder.job import Job
        from evalq.producer.sweep.sweep import Sweep

        own = {"name": self.name, "chunk_size": self.chunk_size, "limit": self.limit, "suite": suite}
        options = msgspec.structs.replace(options, **own)
        live = self.live
        if live is None:
            return lambda: Job.start(self.evaluator, self.request, options)
        if detach:
            from evalq.producer.sweep.execute import refuse_detached

            refuse_detached(live, self.evaluator, self.request)
        return lambda: Sweep.start(self.evaluator, self.request, live, options)


class SuitePlan(msgspec.Struct):
    """A suite file; ``policy`` is None without a gate."""

    name: str
    runs: list[PlannedRun]
    policy: Policy | None = None
    baseline: str = ""
    outputs: list[Path] = []
    parallel: int = 1


@stdout_to_stderr()
def load_suite(path: str | Path, roots: Sequence[Path] = (), *, here: bool = True) -> SuitePlan:
    """Read a suite file. Raises ConfigError with file, line and key path for faults.

    A suite may come from anybody, as in a pull request, so it may only name files in its own folder, in the current one
    (``here``) and under ``roots``, the machine's setting.
    """
    data = load_mapping(path)
    suite = checked(SuiteKeys, data, path)
    allowed = (Path(path).parent, *((Path.cwd(),) if here else ()), *roots)
    numbered = [(number, each) for number, run in enumerate(data["runs"]) for each in _runs(path, number, run, allowed)]
    planned = [run for _, run in numbered]
    for number, run in numbered:
        _refuse_outside(path, ("runs", number), _files_of(run), allowed)
    # In a policy, a run without a name has its evaluator's, so no other run may have that name.
    taken = {run.evaluator.name for run in planned if not run.name}
    bases: dict[str, int] = {}
    for number, run in numbered:
        name = run.base or run.name
        if run.name and (run.name in taken or name in taken or bases.setdefault(name, number) != number):
            reason = f"{run.name} is another run's name, or that of its evaluator"
            raise wrong(path, [(("runs", number, "name"), reason)])
        taken |= {run.name, *(() if run.base else (name,))}
    name = suite.suite if "suite" in data else Path(path).stem
    outputs = [Path(path).parent / output for output in suite.outputs]
    _refuse_outside(path, ("outputs",), map(str, outputs), allowed)
    # The name of a baseline or a run, or a path from the current folder.
    _refuse_outside(path, ("baseline",), [suite.baseline], allowed)
    if isinstance(suite.policy, str):
        _refuse_outside(path, ("policy",), [beside(Path(path).parent, suite.policy)], allowed)
    _refuse_read(path, suite, numbered, outputs)
    return SuitePlan(name, planned, _policy(path, suite, numbered), suite.baseline, outputs, suite.parallel)


def _files_of(run: PlannedRun) -> Iterator[str]:
    """The files that a run of a suite names; patterns and folders are expanded."""
    cache, reuse = (run.live.cache, run.live.reuse) if run.live is not None else ("", ())
    for name in (*named_paths(run.evaluator.name, run.request, cache, reuse), *map(str, run.outputs)):
        yield from stands_for(name)


def _refuse_outside(path: str | Path, key: Key, named: Iterable[str], allowed: Sequence[Path]) -> None:
    for each in named:
        if not allows(Writer.SUITE, Thing.PATH, each, allowed):
            reason = f"{each} is in neither the suite's folder nor the current one: allow its folder: EVALQ_ROOTS=DIR"
            if "\0" in each:
                reason = f"{each!r}: no file's name has a zero byte; name another"
            raise wrong(path, [(key, reason)])


def _hidden_part(base: Path, file: Path) -> str:
    """The part of a path below the suite's folder or the current one that begins with a dot, such as .git; "" if none.

    Links are followed: programs that read such folders would obey what a suite of somebody else writes there.
    """
    real = Path(os.path.realpath(file))
    for top in (os.path.realpath(base), os.path.realpath(".")):
        if real.is_relative_to(top):
            return next((part for part in real.relative_to(top).parts if part.startswith(".")), "")
    return ""


def _refuse_read(
    path: str | Path, suite: SuiteKeys, numbered: Sequence[tuple[int, PlannedRun]], outputs: Sequence[Path]
) -> None:
    """Refuse an output that would overwrite a file of the suite or of its runs' inputs."""
    reads = [str(path), *([beside(Path(path).parent, suite.policy)] if isinstance(suite.policy, str) else [])]
    for _, run in numbered:
        live = (run.live.cache, *run.live.reuse) if run.live is not None else ()
        reads += read_files(run.evaluator, run.request, *live)
    written = [(("runs", number, "output"), file) for number, run in numbered for file in run.outputs]
    for key, file in [*written, *((("outputs",), file) for file in outputs)]:
        if hidden := _hidden_part(Path(path).parent, file):
            reason = f"{file}: a suite writes nothing into hidden files and folders ({hidden}): name another place"
            raise wrong(path, [(key, reason)])
        try:
            refuse_read(file, reads)
        except UsageError as error:
            raise wrong(path, [(key, str(error))]) from None


def _policy(path: str | Path, suite: SuiteKeys, numbered: Sequence[tuple[int, PlannedRun]]) -> Policy | None:
    """The gate over a suite's runs; None without one. Raises ConfigError for demands that no run of it can have."""
    written, runs = suite.policy, [run for _, run in numbered]
    if written is None:
        for key in ("baseline", "outputs"):
            if getattr(suite, key):
                raise wrong(path, [((key,), "goes with policy only")])
        return None
    if isinstance(written, str):
        file = beside(Path(path).parent, written)
        place: Key = ()
        policy = checked(Policy, load_mapping(file), file)
    else:
        file, place = str(path), ("policy",)
        policy = checked(Policy, written, path, place)
    names = [(run.called, run.evaluator.name) for run in runs]
    several = [run.called for run in runs if [called for called, _ in names].count(run.called) > 1]
    if several:
        raise wrong(path, [(("runs",), f"several are called {several[0]}: a policy needs a name for each")])
    for number, run in numbered:
        if run.evaluator.measures is None:
            reason = f"runs of {run.evaluator.name} are not gated: it declares no measures; leave it to another suite"
            raise wrong(path, [(("runs", number, "evaluator"), reason)])
    faults = [((*place, "gates", number, key), why) for number, key, why in _policy_faults(policy, runs, names)]
    if faults:
        raise wrong(file, faults)
    return _for_each_run(policy, runs)


def _for_each_run(policy: Policy, runs: Sequence[PlannedRun]) -> Policy:
    """The policy, with the demands on a matrix repeated for each of its runs."""
    made: dict[str, list[str]] = {}
    for run in runs:
        # An entry in quarantine without a run holds for all runs.
        if run.base:
            made.setdefault(run.base, []).append(run.name)
    gates = [
        gate.model_copy(update={"metric": f"{name}.{gate.path}"}) if gate.run in made else gate
        for gate in policy.gates
        for name in made.get(gate.run, [gate.run])
    ]
    quarantine = [
        each.model_copy(update={"run": name}) for each in policy.quarantine for name in made.get(each.run, [each.run])
    ]
    return policy.model_copy(update={"gates": tuple(gates), "quarantine": tuple(quarantine)}) if made else policy


def _policy_faults(
    policy: Policy, runs: Sequence[PlannedRun], names: Sequence[tuple[str, str]]
) -> Iterator[tuple[int, str, str]]:
    """(gate, its key, reason) of each demand that no run of the suite can have."""
    for number, gate in enumerate(policy.gates):
        index = next((at for at, run in enumerate(runs) if run.base and run.base == gate.run), None)
        index = run_meant(gate.run, names) if index is None else index
        if index is None:
            there = ", ".join(called for called, _ in names)
            yield number, "metric", f"{gate.run} is no single run of this suite; there are: {there}"
            continue
        run = runs[index]
        if reason := _why_unknown(gate.path, run.evaluator, run.request, live=run.live is not None):
            yield number, "metric", f"{gate.metric}: {reason}"
        elif gate.per_case is not None and (reason := _why_no_passes(gate.path, run.evaluator)):
            yield number, "per_case", f"{gate.metric}: {reason}"
        elif off := _why_off_scale(gate, run.evaluator):
            yield number, off[0], f"{gate.metric}: {off[1]}"


def _runs(path: str | Path, number: int, written: dict[str, Any], allowed: Sequence[Path]) -> Iterator[PlannedRun]:
    """The run, or the runs of its matrix."""
    key: Key = ("runs", number)
    known = checked(AnyRun, written, path, key)
    if known.matrix is None:
        yield planned_run(FileLocation(path, key), written, allowed)
        return
    evaluator = plugins.get(known.evaluator)
    base, rest = known.name or evaluator.name, {name: value for name, value in written.items() if name != "matrix"}
    try:
        made = combinations(written, evaluator)
    except Fault as fault:
        raise wrong(path, [((*key, "matrix", *fault.key), fault.reason)]) from None
    for each in made:
        moved = {name: (*key, "matrix", *place) for name, place in each.keys.items()}
        run = planned_run(FileLocation(path, key, moved), {**rest, **each.written}, allowed)
        run.name, run.base, run.labels = each.called(base), base, each.labels
        yield run


def planned_run(at: FileLocation, written: dict[str, Any], allowed: Sequence[Path]) -> PlannedRun:
    """The run that is ``written`` in a suite file; it names files only below the ``allowed`` folders.

    Raises ConfigError.
    """
    evaluator = plugins.get(at.checked(AnyRun, written).evaluator)
    run = at.checked(run_model(evaluator.name), written)
    for key in TARGET_OPTIONS:
        # A suite may come from anybody, as in a pull request, and such a name is a program, a function or a host.
        if is_spec(named := getattr(run, key, None) or ""):
            reason = f"a suite names targets of a targets file only: put {named} there under a name, and give --targets"
            raise at.wrong((key,), reason)
    base, options = Path(at.path).parent, options_of(evaluator)
    given = {option.name: _given(option, getattr(run, option.name), base) for option in options}
    inputs = [beside(base, item) for item in getattr(run, evaluator.command.positional)]
    request = Request(inputs, option_params(options, given, run.params), given)
    # Before anything reads a file: an error would quote what is in it.
    for name in named_paths(evaluator.name, request):
        _refuse_outside(at.path, at.key, stands_for(name), allowed)
    prepared = evaluator.command.prepare(request, RUNS / TRACES)
    request = prepared.request
    live_keys = {name: getattr(run, name) for name in run.model_fields_set}
    live = live_options(at, evaluator.calls, live_keys, base, recorded=asks_recorded(evaluator, request))
    if live is None:
        completed = evaluator.command.request(request)
        validate(evaluator.Params, completed.params, location_of(at.path, at.under("params")))
    elif live.target:
        next(iter(live_calls(evaluator).prompts(request)), None)
    outputs = [base / name for name in run.output]
    notes = (*prepared.messages, *prepared.warnings)
    return PlannedRun(run.name, evaluator, request, run.chunk_size, run.limit, outputs, live, notes)


def _given(option: Option, value: Any, base: Path) -> Any:
    """An option's value in the form of the command line: () for no values, and paths from here."""
    if value is None:
        return () if option.many else None
    if option.kind != "path":
        return value
    return tuple(beside(base, item) for item in value) if option.many else beside(base, value)
