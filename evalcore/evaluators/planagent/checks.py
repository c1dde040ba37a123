"""The checklist an expected result asks for: parsed once a text, judged against each answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.evaluators.planagent.answer import shortened
from evalq.evalcore.evaluators.planagent.params import Kind, PlanParams, RatioBand
from evalq.evalcore.evaluators.planagent.spelling import KEY
from evalq.evalcore.words import compiled

__all__ = ["Check", "Checklist", "Reader", "checklist_reader", "points_by_passes", "without_space"]

# Expected results repeat from round to round, so each is parsed once.
CACHED_TEXTS = 4096
MAX_NAME = 160
"""Characters of a check's name that are kept."""
MAX_UNREAD = 200
"""Characters of a condition that no form reads, as a record has it."""
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
    ("formType+actionType"), ``asked_forms`` the form types asked for, ``unread`` are the conditions that no form reads.
    A set of passed checks is an integer, bit i for check i.
    """

    __slots__ = ("_encoded", "_plan", "asked_forms", "checks", "label", "names", "points", "unread")

    def __init__(self, checks: tuple[Check, ...], points: tuple[int, ...], unread: tuple[str, ...] = ()) -> None:
        self.checks = checks
        self.unread = unread
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


class Reader:
    """Reads the conditions of expected results, by the patterns of ``params``."""

    def __init__(self, params: PlanParams) -> None:
        self._number = compiled(params.joined(params.numbering))
        self._connector = compiled(params.joined(params.connector))
        self._forms = [(form.kind, compiled(params.joined(form.pattern))) for form in params.forms]
        quote = next((part.pattern for part in params.parts if part.name == "q"), '"')
        # 'A" and "B' between two quotes is no keyword, but two: which of them are asked for nobody can say.
        self._several = compiled(params.joined(rf"{quote}\s*+(?:,|·|/|와|과|및|또는|이나|나|or\b|and\b)\s*+{quote}"))

    def read(self, text: str) -> tuple[list[Check], list[str]]:
        """The checks of an expected result in its order, and the conditions that no form reads.

        A line is a condition where it begins with a number or a bullet, or mentions a key of the answer; it may hold
        several. What a form leaves of a line is read on, so that no part of one is dropped.
        """
        # SPEC, section 4: how many checks the header line says there are is not trusted, so that no form reads it.
        checks: list[Check] = []
        # Not `splitlines`, which also ends a line at signs that a keyword may hold, such as U+2028.
        left = [self._line(line, checks) for line in _LINE_END.split(text)]
        return checks, [shortened(condition, MAX_UNREAD) for condition in left if condition]

    def _line(self, line: str, checks: list[Check]) -> str:
        """Add the checks of one line; what is left of it that is a condition and that no form reads."""
        at = begin = self._after_number(line, 0)
        while at < len(line):
            found = self._check(line, at)
            if found is None:
                break
            checks.append(found[0])
            at = self._after_number(line, self._after(line, found[1]))
        rest = line[at:].strip()
        if not rest:
            return ""
        if at > begin:
            return rest
        is_condition = line[:begin].strip() or (KEY.search(rest) and not rest.endswith((":", "：")))
        return line.strip() if is_condition else ""

    def _check(self, line: str, at: int) -> tuple[Check, int] | None:
        """The check at ``at`` in the first form that fits, and its end."""
        for start in dict.fromkeys((at, self._after(line, at))):
            for kind, form in self._forms:
                found = form.match(line, start)
                # Without its white space a blank keyword is in any message: such a check would pass always.
                if found and (want := found["want"]).strip() and not self._several.search(want):
                    # Only the switch is no text: people write True and TRUE, which is JSON's true.
                    return Check(kind, want.lower() if kind == "multiSelectAllowYn" else want), found.end()
        return None

    def _after(self, line: str, at: int) -> int:
        found = self._connector.match(line, at)
        return found.end() if found else at

    def _after_number(self, line: str, at: int) -> int:
        found = self._number.match(line, at)
        return found.end() if found else at


def checklist_reader(params: PlanParams) -> Callable[[str], Checklist]:
    """A function from an expected result to its checklist (which may have no check), which remembers recent texts."""
    return _reader(params)


@lru_cache(maxsize=8)
def _reader(params: PlanParams) -> Callable[[str], Checklist]:
    reader = Reader(params)

    @lru_cache(maxsize=CACHED_TEXTS)
    def read(text: str) -> Checklist:
        checks, unread = reader.read(text)
        points = points_by_passes(len(checks), params.ratio_bands, params.any_pass_points)
        return Checklist(tuple(checks), points, tuple(unread))

    return read
