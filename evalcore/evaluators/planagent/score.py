"""The rules of a row: its checklist, forced zeros, points for speed, and paths of misplaced values."""

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
"""Characters of an unread condition that a record keeps."""
_CACHED_ENCODINGS = 64
"""How many outcomes of one checklist are kept as JSON: all of them, up to six checks."""
_LINE_END = re.compile(r"\r\n|[\r\n]")


class PlanCheck(NamedTuple):
    """One check of an expected result: a kind, and the value ``want`` ("true" or "false" for a switch)."""

    kind: Kind
    want: str


class _Judged(msgspec.Struct):
    kind: str
    want: str
    passed: bool | None


class Checklist:
    """The checks of one expected result, with the values that depend only on them.

    ``points[n]`` is the score of n passed checks. ``names`` has a text for each check, ``label`` names their kinds
    ("formType+actionType"), ``wanted_forms`` their form types. ``unread`` are the conditions that no form reads. A set
    of passed checks is an integer, bit i for check i.
    """

    __slots__ = ("_encoded", "_plan", "checks", "label", "names", "points", "unread", "wanted_forms")

    def __init__(self, checks: tuple[PlanCheck, ...], points: tuple[int, ...], unread: tuple[str, ...] = ()) -> None:
        self.checks = checks
        self.unread = unread
        self.points = points
        self.names = tuple(shortened(f"{check.kind} = {check.want}", _MAX_NAME) for check in checks)
        self.label = "+".join(dict.fromkeys(check.kind for check in checks))
        # Sorted as `PlanAnswer.forms` is: the report shows wanted and answered forms side by side.
        self.wanted_forms = "+".join(sorted({check.want for check in checks if check.kind == "formType"}))
        self._plan = [(1 << i, check.kind, _comparable(check)) for i, check in enumerate(checks)]
        self._encoded: dict[int | None, msgspec.Raw] = {}

    def judge(self, message: str, values: Sequence[dict[str, Any]]) -> int:
        """The passed checks, given an answer's message and its items' uiValue objects.

        A keyword passes if the message without white space holds it; any other check passes if some item has exactly
        the wanted value: under its kind's name, dataKey and buttonKey in the object ``value``.
        """
        passed = 0
        value_objects = None
        for bit, kind, want in self._plan:
            if kind == "message":
                if want in without_space(message):
                    passed |= bit
                continue
            holders = values
            if kind in ("dataKey", "buttonKey"):
                if value_objects is None:
                    value_objects = [value for ui in values if type(value := ui.get("value")) is dict]
                holders = value_objects
            for holder in holders:
                value = holder.get(kind)
                # A switch is JSON's true or false, never the numbers 1 and 0, which Python finds equal.
                if value == want and (kind != "multiSelectAllowYn" or value is want):
                    passed |= bit
                    break
        return passed

    def encoded(self, passed: int | None) -> msgspec.Raw:
        """The record line's ``checks`` as JSON; None means that they were not judged."""
        encoded = self._encoded.get(passed)
        if encoded is None:
            rows = [
                _Judged(check.kind, check.want, None if passed is None else bool(passed >> i & 1))
                for i, check in enumerate(self.checks)
            ]
            encoded = msgspec.Raw(msgspec.json.encode(rows))
            if len(self._encoded) < _CACHED_ENCODINGS:
                self._encoded[passed] = encoded
        return encoded


def without_space(text: str) -> str:
    """``text`` without white space, for comparing keywords."""
    return "".join(text.split())


