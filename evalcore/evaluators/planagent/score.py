"""The rules: the checklist of an expected result, zeros that are forced, points for speed, and misplaced values."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.evaluators.planagent.params import (
    FORMS,
    KEY,
    Kind,
    Mask,
    PlanParams,
    RatioBand,
    SpeedBand,
    key_pattern,
)
from evalq.evalcore.evaluators.planagent.record import PlanAnswer, plain_text, shortened
from evalq.evalcore.statistics.exact import is_below
from evalq.evalcore.words import compiled

# Expected results repeat from round to round, so each is parsed once.
_CACHED_TEXTS = 4096
_MAX_NAME = 160
"""Characters of a check's name that are kept."""
_MAX_UNREAD = 200
"""Characters of a condition that no form reads, as a record has it."""
_CACHED_ENCODINGS = 64
"""How many outcomes of one checklist are kept as JSON: all of them, up to six checks."""
_LINE_END = re.compile(r"\r\n|[\r\n]")


class PlanCheck(NamedTuple):
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

    def __init__(self, checks: tuple[PlanCheck, ...], points: tuple[int, ...], unread: tuple[str, ...] = ()) -> None:
        self.checks = checks
        self.unread = unread
        self.points = points
        self.names = tuple(shortened(f"{check.kind} = {check.want}", _MAX_NAME) for check in checks)
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
            if len(self._encoded) < _CACHED_ENCODINGS:
                self._encoded[passed] = known
        return known


def without_space(text: str) -> str:
    """``text`` less all its white space, as keywords are compared."""
    return "".join(text.split())


def _comparable(check: PlanCheck) -> Any:
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


class _LazyForm:
    """The pattern of a form, compiled when a line mentions its key: to compile all takes a sixth of a small run."""

    __slots__ = ("_compiled", "_key", "_pattern")

    def __init__(self, pattern: str, key: re.Pattern[str] | None) -> None:
        """Without a ``key``, which the user's own forms need not have, every line is tried."""
        self._pattern = pattern
        self._key = key
        self._compiled: re.Pattern[str] | None = None

    def match(self, line: str, at: int) -> re.Match[str] | None:
        if self._key is not None and not self._key.search(line, at):
            return None
        if self._compiled is None:
            self._compiled = compiled(self._pattern)
        return self._compiled.match(line, at)


class ConditionReader:
    """Reads the conditions of expected results, by the patterns of ``params``."""

    def __init__(self, params: PlanParams) -> None:
        self._number = compiled(params.joined(params.numbering))
        self._connector = compiled(params.joined(params.connector))
        keys: dict[str, re.Pattern[str]] = {}
        self._forms = []
        for form in params.forms:
            key = None
            if (form.kind, form.pattern) in FORMS:
                key = keys.get(form.kind) or compiled(params.joined(key_pattern(form.kind)))
                keys[form.kind] = key
            self._forms.append((form.kind, _LazyForm(params.joined(form.pattern), key)))
        quote = next((part.pattern for part in params.parts if part.name == "q"), '"')
        # 'A" and "B' between two quotes is no keyword, but two: which of them are asked for nobody can say.
        self._several = compiled(params.joined(rf"{quote}\s*+(?:,|·|/|와|과|및|또는|이나|나|or\b|and\b)\s*+{quote}"))

    def read(self, text: str) -> tuple[list[PlanCheck], list[str]]:
        """The checks of an expected result in its order, and the conditions that no form reads.

        A line is a condition where it begins with a number or a bullet, or mentions a key of the answer; it may hold
        several. What a form leaves of a line is read on, so that no part of one is dropped.
        """
        # SPEC, section 4: how many checks the header line says there are is not trusted, so that no form reads it.
        checks: list[PlanCheck] = []
        # Not `splitlines`, which also ends a line at signs that a keyword may hold, such as U+2028.
        left = [self._line(line, checks) for line in _LINE_END.split(text)]
        return checks, [shortened(condition, _MAX_UNREAD) for condition in left if condition]

    def _line(self, line: str, checks: list[PlanCheck]) -> str:
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

    def _check(self, line: str, at: int) -> tuple[PlanCheck, int] | None:
        """The check at ``at`` in the first form that fits, and its end."""
        for start in dict.fromkeys((at, self._after(line, at))):
            for kind, form in self._forms:
                found = form.match(line, start)
                # Without its white space a blank keyword is in any message: such a check would pass always.
                if found and (want := found["want"]).strip() and not self._several.search(want):
                    # Only the switch is no text: people write True and TRUE, which is JSON's true.
                    return PlanCheck(kind, want.lower() if kind == "multiSelectAllowYn" else want), found.end()
        return None

    def _after(self, line: str, at: int) -> int:
        found = self._connector.match(line, at)
        return found.end() if found else at

    def _after_number(self, line: str, at: int) -> int:
        found = self._number.match(line, at)
        return found.end() if found else at


