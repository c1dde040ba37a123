"""The drift detector: p-values and bets that hold by exact enumeration, and a chain that counts a run once."""

from __future__ import annotations

import math
from itertools import combinations, pairwise, product
from statistics import NormalDist

import msgspec
import numpy as np
import pytest

from evalq.evalcore.compare.drift import (
    PAGED,
    SHIFTS,
    Chain,
    Stake,
    approved,
    begin_chain,
    bet,
    count_in_chain,
    counted,
    worth,
)
from evalq.evalcore.compare.pairs import Pairs, Side
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary, RunCases
from evalq.evalcore.compare.surprise import of_cases
from evalq.evalcore.contract.measures import Measure

PASS = Measure("pass_rate")
SCORE = Measure("score", "score", 0.0, 5.0)


def _run(name: str, answers: dict[str, list[float]], target: str = "t", report: str = "") -> RunCases:
    ids = sorted(answers)
    column = CaseColumn(
        [len(answers[case]) for case in ids],
        [sum(answers[case]) for case in ids],
        [sum(each * each for each in answers[case]) for case in ids],
    )
    cases = CaseSummary([PASS], ids, [0] * len(ids), {PASS.name: column})
    return RunCases(
        run=name, evaluator="vs", version="1", target=target, specification="s", report=report or name, records={},
        cases=cases,
    )  # fmt: skip


def _side(answers: list[tuple[float, ...]]) -> Side:
    rows = np.array([(len(each), sum(each), sum(x * x for x in each)) for each in answers], dtype=float)
    return Side(rows[:, 0].astype(np.int64), rows[:, 1], rows[:, 2])


def _splits(bag: tuple[float, ...], new: int) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """All ways in which ``new`` of a case's answers can be the new ones, each as likely as any other."""
    chosen = [set(each) for each in combinations(range(len(bag)), new)]
    return [
        (tuple(x for at, x in enumerate(bag) if at not in one), tuple(x for at, x in enumerate(bag) if at in one))
        for one in chosen
    ]


BAGS = [
    (PASS, [(1, 1, 0), (1, 0, 0)], 1),
    (PASS, [(1, 1, 0, 0, 1), (1, 0, 1, 1, 1), (0, 0, 0, 0, 1)], 2),
    (PASS, [(1, 1, 1)] * 4, 1),
    (SCORE, [(5, 4.5, 1, 0), (3, 3.5, 2, 5), (0, 0, 1, 5)], 1),
    (SCORE, [(5, 4.5, 1, 0), (3, 3.5, 2, 5), (0, 0, 1, 5)], 3),
    (SCORE, [(5.0, 0.0), (5.0, 0.0), (5.0, 5.0)], 1),
]


@pytest.mark.parametrize(("measure", "bags", "new"), BAGS)
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_a_p_value_is_at_most_u_no_more_often_than_u(
    measure: Measure, bags: list[tuple[float, ...]], new: int, better: str
) -> None:
    """Over every division of each case's answers into old and new ones: exactly what no change means."""
    asked = Measure(measure.name, measure.kind, measure.low, measure.high, better)  # type: ignore[arg-type]  # one of two
    found = []
    for split in product(*(_splits(bag, new) for bag in bags)):
        pairs = Pairs(
            [str(at) for at in range(len(bags))], _side([old for old, _ in split]), _side([at for _, at in split]),
            [], [], 0,
        )  # fmt: skip
        found.append(of_cases(pairs, asked).p())
    for u in sorted(set(found)):
        assert sum(p <= u for p in found) <= u * len(found) * (1 + 1e-9)


@pytest.mark.parametrize(("scale", "least"), [(0.0, 0.999), (0.3, 0.999), (1.0, 0.8), (1.7, 0.4)])
def test_a_bet_is_fair_where_p_is_uniform_and_pays_more_the_smaller_p_is(scale: float, least: float) -> None:
    """Its mean, by an integral over p's normal deviate, is 1, or less by the evidence that is not kept."""
    step, normal = 0.001, NormalDist()
    deviates = [number * step - 8 for number in range(20_000)]
    paid = [worth(bet([], math.erfc(z / math.sqrt(2)) / 2, scale, 10.0)) for z in deviates]
    assert all(less <= more * (1 + 1e-9) for less, more in pairwise(paid))
    mean = sum(each * normal.pdf(z) * step for each, z in zip(paid, deviates, strict=True))
    assert least <= mean <= 1 + 1e-3


def test_a_stake_begun_earlier_bets_less_and_the_sum_is_bounded() -> None:
    """Of what was bet first only the part that the reference was then counts; and evidence is not kept without end."""
    stakes = bet([Stake(10.0, [0.0] * len(SHIFTS))], 1e-3, 1.0, 40.0)
    assert stakes[0].before == 10.0
    assert sum(map(math.exp, stakes[0].logs)) < sum(map(math.exp, stakes[1].logs))
    for _ in range(80):
        stakes = bet(stakes, 1e-12, 1.0, 40.0)
    assert len(stakes) <= 50
    assert worth(stakes) <= 10 * PAGED * (1 + 1e-9)


