"""What commands say of a finished run without a server: its result and metrics, a cost only where one is known."""

from __future__ import annotations

import html
import json
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.summary import RunUsage
from evalq.producer.comparing.comparing import comparison_text, cost_text, decision_text
from evalq.producer.comparing.html import decision_html
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of
from tests.unit.compare.made import passes, run_of
from tests.unit.comparing.conftest import Command, Made

MADE = [(f"{number}", number < 3) for number in range(4)]


def test_status_begins_with_the_result(made: Made, here: Path, command: Command) -> None:
    """The headline of the run's page, before its counters; in JSON as `result`."""
    made("evalq-runs/one", MADE)
    done = command("status")
    assert done.code == 0, done.stderr
    result = json.loads(command("status", "--json").stdout)["result"]
    assert "3 of 4" in result or "75" in result, result
    lines = done.stdout.splitlines()
    assert f"result    {result}" in lines[:5]


def test_history_shows_the_metrics_that_are_watched(made: Made, here: Path, command: Command) -> None:
    """Of every run, those that its evaluator shows side by side; in JSON under the metric's whole name."""
    made("evalq-runs/one", MADE)
    made("evalq-runs/two", [(name, True) for name, _ in MADE])
    listed = json.loads(command("history", "--json").stdout)[0]["runs"]
    assert [run["metrics"]["evalq_verification_pass_rate"] for run in listed] == [1.0, 0.75]
    said = [line for line in command("history").stdout.splitlines() if "verification_pass_rate" in line]
    assert ["pass_rate 1" in said[0], "pass_rate 0.75" in said[1], len(said)] == [True, True, 2]


def test_retry_needs_no_option_for_its_only_form(made: Made, here: Path, command: Command) -> None:
    """It says the same with the option and without: here that nothing is there to try again."""
    folder = made("evalq-runs/one", MADE)
    plain, named = command("retry", str(folder)), command("retry", str(folder), "--errors")
    assert "nothing to retry" in plain.stderr
    assert plain == named


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        (RunUsage(outputs=4), "unknown"),
        (RunUsage(), "unknown"),
        (RunUsage(outputs=4, cost=1.0), "0.25"),
        (RunUsage(outputs=4, each={"cost": 0.0}), "0"),
        (RunUsage(outputs=4, each={"seconds": 0.1}), "unknown"),
    ],
    ids=["no price", "no output", "a price", "free", "times alone"],
)
def test_a_cost_that_nobody_knows_is_no_zero(usage: RunUsage, said: str, made: Made, here: Path) -> None:
    """A target whose price is 0 costs 0; one without a price, nobody knows what."""

    cases = msgspec.structs.replace(cases_of(RunFolder.existing(made("evalq-runs/one", MADE))), usage=usage)
    assert f"| cost an output | {said} | {said} |" in comparison_text(cases, cases, [])
    assert cost_text(usage) == said


def test_a_decision_s_title_and_its_cases_read_as_what_they_say() -> None:
    """The headline stands apart from the baseline's name, and a case that breaks a demand does not seem to keep it."""
    base, cand = passes([(40, 40)] * 20), passes([(0, 10)] + [(10, 10)] * 19)
    policy = Policy(gates=(Gate(metric="vs.pass_rate", max_drop=0.5),))
    decision = decide(policy, [run_of(cand)], {"vs": run_of(base)}, baseline="main")
    title = "SUSPECT: vs-run against main (20 equal cases of the baseline's 20 and the candidate's 20)"
    text = decision_text(decision)
    assert text.splitlines()[0] == f"# {title}"
    assert "SUSPECT by these cases (vs.pass\\_rate, no case falls beyond chance): c000000" in text.splitlines()
    assert f">{html.escape(title)}</h4>" in decision_html(decision)
    bounded = decide(Policy(gates=(Gate(metric="vs.pass_rate", min=0.5),)), [run_of(base)], {})
    assert decision_text(bounded).splitlines()[0] == "# GO: vs-run"
