"""Scores a language model left in the input."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.compare.counting import CaseCounter
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.evaluators.planagent import evaluator
from evalq.evalcore.evaluators.planagent.judging import JudgeReply, add_scores, judge_prompt, prompts
from evalq.evalcore.evaluators.planagent.record import LlmAgreement, read_llm_score, weighted_kappa
from evalq.evalcore.fold import evaluate_files
from evalq.producer.cli import cli
from tests.agents.server import marker_in
from tests.unit.planagent.helpers import TWO_CHECKS, answer, evaluate, evaluation, row, to_csv


def _recorded(path: Path, asked: Request, said: list[dict[str, Any]]) -> None:
    """Write what a judge said of rows, each object with its prompt's marker."""
    markers = {prompt.case: marker_in(prompt.text) for prompt in prompts(asked)}
    for each in said:
        if "output" in each:
            each["output"] = {"marker": markers[each["case"]], **each["output"]}
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in said))


BAD = answer(items=[{"formType": "OTHER"}])


@pytest.mark.parametrize(
    ("text", "score"),
    [("3", 3.0), (" 4.5 ", 4.5), ("0", 0.0), ("5.0", 5.0), ("5.01", None), ("-1", None), ("n/a", None), ("nan", None)],
)
def test_a_score_is_a_number_from_zero_to_five(text: str, score: float | None) -> None:
    """Anything else is kept as a score that cannot be read."""
    found = read_llm_score(text, "DONE", "좋음")
    assert found is not None
    assert (found.score, found.state, found.comment) == (score, "DONE", "좋음")


@given(st.floats(0, 5) | st.integers(0, 5) | st.sampled_from([0.00001, 3.14159265, 5e-324, 10**400, 1e300, -0.5, -0.0]))
def test_a_live_judge_s_score_is_written_with_all_its_digits(score: float) -> None:
    """And read again as it was: six digits, or an exponent that nobody reads, would be another score or none."""
    message = msgspec.json.decode(msgspec.json.encode({"score": score, "marker": "m"}))
    state, text, _ = JudgeReply("0", message).columns("m")
    found = read_llm_score(text, state, "")
    assert found is not None
    assert found.score == (score if 0 <= score <= 5 else None)
    if score in range(6):
        assert text.lstrip("-") == str(int(score))


@pytest.mark.parametrize("text", ["", "  "])
def test_no_text_is_no_score(text: str) -> None:
    """A state or a comment alone makes none."""
    assert read_llm_score(text, "FAILED", "x") is None


def test_a_line_keeps_score_state_and_comment() -> None:
    """Also in a row that has no check of its own."""
    lines = evaluate(
        [row("a", llm="4", state="DONE", comment='왜 "4"'), row("b", expected="?", llm="1"), row("c")]
    ).lines
    first, second, third = [msgspec.json.decode(line) for line in lines]
    assert first["llm_score"] == {"score": 4.0, "state": "DONE", "comment": '왜 "4"'}
    assert second["status"] == "unscored"
    assert second["llm_score"]["score"] == 1.0
    assert "llm_score" not in third


def _results(folder: Path, accuracy: str) -> dict[str, Any]:
    rows = [
        row("a", llm="3"),
        row("b", raw=BAD, llm="1"),
        row("c", expected=TWO_CHECKS, llm="2.5"),
        row("d", llm="bad"),
        row("e"),
        row("a", "2/1"),
        row("b", "2/1", raw=BAD),
    ]
    found: dict[str, Any] = evaluation(folder, rows, {"rules": {"accuracy": accuracy}}).report["results"]
    return found


def test_agreement_with_our_scores_is_reported(tmp_path: Path) -> None:
    """Pairs (5, 3), (0, 1) and (3, 2.5); the unreadable one is counted apart."""
    got = _results(tmp_path, "heuristic")["llm"]
    assert (got["pairs"], got["unreadable"], got["kappa_pairs"]) == (3, 1, 2)
    assert got["exact"] == 0.0
    assert got["within_one"] == 2 / 3
    assert got["mean_absolute_difference"] == 3.5 / 3


def test_the_llms_score_is_accuracy_only_where_asked_for(tmp_path: Path) -> None:
    """It replaces ours in the rows that have a readable one; intent never changes."""
    ours, theirs = _results(tmp_path, "heuristic"), _results(tmp_path, "llm_when_present")
    assert ours["rounds"]["1/1"]["accuracy"] == ours["rounds"]["1/1"]["intent"] == 18 / 5
    assert theirs["rounds"]["1/1"]["accuracy"] == (3 + 1 + 2.5 + 5 + 5) / 5
    assert theirs["rounds"]["2/1"]["accuracy"] == 2.5
    assert theirs["rounds"]["1/1"]["intent"] == 18 / 5
    assert theirs["set"]["accuracy"] == (3.3 + 2.5) / 2
    assert ours["set"]["accuracy_readings"] == theirs["set"]["accuracy_readings"]
    assert (ours["checklist"][1]["rows"], theirs["checklist"][1]["rows"]) == (7, 4)


