"""The report of checks: pass rates by case, tag and check, and the verdicts on thresholds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from evalq.evalcore.contract.evaluator import InputResult
from evalq.evalcore.contract.repeats import stopping_section
from evalq.evalcore.evaluators.checks.check import name_of_check
from evalq.evalcore.evaluators.checks.diversity.kinds import KindCounts
from evalq.evalcore.evaluators.checks.diversity.report import diversity_section
from evalq.evalcore.evaluators.checks.labels import labels_section, on_trust, trusted_checks
from evalq.evalcore.evaluators.checks.params import AnyCase, ChecksParams, Threshold, diversity_of, thresholds_of
from evalq.evalcore.evaluators.checks.state import BILLION, CaseCounts, ChecksState
from evalq.evalcore.evaluators.checks.user.report import UserCounts, users_section
from evalq.evalcore.model.calls import WHEN_DECIDED
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.model.lines import Lines
from evalq.evalcore.statistics.distributions import at_least, at_most
from evalq.evalcore.statistics.mode_share import rejected
from evalq.evalcore.statistics.quantiles import RELATIVE_ERROR, Quantiles
from evalq.evalcore.statistics.rates import ALPHA, Rate, clustered, exact_interval, mean_rate, pass_at_k, pass_hat_k
from evalq.evalcore.statistics.sequences import MOST_LOOKS, log_e_above, log_e_below, rate_limits, rate_sequence

Verdict = Literal["holds", "fails", "inconclusive", "no_data"]
_NAMED = 100
_SMALLEST = ALPHA * 2.0**-14
"""The lowest p-value of cases that could stop early."""


class Demand(msgspec.Struct, frozen=True):
    """One threshold of one case, and its answers. ``planned`` is the most calls if the case could stop early, else 0.

    ``advisory``: fallible checks decide the case, and too few of their verdicts are labelled.
    """

    case: str
    threshold: Threshold
    passed: int
    answers: int
    planned: int = 0
    advisory: bool = False

    @property
    def verdict(self) -> Verdict:
        """The verdict on this case only; each side is wrong with probability ALPHA at most."""
        if not self.answers:
            return "no_data"
        if self.p_holds <= ALPHA:
            return "holds"
        return "fails" if self.p_fails <= ALPHA else "inconclusive"

    @property
    def p_holds(self) -> float:
        """The p-value of this many passes if their chance is below the threshold."""
        share = self.threshold.share
        # No number of passes shows that every answer would pass.
        if share >= 1.0:
            return 1.0
        if self.planned:
            return _p_value(self.passed, self.answers, share, self.planned, above=True)
        return at_least(self.passed, self.answers, share)

    @property
    def p_fails(self) -> float:
        """The p-value of this few passes if their chance reaches the threshold."""
        share = self.threshold.share
        if share >= 1.0:
            return float(self.passed == self.answers)  # one failure is enough
        if self.planned:
            return _p_value(self.passed, self.answers, share, self.planned, above=False)
        return at_most(self.passed, self.answers, share)

    def as_json(self) -> dict[str, Json]:
        """The demand in the report."""
        threshold: dict[str, Json] = {"number": self.threshold.number, "least": self.threshold.least}
        return {**threshold, "verdict": self.verdict, **({"advisory": True} if self.advisory else {})}


def _decide(demands: Sequence[Demand]) -> dict[str, Json]:
    """The verdict on all thresholds: they hold if each one does, and fail if any does by Holm's procedure (1979).

    So either verdict is wrong with probability ALPHA at most, for any number of thresholds. Advisory ones are only
    counted.
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
    """The cases that fail with all tested together, by p-value."""
    # Without cases that have no answers, which have no p-value and would weaken the test of the others.
    known = sorted((demand.p_fails, demand.case) for demand in demands if demand.answers)
    # Each case once, even if it fails several thresholds.
    return list(dict.fromkeys(case for _, case in known[: rejected([p for p, _ in known], ALPHA)]))


