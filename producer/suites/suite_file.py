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

``policy`` is what the runs have to keep: a gate's policy, or the name of its file. What may drop is measured against
``baseline``. The command then ends as the gate decides, and writes the decision to ``outputs``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pydantic import ValidationError

from evalq.evalcore.compare.gate import run_meant
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.contract import registry
from evalq.evalcore.contract.evaluator import Calls, Evaluator, Option, Params, Request, live_calls
from evalq.evalcore.contract.params import as_json, explained, line_of, load_mapping, option_params, validate
from evalq.evalcore.errors import ConfigError, UsageError
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.suites.matrix import Fault, combinations
from evalq.producer.suites.policy_paths import why_no_passes, why_unknown
from evalq.producer.suites.run_model import AnyRun, FileKey, PromptKeys, SuiteKeys, live_keys, run_model
from evalq.producer.sweeps.options import SweepOptions, Wording
from evalq.producer.sweeps.wording import PLACE

__all__ = ["PlannedRun", "Suite", "load_suite"]

M = TypeVar("M", bound=Params)
Key = tuple[str | int, ...]


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


class Suite(msgspec.Struct):
    """A suite file, read: ``policy`` is None where it is no gate."""

    name: str
    runs: list[PlannedRun]
    policy: Policy | None = None
    baseline: str = ""
    outputs: list[Path] = []


def load_suite(path: str | Path) -> Suite:
    """What a suite file says. Raises ConfigError with file, line and key path for anything not as above."""
    data = load_mapping(path)
    suite = _checked(SuiteKeys, data, path)
    numbered = [(number, each) for number, run in enumerate(data["runs"]) for each in _runs(path, number, run)]
    planned = [run for _, run in numbered]
    # A policy calls a run without a name by its evaluator, so no other may have that for its name.
    taken = {run.evaluator.name for run in planned if not run.name}
    bases: dict[str, int] = {}
    for number, run in numbered:
        name = run.base or run.name
        if run.name and (run.name in taken or name in taken or bases.setdefault(name, number) != number):
            reason = f"{run.name} is another run's name, or that of its evaluator"
            raise _wrong(path, [(("runs", number, "name"), reason)])
        taken |= {run.name, *(() if run.base else (name,))}
    name = suite.suite if "suite" in data else Path(path).stem
    outputs = [Path(path).parent / output for output in suite.outputs]
    return Suite(name, planned, _policy(path, suite, numbered), suite.baseline, outputs)


def _policy(path: str | Path, suite: SuiteKeys, numbered: Sequence[tuple[int, PlannedRun]]) -> Policy | None:
    """The gate over a suite's runs; None where it has none. Raises ConfigError for what no run of it can be held to."""
    written, runs = suite.policy, [run for _, run in numbered]
    if written is None:
        for key in ("baseline", "outputs"):
            if getattr(suite, key):
                raise _wrong(path, [((key,), "goes with policy only")])
        return None
    if isinstance(written, str):
        file = _beside(Path(path).parent, written)
        place: Key = ()
        policy = _checked(Policy, load_mapping(file), file)
    else:
        file, place = str(path), ("policy",)
        policy = _checked(Policy, written, path, place)
    names = [(run.called, run.evaluator.name) for run in runs]
    several = [run.called for run in runs if [called for called, _ in names].count(run.called) > 1]
    if several:
        raise _wrong(path, [(("runs",), f"several are called {several[0]}: a policy needs a name for each")])
    for number, run in numbered:
        if run.evaluator.measures is None:
            reason = f"runs of {run.evaluator.name} are not gated: it declares no measures; leave it to another suite"
            raise _wrong(path, [(("runs", number, "evaluator"), reason)])
    faults = [((*place, "gates", number, key), why) for number, key, why in _unkept(policy, runs, names)]
    if faults:
        raise _wrong(file, faults)
    return _of_each(policy, runs)


def _of_each(policy: Policy, runs: Sequence[PlannedRun]) -> Policy:
    """The policy, in which what is demanded of a matrix is demanded of each of its runs."""
    made: dict[str, list[str]] = {}
    for run in runs:
        made.setdefault(run.base, []).append(run.name)
    gates = [
        gate.model_copy(update={"metric": f"{name}.{gate.path}"}) if gate.run in made else gate
        for gate in policy.gates
        for name in made.get(gate.run, [gate.run])
    ]
    aside = [
        each.model_copy(update={"run": name}) for each in policy.quarantine for name in made.get(each.run, [each.run])
    ]
    return policy.model_copy(update={"gates": tuple(gates), "quarantine": tuple(aside)}) if any(made) else policy


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
        if reason := why_unknown(gate.path, run.evaluator, run.request, live=run.live is not None):
            yield number, "metric", f"{gate.metric}: {reason}"
        elif gate.per_case is not None and (reason := why_no_passes(gate.path, run.evaluator)):
            yield number, "per_case", f"{gate.metric}: {reason}"


