"""Agreement of a fallible judge with people: shares with intervals, and Cohen's kappa. Labels of a case are alike, so
each case is a cluster of labels.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

from evalq.evalcore.statistics.distributions import at_most, student_t
from evalq.evalcore.statistics.rates import ALPHA, Interval, Rate, clustered, exact_interval

_ADDED = 0.5
"""Cases to add to each cell of the table, since a judge without errors so far may still err."""


class AgreementTable(NamedTuple):
    """Labelled answers by verdict: passed by judge and person, by the judge alone, by the person alone, by none."""

    both: int
    false_pass: int
    false_fail: int
    neither: int

    @property
    def labels(self) -> int:
        """The number of labels."""
        return sum(self)


class ShareEstimate(NamedTuple):
    """A number with its interval; None without data."""

    value: float | None
    interval: Interval | None


def share(counts: Sequence[tuple[int, int]], cases: int, alpha: float = ALPHA) -> ShareEstimate:
    """The share of hits among all labels, by (hits, labels) of each case; ``cases`` is how many could have labels.

    The interval is Clopper and Pearson's if each case has one label, or there is one case; otherwise that of clusters.
    If only one of several cases has labels, they count as one label.
    """
    counts = [(hits, of) for hits, of in counts if of]
    if not counts:
        return ShareEstimate(None, None)
    hits, of = (sum(each) for each in zip(*counts, strict=True))
    if cases == 1 or len(counts) == of:
        return ShareEstimate(hits / of, exact_interval(hits, of, alpha))
    if len(counts) == 1:
        return ShareEstimate(hits / of, exact_interval(hits / of, 1.0, alpha))
    return ShareEstimate(hits / of, clustered([Rate(hit / n, n, n) for hit, n in counts], alpha))


def kappa(tables: Sequence[AgreementTable], cases: int, alpha: float = ALPHA) -> ShareEstimate:
    """Cohen's kappa (1960) over the labels of all ``tables``, each of a case: agreement beyond that of chance.

    None if all labels are in one cell. The interval is Student's, by the influence of each case on kappa, with half a
    case added to each cell.
    """
    tables = [table for table in tables if table.labels]
    whole = [sum(column) for column in zip(*tables, strict=True)]
    labels = sum(whole)
    if not labels:
        return ShareEstimate(None, None)
    value = _kappa([count / labels for count in whole])
    # With a single case, its labels are the sample.
    units = labels if cases == 1 else len(tables)
    if units < 2:
        return ShareEstimate(value, Interval(-1.0, 1.0))
    # An added case is as large as the others.
    case = labels / units
    size = labels + 4 * _ADDED * case
    shares = [(count + _ADDED * case) / size for count in whole]
    influence = _influence(shares)
    if cases == 1:
        moved = math.fsum(count * each**2 for count, each in zip(whole, influence, strict=True))
    else:
        moved = math.fsum(sum(n * each for n, each in zip(table, influence, strict=True)) ** 2 for table in tables)
    moved = moved * units / (units - 1) + _ADDED * case**2 * math.fsum(each**2 for each in influence)
    half = student_t(units - 1, alpha) * math.sqrt(moved) / size
    # Include kappa with one more case of any kind, since few labels of a kind tell little about it.
    more = [[count + case * (cell == at) for at, count in enumerate(whole)] for cell in range(4)]
    ends = [each for counts in (whole, *more) if (each := _kappa([n / sum(counts) for n in counts])) is not None]
    return ShareEstimate(value, Interval(max(-1.0, min(ends) - half), min(1.0, max(ends) + half)))


def _kappa(shares: Sequence[float]) -> float | None:
    agreed, expected, _, _ = _margins(shares)
    # With all labels in one cell, chance agrees as often, so there is nothing beyond it.
    return None if expected >= 1.0 else (agreed - expected) / (1.0 - expected)


def _margins(shares: Sequence[float]) -> tuple[float, float, float, float]:
    """Observed agreement, expected agreement, and the pass rates of judge and person."""
    both, false_pass, false_fail, neither = shares
    judge, person = both + false_pass, both + false_fail
    return both + neither, judge * person + (1 - judge) * (1 - person), judge, person


def _influence(shares: Sequence[float]) -> list[float]:
    """How far one more label in each cell would move kappa, times the number of labels."""
    agreed, expected, judge, person = _margins(shares)
    rest = 1.0 - expected
    influence = []
    for passed, right in ((1, 1), (1, 0), (0, 1), (0, 0)):
        expects = (2 * judge - 1) * (right - person) + (2 * person - 1) * (passed - judge)
        influence.append(((passed == right) - agreed) / rest - (1 - agreed) / rest**2 * expects)
    return influence


# Whether a fallible judge may decide: by labels that people gave to a sample of its verdicts.

LEAST_LABELS = 20
"""A judge with fewer labels does not decide."""
_MOST_ERROR = 0.2
"""How often a judge may err, given people's verdict."""
_UNLIKELY = 0.01
"""The p-value up to which labels do not count as a random sample."""
_DRAWS, _FEWEST = 2000, 400
_MOST_LABELS = 100_000


