"""Read JSON from untrusted sources: strict objects, values at a path or inside text, and lines of records.

Nesting is limited here and not by the interpreter's stack, whose depth differs between processes. Keys that an object
has twice are found, although decoders accept them silently.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from evalq.evalcore.model.calls import WHEN_DECIDED
from evalq.evalcore.model.state import Tally
from evalq.evalcore.naming import found, is_text, join, kind_of, shorten
from evalq.evalcore.records.batch import Batch

T = TypeVar("T")

MAX_DEPTH = 100
"""The deepest nesting of objects and lists in a record, far below the depth at which a decoder fails."""
_TOO_DEEP = f"nested more than {MAX_DEPTH} deep"
_LONG = 1 << 16
_SHOWN = 60


class RecordFault(ValueError):
    """A record is invalid; the message has the path of the fault and the reason."""

    def __init__(self, path: str, reason: str) -> None:
        # A key with half a surrogate pair could not be encoded, so the message could not be written.
        super().__init__(f"{path.encode('utf-8', 'replace').decode()}: {reason}")


def read_object(line: bytes) -> dict[str, Any]:
    """The JSON object in ``line``.

    Raises RecordFault if ``line`` is not UTF-8, not JSON or not an object, has a key twice or half a surrogate pair, or
    nests deeper than MAX_DEPTH.
    """
    if (plain := _plain_object(line)) is not None:
        return plain
    value = _decoded(line)
    # For a long line, checking its few values is faster than counting its brackets.
    if len(line) > _LONG or line.count(b"{") + line.count(b"[") > MAX_DEPTH:
        _refuse_depth(value)
    if not isinstance(value, dict):
        raise RecordFault("$", f"expected an object, got {_kind(value)}")
    if len(line) > _LONG or b"\\u" in line:
        _refuse_surrogates(value)
    return value


_LONG_NUMBER = b"0" * 15
"""Decoders read long numbers differently."""
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_BEFORE_COLON = (b" :", b"\t:", b"\r:", b"\n:")


def _has_spaced_colon(data: bytes) -> bool:
    """Whether a key may have white space before its colon."""
    for each in _BEFORE_COLON:
        if each in data:
            return _SPACED_COLON.search(data) is not None
    return False


def _plain_object(line: bytes) -> dict[str, Any] | None:
    """The object in a line that is surely valid: as `read_object` in a fifth of the time; None for other lines."""
    if len(line) > _LONG or line.count(b"{") + line.count(b"[") > MAX_DEPTH or b"\\u" in line:
        return None
    if _LONG_NUMBER in line.translate(_ZEROS) or _has_spaced_colon(line):
        return None
    try:
        value = msgspec.json.decode(line)
    except ValueError:
        return None
    # Each key adds one `":`, and decoding loses keys that are there twice.
    if not isinstance(value, dict) or line.count(b'":') != msgspec.json.encode(value).count(b'":'):
        return None
    return value


def _decoded(line: bytes) -> Any:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise RecordFault("$", f"not UTF-8: byte 0x{line[error.start]:02x} at {error.start}") from None
    try:
        return _DECODER.decode(text)
    except (_Repeated, RecursionError, ValueError) as error:
        # Check the depth first: where a decoder fails depends on its caller's stack, and the reason must not.
        if deeper_than(MAX_DEPTH, line):
            raise RecordFault("$", _TOO_DEEP) from None
        raise _fault(text, error) from None


def _fault(text: str, error: Exception) -> RecordFault:
    """The fault of ``text``, whose decoding raised ``error``."""
    try:
        if isinstance(error, _Repeated):
            # The decoder stopped at the repeated key; the rest of the line may not even be JSON.
            return RecordFault(_repeated_key(_PAIRS_DECODER.decode(text)), "the key occurs twice")
    except ValueError as worse:
        error = worse
    if isinstance(error, json.JSONDecodeError):
        return RecordFault("$", f"not JSON: {error.msg} at {error.pos}")
    return RecordFault("$", "not JSON: NaN, an infinity, or a number of thousands of digits")


def deeper_than(limit: int, data: bytes) -> bool:
    """Whether objects and lists in ``data`` nest deeper than ``limit``. Brackets in strings do not count.

    ``data`` need not be valid JSON.
    """
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    depth = 0
    for bracket in _STRING.sub(b"", data).translate(None, _NOT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > limit:
            return True
    return False


def typed(value: Any, kind: type[T]) -> T:
    """``value`` converted to ``kind`` by msgspec. Raises RecordFault with the path of the value that does not fit."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        # msgspec gives the path of a fault only in its message.
        message, _, path = str(error).partition(" - at `")
        path = path.rstrip("`") or "$"
        if missing := message.partition("missing required field `")[2]:
            raise RecordFault(f"{path}.{missing.rstrip('`')}", "missing") from None
        raise RecordFault(path, f"{message[:1].lower()}{message[1:]}") from None


