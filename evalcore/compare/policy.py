"""A gate's policy: what a candidate has to keep, as its author writes it."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from evalq.evalcore.contract.answers import Params

__all__ = ["Gate", "PerCase", "Policy", "Tier"]

Tier = Literal["critical", "supporting", "advisory"]
"""critical blocks, supporting warns, advisory is shown."""

_BOUNDS = ("min", "max", "max_drop", "max_relative_drop", "equals", "per_case")


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise PydanticCustomError("finite", "a finite number is needed")
    return value


_Number = Annotated[float, AfterValidator(_finite)]
_Share = Annotated[float, Field(ge=0, le=1)]


class PerCase(Params):
    """What every single case has to keep: so many passes ``of`` so many answers, as a share that its answers prove."""

    min_passes: int = Field(ge=1)
    of: int = Field(ge=1)

    @model_validator(mode="after")
    def _possible(self) -> PerCase:
        if self.min_passes > self.of:
            raise PydanticCustomError("share", "min_passes cannot be more than of")
        return self

    @property
    def share(self) -> float:
        """Of a case's answers, those that pass."""
        return self.min_passes / self.of


class Gate(Params):
    """One number and what it has to keep. ``metric`` is an evaluator's name or that of a suite's run, a dot, and the
    number's path in the results.

    ``min`` and ``max`` bound it, ``max_drop`` and ``max_relative_drop`` how far it may fall behind the baseline (for a
    number of which less is better: rise above it), ``equals`` names what it has to be.
    """

    metric: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*\..+$")
    min: _Number | None = None
    max: _Number | None = None
    max_drop: Annotated[_Number, Field(ge=0)] | None = None
    max_relative_drop: _Share | None = None
    equals: _Number | bool | str | None = None
    per_case: PerCase | None = None
    tier: Tier = "critical"

    @model_validator(mode="after")
    def _says_something(self) -> Gate:
        if all(getattr(self, name) is None for name in _BOUNDS):
            raise PydanticCustomError("bound", f"one of {', '.join(_BOUNDS)} is needed")
        return self

    @property
    def run(self) -> str:
        """Whose number it is: a name in the suite, or an evaluator's."""
        return self.metric.partition(".")[0]

    @property
    def path(self) -> str:
        """Of the number, in that run's results."""
        return self.metric.partition(".")[2]

    @property
    def compares(self) -> bool:
        """Whether it needs a baseline."""
        return self.max_drop is not None or self.max_relative_drop is not None


class Policy(Params):
    """All gates of a policy file, and what holds for each run that they are about.

    With fewer than ``minimum_pairs`` cases that both runs answered, nothing is decided for the better. ``missing`` is
    how many answers the candidate may lack that the baseline has. ``collapse`` "none" allows no collapsed case, and
    "none-new" none that the baseline does not have. Another golden set than the baseline's (or other parameters) is no
    ground for a decision, unless ``specification`` says "intersection": then the cases of both count.
    """

    gates: tuple[Gate, ...] = Field(min_length=1)
    minimum_pairs: int = Field(default=10, ge=1)
    missing: int = Field(default=0, ge=0)
    collapse: Literal["allowed", "none", "none-new"] = "allowed"
    specification: Literal["same", "intersection"] = "same"
