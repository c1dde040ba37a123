"""Long lists of a report, kept as lines of JSON in files beside it: read one by one, never all at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, overload

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.files import open_unlinked, replacing
from evalq.evalcore.model.canonical import Json, read_again

LONG = 10_000
"""A list of cases with more entries is kept in a file of lines."""
_KEY = "lines_in"
_START = b'{"case":"'
_FEW = 4096
_BLOCK = 1 << 20


class Lines(Sequence[Json]):
    """A list whose entries are lines of JSON, which ``read`` gives from the first on each time."""

    def __init__(self, count: int, read: Callable[[], Iterable[bytes]], marker: Mapping[str, Json] | None = None):
        """``marker`` stands for the list in the report's file: the name, number and SHA-256 of its lines."""
        self._count = count
        self._read = read
        self.marker = marker

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Json]:
        # Many entries differ only in their case, which is the first key of each.
        known: dict[bytes, dict[str, Json]] = {}
        for line in self._read():
            end = line.find(b'",', len(_START)) if line.startswith(_START) else -1
            if end < 0 or b"\\" in line[:end]:
                yield read_again(line)
                continue
            rest = line[end + 2 :]
            entry = known.get(rest)
            if entry is None:
                if len(known) >= _FEW:
                    known.clear()
                entry = known[rest] = read_again(b"{" + rest)
            yield {"case": line[len(_START) : end].decode(), **entry}

    def lines(self) -> Iterable[bytes]:
        """The lines, without newlines."""
        return self._read()

    @overload
    def __getitem__(self, index: int) -> Json: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Json]: ...
    def __getitem__(self, index: int | slice) -> Json:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._count)
            return list(islice(iter(self), start, stop, step)) if step > 0 else list(self)[index]
        at = range(self._count)[index]
        return next(islice(iter(self), at, None))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(other) == len(self) and all(map(_equal, self, other))

    __hash__ = None  # type: ignore[assignment]


def _equal(one: Json, other: Json) -> bool:
    return bool(one == other)


def lines_in_file(path: Path, marker: Mapping[str, Json]) -> Lines:
    """The list that ``marker`` stands for, in the file at ``path``. Reading raises WireError if that is not as long."""
    count = marker["lines"]

    def read() -> Iterator[bytes]:
        found = 0
        try:
            # Not through a link: somebody else's folder must not choose files of this user.
            with open_unlinked(path) as stream:
                for line in stream:
                    found += 1
                    yield line.removesuffix(b"\n")
        except OSError as error:
            raise WireError(f"{path} cannot be read: {error.strerror}; put it back, or evaluate again") from error
        if found != count:
            raise WireError(
                f"{path} has {found:,} lines, and the report says {count:,}: put it back, or evaluate again"
            )

    return Lines(count, read, marker)


def write_lines(path: Path, lines: Lines) -> Lines:
    """Write a list to the file at ``path`` atomically; returns it as it is there."""
    digest, count, piece, size = hashlib.sha256(), 0, list[bytes](), 0
    with replacing(path) as out:
        for line in lines.lines():
            piece.append(line)
            size += len(line)
            count += 1
            if size >= _BLOCK:
                block = b"\n".join(piece) + b"\n"
                digest.update(block)
                out.write(block)
                piece, size = [], 0
        if piece:
            block = b"\n".join(piece) + b"\n"
            digest.update(block)
            out.write(block)
    return lines_in_file(path, {_KEY: path.name, "lines": count, "sha256": digest.hexdigest()})


def marker_of(name: str, count: int, sha256: str) -> dict[str, Json]:
    """What stands in a report for a list of ``count`` lines in the file ``name`` beside it."""
    return {_KEY: name, "lines": count, "sha256": sha256}


class _Marker(msgspec.Struct):
    lines_in: str
    lines: int
    sha256: str


def is_marker(value: Json) -> bool:
    """Whether a value of a report stands for a list in a file."""
    return isinstance(value, dict) and _KEY in value


