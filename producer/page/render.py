"""A page as HTML: headline and summary first, plain; the table of records last, filled by the one script."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from evalq.evalcore.views.charts import Evidence, Mark, Tile, number
from evalq.evalcore.views.markdown import plural, visible
from evalq.producer.page.answers import AttemptFacts, ShownAnswer, ShownQuestion
from evalq.producer.page.build import (
    ChartSection,
    ChartTable,
    FailedRecord,
    FailedSection,
    Listing,
    ProseSection,
    ReportPage,
    Section,
    TableSection,
    TileSection,
)
from evalq.producer.page.conversation import ShownCall, ShownMessage
from evalq.producer.page.words import DATA, language_of, page_language, script_words, word

# HTML as values: text is always escaped, so that no data can become markup.

_EMPTY = frozenset({"br", "hr", "img", "input", "link", "meta", "rect", "line", "circle"})


class Html(str):
    """Finished markup."""

    __slots__ = ()


def text(value: object) -> Html:
    """``value`` as escaped text, without invisible characters."""
    return value if isinstance(value, Html) else Html(escape(visible(str(value))))


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """An element; attributes of None or False are left out, ``_`` in their names is a dash (``class_``: class).
    Fixed texts are in the language of the page; with ``dir="auto"`` they are data, which stays as it is.
    """
    if page_language() != "en":
        if "dir" not in attributes and name not in DATA:
            own = attributes.get("value") if name == "option" else None
            children = tuple(word(each) if type(each) is str and each != own else each for each in children)
        attributes |= {
            key: word(value)
            for key in {"aria_label", "data_label"} & attributes.keys()
            if type(value := attributes[key]) is str
        }
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _EMPTY:
        return Html(f"<{name}{given}>" if name not in ("rect", "line", "circle") else f"<{name}{given}/>")
    return Html(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: object) -> Html:
    """Children in order, without None."""
    return Html("".join(text(child) for child in children if child is not None))


_CELL = re.compile("<t[dh](?=[ >])")


def labelled(row: Html, heads: Sequence[str]) -> Html:
    """A row of a table whose cells know their heads: on a phone each cell is a line of its own."""
    names = iter(heads)

    def cell(found: re.Match[str]) -> str:
        name = next(names, "")
        return f'{found[0]} data-label="{text(word(name))}"' if name and found[0] == "<td" else found[0]

    return Html(_CELL.sub(cell, row))


# Charts as tables: a row for each value, its drawing in a cell beside its number.
# So a chart is its own text alternative: a screen reader reads the numbers, a printer prints both, and on a phone
# the drawings shrink while the words keep their size. Drawings are placed in percent, so they need no script and no
# style.

_SHOWN_ROWS = 15
_HEIGHT, _BAR = 18, 10
_HUES = 6


Address = Callable[[str], str]
"""The address of a case's record."""


def _row_head(label: str, to: Address | None) -> Html:
    name = element("a", label, href=to(label), dir="auto") if to and label else label or "–"
    return element("th", name, scope="row", dir="auto")


def chart_figure(drawn: ChartTable, to: Address | None = None) -> Html:
    """A chart with its title and caption; of many rows, those after the first are folded away.

    Cases are linked to the addresses that ``to`` gives.
    """
    to = to if drawn.label == "Case" else None

    def table(drawn: ChartTable, marks: Sequence[Mark]) -> Html:
        return _stacked(drawn, marks, to) if drawn.kind == "stacked" else _single(drawn, marks, to)

    groups = list(dict.fromkeys(mark.label for mark in drawn.marks))
    shown, folded = set(groups[:_SHOWN_ROWS]), set(groups[_SHOWN_ROWS:])
    parts: list[Html] = [table(drawn, [mark for mark in drawn.marks if mark.label in shown])]
    if folded:
        rest = table(drawn, [mark for mark in drawn.marks if mark.label in folded])
        parts.append(element("details", element("summary", f"{len(folded):,} more"), rest))
    limit = None
    if drawn.line is not None:
        limit = element("p", drawn.limit or f"The line is at {number(drawn.line, drawn.unit)}.", class_="caption")
    return element(
        "figure",
        element("figcaption", element("h3", drawn.title), element("p", drawn.caption, class_="caption"), limit),
        element("div", *parts, class_="scroll", tabindex="0", role="group", aria_label=drawn.title),
        class_=drawn.kind,
    )


