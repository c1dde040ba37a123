"""The frame of all pages of a viewer: content policy, style, navigation, and error pages."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import quote, urlencode

from evalq.producer.page.render import Html, element, joined, labelled, table_script, text
from evalq.producer.page.words import page_language, word

_NAV = (("", "Runs"), ("suites", "Suites"))
_BASE = ContextVar("base", default="")


@contextlib.contextmanager
def below(base: str) -> Iterator[None]:
    """A block in which every address begins with ``base``."""
    before = _BASE.set(base)
    try:
        yield
    finally:
        _BASE.reset(before)


class PageAnswer(NamedTuple):
    """A response to a browser."""

    status: int
    body: bytes
    kind: str = "text/html; charset=utf-8"


def document(
    title: str, header: Html, main: Html, *, here: str = "", head: Html | None = None, script: str = ""
) -> PageAnswer:
    """A whole page; ``here`` marks a link at the top as current, ``script`` replaces the common script."""
    links = [
        element("li", element("a", name, href=link(part), aria_current="page" if f"/{part}" == here else None))
        for part, name in _NAV
    ]
    body = joined(
        element("a", "Skip to the content", href="#content", class_="skip"),
        element("nav", element("strong", "evalq"), element("ul", *links), aria_label="Pages", class_="pages"),
        header,
        element("main", main, id="content"),
        element("script", Html(script or _script())),
    )
    return PageAnswer(200, _whole(title, body, head))


def refusal(status: int, headline: str, sentence: str) -> PageAnswer:
    """A page with an error, and a link to go on."""
    back = element("p", element("a", "All runs", href=link("")))
    main = joined(element("p", sentence, class_="lede"), back)
    return document(headline, element("header", element("h1", headline, class_="doubtful")), main)._replace(
        status=status
    )


def bare_page(
    status: int, headline: str, sentence: str, head: Html | None = None, more: Html | None = None
) -> PageAnswer:
    """A page with an error for a browser without access: no link, no script."""
    main = element("main", element("h1", headline), element("p", sentence, class_="lede"), more, id="content")
    return PageAnswer(status, _whole(headline, main, head))


def link(*parts: str, **query: object) -> str:
    """The address of a page; each of ``parts`` is escaped to one part of the path."""
    query_text = urlencode(
        {name: str(value) for name, value in query.items() if value not in (None, "")}, errors="replace"
    )
    path = "/".join([_BASE.get(), *(quote(part, safe="~", errors="replace") for part in parts)])
    return f"{path}?{query_text}" if query_text else path


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Html], *, numeric: Sequence[str] = (), look: str = ""
) -> Html:
    """A table that scrolls if it is wider than the page."""
    cells = [element("th", head, scope="col", class_="n" if head in numeric else None) for head in heads]
    head = element("thead", element("tr", *cells))
    inner = element(
        "table",
        element("caption", caption, class_="unseen"),
        head,
        element("tbody", *(labelled(row, heads) for row in rows)),
        class_="plain",
    )
    return element("div", inner, class_=f"scroll {look}".rstrip(), tabindex="0", role="group", aria_label=caption)


@cache
def content_policy() -> str:
    """The content policy of all pages: one style and the scripts by hash, nothing else, and no frames."""
    style, script, table = (_hash(source) for source in (_style(), _script(), table_script()))
    return (
        f"default-src 'none'; style-src {style}; script-src {script} {table}; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _whole(title: str, body: Html, head: Html | None) -> bytes:
    return (
        f'<!doctype html>\n<html lang="{page_language()}"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"{head or ''}<title>{text(word(title))} · evalq</title><style>{_style()}</style></head>\n"
        f"<body>{body}</body></html>\n"
    ).encode(errors="replace")  # file names may not be UTF-8


@cache
def _style() -> str:
    page = files("evalq.producer.page") / "page.css"
    return page.read_text(encoding="utf-8") + (files("evalq.producer.viewing") / "view.css").read_text(encoding="utf-8")


@cache
def _script() -> str:
    return (files("evalq.producer.viewing") / "view.js").read_text(encoding="utf-8")


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
