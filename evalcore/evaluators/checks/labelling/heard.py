"""What people said of one output: its labels, from its own line or from a file, and what passes by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from evalq.evalcore.evaluators.checks.check import Check, Verdict
from evalq.evalcore.evaluators.checks.labelling.fallible import judged_of
from evalq.evalcore.evaluators.checks.params import Case, Labels
from evalq.evalcore.evaluators.checks.passing import passes
from evalq.evalcore.evaluators.checks.taken import Misplaced
from evalq.evalcore.naming import kind_of, shorten

__all__ = ["NOTHING", "Heard", "KnownLabels", "given_labels", "heard", "of_no_check"]


class KnownLabels(NamedTuple):
    """What is known of a case's labels before its outputs: ``judged`` says of each check whether it may be wrong and
    decides, ``places`` where it stands by its name (None for a name that several have), ``repeats`` has labels of a
    file by repeat and place.
    """

    case: Case
    judged: tuple[bool, ...]
    places: Mapping[str, int | None]
    repeats: Mapping[int, Mapping[int, bool]]


class Heard(NamedTuple):
    """What people said of an output with a verdict.

    ``labels`` has one for each check, None where it has none. ``plain``: whether it passes by the checks that are not
    fallible alone; None where there are none. ``people``: whether it passes with labels in place of fallible verdicts;
    None where one lacks, and where no such check decides. ``astray`` tells of labels in its line that are
    about nothing.
    """

    labels: tuple[bool | None, ...] = ()
    plain: bool | None = None
    people: bool | None = None
    astray: tuple[str, ...] = ()


NOTHING = Heard()


def given_labels(case: Case, checks: Sequence[Check], labels: Mapping[str, Labels]) -> KnownLabels:
    """The labels of a case's checks, made ready; those of names that it has not, or several times, are left out."""
    places: dict[str, int | None] = {}
    for index, check in enumerate(checks):
        # Not the first of them: a label by that name would be given to a check that nobody meant.
        places[check.name] = None if check.name in places else index
    repeats: dict[int, dict[int, bool]] = {}
    for name, said in labels.items():
        place = places.get(name)
        if place is not None:
            for passed, of in ((True, said.passed), (False, said.failed)):
                for repeat in of:
                    repeats.setdefault(repeat, {})[place] = passed
    return KnownLabels(case, judged_of(case), places, repeats)


def of_no_check(name: str, case: str, places: Mapping[str, int | None]) -> str:
    """Why a label for the check called ``name`` is about nothing; empty where it is about one."""
    if name not in places:
        return f"{shorten(case)} has no check called {shorten(name)!r}"
    if places[name] is None:
        return f"{shorten(case)} has several checks called {shorten(name)!r}: tell them apart by `name`"
    return ""


def heard(
    record: Mapping[str, Any], given: KnownLabels, repeat: int, twice: Sequence[str], verdicts: Sequence[Verdict]
) -> Heard:
    """What people said of the output; ``verdicts`` is empty where it has none. Raises Misplaced."""
    if not given.repeats and record.get("labels") is None and not any(given.judged):
        return NOTHING
    labels: dict[int, bool] = dict(given.repeats.get(repeat, {}))
    astray = tuple(_own(record, given, twice, labels, verdicts)) if record.get("labels") is not None else ()
    if not verdicts:
        return Heard(astray=astray)
    told = tuple(labels.get(index) for index in range(len(verdicts))) if labels else ()
    if not any(given.judged):
        return Heard(told, astray=astray) if told or astray else NOTHING
    return Heard(told, _plain(given, verdicts), _people(given, verdicts, labels), astray)


def _own(
    record: Mapping[str, Any],
    given: KnownLabels,
    twice: Sequence[str],
    labels: dict[int, bool],
    verdicts: Sequence[Verdict],
) -> list[str]:
    """Add the labels of the line to ``labels``; what is about nothing. Raises Misplaced."""
    own, astray = record["labels"], []
    if not isinstance(own, dict):
        raise Misplaced(f"labels: {kind_of(own)} where an object of checks is wanted")
    if any(path.startswith(("labels.", "labels[")) for path in twice):
        raise Misplaced("labels: a check is labelled more than once")
    for name, passed in own.items():
        if not isinstance(passed, bool):
            raise Misplaced(f"labels, {shorten(name)}: {kind_of(passed)} where true or false is wanted")
        why = of_no_check(name, given.case.id, given.places)
        place = given.places.get(name)
        if place is None:
            astray.append(why)
            continue
        # Of a line and a file that disagree neither is taken: which of them is right nobody here can tell.
        if labels.setdefault(place, passed) is not passed:
            theirs = "true" if labels[place] else "false"
            raise Misplaced(f"labels, {shorten(name)}: {str(passed).lower()} here, and {theirs} in --labels")
        if not verdicts or verdicts[place].passed is None:
            astray.append(
                f"{shorten(name)!r} of {shorten(given.case.id)} repeat {record.get('repeat', 0)} has no verdict"
            )
    return astray


def _plain(given: KnownLabels, verdicts: Sequence[Verdict]) -> bool | None:
    own = [verdict for verdict, judged in zip(verdicts, given.judged, strict=True) if not judged]
    if not any(verdict.weight and verdict.passed is not None for verdict in own):
        return None
    return passes(own, given.case.thresholds.score)[0] == "passed"


def _people(given: KnownLabels, verdicts: Sequence[Verdict], labels: Mapping[int, bool]) -> bool | None:
    # All or none: an output of which one verdict is still the judge's is not as people have it.
    if any(judged and index not in labels for index, judged in enumerate(given.judged)):
        return None
    own = [
        _as_labelled(verdict, labels[index]) if given.judged[index] else verdict
        for index, verdict in enumerate(verdicts)
    ]
    return passes(own, given.case.thresholds.score)[0] == "passed"


def _as_labelled(verdict: Verdict, passed: bool) -> Verdict:
    # A label has no score in between: by `thresholds: score` what people labelled counts 0 or 1.
    return Verdict(verdict.name, passed, float(passed), verdict.wanted, weight=verdict.weight)
