"""The simulation behind the documented coverage, with 2,000 draws a cell and a fixed seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.interval_coverage import DRAWS, RUNS, SEED, distributions, main, measure, table

CELLS = [(name, runs) for name in distributions() for runs in RUNS]


@pytest.mark.parametrize(("name", "runs"), CELLS)
def test_intervals_cover_and_verdicts_are_seldom_wrong(name: str, runs: int) -> None:
    """Both intervals hold the truth in 93 % of draws or more, a verdict is wrong in 5 % at most."""
    cell = measure(name, distributions()[name], runs, draws=2000, seed=11)
    assert cell.mode_share >= 0.93
    assert cell.collision >= 0.93
    assert cell.wrong <= 0.05


def test_the_table_has_a_row_for_every_cell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints one row a distribution and number of runs, and the seed it used."""
    monkeypatch.setattr("sys.argv", ["interval_coverage.py", "--draws", "5", "--seed", "3"])
    main()
    printed = capsys.readouterr().out.splitlines()
    assert printed == list(table(5, 3))
    assert "seed 3" in printed[0]
    assert sum(line.startswith("| ") for line in printed) == len(CELLS) + 2


def test_the_documented_table_is_what_the_command_prints() -> None:
    """docs/reference/vs-statistics.md holds the table of the default draws and seed, line by line."""
    documented = (Path(__file__).parents[3] / "docs" / "reference" / "vs-statistics.md").read_text(encoding="utf-8")
    assert "\n".join(table(DRAWS, SEED)) in documented


def test_a_cell_is_the_same_every_time() -> None:
    """The same seed gives the same numbers, another seed others."""
    shares = distributions()["zipf over 100"]
    assert measure("zipf", shares, 10, 50, 1) == measure("zipf", shares, 10, 50, 1)
    assert measure("zipf", shares, 10, 500, 1) != measure("zipf", shares, 10, 500, 2)
