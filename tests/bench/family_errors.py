"""How often the demands of a gate beside the mean err, in simulation; ``python -m tests.bench.family_errors``.

Quantiles and means of what answers took, collapse, judges, and pass@k over cases. Prints the Markdown of the part of
docs/reference/gate-errors.md that is about them. The decisions are the gate's own; only the drawing is vectorised.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from evalq.evalcore.compare.comparison import new_collapses
from evalq.evalcore.compare.intervals import ALPHA, CaseMoments, MeanChange, Spread
from evalq.evalcore.compare.summary import Taking, Took
from evalq.evalcore.statistics.agreement import JudgedCase, trust_of
from evalq.evalcore.statistics.distributions import at_least, at_most, beta_cdf
from evalq.evalcore.statistics.mode_share import FIXED_RUNS, collapsed_somewhere
from evalq.evalcore.statistics.quantiles import lower_rank, upper_rank
from evalq.evalcore.statistics.rates import Rate, clustered, pass_at_k, pass_hat_k
from evalq.evalcore.views.markdown import table
from tests.unit.compare.made import answered

_SIGMA = 0.4
"""Of the logarithm of an answer's seconds: p95 is 1.9 times the median."""
_RISE = 0.1
_SHARE = 0.7
Row = tuple[object, ...]


def share(count: int, of: int) -> str:
    """As the other tables have it."""
    return "0" if not count else f"{count / of:.4f}".lstrip("0") if count < of else "1"


Drawn = NDArray[np.float64]
"""Seconds by run, case and repeat."""


def drawn(rng: np.random.Generator, shape: tuple[int, int, int], fixed: Drawn, own: float, times: float) -> Drawn:
    """Seconds of runs: cases differ by what is ``fixed``, and by an effect of each run's ``own``."""
    effects = fixed + rng.normal(0, own, shape[:2])
    return np.asarray(times * np.exp(effects[:, :, None] + rng.normal(0, _SIGMA, shape)))


def taken(seconds: Drawn) -> Took:
    """One run's answers, as a gate has them."""
    taking = Taking(["x"])
    for case, row in enumerate(seconds.tolist()):
        for value in row:
            taking.add(f"c{case}", [value])
    return taking.by_name({})["x"]


def effects(base: Drawn, cand: Drawn) -> Drawn:
    """`design_effect` of each pair of runs."""
    runs, cases, repeats = base.shape
    if repeats < 2:
        return np.ones(runs)
    change = np.log(cand).mean(axis=2) - np.log(base).mean(axis=2)
    within = (np.log(cand).var(axis=2, ddof=1) + np.log(base).var(axis=2, ddof=1)).mean(axis=1) / repeats
    ratio = change.var(axis=1, ddof=1) / within
    freedom, degrees = cases * 2 * (repeats - 1), cases - 1
    tails = [beta_cdf(freedom / 2, degrees / 2, freedom / (freedom + degrees * each)) for each in ratio.tolist()]
    return np.where(np.array(tails) <= ALPHA, np.clip(ratio, 1.0, repeats), 1.0)


def of_quantile(base: Drawn, cand: Drawn, share: float) -> list[str]:
    """The verdicts of `max_relative_rise` on a quantile; numbers are known to their bucket, as in a sketch."""
    runs, n = len(base), base[0].size
    ordered = [np.sort(each.reshape(runs, n), axis=1) for each in (base, cand)]
    ends = []
    for each in ordered:
        mantissa, exponent = np.frexp(each)
        step = np.floor((mantissa - 0.5) * 128)
        low, high = np.ldexp(0.5 + step / 128, exponent), np.ldexp(0.5 + (step + 1) / 128, exponent)
        ends.append((np.maximum(low, each[:, :1]), np.minimum(high, each[:, -1:])))
    found = []
    for run, effect in enumerate(effects(base, cand).tolist()):
        worth = max(1, int(n / effect + 1e-9))
        lower, upper = lower_rank(worth, share, ALPHA / 2), upper_rank(worth, share, ALPHA / 2)
        at, end = (lower - 1) * n // worth if lower else -1, -(-upper * n // worth) - 1 if upper <= worth else n
        low_b, low_c = ([0.0] * 4, [0.0] * 4) if at < 0 else _ends(ends, run, at)
        high_b, high_c = ([np.inf] * 4, [np.inf] * 4) if end >= n else _ends(ends, run, end)
        below = high_c[1] < (1 + _RISE) * low_b[0]
        above = low_c[0] > (1 + _RISE) * high_b[1]
        worse = low_c[0] > high_b[1]
        found.append("GO" if below else "NO-GO" if above else "SUSPECT" if worse else "open")
    return found


