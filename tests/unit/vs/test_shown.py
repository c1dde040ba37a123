"""What the page of a vs run begins with, and what it shows of a failed output."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.evaluators.vs import evaluator
from evalq.evalcore.evaluators.vs.views import page_summary
from evalq.evalcore.fold import Evaluation
from evalq.evalcore.statistics.exact import wilson
from evalq.evalcore.views.charts import Evidence, Tile
from tests.unit.vs.helpers import evaluated, good_output, line, runs_of, with_value


def tiles_of(found: Evaluation) -> dict[str, Tile]:
    """The numbers above the charts, by what stands over them."""
    return {tile.label: tile for tile in page_summary(found.report).tiles}


def failed(found: Evaluation) -> dict[str, Evidence]:
    """What the only output's row tells of each check."""
    (record,) = found.records()
    row = evaluator.views.rows.reader(found.report)(
        msgspec.json.decode(msgspec.json.encode(record), type=evaluator.views.rows.line)
    )
    assert row is not None
    assert row.state == "bad"
    return {piece.what: piece for piece in row.evidence()}


def test_the_page_begins_with_how_many_cases_collapsed(tmp_path: Path) -> None:
    """Of all cases of the golden set; and the pass rate has its interval."""
    tiles = tiles_of(evaluated(tmp_path, runs_of("F", ["a"] * 47 + ["b"] * 3)))
    assert (tiles["Mode collapse"].value, tiles["Mode collapse"].note) == ("found", "1 of 3 cases collapsed")
    low, high = (100 * bound for bound in wilson(50, 50))
    assert tiles["Pass rate"].note == (
        f"{low:.1f} to {high:.1f} %, 95 % interval; of the 50 of 52 tests with a readable output and the 1 of 3 cases "
        "answered"
    )


