"""The printed report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.evaluators.planagent import evaluator
from evalq.evalcore.evaluators.planagent.markdown import LANGUAGES, distinct_percents, escaped
from evalq.evalcore.fold import evaluate_files
from tests.unit.planagent.helpers import Row, answer, evaluation, row, to_csv

BAD = answer(items=[{"formType": "a|b"}], seconds=9)
NASTY = "a|b\n| --- |\n# 제목 <script>alert(1)</script> `x` [y](z) **굵게** \\"


def _rows() -> list[Row]:
    rows = [row("a", category=NASTY), row("a", "2/1", raw=BAD, category=NASTY, llm="2"), row("b", "10/1", error=NASTY)]
    expected = f'1) dataUIList 내 formType 값이 "{NASTY.splitlines()[0]}"인 항목이 존재하는가'
    return [*rows, row("c", "x|y", expected=expected, llm="4"), row("d", "", expected="없음")]


def _page(folder: Path, lang: str | None = None) -> str:
    return evaluator.views.markdown(evaluation(folder, _rows()).report, {} if lang is None else {"lang": lang})


def test_headings_and_lines_are_the_templates(tmp_path: Path) -> None:
    """The seed's template, heading by heading and metric by metric, in its order."""
    page = _page(tmp_path)
    assert re.findall(r"^#+ .*$", page, re.MULTILINE) == [
        "# 실행 에이전트 스코어링 리포트",
        "## 산출 기준",
        "## 지표별 점수",
        "## 분포/첨언",
        "## 집계에서 제외된 것",
    ]
    assert re.findall(r"^\d\) [^—]+—", page, re.MULTILINE) == [
        "1) 의도 충족 —",
        "2) 정확성 —",
        "3) 일관성 —",
        "4) 응답 속도 (단일) —",
        "5) 안정성 —",
    ]
    lines = page.splitlines()
    assert lines[1:4] == [
        "- 데이터: plan.csv",
        "- 총 항목: 5 (체크 항목을 읽을 수 없어 제외: 1)",
        "- 실행: (빈 값), 1/1, 2/1, 10/1, x\\|y",
    ]
    for bullet in ("0~5 점수 분포", "속도 분포", "안정성 실패(에러) 패턴", "정성 인사이트 Top 패턴", "운영 체크리스트"):
        assert f"- {bullet}" in lines


def test_korean_is_the_default_and_english_has_the_same_shape(tmp_path: Path) -> None:
    """Both languages have the same lines; only words differ."""
    korean, english = _page(tmp_path), _page(tmp_path, "en")
    assert korean == _page(tmp_path, "ko")
    assert english.startswith("# Plan agent scoring report\n")
    assert len(korean.splitlines()) == len(english.splitlines())
    for name in ("제목", "굵게", "기대결과", "없음"):
        english = english.replace(name, "")
    assert not re.search("[가-힣]", english)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_data_cannot_break_a_table(tmp_path: Path, lang: str) -> None:
    """Every row of a table has its header's number of cells, whatever the data is called."""
    tables = re.findall(r"(?:^\|.*\n)+", _page(tmp_path, lang), re.MULTILINE)
    assert len(tables) == 6
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in table.splitlines()}
        assert len(widths) == 1, table


def test_many_patterns_are_cut_and_suspect_checks_are_reported(tmp_path: Path) -> None:
    """Of errors the ten commonest and the number of the others; of a check where its values stand instead."""
    expected = '1) 해당 항목의 value 내 dataKey 값이 "K"인가'
    nested = answer(items=[{"value": {"in": {"dataKey": "K"}}}])
    rows = [row(f"e{name}", error=f"failed at {name}") for name in "abcdefghijkl"]
    rows += [row(f"q{number}", expected=expected, raw=nested) for number in range(20)]
    page = evaluator.views.markdown(evaluation(tmp_path, rows).report, {"lang": "en"})
    assert "| error: failed at j | 1 |\n| error: other | 2 |\n" in page
    suspect = "Of 20 dataKey checks only 0 passed. The wanted values stand at value.in.dataKey"
    assert f"\n  - {suspect}; counted there, 20 would pass.\n" in page


def test_several_files_are_several_pages(tmp_path: Path) -> None:
    """Each as if it were alone, with an empty line between them; what is left out of all stands once, at the end."""
    for name, rows in (("a.csv", _rows()), ("b.csv", [row()])):
        (tmp_path / name).write_text(to_csv(rows), encoding="utf-8")
    both = evaluator.views.markdown(evaluate_files(evaluator, [tmp_path / "a.csv", tmp_path / "b.csv"]).report, {})
    alone = [
        evaluator.views.markdown(evaluate_files(evaluator, [tmp_path / f"{name}.csv"]).report, {}) for name in "ab"
    ]
    own, both = [page.partition("\n## 집계")[0] for page in alone], both.partition("\n## 집계")[0]
    assert both == "\n".join(own)


