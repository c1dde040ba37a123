"""Charts as tables: a row for each value, its drawing in a cell beside its number.

So a chart is its own text alternative: a screen reader reads the numbers, a printer prints both, and on a phone the
drawings shrink while the words keep their size. Drawings are placed in percent, so they need no script and no style.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evalq.evalcore.views.charts import Mark, number
from evalq.producer.page.markup import Html, element, joined
from evalq.producer.page.model import ChartTable

__all__ = ["chart"]

_SHOWN = 15
_HEIGHT, _BAR = 18, 10
_HUES = 6


def chart(drawn: ChartTable) -> Html:
    """A chart with its title and caption; of many rows, those after the first are folded away."""
    table = _stacked if drawn.kind == "stacked" else _single
    groups = list(dict.fromkeys(mark.label for mark in drawn.marks))
    shown, folded = set(groups[:_SHOWN]), set(groups[_SHOWN:])
    parts: list[Html] = [table(drawn, [mark for mark in drawn.marks if mark.label in shown])]
    if folded:
        rest = table(drawn, [mark for mark in drawn.marks if mark.label in folded])
        parts.append(element("details", element("summary", f"{len(folded):,} more"), rest))
    limit = None
    if drawn.line is not None:
        limit = element("p", f"The line is at {number(drawn.line, drawn.unit)}.", class_="caption")
    return element(
        "figure",
        element("figcaption", element("h3", drawn.title), element("p", drawn.caption, class_="caption"), limit),
        element("div", *parts, class_="scroll", tabindex="0", role="group", aria_label=drawn.title),
        class_=drawn.kind,
    )


def _single(drawn: ChartTable, marks: Sequence[Mark]) -> Html:
    interval = any(mark.low is not None for mark in marks)
    notes = any(mark.note for mark in marks)
    heads = [
        element("th", drawn.label, scope="col"),
        element("th", _axis(drawn), scope="col", class_="drawing"),
        element("th", "Value", scope="col", class_="n"),
        element("th", "Interval", scope="col", class_="n") if interval else None,
        element("th", "Note", scope="col") if notes else None,
    ]
    rows = [
        element(
            "tr",
            element("th", mark.label or "–", scope="row", dir="auto"),
            element("td", _track(drawn, _dot(drawn, mark) if drawn.kind == "dots" else _bar(drawn, mark))),
            element("td", number(mark.value, drawn.unit), class_="n"),
            element("td", _interval(drawn, mark), class_="n quiet") if interval else None,
            element("td", mark.note, class_="quiet") if notes else None,
        )
        for mark in marks
    ]
    return _table(drawn, heads, rows)


def _stacked(drawn: ChartTable, marks: Sequence[Mark]) -> Html:
    """A row a label, a column a part; the colours of the heads are the legend."""
    parts = list(dict.fromkeys(mark.part for mark in marks))
    heads = [element("th", drawn.label, scope="col"), element("th", "Shares", scope="col", class_="drawing")]
    # The first mark of a part gives its look, so the last to be written is the first.
    looks = {mark.part: _look(mark, parts.index(mark.part)) for mark in reversed(marks)}
    heads += [element("th", _swatch(looks[part]), part, scope="col", class_="n") for part in parts]
    by_label: dict[str, dict[str, Mark]] = {}
    for mark in marks:
        by_label.setdefault(mark.label, {})[mark.part] = mark
    rows = []
    for label, own in by_label.items():
        cells = [
            element("td", number(own[part].value if part in own else None, drawn.unit), class_="n") for part in parts
        ]
        drawing = element("td", _svg(_segments([own[part] for part in parts if part in own], looks)))
        rows.append(element("tr", element("th", label or "–", scope="row", dir="auto"), drawing, *cells))
    return _table(drawn, heads, rows)


def _table(drawn: ChartTable, heads: Iterable[Html | None], rows: Iterable[Html]) -> Html:
    caption = element("caption", drawn.title, class_="unseen")
    return element("table", caption, element("thead", element("tr", *heads)), element("tbody", *rows), class_="drawn")


def _axis(drawn: ChartTable) -> Html:
    low, high = (number(end, drawn.unit).replace(".0 %", " %") for end in (drawn.low, drawn.high))
    return element("span", element("span", low), element("span", high), class_="axis")


def _at(drawn: ChartTable, value: float) -> float:
    width = drawn.high - drawn.low
    # What lies outside the axis is drawn at its end; the number stands beside it.
    return min(1.0, max(0.0, (value - drawn.low) / width)) if width else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"


def _track(drawn: ChartTable, inner: Html) -> Html:
    limit = None
    if drawn.line is not None:
        at = _percent(_at(drawn, drawn.line))
        limit = element("line", x1=at, x2=at, y1="0", y2=_HEIGHT, class_="limit")
    return _svg(joined(inner, limit))


def _svg(inner: Html) -> Html:
    return element("svg", inner, class_="track", height=_HEIGHT, aria_hidden="true", focusable="false")


def _bar(drawn: ChartTable, mark: Mark) -> Html:
    if mark.value is None:
        return Html()
    # A bar starts at nought, or where the axis begins above it.
    top, zero, end = (_HEIGHT - _BAR) // 2, _at(drawn, max(0.0, drawn.low)), _at(drawn, mark.value)
    rail = element("rect", x="0", y=top, width="100%", height=_BAR, rx="2", class_="rail")
    start, length = min(zero, end), abs(end - zero)
    bar = element("rect", x=_percent(start), y=top, width=_percent(length), height=_BAR, rx="2", class_=mark.state)
    return joined(rail, bar, _whisker(drawn, mark))


def _whisker(drawn: ChartTable, mark: Mark) -> Html:
    if mark.low is None or mark.high is None:
        return Html()
    middle = _HEIGHT // 2
    ends = [_percent(_at(drawn, end)) for end in (mark.low, mark.high)]
    across = element("line", x1=ends[0], x2=ends[1], y1=middle, y2=middle, class_="whisker")
    caps = [element("line", x1=end, x2=end, y1=middle - 4, y2=middle + 4, class_="whisker") for end in ends]
    return joined(across, *caps)


def _dot(drawn: ChartTable, mark: Mark) -> Html:
    middle = _HEIGHT // 2
    rail = element("line", x1="0", x2="100%", y1=middle, y2=middle, class_="rail")
    if mark.value is None:
        return rail
    spread = Html()
    if mark.low is not None and mark.high is not None:
        start, end = _at(drawn, mark.low), _at(drawn, mark.high)
        spread = element(
            "rect", x=_percent(start), y=middle - 3, width=_percent(end - start), height=6, rx="3",
            class_=f"spread {mark.state}",
        )  # fmt: skip
    return joined(
        rail, spread, element("circle", cx=_percent(_at(drawn, mark.value)), cy=middle, r="5", class_=mark.state)
    )


def _segments(marks: Sequence[Mark], looks: dict[str, str]) -> Html:
    whole = sum(mark.value or 0.0 for mark in marks)
    start, found = 0.0, []
    for mark in marks:
        share = (mark.value or 0.0) / whole if whole else 0.0
        if share:
            found.append(
                element(
                    "rect", x=_percent(start), y="2", width=_percent(share), height=_HEIGHT - 4, class_=looks[mark.part]
                )
            )
        start += share
    return joined(*found)


def _look(mark: Mark, at: int) -> str:
    return f"seg {mark.state if mark.state != 'none' else f'hue{at % _HUES}'}"


def _swatch(look: str) -> Html:
    square = element("rect", x="0", y="0", width="10", height="10", rx="2", class_=look)
    return element("svg", square, class_="swatch", width="10", height="10", aria_hidden="true", focusable="false")


def _interval(drawn: ChartTable, mark: Mark) -> str:
    if mark.low is None or mark.high is None:
        return "–"
    return f"{number(mark.low, drawn.unit)} to {number(mark.high, drawn.unit)}"
