"""A run of a suite file for each combination of targets, their parameters, prompts and inputs.

    matrix:
      target: [small, large]
      temperature: [0, 0.7]
      prompt: {plain: "{input}", brief: {template: "In one sentence: {input}", system: {file: brief.md}}}
      exclude: [{target: large, temperature: 0.7}]
      include: [{target: large, temperature: 1, prompt: plain}]

Every key but the last two is an axis. ``target`` (or ``judge``) has names of targets, ``prompt`` wordings by name, the
evaluator's inputs files by name or alone; any other key is a parameter that the target's entry lists as ``variable``.
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
"""Runs of one matrix: a typing error is not to cost a fortune."""
_LONGEST = 200
"""Letters of a run's name, which is that of a folder, too."""
_PROMPT = "prompt"
_FURTHER = ("include", "exclude")


class Fault(Exception):
    """What is wrong with a matrix, under which key."""

    def __init__(self, key: tuple[str | int, ...], reason: str) -> None:
        super().__init__(reason)
        self.key = key
        self.reason = reason


class _Value(NamedTuple):
    """What stands on an axis, and where under the matrix."""

    given: Any
    place: tuple[str | int, ...]


class Combination(msgspec.Struct, frozen=True):
    """One run of a matrix: the ``labels`` of what it is made of, by axis, and the keys of the run that say so.

    ``places``: {such a key: the keys under the matrix where its value stands}.
    """

    labels: dict[str, str]
    written: dict[str, Any]
    places: dict[str, tuple[str | int, ...]]

    def called(self, base: str) -> str:
        """NAME[target=a,temperature=0.2]."""
        return f"{base}[{','.join(f'{axis}={label}' for axis, label in self.labels.items())}]"


def combinations(run: Mapping[str, Any], evaluator: Evaluator[Any, Any]) -> list[Combination]:
    """Of the matrix of a ``run`` as it is written. Raises Fault."""
    matrix = run["matrix"]
    asked = evaluator.calls.option if evaluator.calls else ""
    axes = {name: _labelled(name, given, evaluator) for name, given in matrix.items() if name not in _FURTHER}
    _refuse_no_axes(axes, evaluator, {asked, _PROMPT, evaluator.command.positional})
    if "output" in run:
        raise Fault((), "goes without output, which each of its runs would write anew")
    if not axes:
        raise Fault((), "an axis is needed, such as target: [a, b]")
    live = bool(asked) and (asked in axes or asked in run)
    own = {asked, evaluator.command.positional}
    if not live and (astray := next((name for name in axes if name not in own), None)):
        raise Fault((astray,), f"goes with {asked} only" if asked else f"{evaluator.name} asks no target")
    for name in axes.keys() & run.keys():
        raise Fault((name,), "stands in the run, too: say it in one place")
    if (count := math.prod(map(len, axes.values()))) > MOST:
        raise Fault((), f"{count:,} combinations; at most {MOST} are run")
    every = [dict(zip(axes, labels, strict=True)) for labels in product(*axes.values())]
    kept = _included(_excluded(every, matrix, axes), matrix, axes, evaluator)
    if not kept:
        raise Fault(("exclude",), "no combination is left")
    made = [_combination(run, labels, axes, evaluator, asked) for labels in kept]
    if long := next((each for each in made if len(each.called(str(run.get("name", "")))) > _LONGEST), None):
        reason = f"{long.called('')} is a name of over {_LONGEST} letters: give values short names ({{name: value}})"
        raise Fault((), reason)
    return made


def _refuse_no_axes(axes: Mapping[Any, Any], evaluator: Evaluator[Any, Any], own: set[str]) -> None:
    """Raise Fault for what neither is an axis of its own nor can be a target's parameter."""
    for name in axes:
        if name in own:
            continue
        if name in run_model(evaluator.name).model_fields:
            raise Fault((name,), "is a key of a run, and no axis: write a run for each of its values")
        if not isinstance(name, str) or not PARAMETER.fullmatch(name):
            raise Fault((str(name),), "is no parameter's name: lower-case letters, digits and _")


def _labelled(axis: str, given: Any, evaluator: Evaluator[Any, Any]) -> dict[str, _Value]:
    """{label: value} of an axis. Raises Fault."""
    named_ones = isinstance(given, Mapping)
    files = axis == evaluator.command.positional
    if axis == _PROMPT and not named_ones:
        raise Fault((axis,), "must be a mapping of names to prompts")
    if not isinstance(given, list | Mapping) or not given:
        raise Fault((axis,), "must be a list of values" + (", or a mapping of names to them" if files else ""))
    found: dict[str, _Value] = {}
    for number, value in enumerate(given):
        place = (axis, value if named_ones else number)
        name = PurePath(str(value)).stem if files and not named_ones else value
        try:
            label = label_of(name)
        except ValueError as error:
            raise Fault(place, str(error)) from None
        if label in found:
            raise Fault(place, f"{label} is there twice")
        found[label] = _Value(given[value] if named_ones else value, place)
    return found


def _excluded(
    every: list[dict[str, str]], matrix: Mapping[str, Any], axes: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, str]]:
    for number, rule in enumerate(_rules(matrix, "exclude")):
        labels = _rule_labels(rule, ("exclude", number), axes)
        left = [each for each in every if not labels.items() <= each.items()]
        if len(left) == len(every):
            raise Fault(("exclude", number), "excludes nothing")
        every = left
    return every


def _included(
    kept: list[dict[str, str]],
    matrix: Mapping[str, Any],
    axes: dict[str, dict[str, _Value]],
    evaluator: Evaluator[Any, Any],
) -> list[dict[str, str]]:
    for number, rule in enumerate(_rules(matrix, "include")):
        key = ("include", number)
        labels = _rule_labels(rule, key, axes)
        if lacking := axes.keys() - labels.keys():
            raise Fault(key, f"says nothing of {min(lacking)}: a further combination has every axis")
        for axis, label in labels.items():
            if label not in axes[axis] and axis in (_PROMPT, evaluator.command.positional):
                raise Fault((*key, axis), f"must be one of {', '.join(axes[axis])}")
            axes[axis].setdefault(label, _Value(rule[axis], (*key, axis)))
        ordered = {axis: labels[axis] for axis in axes}
        if ordered in kept:
            raise Fault(key, "is a combination of the matrix already")
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
    axes: Mapping[str, Mapping[str, _Value]],
    evaluator: Evaluator[Any, Any],
    asked: str,
) -> Combination:
    """The run that these labels stand for."""
    own = (asked, _PROMPT, evaluator.command.positional)
    values = {axis: axes[axis][label] for axis, label in labels.items() if axis in own}
    written = {axis: value.given for axis, value in values.items()}
    parameters = {axis: label for axis, label in labels.items() if axis not in own}
    if parameters:
        written[asked] = _target(written.get(asked, run.get(asked)), parameters)
    return Combination(labels, written, {axis: value.place for axis, value in values.items()})


def _target(given: Any, parameters: Mapping[str, str]) -> str:
    try:
        base, chosen = split_name(str(given))
    except UsageError as error:
        raise Fault((), str(error)) from None
    if twice := chosen.keys() & parameters.keys():
        raise Fault((min(twice),), f"is chosen by {given} already")
    return named(base, {**chosen, **parameters})
