"""Coverage and errors of the vs report's statistics, counted over all outcomes instead of drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.exact_coverage import COLLAPSE_SHARES, FAMILIES, RUNS, cells, outcomes, row


@pytest.mark.parametrize("family", FAMILIES)
def test_intervals_cover_and_verdicts_err_as_promised(family: str) -> None:
    """The mode's share is held in 95 % and the collision probability in 93 % of every cell; a p-value of 2.5 % at the
    mode's own share comes in 2.5 % at most; a verdict is wrong in 5 % at most, whatever the threshold.
    """
    for cell in cells(family):
        assert cell.mode_share >= 0.95, cell
        assert cell.collision >= 0.93, cell
        assert cell.surprised <= 0.025 + 1e-12, cell
        assert cell.wrong <= 0.05, cell


@pytest.mark.parametrize("share", COLLAPSE_SHARES)
@pytest.mark.parametrize("runs", RUNS[:-2])
def test_a_mode_at_the_threshold_is_called_collapsed_in_one_case_in_forty(share: float, runs: int) -> None:
    """At the threshold itself, just above one half too, with one other answer that has the rest: 2.5 % at most."""
    from evalq.evalcore.statistics.mode_share import FIXED_RUNS

    found, mode, _ = outcomes(FAMILIES[0], share, runs)
    threshold = max(share, 1 - share)
    assert mode == threshold
    said = [chance for chance, counts in found if FIXED_RUNS.verdict(max(counts), runs, threshold) == "collapsed"]
    assert sum(said) <= 0.025 + 1e-12


@pytest.mark.parametrize("family", FAMILIES)
def test_all_outcomes_are_gone_through(family: str) -> None:
    """Their probabilities add up to one."""
    assert sum(chance for chance, _ in outcomes(family, 0.7, 8)[0]) == pytest.approx(1)


def test_the_documented_table_is_what_the_command_prints() -> None:
    """docs/reference/vs-statistics.md holds the worst cell of each family."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "vs-statistics.md").read_text(encoding="utf-8")
    for family in FAMILIES:
        assert "| " + " | ".join(str(value) for value in row(family)) + " |" in page
