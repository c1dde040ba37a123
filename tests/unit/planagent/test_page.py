"""The page of several files, and rows of lines that say nothing of checks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.evaluators.planagent import evaluator
from evalq.evalcore.evaluators.planagent.views import CHARTS, ROWS, page_summary
from evalq.evalcore.fold import evaluate_files
from tests.unit.planagent.helpers import answer, row, to_csv


def test_the_page_of_several_files_tells_them_apart(tmp_path: Path) -> None:
    """All rows in its headline, a tile with the accuracy of each, and marks that begin with a file's name."""
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    bad = answer(items=[{"formType": "OTHER"}], seconds=12)
    for path, raws in zip(paths, ((None, None, None), (bad, None)), strict=True):
        rows = [row(f"q{at}", raw=raw, category="tea") for at, raw in enumerate(raws)]
        path.write_text(to_csv(rows), encoding="utf-8", newline="")
    report = evaluate_files(evaluator, paths).report
    summary = page_summary(report)
    assert summary.headline == "5 rows of 2 files scored"
    assert [tile.label for tile in summary.tiles] == ["a.csv", "b.csv"]
    accuracies = [report["results"]["files"][name]["set"]["accuracy"] for name in ("a.csv", "b.csv")]
    assert [float(tile.value) for tile in summary.tiles] == pytest.approx(accuracies, abs=0.01)
    (categories,) = (chart for chart in CHARTS if any("tea" in mark.label for mark in chart.marks(report)))
    assert {mark.label for mark in categories.marks(report)} == {"a.csv · tea", "b.csv · tea"}


def test_a_row_without_checks_is_shown_all_the_same(tmp_path: Path) -> None:
    """One that failed, and one that killed its worker."""
    path = tmp_path / "a.csv"
    path.write_text(to_csv([row()]), encoding="utf-8", newline="")
    see = ROWS.reader(evaluate_files(evaluator, [path]).report)
    failed = see(msgspec.json.decode(b'{"record":"a:2","status":"scored","score":0}', type=ROWS.line))
    dead = see(msgspec.json.decode(b'{"record":"a:3","status":"dead","reason":"lost"}', type=ROWS.line))
    assert failed is not None
    assert dead is not None
    assert (failed.state, dead.state, dead.reason) == ("bad", "bad", "lost")
    assert not [each for each in failed.evidence() if not each.what]