class JudgedCase(NamedTuple):
    """A case's labels (as in `AgreementTable`), and how many of all its ``answers`` the judge ``passed``."""

    both: int
    false_pass: int
    false_fail: int
    neither: int
    passed: int
    answers: int

    @property
    def table(self) -> AgreementTable:
        """The labels only."""
        return AgreementTable(*self[:4])


class Trust(NamedTuple):
    """How far a judge agrees with people, and ``why`` it does not decide; empty if it does.

    ``false_pass`` is how often it passes answers that people fail, ``false_fail`` the other error; ``sample_p`` is the
    p-value of the labels as a random sample.
    """

    labels: int
    agreement: ShareEstimate
    kappa: ShareEstimate
    false_pass: ShareEstimate
    false_fail: ShareEstimate
    sample_p: float
    why: str


def trust_of(
    cases: Sequence[JudgedCase], least: int = LEAST_LABELS, error: float = _MOST_ERROR, *, by_verdict: bool = False
) -> Trust:
    """The trust in a judge by its labels, with cases as clusters.

    The judge decides if it has at least ``least`` labels, kappa's lower end is above 0, the upper ends of both errors
    are below ``error``, and the labels look like a random sample. ``by_verdict``: people drew answers by the judge's
    verdict; then rates are weighted by how often it passes and fails all answers.
    """
    tables, answered = [case.table for case in cases], sum(bool(case.answers) for case in cases)
    whole = (
        AgreementTable(*(sum(column) for column in zip(*tables, strict=True))) if tables else AgreementTable(0, 0, 0, 0)
    )
    agreement = share([(t.both + t.neither, t.labels) for t in tables], answered)
    chance_corrected = kappa(tables, answered)
    false_pass = share([(t.false_pass, t.false_pass + t.neither) for t in tables], answered)
    false_fail = share([(t.false_fail, t.false_fail + t.both) for t in tables], answered)
    beyond = chance_corrected.interval is not None and chance_corrected.interval.low > 0
    if by_verdict:
        false_pass, false_fail, beyond = _reweighted(cases, answered)
    sampled = sample_p_value(cases, by_verdict=by_verdict)
    why = "; ".join(_lacking(whole, least, error, beyond, false_pass, false_fail, sampled))
    return Trust(whole.labels, agreement, chance_corrected, false_pass, false_fail, sampled, why)


def _lacking(
    whole: AgreementTable,
    least: int,
    error: float,
    beyond: bool,
    false_pass: ShareEstimate,
    false_fail: ShareEstimate,
    sampled: float,
) -> list[str]:
    why = []
    if whole.labels < least:
        why.append(f"{whole.labels} labels of {least}")
    for rate, errors, labels, kind in (
        (false_pass, whole.false_pass, whole.false_pass + whole.neither, "fail"),
        (false_fail, whole.false_fail, whole.false_fail + whole.both, "pass"),
    ):
        if rate.interval is None or rate.interval.high >= error:
            high = 1.0 if rate.interval is None else rate.interval.high
            needed = labels_needed(errors, error)
            more = f"label {needed - labels} more that people {kind}" if needed > labels else "label more cases"
            why.append(
                f"it may err in {high:.1%} of what people {kind} ({errors} of {labels} labels), {error:.0%} are "
                f"allowed: {more}"
            )
    if whole.labels and not beyond:
        why.append("its agreement with people may be chance (kappa's lower end is not above 0)")
    if sampled <= _UNLIKELY:
        why.append(f"its labels are no random sample of its verdicts (p {sampled:.2g})")
    return why


def labels_needed(errors: int, error: float = _MOST_ERROR, alpha: float = ALPHA) -> int:
    """How many labels of one class, ``errors`` of them wrong, put the upper end below ``error``: 17, 26, 34 at .2."""
    low, high = errors, errors + 1
    while high < _MOST_LABELS and at_most(errors, high, error) >= alpha:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if at_most(errors, middle, error) < alpha else (middle, high)
    return high


