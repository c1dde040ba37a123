"""The labelled pairs are fixed, their layout does not give the label away, and the page shows what is reached."""

from __future__ import annotations

from pathlib import Path

from evalq.evalcore.contract.claims import ClaimsVerdict, Finding
from evalq.evalcore.evaluators.verification.report import PatternAgreement
from tests.unit.layout import auc, layout_auc
from tests.unit.verification.labelled_set import DIGEST, by_task, digest, records, tables

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "verification-effectiveness.md"


def test_the_set_is_the_one_that_was_fixed() -> None:
    """It cannot change behind the figures; 30 tasks, each with one transcript of either label."""
    assert digest() == DIGEST
    assert len(by_task()) == 30
    assert all(set(both) == {True, False} for both in by_task().values())
    assert len({record["actual_output"] for record in records()}) == 60


def test_both_transcripts_of_a_pair_have_the_same_lines_but_for_some_words() -> None:
    """As many lines, and lengths within a quarter."""
    for task, both in by_task().items():
        one, other = both[True], both[False]
        assert one.count("\n") == other.count("\n"), task
        assert abs(len(one) - len(other)) <= 0.25 * max(len(one), len(other)), task


def test_layout_alone_is_at_chance() -> None:
    """A classifier that sees no word; it does find a set in which one label is longer."""
    given = records()
    labels, tasks = [record["compliant"] for record in given], [record["task"] for record in given]
    assert 0.4 <= layout_auc([[record["actual_output"]] for record in given], labels, tasks) <= 0.6
    leak = [[record["actual_output"] + " more" * 40 * record["compliant"]] for record in given]
    assert layout_auc(leak, labels, tasks) > 0.9


def test_the_area_under_the_curve_is_that_of_pairs() -> None:
    """Counted by hand: of four pairs two are in order, one is tied, one is not."""
    assert auc([True, True, False, False], [2, 1, 1, 0]) == (3 + 0.5) / 4


def test_the_page_shows_the_figures_as_they_are() -> None:
    """The tables in the documentation are those that the set and the score give now."""
    page = PAGE.read_text(encoding="utf-8")
    for table in tables():
        assert table in page
    assert "No model was measured" in page


def test_a_judge_calls_a_record_unverified_unless_every_claim_is_supported() -> None:
    """Verdicts without a finding call nothing."""
    agreement, both = PatternAgreement(), list[tuple[bool, Finding]]()
    both += [(False, "absent"), (False, "supported"), (True, "contradicted"), (True, "supported")]
    for label, finding in both:
        agreement.add_calls(label, True, ClaimsVerdict("j", "c", finding))
    agreement.add_calls(False, True, ClaimsVerdict("j", "c", None, fault="no reply"))
    agreement.add_calls(False, True, None)
    found = agreement.by_judge
    assert (found.true_positives, found.false_negatives, found.false_positives, found.true_negatives) == (1, 1, 1, 1)
    assert agreement.by_score.total == 6
