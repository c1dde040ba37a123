"""Pictures for the docs show what Grafana would be given: the same numbers, words, orders and colours."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from docs.picture.answers import Answered, Source, Value, formats, marked, matrix, table, values
from docs.picture.words import colour, text
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.views.metrics import samples
from tests.grafana import checks
from tests.grafana.known import TOP
from tests.grafana.pages import PAGES
from tests.samples import sampled

IMAGES = TOP / "docs" / "images"
MOST_BYTES = 200_000
STEPS = {
    "steps": [{"value": None, "color": "red"}, {"value": 0.5, "color": "orange"}, {"value": 0.8, "color": "green"}]
}


class Line(msgspec.Struct, frozen=True):
    """A made answer."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


def source(*lines: Line) -> Source:
    """The same answer to every question."""

    def answer(expr: str) -> Sequence[Answered]:
        return lines

    return Source(answer, answer)


def panel(uid: str, title: str) -> Any:
    """A committed panel."""
    return next(each for each in checks.panels(PAGES[uid]) if each["title"] == title)


@pytest.mark.parametrize(
    ("value", "defaults", "shown"),
    [
        (0.865, {"unit": "percentunit", "decimals": 1}, "86.5%"),
        (12345, {"unit": "locale", "decimals": 0}, "12,345"),
        (2.847, {"unit": "suffix:of 5", "decimals": 2}, "2.85 of 5"),
        (0.0123, {"unit": "s"}, "12.3 ms"),
        (90, {"unit": "s"}, "1.5 min"),
        (3 * 2**20, {"unit": "bytes"}, "3.0 MiB"),
        (940_000, {"unit": "dateTimeFromNow"}, "1.0 min ago"),
        (None, {"unit": "s", "noValue": "nothing waits"}, "nothing waits"),
    ],
)
def test_numbers_read_as_their_units_say(value: float | None, defaults: dict[str, Any], shown: str) -> None:
    """At 1,000 seconds since 1970."""
    assert text(value, defaults, 1000.0) == shown


def test_states_are_words_and_colours_follow_thresholds() -> None:
    """As the committed panels map them."""
    collapse = panel("evalq-overview", "Mode collapse")["fieldConfig"]["defaults"]
    assert [text(value, collapse) for value in (0, 0.5, 1, math.nan)] == [
        "not detected",
        "cannot tell yet",
        "detected",
        "N/A",
    ]
    shades = [colour(value, {"thresholds": STEPS}) for value in (0.1, 0.5, 0.79, 0.8)]
    assert shades[1] == shades[2]
    assert len({shades[0], shades[1], shades[3]}) == 3


def test_a_level_is_a_box_of_numbers_with_those_that_do_not_apply() -> None:
    """As the specification draws it: full, enhanced, light; agents, phases, T-score and critique, each in its unit."""
    boxes = [each for each in checks.panels(PAGES["evalq-vs"]) if each["title"].endswith(" VS")]
    assert [each["title"] for each in boxes] == ["Full VS", "Enhanced VS", "Light VS"]
    given = {"phase": 1.0, "t_score": None, "self": None, "agents": 9.0}  # which stands behind the others, too

    def answer(expr: str) -> Sequence[Answered]:
        assert 'level="light_vs"' in expr
        value = next(number for name, number in given.items() if f"evalq_vs_level_{name}" in expr)
        return [Line({}, [] if value is None else [(1, value)])]

    box = boxes[-1]
    found = values(box, Source(answer, answer))
    assert found == [Value("Agents", 9.0), Value("Phases", 1.0), Value("T-score", None), Value("Critique", None)]
    assert [text(each.value, formats(box, each.name)) for each in found] == ["9", "100.0%", "N/A", "N/A"]
    spread = {share: colour(share, formats(box, "T-score")) for share in (0.29, 0.3)}
    assert spread == {0.29: colour(0.0, {"thresholds": STEPS}), 0.3: colour(1.0, {"thresholds": STEPS})}
    assert text(0.65, formats(box, "T-score")) == "0.65"