def with_lines(value: Json, folder: Path) -> Json:
    """A report as read from its file in ``folder``, with the lists that its markers stand for.

    Raises msgspec.ValidationError for a marker of another form.
    """
    if not isinstance(value, dict):
        return value
    if is_marker(value):
        marker = msgspec.convert(value, _Marker)
        # The folder may be somebody else's: only a file in it.
        name = Path(marker.lines_in).name
        return lines_in_file(folder / name, {**value, _KEY: name})
    return {key: with_lines(each, folder) if isinstance(each, dict) else each for key, each in value.items()}


def has_lines(value: Any) -> bool:
    """Whether a report has a list in a file."""
    return isinstance(value, Lines) or (isinstance(value, Mapping) and any(map(has_lines, value.values())))


def whole(value: Any) -> Json:
    """A report with all lists in memory."""
    return _replaced(value, list)


def with_markers(value: Any) -> Json:
    """A report as it is written: without the lists that are in files."""
    return _replaced(value, lambda lines: list(lines) if lines.marker is None else dict(lines.marker))


def _replaced(value: Any, how: Callable[[Lines], Json]) -> Json:
    if isinstance(value, Lines):
        return how(value)
    return {key: _replaced(each, how) for key, each in value.items()} if isinstance(value, dict) else value


def set_apart(value: Json, folder: Path, path: str = "") -> Json:
    """A report with each of its `Lines` written to a file in ``folder``, named by its ``path`` in the results."""
    if isinstance(value, Lines):
        return (
            value if value.marker is not None else write_lines(folder / f"{path.removeprefix('results.')}.jsonl", value)
        )
    if isinstance(value, dict):
        return {key: set_apart(each, folder, f"{path}.{key}" if path else key) for key, each in value.items()}
    return value


# A document whose long lists and mappings follow it, in pieces of a line each.

_AT, _MORE, _PIECES = "at", "more", "pieces"
_Part = list[Json] | dict[str, Json]
_T = TypeVar("_T")


def encode_in_lines(value: msgspec.Struct) -> bytes:
    """``value`` as JSON in one line; each list or mapping with more than `LONG` entries follows, as many to a line."""
    document = msgspec.to_builtins(value, str_keys=True)
    pieces: list[bytes] = []
    head = _without_long(document, [], pieces)
    if not pieces:
        return msgspec.json.encode(value)
    return b"\n".join([msgspec.json.encode({**head, _PIECES: len(pieces)}), *pieces])


def _without_long(value: dict[str, Json], path: list[str], pieces: list[bytes]) -> dict[str, Json]:
    short: dict[str, Json] = {}
    for key, each in value.items():
        if isinstance(each, list | dict) and len(each) > LONG:
            at = [*path, key]
            short[key] = type(each)()
            entries: Iterator[Any] = iter(each.items() if isinstance(each, dict) else each)
            while some := list(islice(entries, LONG)):
                pieces.append(msgspec.json.encode({_AT: at, _MORE: dict(some) if isinstance(each, dict) else some}))
        else:
            short[key] = _without_long(each, [*path, key], pieces) if isinstance(each, dict) else each
    return short


def decode_lines(data: bytes, kind: type[_T]) -> _T:
    """What `encode_in_lines` made of a ``kind``. Raises msgspec.DecodeError for other data, and for a missing piece."""
    first, _, rest = data.partition(b"\n")
    if not rest.startswith(b'{"%s":' % _AT.encode()):
        return msgspec.json.decode(data, type=kind)
    document = msgspec.json.decode(first, type=dict[str, Any])
    count = 0
    for line in rest.split(b"\n"):
        if line:
            piece = msgspec.json.decode(line, type=_Piece)
            part: Any = document
            for key in piece.at:
                part = part.get(key) if isinstance(part, dict) else None
            _extend(part, piece)
            count += 1
    if document.pop(_PIECES, None) != count:
        raise msgspec.ValidationError(f"it has {count} lines of parts, and its first line says another number")
    return msgspec.convert(document, kind, str_keys=True)


class _Piece(msgspec.Struct):
    at: list[str]
    more: _Part


def _extend(part: Any, piece: _Piece) -> None:
    if isinstance(part, list) and isinstance(piece.more, list):
        part.extend(piece.more)
    elif isinstance(part, dict) and isinstance(piece.more, dict):
        part.update(piece.more)
    else:
        raise msgspec.ValidationError(f"its line about {'.'.join(piece.at)} does not belong to its first line")