def _single(drawn: ChartTable, marks: Sequence[Mark], to: Address | None) -> Html:
    interval = any(mark.low is not None for mark in marks)
    notes = any(mark.note for mark in marks)
    heads = [
        element("th", drawn.label, scope="col"),
        element("th", _axis(drawn), scope="col", class_="drawing"),
        element("th", "Value", scope="col", class_="n"),
        element("th", "Interval", scope="col", class_="n") if interval else None,
        element("th", "Note", scope="col") if notes else None,
    ]
    names = ["", "", "", "Interval", "Note"] if interval else ["", "", "", "Note"]
    texts = (
        dict(zip(drawn.marks, drawn.texts, strict=True))
        if drawn.texts
        else {mark: (number(mark.value, drawn.unit), _interval(drawn, mark)) for mark in marks}
    )
    rows = [
        element(
            "tr",
            _row_head(mark.label, to),
            element("td", _track(drawn, _dot(drawn, mark) if drawn.kind == "dots" else _bar(drawn, mark))),
            element("td", texts[mark][0], class_="n"),
            element("td", texts[mark][1], class_="n quiet") if interval else None,
            element("td", mark.note, class_="quiet") if notes else None,
        )
        for mark in marks
    ]
    return _table(drawn, heads, [labelled(row, names) for row in rows])


def _stacked(drawn: ChartTable, marks: Sequence[Mark], to: Address | None) -> Html:
    """A row a label, a column a part; the colours of the heads are the legend."""
    parts = list(dict.fromkeys(mark.part for mark in marks))
    heads = [element("th", drawn.label, scope="col"), element("th", "Shares", scope="col", class_="drawing")]
    # The first mark of a part sets its style, so it is written last.
    styles = {mark.part: _segment_style(mark, parts.index(mark.part)) for mark in reversed(marks)}
    heads += [element("th", _swatch(styles[part]), part, scope="col", class_="n") for part in parts]
    by_label: dict[str, dict[str, Mark]] = {}
    for mark in marks:
        by_label.setdefault(mark.label, {})[mark.part] = mark
    rows = []
    for label, own in by_label.items():
        cells = [
            element("td", number(own[part].value if part in own else None, drawn.unit), class_="n") for part in parts
        ]
        drawing = element("td", _svg(_segments([own[part] for part in parts if part in own], styles)))
        rows.append(labelled(element("tr", _row_head(label, to), drawing, *cells), ["", "", *parts]))
    return _table(drawn, heads, rows)


def _table(drawn: ChartTable, heads: Iterable[Html | None], rows: Iterable[Html]) -> Html:
    caption = element("caption", drawn.title, class_="unseen")
    return element("table", caption, element("thead", element("tr", *heads)), element("tbody", *rows), class_="drawn")


def _axis(drawn: ChartTable) -> Html:
    low, high = drawn.ends or (number(end, drawn.unit).replace(".0 %", " %") for end in (drawn.low, drawn.high))
    return element("span", element("span", low), element("span", high), class_="axis")


def _at(drawn: ChartTable, value: float) -> float:
    width = drawn.high - drawn.low
    # A value outside the axis is drawn at its end.
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
    # A bar starts at 0, or at the beginning of the axis above it.
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


def _segments(marks: Sequence[Mark], styles: dict[str, str]) -> Html:
    whole = sum(mark.value or 0.0 for mark in marks)
    start, found = 0.0, []
    for mark in marks:
        share = (mark.value or 0.0) / whole if whole else 0.0
        if share:
            found.append(
                element(
                    "rect",
                    x=_percent(start),
                    y="2",
                    width=_percent(share),
                    height=_HEIGHT - 4,
                    class_=styles[mark.part],
                )
            )
        start += share
    return joined(*found)


def _segment_style(mark: Mark, at: int) -> str:
    return f"seg {mark.state if mark.state != 'none' else f'hue{at % _HUES}'}"


def _swatch(style: str) -> Html:
    square = element("rect", x="0", y="0", width="10", height="10", rx="2", class_=style)
    return element("svg", square, class_="swatch", width="10", height="10", aria_hidden="true", focusable="false")