def test_the_boxes_are_of_the_levels_that_reports_have(tmp_path: Path) -> None:
    """A box that asks for a level by another name than the report's would stay empty, and say so to nobody."""
    evaluator: Evaluator[Any, Any] = plugins.get("vs")
    request = evaluator.command.request(sampled(evaluator, tmp_path, 300))
    report = evaluate_files(evaluator, request.inputs, request.params).report
    found = {each.labels for each in samples(evaluator.views.metrics, report) if each.metric == "evalq_vs_level_agents"}
    boxes = [each for each in checks.panels(PAGES["evalq-vs"]) if each["title"].endswith(" VS")]
    asked = {tuple(re.findall(r'level="(\w+)"', target["expr"])[:1]) for box in boxes for target in box["targets"]}
    assert asked == found


def test_last_runs_are_in_order_and_gaps_stay() -> None:
    """The oldest first, ten after nine, and what is folded is left out."""
    bars = panel("evalq-vs", "Pass rate of the last 10 runs")
    lines = [Line({"series": "a", "position": str(at)}, [(1, at / 10)]) for at in (1, 2, 9, 10)]
    lines += [
        Line({"series": "b", "position": "2"}, [(1, 0.5)]),
        Line({"series": "b", "position": "other"}, [(1, 1.0)]),
    ]
    positions, rows = matrix(bars, source(*lines))
    assert positions == ["10", "9", "2", "1"]
    assert rows["a"] == [1.0, 0.9, 0.2, 0.1]
    assert [math.isnan(value) for value in rows["b"]] == [True, True, False, True]


def test_tables_have_the_worst_first() -> None:
    """Most issues, and least diversity."""
    issues = panel("evalq-vs", "Recent issues")
    answer = source(*(Line({"agent": str(count)}, [(1, float(count))]) for count in (2, 9, 4)))
    assert table(issues, answer) == (["agent"], ["tests"], [(["9"], [9.0]), (["4"], [4.0]), (["2"], [2.0])])
    _, _, rows = table(panel("evalq-vs", "Diversity by case"), answer)
    assert [numbers for _, numbers in rows] == [[2.0], [4.0], [9.0]]


def test_marks_are_where_runs_ended() -> None:
    """The value of the series is the time, in milliseconds; the fleet's page marks none unless asked."""
    answer = source(Line({}, [(1, 5000.0), (2, 5000.0), (3, 7000.0)]))
    assert marked(PAGES["evalq-vs"], answer).marks == (5.0, 7.0)
    assert marked(PAGES["evalq-fleet"], answer).marks == ()


@pytest.mark.parametrize("uid", sorted(PAGES))
def test_every_page_can_be_drawn_without_any_answer(uid: str, tmp_path: Path) -> None:
    """A panel that has no value says so."""
    from docs.picture.page import save  # it imports matplotlib, which each process that runs tests would pay for

    save(PAGES[uid], source(), 1000.0, tmp_path / "page.png")
    with Image.open(tmp_path / "page.png") as picture:
        assert picture.width == 1280


def _pictured() -> list[str]:
    """All pages; of evaluators those that the docs show: such a picture needs an hour of real runs."""
    page = (TOP / "docs" / "monitoring.md").read_text(encoding="utf-8")
    evaluators = {f"evalq-{name}" for name in plugins.names()}
    shown = {uid for uid in evaluators if f"images/{uid}.png" in page or (IMAGES / f"{uid}.png").exists()}
    return sorted({*PAGES} - evaluators | shown)


@pytest.mark.parametrize("uid", _pictured())
def test_the_docs_have_a_picture_of_every_page_as_it_is(uid: str) -> None:
    """Small, of the page's present height, and shown by docs/monitoring.md, which says what it is not.

    The overview shows something of every evaluator: it is as high as it was before those that have no picture yet.
    """
    path = IMAGES / f"{uid}.png"
    rows = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in PAGES[uid]["panels"])
    height = int((rows + 2) * 0.36 * 80 + 1e-6)
    unpictured = {f"evalq-{name}" for name in plugins.names()} - {*_pictured()}
    assert path.stat().st_size < MOST_BYTES
    with Image.open(path) as picture:
        assert picture.width == 1280
        assert picture.height == height or (uid == "evalq-overview" and unpictured and picture.height < height)
    page = (TOP / "docs" / "monitoring.md").read_text(encoding="utf-8")
    assert f"](images/{uid}.png)" in page
    assert re.search(r"\*\*not\*\* made by Grafana", page)