class _Repeated(Exception):
    pass


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its list of pairs, repeated keys included."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Repeated
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
_PAIRS_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs, parse_constant=_no_constant)
# Possessive: an unclosed quote must not cause backtracking.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _repeated_key(value: Any) -> str:
    """The path of the first key in ``value`` that occurs twice in one object."""
    for path, pairs in _walk(value, "$"):
        seen: set[str] = set()
        for key, _ in pairs if isinstance(pairs, _Pairs) else ():
            if key in seen:
                return f"{path}.{key[:_SHOWN]}"
            seen.add(key)
    raise AssertionError("no key occurs twice")


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value inside ``value``, with its path."""
    waiting = [(path, value)]
    while waiting:
        at, inner = waiting.pop()
        yield at, inner
        if isinstance(inner, dict | _Pairs):
            items = inner.items() if isinstance(inner, dict) else inner
            # A stack, filled in reverse, so that faults are found in the order of the text.
            waiting += [(f"{at}.{key[:_SHOWN]}", member) for key, member in reversed(list(items))]
        elif isinstance(inner, list):
            waiting += [(f"{at}[{index}]", item) for index, item in reversed(list(enumerate(inner)))]


def _refuse_depth(value: Any) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        contents = (list(each.values()) if isinstance(each, dict) else each for each in level)
        level = [inner for values in contents for inner in values if isinstance(inner, dict | list)]
    if level:
        raise RecordFault("$", _TOO_DEEP)


def _refuse_surrogates(value: Any) -> None:
    for path, inner in _walk(value, "$"):
        texts = list(inner) if isinstance(inner, dict) else [inner]
        if any(isinstance(text, str) and not is_text(text) for text in texts):
            raise RecordFault(path, "half of a surrogate pair")


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


# Answers of agents: any JSON value, with every failure reported as Malformed.

MAX_ANSWER_DEPTH = 200
"""The deepest nesting of objects and lists in an answer."""

_SPACED_COLON = re.compile(rb'"[ \t\r\n]+:')


class Malformed(ValueError):
    """The data is not JSON; the message says why and where."""


def decode(data: bytes) -> Any:
    """The JSON value in ``data``. Raises Malformed."""
    if deeper_than(MAX_ANSWER_DEPTH, data):
        raise Malformed(f"nested deeper than {MAX_ANSWER_DEPTH} levels")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(_reason(data, error)) from None


def _reason(data: bytes, error: Exception) -> str:
    try:
        data.decode()
    except UnicodeDecodeError as found:
        return f"not UTF-8: 0x{data[found.start]:02x} (byte {found.start})"
    return f"not JSON: {str(error).removeprefix('JSON is malformed: ')}"


class _Object(dict[str, Any]):
    """A decoded object, and the keys that its text repeats."""

    repeated: tuple[str, ...] = ()


def repeated_keys(data: bytes, value: Any) -> list[str]:
    """The paths of keys that an object in ``data`` repeats, in the order of objects. ``data`` decodes to ``value``."""
    # Fast check: each key adds one `":`, and decoding loses repeated keys, so the re-encoded value has fewer. A string
    # can contain `":` too, but then on both sides. Escapes and spaces before a colon need the full check below.
    plain = b"\\u00" not in data and not _has_spaced_colon(data)
    if plain and data.count(b'":') == msgspec.json.encode(value).count(b'":'):
        return []
    # Numbers are not converted: only keys matter, and one of thousands of digits is slow to convert, or refused.
    root = json.loads(data, object_pairs_hook=_with_repeated, parse_int=len, parse_float=len)
    found, stack = [], [("", root)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, _Object):
            found += [join(path, key) for key in node.repeated]
            stack += [(join(path, key), member) for key, member in reversed(node.items())]
        elif isinstance(node, list):
            stack += [(join(path, index), item) for index, item in reversed(list(enumerate(node)))]
    return found


def _with_repeated(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    if len(made) < len(pairs):
        seen: dict[str, int] = {}
        for key, _ in pairs:
            seen[key] = seen.get(key, 0) + 1
        made.repeated = tuple(key for key, times in seen.items() if times > 1)
    return made


# An answer's JSON: the whole text, or one fenced block in it.

# CommonMark 0.31, section 4.5: at least three backticks or tildes; after backticks, the line has no further backtick.
_FENCE = re.compile(r"(?P<mark>`{3,}(?!.*`)|~{3,})(?P<info>[ \t]*\{?\.?(?P<kind>\w*).*)", re.DOTALL)


class NoJson(ValueError):
    """A text has no JSON value, or several; the message says which."""


def extract(text: str) -> Any:
    """The JSON value of ``text``, or of the one fenced JSON block in it. Raises NoJson.

    evalq does not search prose for a bare value: it would have to guess at which brace the answer begins.
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
        # Blocks named JSONC or JSON5 are tried as JSON, so that the reported fault is, say, their comments.
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
    """(language name, text) of each fenced block, in one pass over the lines.

    One pass, because a hostile text may have a million fences that never close.
    """
    kind, mark, begun, at = None, "", 0, 0
    for line in text.split("\n"):
        following = at + len(line) + 1
        fence = _FENCE.fullmatch(line.strip(" \t\r"))
        if fence and kind is None:
            # The language name may have attributes or a title: ```json title="a", ```{.json}, ```json:a.json.
            kind, mark, begun = fence["kind"], fence["mark"], following
        elif fence and not fence["info"] and fence["mark"].startswith(mark):
            yield str(kind), text[begun:at]
            kind = None
        at = following


