"""A number that no bound holds is refused: a budget of "nan" was none, and nothing said so."""

from __future__ import annotations

import signal
from math import inf, nan
from pathlib import Path

import msgspec
import pytest

import evalq
from evalq.evalcore.errors import UsageError
from evalq.producer.cli import main
from evalq.producer.sweep.options import SweepOptions
from tests.agents.server import write_golden

OPTIONS = [
    ("vs", "golden.json", "--target", "t", "--max-cost"),
    ("resume", "--max-cost"),
    ("prune", "--older-than"),
    ("compare", "a", "b", "--margin"),
    ("check-regressions", "a", "--margin"),
    ("gate", "a", "--dry-run", "--rate"),
    ("cooperation", "log.jsonl", "--follow", "--every"),
]


@pytest.mark.parametrize("words", OPTIONS, ids=lambda words: f"{words[0]} {words[-1]}")
@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_a_wrong_value_of_its_option(
    here: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], number: str
) -> None:
    """Before anything is read or called."""
    handler = signal.getsignal(signal.SIGTERM)
    code = main([*words, number])
    signal.signal(signal.SIGTERM, handler)
    assert code == 2
    assert f"Invalid value for '{words[-1]}'" in capsys.readouterr().err
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("budget", [{"max_cost": nan}, {"max_cost": inf}, {"max_cost": -1.0}, {"max_calls": -1}])
def test_a_budget_in_python_is_held_to_the_same(here: Path, budget: dict[str, float]) -> None:
    """New or given anew: no run folder is made."""
    write_golden(here / "golden.json", {"A": {}})
    (name, value), *_ = budget.items()
    with pytest.raises(UsageError, match=f"^{name}={value}: not a budget; give a number above 0, or 0 for none"):
        evalq.sweep("vs", "golden.json", target="t", **budget)  # type: ignore[arg-type]  # one of them
    with pytest.raises(UsageError, match=f"^{name}={value}"):
        msgspec.structs.replace(SweepOptions("t"), **budget)
    assert [path.name for path in here.iterdir()] == ["golden.json"]