@pytest.mark.parametrize("way", ["heuristic", "llm_when_present"])
def test_a_gate_on_accuracy_reads_what_the_report_says(tmp_path: Path, way: str) -> None:
    """Row by row, too, the accuracy is the LLM's score where the rules say so: 4 of 5 is not our 0."""
    rows = [
        row("a", raw=BAD, llm="4"),
        row("b", raw=BAD, llm="5"),
        row("c", llm="bad"),
        row("d", expected="?", llm="1"),
    ]
    run = evaluation(tmp_path, rows, {"rules": {"accuracy": way}})
    counter = CaseCounter(evaluator)
    counter.add(run.lines)
    column = counter.cases(run.report, run="r", digest_of_report="0").cases.columns["set.accuracy"]
    assert sum(column.total) / sum(column.count) == run.report["results"]["set"]["accuracy"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("evalq.evalcore.evaluators.planagent.compiled.compiled", lambda: None)
        assert evaluation(tmp_path, rows, {"rules": {"accuracy": way}}).lines == run.lines


def test_kappa_meets_a_value_worked_by_hand() -> None:
    """Ratings 0, 0, 5, 5 against 0, 1, 5, 4, from the definition: mean squared distance over that of all pairs."""
    ours, theirs = [0, 0, 5, 5], [0, 1, 5, 4]
    observed = sum((a - b) ** 2 for a, b in zip(ours, theirs, strict=True)) / 4
    by_chance = sum((a - b) ** 2 for a in ours for b in theirs) / 16
    square = LlmAgreement.of([(a, float(b)) for a, b in zip(ours, theirs, strict=True)]).square
    assert weighted_kappa(square) == pytest.approx(1 - observed / by_chance)


@pytest.mark.parametrize("pairs", [[], [(3, 3.0)] * 4])
def test_kappa_is_null_where_chance_cannot_disagree(pairs: list[tuple[int, float | None]]) -> None:
    """Nothing to divide by: no pairs, or one score on both sides."""
    assert weighted_kappa(LlmAgreement.of(pairs).square) is None


pairs_of_scores = st.lists(st.tuples(st.integers(0, 5), st.none() | st.floats(0, 5)), max_size=12)


@given(pairs_of_scores, pairs_of_scores)
def test_agreements_add_up(first: list[tuple[int, float | None]], second: list[tuple[int, float | None]]) -> None:
    """Two parts merged are the whole, to the last bit of the distances."""
    merged = LlmAgreement.of(first)
    merged.merge(LlmAgreement.of(second))
    assert merged == LlmAgreement.of(first + second)


def test_a_command_prints_the_prompt() -> None:
    """`evalq planagent-prompt` is the prompt that --judge sends, in Korean unless asked otherwise."""
    for args, lang in (([], "ko"), (["--lang", "en"], "en")):
        done = CliRunner().invoke(cli, ["planagent-prompt", *args])
        assert (done.exit_code, done.stdout) == (0, judge_prompt(lang))


@pytest.mark.parametrize(
    ("score", "text", "read"),
    [
        *((4, "4", 4.0), (4.5, "4.5", 4.5), (3.0, "3", 3.0), (0.00001, "0.00001", 0.00001)),
        *((4.9999999, "4.9999999", 4.9999999), (5.0000001, "5.0000001", None), (10**400, "1" + "0" * 400, None)),
    ],
)
def test_a_judges_score_is_kept_as_it_is(tmp_path: Path, score: float, text: str, read: float | None) -> None:
    """In all its digits: 4.9999999 is not 5, and a number beyond all floats is one that cannot be read."""
    rows, answers, copies = tmp_path / "rows.csv", tmp_path / "outputs.jsonl", tmp_path / "copies"
    copies.mkdir()
    rows.write_text(to_csv([row()]), encoding="utf-8")
    _recorded(answers, Request([str(rows)], {}, {}), [{"case": "rows.csv:2", "output": {"score": score}}])
    (copy,) = add_scores(Request([str(rows)], {}, {}), answers, copies).inputs
    (record,) = csv.DictReader(Path(copy).read_text(encoding="utf-8").splitlines())
    assert (record["LLM 점수"], record["LLM 상태"]) == (text, "judged")
    found = read_llm_score(text, "judged", "")
    assert found is not None
    assert found.score == read


def test_rows_keep_their_lines_behind_a_comment_of_several(tmp_path: Path) -> None:
    """Records and faults are named by them; what a failed call says may have several lines, too."""
    rows, answers, copies = tmp_path / "rows.csv", tmp_path / "outputs.jsonl", tmp_path / "copies"
    copies.mkdir()
    rows.write_text(to_csv([row("a"), row("b"), row("c")]), encoding="utf-8")
    said = [{"case": "rows.csv:2", "output": {"score": 3, "comment": "good,\nbut\r\nslow"}}]
    said += [{"case": "rows.csv:3", "error": "no\nanswer"}, {"case": "rows.csv:4", "output": {"score": 1}}]
    _recorded(answers, Request([str(rows)], {}, {}), said)
    (copy,) = add_scores(Request([str(rows)], {}, {}), answers, copies).inputs
    header, first, second, third = Path(copy).read_text(encoding="utf-8").splitlines()
    assert header == ",".join(rows.read_text(encoding="utf-8").splitlines()[0].split(","))
    assert "good, but slow" in first
    assert "no answer" in second
    assert ",c," in third


@pytest.mark.parametrize("lang", ["ko", "en"])
def test_a_judge_is_shown_the_row_it_is_asked_about(tmp_path: Path, lang: str) -> None:
    """Each row by itself behind the prompt, and never what another judge has said of it."""
    rows = tmp_path / "rows.csv"
    given = [row("a", "1/1", "x", '{"k":1}', error="late", category="tea", llm="4", comment="fine"), row("b", "2/1")]
    rows.write_text(to_csv(given), encoding="utf-8")
    asked = list(prompts(Request([str(rows)], {}, {"lang": lang})))
    assert [prompt.case for prompt in asked] == ["rows.csv:2", "rows.csv:3"]
    for prompt, whole in zip(asked, given, strict=True):
        assert prompt.text.startswith(judge_prompt(lang))
        marker = marker_in(prompt.text)
        inside = prompt.text.partition(f"<<<ROW-{marker}>>>\n")[2].partition(f"\n<<<END-{marker}>>>")
        shown = json.loads(inside[0])
        assert (inside[2], marker in inside[0]) == ("\n", False)
        names = {"Query ID", "방/반복", "질의", "기대결과", "카테고리", "오류", "Raw JSON"}
        assert shown == {name: whole[name] for name in names}


def test_files_of_one_name_are_judged_each_by_itself(tmp_path: Path) -> None:
    """Their copies lie beside one another, unpacked, and each has the scores of its own rows."""
    rows, answers, copies = tmp_path / "a.csv", tmp_path / "outputs.jsonl", tmp_path / "copies"
    copies.mkdir()
    rows.write_text(to_csv([row("a")]), encoding="utf-8")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(to_csv([row("b")]).encode()))
    asked = Request([str(rows), f"{rows}.gz"], {}, {})
    cases = [prompt.case for prompt in prompts(asked)]
    said = [{"case": case, "output": {"score": score}} for score, case in enumerate(cases, start=2)]
    _recorded(answers, asked, said)
    report = evaluate_files(evaluator, add_scores(asked, answers, copies).inputs).report
    assert [(each["name"], each["records"]) for each in report["inputs"]] == [("a.csv", 1), ("a.csv#2", 1)]
    means = [each["set"]["accuracy_readings"]["llm_when_present"] for each in report["results"]["files"].values()]
    assert means == [2.0, 3.0]


def test_a_row_with_a_lone_return_is_judged_as_it_stands(tmp_path: Path) -> None:
    """Python's `csv` quotes one by itself from 3.13 on; before, the copy was no CSV and the row no record."""
    rows, answers, copies = tmp_path / "rows.csv", tmp_path / "outputs.jsonl", tmp_path / "copies"
    copies.mkdir()
    quoted = to_csv([row("a"), row("b")]).replace(",a,", ',"a\rc",')
    rows.write_text(quoted, encoding="utf-8", newline="")
    said = [{"case": f"rows.csv:{line}", "output": {"score": 3}} for line in (2, 3)]
    _recorded(answers, Request([str(rows)], {}, {}), said)
    (copy,) = add_scores(Request([str(rows)], {}, {}), answers, copies).inputs
    with Path(copy).open(encoding="utf-8", newline="") as stream:
        assert [record["Query ID"] for record in csv.DictReader(stream, strict=True)] == ["a\rc", "b"]
