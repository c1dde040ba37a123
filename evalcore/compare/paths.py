"""Which paths lead into an evaluator's results, as far as it is known before a run of it is paid for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from evalq.evalcore.compare.run import Usage
from evalq.evalcore.contract.evaluator import Evaluator, InputResult, Params, Tally, Views
from evalq.evalcore.model.canonical import Json, as_written
from evalq.evalcore.views.metrics import whole

__all__ = ["why_no_number"]

_NAMED = 20
_INPUT = "input}"  # whose names are known: no key is called so


def why_no_number(
    path: str, evaluator: Evaluator[Any, Any], params: Params, inputs: Sequence[str], *, live: bool
) -> str:
    """Why no run of ``evaluator`` over ``inputs`` (their names) has a number at ``path``; empty where one may have.

    Known are its measures, what its views declare, and the keys that its results have without any record. Below a
    mapping that is empty then, and below null, anything may come.
    """
    measures = [measure.name for measure in evaluator.measures.measures] if evaluator.measures else []
    results = None if path in measures else _without_records(evaluator, params, inputs)
    if results is None:
        return ""
    parts = path.split(".")
    if parts[0] == "usage" and not live:
        return "usage is what live calls took, and this run makes none"
    place: Json = {**results, "usage": msgspec.to_builtins(Usage())}
    for number, part in enumerate(parts):
        if place is None or place == {} or (isinstance(place, Mapping) and ".".join(parts[number:]) in place):
            return ""
        if not isinstance(place, Mapping) or part not in place:
            if _declared(parts[: number + 1], evaluator.views):
                return ""
            known = sorted(place)[:_NAMED] if isinstance(place, Mapping) else []
            known += [f"{name} (by case)" for name in measures if not number and name not in known]
            return f"the results have no {part!r} there; there are: {', '.join(known) or 'nothing'}"
        place = place[part]
    return ""


def _without_records(evaluator: Evaluator[Any, Any], params: Params, inputs: Sequence[str]) -> dict[str, Json] | None:
    """The results of inputs without any record; None where an evaluator has none to tell."""
    nothing = [InputResult(name, name, evaluator.State.zero(), Tally()) for name in inputs]
    try:
        found: dict[str, Json] = as_written(evaluator.section(nothing, params))
    except Exception:  # a run without records never comes so far, so nothing promises that it can be told
        return None
    return found


def _declared(parts: Sequence[str], views: Views) -> bool:
    """Whether a declared path ends or goes on here: with some records it is there, and with others it is not."""
    paths = [metric.path for metric in views.metrics if metric.scope is whole] + [*views.at_times]
    for steps in map(list, map(_steps, paths)):
        if len(steps) >= len(parts) and all(step in ("", part) for step, part in zip(steps, parts, strict=False)):
            return True
    return False


def _steps(path: str) -> Iterator[str]:
    """The keys of a declared path, "" for any; up to a list, into which no policy leads."""
    for step in path.split("."):
        key, brace, label = step.partition("{")
        if "[" in step:
            return
        if key:
            yield key
        if brace:
            yield _INPUT if label == _INPUT else ""
