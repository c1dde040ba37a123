"""How often lost replies turn an innocent build red, simulated; prints the last part of docs/reference/gate-errors.md.

    python -m tests.bench.lost_replies --runs 2000 --seed 1 >> docs/reference/gate-errors.md

Base and candidate answer alike, and a server loses some replies of either side for good. Decisions are those of
`decide`, with one demand (a fall of at most 5 points) and the veto of named cases.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import msgspec
import numpy as np

from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary, RunCases, RunUsage
from evalq.evalcore.contract.measures import Measure
from tests.bench.gate_errors import MARGIN, fallen

PASS = Measure("pass_rate")
POLICY = Policy(gates=(Gate(metric="checks.pass_rate", max_drop=MARGIN),))
BASE = 4
"""The baseline has so many times the repeats of a candidate."""


class Cell(NamedTuple):
    """What is drawn: ``lost`` is the share of replies that either side loses."""

    cases: int
    repeats: int
    rate: float
    lost: float


CELLS = [
    Cell(cases, repeats, rate, lost)
    for cases, repeats in ((200, 1), (100, 2), (20, 10))
    for rate in (1.0, 0.95)
    for lost in (0.001, 0.01)
]


class Found(NamedTuple):
    """Shares of gates: red by the rule before, red now, red if nothing is lost; those of which the candidate is blamed;
    and GO although the mean fell by the margin.
    """

    before: float
    now: float
    without: float
    blamed: float
    passes: float


def main() -> None:
    """Simulate every cell, and print the section."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=2000, help="gates a cell")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with ProcessPoolExecutor(2) as pool:
        seeds = [[given.seed, number] for number in range(len(CELLS))]
        found = list(pool.map(simulated, CELLS, seeds, [given.runs] * len(CELLS)))
    sys.stdout.write("\n".join(_section(found, given.runs, given.seed)) + "\n")


def simulated(cell: Cell, seed: list[int], runs: int) -> Found:
    """Gates over answers that lose replies, and over the same answers without losses."""
    rng = np.random.default_rng(seed)
    counts: Counter[str] = Counter()
    for _ in range(runs):
        rates = np.full(cell.cases, cell.rate) if cell.rate == 1.0 else rng.beta(
            20 * cell.rate, 20 * (1 - cell.rate), cell.cases
        )  # fmt: skip
        base, cand = _run(rng, rates, BASE * cell.repeats, cell.lost), _run(rng, rates, cell.repeats, cell.lost)
        decided = decide(POLICY, [cand], {"checks": base}).decided
        # The run ended with 3 before its gate decided anything.
        counts["before"] += decided != "GO" or any(cand.cases.missing)
        counts["now"] += decided != "GO"
        counts["blamed"] += decided in ("NO-GO", "SUSPECT")
        whole = [_run(rng, rates, repeats, 0.0) for repeats in (BASE * cell.repeats, cell.repeats)]
        counts["without"] += decide(POLICY, whole[1:], {"checks": whole[0]}).decided != "GO"
        worse = _run(rng, fallen(rates, MARGIN), cell.repeats, cell.lost)
        counts["passes"] += decide(POLICY, [worse], {"checks": base}).decided == "GO"
    return Found(*(counts[name] / runs for name in Found._fields))


def _run(rng: np.random.Generator, rates: np.ndarray, repeats: int, lost: float) -> RunCases:
    missing = rng.binomial(repeats, lost, len(rates))
    answers = repeats - missing
    passed = rng.binomial(answers, np.clip(rates, 0, 1)).astype(float).tolist()
    column = CaseColumn(answers.tolist(), passed, passed)
    cases = CaseSummary([PASS], [f"{n:03d}" for n in range(len(rates))], missing.tolist(), {PASS.name: column})
    run = RunCases(
        run="run", evaluator="checks", version="1", specification="s", report="0", records={}, cases=cases, target="a"
    )
    return msgspec.structs.replace(run, usage=RunUsage(outputs=repeats * len(rates)))


def _section(found: list[Found], runs: int, seed: int) -> Iterator[str]:
    yield "\n## Replies that a server loses\n"
    yield f"Made by `python -m tests.bench.lost_replies --runs {runs} --seed {seed}`: {runs:,} gates a cell. Base and"
    yield "candidate answer alike, and either side loses a share of its replies for good. Before, one lost reply ended"
    yield "the job with exit code 3. Now the gate counts it at the worst, and is INCONCLUSIVE only if that matters.\n"
    yield "- **red before**, **red now**: the share of jobs without GO. **without loss**: the same if no reply is lost."
    yield "- **blamed**: NO-GO or SUSPECT. Allowed: .05. **GO, margin**: GO although the mean fell by the margin."
    yield "  Allowed: .05.\n"
    yield "| cases | repeats | rate | lost | red before | red now | without loss | blamed | GO, margin |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for cell, each in zip(CELLS, found, strict=True):
        shares = " | ".join(f"{100 * share:.1f} %" for share in each)
        yield f"| {cell.cases} | {cell.repeats} | {cell.rate:g} | {100 * cell.lost:g} % | {shares} |"


if __name__ == "__main__":
    main()
