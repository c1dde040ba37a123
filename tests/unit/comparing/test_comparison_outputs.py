"""What a comparison's files and pages say besides the interval: whatever else the verdict goes by."""

from __future__ import annotations

from pathlib import Path

from evalq.evalcore.compare.comparison import compare
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary
from evalq.evalcore.contract.measures import Measure
from evalq.producer.comparing.comparing import comparison_text
from evalq.producer.comparing.decision_files import write_comparison
from evalq.producer.comparing.html import comparison_html
from evalq.producer.comparing.outcome import ComparedRuns
from tests.unit.compare.made import PASS, passes, run_of

FILES = ("junit.xml", "summary.md", "annotations.txt")
GINI = Measure("gini_coefficient", "score", better="lower")


def forms(folder: Path, base: CaseSummary, cand: CaseSummary, measure: Measure, *, by_cases: bool = False) -> list[str]:
    """The comparison in every form that people read."""
    sides = run_of(base), run_of(cand)
    found = [compare(base, cand, measure, 0.05, by_cases=by_cases)]
    for name in FILES:
        write_comparison([folder / name], [ComparedRuns(*sides, found)])
    texts = [(folder / name).read_text() for name in FILES]
    return [*texts, comparison_text(*sides, found), comparison_html(*sides, found)]


def test_a_verdict_by_cases_stands_beside_the_interval_that_it_goes_by(tmp_path: Path) -> None:
    """Two cases that fell, and by far: for these cases that is sure, and for cases like these nothing is."""
    base, cand = passes([(40, 40), (40, 40)]), passes([(0, 40), (36, 40)])
    found = compare(base, cand, PASS, 0.05, by_cases=True)
    assert found.verdict == "inconclusive"
    assert found.observed is not None
    assert found.observed.high < 0
    for text in forms(tmp_path, base, cand, PASS, by_cases=True):
        assert "or cases like these" in text
        assert "between -1 and +1" in text or "between -100.0 points and +100.0 points" in text, text


def test_where_less_is_better_every_form_says_so(tmp_path: Path) -> None:
    """A rise from .1 to .4 is shown as a change of -.3."""
    ids = [f"c{n}" for n in range(20)]
    base, cand = (
        CaseSummary([GINI], ids, [0] * 20, {GINI.name: CaseColumn([4] * 20, [4 * at] * 20, [4 * at * at] * 20)})
        for at in (0.1, 0.4)
    )
    for text in forms(tmp_path, base, cand, GINI):
        assert "a change below 0 is a rise" in text
    policy = Policy(gates=(Gate(metric="vs.gini_coefficient", max_drop=0.05),))
    (check,) = decide(policy, [run_of(cand)], {"vs": run_of(base)}).checks
    assert check.decided == "NO-GO"
    assert "(0.1 to 0.4, 20 cases; less of it is better, and a change below 0 is a rise)" in check.reason


def test_cases_that_stopped_are_shown_in_every_form(tmp_path: Path) -> None:
    """Else an interval within the margin, or beside 0, stands there as inconclusive without a reason."""
    base, cand = passes([(10, 10)] * 100), passes([(10, 10)] * 100)
    cand.stopped = cand.ids[:3]
    for text in forms(tmp_path, base, cand, PASS):
        assert "stopped calling 3 cases once they were decided" in text
