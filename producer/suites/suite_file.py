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
target, that (``target`` or ``judge``), ``repeat``, ``stop``, ``max_calls``, ``max_cost``, ``cache`` and ``reuse``
(run folders, or ids). Its ``name`` is that of its folder and of its report in the JSON, whatever runs stand before
it; without one its folder has the evaluator's, numbered. Paths are relative to the file.

A ``prompt`` words what a target is asked, a ``matrix`` makes a run of each combination of targets, their parameters,
prompts and inputs (`evalq.producer.suites.matrix`).

``policy`` is what the runs have to keep: a gate's policy, or the name of its file. What may drop is measured against
``baseline``. The command then ends as the gate decides, and writes the decision to ``outputs``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.compare.counting import why_no_number
from evalq.evalcore.compare.gate import run_meant
from evalq.evalcore.compare.outlook import off_scale
from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, Option, Request, asks_recorded, live_calls
from evalq.evalcore.contract.params import load_mapping, option_params, validate
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.errors import EvalqError, UsageError
from evalq.evalcore.records.inputs import discover, format_suffixes, stands_for
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.producer.folder.own_runs import named_paths
from evalq.producer.outputs.requested import read_files, refuse_read
from evalq.producer.suites.matrix import Fault, combinations
from evalq.producer.suites.run_model import (
    AnyRun,
    FilePlace,
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

# Whether a run of a suite will have the number that a policy is about, told before it is paid for.


def _why_unknown(path: str, evaluator: Evaluator[Any, Any], request: Request, *, live: bool) -> str:
    """Why the run that ``request`` asks for has no number at ``path``; empty where it may have.

    Nothing is said of a run whose inputs cannot be found yet: starting it says what they lack.
    """
    if any(path == measure.name for measure in (evaluator.measures.measures if evaluator.measures else ())):
        return ""
    try:
        asked = evaluator.command.request(_request_with_answers(evaluator, request) if live else request)
        params = validate(evaluator.Params, asked.params, "params")
        given = request.inputs if live else asked.inputs
        found = discover(given, format_suffixes(evaluator.records.format), evaluator.gathering.endings)
    except EvalqError:
        return ""
    return why_no_number(path, evaluator, params, [source.name for source in found], live=live)


def _why_no_passes(path: str, evaluator: Evaluator[Any, Any]) -> str:
    """Why no case of a run passes or fails by the number at ``path``; empty where each does."""
    measures = evaluator.measures.measures if evaluator.measures else ()
    passes = [measure.name for measure in measures if measure.kind == "pass"]
    if path in passes:
        return ""
    return f"single cases pass or fail by {', '.join(passes) or 'no number of this evaluator'}"


def _why_off_scale(gate: Gate, evaluator: Evaluator[Any, Any]) -> tuple[str, str] | None:
    """The key of ``gate`` that lies off its number's scale, and why that is wrong; None where none does."""
    measure = gate.measure_in(evaluator.measures.measures if evaluator.measures else ())
    return off_scale(gate, measure) if measure is not None else None


def _request_with_answers(evaluator: Evaluator[Any, Any], request: Request) -> Request:
    """What will evaluate the answers that are still to be given, as far as they do not change it."""
    calls = live_calls(evaluator)
    if not calls.answers_suffice:
        return request
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        return calls.answered(request, Path(scratch) / "outputs.jsonl", Path(scratch))


class PlannedRun(msgspec.Struct):
    """One run of a suite: ``request`` is what its evaluator was asked for; ``name`` is empty where it has none.

    One of a matrix has the name ``base`` in the file, and a label on each axis.
    """

    name: str
    evaluator: Evaluator[Any, Any]
    request: Request
    chunk_size: int | None
    limit: int | None
    outputs: list[Path]
    live: SweepOptions | None = None
    base: str = ""
    labels: dict[str, str] = {}

    @property
    def called(self) -> str:
        """What a policy calls it: its name, or its evaluator's."""
        return self.name or self.evaluator.name


class SuitePlan(msgspec.Struct):
    """A suite file, read: ``policy`` is None where it is no gate."""

    name: str
    runs: list[PlannedRun]
    policy: Policy | None = None
    baseline: str = ""
    outputs: list[Path] = []


@stdout_to_stderr()
def load_suite(path: str | Path, roots: Sequence[Path] = ()) -> SuitePlan:
    """What a suite file says. Raises ConfigError with file, line and key path for anything not as above.

    A suite may be anybody's, as in a pull request: it names files in its own folder, in the current one and under
    ``roots``, which is the machine's setting, and no others.
    """
    data = load_mapping(path)
    suite = checked(SuiteKeys, data, path)
    numbered = [(number, each) for number, run in enumerate(data["runs"]) for each in _runs(path, number, run)]
    planned = [run for _, run in numbered]
    allowed = (Path(path).parent, Path.cwd(), *roots)
    for number, run in numbered:
        _refuse_outside(path, ("runs", number), _named(run), allowed)
    # A policy calls a run without a name by its evaluator, so no other may have that for its name.
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
    # The name of a baseline, of a run, or a path, which is seen from the current folder.
    _refuse_outside(path, ("baseline",), [suite.baseline], allowed)
    if isinstance(suite.policy, str):
        _refuse_outside(path, ("policy",), [beside(Path(path).parent, suite.policy)], allowed)
    _refuse_read(path, suite, numbered, outputs)
    return SuitePlan(name, planned, _policy(path, suite, numbered), suite.baseline, outputs)


def _named(run: PlannedRun) -> Iterator[str]:
    """The files that a run of a suite names; of a pattern or a folder those that it stands for."""
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


def _refuse_read(
    path: str | Path, suite: SuiteKeys, numbered: Sequence[tuple[int, PlannedRun]], outputs: Sequence[Path]
) -> None:
    """Refuse an output over a file that the suite reads, for whichever of its runs, or consists of."""
    reads = [str(path), *([beside(Path(path).parent, suite.policy)] if isinstance(suite.policy, str) else [])]
    for _, run in numbered:
        live = (run.live.cache, *run.live.reuse) if run.live is not None else ()
        reads += read_files(run.evaluator, run.request, *live)
    written = [(("runs", number, "output"), file) for number, run in numbered for file in run.outputs]
    for key, file in [*written, *((("outputs",), file) for file in outputs)]:
        try:
            refuse_read(file, reads)
        except UsageError as error:
            raise wrong(path, [(key, str(error))]) from None


def _policy(path: str | Path, suite: SuiteKeys, numbered: Sequence[tuple[int, PlannedRun]]) -> Policy | None:
    """The gate over a suite's runs; None where it has none. Raises ConfigError for what no run of it can be held to."""
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
    faults = [((*place, "gates", number, key), why) for number, key, why in _unkept(policy, runs, names)]
    if faults:
        raise wrong(file, faults)
    return _of_each(policy, runs)


def _of_each(policy: Policy, runs: Sequence[PlannedRun]) -> Policy:
    """The policy, in which what is demanded of a matrix is demanded of each of its runs."""
    made: dict[str, list[str]] = {}
    for run in runs:
        # Not of none: what is in quarantine in no run by name is so in all of them.
        if run.base:
            made.setdefault(run.base, []).append(run.name)
    gates = [
        gate.model_copy(update={"metric": f"{name}.{gate.path}"}) if gate.run in made else gate
        for gate in policy.gates
        for name in made.get(gate.run, [gate.run])
    ]
    aside = [
        each.model_copy(update={"run": name}) for each in policy.quarantine for name in made.get(each.run, [each.run])
    ]
    return policy.model_copy(update={"gates": tuple(gates), "quarantine": tuple(aside)}) if made else policy


def _unkept(
    policy: Policy, runs: Sequence[PlannedRun], names: Sequence[tuple[str, str]]
) -> Iterator[tuple[int, str, str]]:
    """(gate, its key, why) of each demand that no run of the suite can ever keep or break."""
    for number, gate in enumerate(policy.gates):
        meant = next((at for at, run in enumerate(runs) if run.base and run.base == gate.run), None)
        meant = run_meant(gate.run, names) if meant is None else meant
        if meant is None:
            there = ", ".join(called for called, _ in names)
            yield number, "metric", f"{gate.run} is no single run of this suite; there are: {there}"
            continue
        run = runs[meant]
        if reason := _why_unknown(gate.path, run.evaluator, run.request, live=run.live is not None):
            yield number, "metric", f"{gate.metric}: {reason}"
        elif gate.per_case is not None and (reason := _why_no_passes(gate.path, run.evaluator)):
            yield number, "per_case", f"{gate.metric}: {reason}"
        elif off := _why_off_scale(gate, run.evaluator):
            yield number, off[0], f"{gate.metric}: {off[1]}"


def _runs(path: str | Path, number: int, written: dict[str, Any]) -> Iterator[PlannedRun]:
    """The run that is written, or all those of its matrix."""
    key: Key = ("runs", number)
    known = checked(AnyRun, written, path, key)
    if known.matrix is None:
        yield _run(FilePlace(path, key), written)
        return
    evaluator = plugins.get(known.evaluator)
    base, rest = known.name or evaluator.name, {name: value for name, value in written.items() if name != "matrix"}
    try:
        made = combinations(written, evaluator)
    except Fault as fault:
        raise wrong(path, [((*key, "matrix", *fault.key), fault.reason)]) from None
    for each in made:
        moved = {name: (*key, "matrix", *place) for name, place in each.places.items()}
        run = _run(FilePlace(path, key, moved), {**rest, **each.written})
        run.name, run.base, run.labels = each.called(base), base, each.labels
        yield run


def _run(at: FilePlace, written: dict[str, Any]) -> PlannedRun:
    evaluator = plugins.get(at.checked(AnyRun, written).evaluator)
    run = at.checked(run_model(evaluator.name), written)
    base, options = Path(at.path).parent, evaluator.command.options
    given = {option.name: _given(option, getattr(run, option.name), base) for option in options}
    inputs = [beside(base, item) for item in getattr(run, evaluator.command.positional)]
    request = Request(inputs, option_params(options, given, run.params), given)
    asked = {name: getattr(run, name) for name in run.model_fields_set}
    live = live_options(at, evaluator.calls, asked, base, recorded=asks_recorded(evaluator, request))
    if live is None:
        completed = evaluator.command.request(request)
        validate(evaluator.Params, completed.params, location_of(at.path, at.under("params")))
    elif live.target:
        next(iter(live_calls(evaluator).prompts(request)), None)
    outputs = [base / name for name in run.output]
    return PlannedRun(run.name, evaluator, request, run.chunk_size, run.limit, outputs, live)


def _given(option: Option, value: Any, base: Path) -> Any:
    """An option's value in the form the command line gives it: () for none of many, paths seen from here."""
    if value is None:
        return () if option.many else None
    if option.kind != "path":
        return value
    return tuple(beside(base, item) for item in value) if option.many else beside(base, value)