@lru_cache(maxsize=65536)
def _p_value(m: int, n: int, share: float, of: int, *, above: bool) -> float:
    """A p-value that is valid after any number of interim looks: the lowest of ALPHA, ALPHA/2, ... at which ``m`` of
    ``n`` is beyond the limits for at most ``of`` runs; 1 if it is not beyond those of ALPHA.

    With more runs than planned, or without a cap, it is that of the confidence sequence.
    """
    if not n <= of <= MOST_LOOKS:
        log_e = (log_e_above if above else log_e_below)(m, n, share)
        in_direction = m > share * n if above else m < share * n
        return min(1.0, math.exp(-max(0.0, log_e))) if in_direction else 1.0

    def beyond(alpha: float) -> bool:
        limits = rate_limits(share, of, alpha)
        return m >= limits.above[n] if above else m <= limits.below[n]

    level = ALPHA
    if not beyond(level):
        return 1.0
    # By halves, since computing the limits of a level takes time quadratic in the cap.
    while level > _SMALLEST and beyond(level / 2):
        level /= 2
    return level


# The section of the report.

_FAILURES = 100
_FEW = 4096
_id_as_json = msgspec.json.Encoder().encode
_SETTLED = frozenset(("holds", "fails", "collapsed", "diverse"))
_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99))

Counted = tuple[AnyCase, CaseCounts]
_NOTHING = CaseCounts()
"""The counts of every case without an output; nobody may change them."""


def checks_section(results: Sequence[InputResult[ChecksState]], params: ChecksParams) -> dict[str, Json]:
    """``results`` of report.json; several inputs count as one, and a repeat in two of them as two outputs."""
    state = _merge_states([result.state for result in results])
    cases = _Cases(state, params)
    trusted = trusted_checks(cases, params)
    alike, demands = _alike(cases, params, trusted)
    # From the tally, since lines of unknown cases are errors, too.
    errors = sum(result.tally.errors for result in results)
    entries = _entries(cases, params, trusted, sum(each.times for each in alike))
    diverse = params.cases_file is None or params.cases_file.diverse or params.diversity.by != "none"
    diversity = diversity_section(cases.drawn(), params) if diverse else {}
    kinds = {entry["case"]: entry["verdict"] for entry in diversity["diversity"]["by_case"]} if diversity else {}
    names = ("passed", "failed", "lost")
    passed, failed, lost = (sum(getattr(each.counted, name) * each.times for each in alike) for name in names)
    return {
        "outputs": {
            "total": passed + failed + errors,
            "passed": passed,
            "failed": failed,
            "errors": errors,
            **({"lost_by_user": lost} if lost else {}),
        },
        "cases": {
            "total": sum(each.times for each in alike),
            # Not complements: a case whose outputs have no verdict is recorded, but not answered.
            "answered": sum(each.times for each in alike if each.counted.answers),
            "unrecorded": sum(each.times for each in alike if not each.counted.runs),
        },
        **_rates(alike),
        "pass_at": [_over_cases(alike, k, hat=False) for k in params.ks],
        "pass_hat": [_over_cases(alike, k, hat=True) for k in params.ks],
        "thresholds": _decide(demands),
        "by_tag": list(_by_tag(alike)),
        "by_check": list(_by_check(alike)),
        "latency_seconds": _usage_block(state.latency),
        "cost": _usage_block(state.cost),
        "tokens": _usage_block(state.tokens),
        # Only where it is known: calls that do not stream have none.
        **({"first_token_seconds": _usage_block(state.first_token)} if state.first_token.count else {}),
        "by_case": entries,
        "failures": list(_failures(results)),
        **labels_section(cases, state, params, labelled=any(each.counted.labels for each in alike)),
        **_judges(state),
        **(users_section(state.users, list(_user_counts(cases))) if state.users else {}),
        **diversity,
        **(_stopping(cases, entries, kinds) if any(each.counted.planned for each in alike) else {}),
    }


class _Cases:
    """The selected cases with their counts, in the order of the files; read anew each time if they are in a file."""

    def __init__(self, state: ChecksState, params: ChecksParams) -> None:
        self._state = state
        self._params = params

    def __iter__(self) -> Iterator[Counted]:
        # States number all cases of the params, also those outside of the tag.
        counts = self._state.cases
        return ((case, counts.get(index, _NOTHING)) for index, case in self._params.numbered())

    def drawn(self) -> list[tuple[AnyCase, KindCounts, int]]:
        """The cases that count their answers by kind, with these, and the calls planned."""
        counts, drawn = self._state.cases, self._state.drawn
        return [
            (case, drawn.get(index, KindCounts()), counts.get(index, _NOTHING).planned)
            for index, case in self._params.numbered()
            if diversity_of(case, self._params) is not None
        ]