def _ends(ends: list[tuple[Drawn, Drawn]], run: int, at: int) -> tuple[list[float], list[float]]:
    base, cand = ends
    return [base[0][run, at], base[1][run, at]], [cand[0][run, at], cand[1][run, at]]


def of_mean(base: Drawn, cand: Drawn) -> list[str]:
    """The same on the mean, by the gate's own rule from each case's moments."""
    moments = [(each.mean(axis=2), each.var(axis=2, ddof=1) if each.shape[2] > 1 else 0 * each.mean(axis=2))
               for each in (base, cand)]  # fmt: skip
    n, found = base.shape[2], []
    for run in range(len(base)):
        (mean_b, var_b), (mean_c, var_c) = ((mean[run].tolist(), var[run].tolist()) for mean, var in moments)
        rows = zip(mean_b, var_b, mean_c, var_c, strict=True)
        found.append(said(MeanChange(tuple(CaseMoments(n, b, vb, n, c, vc) for b, vb, c, vc in rows))))
    return found


def said(spread: Spread) -> str:
    """The verdict of `max_relative_rise`, as the gate has it."""
    if spread.below(1 + _RISE, 0.0) <= ALPHA:
        return "GO"
    if spread.above(1 + _RISE, 0.0) <= ALPHA:
        return "NO-GO"
    return "SUSPECT" if spread.above(1.0, 0.0) <= ALPHA else "open"