def _interval(drawn: ChartTable, mark: Mark) -> str:
    if mark.low is None or mark.high is None:
        return "–"
    return f"{number(mark.low, drawn.unit)} to {number(mark.high, drawn.unit)}"


def _skip() -> Html:
    return element("a", "Skip to the content", href="#content", class_="skip")


class Block(NamedTuple):
    """A section in HTML; ``name`` is its anchor."""

    name: str
    title: str
    inner: Html


def before_blocks(page: ReportPage) -> bytes:
    """The page before the blocks of its records."""
    listing = page.listing
    shown = listing is not None and listing.kept > 0
    records = [Block("records", "Records", record_table(listing))] if listing is not None and shown else []
    contents = page_contents(page, records, _case_anchor if shown else None)
    body = joined(_skip(), page_banner(page, records), Html('<main id="content">'), contents, Html("</main>"))
    return f"{_head(title_of(page))}<body>\n{body}\n".encode()


def _case_anchor(case: str) -> str:
    """The anchor by which the script shows a case's records."""
    return f"#case={quote(case, safe='~', errors='replace')}"


def after_blocks(page: ReportPage) -> bytes:
    """The page after the blocks: the script that reads them."""
    script = element("script", Html(table_script())) if page.listing and page.listing.kept else ""
    return f"{script}</body></html>\n".encode()


def table_script() -> str:
    """The one script: it fills the table."""
    return _page_file("page.js")


def title_of(page: ReportPage) -> str:
    """The title of its tab."""
    return f"{word(page.headline)} · {page.subject}"


def page_banner(page: ReportPage, blocks: Sequence[Block] = ()) -> Html:
    """Subject, headline, and links to sections and to further ``blocks``."""
    links = [(f"s{at}", section.title) for at, section in enumerate(page.sections)]
    links += [(block.name, block.title) for block in blocks]
    return element(
        "header",
        element("p", element("strong", "evalq"), " ", element("span", page.subject, dir="auto"), class_="subject"),
        element("h1", page.headline, class_=page.state),
        element("p", page.sentence, class_="lede") if page.sentence else None,
        _links(links) if len(links) > 1 else None,
    )


def page_contents(page: ReportPage, blocks: Sequence[Block] = (), to: Address | None = None) -> Html:
    """Notices, sections, further ``blocks``, and facts of the run; ``to`` gives addresses of cases."""
    sections = [_section(section, at, to) for at, section in enumerate(page.sections)]
    return joined(_notice_list(page.notices), *sections, *map(_block, blocks), _about(page))


def _block(block: Block) -> Html:
    heading = element("h2", block.title, id=f"h-{block.name}")
    return element("section", heading, block.inner, id=block.name, aria_labelledby=f"h-{block.name}")


@cache
def _page_file(name: str) -> str:
    return (files("evalq.producer.page") / name).read_text(encoding="utf-8")


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _head(title: str) -> str:
    style, script = _page_file("page.css"), _page_file("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return (
        f'<!doctype html>\n<html lang="{page_language()}"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">\n'
        f"<title>{text(title)}</title><style>{style}</style></head>\n"
    )


def _links(contents: list[tuple[str, str]]) -> Html:
    items = [element("li", element("a", title, href=f"#{name}")) for name, title in contents]
    return element("nav", element("ul", *items), aria_label="On this page")


def _notice_list(notices: tuple[str, ...]) -> Html | None:
    if not notices:
        return None
    return element("div", *(element("p", notice) for notice in notices), class_="notice", role="note")


def _section(section: Section, at: int, to: Address | None) -> Html:
    inner: list[Html]
    match section:
        case TileSection():
            inner = [tile_list(section.tiles)]
        case ChartSection():
            inner = [element("div", *(chart_figure(each, to) for each in section.charts), class_="charts")]
        case ProseSection():
            inner = [element("p", sentence) for sentence in section.sentences]
        case TableSection():
            inner = [_plain(section)]
        case FailedSection():
            more = section.total - len(section.first)
            note = (
                f"The first {len(section.first)} of {section.total:,}; the table below has the others." if more else ""
            )
            inner = [element("p", note, class_="caption"), *map(_failed, section.first)]
    return element("section", element("h2", section.title, id=f"h{at}"), *inner, id=f"s{at}", aria_labelledby=f"h{at}")


