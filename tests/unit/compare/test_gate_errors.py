"""How often a gate errs, in short: the full table is docs/reference/gate-errors.md, by tests/bench/gate_errors.py."""

from __future__ import annotations

import pytest

from tests.bench.gate_errors import Cell, bounded, simulated, three_gates

CELLS = [(10, "3", 0.5), (20, "10", 0.9), (50, "1", 0.9), (50, "2, 5 or 10", 0.5)]
PAIRS = 60


@pytest.mark.parametrize(
    ("shape", "no_go", "suspect", "go"),
    [
        ("none", 0.025, 0.025, 1.0),
        ("half", 0.01, 1.0, 1.0),
        ("all", 0.05, 1.0, 0.05),
        ("some", 0.05, 1.0, 0.05),
    ],
)
def test_decisions_err_as_often_as_stated(shape: str, no_go: float, suspect: float, go: float) -> None:
    """Without a change, at half the margin, and at the margin; cells of one answer a case and of unequal ones too."""
    found = [simulated(Cell(*cell, shape), [7, number], PAIRS) for number, cell in enumerate(CELLS)]
    pairs = PAIRS * len(CELLS)
    for name, stated in (("stops", no_go), ("suspects", suspect), ("passes", go)):
        seen = sum(getattr(each, name) for each in found)
        assert seen <= pairs * stated + 4 * (pairs * stated) ** 0.5, name
    if shape == "none":
        assert sum(each.named for each in found) <= pairs * 0.025 + 4 * (pairs * 0.025) ** 0.5


def test_bounds_and_several_gates_err_as_often_as_stated() -> None:
    """A bound at the true mean; NO-GO or SUSPECT by any of three gates, by Holm."""
    cells = [Cell(*cell, "none") for cell in CELLS]
    at_bound = [bounded(cell, [7, number], PAIRS) for number, cell in enumerate(cells)]
    of_three = [three_gates(cell, [7, number], PAIRS // 3) for number, cell in enumerate(cells)]
    pairs = PAIRS * len(cells)
    for seen in (sum(each.stops for each in at_bound), sum(each.passes for each in at_bound)):
        assert seen <= pairs * 0.035 + 4 * (pairs * 0.035) ** 0.5
    pairs = sum(each.pairs for each in of_three)
    assert sum(each.stops + each.suspects for each in of_three) <= pairs * 0.05 + 4 * (pairs * 0.05) ** 0.5