def changes(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """Changes of p95 and the mean by how far answers rose, and by what those of a case have in common."""
    for cases, repeats in ((20, 1), (10, 5), (9, 10), (10, 10), (20, 10), (200, 1), (60, 10)):
        for fixed, own in ((0.0, 0.0), (0.5, 0.0), (0.0, 0.2), (0.0, 0.5)):
            if repeats == 1 and own:
                continue
            shape = (runs, cases, repeats)
            level = rng.normal(0, fixed, shape[:2])
            base = drawn(rng, shape, level, own, 1.0)
            cands = [drawn(rng, shape, level, own, times) for times in (1.0, 1 + _RISE / 2, 1 + _RISE, 2.0)]
            correlation = (fixed**2 + own**2) / (fixed**2 + own**2 + _SIGMA**2)
            whose = "none" if not correlation else f"{correlation:.2f}, {'the cases' if fixed else 'each run'}"
            for name in ("p95", "mean"):
                none, half, margin, double = (
                    of_quantile(base, cand, 0.95) if name == "p95" else of_mean(base, cand) for cand in cands
                )
                counts = (
                    sum(each in ("NO-GO", "SUSPECT") for each in none),
                    half.count("NO-GO"),
                    margin.count("NO-GO"),
                    margin.count("GO"),
                    none.count("GO"),
                    double.count("NO-GO"),
                )
                yield (cases, repeats, whose, name, *(share(count, runs) for count in counts))


def bounds(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """`p95 <= b` with the true p95 at b, 10 % above and 10 % below it: the exact test, of independent answers."""
    top = float(np.exp(1.6448536 * _SIGMA))
    for answers in (20, 50, 72, 100, 200, 600):
        row = []
        for times, wanted in ((1.0, "NO-GO"), (1.0, "GO"), (1.1, "NO-GO"), (0.9, "GO")):
            above = (drawn(rng, (runs, 1, answers), np.zeros((1, 1)), 0.0, times) > top).sum(axis=(1, 2)).tolist()
            tail = at_most if wanted == "GO" else at_least
            row.append(share(sum(tail(count, answers, 0.05) <= ALPHA for count in above), runs))
        yield (answers, *row)


def kinds(rng: np.random.Generator, shape: tuple[int, int], repeats: int, mode: float) -> NDArray[np.int64]:
    """How often the commonest of six kinds came, by run and case: one has the probability ``mode``."""
    return np.asarray(rng.multinomial(repeats, [mode, *[(1 - mode) / 5] * 5], shape).max(axis=2))


def collapse(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """`none`: all cases at the threshold, one above it, all diverse, and all answers of a case one."""
    for cases in (2, 5, 10, 20, 30):
        for repeats in (1, 2, 5, 10, 20, 50):
            at = nowhere(kinds(rng, (runs, cases), repeats, _SHARE), repeats)
            # One case at the threshold, and the others plainly diverse: GO is wrong.
            others = kinds(rng, (runs, cases - 1), repeats, 1 / 6)
            one = nowhere(np.hstack([kinds(rng, (runs, 1), repeats, _SHARE), others]), repeats)
            diverse = nowhere(kinds(rng, (runs, cases), repeats, 1 / 6), repeats)
            same = nowhere(np.full((1, cases), repeats), repeats)
            counts = (at.count("NO-GO"), one.count("GO"), diverse.count("GO"), runs * same.count("NO-GO"))
            yield (cases, repeats, *(share(count, runs) for count in counts))


def nowhere(modes: NDArray[np.int64], n: int) -> list[str]:
    """The verdicts of `collapse: none` on runs of cases, each by how often its commonest kind came."""
    p = [FIXED_RUNS.p_value(m, n, _SHARE) if m else 1.0 for m in range(n + 1)]
    fine = [n > 1 and m > 0 and FIXED_RUNS.verdict(m, n, _SHARE) == "diverse" for m in range(n + 1)]
    found = []
    for row in modes.tolist():
        seen = collapsed_somewhere([p[m] for m in row])
        found.append("NO-GO" if seen.p <= ALPHA else "GO" if all(fine[m] for m in row) else "open")
    return found


def newly(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """`none-new` of ten cases: where nothing changed, and where all collapsed since."""
    for repeats in (5, 10, 20):
        row = []
        for before, now in ((0.6, 0.6), (0.8, 0.8), (0.95, 0.95), (0.3, 1.0)):
            stopped = 0
            for _ in range(runs):
                sides = [
                    answered([{f"k{at}": int(n) for at, n in enumerate(each) if n} for each in counts], _SHARE).cases
                    for share_ in (before, now)
                    for counts in [rng.multinomial(repeats, [share_, *[(1 - share_) / 5] * 5], 10)]
                ]
                stopped += any(each.adjusted <= ALPHA for each in new_collapses(sides[0], sides[1]))
            row.append(share(stopped, runs))
        yield (10, repeats, *row)


def judges(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """How often a judge decides, by its error and by the labels: wrongly where an error is .2, or it guesses."""
    for labels in (20, 40, 80, 160):
        for a_case in (1, 4):
            row = []
            for error, alike in ((0.2, 0.0), (0.2, 0.5), (0.5, 0.0), (0.1, 0.0), (0.02, 0.0)):
                hits = sum(not trust_of(_labelled(rng, labels, a_case, error, alike)).why for _ in range(runs))
                row.append(share(hits, runs))
            yield (labels, a_case, *row)


def _labelled(rng: np.random.Generator, labels: int, a_case: int, error: float, alike: float) -> Sequence[JudgedCase]:
    """Labels of two classes in turn, so many a case; errors of a case are ``alike`` by a beta distribution."""
    rows = []
    for _ in range(max(1, labels // a_case)):
        own = error if not alike else rng.beta(error * (1 - alike) / alike, (1 - error) * (1 - alike) / alike)
        good = rng.binomial(a_case, 0.5)
        false_fail, false_pass = rng.binomial(good, own), rng.binomial(a_case - good, own)
        both, neither = good - false_fail, a_case - good - false_pass
        # All answers are labelled: how rarely a sample is refused is tested apart.
        rows.append(JudgedCase(both, false_pass, false_fail, neither, both + false_pass, a_case))
    return rows


def over_k(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """How often the interval of pass@k and pass^k over cases misses the mean of cases like these."""
    for cases, repeats in ((10, 10), (30, 10)):
        for k in (3, 5, 10):
            for name, estimate in (("pass@", pass_at_k), ("pass^", pass_hat_k)):
                worst = [0, 0, 0]
                for mean in (0.3, 0.5, 0.8, 0.95):
                    for correlation in (0.05, 0.2, 0.5):
                        size = (1 - correlation) / correlation
                        many = rng.beta(mean * size, (1 - mean) * size, 100_000)
                        truth = float((1 - (1 - many) ** k).mean() if name == "pass@" else (many**k).mean())
                        low = high = 0
                        for rates in rng.beta(mean * size, (1 - mean) * size, (runs, cases)):
                            passed = rng.binomial(repeats, rates).tolist()
                            known = [Rate(estimate(each, repeats, k) or 0.0, repeats // k) for each in passed]
                            found = clustered(known)
                            low += found is not None and found.low > truth
                            high += found is not None and found.high < truth
                        worst = [max(worst[0], low), max(worst[1], high), max(worst[2], low + high)]
                covered = share(runs - worst[2], runs)
                yield (cases, repeats, f"{name}{k}", share(worst[0], runs), share(worst[1], runs), covered)


def main() -> None:
    """Print the part of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", choices=("took", "collapse", "judges", "over"), action="append")
    given = parser.parse_args()
    runs, parts = given.runs, given.part or ["took", "collapse", "judges", "over"]
    heads: tuple[str, ...]
    if "took" in parts:
        print("## What answers took\n")
        print(f"Made by `python -m tests.bench.family_errors --runs {runs} --seed {given.seed}`: so many runs a cell.")
        print(_TOOK)
        rng = np.random.default_rng([given.seed, 1])
        heads = ("cases", "repeats", "correlation", "number", "worse", "half", "NO-GO", "GO", "GO if none", "doubled")
        print(table(heads, list(changes(runs, rng))))
        print(_BOUND)
        rows = list(bounds(10 * runs, rng))
        print(table(("answers", "at it: NO-GO", "at it: GO", "10 % above: NO-GO", "10 % below: GO"), rows))
    if "collapse" in parts:
        print(_COLLAPSE)
        rng = np.random.default_rng([given.seed, 2])
        heads = ("cases", "answers", "NO-GO", "GO", "diverse: GO", "same: NO-GO")
        print(table(heads, list(collapse(runs, rng))))
        print(_NEW)
        heads = ("cases", "answers", ".6", ".8", ".95", ".3 to 1")
        print(table(heads, list(newly(max(1, runs // 10), rng))))
    if "judges" in parts:
        print(_JUDGES)
        heads = ("labels", "a case", "error .2", "error .2, alike", "guesses", "error .1", "error .02")
        print(table(heads, list(judges(runs, np.random.default_rng([given.seed, 3])))))
    if "over" in parts:
        print(_OVER)
        heads = ("cases", "answers", "number", "low end misses", "high end misses", "coverage")
        print(table(heads, list(over_k(runs, np.random.default_rng([given.seed, 4])))))


_TOOK = """
An answer takes lognormal seconds (a spread of .4 of the logarithm). A gate allows a rise of 10 %. Answers
of a case are alike with the given intraclass correlation: since the cases differ, and the same in both runs
("the cases"), or by an effect of the case that is another in each run ("each run").

- **worse**: NO-GO or SUSPECT, and nothing changed. Allowed: .05.
- **half**: NO-GO at a rise of 5 %. Allowed: .025. **NO-GO**, **GO**: at a rise of just 10 %. Allowed: .025 each, of
  means about that.
- **GO if none**: GO where nothing changed. **doubled**: NO-GO where all answers take twice as long.
"""
_BOUND = """
`p95 <= b` where the true p95 is b, lies 10 % above b, and 10 % below it. Allowed at b: .025 each.
"""
_COLLAPSE = """
## Collapse

The threshold is a share of .7 of the commonest kind of answer; `collapse: none`.

- **NO-GO**: all cases are just at the threshold. Allowed: .025. **GO**: one case is, and all others are diverse.
  Allowed: .025.
- **diverse: GO**: every case has six kinds that are as common. **same: NO-GO**: all answers of a case are one.
"""
_NEW = """
`collapse: none-new`, a tenth of the runs: NO-GO by the share of the commonest kind in both runs, where nothing changed
(allowed: .025), and where it went from .3 to 1.
"""
_JUDGES = """
## Judges that may decide

How often a judge decides by its labels (half are of answers that people pass): so many labels, so many of them of one
case. Where an error is .2, or the judge guesses, it should not: allowed is .025. *alike*: errors of a case are
alike with a correlation of .5.
"""
_OVER = """
## pass@k and pass^k over cases

How often the interval misses the mean of cases like these, the worst of twelve cells (means of .3, .5, .8 and .95,
correlations of .05, .2 and .5 within a case). Nominal: .025 at either end, and a coverage of .95.
"""


if __name__ == "__main__":
    main()
