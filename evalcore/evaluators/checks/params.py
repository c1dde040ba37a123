"""Params of checks: the cases with their checks, thresholds and diversity."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.model.canonical import canonical_json, digest

DEFAULT_KS = (1, 3, 5)
MOST_K = 1000
_LEAST_SHARE = 1e-15
"""No demand is for nothing: below this, floats say 0, of which there is no logarithm."""
NO_WEIGHT = "all checks have weight 0, so that no answer could fail: give one a weight above 0, or omit the case"
Share = Annotated[float, Field(ge=0, le=1)]
# Four digits at most: K is held to MOST_K behind it, and int() has no long text to read.
_RATE = re.compile(r"pass(?P<kind>[@^])(?P<k>[1-9]\d{0,3})")


class Threshold(Params):
    """The least that a case's pass rate, pass@k or pass^k has to be."""

    number: str
    # Not 0, which nothing falls short of: in a cases file it takes away what a layer below demands.
    least: Annotated[float, Field(gt=0, le=1)]

    @property
    def k(self) -> int:
        """Over how many answers it is taken; 1 for the pass rate."""
        match = _RATE.fullmatch(self.number)
        return int(match["k"]) if match else 1

    @property
    def share(self) -> float:
        """The chance of a pass that it comes to: all three rise with it."""
        match = _RATE.fullmatch(self.number)
        if match is None or self.k == 1:
            return self.least
        if match["kind"] == "@":
            # pass@k is 1 - (1 - p)^k for the chance p of one pass, pass^k is p^k.
            return max(_LEAST_SHARE, float(1.0 - (1.0 - self.least) ** (1.0 / self.k)))
        return float(self.least ** (1.0 / self.k))

    @model_validator(mode="after")
    def _known(self) -> Self:
        match = _RATE.fullmatch(self.number)
        if self.number != "pass-rate" and (match is None or int(match["k"]) > MOST_K):
            raise ValueError(f"{self.number!r} is none of pass-rate, pass@K, pass^K (K from 1 to {MOST_K})")
        return self


class Thresholds(Params):
    """``score``: the weighted mean of its checks at which an output passes; None: all its checks have to.

    ``rates``: what the case has to reach.
    """

    score: Share | None = None
    rates: tuple[Threshold, ...] = ()


class Diversity(Params):
    """By what the answers to a case are counted by kind (``by`` "none": they are not), and when they are collapsed:
    where one kind has more than ``collapse_share`` of them.

    By "near" those at least ``similarity`` alike are one kind, by "embedding" those whose vectors have a cosine of that
    at least; ``embedder`` is the target that gives them. ``judge``: a judge says of pairs of answers, too, whether both
    say the same, which is told beside the verdict.
    """

    by: Literal["text", "near", "embedding", "none"] = "text"
    collapse_share: Annotated[float, Field(gt=0, lt=1)] = 0.7
    similarity: Annotated[float, Field(gt=0, le=1)] = 0.8
    embedder: str = ""
    judge: bool = False

    @model_serializer(mode="wrap")
    def _told(self, tell: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Where nobody judges, params are what they were before anybody could: their digests and reports stay.
        return {name: value for name, value in tell(self).items() if name != "judge" or value}


class Case(Params):
    """A case, expanded: of its input only the digest is kept; ``checks`` are as a file spells them.

    ``diversity`` is its own, None where the run's is.
    """

    id: str = Field(min_length=1)
    input_sha256: str = ""
    checks: tuple[dict[str, Any], ...] = Field(min_length=1)
    tags: tuple[str, ...] = ()
    weight: Annotated[float, Field(ge=0, le=1e9)] = 1.0
    thresholds: Thresholds = Thresholds()
    diversity: Diversity | None = None

    @field_validator("checks")
    @classmethod
    def _decides(cls, checks: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        # Here as in the file: params come from Python and other tools, too.
        if weightless(checks):
            raise ValueError(NO_WEIGHT)
        return checks


def weightless(checks: Iterable[Mapping[str, Any]]) -> bool:
    """Whether none of them decides anything."""
    return all(check.get("weight", 1) == 0 for check in checks)


class Labels(Params):
    """The repeats of a case of which people said that they pass a check, and that they do not."""

    passed: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _one_verdict(self) -> Self:
        if both := set(self.passed) & set(self.failed):
            raise ValueError(f"repeat {min(both)} is said to pass and to fail")
        return self


class ChecksParams(Params):
    """Params of checks: ``request`` fills ``cases`` from the cases files.

    ``tag`` selects cases (empty: all); outputs of others are skipped. ``pass_rate`` is what a case has to reach that
    has no threshold of its own (0: nothing). ``ks`` are the k of pass@k and pass^k that are told. ``diversity`` is that
    of cases without one of their own. ``labels`` are what people said, by case and by name of check; thresholds of
    cases that fallible checks decide count where labels bear these out (`judge_trust`), or with ``judges_decide``.
    """

    cases: tuple[Case, ...] = ()
    tag: str = ""
    pass_rate: Share = 0.0
    ks: tuple[Annotated[int, Field(ge=1, le=MOST_K)], ...] = DEFAULT_KS
    # Off unless asked for: it keeps eight bytes an answer and takes time to normalise each (decision 25).
    diversity: Diversity = Diversity(by="none")
    # Evidence and no question: runs with other labels are comparable all the same (decision 23).
    labels: dict[str, dict[str, Labels]] = Field(default_factory=dict)
    judges_decide: bool = False

    @model_validator(mode="after")
    def _once(self) -> Self:
        seen: set[str] = set()
        for case in self.cases:
            if case.id in seen:
                raise ValueError(f"cases: {case.id} is given twice")
            seen.add(case.id)
        if list(self.ks) != sorted(set(self.ks)):
            raise ValueError("ks: must rise")
        return self

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all of it, made once, and only where others have the same hash."""
        return digest(canonical_json(self.model_dump(mode="json")))

    def __hash__(self) -> int:
        """Of what is cheap to look at: of a million cases the digest takes seconds."""
        ends = tuple(case.id for case in (*self.cases[:1], *self.cases[-1:]))
        return hash((len(self.cases), ends, self.tag, self.pass_rate, self.ks))

    def __eq__(self, other: object) -> bool:
        """By the digest."""
        return self is other or (isinstance(other, ChecksParams) and self.digest == other.digest)

    def selected(self) -> tuple[Case, ...]:
        """The cases that ``tag`` leaves, in the files' order."""
        return tuple(case for case in self.cases if not self.tag or self.tag in case.tags)


def thresholds_of(case: Case, params: ChecksParams) -> tuple[Threshold, ...]:
    """What a case has to reach: its own, else the run's."""
    if case.thresholds.rates or not params.pass_rate:
        return case.thresholds.rates
    return (Threshold(number="pass-rate", least=params.pass_rate),)


def diversity_of(case: Case, params: ChecksParams) -> Diversity | None:
    """By what its answers are counted by kind: its own, else the run's; None where they are not."""
    given = case.diversity or params.diversity
    return None if given.by == "none" else given
