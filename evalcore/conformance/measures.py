"""The properties of what two runs are compared by, and of what a policy may be about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import msgspec

from evalq.evalcore.compare.paths import why_no_number
from evalq.evalcore.conformance.subject import Example, Subject
from evalq.evalcore.contract.measures import Measures, Sighting
from evalq.evalcore.contract.plug_in import located

__all__ = ["measures", "paths"]


def measures(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """Every record line says of one case, or of none, a number on the scale of each measure, or that it has none."""
    report, lines = subject.told(example)
    declared = subject.evaluator.measures
    if declared is None:
        return
    seen: set[str] = set()
    for line in lines:
        try:
            sighting = declared.see(msgspec.json.decode(line))
        except Exception as error:  # any exception at all would end a comparison
            yield f"{located(error)} from the record line {line[:200]!r}"
            continue
        if sighting is not None:
            seen.add(sighting.case)
            yield from (f"{fault} of the record line {line[:200]!r}" for fault in _faults(declared, sighting))
    if declared.named is not None:
        listed = set(declared.named(example.whole(), subject.params))
        yield from (f"the case {case!r} is listed, and no record line is about it" for case in sorted(listed - seen))
        yield from (f"the case {case!r} is not listed" for case in sorted(seen - listed - {""}))
    if "records" in report:
        found: list[Any] = list(declared.collapsed(report))
        wrong = [case for case in found if not isinstance(case, str)]
        if wrong:
            yield f"{wrong[:3]!r} is said to be a collapsed case, which is no case's id"
        for case, p in (declared.collapse_p(report) or {}).items():
            if not 0 <= p <= 1:
                yield f"{case!r} is said to be collapsed by a p-value of {p!r}, which is no probability"
        if both := sorted(set(found) & set(declared.diverse(report))):
            yield f"{both[:3]!r} are said to be collapsed, and to be diverse"


def paths(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """A policy may name every number of the results: keys that come with the data are declared, or empty before it."""
    report, _ = subject.told(example)
    declared = subject.evaluator.measures
    known = {each.name for each in declared.measures} if declared is not None else set()
    for path in _numbers(report.get("results")):
        numbers = declared.numbers if declared is not None and path not in known else ()
        if numbers and not any(number.matches(path) for number in numbers):
            yield f"{path} is not declared in `Measures.numbers`: is more of it better, worse or neither?"
        reason = why_no_number(path, subject.evaluator, subject.params, [example.name], live=False)
        if reason:
            yield f"a policy about {path} is refused before the run: {reason}"


def _numbers(place: Any, path: str = "") -> Iterator[str]:
    """The paths to numbers, as a policy writes them; below a key with dots it cannot name any."""
    for key, value in place.items() if isinstance(place, Mapping) else ():
        here = f"{path}.{key}" if path else str(key)
        if isinstance(value, int | float):
            yield here
        elif "." not in str(key):
            yield from _numbers(value, here)


def _faults(declared: Measures, sighting: Sighting) -> Iterator[str]:
    if not isinstance(sighting.case, str):
        yield f"the case {sighting.case!r} is no string"
    if sighting.values and len(sighting.values) != len(declared.measures):
        yield f"{len(sighting.values)} values for {len(declared.measures)} measures"
    for measure, value in zip(declared.measures, sighting.values, strict=False):
        if value is not None and not _fits(value, measure.low, measure.high, measure.kind == "pass"):
            yield f"{measure.name} {value!r} is not on its scale"


def _fits(value: Any, low: float, high: float, whole: bool) -> bool:
    number = isinstance(value, int | float) and low <= value <= high
    return bool(number and (not whole or value in (0, 1)))
