"""How often a run that is extended until it passes goes through though it fell, or is stopped though it did not.

    python -m tests.bench.growing --histories 1000 --seed 1

A history is a baseline and one candidate, whose run is extended nine times by as many answers as it began with, and
gated each time by what commands decide with. Compared with it: the same gate without a count.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product

import numpy as np

from evalq.evalcore.compare.comparison import estimate
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.spending import SINGLE, Errors, growing_run_errors
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary
from evalq.evalcore.contract.measures import Measure

PASS = Measure("pass_rate")
MARGIN, LOOKS = 0.1, 10
CELLS = [(10, 5), (30, 5), (100, 1)]
RATES = (0.5, 0.9)


def main() -> None:
    """Simulate every cell, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--histories", type=int, default=1000, help="histories a cell")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    sys.stdout.write("cases x answers a step, rate: fell and went, counted / not; same and stopped, counted / not\n")
    for (cases, step), rate in product(CELLS, RATES):
        shares = []
        for fall, counted in product((MARGIN, 0.0), (True, False)):
            rng = np.random.default_rng([given.seed, cases, step, round(10 * rate)])  # the same answers for both
            wrong = "GO" if fall else "NO-GO"
            shares.append(
                float(
                    np.mean([wrong in _history(rng, cases, step, rate, fall, counted) for _ in range(given.histories)])
                )
            )
        line = "{:.3f} / {:.3f}; {:.3f} / {:.3f}".format(*shares)
        sys.stdout.write(f"{cases} x {step}, {rate}: {line}\n")


def _history(rng: np.random.Generator, cases: int, step: int, rate: float, fall: float, counted: bool) -> set[str]:
    """What is decided at any look, until a GO ends it or a NO-GO stops it for good."""
    rates = rng.beta(4 * rate, 4 * (1 - rate), cases) * (1 - fall) + fall
    base = rng.binomial(4 * step * LOOKS, rates)
    passed, decided = np.zeros(cases, dtype=int), set[str]()
    for look in range(1, LOOKS + 1):
        passed += rng.binomial(step, rates - fall)
        errors = growing_run_errors(look) if counted else SINGLE
        if not decided & {"GO", "NO-GO"}:  # all answers are drawn, so that both rules see the same
            decided.add(_held(_summary(base, 4 * step * LOOKS), _summary(passed, step * look), errors))
    return decided


def _held(base: CaseSummary, cand: CaseSummary, errors: Errors) -> str:
    seen = estimate(pairs_of(base, cand, PASS), PASS, errors.go)
    if seen.low > -MARGIN:
        return "GO"
    return "NO-GO" if seen.p_worse <= errors.no_go else "INCONCLUSIVE"


def _summary(passed: np.ndarray, repeats: int) -> CaseSummary:
    totals = [float(each) for each in passed]
    column = CaseColumn([repeats] * len(totals), totals, list(totals))
    return CaseSummary([PASS], [f"c{n}" for n in range(len(totals))], [0] * len(totals), {PASS.name: column})


if __name__ == "__main__":
    main()
