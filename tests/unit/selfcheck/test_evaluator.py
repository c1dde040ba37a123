"""Records in, lines, counts and report out; broken records are reported with a path and never scored."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalq.evalcore.conformance import check
from evalq.evalcore.contract.evaluator import Batch, InputResult, dead_outcome
from evalq.evalcore.contract.params import validate
from evalq.evalcore.evaluators.selfcheck import DANGER_SIGNALS, SELF_CHECK_QUESTIONS, SelfCheckParams, evaluator
from evalq.evalcore.evaluators.selfcheck.report import SelfCheckState
from evalq.evalcore.evaluators.selfcheck.sample import write_records
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.views.markdown import escape
from tests.portions import some
from tests.unit.selfcheck.hard import hard_files

GOOD = {
    "id": "good",
    "testOutput": "2 passed, it usually takes longer",
    "testsPassed": True,
    "requirementsList": [{"requirement": "r", "met": True}],
    "hallucinated": False,
}
BAD = {"id": "bad", "testOutput": "without concrete evidence", "hallucinated": True}

BROKEN = {
    "[]": "$: expected an object, got an array",
    '{"testOutput": 3}': "$.testOutput: expected `str | null`, got `int`",
    '{"testsPassed": "true"}': "$.testsPassed: expected `bool | null`, got `str`",
    '{"evidence": {}}': "$.evidence: expected `array | null`, got `object`",
    '{"evidence": [{"type": "log", "content": 7}]}': "$.evidence[0].content: expected `str`, got `int`",
    '{"requirementsList": [{"requirement": "r"}]}': "$.requirementsList[0].met: missing",
    '{"requirementsList": [{"requirement": "r", "met": 1}]}': "$.requirementsList[0].met: expected `bool`, got `int`",
    '{"assumptions": ["a"]}': "$.assumptions[0]: expected `object`, got `str`",
    '{"codeChanges": [{"file": "f"}]}': "$.codeChanges[0].diff: missing",
    '{"hallucinated": "no"}': "$.hallucinated: expected `bool | null`, got `str`",
    '{"goalVerification": {}}': "$.goalVerification.passed: missing",
    '{"goalVerification": {"passed": true, "paths": [{}]}}': "$.goalVerification.paths[0].path: missing",
    '{"id": [1]}': "$.id: expected",
    '{"id": "a", "id": "b"}': "$.id: the key occurs twice",
    '{"expectedPaths": ["a"]}': "$.expectedPaths: not resolved",
}


def _run(tmp_path: Path, *records: Any, **params: Any) -> dict[str, Any]:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    return evaluate_files(evaluator, [path], params).report


@pytest.mark.parametrize(("line", "reason"), BROKEN.items(), ids=range(len(BROKEN)))
def test_a_broken_record_is_an_error_with_a_path(line: str, reason: str) -> None:
    """Status error, a listed fault, no result, and its neighbours are untouched."""
    data = f"{json.dumps(GOOD)}\n{line}\n{json.dumps(BAD)}\n".encode()
    outcome = evaluator.evaluate(Batch("f", 1, data), SelfCheckParams())
    lines = [json.loads(shown) for shown in outcome.lines]
    assert [shown["status"] for shown in lines] == ["passed", "error", "failed"]
    assert lines[1]["reason"].startswith(reason)
    assert "result" not in lines[1]
    assert outcome.tally.errors == 1
    assert outcome.tally.listed.first == [(2, lines[1]["reason"])]
    assert outcome.tally.fatal.total == 0
    assert (outcome.tally.scored, outcome.state.checked) == (2, 2)


def test_null_is_as_good_as_absent() -> None:
    """What writers of JSON put where nothing was given."""
    keys = (
        "testOutput",
        "testsPassed",
        "requirementsList",
        "assumptions",
        "evidence",
        "codeChanges",
        "goalVerification",
    )
    absent, null = (
        evaluator.evaluate(Batch("f", 1, json.dumps(record).encode()), SelfCheckParams())
        for record in ({}, dict.fromkeys((*keys, "hallucinated", "expectedPaths", "id"), None))
    )
    assert absent.lines == null.lines


def test_a_line_holds_what_the_specification_names() -> None:
    """In the order of the specification; the label and the details where there are any."""
    goal = {"passed": True, "paths": []}
    outcome = evaluator.evaluate(
        Batch("f", 5, json.dumps({**GOOD, "goalVerification": goal}).encode()), SelfCheckParams()
    )
    line = json.loads(outcome.lines[0])
    assert list(line) == ["record", "id", "status", "hallucinated", "result", "suspected", "details"]
    assert list(line["result"]) == ["passed", "questions", "dangerSignals", "goalVerification"]
    assert line["record"] == "f:5"
    assert line["id"] == "good"


def test_labels_can_be_required() -> None:
    """With the switch, a record without a label is an error; without it, it is not."""
    data = json.dumps({**GOOD, "hallucinated": None}).encode()
    strict = validate(SelfCheckParams, {"require_labels": True}, "params")
    assert evaluator.evaluate(Batch("f", 1, data), SelfCheckParams()).tally.errors == 0
    outcome = evaluator.evaluate(Batch("f", 1, data), strict)
    assert outcome.tally.listed.first[0][1].startswith("$.hallucinated: missing")


def test_the_report_has_the_keys_of_the_specification(tmp_path: Path) -> None:
    """Pass rate, rates by question, counts by signal; labels with both ways of calling."""
    results = _run(tmp_path, GOOD, BAD, {**GOOD, "id": "again"})["results"]
    assert results["passed"] == 2
    assert results["pass_rate"] == 2 / 3
    assert results["questions"] == {
        "tests_pass": 2 / 3,
        "requirements_met": 2 / 3,
        "no_assumptions": 1.0,
        "evidence_exists": 1.0,
    }
    counts = {signal.message: 0 for signal in DANGER_SIGNALS}
    counts[DANGER_SIGNALS[5].message], counts[DANGER_SIGNALS[6].message] = 2, 1
    assert results["signals"] == counts
    assert results["labels"]["tpr"]["value"] == 1
    assert results["labels"]["fpr"]["value"] == 0
    assert results["labels"]["any_signal"]["fpr"]["value"] == 1
    assert set(results["labels"]) == {"tpr", "fpr", "precision", "recall", "counts", "any_signal", "suspected"}
    assert "goals" not in results


def test_without_labels_or_records_the_report_says_nothing_of_them(tmp_path: Path) -> None:
    """No labels block, and null where there is nothing to divide by."""
    assert "labels" not in _run(tmp_path, {**GOOD, "hallucinated": None})["results"]
    nothing = _run(tmp_path, [])["results"]
    assert nothing["pass_rate"] is None
    assert set(nothing["questions"].values()) == {None}


def test_what_never_occurs_is_counted_as_nothing(tmp_path: Path) -> None:
    """A question that no record passes, and a signal that none has."""
    results = _run(tmp_path, {"testOutput": "2 failed", "testsPassed": False})["results"]
    assert results["questions"]["tests_pass"] == 0.0
    assert set(results["signals"].values()) == {0}


def test_several_inputs_are_one_result() -> None:
    """Counts of all inputs together, and the inputs' own states stay as they are."""
    params = SelfCheckParams()
    results = []
    for record in (GOOD, BAD):
        outcome = evaluator.evaluate(Batch("f", 1, json.dumps(record).encode()), params)
        results.append(InputResult("f", "f", outcome.state, outcome.tally))
    assert evaluator.section(results, params)["pass_rate"] == 0.5
    assert [result.state.checked for result in results] == [1, 1]


