"""The checklist an expected result asks for: parsed once a text, judged against each answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.evaluators.planagent.answer import shortened
from evalq.evalcore.evaluators.planagent.params import Form, Kind, PlanParams, RatioBand
from evalq.evalcore.patterns import compiled

__all__ = ["Check", "Checklist", "checklist_reader", "parse_checks", "points_by_passes", "without_space"]

# Expected results repeat from round to round, so each is parsed once.
CACHED_TEXTS = 4096
MAX_NAME = 160
"""Characters of a check's name that are kept."""
CACHED_ENCODINGS = 64
"""How many outcomes of one checklist are kept as JSON: all of them, up to six checks."""
_LINE_END = re.compile(r"\r\n|[\r\n]")


class Check(NamedTuple):
    """One thing an expected result asks for: a value ``want`` ("true" or "false" for a switch) of one kind."""

    kind: Kind
    want: str


class _Judged(msgspec.Struct):
    kind: str
    want: str
    passed: bool | None


class Checklist:
    """The checks of one expected result, with what depends on them alone.

    ``points[n]`` is the score of n passed checks. ``names`` has a text for each check, ``label`` names their kinds
    ("formType+actionType"), ``asked_forms`` the form types asked for. A set of passed checks is an integer, bit i for
    check i.
    """

    __slots__ = ("_encoded", "_plan", "asked_forms", "checks", "label", "names", "points")

    def __init__(self, checks: tuple[Check, ...], points: tuple[int, ...]) -> None:
        self.checks = checks
        self.points = points
        self.names = tuple(shortened(f"{check.kind} = {check.want}", MAX_NAME) for check in checks)
        self.label = "+".join(dict.fromkeys(check.kind for check in checks))
        # Sorted as `Answer.forms` is: the report sets what was asked beside what was answered.
        self.asked_forms = "+".join(sorted({check.want for check in checks if check.kind == "formType"}))
        self._plan = [(1 << i, check.kind, _comparable(check)) for i, check in enumerate(checks)]
        self._encoded: dict[int | None, msgspec.Raw] = {}

    def judge(self, message: str, values: Sequence[dict[str, Any]]) -> int:
        """The passed checks, given an answer's message and its items' uiValue objects.

        A keyword is found when the message without white space holds it; any other check passes when some item has
        exactly the wanted value: under its kind's name, dataKey and buttonKey in the object ``value``.
        """
        passed = 0
        inner = None
        for bit, kind, want in self._plan:
            if kind == "message":
                if want in without_space(message):
                    passed |= bit
                continue
            holders = values
            if kind in ("dataKey", "buttonKey"):
                if inner is None:
                    inner = [value for ui in values if type(value := ui.get("value")) is dict]
                holders = inner
            for holder in holders:
                value = holder.get(kind)
                # A switch is JSON's own true or false, and never the number that Python holds equal to it.
                if value == want and (kind != "multiSelectAllowYn" or value is want):
                    passed |= bit
                    break
        return passed

    def encoded(self, passed: int | None) -> msgspec.Raw:
        """The record line's ``checks`` as JSON; None means that they were not judged."""
        known = self._encoded.get(passed)
        if known is None:
            rows = [
                _Judged(check.kind, check.want, None if passed is None else bool(passed >> i & 1))
                for i, check in enumerate(self.checks)
            ]
            known = msgspec.Raw(msgspec.json.encode(rows))
            if len(self._encoded) < CACHED_ENCODINGS:
                self._encoded[passed] = known
        return known


def without_space(text: str) -> str:
    """``text`` less all its white space, as keywords are compared."""
    return "".join(text.split())


def _comparable(check: Check) -> Any:
    """What `Checklist.judge` compares with: JSON's own true and false for a switch."""
    if check.kind == "multiSelectAllowYn":
        return check.want == "true"
    return without_space(check.want) if check.kind == "message" else check.want


def points_by_passes(count: int, bands: Sequence[RatioBand], any_pass: int) -> tuple[int, ...]:
    """Scores for 0 to ``count`` passed checks; ratios are compared in integers, so borders are exact."""

    def points(passed: int) -> int:
        for band in bands:
            if passed * band.under >= band.over * count:
                return band.points
        return any_pass if passed else 0

    return tuple(points(passed) for passed in range(count + 1))


def parse_checks(text: str, numbering: re.Pattern[str], forms: Sequence[tuple[Kind, re.Pattern[str]]]) -> list[Check]:
    """The checks of an expected result, in its order: each line, after its number, in the first form that fits."""
    # SPEC, section 4: how many checks the header line says there are is not trusted, so that no form reads it.
    checks = []
    # Not `splitlines`, which also ends a line at signs that a keyword may hold, such as U+2028.
    for line in _LINE_END.split(text):
        number = numbering.match(line)
        at = number.end() if number else 0
        for kind, form in forms:
            found = form.match(line, at)
            # Without its white space a blank keyword is in any message: such a check would pass always.
            if found and found["want"].strip():
                want = found["want"]
                # Only the switch is no text: people write True and TRUE, which is JSON's true.
                checks.append(Check(kind, want.lower() if kind == "multiSelectAllowYn" else want))
                break
    return checks


def checklist_reader(params: PlanParams) -> Callable[[str], Checklist | None]:
    """A function from an expected result to its checklist (None: no check in it), which remembers recent texts."""
    return _reader(params.numbering, params.forms, params.ratio_bands, params.any_pass_points)


@lru_cache(maxsize=8)
def _reader(
    numbering: str, forms: tuple[Form, ...], bands: tuple[RatioBand, ...], any_pass: int
) -> Callable[[str], Checklist | None]:
    number = compiled(numbering)
    patterns = [(form.kind, compiled(form.pattern)) for form in forms]

    @lru_cache(maxsize=CACHED_TEXTS)
    def read(text: str) -> Checklist | None:
        checks = parse_checks(text, number, patterns)
        return Checklist(tuple(checks), points_by_passes(len(checks), bands, any_pass)) if checks else None

    return read