def _runs(path: str | Path, number: int, written: dict[str, Any]) -> Iterator[PlannedRun]:
    """The run that is written, or all those of its matrix."""
    key: Key = ("runs", number)
    known = _checked(AnyRun, written, path, key)
    if known.matrix is None:
        yield _run(path, key, written)
        return
    evaluator = registry.get(known.evaluator)
    base, rest = known.name or evaluator.name, {name: value for name, value in written.items() if name != "matrix"}
    try:
        made = combinations(written, evaluator)
    except Fault as fault:
        raise _wrong(path, [((*key, "matrix", *fault.key), fault.reason)]) from None
    for each in made:
        run = _run(path, key, {**rest, **each.written})
        run.name, run.base, run.labels = each.called(base), base, each.labels
        yield run


def _run(path: str | Path, key: Key, written: dict[str, Any]) -> PlannedRun:
    evaluator = registry.get(_checked(AnyRun, written, path, key).evaluator)
    run = _checked(run_model(evaluator.name), written, path, key)
    base, options = Path(path).parent, evaluator.command.options
    given = {option.name: _given(option, getattr(run, option.name), base) for option in options}
    inputs = [_beside(base, item) for item in getattr(run, evaluator.command.positional)]
    request = Request(inputs, option_params(options, given, run.params), given)
    live = _live(path, key, evaluator.calls, {name: getattr(run, name) for name in run.model_fields_set}, base)
    if live is None:
        completed = evaluator.command.request(request)
        validate(evaluator.Params, completed.params, _place(path, (*key, "params")))
    else:
        next(iter(live_calls(evaluator).prompts(request)), None)
    outputs = [base / name for name in run.output]
    return PlannedRun(run.name, evaluator, request, run.chunk_size, run.limit, outputs, live)


def _live(path: str | Path, key: Key, calls: Calls | None, written: dict[str, Any], base: Path) -> SweepOptions | None:
    """What a run asks a target for; None where it asks none. Raises ConfigError for what goes with a target only."""
    given = {name: written[name] for name in live_keys(calls) if name in written}
    if calls is None or calls.option not in given:
        if calls is not None and given:
            raise _wrong(path, [((*key, min(given)), f"goes with {calls.option} only")])
        return None
    if "cache" in given:
        given["cache"] = _beside(base, given["cache"])
    if "prompt" in given:
        given["wording"] = _wording(path, (*key, "prompt"), given.pop("prompt"))
    if "reuse" in given:
        given["reuse"] = tuple(_reused(path, key, base, name) for name in given["reuse"])
    return SweepOptions(target=given.pop(calls.option), **given)


def _wording(path: str | Path, key: Key, given: str | PromptKeys) -> Wording:
    keys = PromptKeys(template=given) if isinstance(given, str) else given
    template, system = (_text(path, key, each) for each in (keys.template, keys.system))
    if not template and not system:
        raise _wrong(path, [(key, "a template or a system prompt is needed")])
    if template and PLACE not in template:
        raise _wrong(path, [(key, f"the template has no place for a case's question: {PLACE}")])
    return Wording(template, system)


def _text(path: str | Path, key: Key, given: str | FileKey) -> str:
    """Text, or what is in a file beside the suite file or below it. Raises ConfigError."""
    if isinstance(given, str):
        return given
    folder = Path(path).resolve().parent
    file = (folder / given.file).resolve()
    if not file.is_relative_to(folder):
        raise _wrong(path, [((*key, "file"), "must be a file in the suite file's folder, or below it")])
    try:
        return file.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(path, [((*key, "file"), f"{given.file} cannot be read: {error}")]) from None


def _reused(path: str | Path, key: Key, base: Path, name: str) -> str:
    """The folder of a run that a suite names: seen from the file, or by its id. Raises ConfigError."""
    beside = Path(_beside(base, name))
    try:
        return str(RunFolder.existing(beside if beside.is_dir() else Path("evalq-runs") / name).path.absolute())
    except UsageError as error:
        raise _wrong(path, [((*key, "reuse"), str(error))]) from None


def _given(option: Option, value: Any, base: Path) -> Any:
    """An option's value in the form the command line gives it: () for none of many, paths seen from here."""
    if value is None:
        return () if option.many else None
    if option.kind != "path":
        return value
    return tuple(_beside(base, item) for item in value) if option.many else _beside(base, value)


def _checked(model: type[M], data: Mapping[str, Any], path: str | Path, key: Key = ()) -> M:
    """What stands under ``key``. Raises ConfigError with a line for each that is wrong."""
    try:
        return model.model_validate_json(as_json(data), strict=True)
    except ValidationError as error:
        raise _wrong(path, [((*key, *where), reason) for where, reason in explained(error, model)]) from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{_place(path, key)}: not plain JSON data: {error}") from None


def _wrong(path: str | Path, faults: Sequence[tuple[Key, str]]) -> ConfigError:
    return ConfigError("\n  ".join(f"{_place(path, key)}: {reason}" for key, reason in faults))


def _place(path: str | Path, key: Key) -> str:
    """File, line and key path."""
    line = line_of(path, key)
    at = f"{path}:{line}" if line else str(path)
    return f"{at}: {'.'.join(map(str, key))}" if key else at


def _beside(base: Path, name: str) -> str:
    return name if name == "-" else os.path.normpath(base / name)
