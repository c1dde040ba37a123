"""A row: the columns that are read, the agent's answer, the scores of an LLM, and its line of records.jsonl."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec

from evalq.evalcore.evaluators.planagent.params import TOP_SCORE, Rules
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import Merging
from evalq.evalcore.statistics.exact import ExactSum

COLUMNS = (
    "Run ID",
    "Item ID",
    "Query ID",
    "질의",
    "기대결과",
    "카테고리",
    "방/반복",
    "오류",
    "LLM 상태",
    "LLM 점수",
    "LLM 코멘트",
    "Raw JSON",
)
"""The columns that a CSV must have (the seed's section 1)."""

READ = ("Query ID", "방/반복", "기대결과", "카테고리", "오류", "Raw JSON", "LLM 점수", "LLM 상태", "LLM 코멘트")
"""The columns that scoring reads, in this order."""


# Reading an answer from its Raw JSON: only the scored keys, of any type.

MAX_DEPTH = 256
"""JSON nested deeper is unparsable; far below any interpreter's limit, so that no row depends on the stack."""

# Everything but brackets; a string is one piece, an unclosed one up to the end, so that the scan stays linear.
_NO_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[^"\[\]{}]+', re.DOTALL)
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


class _RawAnswer(msgspec.Struct, gc=False):
    """The keys that are scored; the rest of the object is checked to be JSON and skipped."""

    assistantMessage: Any = None  # the agent's own key
    dataUIList: Any = None
    responseTimeSec: Any = None
    error: Any = None


class PlanAnswer(msgspec.Struct, gc=False):
    """The scored parts of one answer.

    ``message`` is "" if it is no string, and ``items`` is empty if it is no list. ``values`` are the ``uiValue``
    objects of the items. ``seconds`` is None if it is no finite number of at least 0. ``error`` may be of any type.
    """

    message: str
    items: list[Any]
    values: list[dict[str, Any]]
    seconds: float | None
    error: Any

    @property
    def empty(self) -> bool:
        """Whether there is neither a message (white space is none) nor an item."""
        return not self.items and not self.message.strip()

    @property
    def forms(self) -> str:
        """The distinct ``formType`` texts of the items, sorted and joined by "+"."""
        values = self.values
        if not values:
            return ""
        if len(values) == 1:
            return form if type(form := values[0].get("formType")) is str else ""
        return "+".join(sorted({form for ui in values if type(form := ui.get("formType")) is str}))


_decode_strict = msgspec.json.Decoder(_RawAnswer).decode
# Integers as floats: Python refuses those of more than some thousand digits.
_lenient = json.JSONDecoder(parse_int=float).decode


def read_answer(text: str) -> PlanAnswer | None:
    """``text`` as an answer; None if it is no JSON object, or nested deeper than MAX_DEPTH.

    It may have NaN, infinities and lone surrogates, which some writers of JSON write.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth_of(text) > MAX_DEPTH:
        return None
    try:
        raw = _decode_strict(text)
    except msgspec.DecodeError:
        lenient = _decode_lenient(text)
        if lenient is None:
            return None
        raw = lenient
    message, items = raw.assistantMessage, raw.dataUIList
    if type(items) is not list:
        items = []
    return PlanAnswer(
        message if type(message) is str else "",
        items,
        [ui for item in items if type(item) is dict and type(ui := item.get("uiValue")) is dict],
        _seconds(raw.responseTimeSec),
        raw.error,
    )


def _seconds(value: Any) -> float | None:
    """Seconds as a number; None for a string, a boolean, a negative, NaN or infinite value."""
    if type(value) is float:
        return value if 0 <= value < math.inf else None
    # A larger one may be beyond all floats.
    if type(value) is int and 0 <= value < 1 << 1000:
        return float(value)
    return None


def _decode_lenient(text: str) -> _RawAnswer | None:
    """Read JSON that the strict decoder refuses. Numbers beyond its range become floats."""
    try:
        raw = _lenient(text)
    except ValueError:
        return None
    if type(raw) is not dict:
        return None
    return _RawAnswer(*(raw.get(key) for key in _RawAnswer.__struct_fields__))


def _depth_of(text: str) -> int:
    """The depth of brackets outside strings; slow, only for JSON with very many of them."""
    return max(accumulate(_STEP[bracket] for bracket in _NO_BRACKETS.sub("", text)), default=0)


def plain_text(value: Any) -> str:
    """A JSON ``value`` as text that UTF-8 can carry: a string unchanged, other values as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def shortened(text: str, limit: int) -> str:
    """``text`` with its white space collapsed, cut to ``limit`` characters."""
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= limit else one_line[: limit - 1] + "…"


# Scores of a language model in the input, beside ours.

_PLAIN_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_SIZE = TOP_SCORE + 1


def _empty_square() -> list[int]:
    return [0] * _SIZE**2


class LlmScore(msgspec.Struct, frozen=True):
    """The LLM columns of a row; ``score`` is None if the text is no number from 0 to 5."""

    score: float | None
    state: str
    comment: str


class LlmAgreement(Merging, array_like=True):
    """Pairs of our score and the LLM's: counts that add up, and the whole-numbered pairs as a square, ours first.

    ``unreadable`` counts LLM scores that are no number from 0 to 5; they are in no pair.
    """

    pairs: int = 0
    exact: int = 0
    within_one: int = 0
    unreadable: int = 0
    distance: ExactSum = msgspec.field(default_factory=ExactSum)
    square: list[int] = msgspec.field(default_factory=_empty_square)

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, float | None]]) -> LlmAgreement:
        """The agreement of rows that have both scores; None is an unreadable one."""
        both = [(ours, llm) for ours, llm in pairs if llm is not None]
        distances = [abs(llm - ours) for ours, llm in both]
        square = _empty_square()
        for ours, llm in both:
            # Kappa needs categories: a 3.5 counts only in the mean difference.
            if llm.is_integer():
                square[ours * _SIZE + int(llm)] += 1
        return cls(
            pairs=len(both),
            exact=sum(distance == 0 for distance in distances),
            within_one=sum(distance <= 1 for distance in distances),
            unreadable=len(pairs) - len(both),
            distance=ExactSum.of(distances),
            square=square,
        )

    def merge(self, later: LlmAgreement) -> None:
        """Take in the pairs of other rows."""
        self.pairs += later.pairs
        self.exact += later.exact
        self.within_one += later.within_one
        self.unreadable += later.unreadable
        self.distance.merge(later.distance)
        self.square = [a + b for a, b in zip(self.square, later.square, strict=True)]

    def section(self) -> dict[str, Json]:
        """The report's ``llm``: shares of all pairs; kappa is over the ``kappa_pairs`` whole-numbered ones."""
        return {
            "pairs": self.pairs,
            "unreadable": self.unreadable,
            "exact": self.exact / self.pairs if self.pairs else None,
            "within_one": self.within_one / self.pairs if self.pairs else None,
            "mean_absolute_difference": self.distance.mean(self.pairs) if self.pairs else None,
            "weighted_kappa": weighted_kappa(self.square),
            "kappa_pairs": sum(self.square),
        }


