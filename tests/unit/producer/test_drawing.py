"""Charts of very many rows."""

from __future__ import annotations

from evalq.evalcore.views.charts import Mark
from evalq.producer.page.build import ChartTable
from evalq.producer.page.render import chart_figure


class _Label(str):
    """A label that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        _Label.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_stacked_chart_looks_at_each_mark_a_few_times() -> None:
    """However many labels there are: a report of thousands of rounds must not cost a comparison of each with each."""
    labels = [_Label(f"{n}/1") for n in range(400)]
    marks = [Mark(label, float(at), part=part) for label in labels for at, part in enumerate("abc", start=1)]
    drawn = str(chart_figure(ChartTable("t", "c", "stacked", "count", "Round", tuple(marks), 0.0, 1.0)))
    assert drawn.count("<tr>") == 400 + 2
    assert _Label.compared < 10 * len(marks)