def tile_list(tiles: Sequence[Tile]) -> Html:
    """Tiles beside each other."""
    return element("dl", *map(_tile, tiles), class_="tiles")


def _tile(tile: Tile) -> Html:
    note = element("dd", tile.note, class_="note") if tile.note else None
    return element("div", element("dt", tile.label), element("dd", tile.value, class_=f"value {tile.state}"), note)


def _plain(section: TableSection) -> Html:
    head = element("tr", *(element("th", name, scope="col") for name in section.head))
    rows = [
        labelled(element("tr", *(element("td", cell, dir="auto") for cell in row)), section.head)
        for row in section.rows
    ]
    caption = element("caption", section.caption or section.title, class_=None if section.caption else "unseen")
    table = element("table", caption, element("thead", head), element("tbody", *rows), class_="plain")
    return element("div", table, class_="scroll", tabindex="0", role="group", aria_label=section.title)


def _failed(failed: FailedRecord) -> Html:
    mark = element("span", failed.status, class_=f"status {failed.state}")
    name = element("span", failed.id or failed.record, class_="name", dir="auto")
    summary = element("summary", mark, " ", name, " ", element("span", failed.reason, class_="reason", dir="auto"))
    where = element("p", "Record ", element("code", failed.record, dir="auto"), class_="caption")
    own = element("p", element("a", "Its record", href=failed.address), class_="caption") if failed.address else None
    asked = element("div", element("h3", "Question"), question_block(failed.question, "")) if failed.question else None
    answer = element("div", element("h3", "Answer"), answer_block(failed.answer)) if failed.answer else None
    evidence = evidence_table(failed.evidence)
    return element("details", summary, where, own, asked, answer, evidence, class_="failed")


def evidence_table(evidence: tuple[Evidence, ...]) -> Html | None:
    """Expected and actual values of a record."""
    if not evidence:
        return None
    heads = ("Check", "Expected", "Actual")
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    rows = [
        labelled(
            element(
                "tr",
                element("th", piece.what, scope="row", dir="auto"),
                element("td", piece.expected, dir="auto"),
                element("td", piece.came, dir="auto"),
                class_="fine" if piece.fine else "unmet",
            ),
            heads,
        )
        for piece in evidence
    ]
    caption = element("caption", "Expected and actual values", class_="unseen")
    table = element("table", caption, element("thead", head), element("tbody", *rows), class_="compared")
    return element("div", table, class_="scroll", tabindex="0", role="group", aria_label="Expected and actual values")


SHOWN = 50_000
"""Characters of one text on a page; a browser takes seconds for a megabyte."""


class Piece(NamedTuple):
    """A part of a text: whether the other text lacks it."""

    text: str
    changed: bool


# What was asked, and what came back.


def question_block(question: ShownQuestion | None, why: str) -> Html:
    """A question, or the sentence ``why`` it is not here."""
    if question is None:
        return element("p", why, class_="caption")
    parts = []
    for role, content in question.messages:
        head = element("p", role.capitalize(), class_="role") if role else None
        parts.append(element("div", head, said(content), class_="message"))
    return joined(*parts)


def said(content: str, pieces: Sequence[Piece] | None = None, mark: str = "") -> Html:
    """A text of somebody else as it is, cut if it is very long; changed ``pieces`` are in elements called ``mark``."""
    more = len(content) - SHOWN
    note = element("p", f"{more:,} more characters are in the run folder.", class_="caption") if more > 0 else None
    inner = text(content[:SHOWN])
    if pieces is not None:
        inner = joined(*(element(mark, each.text) if each.changed else text(each.text) for each in pieces))
    empty = element("span", "An empty text.", class_="quiet") if not content else inner
    long = len(content) > 1_500 or content.count("\n") > 25
    # A long text scrolls, and what scrolls has to be reached by keys.
    more_attributes = {"tabindex": "0", "role": "group", "aria_label": "Text"} if long else {}
    shown = element(
        "div", empty, class_=f"said{' long' if long else ''}", dir="auto", lang=language_of(content), **more_attributes
    )
    return joined(shown, note)