def weighted_kappa(square: list[int]) -> float | None:
    """Cohen's kappa with quadratic weights of a square of counts (rows one rater, columns the other).

    1 - observed / expected disagreement, where a disagreement weighs the squared distance (Cohen 1968). None if no
    disagreement is expected by chance, as with no pairs or a single score on both sides.
    """
    rows = [sum(square[i * _SIZE : (i + 1) * _SIZE]) for i in range(_SIZE)]
    columns = [sum(square[j::_SIZE]) for j in range(_SIZE)]
    cells = [(i, j) for i in range(_SIZE) for j in range(_SIZE)]
    observed = sum((i - j) ** 2 * square[i * _SIZE + j] for i, j in cells)
    expected = sum((i - j) ** 2 * rows[i] * columns[j] for i, j in cells)
    # Integers up to this one division, so that the order of sums does not matter.
    return 1 - observed * sum(square) / expected if expected else None


def read_llm_score(score: str, state: str, comment: str) -> LlmScore | None:
    """The LLM columns of a row; None without a score."""
    text = score.strip()
    if not text:
        return None
    # float() would accept "nan", "1e0" and "1_0" as well.
    number = float(text) if _PLAIN_NUMBER.fullmatch(text) else -1.0
    return LlmScore(number if 0 <= number <= TOP_SCORE else None, state, comment)


def llm_accuracy(llm: LlmScore, rules: Rules) -> float | msgspec.UnsetType:
    """The LLM's score as the row's accuracy, if ``rules`` say so and it is a number; else UNSET."""
    if llm.score is None or rules.accuracy != "llm_when_present":
        return msgspec.UNSET
    return llm.score


class RecordLine(msgspec.Struct, gc=False):
    """One line of records.jsonl, keys in the specification's order.

    ``unread`` are conditions that no form reads. ``accuracy`` is the LLM's score of a scored row, if the rules take it
    for accuracy.
    """

    record: str
    id: str
    round: str
    status: str
    score: int | None
    checks: msgspec.Raw
    unread: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    seconds: float | None = None
    reason: str | msgspec.UnsetType = msgspec.UNSET
    llm_score: LlmScore | msgspec.UnsetType = msgspec.UNSET
    accuracy: float | msgspec.UnsetType = msgspec.UNSET