def _comparable(check: PlanCheck) -> Any:
    """The value that `Checklist.judge` compares with: a bool for a switch."""
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
        """Without a ``key``, as for the user's own forms, every line is tried."""
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
        self._number = compiled(params.insert_parts(params.numbering))
        self._connector = compiled(params.insert_parts(params.connector))
        keys: dict[str, re.Pattern[str]] = {}
        self._forms = []
        for form in params.forms:
            key = None
            if (form.kind, form.pattern) in FORMS:
                key = keys.get(form.kind) or compiled(params.insert_parts(key_pattern(form.kind)))
                keys[form.kind] = key
            self._forms.append((form.kind, _LazyForm(params.insert_parts(form.pattern), key)))
        quote = next((part.pattern for part in params.parts if part.name == "q"), '"')
        # 'A" and "B' between two quotes is two keywords, and it is unknown which of them is wanted.
        self._several = compiled(
            params.insert_parts(rf"{quote}\s*+(?:,|·|/|와|과|및|또는|이나|나|or\b|and\b)\s*+{quote}")
        )

    def read(self, text: str) -> tuple[list[PlanCheck], list[str]]:
        """The checks of an expected result in its order, and the conditions that no form reads.

        A line is a condition if it begins with a number or a bullet, or mentions a key of the answer. It may hold
        several conditions: reading goes on after each check.
        """
        # SPEC, section 4: the number of checks in the header line is not trusted, so no form reads it.
        checks: list[PlanCheck] = []
        # Not `splitlines`, which also splits at characters that a keyword may hold, such as U+2028.
        left = [self._line(line, checks) for line in _LINE_END.split(text)]
        return checks, [shortened(condition, _MAX_UNREAD) for condition in left if condition]

    def _line(self, line: str, checks: list[PlanCheck]) -> str:
        """Add the checks of one line; return the rest of it if that is a condition that no form reads."""
        at = begin = self._after_number(line, 0)
        while at < len(line):
            result = self._check(line, at)
            if result is None:
                break
            check, end = result
            checks.append(check)
            at = self._after_number(line, self._after_connector(line, end))
        rest = line[at:].strip()
        if not rest:
            return ""
        if at > begin:
            return rest
        is_condition = line[:begin].strip() or (KEY.search(rest) and not rest.endswith((":", "：")))
        return line.strip() if is_condition else ""

    def _check(self, line: str, at: int) -> tuple[PlanCheck, int] | None:
        """The check at ``at`` in the first form that fits, and its end."""
        for start in dict.fromkeys((at, self._after_connector(line, at))):
            for kind, form in self._forms:
                match = form.match(line, start)
                # A blank keyword without its white space is in any message: its check would always pass.
                if match and (want := match["want"]).strip() and not self._several.search(want):
                    # A switch is no text: people write True and TRUE for JSON's true.
                    return PlanCheck(kind, want.lower() if kind == "multiSelectAllowYn" else want), match.end()
        return None

    def _after_connector(self, line: str, at: int) -> int:
        match = self._connector.match(line, at)
        return match.end() if match else at

    def _after_number(self, line: str, at: int) -> int:
        match = self._number.match(line, at)
        return match.end() if match else at


@lru_cache(maxsize=8)
def checklist_reader(params: PlanParams) -> Callable[[str], Checklist]:
    """A function from an expected result to its checklist (perhaps without checks), with a cache of recent texts."""
    reader = ConditionReader(params)

    @lru_cache(maxsize=_CACHED_TEXTS)
    def read(text: str) -> Checklist:
        checks, unread = reader.read(text)
        points = points_by_passes(len(checks), params.ratio_bands, params.any_pass_points)
        return Checklist(tuple(checks), points, tuple(unread))

    return read


# Errors and their patterns, and points for speed.

ERROR, UNPARSABLE, EMPTY = "error", "unparsable", "empty"
"""Reasons for a score of 0 without judging the checks."""

_MAX_TEXT = 600
_MAX_PATTERN = 160


def is_error(value: Any) -> bool:
    """Whether a JSON ``error`` is anything but white space, null, false or an empty container."""
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, (list, dict)):
        return bool(value)
    # Every number is an error, 0 too: SPEC, section 4, lists the values that mean no error.
    return value is not None and value is not False


class ErrorTexts:
    """Finds the error of a row, and the pattern under which its text is counted."""

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
        """The text of the column's error, else of the answer's, cut to MAX_TEXT; None if there is no error."""
        # The column first: it exists even if the answer cannot be read.
        if column and (text := shortened(column, _MAX_TEXT)) and text.casefold() not in self._no_error:
            return text
        error = None if answer is None else answer.error
        if error is None or error == "" or not is_error(error):
            return None
        return shortened(plain_text(error), _MAX_TEXT)

    def _pattern(self, text: str) -> str:
        """``text`` with the parts masked that vary from row to row."""
        for mask, replacement in self._masks:
            # The user's replacement is plain text: a backslash in it must not refer to a group.
            text = mask.sub(replacement.replace("\\", "\\\\"), text)
        return shortened(text, _MAX_PATTERN)


@lru_cache(maxsize=8)
def _error_texts(no_error: tuple[str, ...], masks: tuple[Mask, ...]) -> ErrorTexts:
    return ErrorTexts(no_error, masks)


