"""A gate's policy: the demands that a candidate must keep, as in a policy file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import date
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.contract.measures import Measure

Tier = Literal["critical", "supporting", "advisory"]
"""critical blocks, supporting warns, advisory is shown."""

CHANGES = ("max_drop", "max_relative_drop", "max_rise", "max_relative_rise")
"""The keys of a policy that bound a change."""
_BOUNDS = ("min", "max", *CHANGES, "equals", "per_case")


def _finite(value: float) -> float:
    # Comparisons with NaN are always false, so it would decide a demand by the direction of the comparison.
    if not math.isfinite(value):
        raise PydanticCustomError("finite", "a finite number is needed")
    return value


def _no_bool(value: object) -> object:
    # YAML's true is 1 in Python, which as a drop is the whole scale: every run would pass.
    if isinstance(value, bool):
        raise PydanticCustomError("number", "a number is needed, not true or false")
    return value


_Number = Annotated[float, BeforeValidator(_no_bool), AfterValidator(_finite)]


def _above_zero(value: float) -> float:
    # GATE 6: no number of answers excludes every fall, so such a demand could never be GO.
    if value <= 0:
        raise PydanticCustomError(
            "margin",
            "a change of 0 can never be excluded by answers that chance moves: allow a small one, such as 0.02, or "
            "demand an exact value with `equals`",
        )
    return value


_Margin = Annotated[float, BeforeValidator(_no_bool), AfterValidator(_finite), AfterValidator(_above_zero)]
_Share = Annotated[float, Field(le=1), BeforeValidator(_no_bool), AfterValidator(_finite), AfterValidator(_above_zero)]
_Count = Annotated[int, BeforeValidator(_no_bool)]


def _day(value: str) -> str:
    try:
        # Normalise the form, since days are compared as texts: 20301231 is a day, too, and sorts after all of 2030.
        return date.fromisoformat(value).isoformat()
    except ValueError:
        raise PydanticCustomError("day", "a day is needed, such as 2030-12-31") from None


class PassK(Params):
    """The least chance over ``k`` further answers of a case."""

    k: _Count = Field(ge=1, le=1000)
    min: float = Field(gt=0, lt=1)


class CaseDemand(NamedTuple):
    """A demand on each case: an answer passes with a probability of at least ``share``.

    ``number`` is the policy's number, over ``k`` answers: fewer cannot decide it. ``demand`` says it in words.
    """

    number: Literal["passes", "pass@", "pass^"]
    k: int
    share: float
    demand: str


class PerCase(Params):
    """What every single case has to keep, as far as its answers prove it.

    ``min_passes`` passes ``of`` so many answers, as a share; ``pass_at_k`` that at least one of k answers passes, and
    ``pass_hat_k`` that all of k do (Yao et al. 2024), with a probability of ``min`` at least.
    """

    min_passes: Annotated[int, Field(ge=1), BeforeValidator(_no_bool)] | None = None
    of: Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(_no_bool)] | None = None
    pass_at_k: PassK | None = None
    pass_hat_k: PassK | None = None

    @model_validator(mode="after")
    def _possible(self) -> PerCase:
        if (self.min_passes is None) != (self.of is None):
            raise PydanticCustomError("share", "min_passes and of go together")
        if self.min_passes is not None and self.of is not None and self.min_passes > self.of:
            raise PydanticCustomError("share", "min_passes cannot be more than of")
        if not self.demands:
            raise PydanticCustomError("demand", "one of min_passes (with of), pass_at_k, pass_hat_k is needed")
        return self

    @property
    def demands(self) -> tuple[CaseDemand, ...]:
        """Each demand as the probability of a pass that it needs."""
        demands = []
        if self.min_passes is not None and self.of is not None:
            words = f"every case passes {self.min_passes} of {self.of}"
            demands.append(CaseDemand("passes", 1, self.min_passes / self.of, words))
        if (at := self.pass_at_k) is not None:
            # 1 - (1 - min) ** (1 / k), without cancellation for small values.
            share = -math.expm1(math.log1p(-at.min) / at.k)
            demands.append(CaseDemand("pass@", at.k, share, f"pass@{at.k} of every case at least {at.min:.4g}"))
        if (hat := self.pass_hat_k) is not None:
            share = math.exp(math.log(hat.min) / hat.k)
            demands.append(CaseDemand("pass^", hat.k, share, f"pass^{hat.k} of every case at least {hat.min:.4g}"))
        return tuple(demands)


_METRIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\[[^\[\]]*\])?\..+", re.DOTALL)


def _metric(value: str) -> str:
    if not _METRIC.fullmatch(value):
        raise PydanticCustomError(
            "metric",
            "name a run (or its evaluator), a dot, and a number of its results, such as checks.pass_rate",
        )
    return value


class Gate(Params):
    """One number and what it has to keep. ``metric`` is an evaluator's name or that of a suite's run, a dot, and the
    number's path in the results.

    ``min`` and ``max`` bound it. ``max_drop`` and ``max_relative_drop`` bound how far it may fall behind the baseline
    (for a measure of which less is better: rise above it), ``max_rise`` and ``max_relative_rise`` how far a number of
    which less is better may rise. ``equals`` names what it has to be.
    """

    metric: Annotated[str, AfterValidator(_metric)]
    min: _Number | None = None
    max: _Number | None = None
    max_drop: _Margin | None = None
    max_relative_drop: _Share | None = None
    max_rise: _Margin | None = None
    max_relative_rise: _Margin | None = None
    equals: _Number | bool | str | None = None
    per_case: PerCase | None = None
    tier: Tier = "critical"

    @model_validator(mode="after")
    def _says_something(self) -> Gate:
        if all(getattr(self, name) is None for name in _BOUNDS):
            raise PydanticCustomError("bound", f"one of {', '.join(_BOUNDS)} is needed")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise PydanticCustomError("bounds", "min is over max, so no run could pass: exchange them")
        return self

    @property
    def run(self) -> str:
        """The run with the number: its name in the suite, or its evaluator's."""
        return self.metric[: self._end]

    @property
    def path(self) -> str:
        """The number's path in that run's results."""
        return self.metric[self._end + 1 :]

    def measure_in(self, measures: Iterable[Measure]) -> Measure | None:
        """The measure in a run's ``measures`` that it bounds; None for another number of the results."""
        return next((each for each in measures if each.name == self.path), None)

    @property
    def _end(self) -> int:
        # Values of a matrix may contain points: support[temperature=0.2].pass_rate
        first = self.metric.find(".")
        return self.metric.find(".", self.metric.find("]")) if "[" in self.metric[:first] else first

    @property
    def compares(self) -> bool:
        """Whether it needs a baseline."""
        return any(getattr(self, name) is not None for name in CHANGES)

    @property
    def about_mean(self) -> bool:
        """Whether it has a demand on a measure's mean over cases, not only on single cases."""
        return self.compares or any(each is not None for each in (self.min, self.max, self.equals))


