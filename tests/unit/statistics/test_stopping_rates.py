"""The simulation behind the documented rates of stopping when decided, with fewer cases and another seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalq.evalcore.statistics.mode_share import spending_verdict, stopping_rule
from tests.bench.stopping import (
    CASES,
    COLLAPSE_SHARE,
    FIXED,
    MOST_CALLS,
    OTHERS,
    SEED,
    SHARES,
    limits,
    main,
    measure,
    modes,
    table,
)

SEEN = 600


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("share", SHARES)
def test_verdicts_are_seldom_wrong_however_often_one_looks(share: float, others: int) -> None:
    """At every share, near the threshold too: at most 5 % of cases ever have a wrong verdict in 1,000 looks."""
    cell = measure(share, others, 1000, SEEN, seed=12)
    assert cell.wrong <= cell.ever_wrong <= 0.05 * SEEN


@pytest.mark.parametrize(
    ("share", "others", "calls"), [(0.3, 6, 20), (0.4, 6, 32), (0.9, 1, 45), (0.95, 6, 26), (0.99, 1, 18)]
)
def test_cases_far_from_the_threshold_take_few_calls(share: float, others: int, calls: int) -> None:
    """Nearly all are decided within a hundred calls, in a fraction of them on average."""
    cell = measure(share, others, 100, SEEN, seed=13)
    assert cell.decided > 0.95 * SEEN
    assert cell.calls < calls * SEEN


@pytest.mark.parametrize("share", [0.3, 0.69, 0.71])
def test_the_interval_for_fixed_runs_fails_the_same_check(share: float) -> None:
    """So the check can fail: stopped by that interval, more than 5 % of the same cases end with a wrong verdict."""
    assert measure(share, 1, 1000, SEEN, seed=12).fixed_wrong > 0.05 * SEEN


def test_that_interval_looked_at_once_is_right() -> None:
    """After a hundred calls it decides a mode of exactly the threshold, always wrongly, in 5 % of cases at most."""
    cell = measure(1 - COLLAPSE_SHARE, 1, FIXED, 2000, seed=14)
    assert 0 < cell.fixed_decided <= 0.05 * 2000 < cell.fixed_wrong


def test_the_limits_are_those_of_the_verdict() -> None:
    """At every number of runs, the counts on both sides of either limit have the verdicts that the simulation takes."""
    collapsed, diverse = (side.tolist() for side in limits(stopping_rule(120), 120))
    for n in range(1, 121):
        said = [spending_verdict(m, n, COLLAPSE_SHARE, 120) for m in range(1, n + 1)]
        assert said.count("collapsed") == n + 1 - collapsed[n]
        assert said.count("diverse") == diverse[n]


def test_answers_are_drawn_with_their_probabilities() -> None:
    """The mode of many calls comes as often as it should; counts never fall, and grow by one call at a time."""
    before = None
    for after in modes((0.8, 0.1, 0.1), 400, 500, seed=3):
        assert before is None or set((after - before).tolist()) <= {0, 1}
        before = after
    assert before is not None
    assert before.mean() / 400 == pytest.approx(0.8, abs=0.005)


def test_a_cell_is_the_same_every_time() -> None:
    """The same seed gives the same numbers, another seed others."""
    assert measure(0.8, 6, 100, 50, 1) == measure(0.8, 6, 100, 50, 1)
    assert measure(0.8, 6, 100, 500, 1) != measure(0.8, 6, 100, 500, 2)


def test_the_table_has_a_row_for_every_cell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints one row a share, spread and number of calls, and the seed it used."""
    monkeypatch.setattr("sys.argv", ["stopping", "--cases", "4", "--seed", "3"])
    main()
    printed = capsys.readouterr().out
    assert printed == table(4, 3)
    assert "4 cases a row, seed 3" in printed
    assert printed.count("\n| ") == len(SHARES) * len(OTHERS) * len(MOST_CALLS) + 2


def test_the_documented_table_is_what_the_command_prints() -> None:
    """docs/reference/vs-stopping.md holds the table of the default cases and seed, line by line."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "vs-stopping.md").read_text(encoding="utf-8")
    assert table(CASES, SEED) in page
