"""How often the demands of a gate beside the mean err, in simulation; ``python -m tests.bench.family_errors``.

Quantiles and means of what answers took, collapse, judges, and pass@k over cases. Prints the Markdown of the part of
docs/reference/gate-errors.md that is about them. The decisions are the gate's own; only the drawing is vectorised.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np

from evalq.evalcore.compare.collapse import new_collapses, undecided_collapses
from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.spreads import MeanChange, QuantileChange, Spread, quantile_level
from evalq.evalcore.compare.took import Taking, Took
from evalq.evalcore.modes import FIXED_RUNS
from evalq.evalcore.modes.nowhere import collapsed_somewhere
from evalq.evalcore.statistics.judge_trust import JudgedCase, trust_of
from evalq.evalcore.statistics.rates import Rate, clustered, pass_at_k, pass_hat_k
from evalq.evalcore.views.markdown import table
from tests.unit.compare.made import answered

__all__ = ["main"]

_SIGMA = 0.4
"""Of the logarithm of an answer's seconds: p95 is 1.9 times the median."""
_RISE = 0.1
_SHARE = 0.7
Row = tuple[object, ...]


def share(count: int, of: int) -> str:
    """As the other tables have it."""
    return "0" if not count else f"{count / of:.4f}".lstrip("0") if count < of else "1"


def taken(seconds: np.ndarray) -> Took:
    """Answers by case and repeat."""
    taking = Taking(["x"])
    for case, row in enumerate(seconds.tolist()):
        for value in row:
            taking.add(f"c{case}", [value])
    return taking.found({})["x"]


def drawn(rng: np.random.Generator, cases: int, repeats: int, fixed: np.ndarray, own: float, times: float) -> Took:
    """Seconds of a run: cases differ by what is ``fixed``, and by an effect of this run's ``own``."""
    effects = fixed + rng.normal(0, own, cases)
    return taken(times * np.exp(effects[:, None] + rng.normal(0, _SIGMA, (cases, repeats))))


def said(spread: Spread) -> str:
    """The verdict of `max_relative_rise`, as the gate has it."""
    if spread.below(1 + _RISE, 0.0) <= ALPHA:
        return "GO"
    if spread.above(1 + _RISE, 0.0) <= ALPHA:
        return "NO-GO"
    return "SUSPECT" if spread.above(1.0, 0.0) <= ALPHA else "open"