class Quarantine(Params):
    """A flaky case that no demand on single cases is to fail on, for a ``reason`` and ``until`` a day, that included.

    It holds only while the case's history proves it flaky. ``run`` is needed where runs share its name.
    """

    case: str = Field(min_length=1)
    reason: str = Field(min_length=1)
    run: str = ""
    until: Annotated[str, AfterValidator(_day)] = ""


class Policy(Params):
    """All gates of a policy file, and what holds for each run that they are about.

    With fewer than ``minimum_pairs`` cases that both runs answered, or fewer than ``minimum_repeats`` answers of a
    case, a demand is not GO. ``missing`` is how many answers the candidate may lack that the baseline has; without it,
    chance decides whether they are too many. ``collapse`` "none" allows no collapsed case, and "none-new" none that the
    baseline does not have. Where fewer than 90 % of the baseline's cases are equal in the candidate nothing is decided,
    unless ``specification`` says "intersection": then the equal ones count. ``quarantine`` names flaky cases.

    ``worse_cases`` "none" makes a case that fell beyond chance SUSPECT. ``on_worse`` "block" makes NO-GO of what is
    SUSPECT. ``as_recorded`` holds each case to its recorded answers, without any statistics. ``deterministic`` says
    that equal answers are no copies, ``uneven_repeats`` that cases of recorded outputs differ in their repeats on
    purpose.

    What rests on the verdicts of judges is advisory as long as people have labelled fewer than ``minimum_labels`` of
    those of each such check, or the judge may err in more than ``judge_error`` of either verdict (``judges``
    "labelled"), or always ("advisory"); with "decide" it counts as anything else. ``labels`` says whether labelled
    answers were drawn at random, or so many by each verdict of the judge. Labels older than ``labels_days`` days get a
    warning.
    """

    gates: tuple[Gate, ...] = Field(min_length=1)
    minimum_pairs: _Count = Field(default=10, ge=1)
    minimum_repeats: _Count = Field(default=1, ge=1)
    missing: Annotated[int, Field(ge=0), BeforeValidator(_no_bool)] | None = None
    collapse: Literal["allowed", "none", "none-new"] = "allowed"
    specification: Literal["same", "intersection"] = "same"
    quarantine: tuple[Quarantine, ...] = ()
    judges: Literal["labelled", "decide", "advisory"] = "labelled"
    minimum_labels: _Count = Field(default=20, ge=1)
    labels: Literal["random", "by_verdict"] = "random"
    judge_error: Annotated[float, Field(gt=0, lt=1), BeforeValidator(_no_bool)] = 0.2
    labels_days: _Count = Field(default=90, ge=1)
    worse_cases: Literal["none", "allowed"] = "none"
    on_worse: Literal["inconclusive", "block"] = "inconclusive"
    as_recorded: bool = False
    deterministic: bool = False
    uneven_repeats: bool = False

    @property
    def by_case(self) -> bool:
        """Whether it has a demand on single cases, so that their history matters."""
        return bool(self.quarantine) or any(gate.per_case is not None for gate in self.gates)

    @model_validator(mode="after")
    def _once_each(self) -> Policy:
        named = [(each.run, each.case) for each in self.quarantine]
        if twice := next((case for at, (run, case) in enumerate(named) if (run, case) in named[:at]), None):
            raise PydanticCustomError("twice", "quarantine names {case} twice", {"case": twice})
        return self
