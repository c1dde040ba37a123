"""The params of a verification score: pattern set, weights, limits and bands."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, field_serializer, field_validator, model_validator

from evalq.evalcore.contract.claims import Targets
from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.contract.params import by_name, merged, name_of
from evalq.evalcore.evaluators.verification.patterns import DEFAULT, PATTERN_SETS, Patterns

Share = Annotated[float, Field(ge=0, le=1)]
# In floats 0.4 + 0.3 + 0.2 + 0.1 is 0.9999999999999999.
_HAIR = 1e-9


class _Shares(Params):
    @model_validator(mode="after")
    def _whole(self) -> Self:
        total = sum(getattr(self, name) for name in type(self).model_fields)
        if abs(total - 1) > _HAIR:
            raise ValueError(f"the weights must add up to 1, not {total}")
        return self


class Weights(_Shares):
    """The weights of the four components in the score."""

    tool: Share = 0.4
    evidence: Share = 0.3
    tests: Share = 0.2
    gates: Share = 0.1


class ToolWeights(_Shares):
    """The weights in tool verification: reads for edits, health checks for deployments, and keywords."""

    reads: Share = 0.4
    health: Share = 0.3
    keywords: Share = 0.3


class ExecutionWeights(_Shares):
    """The weights in test execution: a test command and a test result."""

    command: Share = 0.5
    result: Share = 0.5


class Shortfalls(Params):
    """Limits of the components; the reason names a component below its limit."""

    tool: Share = 0.9
    evidence: Share = 0.9
    tests: Share = 0.9
    # Lower than the others (SPEC, section 5): two of three gates give .66, and are enough.
    gates: Share = 0.5


class Bands(Params):
    """The least scores of the bands; a score below all of them is "poor"."""

    perfect: Share = 0.85
    good: Share = 0.75
    moderate: Share = 0.65

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        # A band above a better one would never be reached, or hide it.
        if not self.perfect >= self.good >= self.moderate:
            raise ValueError("must not rise from perfect to good to moderate")
        return self


class Scoring(Params):
    """How matches become a score; ``keywords_needed`` distinct keywords give the full share for keywords."""

    weights: Weights = Weights()
    tool: ToolWeights = ToolWeights()
    tests: ExecutionWeights = ExecutionWeights()
    keywords_needed: int = Field(default=2, ge=1)
    shortfalls: Shortfalls = Shortfalls()
    bands: Bands = Bands()


class VerificationParams(Params):
    """``patterns`` is "default", "hardened", or the changes to the default set.

    ``strict`` puts the threshold at 1. The results of labelled records are compared with ``targets``.
    """

    threshold: Share = 0.9
    strict: bool = False
    patterns: Patterns = DEFAULT
    scoring: Scoring = Scoring()
    targets: Targets = Targets()

    @field_validator("patterns", mode="before")
    @classmethod
    def _pattern_set(cls, value: Any) -> Any:
        if isinstance(value, dict):
            value = merged(DEFAULT.model_dump(mode="json"), value)
        return by_name(value, PATTERN_SETS)

    @field_serializer("patterns")
    def _pattern_name(self, patterns: Patterns) -> Any:
        return self.pattern_set or patterns.model_dump(mode="json")

    @property
    def pattern_set(self) -> str | None:
        """The name of the pattern set, if it has one."""
        return name_of(self.patterns, PATTERN_SETS)

    @property
    def passing(self) -> float:
        """The score from which a text passes."""
        # A score can be exactly 1, since it is rounded before the comparison (DECIMALS in `score`).
        return 1.0 if self.strict else self.threshold