class SpeedScale:
    """Points for seconds: those of the first band that they do not exceed, 0 beyond the last.

    ``limits`` are the bands' seconds. ``by_band`` are their points, and last the points beyond all bands.
    """

    def __init__(self, bands: tuple[SpeedBand, ...]) -> None:
        self.limits = tuple(band.seconds for band in bands)
        self.by_band = (*(band.points for band in bands), 0)

    def points(self, seconds: float) -> int:
        """The points ``seconds`` earn."""
        return self.by_band[bisect_left(self.limits, seconds)]

    def points_of_mean(self, seconds: float) -> int:
        """The points that a mean of ``seconds`` earns. It is compared as a decimal: a mean of exactly 5 s may be a
        little more as a double.
        """
        return self.by_band[sum(is_below(limit, seconds) for limit in self.limits)]


# Misplaced values: a walk over an answer's items finds the paths of values that checks missed.

MAX_STEPS = 12
"""Levels of containers that are walked, from the item on."""
_MAX_VALUES = 5000
"""About how many values of one answer are searched."""
MAX_PATH = 160
"""Characters of a key path that are kept."""

# Characters that no writer of JSON escapes: a value of these is in the JSON's text unchanged.
PLAIN = re.compile(r"[\w .-]+", re.ASCII)
_SWITCH = "multiSelectAllowYn"


def paths_of_missed(raw: str, answer: PlanAnswer, missed: Sequence[PlanCheck]) -> Iterator[tuple[str, str]]:
    """(kind, key path) for every missed check and every distinct path of its value.

    A path begins at ``uiValue`` ("value.nodeDataSet.dataKey"; list positions are "[*]"), or else at the answer's top
    ("dataUIList[*].uiDescription"). A keyword matches any text that holds it, a switch matches its own key with its
    value, and other values match a whole text. ``raw`` is the answer's JSON.
    """
    walk = _ItemWalk([check for check in missed if _may_contain(raw, answer, check)])
    if walk.idle:
        return
    for item in answer.items:
        walk.walk_item(item)
    for kind, path in sorted(walk.paths):
        yield kind, shortened(plain_text(path), MAX_PATH)


def _may_contain(raw: str, answer: PlanAnswer, check: PlanCheck) -> bool:
    """Whether the answer may contain the check's value elsewhere, so that a walk is worth its time.

    A plain value that is not in the JSON's text in quotes is nowhere in it. A switch in its own place, with the other
    value, is not misplaced.
    """
    want = check.want
    if check.kind == _SWITCH:
        # JSON is full of true and false: only the switch's own key shows that one is misplaced.
        return not any(_SWITCH in ui for ui in answer.values)
    if check.kind == "message" or f'"{want}"' in raw:
        return True
    return not PLAIN.fullmatch(want)


class _ItemWalk:
    """Collects (kind, path) in ``paths``, in one walk for all missed checks of a row."""

    def __init__(self, missed: Sequence[PlanCheck]) -> None:
        self.paths: set[tuple[str, str]] = set()
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
        """Whether it searches for nothing."""
        return not (self._texts or self._keywords or self._switches)

    def walk_item(self, item: Any) -> None:
        """Walk one element of dataUIList."""
        if type(item) is dict:
            for key, value in item.items():
                self._search(value, "" if key == "uiValue" else f"dataUIList[*].{key}", 1)
        else:
            self._search(item, "dataUIList[*]", 1)

    def _search(self, value: Any, path: str, depth: int) -> None:
        kind = type(value)
        if kind is dict:
            self._search_object(value, path, depth)
        elif kind is list:
            if depth <= MAX_STEPS and self._left > 0:
                self._left -= len(value)
                inside = f"{path}[*]"
                for element in value:
                    self._search(element, inside, depth + 1)
        elif kind is str:
            self._match_text(value, path or "uiValue")

    def _search_object(self, node: dict[str, Any], path: str, depth: int) -> None:
        """Search an object's values; those of the commonest types without another call."""
        if depth > MAX_STEPS or self._left <= 0:
            return
        self._left -= len(node)
        texts, keywords = self._texts, self._keywords
        prefix = f"{path}." if path else ""
        for key, value in node.items():
            kind = type(value)
            if kind is str:
                if keywords or value in texts:
                    self._match_text(value, prefix + key)
            elif kind is dict or kind is list:
                self._search(value, prefix + key, depth + 1)
            elif kind is bool and key == _SWITCH and value in self._switches:
                self.paths.add((_SWITCH, prefix + key))

    def _match_text(self, value: str, path: str) -> None:
        for kind in self._texts.get(value, ()):
            self.paths.add((kind, path))
        if self._keywords:
            plain = without_space(value)
            if any(keyword in plain for keyword in self._keywords):
                self.paths.add(("message", path))
