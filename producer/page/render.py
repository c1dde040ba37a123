"""A page as HTML: headline and summary first, plain; the table of records last, filled by the one script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

from evalq.evalcore.views.charts import Tile
from evalq.evalcore.views.rows import Evidence
from evalq.producer.page.drawing import chart
from evalq.producer.page.markup import Html, element, joined, text
from evalq.producer.page.model import (
    ChartSection,
    FailedRecord,
    FailedSection,
    Listing,
    Page,
    ProseSection,
    Section,
    TableSection,
    TileSection,
)

__all__ = [
    "Block",
    "after_blocks",
    "banner",
    "before_blocks",
    "compared",
    "contents",
    "record_table",
    "table_script",
    "tile_list",
    "title_of",
]

_SKIP = element("a", "Skip to the content", href="#content", class_="skip")


class Block(NamedTuple):
    """A section that is HTML already; ``name`` is where links lead."""

    name: str
    title: str
    inner: Html


def before_blocks(page: Page) -> bytes:
    """The page up to where the blocks of its records go."""
    listing = page.listing
    shown = listing is not None and listing.kept > 0
    records = [Block("records", "Records", record_table(listing))] if listing is not None and shown else []
    body = joined(_SKIP, banner(page, records), Html('<main id="content">'), contents(page, records), Html("</main>"))
    return f"{_head(title_of(page))}<body>\n{body}\n".encode()


def after_blocks(page: Page) -> bytes:
    """The rest of it: the script, once all that it reads is there."""
    script = element("script", Html(table_script())) if page.listing and page.listing.kept else ""
    return f"{script}</body></html>\n".encode()


def table_script() -> str:
    """The one script: it fills the table."""
    return _asset("page.js")


def title_of(page: Page) -> str:
    """What its tab is called."""
    return f"{page.headline} · {page.subject}"


def banner(page: Page, blocks: Sequence[Block] = ()) -> Html:
    """What the page is about, its headline, and links to its sections and to further ``blocks``."""
    links = [(f"s{at}", section.title) for at, section in enumerate(page.sections)]
    links += [(block.name, block.title) for block in blocks]
    return element(
        "header",
        element("p", element("strong", "evalq"), " ", element("span", page.subject, dir="auto"), class_="subject"),
        element("h1", page.headline, class_=page.state),
        element("p", page.sentence, class_="lede") if page.sentence else None,
        _links(links) if len(links) > 1 else None,
    )


def contents(page: Page, blocks: Sequence[Block] = ()) -> Html:
    """Its notices and sections, further ``blocks``, and what is known of its run."""
    sections = [_section(section, at) for at, section in enumerate(page.sections)]
    return joined(_notices(page.notices), *sections, *map(_block, blocks), _about(page))


def _block(block: Block) -> Html:
    heading = element("h2", block.title, id=f"h-{block.name}")
    return element("section", heading, block.inner, id=block.name, aria_labelledby=f"h-{block.name}")


@cache
def _asset(name: str) -> str:
    return (files("evalq.producer.page") / name).read_text(encoding="utf-8")


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _head(title: str) -> str:
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">\n'
        f"<title>{text(title)}</title><style>{style}</style></head>\n"
    )


def _links(contents: list[tuple[str, str]]) -> Html:
    items = [element("li", element("a", title, href=f"#{name}")) for name, title in contents]
    return element("nav", element("ul", *items), aria_label="On this page")


def _notices(notices: tuple[str, ...]) -> Html | None:
    if not notices:
        return None
    return element("div", *(element("p", notice) for notice in notices), class_="notice", role="note")


def _section(section: Section, at: int) -> Html:
    inner: list[Html]
    match section:
        case TileSection():
            inner = [tile_list(section.tiles)]
        case ChartSection():
            inner = [element("div", *map(chart, section.charts), class_="charts")]
        case ProseSection():
            inner = [element("p", sentence) for sentence in section.sentences]
        case TableSection():
            inner = [_plain(section)]
        case FailedSection():
            more = section.total - len(section.first)
            said = (
                f"The first {len(section.first)} of {section.total:,}; the table below has the others." if more else ""
            )
            inner = [element("p", said, class_="caption"), *map(_failed, section.first)]
    return element("section", element("h2", section.title, id=f"h{at}"), *inner, id=f"s{at}", aria_labelledby=f"h{at}")


def tile_list(tiles: Sequence[Tile]) -> Html:
    """Numbers beside each other."""
    return element("dl", *map(_tile, tiles), class_="tiles")


def _tile(tile: Tile) -> Html:
    note = element("dd", tile.note, class_="note") if tile.note else None
    return element("div", element("dt", tile.label), element("dd", tile.value, class_=f"value {tile.state}"), note)


def _plain(section: TableSection) -> Html:
    head = element("tr", *(element("th", name, scope="col") for name in section.head))
    rows = [element("tr", *(element("td", cell, dir="auto") for cell in row)) for row in section.rows]
    caption = element("caption", section.caption or section.title, class_=None if section.caption else "unseen")
    table = element("table", caption, element("thead", head), element("tbody", *rows), class_="plain")
    return element("div", table, class_="scroll", tabindex="0", role="group", aria_label=section.title)


def _failed(failed: FailedRecord) -> Html:
    mark = element("span", failed.status, class_=f"status {failed.state}")
    name = element("span", failed.id or failed.record, class_="name", dir="auto")
    summary = element("summary", mark, " ", name, " ", element("span", failed.reason, class_="reason", dir="auto"))
    where = element("p", "Record ", element("code", failed.record, dir="auto"), class_="caption")
    return element("details", summary, where, compared(failed.evidence), class_="failed")


def compared(evidence: tuple[Evidence, ...]) -> Html | None:
    """What was expected of a record, beside what came."""
    if not evidence:
        return None
    head = element("tr", *(element("th", name, scope="col") for name in ("Check", "Expected", "Came")))
    rows = [
        element(
            "tr",
            element("th", piece.what, scope="row", dir="auto"),
            element("td", piece.expected, dir="auto"),
            element("td", piece.came, dir="auto"),
            class_="fine" if piece.fine else "unmet",
        )
        for piece in evidence
    ]
    caption = element("caption", "What was expected, and what came", class_="unseen")
    table = element("table", caption, element("thead", head), element("tbody", *rows), class_="compared")
    return element("div", table, class_="scroll", tabindex="0", role="group", aria_label="Expected and came")


def record_table(listing: Listing) -> Html:
    """Where the script puts the table, and what it has to know of it."""
    columns = [{"title": column.title, "kind": column.kind} for column in listing.columns]
    statuses = [[status, state, count] for (status, state), count in sorted(listing.statuses.items())]
    known = {"columns": columns, "statuses": statuses, "kept": listing.kept, "failed": listing.failed}
    data = msgspec.json.encode(known).decode().replace("<", "\\u003c")
    return joined(
        element(
            "noscript", element("p", "Searching all records needs scripts; records.jsonl beside this file has them.")
        ),
        element("div", id="table"),
        element("script", Html(data), type="application/json", id="known"),
    )


def _about(page: Page) -> Html:
    facts = [joined(element("dt", name), element("dd", value, dir="auto")) for name, value in page.facts]
    params = element("pre", page.params, tabindex="0", aria_label="Parameters", role="region")
    return element(
        "section",
        element("h2", "About this run", id="ha"),
        element("dl", *facts, class_="facts"),
        element("details", element("summary", "Parameters"), params),
        aria_labelledby="ha",
    )
