"""A run of a suite file for each combination of targets, their parameters, prompts and inputs.

    matrix:
      target: [small, large]
      temperature: [0, 0.7]
      prompt: {plain: "{input}", brief: {template: "In one sentence: {input}", system: {file: brief.md}}}
      exclude: [{target: large, temperature: 0.7}]
      include: [{target: large, temperature: 1, prompt: plain}]

Every key but the last two is an axis. ``target`` (or ``judge``) has names of targets, ``prompt`` prompts by name. The
evaluator's inputs are files, with or without names. Other keys are parameters that the target lists as ``variable``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import UsageError
from evalq.producer.suites.run_model import run_model
from evalq.workers.targets.variable import PARAMETER, label_of, named, split_name

MOST = 200
"""Runs of one matrix: a typing error must not cost a fortune."""
_LONGEST = 200
"""Letters of a run's name, which is also a folder's."""
_PROMPT = "prompt"
_FURTHER = ("include", "exclude")


class Fault(Exception):
    """A fault in a matrix, with its key."""

    def __init__(self, key: tuple[str | int, ...], reason: str) -> None:
        super().__init__(reason)
        self.key = key
        self.reason = reason


class _AxisValue(NamedTuple):
    """A value of an axis, and its key path in the matrix."""

    given: Any
    key: tuple[str | int, ...]


class Combination(msgspec.Struct, frozen=True):
    """One run of a matrix: its ``labels`` by axis, and the keys of the run that they stand for.

    ``keys``: {such a key: the key path of its value in the matrix}.
    """

    labels: dict[str, str]
    written: dict[str, Any]
    keys: dict[str, tuple[str | int, ...]]

    def called(self, base: str) -> str:
        """NAME[target=a,temperature=0.2]."""
        return f"{base}[{','.join(f'{axis}={label}' for axis, label in self.labels.items())}]"


def combinations(run: Mapping[str, Any], evaluator: Evaluator[Any, Any]) -> list[Combination]:
    """The combinations of the matrix of a ``run``. Raises Fault."""
    matrix = run["matrix"]
    target_key = evaluator.calls.option if evaluator.calls else ""
    axes = {name: _label_values(name, given, evaluator) for name, given in matrix.items() if name not in _FURTHER}
    _refuse_no_axes(axes, evaluator, {target_key, _PROMPT, evaluator.command.positional})
    if "output" in run:
        raise Fault((), "cannot have output: each of its runs would overwrite it")
    if not axes:
        raise Fault((), "an axis is needed, such as target: [a, b]")
    live = bool(target_key) and (target_key in axes or target_key in run)
    own = {target_key, evaluator.command.positional}
    if not live and (stray := next((name for name in axes if name not in own), None)):
        raise Fault((stray,), f"goes with {target_key} only" if target_key else f"{evaluator.name} calls no target")
    for name in axes.keys() & run.keys():
        raise Fault((name,), "is in the run, too: keep one of them")
    if (count := math.prod(map(len, axes.values()))) > MOST:
        raise Fault((), f"{count:,} combinations; at most {MOST} are run")
    every = [dict(zip(axes, labels, strict=True)) for labels in product(*axes.values())]
    kept = _apply_includes(_apply_excludes(every, matrix, axes), matrix, axes, evaluator)
    if not kept:
        raise Fault(("exclude",), "no combination is left")
    runs = [_combination(run, labels, axes, evaluator, target_key) for labels in kept]
    if long := next((each for each in runs if len(each.called(str(run.get("name", "")))) > _LONGEST), None):
        reason = f"{long.called('')} is a name of over {_LONGEST} letters: give values short names ({{name: value}})"
        raise Fault((), reason)
    return runs


def _refuse_no_axes(axes: Mapping[Any, Any], evaluator: Evaluator[Any, Any], own: set[str]) -> None:
    """Raise Fault for a key that is no axis and cannot be a target's parameter."""
    for name in axes:
        if name in own:
            continue
        if name in run_model(evaluator.name).model_fields:
            raise Fault((name,), "is a key of a run, not an axis: write a run for each of its values")
        if not isinstance(name, str) or not PARAMETER.fullmatch(name):
            raise Fault((str(name),), "cannot name a parameter: use lower-case letters, digits and _")


