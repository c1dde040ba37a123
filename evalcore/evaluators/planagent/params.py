"""What changes a plan agent's scores: bands, patterns, readings and limits, with the specification's defaults."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.evaluators.planagent.spelling import CONNECTOR, FORMS, NUMBERING, PARTS, Kind, joined
from evalq.evalcore.words import compiled

__all__ = [
    "KINDS",
    "TOP_SCORE",
    "Diagnostic",
    "Form",
    "Kind",
    "Mask",
    "Part",
    "PlanParams",
    "RatioBand",
    "Rules",
    "SpeedBand",
]

KINDS: tuple[Kind, ...] = ("message", "formType", "multiSelectAllowYn", "actionType", "dataKey", "buttonKey")
TOP_SCORE = 5
"""Scores and points run from 0 to this."""

Points = Field(ge=0, le=TOP_SCORE)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return compiled(pattern)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None


class Rules(Params):
    """Which of two readings the printed table takes; the report's JSON holds both in any case."""

    speed: Literal["band_of_mean", "mean_of_points"] = "band_of_mean"
    stability: Literal["score_zero", "error_or_empty"] = "score_zero"
    accuracy: Literal["heuristic", "llm_when_present"] = "heuristic"


class Part(Params):
    """A piece of other patterns, which name it: ``(?&name)``."""

    name: str
    pattern: str


class Form(Params):
    """How a check of one kind is written: ``pattern`` is what follows the number, its group "want" the value."""

    kind: Kind
    pattern: str


class RatioBand(Params):
    """``points`` for a pass ratio of at least ``over``/``under``, compared in integers."""

    over: int = Field(ge=0)
    under: int = Field(ge=1)
    points: int = Points


class SpeedBand(Params):
    """``points`` for up to ``seconds``, inclusive."""

    seconds: float = Field(ge=0, allow_inf_nan=False)
    points: int = Points


class Mask(Params):
    """What varies within one pattern of error text: matches of ``pattern`` are replaced before counting."""

    pattern: str
    replacement: str

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        return _compiled(pattern).pattern


class Diagnostic(Params):
    """A kind of check is suspect when it passes in a smaller share than ``share`` of ``checks`` or more."""

    share: float = Field(default=0.01, ge=0, le=1)
    checks: int = Field(default=20, ge=1)

    def suspects(self, passed: int, judged: int) -> bool:
        """Whether ``passed`` of ``judged`` is too few, computed without rounding."""
        # By its decimals: the double 0.01 is a little more than 1/100, and would make 1 of 100 too few.
        return judged >= self.checks and passed < Fraction(str(self.share)) * judged


class PlanParams(Params):
    """The specification's section 4 as data."""

    rules: Rules = Rules()
    parts: tuple[Part, ...] = tuple(Part(name=name, pattern=pattern) for name, pattern in PARTS)
    numbering: str = NUMBERING
    """What may stand before a condition; a line in which it matches something is a condition, read or not."""
    # In the real file 50 of 54 keywords that end in a vowel have 과 all the same: particles decide nothing.
    forms: tuple[Form, ...] = tuple(Form(kind=kind, pattern=pattern) for kind, pattern in FORMS)
    connector: str = CONNECTOR
    ratio_bands: tuple[RatioBand, ...] = (
        RatioBand(over=1, under=1, points=5),
        RatioBand(over=3, under=4, points=4),
        RatioBand(over=1, under=2, points=3),
        RatioBand(over=1, under=4, points=2),
    )
    # The seed's bands begin at 0.01, where its prompt says above 0: 1 of 101 checks earns the point, too.
    any_pass_points: int = Field(default=1, ge=0, le=TOP_SCORE)
    # Each limit belongs to the better band: the seed writes "<=5" and then "5~8".
    speed_bands: tuple[SpeedBand, ...] = (
        SpeedBand(seconds=5, points=5),
        SpeedBand(seconds=8, points=4),
        SpeedBand(seconds=10, points=3),
        SpeedBand(seconds=15, points=2),
        SpeedBand(seconds=20, points=1),
    )
    pass_mark: int = Field(default=3, ge=0, le=TOP_SCORE)
    """Consistency: a score from here on is a pass."""
    # SPEC, section 4: JSON's null, false and empty containers, as text. 0 is an error, here as in JSON.
    no_error: tuple[str, ...] = ("null", "false", "[]", "{}")
    """Texts of the column `오류` that say there is none (any case), besides white space."""
    error_masks: tuple[Mask, ...] = (
        # Ids before numbers, which would tear them apart.
        Mask(pattern=r"[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|\b[0-9a-fA-F]{16,}\b", replacement="<id>"),
        Mask(pattern=r"\d+", replacement="<n>"),
    )
    diagnostic: Diagnostic = Diagnostic()
    low_score: int = Field(default=2, ge=0, le=TOP_SCORE)
    """Rows of this score or less are searched for patterns."""
    # The seed's checklist names these two ("특히 2~3점"); rows of 0 and 1 stand in the distribution alone.
    slow_points: tuple[int, ...] = (2, 3)
    """Rows of these speed points are searched for patterns."""
    stability_warning: float = Field(default=0.01, ge=0, le=1)
    """From this share of stability failures on, the operating checklist warns."""
    top: int = Field(default=10, ge=1)
    """How many patterns of a kind are shown; the rest is counted as other."""

    @model_validator(mode="after")
    def _patterns_compile(self) -> Self:
        for name in ("numbering", "connector"):
            try:
                _compiled(self.joined(getattr(self, name)))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        for at, form in enumerate(self.forms):
            try:
                if "want" not in _compiled(self.joined(form.pattern)).groupindex:
                    raise ValueError("the pattern must have a group named 'want'")
            except ValueError as error:
                raise ValueError(f"forms[{at}].pattern: {error}") from None
        return self

    def joined(self, pattern: str) -> str:
        """``pattern`` with its parts written out. Raises ValueError."""
        return joined(pattern, {part.name: part.pattern for part in self.parts})

    @model_validator(mode="after")
    def _bands_in_order(self) -> Self:
        ratios = [Fraction(band.over, band.under) for band in self.ratio_bands]
        seconds = [band.seconds for band in self.speed_bands]
        if ratios != sorted(ratios, reverse=True):
            raise ValueError("ratio_bands must fall: the highest ratio first")
        if seconds != sorted(seconds):
            raise ValueError("speed_bands must rise: the fewest seconds first")
        return self