def test_the_report_reads_as_markdown(tmp_path: Path) -> None:
    """Every part has its place, and a cell cannot break its table."""
    goal = {**GOOD, "goalVerification": {"passed": False, "paths": []}}
    report = _run(tmp_path, GOOD, BAD, goal, [1])
    text = evaluator.views.markdown(report, {})
    assert "1 of 3 checks passed (33.3 %); 1 broken records" in text
    assert "| tests\\_pass | 66.7 % |" in text
    assert "Goal reached in 0 of 1 records" in text
    assert "| true positive rate | 100.0 % | 20.7 % to 100.0 % | at least 70.0 % | undecided |" in text
    assert "| records.jsonl:4 | \\$: expected an object, got an array |" in text
    plain = evaluator.views.markdown(_run(tmp_path, {}), {})
    assert "Effectiveness" not in plain
    assert "Broken records" not in plain
    empty = evaluator.views.markdown(_run(tmp_path, [], {"hallucinated": 1}), {})
    assert "0 of 0 checks passed (-)" in empty
    only = _run(tmp_path, {**BAD, "id": "only"})
    assert "| false positive rate | - | - | at most 20.0 % | undecided |" in evaluator.views.markdown(only, {})


def test_options_name_real_params() -> None:
    """Each option's key path leads to a parameter that takes its choices."""
    for option in evaluator.command.options:
        for value in option.choices or (True,):
            validate(SelfCheckParams, {option.param: value}, "params")