def test_a_run_counts_once_and_recorded_outputs_once_under_any_name() -> None:
    """The same run again changes nothing; nor do outputs without a target that were evaluated before."""
    good = {"a": [1.0, 1.0], "b": [1.0, 0.0]}
    chain = count_in_chain(begin_chain(_run("r0", good)), _run("r1", good))
    assert chain.runs == 1
    assert count_in_chain(chain, _run("r1", good)) is chain
    assert count_in_chain(chain, _run("r2", good, report="r1")).runs == 2
    recorded = begin_chain(_run("r0", good, target="", report="d"))
    assert count_in_chain(recorded, _run("r1", good, target="", report="d")) is recorded


def test_a_first_run_of_hardly_any_answers_leaves_a_chain_that_counts_on() -> None:
    """An outage, one answer of 500: shifts in its deviations were dozens of a whole run's, and their fees no number."""
    good, bad = ({f"{n:03}": [1.0] * k + [0.0] * (5 - k) for n in range(100)} for k in (4, 2))
    chain = count_in_chain(begin_chain(_run("r0", good)), _run("r1", {"000": [1.0]}))
    for number in range(2, 6):
        chain = count_in_chain(chain, _run(f"r{number}", good))
    assert not chain.watched[PASS.name].since
    assert count_in_chain(chain, _run("r6", bad)).watched[PASS.name].since == "r6"


def _scored(name: str, score: float | None) -> RunCases:
    run = _run(name, {f"{n:02}": [1.0, 0.0] for n in range(40)})
    if score is not None:
        run.cases.measures.append(SCORE)
        run.cases.columns[SCORE.name] = CaseColumn([5] * 40, [5 * score] * 40, [5 * score**2 + 1.0] * 40)
    return run


def test_a_run_without_values_of_a_measure_forgets_neither_its_page_nor_its_answers() -> None:
    """An optional measure that a run has no value of stood as if it had never been watched, on a pool without it."""
    chain = begin_chain(_scored("r0", 4.0))
    for number, score in enumerate((4.0, 1.0, 1.0)):
        chain = count_in_chain(chain, _scored(f"r{number + 1}", score))
    before = chain.watched[SCORE.name]
    assert before.since
    chain = count_in_chain(chain, _scored("r4", None))
    assert chain.watched[SCORE.name] == before
    assert sum(chain.pool.columns[SCORE.name].count) == 4 * 200
    assert sum(chain.pool.columns[PASS.name].count) == 5 * 80
    assert count_in_chain(chain, _scored("r5", 1.0)).watched[SCORE.name].since == before.since


def test_a_chain_that_forgot_a_measure_is_read_and_counts_on() -> None:
    """As chains in a ledger may have it, packed by what dropped them: the measure begins anew with its next values."""
    old = msgspec.msgpack.encode(count_in_chain(begin_chain(_scored("r0", None)), _scored("r1", None)))
    chain = msgspec.msgpack.decode(old, type=Chain)
    chain = count_in_chain(count_in_chain(chain, _scored("r2", 4.0)), _scored("r3", 1.0))
    assert chain.watched[SCORE.name].change < -0.5


def test_a_large_drop_pages_and_a_new_reference_starts_anew() -> None:
    """20 cases of 10 passes falling to 2 each page with the first run, and stop when the agent is mended."""
    high, low = ({f"{n:02}": [1.0] * k + [0.0] * (10 - k) for n in range(20)} for k in (9, 2))
    chain = count_in_chain(begin_chain(_run("r0", high), "baseline"), _run("r1", high))
    assert not chain.watched[PASS.name].since
    chain = count_in_chain(chain, _run("r2", low))
    assert chain.watched[PASS.name].since == "r2"
    assert chain.watched[PASS.name].change < -0.6
    for number in range(3, 20):
        chain = count_in_chain(chain, _run(f"r{number}", high))
    assert not chain.watched[PASS.name].since
    assert begin_chain(_run("r20", low)).watched[PASS.name].e == 0.0


def test_runs_with_cases_that_stopped_are_neither_counted_nor_a_reference() -> None:
    """How many answers such a case has depends on them: unchanged runs paged 34 times in a thousand."""
    answers = {f"{n:02}": [1.0] * 9 + [0.0] for n in range(20)}
    kept, stopped = _run("r0", answers), _run("r1", {case: [0.0] * 4 for case in answers})
    stopped.cases.stopped = stopped.cases.ids[:1]
    record = counted(None, kept)
    assert counted(record, stopped) is record
    assert counted(None, stopped) is None
    assert approved(record, stopped) is record
    assert approved(None, stopped) is None
