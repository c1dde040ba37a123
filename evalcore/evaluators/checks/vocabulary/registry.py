"""The vocabulary: all checks by name, those of evalq and those of installed packages.

Packages register checks under the entry-point group ``evalq.checks``: a `Kind`, or a function
``(answer, value) -> bool | float`` that says whether the answer passes, or gives a score from 0 to 1, where one half
passes. A cases file can only name a check.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint
from typing import Any

import msgspec

from evalq.evalcore.contract.plugins import CHECKS, cached_until_named, load, plug_ins
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.answer import CheckedAnswer, Uncomputable
from evalq.evalcore.evaluators.checks.vocabulary import data, judged, limits, schema, similar, text, tools
from evalq.evalcore.evaluators.checks.vocabulary.declaring import Finding, Kind, Made, NoOptions, Run
from evalq.evalcore.naming import shorten

_NAME = re.compile(r"(?!not-)[a-z][a-z0-9-]*")
_PASSING_SCORE = 0.5

VOCABULARY: Mapping[str, Kind] = {
    kind.name: kind
    for kinds in (
        text.KINDS,
        text.CAPTURE_KINDS,
        similar.KINDS,
        similar.NUMBER_KINDS,
        data.KINDS,
        schema.KINDS,
        tools.KINDS,
        limits.KINDS,
        text.REFUSAL_KINDS,
        judged.KINDS,
    )
    for kind in kinds
}
"""The checks of evalq, in the order of the reference page."""


@cached_until_named
def known_kinds() -> Mapping[str, Kind]:
    """All checks, also those of installed packages. Raises ConfigError for one that cannot be used."""
    reserved = {**VOCABULARY, **dict.fromkeys(("any", "all", "at-least", "name", "weight", "threshold", "at", "count"))}
    return {**VOCABULARY, **{kind.name: kind for kind in _team_kinds(reserved)}}


def _team_kinds(reserved: Mapping[str, object]) -> Iterator[Kind]:
    """The checks of installed packages. Raises ConfigError if one cannot be loaded or has a ``reserved`` name."""
    seen: dict[str, EntryPoint] = {}
    for point in plug_ins(CHECKS):
        if point.name in reserved or not _NAME.fullmatch(point.name):
            raise ConfigError(
                f"the check {point.name!r} ({point.value}) needs another name: lower-case letters, digits and dashes, "
                "and not a name that evalq uses"
            )
        if point.name in seen:
            raise ConfigError(f"two packages register a check {point.name!r}: {seen[point.name].value}, {point.value}")
        seen[point.name] = point
        yield _kind(point)


def _kind(point: EntryPoint) -> Kind:
    loaded = load(point, "check")
    if callable(loaded) and not isinstance(loaded, Kind):
        summary = (inspect.getdoc(loaded) or f"{point.value}.").partition("\n\n")[0]
        loaded = Kind(
            name=point.name,
            summary=" ".join(summary.split()),
            value=Any,
            make=_make_from_function(loaded),
            example={point.name: True},
            threshold=_PASSING_SCORE,
        )
    if not isinstance(loaded, Kind) or loaded.name != point.name:
        raise ConfigError(f"the check {point.name!r} ({point.value}) is neither a function nor a Kind of that name")
    return msgspec.structs.replace(loaded, make=_guard_make(loaded.make))


def _make_from_function(function: Callable[[CheckedAnswer, Any], Any]) -> Callable[[Any, NoOptions], Made]:
    def make(value: Any, options: NoOptions) -> Made:
        wanted = value if isinstance(value, str) else msgspec.json.encode(value).decode()

        def run(answer: CheckedAnswer) -> Finding:
            result = function(answer, value)
            return result if isinstance(result, Finding) else Finding(float(result), answer.text)

        return Made(wanted, run)

    return make


def _guard_make(make: Callable[[Any, Any], Made]) -> Callable[[Any, Any], Made]:
    """``make``, whose checks raise only `Uncomputable`: an error in a team's code does not end a run."""

    def guarded(value: Any, options: Any) -> Made:
        ready = make(value, options)
        # Without `question`: no cases file would show the prompt of a plug-in.
        return Made(ready[0], _guard_run(ready[1]))

    return guarded


def _without_surrogates(text: str) -> str:
    """``text`` without half surrogate pairs, which file names may have and no record can hold."""
    return text.encode("utf-8", "replace").decode()


def _guard_run(run: Run) -> Run:
    def guarded(answer: CheckedAnswer) -> Finding:
        try:
            score, found = run(answer)
            in_range, value, text = (
                math.isfinite(score) and 0.0 <= score <= 1.0,
                float(score),
                _without_surrogates(str(found)),
            )
        except Uncomputable as error:
            raise Uncomputable(_without_surrogates(str(error))) from error
        except OverflowError as error:  # such as 10**400; of the code itself or of its score
            raise Uncomputable(f"its score, or a number on the way to it, is too large: {error}") from error
        except Exception as error:  # an error in the code says nothing about the answer
            raise Uncomputable(f"{type(error).__name__}: {shorten(_without_surrogates(str(error)), 160)}") from error
        if not in_range:
            raise Uncomputable(f"its score is {score}, not from 0 to 1")
        return Finding(value, text)

    return guarded
