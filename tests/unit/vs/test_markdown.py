"""The dashboard in Markdown."""

from __future__ import annotations

from pathlib import Path

from evalq.evalcore.evaluators.vs import evaluator
from evalq.evalcore.evaluators.vs.views import _issues_text, _list_cases
from tests.unit.vs.helpers import ENHANCED, FULL, LIGHT, evaluated, good_output, line, runs_of, with_value

NO_PHASE_3 = with_value(good_output(), "vs_metadata.phase_executed", [0, 1, 2, 4, 5])


def markdown(folder: Path, lines: list[bytes]) -> str:
    return evaluator.views.markdown(evaluated(folder, lines).report, {})


def test_the_dashboard_shows_the_facts(tmp_path: Path) -> None:
    """Health, tiles, issues, collapse, the statement over all cases, a row a case, and the faults."""
    lines = [*runs_of("F", ["a"] * 20), line("E", 0, NO_PHASE_3), line("L", 0, {}), line("E", 1, None)]
    text = markdown(tmp_path, lines)
    for shown in (
        "Overall health: █████████░ 95.5 % of what was answered (21 of 22 tests passed, 1 without a readable output; ",
        " 3 of 3 cases answered)",
        "|  | Full VS (1) | Enhanced VS (1) | Light VS (1) |",
        "| Phase | 100.0 % | 100.0 % | 0.0 % |",
        "| T-Score | 0.60 | 0.60 | N/A |",
        "| Critique | 100.0 % | N/A | N/A |",
        f"- {ENHANCED}: No readable output (tests: 1)",
        "Mode collapse status: detected as specified (1 of 1 cases with repeats)",
        "Diversity of this run: 0.00",
        "Verdicts at a mode share of 0.7: 1 collapsed, 1 no repeats, 1 no data",
        "Collapse nowhere: fails (F), over 3 cases, family-wise error at most 2.5% (Fisher and Holm)",
        f"| F | {FULL} | 20 of 20 | detected | collapsed | 1.00 (0.83 to 1.00) | 1 → 1 → 1 | 1.00 | 0.00 | 0 |",
        f"| L | {LIGHT} | 0 of 1 | N/A | no data | N/A | 0 → 0 → 0 | N/A | N/A | N/A |",
        "| outputs.jsonl:23 | output: null where an object is wanted |",
    ):
        assert shown in text


def test_the_dashboard_without_anything_to_complain_of(tmp_path: Path) -> None:
    """No issues and no faults are said, or left out; nothing is detected."""
    lines = [*runs_of("F", "abcdefghij"), *runs_of("E", "abcdefghij"), *runs_of("L", "abcdefghij")]
    text = markdown(tmp_path, lines)
    assert "Recent issues: none" in text
    assert "Mode collapse status: not detected as specified (0 of 3 cases with repeats)" in text
    assert "Collapse nowhere: holds, over 3 cases" in text
    assert "Faults" not in text


def test_the_dashboard_stays_short_and_whole(tmp_path: Path) -> None:
    """Long lists are cut with their number, and no text of an agent breaks a table."""
    lines = [b'{"case": "a|b\\n", "repeat": 0}'] * 30
    lines += [line("F", n, with_value(good_output(), "vs_metadata.phase_executed", [n % 6])) for n in range(12)]
    lines += [line("E", n, with_value(good_output(), "vs_metadata.phase_executed", [n % 6])) for n in range(12)]
    text = markdown(tmp_path, lines)
    assert "- and 2 more" in text
    assert "|  | and 10 more in report.json |" in text
    assert "case: 'a\\|b\\\\n' is not in the golden set" in text


def test_collapsed_cases_are_named_up_to_ten_and_counted_beyond() -> None:
    """All have their row in the table below, so that is where the others are."""
    cases = [f"C{number}" for number in range(37)]
    assert _list_cases(cases[:10]) == ", ".join(cases[:10])
    assert _list_cases(cases) == ", ".join(cases[:10]) + ", and 27 more in the table"
    assert _list_cases([]) == ""


def test_issues_come_by_their_number_of_tests_and_the_rest_is_counted() -> None:
    """The ones that most tests have come first; report.json has them all."""
    issues = [{"agent": f"a{n}", "issue": "x", "tests": n} for n in range(13)]
    lines = _issues_text({"test_run": {"summary": {"full_vs": {"issues": issues}}}}).splitlines()
    assert lines[2] == "- a12: x (tests: 12)"
    assert lines[-1] == "- and 3 more in report.json"
