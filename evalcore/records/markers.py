"""Markers of a prompt: other people's texts stand between them, and a judge's reply counts only with them.

A marker is a digest of all texts that others wrote in the prompt, and stands in none of them. So no answer can end its
own place, or hold a reply that counts; and the same texts have the same marker in every run, resumed or replayed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from evalq.evalcore.records.decoding import Malformed, decode, repeated_keys
from evalq.evalcore.records.extract import NoJson

__all__ = ["KEY", "enclosed", "marker_of", "reply_of", "whole_reply"]

KEY = "marker"
"""The key of a reply under which its prompt's marker has to stand."""
_LONGEST = 1_000_000
_MOST_READ = 8 * _LONGEST
"""Characters that are read for one reply, by all tries together: each brace of a text may begin an object."""
_BAD_OUTPUT = "bad_output"
"""How the error of a recorded reply begins where one came, and the target's contract wants another."""
_BRACKET = re.compile(r"[{\[]")
_decoder = json.JSONDecoder()


def marker_of(texts: Mapping[str, str]) -> str:
    """The marker of a prompt with these ``texts`` by name: 16 hexadecimal digits that stand in none of them."""
    whole = "\0".join(f"{name}\0{texts[name]}" for name in sorted(texts))
    # 64 bits: to find a text that holds its own digest takes about 2^64 tries (decision 22).
    marker = _digest(whole)
    # If somebody finds such a text all the same, its digest is digested once more.
    while marker in whole:
        marker = _digest(f"{marker}\0{whole}")
    return marker


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def enclosed(name: str, text: str, marker: str) -> str:
    """``text`` between the markers of its prompt."""
    return f"<<<{name.upper()}-{marker}>>>\n{text}\n<<<END-{marker}>>>"


def whole_reply(output: Any, text: str | None, error: str) -> str | None:
    """All that a target replied, by its recorded ``output`` (UNSET: none), ``text`` and ``error``; None for nothing.

    The output alone is what the target's contract took for the answer: it may be what the judge quoted.
    """
    if error and not error.startswith(_BAD_OUTPUT):
        return None
    if text is not None or output is msgspec.UNSET:
        return text
    return output if isinstance(output, str) else json.dumps(output)


def reply_of(text: str, marker: str) -> dict[str, Any]:
    """The one JSON object in ``text`` that has ``marker`` under `KEY`: alone, in a fence, or in prose.

    Every other object counts for nothing: the judge may have copied it from the text that it judges. Raises NoJson
    where no object has the marker, where several have it, and where the object is a part of other JSON.
    """
    if not marker:
        raise NoJson("its prompt has no marker; ask the judge again")
    if len(text) > _LONGEST:
        raise NoJson(f"the reply has {len(text):,} characters; {_LONGEST:,} are the most")
    places = [found.start() for found in re.finditer(rf'"{KEY}"\s*:\s*"{re.escape(marker)}"', text)]
    if len(places) != 1:
        count = "no object has" if not places else f"{len(places)} objects have"
        raise NoJson(f"{count} the marker of its prompt, where exactly one has to")
    spans = list(_around(text, places[0]))
    if len(spans) != 1:
        inside = "a part of other JSON" if spans else "not JSON"
        raise NoJson(f"the object with the marker of its prompt is {inside}")
    data = text[spans[0][0] : spans[0][1]].encode(errors="surrogatepass")
    try:
        value = decode(data)
    except Malformed as error:
        raise NoJson(str(error)) from None
    if not isinstance(value, dict) or value.get(KEY) != marker:
        raise NoJson("the marker of its prompt is not a member of the object that the reply is")
    # Decoders differ in which of the two they keep, and a verdict must not go by that.
    if repeated_keys(data, value):
        raise NoJson("a key stands in it twice")
    return value


def _around(text: str, place: int) -> Iterator[tuple[int, int]]:
    """(start, end) of each JSON object and list in ``text`` that ``place`` is within. Raises NoJson."""
    left = _MOST_READ
    for start in (found.start() for found in _BRACKET.finditer(text, 0, place)):
        try:
            end = _decoder.raw_decode(text, start)[1]
            left -= end - start
        except (ValueError, RecursionError) as error:  # besides what is no JSON, numbers of thousands of digits
            end, at = start, error.pos if isinstance(error, json.JSONDecodeError) else len(text)
            left -= at - start
        if end > place:
            yield start, end
        if left < 0:
            raise NoJson("the reply has too many braces before the marker to be read")
