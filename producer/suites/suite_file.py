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

Beside ``evaluator`` a run has its inputs (under the name its evaluator gives them), ``params``, ``chunk_size``,
``limit``, ``output`` (files as with -o) and any of the evaluator's options by name; where the evaluator can ask a
target, that (``target`` or ``judge``), ``repeat``, ``stop``, ``max_calls``, ``max_cost`` and ``cache``. Its ``name`` is
that of its folder and of its report in the JSON, whatever runs stand before it; without one its folder has the
evaluator's, numbered. Paths are relative to the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract import registry
from evalq.evalcore.contract.evaluator import Calls, Evaluator, Option, Request, live_calls
from evalq.evalcore.contract.params import load_mapping, option_params, validate
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.calls import WHEN_DECIDED
from evalq.producer.sweeps.options import SweepOptions

__all__ = ["PlannedRun", "load_suite"]

_COMMON = ("evaluator", "name", "params", "chunk_size", "limit", "output")
_LIVE: dict[str, tuple[type, ...]] = {"max_calls": (int,), "max_cost": (int, float), "cache": (str,)}
_REPEATED: dict[str, tuple[type, ...]] = {"repeat": (int,), "stop": (str,)}


class PlannedRun(msgspec.Struct):
    """One run of a suite: ``request`` is what its evaluator was asked for; ``name`` is empty where it has none."""

    name: str
    evaluator: Evaluator[Any, Any]
    request: Request
    chunk_size: int | None
    limit: int | None
    outputs: list[Path]
    live: SweepOptions | None = None


def load_suite(path: str | Path) -> tuple[str, list[PlannedRun]]:
    """The suite's name and its runs. Raises ConfigError with file and key path for anything that is not as above."""
    data = load_mapping(path)
    unknown = set(data) - {"suite", "runs"}
    if unknown:
        raise ConfigError(f"{path}: {min(unknown)}: unknown key (known here: runs, suite)")
    runs = data.get("runs")
    if not isinstance(runs, list) or not runs:
        raise ConfigError(f"{path}: runs: a list of at least one run is needed")
    name = data.get("suite", Path(path).stem)
    if not isinstance(name, str):
        raise ConfigError(f"{path}: suite: a name is needed, got {name!r}")
    planned = [_run(path, f"runs.{number}", run) for number, run in enumerate(runs)]
    taken = {run.evaluator.name for run in planned if not run.name}
    for number, run in enumerate(planned):
        if run.name and run.name in taken:
            raise ConfigError(f"{path}: runs.{number}.name: {run.name} is another run's name, or that of its evaluator")
        taken.add(run.name)
    return name, planned


def _run(path: str | Path, key: str, run: Any) -> PlannedRun:
    if not isinstance(run, dict) or not isinstance(run.get("evaluator"), str):
        raise ConfigError(f"{path}: {key}.evaluator: the name of an evaluator is needed")
    evaluator = registry.get(run["evaluator"])
    options = {option.name: option for option in evaluator.command.options}
    live = _live_keys(evaluator.calls)
    known = {*_COMMON, evaluator.command.positional, *options, *live}
    unknown = [name for name in run if name not in known]
    if unknown:
        raise ConfigError(f"{path}: {key}.{unknown[0]}: unknown key (known here: {', '.join(sorted(known))})")
    base = Path(path).parent
    given = {name: _value(path, key, option, run.get(name), base) for name, option in options.items()}
    params = run.get("params", {})
    if not isinstance(params, dict):
        raise ConfigError(f"{path}: {key}.params: a mapping is needed, got {params!r}")
    inputs = [
        _beside(base, item)
        for item in _strings(path, f"{key}.{evaluator.command.positional}", run.get(evaluator.command.positional, []))
    ]
    request = Request(inputs, option_params(evaluator.command.options, given, params), given)
    asked = _live(path, key, evaluator.calls, {name: run[name] for name in live if name in run}, live, base)
    if asked is None:
        completed = evaluator.command.request(request)
        validate(evaluator.Params, completed.params, f"{path}: {key}.params")
    else:
        next(iter(live_calls(evaluator).prompts(request)), None)
    return PlannedRun(
        _name(path, key, run.get("name", "")),
        evaluator,
        request,
        _count(path, f"{key}.chunk_size", run.get("chunk_size")),
        _count(path, f"{key}.limit", run.get("limit")),
        [base / name for name in _strings(path, f"{key}.output", run.get("output", []))],
        asked,
    )


def _live_keys(calls: Calls | None) -> dict[str, tuple[type, ...]]:
    """The keys of a run that asks a target, with the types of their values."""
    if calls is None:
        return {}
    return {calls.option: (str,), **_LIVE, **(_REPEATED if calls.repeats else {})}


def _name(path: str | Path, key: str, value: Any) -> str:
    if value != "" and (not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value)):
        raise ConfigError(f"{path}: {key}.name: letters, digits, '.', '_' and '-' are needed, got {value!r}")
    return str(value)


def _live(
    path: str | Path,
    key: str,
    calls: Calls | None,
    given: dict[str, Any],
    kinds: Mapping[str, tuple[type, ...]],
    base: Path,
) -> SweepOptions | None:
    """What a run asks a target for; None where it asks none. Raises ConfigError for a value of another kind."""
    for name, value in given.items():
        wrong = not isinstance(value, kinds[name]) or isinstance(value, bool)
        if wrong or (not isinstance(value, str) and value <= 0):
            wanted = "text" if str in kinds[name] else "a number above 0"
            raise ConfigError(f"{path}: {key}.{name}: {wanted} is needed, got {value!r}")
    target = given.pop(calls.option, None) if calls else None
    if calls is None or target is None:
        if calls is not None and given:
            raise ConfigError(f"{path}: {key}.{min(given)}: goes with {calls.option} only")
        return None
    if given.get("stop") not in (None, WHEN_DECIDED):
        raise ConfigError(f"{path}: {key}.stop: {WHEN_DECIDED} is needed, got {given['stop']!r}")
    if "cache" in given:
        given["cache"] = _beside(base, given["cache"])
    return SweepOptions(target=target, **given)


def _value(path: str | Path, key: str, option: Option, value: Any, base: Path) -> Any:
    """An option's value in the form the command line gives it. Raises ConfigError for one of another kind."""
    kinds: dict[str, tuple[type, ...]] = {
        "str": (str,),
        "int": (int,),
        "float": (int, float),
        "bool": (bool,),
        "path": (str,),
    }
    if value is None:
        return () if option.many else None
    values = value if option.many and isinstance(value, list) else [value]
    for item in values:
        wrong_kind = not isinstance(item, kinds[option.kind]) or (option.kind != "bool" and isinstance(item, bool))
        if wrong_kind or (option.choices and item not in option.choices):
            wanted = " or ".join(option.choices) or option.kind
            raise ConfigError(f"{path}: {key}.{option.name}: {wanted} is needed, got {item!r}")
    if option.kind == "path":
        values = [_beside(base, item) for item in values]
    return tuple(values) if option.many else values[0]


def _strings(path: str | Path, key: str, value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in values):
        raise ConfigError(f"{path}: {key}: names of files are needed, got {value!r}")
    return values


def _count(path: str | Path, key: str, value: Any) -> int | None:
    if value is not None and (type(value) is not int or value < 1):
        raise ConfigError(f"{path}: {key}: a whole number of at least 1 is needed, got {value!r}")
    return value


def _beside(base: Path, name: str) -> str:
    return name if name == "-" else os.path.normpath(base / name)
