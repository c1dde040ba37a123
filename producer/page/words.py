"""The language of a page: its fixed texts are looked up in the table of that language, and texts of others stay.

The code writes English. `element` translates what it is given, unless the element says that its text is data
(``dir="auto"``, as for everything that users, agents and evaluators' records wrote).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, lru_cache

from evalq.producer.page.korean import KOREAN

TABLES: Mapping[str, Mapping[str, str]] = {"ko": KOREAN}
"""{language: {English text: that text}}. {n} stands for a number and {x} for any text; {0} is the first of them."""

DATA = frozenset({"code", "pre", "script", "style", "title", "del", "ins"})
"""Elements whose text is never evalq's own."""
_LANGUAGE = ContextVar("language", default="en")
_HOLES = {"{n}": r"([-+]?[\d.,]*\d(?: %| points?| s)?|–|N/A)", "{x}": "(.+)"}
_SPLITS = (" · ", ". ", "; ", ", ", ": ")


@contextlib.contextmanager
def written_in(language: str) -> Iterator[None]:
    """A block in which pages are written in ``language``: "en", or one that has a table."""
    before = _LANGUAGE.set(language if language in TABLES else "en")
    try:
        yield
    finally:
        _LANGUAGE.reset(before)


def page_language() -> str:
    """The language of the page that is being written."""
    return _LANGUAGE.get()


def word(text: str) -> str:
    """A fixed text in the language of the page; a text without an entry stays as it is."""
    language = _LANGUAGE.get()
    return text if language == "en" else _translated(language, text)


class Data(str):
    """A text of others within evalq's own: pages leave it as it is."""

    __slots__ = ()


_LETTER = re.compile("[A-Za-z]")


@lru_cache(1 << 14)
def _translated(language: str, text: str) -> str:
    core = text.strip()
    if not _LETTER.search(core):
        return text
    found = _entry(language, core)
    if found is None:
        found = _by_parts(language, core)
    return text if found is None else text.replace(core, found, 1)


def _entry(language: str, text: str) -> str | None:
    table = TABLES[language]
    forms = ((text, ""), (text.removesuffix("."), "."))
    for form, end in forms:
        found = table.get(form) or table.get(form[:1].lower() + form[1:])
        if found is not None:
            return found + end
    for form, end in forms[: 1 + text.endswith(".")]:
        for pattern, target in _patterns(language):
            if (match := pattern.fullmatch(form)) is not None:
                return target.format(*(_translated(language, each) for each in match.groups())) + end
    return None


def _by_parts(language: str, text: str) -> str | None:
    """The text with those of its parts translated that have an entry; None if none has."""
    for mark in _SPLITS:
        parts = text.split(mark)
        if len(parts) > 1:
            made = [_translated(language, each) for each in parts]
            if made != parts:
                return mark.join(made)
    return None


@cache
def _patterns(language: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Entries with holes: those with the most fixed text first."""
    holes = re.compile(r"(\{[nx]\})")
    entries = [(source, target) for source, target in TABLES[language].items() if holes.search(source)]
    entries.sort(key=lambda entry: (entry[0].count("{x}"), -len(holes.sub("", entry[0]))))
    return tuple(
        (re.compile("".join(_HOLES.get(part) or re.escape(part) for part in holes.split(source))), target)
        for source, target in entries
    )


_SCRIPT = re.compile(r'\bw\("([^"]+)"\)')


def script_words(script: str, titles: Sequence[str]) -> dict[str, dict[str, str]]:
    """The texts of a script that it looks up by ``w("...")``, and ``titles``; nothing in English."""
    if _LANGUAGE.get() == "en":
        return {}
    return {"words": {each: word(each) for each in dict.fromkeys([*_SCRIPT.findall(script), *titles])}}


_LETTERS = re.compile(r"[^\W\d_]")
_SCRIPTS = (("ko", re.compile("[\uac00-\ud7a3]")), ("ja", re.compile("[\u3041-\u30ff]")))


def language_of(content: str) -> str | None:
    """The language of a text in the script of Korean or Japanese, for readers aloud and fonts; None for others."""
    start = content[:2_000]
    letters = len(_LETTERS.findall(start))
    return next((name for name, script in _SCRIPTS if len(script.findall(start)) * 4 > letters > 0), None)