@pytest.mark.parametrize(
    ("more", "tests", "cases"),
    [([], 3, 1), ([line("E", 0, None), line("L", 0, None)], 3, 1), ([line("F", n, None) for n in (1, 2, 3)], 6, 1)],
)
def test_one_answer_of_many_is_no_whole(more: list[bytes], tests: int, cases: int, tmp_path: Path) -> None:
    """Whether nothing was recorded, or nobody could read it: not in the headline, nor in a tile, a bar or a chart."""
    found = evaluated(tmp_path, [line("F", 0, good_output()), *more])
    top, tiles = page_summary(found.report), tiles_of(found)
    assert top.headline == f"1 of 1 judged tests passed; {tests - 1} without a verdict (no readable output)"
    assert (tiles["Pass rate"].value, tiles["Pass rate"].state) == ("100.0 %", "doubtful")
    assert f"of the 1 of {tests} tests with a readable output" in tiles["Pass rate"].note
    assert (tiles["Cases answered"].value, tiles["Cases answered"].state) == (f"{cases} of 3", "doubtful")
    page = evaluator.views.markdown(found.report, {})
    bar = "█" * (10 // tests) + "░" * (10 - 10 // tests)
    assert f"Overall health: {bar} 100.0 % of what was answered (1 of 1 tests passed" in page
    charts = {chart.title: list(chart.marks(found.report)) for chart in evaluator.views.charts}
    notes = {mark.label: (mark.value, mark.note) for mark in charts["Pass rate by case"]}
    unread = {"E": 1, "L": 1} if len(more) == 2 else {"F": 3} if more else {}
    for case in "FEL":
        value, note = notes[case]
        assert value == (1.0 if case == "F" else None)
        lacking = f"{unread[case]} without a readable output" if case in unread else ""
        assert note == (", ".join(filter(None, ("1 of 1", lacking))) if case == "F" else lacking or "no output")
    assert {mark.value for mark in charts["Pass rate by agent"]} == {1.0, None}


def test_a_bar_is_full_for_all_tests_alone_and_empty_for_none(tmp_path: Path) -> None:
    """21 of 22 were ten tenths; 1 of 30 is something."""
    good, bad = [line(case, n, good_output()) for case in "FEL" for n in range(10)], line("F", 0, {})
    for lines, filled in ((good, 10), ([bad, *good[1:]], 9), ([good[0], *[line("F", n, {}) for n in range(1, 30)]], 1)):
        page = evaluator.views.markdown(evaluated(tmp_path, lines).report, {})
        assert f"Overall health: {'█' * filled}{'░' * (10 - filled)} " in page


def test_cases_that_are_collapsed_together_are_shown_red_everywhere(tmp_path: Path) -> None:
    """Twelve equal answers to each of three cases: none can be named (Holm .04), all together are no chance (2e-4).

    The page, its tile, its Markdown, and the number that the alert goes by.
    """
    lines = [data for case in "FEL" for data in runs_of(case, ["a"] * 12)]
    found = evaluated(tmp_path, lines)
    nowhere = found.report["results"]["collapse_nowhere"]
    assert (nowhere["verdict"], nowhere["collapsed"]) == ("fails", [])
    assert nowhere["together"] == pytest.approx(2.4e-4, rel=0.1)
    tile = tiles_of(found)["Mode collapse"]
    assert (tile.value, tile.note, tile.state) == ("found", "3 cases together", "bad")
    page = evaluator.views.markdown(found.report, {})
    together = f"the cases together, p {nowhere['together']:.2g}; none of them can be named"
    assert f"Collapse nowhere: fails ({together})" in page
    (metric,) = (each for each in evaluator.views.metrics if each.name == "evalq_vs_collapse")
    assert [sample.value for sample in metric.samples(found.report)] == [1.0]
    for few in ([*runs_of("F", ["a"]), *runs_of("E", ["a"])], runs_of("F", ["a", "a"])):
        assert evaluated(tmp_path, few).report["results"]["collapse_nowhere"]["verdict"] != "fails"


def test_where_nothing_was_tested_no_interval_is_shown(tmp_path: Path) -> None:
    """A rate of no tests has none, and no case collapsed."""
    tiles = tiles_of(evaluated(tmp_path, [line("F", 0, "no object")]))
    assert tiles["Pass rate"].note == ""
    assert tiles["Mode collapse"].note == "3 cases"


@pytest.mark.parametrize(
    ("score", "came"), [(0.3, "as expected"), (0.9, "the final selection is modal (T-score 0.9 above 0.8)")]
)
def test_a_row_says_what_is_wrong_with_the_t_scores(tmp_path: Path, score: float, came: str) -> None:
    """Beside another check that failed, and not what is wrong with that one."""
    output = with_value(good_output(), "vs_metadata.final_selection.t_score", score)
    output = with_value(output, "vs_metadata.phase_executed", [0, 1, 2, 3, 4])
    message = failed(evaluated(tmp_path, [line("F", 0, output)]))
    assert (message["T-scores"].came, message["T-scores"].fine) == (came, score == 0.3)
    assert (message["phases"].came, message["phases"].fine) == ("missing: 5", False)


def test_a_row_without_an_output_says_what_came_instead(tmp_path: Path) -> None:
    """One JSON object is wanted."""
    message = failed(evaluated(tmp_path, [line("F", 0, "no object")]))
    assert list(message) == ["output"]
    assert "a string" in message["output"].came


def test_what_is_wrong_with_the_t_scores_is_counted_without_the_score(tmp_path: Path) -> None:
    """With it, every output would be an issue of its own; the words before it say which check it is."""
    lines = []
    for repeat, score in enumerate((0.85, 0.9)):
        lines.append(line("F", repeat, with_value(good_output(), "vs_metadata.final_selection.t_score", score)))
    issues = evaluated(tmp_path, lines).report["results"]["test_run"]["summary"]["full_vs"]["issues"]
    assert [(each["issue"], each["tests"]) for each in issues] == [("T-scores: the final selection is modal", 2)]
