"""Cases that nobody recorded: what bounds take for them, and which ones evaluators tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import evalq
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.summary import with_unrecorded
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of
from tests.unit.compare.made import passes, run_of


@pytest.mark.parametrize(
    ("demand", "unrecorded", "wanted"),
    [
        ({"min": 0.8}, 0, "GO"),
        ({"min": 0.8}, 2, "GO"),
        ({"min": 0.8}, 900, "INCONCLUSIVE"),
        ({"max": 0.05}, 900, "NO-GO"),
        ({"equals": 1.0}, 1, "INCONCLUSIVE"),
        ({"per_case": {"min_passes": 6, "of": 10}}, 0, "GO"),
        ({"per_case": {"min_passes": 6, "of": 10}}, 1, "INCONCLUSIVE"),
    ],
)
def test_cases_without_a_record_are_missing(demand: dict[str, Any], unrecorded: int, wanted: str) -> None:
    """A hundred of a thousand cases were recorded, and pass: GO by them alone."""
    run = run_of(passes([(10, 10)] * 100), {"verdict": "holds"})
    run.cases.unrecorded = [f"u{number}" for number in range(unrecorded)]
    decision = decide(Policy.model_validate({"gates": [{"metric": "vs.pass_rate", **demand}]}), [run], {})
    assert decision.decided == wanted
    assert any("without a record" in note for note in decision.notes) == bool(unrecorded)
    verdict = Policy.model_validate({"gates": [{"metric": "vs.verdict", "equals": "holds"}]})
    assert decide(verdict, [run], {}).decided == ("INCONCLUSIVE" if unrecorded else "GO")


def test_one_in_quarantine_is_missing_and_not_unknown() -> None:
    """The golden set has it, so nobody is to look for a misspelled name."""
    run = run_of(passes([(10, 10)] * 3))
    run.cases.unrecorded = ["u"]
    gate = {"metric": "vs.pass_rate", "per_case": {"min_passes": 6, "of": 10}}
    quarantine = [{"case": case, "reason": "flaky"} for case in ("u", "w")]
    decision = decide(Policy.model_validate({"gates": [gate], "quarantine": quarantine}), [run], {})
    assert [each.why.partition(",")[0] for each in decision.quarantined] == [
        "10 of its answers are missing",
        "no run has such a case",
    ]
    assert not any(each.quarantined for each in decision.quarantined)


def test_they_lack_as_many_answers_as_another_case_was_asked_for() -> None:
    """And stand among the others by their names."""
    cases = passes([(3, 3), (0, 0)], [4, 5], ids=["b", "d"])
    cases.labels, cases.unrecorded = [{"x": 3}, {}], ["c", "a", "b"]
    found = with_unrecorded(cases)
    assert (found.ids, found.missing) == (["a", "b", "c", "d"], [7, 4, 7, 5])
    assert (found.columns["pass_rate"].count, found.labels) == ([0, 3, 0, 0], [{}, {"x": 3}, {}, {}])
    assert with_unrecorded(found) is found


def test_evaluators_tell_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is a record, and a case that the selection leaves out should not be there."""
    monkeypatch.chdir(tmp_path)
    cases = [{"id": case, "expected": "yes", "tags": ["t"]} for case in ("fine", "broken", "silent")]
    Path("cases.yaml").write_text(json.dumps({"cases": [*cases, {"id": "other", "expected": "yes"}]}))
    lines = ({"case": "fine", "repeat": 0, "output": "yes"}, {"case": "broken", "repeat": 0, "error": "timeout"})
    Path("outputs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = evalq.evaluate(
        "checks", "cases.yaml", options={"outputs": ["outputs.jsonl"]}, params={"tag": "t"}, folder="run"
    )
    assert run.path is not None
    assert cases_of(RunFolder.existing(run.path)).cases.unrecorded == ["silent"]
