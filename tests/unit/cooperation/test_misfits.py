"""Where the rules do not fit a log its first line says so, and what stands in it is named beside the numbers."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.evaluators.cooperation import evaluator
from evalq.evalcore.evaluators.cooperation.columns import chunk_state
from evalq.evalcore.evaluators.cooperation.params import Rules
from evalq.evalcore.evaluators.cooperation.report import CooperationState
from evalq.evalcore.evaluators.cooperation.score import unknown_counts
from evalq.evalcore.evaluators.cooperation.views import page_summary
from evalq.evalcore.fold import evaluate_files
from tests.unit.cooperation.logs import as_jsonl


def report_of(folder: Path, events: list[dict[str, Any]], **params: Any) -> dict[str, Any]:
    """The report of one log "a.jsonl"."""
    log = folder / "a.jsonl"
    log.write_bytes(as_jsonl(events))
    return evaluate_files(evaluator, [log], params).report


def event(turn: int, agent: str, decision: str | None, **resources: float) -> dict[str, Any]:
    """One row."""
    return {"turn": turn, "agent": agent, "decision": decision, "resources": resources}


@pytest.mark.parametrize("words", [["협력", "배신"], ["C", "D"], ["coop", "noop"], [" cooperate ", "betrayed"]])
def test_a_log_without_a_word_of_the_rules_says_so_first(tmp_path: Path, words: list[str]) -> None:
    """In the first line of the report, on the page, in a note, in what is left out; with the words that there are."""
    events = [event(turn, agent, words[turn % 2], stone=9 - turn) for turn in range(6) for agent in "ab"]
    report = report_of(tmp_path, events)
    entry = report["results"]["logs"]["a.jsonl"]
    assert entry["unknown_decisions"] == {word.lower(): 6 for word in words}
    assert (entry["cooperation_rate"], entry["snapshots"]) == (0.0, 12)
    first = evaluator.views.markdown(report, {}).splitlines()[0]
    assert "no decision in a.jsonl is a word of the rules" in first
    assert page_summary(report).headline.startswith("No decision in the log is a word of the rules")
    assert any("is a word of the rules" in note for note in evaluator.views.notices(report))
    (gap,) = report["left_out"]
    assert (gap["what"], gap["count"], gap["instead"]) == ("log", 1, "a cooperation rate of 0")


@pytest.mark.parametrize("resources", [{}, {"wood": 3.0}, {"Stone": 3.0}])
def test_a_log_without_the_resource_says_so_first(tmp_path: Path, resources: dict[str, float]) -> None:
    """A Gini of 0 is "equal" only where something could be contributed."""
    report = report_of(tmp_path, [event(turn, agent, "join", **resources) for turn in range(3) for agent in "ab"])
    assert report["results"]["logs"]["a.jsonl"]["snapshots"] == 0
    assert "no row of a.jsonl has the resource" in evaluator.views.markdown(report, {}).splitlines()[0]
    assert [gap["instead"] for gap in report["left_out"]] == ["contributions of 0 and a Gini of 0"]


def test_a_log_that_the_rules_fit_says_nothing(tmp_path: Path) -> None:
    """Neutral words are counted and are no reason for a doubt; a log of betrayals alone is one that fits."""
    for word in ("join", "BETRAY"):
        report = report_of(tmp_path, [event(1, "a", word, stone=3), event(2, "a", "wait", stone=2)])
        assert report["results"]["logs"]["a.jsonl"]["unknown_decisions"] == {"wait": 1}
        assert evaluator.views.markdown(report, {}).splitlines()[0] == "# Cooperation metrics"
        assert "left_out" not in report
        assert evaluator.views.notices(report) == []


def test_two_runs_in_one_log_are_noted(tmp_path: Path) -> None:
    """A run appended to another repeats each of its (turn, agent); the first of them is named."""
    run = [event(turn, agent, "join", stone=9 - turn) for turn in (3, 4, 5) for agent in "ba"]
    report = report_of(tmp_path, run + run)
    about = report["results"]["logs"]["a.jsonl"]["metadata"]
    assert (about["repeated_rows"], about["first_repeated"]) == (6, {"turn": 3, "agent": "a"})
    (note,) = evaluator.views.notices(report)
    assert "(turn, agent) occurs twice: turn 3, agent a; 6 such rows in all" in note
    assert "two runs in one log?" in note


@pytest.mark.parametrize("twice", [[0, 1], [0, 2], [0, 1, 2]])
def test_rows_of_one_turn_and_agent_are_noted_in_any_place(tmp_path: Path, twice: list[int]) -> None:
    """Next to each other, with another agent's row between, and three times."""
    events = [event(1, "a" if at in twice else "b", "join", stone=1) for at in range(4)]
    about = report_of(tmp_path, events)["results"]["logs"]["a.jsonl"]["metadata"]
    counts = Counter(("a" if at in twice else "b") for at in range(4))
    assert about["repeated_rows"] == sum(rows - 1 for rows in counts.values())