def _label_values(axis: str, given: Any, evaluator: Evaluator[Any, Any]) -> dict[str, _AxisValue]:
    """{label: value} of an axis. Raises Fault."""
    by_name = isinstance(given, Mapping)
    files = axis == evaluator.command.positional
    if axis == _PROMPT and not by_name:
        raise Fault((axis,), "must be a mapping of names to prompts")
    if not isinstance(given, list | Mapping) or not given:
        raise Fault((axis,), "must be a list of values" + (", or a mapping of names to them" if files else ""))
    found: dict[str, _AxisValue] = {}
    for number, value in enumerate(given):
        key = (axis, value if by_name else number)
        name = PurePath(str(value)).stem if files and not by_name else value
        try:
            label = label_of(name)
        except ValueError as error:
            raise Fault(key, str(error)) from None
        if label in found:
            raise Fault(key, f"{label} occurs twice")
        found[label] = _AxisValue(given[value] if by_name else value, key)
    return found


def _apply_excludes(
    every: list[dict[str, str]], matrix: Mapping[str, Any], axes: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, str]]:
    for number, rule in enumerate(_rules(matrix, "exclude")):
        labels = _rule_labels(rule, ("exclude", number), axes)
        left = [each for each in every if not labels.items() <= each.items()]
        if len(left) == len(every):
            raise Fault(("exclude", number), "excludes nothing")
        every = left
    return every


def _apply_includes(
    kept: list[dict[str, str]],
    matrix: Mapping[str, Any],
    axes: dict[str, dict[str, _AxisValue]],
    evaluator: Evaluator[Any, Any],
) -> list[dict[str, str]]:
    for number, rule in enumerate(_rules(matrix, "include")):
        key = ("include", number)
        labels = _rule_labels(rule, key, axes)
        if missing := axes.keys() - labels.keys():
            raise Fault(key, f"lacks {min(missing)}: a combination needs every axis")
        for axis, label in labels.items():
            if label not in axes[axis] and axis in (_PROMPT, evaluator.command.positional):
                raise Fault((*key, axis), f"must be one of {', '.join(axes[axis])}")
            axes[axis].setdefault(label, _AxisValue(rule[axis], (*key, axis)))
        ordered = {axis: labels[axis] for axis in axes}
        if ordered in kept:
            raise Fault(key, "is already a combination of the matrix")
        kept = [*kept, ordered]
    if len(kept) > MOST:
        raise Fault(("include",), f"{len(kept):,} combinations; at most {MOST} are run")
    return kept


def _rules(matrix: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    given = matrix.get(name, [])
    if not isinstance(given, list) or not all(isinstance(rule, Mapping) and rule for rule in given):
        raise Fault((name,), "must be a list of mappings, each of axes to values")
    yield from given


def _rule_labels(rule: Mapping[str, Any], key: tuple[str | int, ...], axes: Mapping[str, Any]) -> dict[str, str]:
    for axis in rule:
        if axis not in axes:
            raise Fault((*key, axis), f"is no axis of this matrix ({', '.join(axes)})")
    try:
        return {axis: label_of(value) for axis, value in rule.items()}
    except ValueError as error:
        raise Fault(key, str(error)) from None


def _combination(
    run: Mapping[str, Any],
    labels: dict[str, str],
    axes: Mapping[str, Mapping[str, _AxisValue]],
    evaluator: Evaluator[Any, Any],
    target_key: str,
) -> Combination:
    """The run of these labels."""
    own = (target_key, _PROMPT, evaluator.command.positional)
    values = {axis: axes[axis][label] for axis, label in labels.items() if axis in own}
    written = {axis: value.given for axis, value in values.items()}
    parameters = {axis: label for axis, label in labels.items() if axis not in own}
    if parameters:
        written[target_key] = _target(written.get(target_key, run.get(target_key)), parameters)
    return Combination(labels, written, {axis: value.key for axis, value in values.items()})


def _target(given: Any, parameters: Mapping[str, str]) -> str:
    try:
        base, chosen = split_name(str(given))
    except UsageError as error:
        raise Fault((), str(error)) from None
    if twice := chosen.keys() & parameters.keys():
        raise Fault((min(twice),), f"is already chosen by {given}")
    return named(base, {**chosen, **parameters})
