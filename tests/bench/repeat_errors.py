"""How often demands on single cases, flakiness and quarantine err, simulated; prints the end of gate-errors.md.

    python -m tests.bench.repeat_errors --runs 2000 --seed 1 >> docs/reference/gate-errors.md

Runs are drawn from cases with known pass rates and decided on by the gate itself. Everything that is counted is wrong:
NO-GO where every case just keeps the demand, GO where one case lies just at it (and all others pass always), a case
called flaky or stable where it is neither, a case in quarantine that fell where nothing changed.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from itertools import product

import numpy as np

from evalq.evalcore.compare.decision import Decided, Quarantined
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Gate, PassK, PerCase, Policy
from evalq.evalcore.compare.single_cases import STEADY, flakiness, regression_check
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary, RunCases
from evalq.evalcore.contract.measures import Measure

PASS = Measure("pass_rate")
DEMANDS = {
    "8 of 10": PerCase(min_passes=8, of=10),
    "pass@3 .9": PerCase(pass_at_k=PassK(k=3, min=0.9)),
    "pass^3 .5": PerCase(pass_hat_k=PassK(k=3, min=0.5)),
}
CASES, REPEATS = (1, 5, 20, 100), ("5", "10", "30", "100", "5, 10 or 30")
LOST = 0.1
NIGHTS, NIGHTLY = 60, 5
RATES = (0.05, 0.5, 0.8, 0.9, 0.95, 0.97)
HISTORY, NOW = 100, 20


def main() -> None:
    """Simulate everything, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=2000, help="runs a cell")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for line in (*_demands(given.runs, given.seed), *_flaky(given.runs, given.seed), *_fallen(given.runs, given.seed)):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _run(passed: np.ndarray, answers: np.ndarray, missing: np.ndarray) -> RunCases:
    total = passed.astype(float).tolist()
    names = [f"{number:04d}" for number in range(len(total))]
    column = CaseColumn(answers.tolist(), total, total)
    cases = CaseSummary([PASS], names, missing.tolist(), {PASS.name: column})
    return RunCases(
        run="r", evaluator="vs", version="1", specification="s", report="0", records={"total": len(names)}, cases=cases
    )


def _decided(
    rng: np.random.Generator, rates: np.ndarray, repeats: np.ndarray, wanted: PerCase, lost: float = 0.0
) -> Decided:
    missing = rng.binomial(repeats, lost)
    answers = repeats - missing
    run = _run(rng.binomial(answers, rates), answers, missing)
    return decide(Policy(gates=(Gate(metric="vs.pass_rate", per_case=wanted),)), [run], {}).decided


def _repeats(given: str, cases: int) -> np.ndarray:
    return np.resize([int(word) for word in given.replace("or", ",").split(",") if word.strip()], cases)


def _demands(runs: int, seed: int) -> Iterator[str]:
    known = 1.96 * math.sqrt(0.025 * 0.975 / runs)
    yield ""
    yield "## Demands on single cases"
    yield ""
    yield f"Made by `python -m tests.bench.repeat_errors --runs {runs} --seed {seed}`: {runs:,} runs a cell, so that a"
    yield f"share of .025 is known to {known:.3f}, and the worst of many cells lies above its own by two to three such"
    yield "errors. What the demands mean: [choose repeats](../how-to/choose-repeats.md)."
    yield ""
    yield "- **NO-GO**: every case has exactly the pass rate of the demand. Allowed: .025."
    yield "- **GO**: one case has exactly that, and all others always pass. Allowed: .025."
    yield "- **lost**: either of these decisions if each answer is missing with a chance of .1. Allowed: .025."
    yield ""
    yield "| cases | repeats | " + " | ".join(f"{name}: NO-GO | GO | lost" for name in DEMANDS) + " |"
    yield "| ---: | ---: |" + " ---: |" * (3 * len(DEMANDS))
    worst = [0.0] * (3 * len(DEMANDS))
    for number, (cases, given) in enumerate(product(CASES, REPEATS)):
        if cases == 1 and not given.isdigit():
            continue
        repeats, found = _repeats(given, cases), []
        for at, wanted in enumerate(DEMANDS.values()):
            rng = np.random.default_rng([seed, number, at])
            share = wanted.demands[0].share
            border, one = np.full(cases, share), np.append(np.ones(cases - 1), share)
            lost = [_decided(rng, border, repeats, wanted, LOST) == "NO-GO" for _ in range(runs)]
            gone = [_decided(rng, one, repeats, wanted, LOST) == "GO" for _ in range(runs)]
            found += [
                sum(_decided(rng, border, repeats, wanted) == "NO-GO" for _ in range(runs)) / runs,
                sum(_decided(rng, one, repeats, wanted) == "GO" for _ in range(runs)) / runs,
                max(sum(lost), sum(gone)) / runs,
            ]
        worst = [max(pair) for pair in zip(worst, found, strict=True)]
        yield f"| {cases} | {given} | " + " | ".join(map(_share, found)) + " |"
    yield "| | **worst** | " + " | ".join(f"**{_share(each)}**" for each in worst) + " |"