def _user_counts(cases: Iterable[Counted]) -> Iterator[UserCounts]:
    return (UserCounts(case.weight, counted.lost, counted.conduct) for case, counted in cases)


def _judges(state: ChecksState) -> dict[str, Json]:
    """The judges, their prompts and usage; nothing without judges."""
    judges: list[Json] = [
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
            "latency_seconds": _usage_block(tally.latency),
            "cost": _usage_block(tally.cost),
            "tokens": _usage_block(tally.tokens),
        }
        for name, tally in state.judges.items()
    ]
    return {"judges": judges} if judges else {}


def _merge_states(states: Sequence[ChecksState]) -> ChecksState:
    if len(states) == 1:
        return states[0]
    whole = ChecksState.zero()
    for state in states:
        whole.merge(ChecksState.from_wire(state.to_wire()))  # a copy, since merging takes over parts
    return whole


class _Alike(NamedTuple):
    """Cases that count the same in every rate: their ``tags``, ``weight`` and names of ``checks``, and how many."""

    tags: tuple[str, ...]
    weight: float
    checks: tuple[str, ...]
    counted: CaseCounts
    times: int
    cluster: str = ""

    @property
    def rate(self) -> Rate:
        """The pass rate of each of them, which have answers."""
        return Rate(self.counted.passed / self.counted.answers, self.counted.answers, self.weight, self.cluster)


def _alike(
    cases: Iterable[Counted], params: ChecksParams, trusted: Mapping[str, bool]
) -> tuple[list[_Alike], list[Demand]]:
    """The cases in groups, since many cases have the same few counts, and the demands on all of them.

    The order of groups changes no exact sum.
    """
    groups: dict[tuple[Any, ...], list[Any]] = {}
    demands: list[Demand] = []
    for case, counted in cases:
        names = tuple([name_of_check(check) for check in case.checks])
        key = (id(counted), case.weight, case.tags, names, case.cluster)
        group = groups.get(key)
        if group is None:
            groups[key] = [1, counted]
        else:
            group[0] += 1
        if params.pass_rate or case.thresholds.rates:
            demands += _demands_on(case, counted, params, trusted)
    alike = [
        _Alike(tags, weight, checks, counted, times, cluster)
        for (_, weight, tags, checks, cluster), (times, counted) in groups.items()
    ]
    return alike, demands


def _demands_on(case: AnyCase, counted: CaseCounts, params: ChecksParams, trusted: Mapping[str, bool]) -> list[Demand]:
    thresholds = thresholds_of(case, params)
    if not thresholds:
        return []
    advisory = on_trust(case, trusted, params)
    counts = (counted.passed, counted.answers, counted.planned)
    return [Demand(case.id, each, *counts, advisory) for each in thresholds]


def _answered(alike: Iterable[_Alike]) -> list[_Alike]:
    return [each for each in alike if each.counted.answers]


def _rates(alike: Sequence[_Alike]) -> dict[str, Json]:
    """The pass rate over cases by their weights, with its interval, and the mean score."""
    known = _answered(alike)
    times = [each.times for each in known]
    rates = [each.rate for each in known]
    scores = [
        Rate(each.counted.score / BILLION / each.counted.answers, each.counted.answers, each.weight, each.cluster)
        for each in known
    ]
    return {
        "pass_rate": mean_rate(rates, times),
        "pass_rate_interval": _bounds(rates, times),
        "score": mean_rate(scores, times),
    }


UNSEEN_OF_PASS_HAT = 2
"""Unseen cases for which the interval of pass^k over cases allows. With one, an agent that fails a rare kind of case
looks too sure where ten cases have none of that kind (docs/reference/checks-statistics.md, conversations)."""


def _bounds(rates: Sequence[Rate], times: Sequence[int], unseen: int = 1) -> dict[str, float | None]:
    interval = clustered(rates, times=times, unseen=unseen)
    return {"low": interval.low if interval else None, "high": interval.high if interval else None}