def test_data_cannot_become_markup(tmp_path: Path) -> None:
    """No HTML, code, link or emphasis of the data survives unescaped."""
    page = _page(tmp_path)
    assert "\\<script>alert(1)\\</script>" in page
    assert not re.search(r"(?<!\\)<script|(?<!\\)`|(?<!\\)\[y|(?<!\\)\*\*", page)


@given(st.text(max_size=40))
def test_escaped_text_is_one_line_without_bare_marks(text: str) -> None:
    """No newline, control character or unescaped special remains."""
    got = escaped(text, "-")
    assert got
    assert not re.search(r"(?<!\\)\$", got)
    got = got.replace(r"<span>\$</span>", "").removeprefix(r"\$")
    assert not re.search(r"[\x00-\x1f\x7f\u2028\u2029\x85]", got)
    # A letter in place of each mark that is escaped: what is left of it must not join others.
    assert not re.search(r"[\\`*<&\[\]|~]|\b_|_\b", re.sub(r"\\[\\`*<&\[\]|~_]", "x", got))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("_urgent_", r"\_urgent\_"),
        ("__a__", r"\_\_a\_\_"),
        ("(_a_)", r"(\_a\_)"),
        ("data_key_1", "data_key_1"),
        ("_", r"\_"),
    ],
)
def test_underscores_emphasise_nothing(text: str, shown: str) -> None:
    """Those at the bounds of a word would; within one they are no sign, and names of fields stay as they are."""
    assert escaped(text) == shown


def test_the_basis_says_the_mark_that_holds(tmp_path: Path) -> None:
    """The specification's is 3; a report by another one said 3 all the same."""
    report = evaluation(tmp_path, _rows(), {"pass_mark": 4}).report
    for lang, says in (("ko", "(4점이상/미만) 기준"), ("en", "(4 or more) in every round")):
        assert says in evaluator.views.markdown(report, {"lang": lang})


def test_numbers_that_do_not_exist_are_dashes(tmp_path: Path) -> None:
    """A round of unscored rows and a file of one round have no score to print."""
    page = evaluator.views.markdown(evaluation(tmp_path, [row("d", expected="없음")]).report, {})
    assert "1) 의도 충족 — 1/1: -, 세트: -\n" in page
    assert "3) 일관성 — - (두 회차의 점수가 있는 Query ID가 없음, 제외된 Query ID: 1)\n" in page
    assert "4) 응답 속도 (단일) — 1/1: -, 세트: -\n" in page


def test_the_llm_reading_is_said(tmp_path: Path) -> None:
    """Under that rule the basis says where accuracy comes from, and the agreement is printed."""
    page = evaluator.views.markdown(
        evaluation(tmp_path, _rows(), {"rules": {"accuracy": "llm_when_present"}}).report, {}
    )
    assert "- 정확성: LLM 점수가 있는 행은 LLM 점수\n" in page
    assert "- LLM 점수와의 일치: 2행" in page


def test_the_diagnostic_is_a_sentence(tmp_path: Path) -> None:
    """It names the kind of check, the numbers and the place."""
    check = '1) 해당 항목의 value 내 dataKey 값이 "K"인가'
    raw = answer(items=[{"value": {"in": {"dataKey": "K"}}}])
    page = evaluator.views.markdown(
        evaluation(tmp_path, [row(f"q{i}", expected=check, raw=raw) for i in range(20)]).report, {}
    )
    assert "dataKey 체크는 20건 중 0건만 통과했다. 기대한 값은 value.in.dataKey 에 있으며" in page
    lost = [row(f"q{i}", expected=check) for i in range(20)]
    page = evaluator.views.markdown(evaluation(tmp_path, lost).report, {"lang": "en"})
    assert "Of 20 dataKey checks only 0 passed. The wanted values stand nowhere else" in page


def test_no_total_is_printed_or_reported(tmp_path: Path) -> None:
    """The seed forbids a weighted sum over the metrics."""
    assert "총점" not in _page(tmp_path)
    assert not [key for key in evaluation(tmp_path, _rows()).report["results"] if "total" in key]


@pytest.mark.parametrize(("rows", "failed"), [(100, 1), (104, 1), (1000, 10), (1001, 10), (99_999, 1000), (3, 0)])
def test_a_share_beside_its_limit_shows_on_which_side_it_is(rows: int, failed: int) -> None:
    """A ticked and an unticked line never read the same: 1 of 104 is not printed as the limit of 1 %."""
    share, limit = distinct_percents(failed / rows, 0.01)
    assert (share == limit) == (failed * 100 == rows)
    assert distinct_percents(None, 0.01) == ("-", "1.0%")