def _decode(text: str) -> Any:
    # surrogatepass: the decoder below reports half a surrogate pair, like any other invalid JSON.
    data = text.encode(errors="surrogatepass")
    if deeper_than(MAX_ANSWER_DEPTH, data):
        raise NoJson(f"nested deeper than {MAX_ANSWER_DEPTH} levels")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoJson(f"not JSON: {str(error).removeprefix('JSON is malformed: ')}") from None


_STEP = re.compile(r"(?:\.|\A)(?P<key>[^.\[\]]+)|\[(?P<index>\d+)\]|\[(?P<quote>['\"])(?P<name>.*?)(?P=quote)\]")


class NothingThere(LookupError):
    """A path leads to nothing; the message has the part of the path that is missing."""


def parse_path(path: str) -> tuple[str | int, ...]:
    """The steps (keys and indexes) of a path such as ``$.choices[0].message.content``; "" or ``$`` is the root.

    Raises ValueError for text that is not such a path.
    """
    rest = path.removeprefix("$").removeprefix(".")
    if rest.startswith("."):
        raise ValueError("not a path: '..' is not understood; write it like choices[0].message.content")
    steps: list[str | int] = []
    at = 0
    while at < len(rest):
        match = _STEP.match(rest, at) if at == 0 or rest[at] in ".[" else None
        if match is None:
            raise ValueError(f"not a path at character {at + 1}; write it like choices[0].message.content")
        key = match["key"] if match["key"] is not None else match["name"]
        steps.append(int(match["index"]) if match["index"] is not None else str(key))
        at = match.end()
    return tuple(steps)


