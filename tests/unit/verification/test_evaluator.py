"""Records in, lines, sums and report out; broken records are reported with a path and never scored."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalq.evalcore.conformance import check
from evalq.evalcore.contract.evaluator import Batch, InputResult, dead_outcome
from evalq.evalcore.contract.params import validate
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.verification import VerificationParams, evaluator, score_verification
from evalq.evalcore.evaluators.verification.patterns import DEFAULT
from evalq.evalcore.evaluators.verification.sample import write_records
from evalq.evalcore.evaluators.verification.score import scorer
from evalq.evalcore.evaluators.verification.views import page_summary
from evalq.evalcore.fold import evaluate_files
from tests.portions import some
from tests.unit.verification.hard import hard_files

BROKEN = {
    "{}": "$.actual_output: missing",
    '{"actual_output": null}': "$.actual_output: expected `str`, got `null`",
    '{"actual_output": ["x"]}': "$.actual_output: expected `str`, got `array`",
    '{"actual_output": "x", "compliant": 1}': "$.compliant: expected `bool | null`, got `int`",
    '{"actual_output": "x", "id": {}}': "$.id: expected",
    '{"actual_output": "x", "actual_output": "y"}': "$.actual_output: the key occurs twice",
    '"text"': "$: expected an object, got a string",
    '{"actual_output": "x"': "$: not JSON",
}
OWN: dict[str, Any] = DEFAULT.model_dump(mode="json")


def _run(tmp_path: Path, *records: Any, **params: Any) -> dict[str, Any]:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    return evaluate_files(evaluator, [path], params).report


@pytest.mark.parametrize(("line", "reason"), BROKEN.items(), ids=range(len(BROKEN)))
def test_a_broken_record_is_an_error_with_a_path(line: str, reason: str) -> None:
    """Status error, a listed fault, no score, and its neighbours are untouched."""
    data = f'{{"actual_output": "a"}}\n{line}\n{{"actual_output": "b"}}\n'.encode()
    outcome = evaluator.evaluate(Batch("f", 1, data), VerificationParams())
    lines = [json.loads(shown) for shown in outcome.lines]
    assert [shown["status"] for shown in lines] == ["failed", "error", "failed"]
    assert lines[1]["reason"].startswith(reason)
    assert "score" not in lines[1]
    assert (outcome.tally.scored, outcome.tally.errors, outcome.state.scored) == (2, 1, 2)
    assert outcome.tally.listed.first == [(2, lines[1]["reason"])]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("patterns", ["default", "hardened"])
def test_a_line_holds_the_score_of_its_text(strict: bool, patterns: str) -> None:
    """In the order of the specification, with what the function gives for the text."""
    text = "Edit a, Read a. verified and checked. I think line 3"
    params = validate(VerificationParams, {"strict": strict, "patterns": patterns, "threshold": 0.5}, "params")
    data = json.dumps({"id": 4, "input": "x", "actual_output": text, "compliant": False}).encode()
    line = json.loads(evaluator.evaluate(Batch("f", 9, data), params).lines[0])
    expected = score_verification(text, strict=strict, patterns=patterns, threshold=0.5)
    assert list(line)[:8] == ["record", "id", "status", "score", "success", "reason", "components", "unsubstantiated"]
    assert (line["record"], line["id"]) == ("f:9", "4")
    assert line["status"] == ("passed" if expected.success else "failed")
    assert (line["score"], line["success"], line["reason"]) == (expected.score, expected.success, expected.reason)
    assert line["components"]["tool_verification"] == expected.components.tool_verification
    assert line["unsubstantiated"] == expected.unsubstantiated
    assert (line["band"], line["compliant"]) == (expected.band, False)


def test_the_report_has_the_keys_of_the_specification(tmp_path: Path) -> None:
    """Means are exact sums divided once; bands add up; nothing is said of labels where there are none."""
    texts = ["Edit", "no change", "I think", "verified and checked", "Edit Read pytest"] * 3
    results = _run(tmp_path, *({"actual_output": text} for text in texts))["results"]
    scores = [score_verification(text) for text in texts]
    assert results["mean_score"] == float(sum(Fraction(s.score) for s in scores) / len(scores))
    assert results["pass_rate"] == sum(s.success for s in scores) / len(scores)
    assert results["bands"] == {
        band: sum(s.band == band for s in scores) for band in ("perfect", "good", "moderate", "poor")
    }
    for name, mean in results["components"].items():
        assert mean == float(sum(Fraction(getattr(s.components, name)) for s in scores) / len(scores))
    assert set(results["components"]) == {
        "tool_verification",
        "assertion_evidence",
        "test_execution",
        "quality_gates",
    }
    assert results["unsubstantiated"] == 3
    assert "labels" not in results


def test_nothing_scored_has_no_means(tmp_path: Path) -> None:
    """Null, not a number made of nothing."""
    results = _run(tmp_path, {})["results"]
    assert (results["mean_score"], results["pass_rate"]) == (None, None)
    assert set(results["components"].values()) == {None}


def test_a_set_of_ones_own_is_compared_too(tmp_path: Path) -> None:
    """Its agreement with the labels stands beside that of the two named sets."""
    own = {"keywords": ["확인"]}
    report = _run(tmp_path, {"actual_output": "확인", "compliant": False}, patterns=own)
    assert set(report["results"]["labels"]["patterns"]) == {"custom", "default", "hardened"}
    assert report["params"]["patterns"] == {**OWN, "keywords": ["확인"]}


def test_a_set_of_ones_own_names_only_what_is_different() -> None:
    """Everything else is as in the default set, down to the single key of a rule."""
    params = validate(VerificationParams, {"patterns": {"reads": {"dotall": False}}}, "params")
    text = "Edit\nRead"
    assert scorer(params.patterns, params.scoring).score(text, 0.9).components.tool_verification == 0.3
    assert score_verification(text).components.tool_verification == 0.7


def test_several_inputs_are_one_result() -> None:
    """The mean is over all records, not over inputs, and the inputs' own states stay as they are."""
    params = VerificationParams()
    whole = "verified and checked at line 3. Output: `ok`"
    results = []
    for texts in (["Edit I think", whole], ["verified", "no", whole, "perhaps I assume"]):
        data = "\n".join(json.dumps({"actual_output": text, "compliant": True}) for text in texts).encode()
        outcome = evaluator.evaluate(Batch("f", 1, data), params)
        results.append(InputResult("f", "f", outcome.state, outcome.tally))
    section = evaluator.section(results, params)
    scores = [score_verification(text) for text in ("Edit I think", whole, "verified", "no", whole, "perhaps I assume")]
    assert section["mean_score"] == pytest.approx(sum(score.score for score in scores) / 6)
    assert (section["passed"], section["pass_rate"], section["unsubstantiated"]) == (2, 2 / 6, 2)
    assert section["bands"] == {"perfect": 2, "good": 0, "moderate": 2, "poor": 2}
    right = sum(score.success for score in scores)
    assert section["labels"]["records"] == 6
    assert section["labels"]["patterns"]["default"] == {"right": right, "share": right / 6}
    assert [result.state.scored for result in results] == [2, 4]


