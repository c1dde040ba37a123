"""What vs's page says of many cases: some by name, how many more, and where those are."""

from __future__ import annotations

from evalq.evalcore.evaluators.vs.views import _issues_text, _named


def test_collapsed_cases_are_named_up_to_ten_and_counted_beyond() -> None:
    """All have their row in the table below, so that is where the others are."""
    cases = [f"C{number}" for number in range(37)]
    assert _named(cases[:10]) == ", ".join(cases[:10])
    assert _named(cases) == ", ".join(cases[:10]) + ", and 27 more in the table"
    assert _named([]) == ""


def test_issues_come_by_their_number_of_tests_and_the_rest_is_counted() -> None:
    """The ones that most tests have come first; report.json has them all."""
    issues = [{"agent": f"a{n}", "issue": "x", "tests": n} for n in range(13)]
    lines = _issues_text({"test_run": {"summary": {"full_vs": {"issues": issues}}}}).splitlines()
    assert lines[2] == "- a12: x (tests: 12)"
    assert lines[-1] == "- and 3 more in report.json"
