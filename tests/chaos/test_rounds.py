"""Rounds of commands at one instant, one of each kind, and what their judgement and their table are worth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.rounds.fleet import running_workers
from tests.chaos.rounds.page import render
from tests.chaos.rounds.rounds import Arena, Round, play

PROCESSES = 4


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Arena:
    """The input and the inline reports."""
    return Arena(tmp_path_factory.mktemp("rounds") / "arena")


@pytest.mark.parametrize("way", ["inline", "embedded"])
def test_equal_commands_compute_once(arena: Arena, tmp_path: Path, way: str) -> None:
    """Exits 0, one run, the inline run's bytes from all of them."""
    line = play(Round(way, "same", 0, PROCESSES), arena, tmp_path / "round")
    assert (line["why"], line["ended"], line["runs"], line["computed"]) == ("", PROCESSES, 1, line["chunks"])


@pytest.mark.parametrize("number", [0, 3, 4], ids=["chunk size", "parameters, one folder", "code"])
def test_what_differs_is_another_run_or_is_refused(arena: Arena, tmp_path: Path, number: int) -> None:
    """Each command's report is that of its own inline run; in one folder there is room for one of the two runs."""
    one = Round("inline", "other", number, PROCESSES)
    line = play(one, arena, tmp_path / "round")
    assert line["why"] == ""
    assert (line["ended"], line["refused"]) == ((PROCESSES // 2, PROCESSES // 2) if one.named else (PROCESSES, 0))


def test_commands_in_many_folders_share_one_run_of_a_fleet(arena: Arena, tmp_path: Path) -> None:
    """Computed once by the evaluator's count and by the ledger's."""
    with running_workers(arena) as server:
        one = Round("fleet", "folders", 0, PROCESSES, server.url)
        line = play(one, arena, tmp_path / "round", server.client)
    assert (line["why"], line["ended"], line["runs"]) == ("", PROCESSES, 1)
    assert line["computed"] == line["ledger"] == line["chunks"]


def test_a_round_that_computes_twice_is_reported(arena: Arena, tmp_path: Path) -> None:
    """The negative control: in folders of their own, and without a server, commands do not know of each other."""
    line = play(Round("inline", "folders", 0, 3), arena, tmp_path / "round")
    assert f"{3 * line['chunks']} chunks were computed for {line['chunks']}" in line["why"]


def test_the_table_counts_the_last_line_of_each_round() -> None:
    """A round that was run again counts once; what went wrong is said below."""
    base = {
        "way": "fleet", "kind": "same", "round": 1, "differs": "", "named": False, "processes": 20, "ended": 19,
        "refused": 0, "runs": 1, "chunks": 10, "computed": 11, "equal": 19, "spread": 0.05, "seconds": 2.0,
        "commit": "abc", "dirty": False, "why": "x",
    }  # fmt: skip
    again = base | {"ended": 20, "equal": 20, "computed": 10, "why": ""}
    text = render([base, again, base | {"round": 2}])
    assert "| fleet | equal, in one folder | 2 | 40 | 39 | 0 | 1 | 2 | 20 | 21 | 39 | 50 ms | 2.0 |" in text
    assert "2 rounds, 1 of them wrong, at commit abc." in text