def changes(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """Changes of p50, p95 and the mean by how far answers rose, and by what those of a case have in common."""
    for cases, repeats in ((20, 1), (9, 10), (20, 10), (200, 1), (60, 10)):
        for fixed, own in ((0.0, 0.0), (0.5, 0.0), (0.0, 0.3)):
            if repeats == 1 and own:
                continue
            for name in ("p95", "mean"):
                counts = dict.fromkeys(("worse", "half", "go", "nogo", "go0", "seen"), 0)
                for _ in range(runs):
                    level = rng.normal(0, fixed, cases)
                    base = drawn(rng, cases, repeats, level, own, 1.0)
                    for times, key in ((1.0, "none"), (1 + _RISE / 2, "half"), (1 + _RISE, "margin"), (2.0, "double")):
                        cand = drawn(rng, cases, repeats, level, own, times)
                        found = said(_spread(name, base, cand))
                        counts["worse"] += key == "none" and found in ("NO-GO", "SUSPECT")
                        counts["go0"] += key == "none" and found == "GO"
                        counts["half"] += key == "half" and found == "NO-GO"
                        counts["nogo"] += key == "margin" and found == "NO-GO"
                        counts["go"] += key == "margin" and found == "GO"
                        counts["seen"] += key == "double" and found == "NO-GO"
                correlation = (fixed**2 + own**2) / (fixed**2 + own**2 + _SIGMA**2)
                whose = "none" if not correlation else f"{correlation:.2f}, {'the cases' if fixed else 'each run'}"
                keys = ("worse", "half", "nogo", "go", "go0", "seen")
                yield (cases, repeats, whose, name, *(share(counts[key], runs) for key in keys))


def _spread(name: str, base: Took, cand: Took) -> Spread:
    if name == "mean":
        return MeanChange.of(base, cand, worst=False, rises=True)
    return QuantileChange.of(base, cand, int(name[1:]) / 100, worst=False, rises=True)


def bounds(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """`p95 <= b` with the true p95 at b, 10 % above and 10 % below it."""
    for answers in (20, 50, 72, 100, 200, 600):
        top = float(np.exp(1.6448536 * _SIGMA))
        row = []
        for times, wanted in ((1.0, "NO-GO"), (1.0, "GO"), (1.1, "NO-GO"), (0.9, "GO")):
            hits = 0
            for _ in range(runs):
                took = drawn(rng, answers, 1, np.zeros(answers), 0.0, times)
                level = quantile_level(took, 0.95, top, least=False, missing_above=True)
                hits += (level.p_kept if wanted == "GO" else level.p_broken) <= ALPHA
            row.append(share(hits, runs))
        yield (answers, *row)


def kinds(rng: np.random.Generator, cases: int, repeats: int, mode: float) -> list[dict[str, int]]:
    """Answers whose commonest kind has the probability ``mode``, the rest being of five kinds alike."""
    chances = [mode, *[(1 - mode) / 5] * 5]
    counts = rng.multinomial(repeats, chances, cases)
    return [{f"k{at}": int(n) for at, n in enumerate(row) if n} for row in counts]


def collapse(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """`none` and `none-new`: all cases at the threshold, one above it, unchanged, and all collapsed since."""
    for cases in (2, 5, 10, 20, 30):
        for repeats in (1, 2, 5, 10, 20, 50):
            row = []
            at = [_nowhere(kinds(rng, cases, repeats, _SHARE)) for _ in range(runs)]
            row.append(sum(verdict == "NO-GO" for verdict in at))
            # One case at the threshold, and the others plainly diverse: GO is wrong.
            one = [
                _nowhere(kinds(rng, 1, repeats, _SHARE) + kinds(rng, cases - 1, repeats, 1 / 6)) for _ in range(runs)
            ]
            row.append(sum(verdict == "GO" for verdict in one))
            row.append(sum(_nowhere(kinds(rng, cases, repeats, 1 / 6)) == "GO" for _ in range(runs)))
            row.append(sum(_nowhere(kinds(rng, cases, repeats, 1.0)) == "NO-GO" for _ in range(runs)))
            few = max(1, runs // 10)
            unchanged = [
                _new(kinds(rng, cases, repeats, mode), kinds(rng, cases, repeats, mode))
                for mode in (0.6, 0.8)
                for _ in range(few)
            ]
            since = [_new(kinds(rng, cases, repeats, 0.3), kinds(rng, cases, repeats, 1.0)) for _ in range(few)]
            yield (
                cases,
                repeats,
                *(share(count, runs) for count in row),
                share(sum(each == "NO-GO" for each in unchanged), len(unchanged)),
                share(sum(each == "NO-GO" for each in since), few),
            )


def _nowhere(labels: list[dict[str, int]]) -> str:
    counts = [(max(each.values()), sum(each.values())) for each in labels]
    found = collapsed_somewhere([FIXED_RUNS.p_value(m, n, _SHARE) for m, n in counts])
    if found.p <= ALPHA:
        return "NO-GO"
    return "GO" if all(n > 1 and FIXED_RUNS.verdict(m, n, _SHARE) == "diverse" for m, n in counts) else "open"


def _new(before: list[dict[str, int]], now: list[dict[str, int]]) -> str:
    base, cand = answered(before, _SHARE).cases, answered(now, _SHARE).cases
    if any(each.adjusted <= ALPHA for each in new_collapses(base, cand)):
        return "NO-GO"
    return "open" if undecided_collapses(base, cand) else "GO"


def judges(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """How often a judge decides, by its error and by the labels: wrongly where an error is .2, or it guesses."""
    for labels in (10, 20, 40, 80, 160):
        for a_case in (1, 4):
            row = []
            for error, alike in ((0.2, 0.0), (0.2, 0.5), (0.5, 0.0), (0.1, 0.0), (0.02, 0.0)):
                hits = 0
                for _ in range(runs):
                    hits += not trust_of(_labelled(rng, labels, a_case, error, alike)).why
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
        # All answers are ten times the labels, and look like them.
        passed = 10 * (both + false_pass)
        rows.append(JudgedCase(both, false_pass, false_fail, neither, passed, 10 * a_case))
    return rows


def over_k(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """How often the interval of pass@k and pass^k over cases misses the mean of cases like these."""
    for cases, repeats in ((5, 10), (10, 10), (30, 10), (10, 30)):
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
        rows = list(bounds(4 * runs, rng))
        print(table(("answers", "at it: NO-GO", "at it: GO", "10 % above: NO-GO", "10 % below: GO"), rows))
    if "collapse" in parts:
        print(_COLLAPSE)
        heads = ("cases", "answers", "none: NO-GO", "GO", "diverse: GO", "same: NO-GO", "new: NO-GO", "since: NO-GO")
        print(table(heads, list(collapse(runs, np.random.default_rng([given.seed, 2])))))
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

The threshold is a share of .7 of the commonest kind of answer.

- **none: NO-GO**: of `collapse: none`, and all cases are just at the threshold. Allowed: .025. **GO**: one case is, and
  all others are diverse. Allowed: .025.
- **diverse: GO**: every case has six kinds that are as common. **same: NO-GO**: all answers of a case are one.
- **new: NO-GO**: of `none-new`, and nothing changed (shares of .6 and .8). Allowed: .025. **since: NO-GO**: a share
  of .3 in the baseline, and one kind of answer now. These two by a fifth and a tenth of the runs.
"""
_JUDGES = """
## Judges that may decide

How often a judge decides by its labels, of which half are of answers that people pass: so many labels, so many of them
of one case. Where an error is .2, or the judge guesses, it should not: allowed is .025. *alike*: errors of a case are
alike with a correlation of .5.
"""
_OVER = """
## pass@k and pass^k over cases

How often the interval misses the mean of cases like these, the worst of twelve cells (means of .3, .5, .8 and .95,
correlations of .05, .2 and .5 within a case). Nominal: .025 at either end, and a coverage of .95.
"""


if __name__ == "__main__":
    main()
