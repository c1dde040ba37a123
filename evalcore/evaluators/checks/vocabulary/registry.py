"""The vocabulary: every check by its name, those that come with evalq and those of installed packages.

Packages register checks under the entry-point group ``evalq.checks``: a `Kind`, or a function
``(answer, value) -> bool | float``, which says whether the answer passes, or gives a score from 0 to 1 that passes from
one half on. A cases file can only name a check.
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
from evalq.evalcore.evaluators.checks.answer import Answer, Uncomputable
from evalq.evalcore.evaluators.checks.vocabulary import data, judged, schema, similar, text, tools
from evalq.evalcore.evaluators.checks.vocabulary.declaring import Finding, Kind, Made, NoOptions, Run
from evalq.evalcore.naming import shorten

_NAME = re.compile(r"(?!not-)[a-z][a-z0-9-]*")
_HALF = 0.5

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
        tools.USAGE_KINDS,
        text.REFUSAL_KINDS,
        judged.KINDS,
    )
    for kind in kinds
}
"""Those that come with evalq, in the order of the reference page."""


@cached_until_named
def known_kinds() -> Mapping[str, Kind]:
    """All of them, and what installed packages register. Raises ConfigError for one of these that cannot be used."""
    taken = {**VOCABULARY, **dict.fromkeys(("any", "all", "at-least", "name", "weight", "threshold", "at", "count"))}
    return {**VOCABULARY, **{kind.name: kind for kind in _team_kinds(taken)}}


def _team_kinds(taken: Mapping[str, object]) -> Iterator[Kind]:
    """The checks of installed packages. Raises ConfigError for what cannot be loaded, and for names ``taken``."""
    seen: dict[str, EntryPoint] = {}
    for point in plug_ins(CHECKS):
        if point.name in taken or not _NAME.fullmatch(point.name):
            raise ConfigError(
                f"the check {point.name!r} ({point.value}) needs another name: lower-case letters, digits and dashes, "
                "and none that evalq has"
            )
        if point.name in seen:
            raise ConfigError(f"two packages register a check {point.name!r}: {seen[point.name].value}, {point.value}")
        seen[point.name] = point
        yield _kind(point)


def _kind(point: EntryPoint) -> Kind:
    found = load(point, "check")
    if callable(found) and not isinstance(found, Kind):
        summary = (inspect.getdoc(found) or f"{point.value}.").partition("\n\n")[0]
        found = Kind(
            name=point.name,
            summary=" ".join(summary.split()),
            value=Any,
            make=_calling(found),
            example={point.name: True},
            threshold=_HALF,
        )
    if not isinstance(found, Kind) or found.name != point.name:
        raise ConfigError(f"the check {point.name!r} ({point.value}) is neither a function nor a Kind of that name")
    return msgspec.structs.replace(found, make=_guarded(found.make))


def _calling(function: Callable[[Answer, Any], Any]) -> Callable[[Any, NoOptions], Made]:
    def make(value: Any, options: NoOptions) -> Made:
        wanted = value if isinstance(value, str) else msgspec.json.encode(value).decode()

        def run(answer: Answer) -> Finding:
            found = function(answer, value)
            return found if isinstance(found, Finding) else Finding(float(found), answer.text)

        return Made(wanted, run)

    return make


def _guarded(make: Callable[[Any, Any], Made]) -> Callable[[Any, Any], Made]:
    """The same, whose checks raise nothing but `Uncomputable`: an answer that a team's code trips over ends no run."""

    def made(value: Any, options: Any) -> Made:
        ready = make(value, options)
        # Not what judges are asked: a plug-in's prompt would be one that no cases file shows.
        return Made(ready[0], _safe(ready[1]))

    return made


def _carried(text: str) -> str:
    """``text`` without halves of surrogate pairs, such as names of files may have: no record can hold them."""
    return text.encode("utf-8", "replace").decode()


def _safe(run: Run) -> Run:
    def safe(answer: Answer) -> Finding:
        try:
            score, found = run(answer)
            fine, value, told = math.isfinite(score) and 0.0 <= score <= 1.0, float(score), _carried(str(found))
        except Uncomputable as error:
            raise Uncomputable(_carried(str(error))) from error
        except Exception as error:  # whatever it raises says nothing about the answer
            raise Uncomputable(f"{type(error).__name__}: {shorten(_carried(str(error)), 160)}") from error
        if not fine:
            raise Uncomputable(f"its score is {score}, not from 0 to 1")
        return Finding(value, told)

    return safe