def test_the_contract_holds(tmp_path: Path) -> None:
    """The conformance suite on samples with broken records among them, under each list of signals."""
    params: list[dict[str, Any]] = [{}, {"signals": "calibrated"}, {"require_labels": True}]
    check(evaluator, some(hard_files(tmp_path, 3), of=2), params=some(params, of=2), rounds=1)


def test_samples_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    """As many records as asked for, labelled and not, passing and not; another seed gives others."""
    made = [io.BytesIO() for _ in range(3)]
    for stream, seed in zip(made, (1, 1, 2), strict=True):
        write_records(stream, 300, seed)
    assert made[0].getvalue() == made[1].getvalue() != made[2].getvalue()
    request = evaluator.sample.write(tmp_path, 300, 1)
    assert Path(request.inputs[0]).read_bytes() == made[0].getvalue()
    outcome = evaluator.evaluate(Batch("f", 1, made[0].getvalue()), SelfCheckParams())
    assert outcome.tally.scored == 300
    assert 0 < outcome.state.passed < 300
    assert 0 < outcome.state.by_verdict.total < 300


def test_the_state_of_many_records_is_small() -> None:
    """Counts and the first failed lines: merging many chunks leaves a state of the size of one."""
    whole = SelfCheckState.zero()
    stream = io.BytesIO()
    write_records(stream, 200, 5)
    one = evaluator.evaluate(Batch("f", 1, stream.getvalue()), SelfCheckParams()).state.to_wire()
    for _ in range(50):
        whole.merge(SelfCheckState.from_wire(one))
    assert whole.checked == 10_000
    assert len(whole.to_wire()) < 12_000


def test_the_page_names_failed_records_and_keeps_the_specified_order(tmp_path: Path) -> None:
    """Each failed record with what it failed for; questions and signals as they are asked, not by their letters."""
    report = _run(tmp_path, {"testOutput": "probably fine"}, {"goalVerification": {"passed": False, "paths": []}})
    first, second = report["results"]["failed"]["listed"]
    assert first["record"].endswith(":1")
    assert first["reason"].startswith("not passed: tests_pass, requirements_met")
    assert second["reason"].endswith("goal not reached")
    page = evaluator.views.markdown(report, {})
    assert f"| {first['record']} | not passed: tests\\_pass, requirements\\_met" in page
    ids = [question.id.replace("_", "\\_") for question in SELF_CHECK_QUESTIONS]
    places = [page.index(f"| {name} |") for name in ids]
    assert places == sorted(places)
    messages = [escape(signal.message) for signal in DANGER_SIGNALS]
    places = [page.index(f"| {message} |") for message in messages]
    assert places == sorted(places)


def test_a_record_that_killed_its_worker_is_shown_as_bad(tmp_path: Path) -> None:
    """With its place and why it has no result, as any other that failed."""
    (data,) = dead_outcome(evaluator, Batch("f", 7, b"x\n"), SelfCheckParams(), "killed twice").lines
    rows = evaluator.views.rows
    row = rows.reader(_run(tmp_path, BAD))(msgspec.json.decode(data, type=rows.line))
    assert row is not None
    assert (row.record, row.status, row.state, row.reason) == ("f:7", "dead", "bad", "killed twice")
    assert [each.came for each in row.evidence()] == ["killed twice"]
