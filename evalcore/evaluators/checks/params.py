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
"""Below this, a float would become 0, which has no logarithm."""
NO_WEIGHT = "all checks have weight 0, so that no answer could fail: give one a weight above 0, or omit the case"
Share = Annotated[float, Field(ge=0, le=1)]
# Four digits at most, so that int() reads no long text; MOST_K limits K below.
_RATE = re.compile(r"pass(?P<kind>[@^])(?P<k>[1-9]\d{0,3})")


class Threshold(Params):
    """The lowest pass rate, pass@k or pass^k that a case must reach."""

    number: str
    # Not 0, which every case reaches: in a cases file, it lifts the threshold of a layer below.
    least: Annotated[float, Field(gt=0, le=1)]

    @property
    def k(self) -> int:
        """The number of answers; 1 for the pass rate."""
        match = _RATE.fullmatch(self.number)
        return int(match["k"]) if match else 1

    @property
    def share(self) -> float:
        """The threshold as a chance of one pass: all three rates rise with it."""
        match = _RATE.fullmatch(self.number)
        if match is None or self.k == 1:
            return self.least
        if match["kind"] == "@":
            # pass@k is 1 - (1 - p)^k for the chance p of one pass, pass^k is p^k.
            return max(_LEAST_SHARE, float(1.0 - (1.0 - self.least) ** (1.0 / self.k)))
        return float(self.least ** (1.0 / self.k))

    @model_validator(mode="after")
    def _check_number(self) -> Self:
        match = _RATE.fullmatch(self.number)
        if self.number != "pass-rate" and (match is None or int(match["k"]) > MOST_K):
            raise ValueError(f"{self.number!r} is none of pass-rate, pass@K, pass^K (K from 1 to {MOST_K})")
        return self


class Thresholds(Params):
    """``score`` is the weighted mean of checks at which an output passes; if None, all checks must pass.

    ``rates`` are what the case must reach.
    """

    score: Share | None = None
    rates: tuple[Threshold, ...] = ()


class Diversity(Params):
    """How to count the answers to a case by kind. They are collapsed if one kind has more than ``collapse_share``.

    By "near", answers with at least this ``similarity`` are one kind; by "embedding", those whose vectors have at least
    this cosine, from the target ``embedder``; by "none", they are not counted. ``judge``: a judge also says of pairs of
    answers whether both say the same, which the report shows next to the verdict.
    """

    by: Literal["text", "near", "embedding", "none"] = "text"
    collapse_share: Annotated[float, Field(gt=0, lt=1)] = 0.7
    similarity: Annotated[float, Field(gt=0, le=1)] = 0.8
    embedder: str = ""
    judge: bool = False

    @model_serializer(mode="wrap")
    def _serialize(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Without a judge the key is left out, so that digests and reports stay as before there were judges.
        return {name: value for name, value in dump(self).items() if name != "judge" or value}


class Case(Params):
    """An expanded case, with the digest of its input, and ``checks`` as in a file.

    ``diversity`` is None if that of the run applies. Cases of one ``cluster``, such as traces of one session, are not
    independent, and count as one in intervals.
    """

    id: str = Field(min_length=1)
    input_sha256: str = ""
    checks: tuple[dict[str, Any], ...] = Field(min_length=1)
    tags: tuple[str, ...] = ()
    weight: Annotated[float, Field(ge=0, le=1e9)] = 1.0
    thresholds: Thresholds = Thresholds()
    diversity: Diversity | None = None
    cluster: str = ""

    @model_serializer(mode="wrap")
    def _serialize(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Without a cluster the key is left out, so that digests and reports stay as before there were any.
        return {name: value for name, value in dump(self).items() if name != "cluster" or value}

    @field_validator("checks")
    @classmethod
    def _check_weights(cls, checks: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        # Validated here, too, since params also come from Python and other tools.
        if weightless(checks):
            raise ValueError(NO_WEIGHT)
        return checks


def weightless(checks: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all checks have weight 0."""
    return all(check.get("weight", 1) == 0 for check in checks)


class Labels(Params):
    """The repeats of a case that people labelled as passing or failing a check."""

    passed: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _check_repeats(self) -> Self:
        if both := set(self.passed) & set(self.failed):
            raise ValueError(f"repeat {min(both)} is labelled both as passed and as failed")
        return self


class ChecksParams(Params):
    """Params of checks: ``request`` fills ``cases`` from the cases files.

    ``tag`` selects cases (empty: all); outputs of others are skipped. ``pass_rate`` is the threshold of cases without
    one (0: none). ``ks`` are the k of pass@k and pass^k in the report. ``diversity`` is for cases without their own.
    ``labels`` are people's, by case and name of check. Thresholds of cases that fallible checks decide count if enough
    labels confirm these checks (`labels.trusted_checks`), or with ``judges_decide``.
    """

    cases: tuple[Case, ...] = ()
    tag: str = ""
    pass_rate: Share = 0.0
    ks: tuple[Annotated[int, Field(ge=1, le=MOST_K)], ...] = DEFAULT_KS
    # Off by default: it keeps eight bytes for each answer and takes time to normalise it (decision 25).
    diversity: Diversity = Diversity(by="none")
    # Labels are evidence: runs with different labels stay comparable (decision 23).
    labels: dict[str, dict[str, Labels]] = Field(default_factory=dict)
    judges_decide: bool = False

    @model_validator(mode="after")
    def _check_unique(self) -> Self:
        seen: set[str] = set()
        for case in self.cases:
            if case.id in seen:
                raise ValueError(f"cases: {case.id} occurs twice")
            seen.add(case.id)
        if list(self.ks) != sorted(set(self.ks)):
            raise ValueError("ks: must be in rising order")
        return self

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all params, computed once, and only if the hashes are equal."""
        return digest(canonical_json(self.model_dump(mode="json")))

    def __hash__(self) -> int:
        """A cheap hash, since the digest of a million cases takes seconds."""
        ends = tuple(case.id for case in (*self.cases[:1], *self.cases[-1:]))
        return hash((len(self.cases), ends, self.tag, self.pass_rate, self.ks))

    def __eq__(self, other: object) -> bool:
        """By the digest."""
        return self is other or (isinstance(other, ChecksParams) and self.digest == other.digest)

    def selected(self) -> tuple[Case, ...]:
        """The cases with ``tag``, in the order of the files."""
        return tuple(filter(self.selects, self.cases))

    def selects(self, case: Case) -> bool:
        """Whether a case has ``tag``."""
        return not self.tag or self.tag in case.tags


def thresholds_of(case: Case, params: ChecksParams) -> tuple[Threshold, ...]:
    """The thresholds of a case, or else the run's."""
    if case.thresholds.rates or not params.pass_rate:
        return case.thresholds.rates
    return (Threshold(number="pass-rate", least=params.pass_rate),)


def diversity_of(case: Case, params: ChecksParams) -> Diversity | None:
    """How to count the answers of a case by kind: its own setting, or else the run's; None for "none"."""
    diversity = case.diversity or params.diversity
    return None if diversity.by == "none" else diversity
