"""The rules that turn one row into a score: what forces a zero, what speed earns, how an error is grouped."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import Any

from evalq.evalcore.evaluators.planagent.answer import Answer, plain_text, shortened
from evalq.evalcore.evaluators.planagent.params import Mask, PlanParams, SpeedBand
from evalq.evalcore.statistics.exact import is_below
from evalq.evalcore.words import compiled

__all__ = ["EMPTY", "ERROR", "UNPARSABLE", "ErrorTexts", "SpeedScale", "is_error"]

ERROR, UNPARSABLE, EMPTY = "error", "unparsable", "empty"
"""Why a row is 0 without its checks being judged."""

MAX_TEXT = 600
MAX_PATTERN = 160


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

    def find(self, column: str, answer: Answer | None) -> str | None:
        """The text of the column's error, else of the answer's, cut to MAX_TEXT; None where there is none."""
        # The column first: it is there also where no answer can be read.
        if column and (text := shortened(column, MAX_TEXT)) and text.casefold() not in self._no_error:
            return text
        error = None if answer is None else answer.error
        if error is None or error == "" or not is_error(error):
            return None
        return shortened(plain_text(error), MAX_TEXT)

    def _pattern(self, text: str) -> str:
        """``text`` with what varies from row to row masked."""
        for mask, replacement in self._masks:
            # The user's replacement is plain text: a backslash in it must not refer to a group.
            text = mask.sub(replacement.replace("\\", "\\\\"), text)
        return shortened(text, MAX_PATTERN)


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
