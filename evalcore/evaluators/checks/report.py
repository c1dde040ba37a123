"""The report of checks: pass rates by case, tag and check, and whether cases reach their thresholds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from evalq.evalcore.contract.evaluator import InputResult
from evalq.evalcore.contract.repeats import stopping_section
from evalq.evalcore.evaluators.checks.check import compiled
from evalq.evalcore.evaluators.checks.diversity.kinds import KindCounts
from evalq.evalcore.evaluators.checks.diversity.report import diversity_section
from evalq.evalcore.evaluators.checks.labels import labels_section, on_trust, trusted_checks
from evalq.evalcore.evaluators.checks.params import Case, ChecksParams, Threshold, thresholds_of
from evalq.evalcore.evaluators.checks.state import BILLION, CaseCounts, ChecksState
from evalq.evalcore.model.calls import WHEN_DECIDED
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.distributions import at_least, at_most
from evalq.evalcore.statistics.mode_share import rejected
from evalq.evalcore.statistics.quantiles import RELATIVE_ERROR, Quantiles
from evalq.evalcore.statistics.rates import ALPHA, Rate, clustered, exact_interval, pass_at_k, pass_hat_k
from evalq.evalcore.statistics.sequences import MOST_LOOKS, log_e_above, log_e_below, rate_limits, rate_sequence

Verdict = Literal["holds", "fails", "inconclusive", "no_data"]
_NAMED = 100
_SMALLEST = ALPHA * 2.0**-14
"""P-values of cases that could stop are resolved down to this."""


class Demand(msgspec.Struct, frozen=True):
    """One threshold of one case, and the answers that there are: ``planned`` at most, where it could stop; else 0.

    ``advisory``: fallible checks decide the case, and nobody has labelled enough of their verdicts.
    """

    case: str
    threshold: Threshold
    passed: int
    answers: int
    planned: int = 0
    advisory: bool = False

    @property
    def verdict(self) -> Verdict:
        """By the case alone, each side wrong with probability ALPHA at most."""
        if not self.answers:
            return "no_data"
        if self.p_holds <= ALPHA:
            return "holds"
        return "fails" if self.p_fails <= ALPHA else "inconclusive"

    @property
    def p_holds(self) -> float:
        """How surprising so many passes are if their chance is no more than wanted."""
        share = self.threshold.share
        # However many passed, the next one may fail: that every answer would pass is never shown.
        if share >= 1.0:
            return 1.0
        if self.planned:
            return _level(self.passed, self.answers, share, self.planned, above=True)
        return at_least(self.passed, self.answers, share)

    @property
    def p_fails(self) -> float:
        """How surprising so few are if it is no less."""
        share = self.threshold.share
        if share >= 1.0:
            return float(self.passed == self.answers)  # a single failure is one too many
        if self.planned:
            return _level(self.passed, self.answers, share, self.planned, above=False)
        return at_most(self.passed, self.answers, share)

    def told(self) -> dict[str, Json]:
        """The demand as the report has it."""
        told: dict[str, Json] = {"number": self.threshold.number, "least": self.threshold.least}
        return {**told, "verdict": self.verdict, **({"advisory": True} if self.advisory else {})}


def _decide(demands: Sequence[Demand]) -> dict[str, Json]:
    """All together: they hold where each does; they fail where some does by Holm's procedure (1979) over all of them.

    So each is said wrongly with probability ALPHA at most, whatever the number of thresholds. Advisory ones are
    counted, and decide nothing.
    """
    deciding = [demand for demand in demands if not demand.advisory]
    verdicts = Counter(demand.verdict for demand in deciding)
    failed = _failed(deciding)
    whole: str = "advisory" if demands else "none"
    if deciding:
        whole = "fails" if failed else "holds" if verdicts["holds"] == len(deciding) else "inconclusive"
    return {
        "verdict": whole,
        "alpha": ALPHA,
        "correction": "holm",
        "total": len(deciding),
        **{name: verdicts[name] for name in ("holds", "fails", "inconclusive", "no_data")},
        "advisory": len(demands) - len(deciding),
        "failed": failed[:_NAMED],
    }


def _failed(demands: Sequence[Demand]) -> list[str]:
    """The cases that fail with all of them tested together, in the order of how surely they do."""
    # A case without answers has no p-value, and must not make it harder for the others to be seen to fail.
    known = sorted((demand.p_fails, demand.case) for demand in demands if demand.answers)
    # A case that falls short of several thresholds is named once.
    return list(dict.fromkeys(case for _, case in known[: rejected([p for p, _ in known], ALPHA)]))


@lru_cache(maxsize=65536)
def _level(m: int, n: int, share: float, of: int, *, above: bool) -> float:
    """A p-value that holds however often one has looked: the least of ALPHA, ALPHA/2, ... at which ``m`` of ``n`` is
    beyond the limits for ``of`` runs at most; 1 where it is not beyond those of ALPHA.

    Where more runs came than were planned, or the cap is none, that of the confidence sequence.
    """
    if not n <= of <= MOST_LOOKS:
        log_e = (log_e_above if above else log_e_below)(m, n, share)
        ahead = m > share * n if above else m < share * n
        return min(1.0, math.exp(-max(0.0, log_e))) if ahead else 1.0

    def beyond(alpha: float) -> bool:
        limits = rate_limits(share, of, alpha)
        return m >= limits.above[n] if above else m <= limits.below[n]

    level = ALPHA
    if not beyond(level):
        return 1.0
    # By halves: limits are worked out anew for each level, in time with the square of the cap.
    while level > _SMALLEST and beyond(level / 2):
        level /= 2
    return level


# The report of checks: pass rates with intervals, by case, by tag and by check, thresholds, and what outputs took.

_FAILURES = 100
_SETTLED = frozenset(("holds", "fails", "collapsed", "diverse"))
_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99))

Counted = tuple[Case, CaseCounts]


def checks_section(results: Sequence[InputResult[ChecksState]], params: ChecksParams) -> dict[str, Json]:
    """``results`` of report.json; several inputs count as one, a repeat in two of them as two outputs."""
    state = _together([result.state for result in results])
    places = {case.id: index for index, case in enumerate(params.cases)}
    # By place among all of the params' cases: the tag selects some, and must shift none.
    cases = [(case, state.cases.get(places[case.id], CaseCounts())) for case in params.selected()]
    passed = sum(counted.passed for _, counted in cases)
    failed = sum(counted.failed for _, counted in cases)
    # From the tally and not the cases: a line of no known case is an error of none of them.
    errors = sum(result.tally.errors for result in results)
    entries, demands = _entries(cases, params)
    drawn = [(case, state.drawn.get(places[case.id], KindCounts()), counted.planned) for case, counted in cases]
    diversity = diversity_section(drawn, params)
    kinds = {entry["case"]: entry["verdict"] for entry in diversity["diversity"]["by_case"]} if diversity else {}
    return {
        "outputs": {
            "total": passed + failed + errors,
            "passed": passed,
            "failed": failed,
            "errors": errors,
        },
        "cases": {
            "total": len(cases),
            # Apart from each other: a case that only failed to get a verdict was recorded, though nothing answers it.
            "answered": sum(bool(counted.answers) for _, counted in cases),
            "unrecorded": sum(not counted.runs for _, counted in cases),
        },
        **_rates(cases),
        "pass_at": [_over_cases(cases, k, hat=False) for k in params.ks],
        "pass_hat": [_over_cases(cases, k, hat=True) for k in params.ks],
        "thresholds": _decide(demands),
        "by_tag": list(_by_tag(cases)),
        "by_check": list(_by_check(cases)),
        "latency_seconds": _spread(state.latency),
        "cost": _spread(state.cost),
        "tokens": _spread(state.tokens),
        "by_case": entries,
        "failures": list(_failures(results)),
        **labels_section(cases, state, params),
        **_judges(state),
        **diversity,
        **_stopping(cases, entries, kinds),
    }


def _judges(state: ChecksState) -> dict[str, Json]:
    """Who judged, by which words, and what that took; nothing where nobody did."""
    told: list[Json] = [
        {
            "judge": name,
            "configs": tally.configs,
            "prompts": tally.templates,
            "votes": {
                "asked": tally.asked,
                "read": tally.asked - tally.failed - tally.unreadable,
                "unreadable": tally.unreadable,
                "failed": tally.failed,
                "lost": tally.failed + tally.unreadable,
            },
            "latency_seconds": _spread(tally.latency),
            "cost": _spread(tally.cost),
            "tokens": _spread(tally.tokens),
        }
        for name, tally in state.judges.items()
    ]
    return {"judges": told} if told else {}


def _together(states: Sequence[ChecksState]) -> ChecksState:
    if len(states) == 1:
        return states[0]
    whole = ChecksState.zero()
    for state in states:
        whole.merge(ChecksState.from_wire(state.to_wire()))  # a copy: merging takes the parts of what it merges
    return whole


def _rate_of(case: Case, counted: CaseCounts) -> Rate | None:
    if not counted.answers:
        return None
    return Rate(counted.passed / counted.answers, counted.answers, case.weight)


def _rates(cases: Sequence[Counted]) -> dict[str, Json]:
    """The pass rate over cases by their weights, with its interval, and the mean score."""
    known = [rate for case, counted in cases if (rate := _rate_of(case, counted)) is not None]
    scores = [
        Rate(counted.score / BILLION / counted.answers, counted.answers, case.weight)
        for case, counted in cases
        if counted.answers
    ]
    return {"pass_rate": _mean(known), "pass_rate_interval": _bounds(known), "score": _mean(scores)}


def _mean(rates: Sequence[Rate]) -> float | None:
    """By weight; summed exactly, since the last digit must not depend on the order of the cases."""
    whole = math.fsum(rate.weight for rate in rates)
    return math.fsum(rate.weight * rate.value for rate in rates) / whole if whole else None


def _bounds(rates: Sequence[Rate]) -> dict[str, float | None]:
    found = clustered(rates)
    return {"low": found.low if found else None, "high": found.high if found else None}


def _over_cases(cases: Sequence[Counted], k: int, *, hat: bool) -> dict[str, Json]:
    """The mean of a case's estimate over those with k answers at least, and where it lies."""
    estimate = pass_hat_k if hat else pass_at_k
    enough = [(case, counted) for case, counted in cases if counted.answers >= k]
    known = [
        # Each estimate is over k answers, so that there are no more of them than groups of k.
        Rate(estimate(counted.passed, counted.answers, k) or 0.0, counted.answers // k, case.weight)
        for case, counted in enough
    ]
    bounds = _bounds(known)
    if len(known) == 1:
        # A single case stands for itself: its exact bounds, carried over to k answers.
        low, high = exact_interval(enough[0][1].passed, enough[0][1].answers)
        bounds = {"low": _over_k(low, k, hat=hat), "high": _over_k(high, k, hat=hat)}
    return {"k": k, "value": _mean(known), **bounds, "cases": len(known)}


def _over_k(rate: float, k: int, *, hat: bool) -> float:
    return float(rate**k) if hat else float(1.0 - (1.0 - rate) ** k)


def _entries(cases: Sequence[Counted], params: ChecksParams) -> tuple[list[Json], list[Demand]]:
    trusted = trusted_checks(cases, params)
    entries: list[Json] = []
    demands: list[Demand] = []
    for case, counted in cases:
        advisory = on_trust(case, trusted, params)
        own = [
            Demand(case.id, each, counted.passed, counted.answers, counted.planned, advisory)
            for each in thresholds_of(case, params)
        ]
        demands += own
        entries.append(_entry(case, counted, own, params))
    return entries, demands


def _entry(case: Case, counted: CaseCounts, demands: Sequence[Demand], params: ChecksParams) -> dict[str, Json]:
    n, m = counted.answers, counted.passed
    bounds = _bounds_of(counted)
    low, high = bounds if n else (None, None)
    # Told where it could stop, also if it did not: its interval is another one for that.
    stop = {"stop": {"rule": WHEN_DECIDED, "of": counted.planned}}
    return {
        "case": case.id,
        "tags": list(case.tags),
        "weight": case.weight,
        "outputs": {"passed": m, "failed": counted.failed, "errors": counted.errors},
        "pass_rate": {"value": m / n if n else None, "low": low, "high": high},
        "score": counted.score / BILLION / n if n else None,
        "pass_at": [dict(_reached(m, n, bounds, k, False)) for k in params.ks],
        "pass_hat": [dict(_reached(m, n, bounds, k, True)) for k in params.ks],
        "thresholds": [demand.told() for demand in demands],
        **(stop if counted.planned else {}),
    }


def _bounds_of(counted: CaseCounts) -> tuple[float, float]:
    """Of a case's chance of a pass: exact, or a confidence sequence's where the answers decided how many they are."""
    if not counted.answers:
        return 0.0, 1.0
    bounds = rate_sequence if counted.planned else exact_interval
    low, high = bounds(counted.passed, counted.answers)
    return low, high


@lru_cache(maxsize=4096)
def _reached(passed: int, answers: int, bounds: tuple[float, float], k: int, hat: bool) -> dict[str, Json]:
    """The unbiased estimate, and what the bounds of the pass rate come to: both numbers rise with it.

    Kept, since most of many cases have one of few counts.
    """
    low, high = bounds
    if hat:
        return {"k": k, "value": pass_hat_k(passed, answers, k), "low": low**k, "high": high**k}
    value = pass_at_k(passed, answers, k)
    # As the estimate is, with the ends of the chance of one pass: k answers all fail with (1 - p)^k.
    return {"k": k, "value": value, "low": 1.0 - (1.0 - low) ** k, "high": 1.0 - (1.0 - high) ** k}


def _stopping(cases: Sequence[Counted], entries: Sequence[Json], kinds: Mapping[str, str]) -> dict[str, Json]:
    """What stopping early came to; nothing where no case could. ``kinds`` has the verdicts on diversity by case."""
    calls = []
    for (case, counted), entry in zip(cases, entries, strict=True):
        verdicts = [each["verdict"] for each in entry["thresholds"]]
        verdicts += [kinds[case.id]] if case.id in kinds else []
        if counted.planned and verdicts:
            # Settled where all is that could be: an open verdict on diversity keeps a case of decided thresholds going.
            calls.append((counted.planned, counted.runs, _SETTLED.issuperset(verdicts)))
    return stopping_section(calls) if any(counted.planned for _, counted in cases) else {}


def _by_tag(cases: Sequence[Counted]) -> Iterator[Json]:
    """The tags, each over its cases, in the order of their names."""
    tags: dict[str, list[Counted]] = {}
    for case, counted in cases:
        for tag in case.tags:
            tags.setdefault(tag, []).append((case, counted))
    for tag, own in sorted(tags.items()):
        known = [rate for case, counted in own if (rate := _rate_of(case, counted)) is not None]
        yield {
            "tag": tag,
            "cases": len(own),
            "answered": len(known),
            "outputs": {
                "passed": sum(counted.passed for _, counted in own),
                "failed": sum(counted.failed for _, counted in own),
                "errors": sum(counted.errors for _, counted in own),
            },
            "pass_rate": _mean(known),
            **_bounds(known),
        }


def _by_check(cases: Sequence[Counted]) -> Iterator[Json]:
    """The checks by their names, each over the cases that have it, in the order of these names."""
    found: dict[str, list[tuple[Case, list[int]]]] = {}
    for case, counted in cases:
        # Not strict: a case without any answer has no counts.
        for written, counts in zip(case.checks, counted.checks, strict=False):
            found.setdefault(compiled(written).name, []).append((case, counts))
    for name, own in sorted(found.items()):
        rates = [Rate(p / (p + f), p + f, case.weight) for case, (p, f, _) in own if p + f]
        passed, failed, errors = (sum(counts[at] for _, counts in own) for at in range(3))
        yield {
            "check": name,
            "outputs": {"passed": passed, "failed": failed, "errors": errors},
            "pass_rate": _mean(rates),
            **_bounds(rates),
        }


def _spread(quantiles: Quantiles) -> dict[str, Json]:
    """What outputs took; quantiles are within ``relative_error`` of the number in their place."""
    return {
        "count": quantiles.count,
        "total": quantiles.total.value() if quantiles.count else None,
        "mean": quantiles.mean(),
        **{name: quantiles.quantile(share) for name, share in _QUANTILES},
        "max": quantiles.most if quantiles.count else None,
        "relative_error": RELATIVE_ERROR,
    }


def _failures(results: Sequence[InputResult[ChecksState]]) -> Iterator[Mapping[str, Json]]:
    """The first outputs that failed, each with what it failed by."""
    left = _FAILURES
    for result in results:
        for line, reason in result.state.failures.first[:left]:
            yield {"input": result.name, "line": line, "reason": reason}
            left -= 1