@lru_cache(maxsize=8)
def checklist_reader(params: PlanParams) -> Callable[[str], Checklist]:
    """A function from an expected result to its checklist (which may have no check), which remembers recent texts."""
    reader = ConditionReader(params)

    @lru_cache(maxsize=_CACHED_TEXTS)
    def read(text: str) -> Checklist:
        checks, unread = reader.read(text)
        points = points_by_passes(len(checks), params.ratio_bands, params.any_pass_points)
        return Checklist(tuple(checks), points, tuple(unread))

    return read


# The rules that turn one row into a score: what forces a zero, what speed earns, how an error is grouped.

ERROR, UNPARSABLE, EMPTY = "error", "unparsable", "empty"
"""Why a row is 0 without its checks being judged."""

_MAX_TEXT = 600
_MAX_PATTERN = 160


def is_error(value: Any) -> bool:
    """Whether a JSON ``error`` holds something other than white space, null, false or an empty container."""
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, (list, dict)):
        return bool(value)
    # A number is one, 0 included: SPEC, section 4, lists all that says there is none.
    return value is not None and value is not False


class ErrorTexts:
    """Finds the error of a row, and the pattern its text is counted under."""

    def __init__(self, no_error: tuple[str, ...], masks: tuple[Mask, ...]) -> None:
        self._no_error = frozenset(text.casefold() for text in no_error)
        self._masks = [(compiled(mask.pattern), mask.replacement) for mask in masks]
        # An outage writes one text into many rows.
        self.pattern = lru_cache(maxsize=1024)(self._pattern)

    @classmethod
    def of(cls, params: PlanParams) -> ErrorTexts:
        """The rules of ``params``."""
        return _error_texts(params.no_error, params.error_masks)

    def find(self, column: str, answer: PlanAnswer | None) -> str | None:
        """The text of the column's error, else of the answer's, cut to MAX_TEXT; None where there is none."""
        # The column first: it is there also where no answer can be read.
        if column and (text := shortened(column, _MAX_TEXT)) and text.casefold() not in self._no_error:
            return text
        error = None if answer is None else answer.error
        if error is None or error == "" or not is_error(error):
            return None
        return shortened(plain_text(error), _MAX_TEXT)

    def _pattern(self, text: str) -> str:
        """``text`` with what varies from row to row masked."""
        for mask, replacement in self._masks:
            # The user's replacement is plain text: a backslash in it must not refer to a group.
            text = mask.sub(replacement.replace("\\", "\\\\"), text)
        return shortened(text, _MAX_PATTERN)


@lru_cache(maxsize=8)
def _error_texts(no_error: tuple[str, ...], masks: tuple[Mask, ...]) -> ErrorTexts:
    return ErrorTexts(no_error, masks)


class SpeedScale:
    """Points for seconds: those of the first band they do not exceed, 0 beyond the last.

    ``limits`` are the bands' seconds, ``by_band`` their points and, last, those of times beyond all.
    """

    def __init__(self, bands: tuple[SpeedBand, ...]) -> None:
        self.limits = tuple(band.seconds for band in bands)
        self.by_band = (*(band.points for band in bands), 0)

    def points(self, seconds: float) -> int:
        """The points ``seconds`` earn."""
        return self.by_band[bisect_left(self.limits, seconds)]

    def points_of_mean(self, seconds: float) -> int:
        """The points a mean of ``seconds`` earns, as a decimal: doubles of 1.219 to 17.513 s, 5 s on average, may have
        a mean that is a little more.
        """
        return self.by_band[sum(is_below(limit, seconds) for limit in self.limits)]


# Where a value that a check missed stands instead: a generic walk over an answer's items.