def test_the_report_reads_as_markdown(tmp_path: Path) -> None:
    """Every part has its place."""
    text = evaluator.views.markdown(_run(tmp_path, {"actual_output": "I think", "compliant": False}, []), {})
    assert "0 of 1 passed (0.0 %); 1 broken records" in text
    assert "| tool verification | 0.700 |" in text
    assert "Records with an unsubstantiated claim: 1." in text
    assert "## Labelled records (1)" in text
    assert "| verdict of 'hardened' is the label | 1 | 100.0 % |" in text
    assert "| records.jsonl:2 | \\$: expected an object, got an array |" in text
    empty = evaluator.views.markdown(_run(tmp_path, {}), {})
    assert "0 of 0 passed (-)" in empty
    assert "| score | - |" in empty
    assert "Labelled" not in empty


@pytest.mark.parametrize(
    ("params", "path", "reason"),
    [
        ({"patterns": "soft"}, "patterns:", "no such name"),
        ({"threshold": 1.5}, "threshold:", "less than or equal to 1"),
        ({"scoring": {"weights": {"tool": 0.5}}}, "scoring.weights:", "must add up to 1, not 1.1"),
        ({"scoring": {"limits": 1}}, "scoring.limits:", "unknown key"),
        ({"patterns": {**OWN, "edits": {"pattern": "(?=x)"}}}, "patterns.edits:", "pattern: a look-ahead"),
        (
            {"patterns": {**OWN, "edits": {"pattern": "x+"}}},
            "patterns.edits:",
            "pattern: a repetition without an upper bound",
        ),
        (
            {"patterns": {**OWN, "claims": [{"pattern": "x", "unless": "not.*x"}]}},
            "patterns.claims.0:",
            "unless: a repetition without an upper bound",
        ),
        ({"patterns": {**OWN, "gates": [{"pattern": "x", "name": "x"}]}}, "patterns.gates.0.weight:", "required"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_path(params: dict[str, Any], path: str, reason: str) -> None:
    """The key path first, then what is wrong with it."""
    with pytest.raises(ConfigError) as caught:
        validate(VerificationParams, params, "params")
    lines = str(caught.value).split("\n")
    assert any(line.strip().startswith(path) and reason in line for line in lines), lines


def test_params_survive_being_shown() -> None:
    """What the report shows of params makes the same params again."""
    short = {"claims": [{"pattern": "x", "unless": "y"}]}
    for given in ({}, {"patterns": "hardened"}, {"patterns": short, "strict": True}):
        params = validate(VerificationParams, given, "params")
        assert validate(VerificationParams, params.model_dump(mode="json"), "params") == params


def test_options_name_real_params() -> None:
    """Each option's key path leads to a parameter that takes its choices."""
    values: dict[str, tuple[Any, ...]] = {"strict": (True,), "threshold": (0.5,)}
    for option in evaluator.command.options:
        for value in option.choices or values[option.param]:
            validate(VerificationParams, {option.param: value}, "params")


def test_the_contract_holds(tmp_path: Path) -> None:
    """The conformance suite on samples with broken records among them."""
    check(
        evaluator, some(hard_files(tmp_path, 3), of=2), params=[{}, {"strict": True, "patterns": "hardened"}], rounds=3
    )


def test_samples_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    """As many records as asked for, of all bands; another seed gives others."""
    made = [io.BytesIO() for _ in range(3)]
    for stream, seed in zip(made, (1, 1, 2), strict=True):
        write_records(stream, 300, seed)
    assert made[0].getvalue() == made[1].getvalue() != made[2].getvalue()
    request = evaluator.sample.write(tmp_path, 300, 1)
    assert Path(request.inputs[0]).read_bytes() == made[0].getvalue()
    outcome = evaluator.evaluate(Batch("f", 1, made[0].getvalue()), VerificationParams())
    assert outcome.tally.scored == 300
    assert all(outcome.state.bands)
    assert 0 < outcome.state.passed < 300
    assert 0 < outcome.state.claims < 300
    assert 0 < outcome.state.agreement.records < 100


def test_the_page_names_failed_records_and_keeps_the_specified_order(tmp_path: Path) -> None:
    """Each failed line with its reason, the first of many; components and bands as the specification has them."""
    good = "verified and confirmed. line 3\n```\nok\n```\noutput: `1`"
    report = _run(tmp_path, {"actual_output": good}, {"actual_output": "Edit a"}, *[{"actual_output": "I think"}] * 120)
    failed = report["results"]["failed"]
    assert (failed["total"], len(failed["listed"])) == (121, 100)
    reason = next(score_verification(text).reason for text in ["Edit a"])
    assert failed["listed"][0] == {"record": "records.jsonl:2", "reason": reason}
    page = evaluator.views.markdown(report, {})
    assert "| records.jsonl:2 | " in page
    assert "and 101 more in records.jsonl" in page
    assert page.index("| tool verification |") < page.index("| assertion evidence |") < page.index("| test execution |")
    assert page.index("| perfect |") < page.index("| good |") < page.index("| moderate |") < page.index("| poor |")
    assert "Failed records" not in evaluator.views.markdown(_run(tmp_path, {"actual_output": good}, threshold=0.1), {})


def test_labels_hold_every_pattern_set_to_the_same_strictness(tmp_path: Path) -> None:
    """Where evidence has no weight, a claim that nothing bears out is what alone makes a strict run fail."""
    text = "Verified, checked, confirmed and validated: I think it should work."
    weights = {"tool": 0.7, "evidence": 0.0, "tests": 0.2, "gates": 0.1}
    record = {"actual_output": text, "compliant": False}
    for strict, right in ((True, 1), (False, 0)):
        report = _run(tmp_path, record, strict=strict, scoring={"weights": weights}, threshold=1.0)
        sets = report["results"]["labels"]["patterns"]
        assert {name: found["right"] for name, found in sets.items()} == {"default": right, "hardened": right}


def test_a_record_that_killed_its_worker_is_shown_as_bad(tmp_path: Path) -> None:
    """With its place and why it has no result, as any other that failed."""
    (data,) = dead_outcome(evaluator, Batch("f", 7, b"x\n"), VerificationParams(), "killed twice").lines
    rows = evaluator.views.rows
    row = rows.reader(_run(tmp_path, {"actual_output": "Edit a"}))(msgspec.json.decode(data, type=rows.line))
    assert row is not None
    assert (row.record, row.status, row.state, row.reason) == ("f:7", "dead", "bad", "killed twice")
    assert [each.came for each in row.evidence()] == ["killed twice"]


def test_cases_of_records_are_known_before_they_are_evaluated() -> None:
    """By id, or by line where a record has none or cannot be read: as its line in records.jsonl names it."""
    data = b'{"id": "a", "actual_output": "x"}\n\n{"actual_output": "x"}\n{"id": 5}\nnot JSON\n{"id": true}\n'
    batch = Batch("f", 3, data)
    ids = [json.loads(line)["id"] for line in evaluator.evaluate(batch, VerificationParams()).lines]
    assert ids == ["a", "5", "5", "7", "8"]
    assert evaluator.measures is not None
    assert evaluator.measures.named is not None
    assert list(evaluator.measures.named(batch, VerificationParams())) == ids


def test_the_page_of_nothing_scored_has_no_numbers(tmp_path: Path) -> None:
    """Neither a rate nor an interval of one, only how many records are broken."""
    assert evaluator.views.summary is not None
    summary = evaluator.views.summary(_run(tmp_path, {}, []))
    tiles = {tile.label: tile for tile in summary.tiles}
    assert summary.headline == "0 of 0 judged transcripts comply; 2 without a verdict (errors)"
    assert summary.state == "doubtful"
    assert (tiles["Pass rate"].value, tiles["Pass rate"].note, tiles["Mean score"].value) == ("\u2013", "", "\u2013")
    assert tiles["Broken"].value == "2"


def test_a_rate_over_some_records_says_over_how_many(tmp_path: Path) -> None:
    """One of four that could be read, and passed, is not shown as all of them: on the page, and in the report."""
    path = tmp_path / "a.jsonl"
    good = {"actual_output": "Nothing was changed; it is verified and confirmed on line 4.\nOutput: `4`\n```\n4\n```"}
    path.write_text(json.dumps(good) + "\n" + "broken\n" * 3)
    report = evaluate_files(evaluator, [path], {}).report
    assert report["results"]["pass_rate"] == 1.0
    found = page_summary(report)
    assert found.headline == "1 of 1 judged transcripts comply; 3 without a verdict (errors)"
    assert found.tiles[0].note == "of the 1 of 4 records that have a result"
    assert found.tiles[0].state == "doubtful"
    assert "1 of 1 passed (100.0 %); 3 broken records" in evaluator.views.markdown(report, {})
