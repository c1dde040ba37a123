"""Conditions in every usual spelling are read; what no form reads is named, and leaves no trace in the ratio."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.compare.counting import CaseCounter
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.contract.partial import encode
from evalq.evalcore.evaluators.planagent import PlanCheck, PlanParams, evaluator
from evalq.evalcore.evaluators.planagent.chunk import score_rows
from evalq.evalcore.evaluators.planagent.compiled import evaluate_batch
from evalq.evalcore.evaluators.planagent.params import FORMS, Kind, key_pattern
from evalq.evalcore.evaluators.planagent.score import checklist_reader
from evalq.producer.outputs.junit import run_suite
from evalq.producer.page.build import TableSection, build_page
from tests.unit.planagent.helpers import COLUMNS, SELECT_CHECK, Row, answer, evaluation, row, to_csv

READ = checklist_reader(PlanParams())


@pytest.mark.parametrize(("kind", "pattern"), FORMS)
def test_every_form_needs_the_key_that_it_is_compiled_for(kind: Kind, pattern: str) -> None:
    assert pattern.count(key_pattern(kind)) == 1
    assert not re.search(r"\)[?*]", pattern.split(key_pattern(kind))[1][:2])


QUOTES = ('""', "“”", "‘’", "''", "「」", "『』", "«»", "``", "„“", "＂＂", "《》")
NUMBERS = [
    "",
    "1) ",
    "1. ",
    "(1) ",
    "[1] ",
    "① ",
    "❷ ",
    "- ",
    "* ",
    "• ",
    "· ",
    "– ",
    "■ ",
    "▶ ",
    "☐ ",
    "- [ ] ",
    "가. ",
    "１） ",
    "1.2) ",
    "1-1) ",
    "1번. ",
    "1️⃣ ",
    "조건 1: ",
    "@check ",
    "> - ",
]
SELECT = PlanCheck("formType", "SELECT")


@pytest.mark.parametrize("quotes", QUOTES)
@pytest.mark.parametrize("particle", ["이", "은", "가", "는"])
def test_a_value_is_read_with_any_particle_and_quotes(quotes: str, particle: str) -> None:
    """The four particles of a subject or topic, and the quotes of keyboards, word processors and Korean print."""
    left, right = quotes[0], quotes[1]
    assert READ(f"1) formType 값{particle} {left}SELECT{right}인 항목이 존재하는가").checks == (SELECT,)
    assert READ(f"1) formType{particle} {left}SELECT{right}인가").checks == (SELECT,)
    for after in (
        "가 언급되어 있는가",
        "이 포함되어 있는가",
        "를 안내하는가",
        "을 언급했는가",
        "와 관련된 내용이 있는가",
    ):
        assert READ(f"1) assistantMessage에 {left}휴가{right}{after}").checks == (PlanCheck("message", "휴가"),)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("text", ['formType 값이 "SELECT"인 항목이 존재하는가', "formType: SELECT", "formType=SELECT"])
def test_a_condition_is_read_behind_any_number_or_bullet(number: str, text: str) -> None:
    """Digits, letters, circled numbers, bullets, boxes, @check; and without any."""
    assert READ(number + text).checks == (SELECT,)
    assert READ(number + text).unread == ()


@pytest.mark.parametrize(
    ("line", "kind", "want"),
    [
        ("formType: SELECT", "formType", "SELECT"),
        ("formType = 'SELECT'", "formType", "SELECT"),
        ('"formType": "SELECT",', "formType", "SELECT"),
        ("**formType**: `SELECT`", "formType", "SELECT"),
        ("form_type == SELECT", "formType", "SELECT"),
        ('dataUIList[*].uiValue.formType is "SELECT"', "formType", "SELECT"),
        ("dataUIList에 formType이 SELECT인 항목이 1개 이상 있는가?", "formType", "SELECT"),
        ("formType을 SELECT로 설정했는지 확인", "formType", "SELECT"),
        ("formType 값은 SELECT이다.", "formType", "SELECT"),
        ("formType: SELECT (필수)", "formType", "SELECT"),
        ("multiSelectAllowYn=TRUE", "multiSelectAllowYn", "true"),
        ("multiSelectAllowYn 값은 'false'이어야 한다", "multiSelectAllowYn", "false"),
        ("해당 항목의 dataKey 값은 K_1인가", "dataKey", "K_1"),
        ("value.buttonKey: 신청하기", "buttonKey", "신청하기"),
        ("value 안의 buttonKey가 “K-2”와 같은가", "buttonKey", "K-2"),
        ("assistantMessage: 휴가 신청 안내", "message", "휴가 신청 안내"),
        ("assistantMessage: “휴가”", "message", "휴가"),
        ('assistantMessage contains "휴가"', "message", "휴가"),
        ('"휴가"가 assistantMessage에 포함되어 있는가', "message", "휴가"),
        ('응답 메시지에 "연차 없음"이라는 문구가 들어 있는가', "message", "연차 없음"),
    ],
)
def test_other_ways_of_writing_a_condition(line: str, kind: Kind, want: str) -> None:
    """Keys with values as in YAML, JSON and Python, sentences in another order, and remarks behind them."""
    assert READ(line).checks == (PlanCheck(kind, want),)
    assert READ(line).unread == ()


@pytest.mark.parametrize(
    "line",
    [
        "1) 친절하게 답하는가",
        "- 답이 3문장 이하인가",
        "① 해당 항목의 색이 파란가",
        '1) formType 값이 "SELECT"가 아닌가',
        "1) formType: SELECT 아님",
        "1) formType != SELECT",
        '1) formType 값이 "SELECT" 또는 "ACTION"인가',
        "1) formType: SELECT, ACTION",
        "1) formType: [SELECT, ACTION]",
        "1) formType in (SELECT, ACTION)",
        "1) formType: SELECT|ACTION",
        '1) dataKey 값이 "K"로 시작하는가',
        '1) dataKey 값이 "K"를 포함하는가',
        "1) multiSelectAllowYn 값이 true가 아닌가",
        '1) assistantMessage에 "휴가"가 언급되어 있지 않은가',
        '1) assistantMessage에 "휴가" 또는 "연차"가 언급되어 있는가',
        '1) assistantMessage에 "휴가"와 "연차"와 관련된 내용이 언급되어 있는가',
        '1) assistantMessage에 "휴가"가 3회 이상 언급되어 있는가',
        "1) assistantMessage: 휴가를 언급하지 않는다",
        "formType 값이 무엇인지 확인한다",
    ],
)
def test_what_asks_for_something_else_is_unread(line: str) -> None:
    """Negations, alternatives, parts and counts are never taken for the condition that they resemble."""
    assert READ(line).checks == ()
    assert READ(line).unread == (line,)


@pytest.mark.parametrize("line", ["", "평가 요소 4가지 ->:", "formType 확인:", "---", "친절하게 답한다", "***"])
def test_headings_and_prose_without_a_number_are_no_conditions(line: str) -> None:
    """Else each heading would count as a condition that nobody reads."""
    assert (READ(line).checks, READ(line).unread) == ((), ())


def test_several_conditions_of_one_line_are_all_read_or_named() -> None:
    """What a form leaves of a line is read on: no half of a line is dropped."""
    both = (SELECT, PlanCheck("actionType", "GO"))
    for line in (
        "@check formType=SELECT, actionType=GO",
        "@check formType=SELECT actionType=GO",
        '{"formType": "SELECT", "actionType": "GO"}',
        '1) formType 값이 "SELECT"이고 actionType 값이 "GO"인가',
        '1) formType 값이 "SELECT"인 항목이 존재하는가? 2) actionType 값이 "GO"인가?',
        "① formType: SELECT ② actionType: GO",
    ):
        assert (READ(line).checks, READ(line).unread) == (both, ())
    half = READ('1) formType 값이 "SELECT"인가 그리고 친절하게 답하는가')
    assert (half.checks, half.unread) == ((SELECT,), ("친절하게 답하는가",))


@pytest.mark.parametrize(
    "hostile",
    [
        '1) assistantMessage에 "',
        '1) assistantMessage에 "A"과 관련된 ',
        "1) formType: a",
        "항목",
        "1) formType 값이 A인가",
        "()",
        "formType=A;",
        '1) formType "',
        "1)",
        "- ",
        "[ ",
        "A.",
        '"',
    ],
)
def test_reading_stays_linear(hostile: str) -> None:
    """Four times the text takes no more than about four times as long (measured against its own quarter).

    The least of three readings counts: a single one may hold a collection of the whole process's garbage.
    """

    def seconds(size: int) -> float:
        text, taken = hostile + hostile[-2:] * (size // 2) + "않", []
        for _ in range(3):
            reader, begin = checklist_reader(PlanParams()), time.process_time()
            reader(text)
            taken.append(time.process_time() - begin)
        return min(taken)

    assert seconds(160_000) < 12 * seconds(40_000) + 0.2


THREE = SELECT_CHECK + "\n2) 친절하게 답하는가\n3) 버튼이 두 개인가"


def rows_with_gaps() -> list[Row]:
    """Rows with conditions that no form reads, a row without any check, one without seconds."""
    return [
        row("q1", expected=THREE),
        row("q1", "2/1", expected=THREE),
        row("q2", expected="친절하게 답한다"),
        row("q3", raw=answer(items=[{"formType": "SELECT"}], seconds=None)),
        row("q3", "2/1", llm="많음"),
    ]


def test_what_is_unread_is_in_the_record_and_in_the_report_and_unticks(tmp_path: Path) -> None:
    """One readable condition of three that passes is 5 points, and says everywhere that two were not read."""
    run = evaluation(tmp_path, rows_with_gaps())
    first = next(iter(run.records()))
    assert (first["score"], len(first["checks"])) == (5, 1)
    assert first["unread"] == ["2) 친절하게 답하는가", "3) 버튼이 두 개인가"]
    assert run.report["results"]["unread"] == {"conditions": 4, "rows": 2}
    counts = {each["what"]: each["count"] for each in run.report["left_out"]}
    assert counts == {"condition": 4, "row": 1, "time": 1, "LLM score": 1, "Query ID": 1}
    (condition,) = [each for each in run.report["left_out"] if each["what"] == "condition"]
    assert condition["examples"][0] == {"where": "plan.csv:2", "text": "2) 친절하게 답하는가"}
    heuristic = next(item for item in run.report["results"]["checklist"] if item["item"] == "heuristic")
    assert (heuristic["status"], heuristic["unread_conditions"], heuristic["unscored"]) == ("warning", 4, 1)
    for lang, said in (("ko", "읽지 못한 조건: 4개"), ("en", "conditions that no form reads: 4 in 2 rows")):
        text = evaluator.views.markdown(run.report, {"lang": lang})
        assert said in text
        assert "plan.csv:2: 2) 친절하게 답하는가" in text
        assert "[ ] " in next(line for line in text.splitlines() if "휴리스틱" in line or "Heuristic" in line)


def test_a_gate_junit_and_the_page_carry_it(tmp_path: Path) -> None:
    """A note of the decision, a skipped testcase, a section above the charts: each with the count and a place."""
    run = evaluation(tmp_path, rows_with_gaps())
    counter = CaseCounter(evaluator)
    counter.add(run.lines)
    cases = counter.cases(run.report, run="r", digest_of_report="d")
    policy = Policy.model_validate({"gates": [{"metric": "planagent.set.accuracy", "min": 0}]})
    notes = decide(policy, [cases], {}).notes
    assert any("left out: 4 x condition" in note and "plan.csv:2" in note for note in notes)
    skipped = [case for case in run_suite(cases).cases if case.state == "skipped"]
    assert [case.name for case in skipped if "condition" in case.name] == ["(left out) condition: no form reads it"]
    tables = [each for each in build_page(evaluator, run.report).sections if isinstance(each, TableSection)]
    assert [("condition", "4") in (row[:2] for row in each.rows) for each in tables] == [True]


def test_a_complete_checklist_leaves_nothing_out(tmp_path: Path) -> None:
    """No key, no note, no section where all of it was read."""
    run = evaluation(tmp_path, [row("q1"), row("q1", "2/1")])
    assert "left_out" not in run.report
    assert all("unread" not in line for line in run.records())


@pytest.mark.parametrize("blank", ["", " ", "\u3000", "\t"])
def test_a_row_of_empty_cells_is_no_record_and_no_round(tmp_path: Path, blank: str) -> None:
    """Neither where compiled code reads the chunk, nor where Python does; nor is it one of another width."""
    text = to_csv([row("q1"), row("q1", "2/1")]) + (",".join([blank] * len(COLUMNS)) + "\n") * 3 + ",,\n"
    path = tmp_path / "plan.csv"
    path.write_text(text + to_csv([row("q2"), row("q2", "2/1")]).partition("\n")[2], encoding="utf-8")
    report = evaluation_of(path)
    assert report["records"]["total"] == 4
    assert sorted(report["results"]["rounds"]) == ["1/1", "2/1"]
    assert report["faults"] == []
    assert report["results"]["consistency"]["queries"] == 2


def evaluation_of(path: Path) -> dict[str, Any]:
    """The report of a file."""
    from evalq.evalcore.fold import evaluate_files

    return evaluate_files(evaluator, [path], {}).report


@pytest.mark.parametrize("text", ["x" * 32_767, "가" * 32_767, "가" * 32_765 + "😀", '"' * 32_767])
def test_a_cell_of_a_spreadsheet_s_longest_is_named(tmp_path: Path, text: str) -> None:
    """By both ways, with its column and line; a shorter and a longer one are not."""
    for cell, cut in ((text, True), (text[:-2], False), (text + "xx", False)):
        run = evaluation(tmp_path, [row("q1"), row("q1", "2/1", category=cell)])
        found = [each for each in run.report.get("left_out", []) if each["what"] == "cell"]
        assert [each["examples"] for each in found] == ([[{"where": "plan.csv:3", "text": "카테고리"}]] if cut else [])


def test_compiled_code_leaves_out_what_python_does() -> None:
    """Over random rows of every kind of gap, cut at random: states, tallies and record lines are the same bytes."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    expected = [
        SELECT_CHECK,
        THREE,
        "",
        "친절",
        "- 하나",
        "① formType: SELECT ② 둘",
        '1) "휴가"',
        "formType 무엇",
        SELECT_CHECK,
    ]
    for _ in range(60):
        made = [
            row(
                f"q{rng.randrange(4)}", rng.choice(["1/1", "2/1"]), rng.choice(expected), llm=rng.choice(["", "3", "x"])
            )
            if rng.random() < 0.8
            else dict.fromkeys(COLUMNS, rng.choice(["", " ", "\u00a0"]))
            for _ in range(rng.randrange(1, 12))
        ]
        if rng.random() < 0.1:
            made.append(row("long", category="a" * 32_767))
        body = to_csv(made).partition("\n")[2].encode()
        batch = Batch("plan.csv", rng.randrange(2, 90), body, COLUMNS)
        ours, reference = evaluate_batch(batch, PlanParams()), score_rows(batch, PlanParams())
        assert encode(ours) == encode(reference), f"seed {seed}"


def test_a_file_cut_anywhere_leaves_out_the_same(tmp_path: Path) -> None:
    """Chunks of 1, 2, 3 and all rows give one report."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    made = [
        row(f"q{n}", rng.choice(["1/1", "2/1"]), rng.choice([THREE, "", f"- {n % 25}", SELECT_CHECK]))
        for n in range(90)
    ]
    reports = [evaluation(tmp_path, made, chunk_size=size).report for size in (None, 1, 2, 7)]
    assert all(report == reports[0] for report in reports), f"seed {seed}"