MAX_STEPS = 12
"""Containers within containers that are walked, from the item on."""
_MAX_VALUES = 5000
"""Values of one answer that are looked at, about."""
MAX_PATH = 160
"""Characters of a key path that are kept."""

# What no writer of JSON escapes, so that a value of these stands in the JSON's text as it is.
PLAIN = re.compile(r"[\w .-]+", re.ASCII)
_SWITCH = "multiSelectAllowYn"


def paths_of_missed(raw: str, answer: PlanAnswer, missed: Sequence[PlanCheck]) -> Iterator[tuple[str, str]]:
    """(kind, key path) for every missed check and every distinct path its value stands at.

    A path runs from ``uiValue`` ("value.nodeDataSet.dataKey"; list positions are "[*]"), elsewhere in an item from the
    answer's top ("dataUIList[*].uiDescription"). A keyword stands in any text that holds it, a switch wherever its own
    name has its value, another text where it is the whole value. ``raw`` is the JSON the answer was read from.
    """
    walk = _ItemWalk([check for check in missed if _may_stand_in(raw, answer, check)])
    if walk.idle:
        return
    for item in answer.items:
        walk.item(item)
    for kind, path in sorted(walk.found):
        yield kind, shortened(plain_text(path), MAX_PATH)


def _may_stand_in(raw: str, answer: PlanAnswer, check: PlanCheck) -> bool:
    """Whether a walk is worth its time.

    A plain value that does not stand in quotes in the JSON's text is no value in it. A switch that stands where it
    belongs, with the other value, is not misplaced.
    """
    want = check.want
    if check.kind == _SWITCH:
        # True and false stand all over a JSON: only the switch's own name tells one that is misplaced.
        return not any(_SWITCH in ui for ui in answer.values)
    if check.kind == "message" or f'"{want}"' in raw:
        return True
    return not PLAIN.fullmatch(want)


class _ItemWalk:
    """Collects (kind, path) in ``found``; one walk serves all missed checks of a row."""

    def __init__(self, missed: Sequence[PlanCheck]) -> None:
        self.found: set[tuple[str, str]] = set()
        self._texts: dict[str, list[str]] = {}
        self._keywords: list[str] = []
        self._switches: list[bool] = []
        self._left = _MAX_VALUES
        for check in missed:
            if check.kind == "message":
                self._keywords.append(without_space(check.want))
            elif check.kind == _SWITCH:
                self._switches.append(check.want == "true")
            else:
                self._texts.setdefault(check.want, []).append(check.kind)

    @property
    def idle(self) -> bool:
        """Whether nothing is sought."""
        return not (self._texts or self._keywords or self._switches)

    def item(self, item: Any) -> None:
        """Walk one element of dataUIList."""
        if type(item) is dict:
            for key, value in item.items():
                self._any(value, "" if key == "uiValue" else f"dataUIList[*].{key}", 1)
        else:
            self._any(item, "dataUIList[*]", 1)

    def _any(self, value: Any, path: str, depth: int) -> None:
        kind = type(value)
        if kind is dict:
            self._object(value, path, depth)
        elif kind is list:
            if depth <= MAX_STEPS and self._left > 0:
                self._left -= len(value)
                inside = f"{path}[*]"
                for element in value:
                    self._any(element, inside, depth + 1)
        elif kind is str:
            self._text(value, path or "uiValue")

    def _object(self, node: dict[str, Any], path: str, depth: int) -> None:
        """Look at an object's values; those of the commonest types without a call of their own."""
        if depth > MAX_STEPS or self._left <= 0:
            return
        self._left -= len(node)
        texts, keywords = self._texts, self._keywords
        prefix = f"{path}." if path else ""
        for key, value in node.items():
            kind = type(value)
            if kind is str:
                if keywords or value in texts:
                    self._text(value, prefix + key)
            elif kind is dict or kind is list:
                self._any(value, prefix + key, depth + 1)
            elif kind is bool and key == _SWITCH and value in self._switches:
                self.found.add((_SWITCH, prefix + key))

    def _text(self, value: str, path: str) -> None:
        for kind in self._texts.get(value, ()):
            self.found.add((kind, path))
        if self._keywords:
            plain = without_space(value)
            if any(keyword in plain for keyword in self._keywords):
                self.found.add(("message", path))