def _flaky(runs: int, seed: int) -> Iterator[str]:
    yield ""
    yield "## Flaky by history"
    yield ""
    yield f"A case is answered {NIGHTLY} times a night for {NIGHTS} nights, and looked at after each: how often it was"
    yield f"ever called flaky or stable ({runs:,} cases a row), and how many nights it took to call half flaky. Wrong:"
    yield f"stable below a share of {STEADY:g} of the commoner result, flaky above it, and either at it. Allowed: .025."
    yield ""
    yield "| pass rate | ever flaky | ever stable | wrong | nights until half are called flaky |"
    yield "| ---: | ---: | ---: | ---: | ---: |"
    for number, rate in enumerate(RATES):
        rng = np.random.default_rng([seed, 1000, number])
        counts = rng.binomial(NIGHTLY, rate, (runs, NIGHTS)).cumsum(axis=1)
        firsts: list[int] = []
        stable = 0
        for row in counts.tolist():
            states = [flakiness(passed, NIGHTLY * (night + 1)) for night, passed in enumerate(row)]
            firsts += [states.index("flaky") + 1] if "flaky" in states else []
            stable += "stable" in states
        flaky, commoner = len(firsts) / runs, max(rate, 1 - rate)
        wrong = max(
            flaky if commoner >= STEADY - 1e-9 else 0.0,
            stable / runs if commoner <= STEADY + 1e-9 else 0.0,
        )
        half = f"{sorted(firsts)[runs // 2]}" if len(firsts) > runs // 2 else "-"
        yield f"| {rate:g} | {_share(flaky)} | {_share(stable / runs)} | {_share(wrong)} | {half} |"


def _fallen(runs: int, seed: int) -> Iterator[str]:
    yield ""
    yield "## Cases in quarantine that fell"
    yield ""
    yield f"Cases with {HISTORY} answers of history, of which those that it proves flaky are in quarantine, and {NOW}"
    yield "new ones. **NO-GO**: by any of them though nothing changed; allowed: .025. **of those set aside**: the same"
    yield "among runs in which a case was set aside. **seen**: NO-GO where the rate of each halved."
    yield ""
    yield "| cases | pass rate | NO-GO | of those set aside | seen |"
    yield "| ---: | ---: | ---: | ---: | ---: |"
    for number, (cases, rate) in enumerate(product((1, 5, 20), (0.1, 0.3, 0.6, 0.9))):
        rng = np.random.default_rng([seed, 2000, number])
        alarms = aside = seen = 0
        for _ in range(runs):
            before = rng.binomial(HISTORY, rate, cases)
            held = _held(before, rng.binomial(NOW, rate, cases))
            aside += bool(held)
            alarms += _stops(held)
            seen += _stops(_held(before, rng.binomial(NOW, rate / 2, cases)))
        conditional = _share(alarms / aside) if aside else "-"
        yield f"| {cases} | {rate:g} | {_share(alarms / runs)} | {conditional} | {_share(seen / runs)} |"


def _held(before: np.ndarray, now: np.ndarray) -> list[Quarantined]:
    return [
        Quarantined("vs", f"{at}", True, "", "", passed=new, answers=NOW, history=(old, HISTORY))
        for at, (old, new) in enumerate(zip(before.tolist(), now.tolist(), strict=True))
        if flakiness(old, HISTORY) == "flaky"
    ]


def _stops(held: list[Quarantined]) -> bool:
    return any(check.decided == "NO-GO" for check in regression_check(_EMPTY, held))


def _share(value: float) -> str:
    return f"{value:.4f}".lstrip("0") if 0 < value < 1 else f"{value:g}"


_EMPTY = _run(np.zeros(0), np.zeros(0, dtype=int), np.zeros(0, dtype=int))

if __name__ == "__main__":
    main()