def find_at(value: Any, steps: tuple[str | int, ...], what: str = "the reply") -> Any:
    """The value at the path ``steps`` in ``value``, which messages call ``what``. Raises NothingThere."""
    for number, step in enumerate(steps):
        listed = isinstance(step, int) and isinstance(value, list) and step < len(value)
        if listed or (isinstance(step, str) and isinstance(value, dict) and step in value):
            value = value[step]
        else:
            shown = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps[: number + 1])
            raise NothingThere(f"{what} has nothing at {shown.removeprefix('.')}")
    return value


# The key ``stop`` in a line of recorded outputs, from a sweep that may stop a case early.
# ``{"rule": "when-decided", "of": 100}``: at most a hundred calls were planned for the case, fewer if it had a verdict
# (collapsed or diverse) before.

_MOST_CALLS = 2**53


def stop_of(record: dict[str, Any]) -> tuple[int, str]:
    """(planned calls, fault) by the record's ``stop``. Calls are 0 without one; the fault is "" if it is valid."""
    if "stop" not in record:
        return 0, ""
    stop = record["stop"]
    if not isinstance(stop, dict):
        return 0, f"stop: {kind_of(stop)} where an object with rule and of is wanted"
    if stop.get("rule") != WHEN_DECIDED:
        what = repr(shorten(stop["rule"])) if isinstance(stop.get("rule"), str) else found(stop, "rule")
        return 0, f"stop.rule: {what} where {WHEN_DECIDED!r} is wanted"
    calls = stop.get("of")
    if type(calls) is not int or not 1 <= calls < _MOST_CALLS:
        return 0, f"stop.of: {found(stop, 'of')} where a whole number from 1 is wanted"
    unknown = [key for key in stop if key not in ("rule", "of")]
    return (0, f"stop.{shorten(unknown[0])}: no such key; there are rule and of") if unknown else (calls, "")


R = TypeVar("R")


class Line(msgspec.Struct, Generic[R]):
    """One line of a batch: ``where`` as "<source>:<line>", the record's ``id`` or else its line number, and the record.

    For an invalid line ``record`` is None, and ``reason`` begins with the path of the fault.
    """

    where: str
    id: str
    record: R | None = None
    reason: str = ""
    number: int = 0

    def head(self, status: str) -> dict[str, Any]:
        """The first keys of this record's line in records.jsonl."""
        return {"record": self.where, "id": self.id, "status": status}

    def broken(self) -> bytes:
        """The line in records.jsonl for an invalid record."""
        return msgspec.json.encode({**self.head("error"), "reason": self.reason})


def read_lines(batch: Batch, read: Callable[[dict[str, Any]], R], tally: Tally) -> Iterator[Line[R]]:
    """Every non-blank line of ``batch``; ``read`` turns an object into a record, or raises RecordFault.

    Invalid lines are counted as errors in ``tally``, which also lists their faults.
    """
    for number, data in batch.lines():
        where, given = batch.where(number), None
        try:
            given = read_object(data)
            line = Line(where, _id(given, number), read(given), number=number)
        except RecordFault as fault:
            tally.errors += 1
            tally.listed.add(number, str(fault))
            line = Line(where, _id(given, number), reason=str(fault), number=number)
        yield line


def line_ids(batch: Batch) -> Iterator[str]:
    """The `Line.id` of every line, invalid ones included."""
    for number, data in batch.lines():
        given = None
        with contextlib.suppress(RecordFault):
            given = read_object(data)
        yield _id(given, number)


def _id(given: Mapping[str, Any] | None, number: int) -> str:
    own = None if given is None else given.get("id")
    # Python counts a bool as an int, but it is not an id.
    return str(own) if isinstance(own, str | int) and not isinstance(own, bool) else str(number)