def _reweighted(cases: Sequence[JudgedCase], answered: int) -> tuple[ShareEstimate, ShareEstimate, bool]:
    """Both errors, and whether agreement is beyond chance, for labels drawn by the judge's verdict."""
    tables = [case.table for case in cases]
    passes, answers = sum(case.passed for case in cases), sum(case.answers for case in cases)
    # The shares that people fail, of passed and of failed answers; each has half of the error.
    of_passed = share([(t.false_pass, t.false_pass + t.both) for t in tables], answered, ALPHA / 2)
    of_failed = share([(t.neither, t.neither + t.false_fail) for t in tables], answered, ALPHA / 2)
    if not answers or of_passed.value is None or of_failed.value is None:
        nothing = ShareEstimate(None, None)
        return nothing, nothing, False
    assert of_passed.interval is not None, "a share that has a value has an interval"
    assert of_failed.interval is not None, "a share that has a value has an interval"
    p, f = passes / answers, 1.0 - passes / answers
    (a, (a_low, a_high)), (b, (b_low, b_high)) = (
        (each.value, each.interval) for each in (of_passed, of_failed) if each.value is not None and each.interval
    )
    false_pass = ShareEstimate(
        _part(p * a, f * b), Interval(_part(p * a_low, f * b_high), _part(p * a_high, f * b_low))
    )
    false_fail = ShareEstimate(
        _part(f * (1 - b), p * (1 - a)),
        Interval(_part(f * (1 - b_high), p * (1 - a_low)), _part(f * (1 - b_low), p * (1 - a_high))),
    )
    # Kappa is above 0 if people fail a larger share of the failed answers than of the passed ones.
    return false_pass, false_fail, a_high < b_low


def _part(part: float, rest: float) -> float:
    return part / (part + rest) if part + rest > 0 else 1.0


def sample_p_value(cases: Sequence[JudgedCase], *, by_verdict: bool = False) -> float:
    """The p-value of the labelled answers as a random sample of all answers, adjusted for the number of tests.

    Among passed, and among failed answers, it tests whether labelled ones are of cases that pass as often as others.
    Without ``by_verdict`` it also tests how many labelled answers the judge passed. If whole cases are labelled, it
    tests instead whether these are a random sample of cases. The counts seed the draws, so that the same labels always
    give the same result.
    """
    known = [case for case in cases if case.answers]
    labels, answers = sum(case.table.labels for case in known), sum(case.answers for case in known)
    if not labels or labels >= answers:
        return 1.0
    import numpy as np

    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(repr(known).encode()).digest()[:16]))
    rates = np.array([case.passed / case.answers for case in known])
    labelled = np.array([case.table.labels > 0 for case in known])
    draws = max(_FEWEST, min(_DRAWS, _DRAWS * 2000 // len(known)))
    whole = all(case.table.labels >= 0.9 * case.answers for case in known if case.table.labels)
    if whole:
        if labelled.all():
            return 1.0
        drawn = [float(rates[rng.permutation(len(rates))[: labelled.sum()]].sum()) for _ in range(draws)]
        return _two_sided(float(rates[labelled].sum()), drawn)
    p_values = []
    for size, labelled_here in (
        ([case.passed for case in known], [case.both + case.false_pass for case in known]),
        ([case.answers - case.passed for case in known], [case.false_fail + case.neither for case in known]),
    ):
        # There may be more labels than verdicts, since labels of an earlier run's answers count, too.
        room = np.maximum(np.array(size), np.array(labelled_here))
        if 0 < sum(labelled_here) < room.sum() and len(known) > 1:
            sums: list[float] = []
            while len(sums) < draws:
                # Draw two million numbers at once, so that many cases take no more memory than few.
                some = min(draws - len(sums), max(1, 2_000_000 // len(known)))
                drawn_counts = rng.multivariate_hypergeometric(room, sum(labelled_here), some, method="marginals")
                sums += (drawn_counts @ rates).tolist()
            p_values.append(_two_sided(float(np.array(labelled_here) @ rates), sums))
    if not by_verdict:
        passed, labelled_passed = sum(c.passed for c in known), sum(c.both + c.false_pass for c in known)
        if labelled_passed <= passed and labels - labelled_passed <= answers - passed:
            p_values.append(_hypergeometric(labelled_passed, labels, passed, answers))
    return min(1.0, len(p_values) * min(p_values, default=1.0))


def _two_sided(seen: float, drawn: Sequence[float]) -> float:
    import numpy as np

    values = np.asarray(drawn)
    low, high = int((values <= seen + 1e-12).sum()), int((values >= seen - 1e-12).sum())
    # Count the observed value as a draw, too.
    return min(1.0, 2 * (1 + min(low, high)) / (1 + len(values)))


def _hypergeometric(seen: int, drawn: int, marked: int, every: int) -> float:
    """The two-sided p-value of ``seen`` marked ones among ``drawn``: the sum over all counts that are no likelier."""

    def log(x: int) -> float:
        rest = (marked, x), (every - marked, drawn - x)
        return math.fsum(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for n, k in rest)

    least, most = max(0, drawn - every + marked), min(drawn, marked)
    logs = [log(x) for x in range(least, most + 1)]
    observed, top = log(seen), max(logs)
    whole = math.fsum(math.exp(each - top) for each in logs)
    return min(1.0, math.fsum(math.exp(each - top) for each in logs if each <= observed + 1e-9) / whole)