def answer_block(answer: ShownAnswer, pieces: Sequence[Piece] | None = None, mark: str = "") -> Html:
    """An answer: its text or error, its tool calls, and what it took."""
    parts: list[Html | None] = []
    if answer.error:
        parts.append(element("p", word("No usable answer: "), answer.error[:SHOWN], class_="fault", dir="auto"))
    if answer.text or not answer.error:
        parts.append(said(answer.text, pieces, mark))
    if answer.messages:
        parts.append(conversation_block(answer.messages))
    elif answer.tools:
        parts.append(joined(element("p", "Tool calls", class_="role"), _calls(answer.tools)))
    return joined(*parts, took(answer))


def conversation_block(messages: Sequence[ShownMessage]) -> Html:
    """A conversation: each message with its role, and its calls with what came of them; a long one is folded."""
    calls = sum(len(each.calls) for each in messages)
    summary = f"Conversation: {plural(len(messages), 'message')}, {plural(calls, 'tool call')}"
    shown = [
        joined(element("p", each.role, class_="role"), said(each.text) if each.text else None, _calls(each.calls))
        for each in messages
    ]
    blocks = (element("div", each, class_="message") for each in shown)
    return element("details", element("summary", summary), *blocks, class_="conversation", open=len(messages) <= 12)


def _calls(calls: Sequence[ShownCall]) -> Html | None:
    return element("ol", *map(_call, calls), class_="tools") if calls else None


def _call(call: ShownCall) -> Html:
    parts = [element("code", call.name, dir="auto"), element("pre", call.arguments[:SHOWN], dir="auto", tabindex="0")]
    if call.outcome:
        kind = "fault" if call.failed else None
        parts.append(element("p", "Error" if call.failed else "Result", class_="role"))
        parts.append(element("pre", call.outcome[:SHOWN], dir="auto", tabindex="0", class_=kind))
    return element("li", *parts)


def took(answer: ShownAnswer) -> Html | None:
    """Attempts, seconds, tokens and cost of an answer."""
    facts = answer.facts()
    if not facts:
        return None
    rows = [element("div", element("dt", name), element("dd", value)) for name, value in facts]
    attempts = None
    if len(answer.attempts) > 1 or any(each.ended != "answered" for each in answer.attempts):
        items = [element("li", _attempt(each), dir="auto") for each in answer.attempts]
        attempts = element("details", element("summary", "Each attempt"), element("ol", *items))
    return joined(element("dl", *rows, class_="took"), attempts)


def _attempt(attempt: AttemptFacts) -> str:
    seconds = "" if attempt.seconds is None else number(attempt.seconds, "seconds")
    tokens = "" if attempt.completion_tokens is None else word(f"{attempt.completion_tokens:,} tokens in the answer")
    cost = "" if attempt.cost is None else word(f"cost {attempt.cost:.4g}")
    return ", ".join(filter(None, (word(attempt.ended[:1_000]), seconds, tokens, cost)))


def record_table(listing: Listing) -> Html:
    """The element for the script's table, and the table's facts."""
    columns = [{"title": column.title, "kind": column.kind} for column in listing.columns]
    statuses = [[status, state, count] for (status, state), count in sorted(listing.statuses.items())]
    known = {"columns": columns, "statuses": statuses, "kept": listing.kept, "failed": listing.failed}
    known |= {"answers": True} if listing.answers else {}
    known |= script_words(table_script(), [column.title for column in listing.columns])
    data = msgspec.json.encode(known).decode().replace("<", "\\u003c")
    return joined(
        element(
            "noscript", element("p", "Searching all records needs scripts; records.jsonl beside this file has them.")
        ),
        element("div", id="table"),
        element("script", Html(data), type="application/json", id="known"),
    )


def _about(page: ReportPage) -> Html:
    facts = [joined(element("dt", name), element("dd", value, dir="auto")) for name, value in page.facts]
    params = element("pre", page.params, tabindex="0", aria_label="Parameters", role="region")
    return element(
        "section",
        element("h2", "About this run", id="ha"),
        element("dl", *facts, class_="facts"),
        element("details", element("summary", "Parameters"), params),
        aria_labelledby="ha",
    )