def test_pieces_of_a_log_know_what_the_whole_does() -> None:
    """Unknown words, snapshots and repeated turns of random logs are those of any cut, and those counted by hand."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    for _ in range(60):
        log = []
        turn = 0
        for _ in range(rng.randrange(1, 30)):
            turn += rng.choice([0, 0, 1])
            word = rng.choice(["join", "Steal", "wait", "WAIT", "말", None])
            row = event(turn, rng.choice("abc"), word)
            if rng.random() < 0.6:
                row["resources"] = {"stone": rng.randrange(9)}
            log.append(row)
        lines = as_jsonl(log).splitlines(keepends=True)
        whole = CooperationState.zero()
        cuts = sorted({0, len(lines), *(rng.randrange(len(lines) + 1) for _ in range(3))})
        for start, end in itertools.pairwise(cuts):
            state, _ = chunk_state(Batch("x", start + 1, b"".join(lines[start:end])), Rules())
            whole.merge(CooperationState.from_wire(state.to_wire()))
        known = {*Rules().cooperative_decisions, *Rules().betrayal_decisions}
        words = Counter(row["decision"].lower() for row in log if row["decision"])
        assert dict(whole.unknown.top(99)) == {word: [n] for word, n in words.items() if word not in known}, seed
        assert whole.snapshots == sum("stone" in row["resources"] for row in log), seed
        pairs = Counter((row["turn"], row["agent"]) for row in log)
        assert sum(own.repeats for own in whole.agents.values()) == sum(n - 1 for n in pairs.values()), seed
        first = [own.repeated_turn for own in whole.agents.values() if own.repeated_turn is not None]
        assert min(first, default=None) == min((turn for (turn, _), n in pairs.items() if n > 1), default=None), seed


def test_a_new_word_in_every_row_costs_no_more_than_some_thousand() -> None:
    """Words are bounded in a state's bytes, their number is not lost."""
    log = as_jsonl([event(1, "a", f"word {n}") for n in range(9000)])
    state, _ = chunk_state(Batch("x", 1, log), Rules())
    assert state.unknown.sum() == 9000
    assert len(msgspec.json.decode(state.to_wire())["unknown"][0]) <= 2000
    assert unknown_counts(["A", "a"], [0, 0, 0], [2, 3]) == {"a": 5}


def test_skipped_lines_are_left_out_by_line(tmp_path: Path) -> None:
    """Those that are no events are named with line and reason, as everything that a report leaves out."""
    log = tmp_path / "a.jsonl"
    log.write_bytes(as_jsonl([event(1, "a", "join", stone=1)]) + b"no event\n")
    report = evaluate_files(evaluator, [log], {"skip_bad_lines": True}).report
    (gap,) = report["left_out"]
    assert (gap["what"], gap["examples"][0]["where"]) == ("line", "a.jsonl:2")