def _over_cases(alike: Sequence[_Alike], k: int, *, hat: bool) -> dict[str, Json]:
    """The mean of the estimates of cases with at least k answers, and its interval."""
    enough = [each for each in alike if each.counted.answers >= k]
    times = [each.times for each in enough]
    estimates = rates_of_k([(n.passed, n.answers, weight, group) for _, weight, _, n, _, group in enough], k, hat=hat)
    bounds, cases = _bounds(estimates, times, UNSEEN_OF_PASS_HAT if hat else 1), sum(times)
    if cases == 1:
        # For a single case, its exact bounds for k answers.
        low, high = exact_interval(enough[0].counted.passed, enough[0].counted.answers)
        bounds = {"low": _chance_over_k(low, k, hat=hat), "high": _chance_over_k(high, k, hat=hat)}
    return {"k": k, "value": mean_rate(estimates, times), **bounds, "cases": cases}


def rates_of_k(cases: Iterable[tuple[int, int, float, str]], k: int, *, hat: bool) -> list[Rate]:
    """The estimates of pass@k or pass^k of (passed, answers, weight, cluster) with at least k answers, for `clustered`.

    A case is a cluster of its answers. Each estimate takes k answers, so its sample is the number of groups of k.
    """
    estimate = pass_hat_k if hat else pass_at_k
    return [Rate(estimate(c, n, k) or 0.0, n // k, weight, cluster) for c, n, weight, cluster in cases if n >= k]


def _chance_over_k(rate: float, k: int, *, hat: bool) -> float:
    return float(rate**k) if hat else float(1.0 - (1.0 - rate) ** k)


def _entries(cases: _Cases, params: ChecksParams, trusted: Mapping[str, bool], count: int) -> Sequence[Json]:
    """The entries of all ``count`` cases, in memory or made when they are read."""
    if params.cases_file is not None:
        return Lines(count, lambda: _entry_lines(cases, params, trusted))
    return [_entry(case, counted, _demands_on(case, counted, params, trusted), params) for case, counted in cases]


def _entry_lines(cases: _Cases, params: ChecksParams, trusted: Mapping[str, bool]) -> Iterator[bytes]:
    """The entries as canonical JSON. Most cases differ from another one only in their id."""
    # With the thresholds, so that nothing else gets their identity.
    known: dict[tuple[Any, ...], tuple[bytes, object]] = {}
    for case, counted in cases:
        key = (id(counted), case.weight, case.tags, id(case.thresholds))
        found = known.get(key)
        if found is None:
            demands = _demands_on(case, counted, params, trusted)
            entry = _entry(case, counted, demands, params)
            del entry["case"]
            found = canonical_json(entry)[1:], case.thresholds
            # A demand may also depend on the checks of its case.
            if not demands:
                if len(known) >= _FEW:
                    known.clear()
                known[key] = found
        yield b'{"case":%b,%b' % (_id_as_json(case.id), found[0])


def _entry(case: AnyCase, counted: CaseCounts, demands: Sequence[Demand], params: ChecksParams) -> dict[str, Json]:
    n, m = counted.answers, counted.passed
    bounds = _rate_bounds(counted)
    low, high = bounds if n else (None, None)
    # For each case that could stop, even if it did not, since its interval differs.
    stop = {"stop": {"rule": WHEN_DECIDED, "of": counted.planned}}
    return {
        "case": case.id,
        "tags": list(case.tags),
        "weight": case.weight,
        "outputs": {
            "passed": m,
            "failed": counted.failed,
            "errors": counted.errors,
            **({"lost_by_user": counted.lost} if counted.lost else {}),
        },
        "pass_rate": {"value": m / n if n else None, "low": low, "high": high},
        "score": counted.score / BILLION / n if n else None,
        "pass_at": [_pass_estimate(m, n, bounds, k, False) for k in params.ks],
        "pass_hat": [_pass_estimate(m, n, bounds, k, True) for k in params.ks],
        "thresholds": [demand.as_json() for demand in demands],
        **(stop if counted.planned else {}),
    }


def _rate_bounds(counted: CaseCounts) -> tuple[float, float]:
    """The bounds of a case's pass rate: exact, or those of a confidence sequence if it could stop early."""
    if not counted.answers:
        return 0.0, 1.0
    bounds = rate_sequence if counted.planned else exact_interval
    low, high = bounds(counted.passed, counted.answers)
    return low, high


@lru_cache(maxsize=4096)
def _pass_estimate(passed: int, answers: int, bounds: tuple[float, float], k: int, hat: bool) -> dict[str, Json]:
    """The unbiased estimate of pass@k or pass^k, with the bounds of the pass rate for k answers.

    Cached and shared, since many cases have the same few counts; nobody may change it.
    """
    low, high = bounds
    if hat:
        return {"k": k, "value": pass_hat_k(passed, answers, k), "low": low**k, "high": high**k}
    value = pass_at_k(passed, answers, k)
    # k answers all fail with probability (1 - p)^k.
    return {"k": k, "value": value, "low": 1.0 - (1.0 - low) ** k, "high": 1.0 - (1.0 - high) ** k}


def _stopping(cases: Iterable[Counted], entries: Iterable[Json], kinds: Mapping[str, str]) -> dict[str, Json]:
    """The calls saved by stopping early, if a case could. ``kinds`` has the verdicts on diversity by case."""
    calls = []
    for (case, counted), entry in zip(cases, entries, strict=True):
        verdicts = [each["verdict"] for each in entry["thresholds"]]
        verdicts += [kinds[case.id]] if case.id in kinds else []
        if counted.planned and verdicts:
            # Decided if all verdicts are: an open one on diversity keeps a case going.
            calls.append((counted.planned, counted.runs, _SETTLED.issuperset(verdicts)))
    return stopping_section(calls)


def _by_tag(alike: Sequence[_Alike]) -> Iterator[Json]:
    """The tags, each over its cases, in the order of names."""
    tags: dict[str, list[_Alike]] = {}
    for each in alike:
        for tag in each.tags:
            tags.setdefault(tag, []).append(each)
    for tag, tagged in sorted(tags.items()):
        known = _answered(tagged)
        rates, times = [each.rate for each in known], [each.times for each in known]
        yield {
            "tag": tag,
            "cases": sum(each.times for each in tagged),
            "answered": sum(times),
            "outputs": {
                name: sum(getattr(each.counted, name) * each.times for each in tagged)
                for name in ("passed", "failed", "errors")
            },
            "pass_rate": mean_rate(rates, times),
            **_bounds(rates, times),
        }


def _by_check(alike: Sequence[_Alike]) -> Iterator[Json]:
    """The checks, each over its cases, in the order of names."""
    counts_by_check: dict[str, Counter[tuple[int, int, int, float, str]]] = {}
    for each in alike:
        # Not strict: a case without answers has no counts.
        for name, (passed, failed, errors) in zip(each.checks, each.counted.checks, strict=False):
            counts_by_check.setdefault(name, Counter())[
                passed, failed, errors, each.weight, each.cluster
            ] += each.times  # fmt: skip
    for name, with_check in sorted(counts_by_check.items()):
        known = [
            (Rate(p / (p + f), p + f, weight, cluster), n)
            for (p, f, _, weight, cluster), n in with_check.items()
            if p + f
        ]
        rates, times = [rate for rate, _ in known], [n for _, n in known]
        names = ("passed", "failed", "errors")
        yield {
            "check": name,
            "outputs": {
                name: sum(counts[index] * n for counts, n in with_check.items()) for index, name in enumerate(names)
            },
            "pass_rate": mean_rate(rates, times),
            **_bounds(rates, times),
        }


def _usage_block(quantiles: Quantiles) -> dict[str, Json]:
    """The usage of outputs; quantiles are within ``relative_error``."""
    return {
        "count": quantiles.count,
        "total": quantiles.total.value() if quantiles.count else None,
        "mean": quantiles.mean(),
        **{name: quantiles.quantile(share) for name, share in _QUANTILES},
        "max": quantiles.most if quantiles.count else None,
        "relative_error": RELATIVE_ERROR,
    }


def _failures(results: Sequence[InputResult[ChecksState]]) -> Iterator[Mapping[str, Json]]:
    """The first outputs that failed, with the reason."""
    left = _FAILURES
    for result in results:
        for line, reason in result.state.failures.first[:left]:
            yield {"input": result.name, "line": line, "reason": reason}
            left -= 1
