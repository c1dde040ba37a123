"""The contract of an answer: pure JSON, JSON fenced in text, or a fault that leaves the text as it came."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from evalq.evalcore.records.objects import deeper_than

__all__ = ["MAX_DEPTH", "NoJson", "extract", "json_text"]

MAX_DEPTH = 200
"""How deep the JSON of an answer, and of the reply around it, may nest."""
# CommonMark 0.31, section 4.5: three backticks or tildes or more; behind backticks none stands in the same line.
_FENCE = re.compile(r"(?P<mark>`{3,}(?!.*`)|~{3,})(?P<info>[ \t]*\{?\.?(?P<kind>\w*).*)", re.DOTALL)


class NoJson(ValueError):
    """The text holds no JSON, or more than one; the message says which."""


def extract(text: str) -> Any:
    """The JSON that ``text`` is, or the one JSON block fenced in it. Raises NoJson.

    A bare value in prose is not looked for: which brace begins the answer would be a guess.
    """
    return _found(text)[1]


def json_text(text: str) -> str:
    """The part of ``text`` that `extract` decodes, without white space around it. Raises NoJson."""
    return _found(text)[0]


def _found(text: str) -> tuple[str, Any]:
    stripped = text.strip()
    if not stripped:
        raise NoJson("the answer is empty")
    try:
        return stripped, _decode(stripped)
    except NoJson as error:
        fault = error
    found: list[tuple[str, Any]] = []
    for kind, block in _fenced(text):
        # By the other names, too, though JSON alone is read: comments in it are then told as the fault.
        if kind.lower() in ("", "json", "jsonc", "json5"):
            try:
                found.append((block.strip(), _decode(block)))
            except NoJson as error:
                fault = NoJson(f"in the fenced block: {error}")
    if len(found) == 1:
        return found[0]
    if found:
        raise NoJson(f"{len(found)} fenced JSON blocks, where one answer is wanted")
    raise fault


def _fenced(text: str) -> Iterator[tuple[str, str]]:
    """(what the fence says it holds, text) of each fenced block, in one pass over the lines: whoever writes a million
    fences that never close must not be looked through a million times.
    """
    kind, mark, begun, at = None, "", 0, 0
    for line in text.split("\n"):
        following = at + len(line) + 1
        fence = _FENCE.fullmatch(line.strip(" \t\r"))
        if fence and kind is None:
            # A title or attributes may stand behind the word: ```json title="a", ```{.json}, ```json:a.json.
            kind, mark, begun = fence["kind"], fence["mark"], following
        elif fence and not fence["info"] and fence["mark"].startswith(mark):
            yield str(kind), text[begun:at]
            kind = None
        at = following


def _decode(text: str) -> Any:
    # Half a surrogate is for the decoder to refuse, as any other text that is no JSON.
    data = text.encode(errors="surrogatepass")
    if deeper_than(MAX_DEPTH, data):
        raise NoJson(f"nested deeper than {MAX_DEPTH} levels")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoJson(f"not JSON: {str(error).removeprefix('JSON is malformed: ')}") from None
