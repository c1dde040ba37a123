"""Inputs: finding and naming them, making each a plain file, and recognising other kinds of files."""

from __future__ import annotations

import csv
import glob
import gzip
import os
import re
import sys
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from evalq.evalcore.errors import InputError, UsageError
from evalq.evalcore.files import open_input, replacing
from evalq.evalcore.model.manifest import BLOCK_BYTES, BOM, MAX_RECORD_BYTES, Format
from evalq.evalcore.naming import is_text
from evalq.evalcore.records.batch import Batch, other_encoding

PACKED = (".gz", ".zst")


class Layout(msgspec.Struct, frozen=True):
    """How the records of a file become lines: the ``form`` of the file, and a path in a record for some keys of a line.

    `evalq.evalcore.records.layouts` has the rest.
    """

    form: Literal["jsonl", "json", "csv", "tsv", "parquet"]
    keys: tuple[tuple[str, str], ...] = ()


class Source(msgspec.Struct, frozen=True):
    """One input: its ``name`` in reports (unique in a run), the path as ``given``, and the ``path`` to read.

    ``members`` are the files of a folder that is one input. `spool` makes a line of each. With a ``layout``, the
    records are not yet the lines that are evaluated. ``joined`` is a file to evaluate in place of ``path``, each line
    of which also has what evaluating it needs; ``sha256`` is then the digest of ``path``.
    """

    name: str
    given: str
    path: str
    members: tuple[str, ...] = ()
    layout: Layout | None = None
    # Left out of run.json by runs without them.
    joined: str | msgspec.UnsetType = msgspec.UNSET
    sha256: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def cut_path(self) -> str:
        """The file that is cut into chunks."""
        return self.joined or self.path

    @property
    def files(self) -> list[str]:
        """The paths to read, before spooling."""
        return [str(Path(self.path) / member) for member in self.members] if self.members else [self.path]


def discover(given: Sequence[str], suffixes: Sequence[str], gathers: Sequence[str] = ()) -> list[Source]:
    """The inputs that ``given`` names, in its order; folders and globs are sorted by name.

    In a folder, each file with one of ``suffixes`` (also packed as .gz or .zst) is an input; a folder of files with one
    of ``gathers`` is one input. "-" is standard input. Names are base names; a second input with the same name gets
    "#2".

    Raises InputError for a file that does not exist, for a name that is not UTF-8, for a folder or glob that matches
    nothing, and for a folder that holds both kinds of files.
    """
    sources: dict[str, Source] = {}
    numbers: dict[str, int] = {}
    for source in [source for item in given for source in _expand(item, suffixes, gathers)]:
        # Continue from the last number of this name: thousands of files may have it, and no smaller number is free.
        name, number = source.name, numbers.get(source.name, 1)
        while name in sources:
            number += 1
            name = f"{source.name}#{number}"
        numbers[source.name] = number
        if not is_text(source.given):  # `spool` escapes such names of members
            raise InputError("no input", [(ascii(source.given), "its name is not text in UTF-8: rename it")])
        sources[name] = msgspec.structs.replace(source, name=name)
    return list(sources.values())


def require_distinct(outputs: Sequence[str]) -> None:
    """Raise UsageError if ``--outputs`` names a file twice, since its answers would count twice."""
    if len({os.path.realpath(path) for path in outputs}) < len(outputs):
        raise UsageError("--outputs names the same file twice: its answers would count twice")


def stands_for(name: str) -> Iterator[str]:
    """The paths to read for ``name``: itself, or the matches of a pattern; for a folder also its files."""
    matching = glob.glob(name, recursive=True) if glob.has_magic(name) and not os.path.lexists(name) else []
    for path in matching or [name]:
        yield path
        if os.path.isdir(path):
            # Not `entry.is_file()`: a link that leads to itself would raise, depending on the order of the entries.
            yield from (entry.path for entry in os.scandir(path) if os.path.isfile(entry.path))


def _unpacked_name(name: str) -> str:
    """A file's name without .gz or .zst."""
    return name.removesuffix(".gz").removesuffix(".zst")


def _expand(item: str, suffixes: Sequence[str], gathers: Sequence[str]) -> list[Source]:
    """The inputs that ``item`` names; their names need not be unique yet."""
    if item == "-":
        return [Source("stdin", item, item)]
    if os.path.isdir(item):
        return _in_folder(item, suffixes, gathers)
    # Check this before globbing: a file's name may contain a star or brackets.
    if os.path.exists(item):
        if not os.path.isfile(item):
            raise InputError("no input", [(item, "not a plain file (a pipe or a device); - reads standard input")])
        return [_file(item)]
    paths = sorted(path for path in glob.glob(item, recursive=True) if os.path.isfile(path))
    if not paths:
        matches = "no file matches" if glob.has_magic(item) else "no such file"
        raise InputError("no input", [(item, matches)])
    return [_file(path) for path in paths]


def _file(path: str) -> Source:
    return Source(_unpacked_name(Path(path).name), path, path)


def _in_folder(folder: str, suffixes: Sequence[str], gathers: Sequence[str]) -> list[Source]:
    names = sorted(path.name for path in Path(folder).iterdir() if path.is_file())
    inputs, members = ([name for name in names if name.endswith(_packable(ends))] for ends in (suffixes, gathers))
    if inputs and members:
        both = f"the folder holds {inputs[0]} and {members[0]}: name the files, or folders that hold one kind"
        raise InputError("an input is ambiguous", [(folder, both)])
    if not inputs and not members:
        endings = ", ".join([*suffixes, *gathers])
        raise InputError("no input", [(folder, f"the folder holds no file ending in {endings}")])
    if members:
        name = Path(os.path.normpath(folder)).name
        # "." and ".." do not name the folder, and its name on this machine must not be in the report.
        return [Source("folder" if name in ("", "..") else name, folder, folder, tuple(members))]
    return [_file(str(Path(folder) / name)) for name in inputs]


def _packable(suffixes: Sequence[str]) -> tuple[str, ...]:
    return tuple(suffix + packing for suffix in suffixes for packing in ("", *PACKED))


def read_columns(header: bytes, name: str, required: Sequence[str], line: int = 1) -> tuple[str, ...]:
    """The columns of a CSV header on ``line``. Raises InputError that names all missing ``required`` columns."""
    try:
        columns = Batch(name, 1, header).first_row()
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{name} cannot be read", [(f"{name}:{line}", f"not a CSV in UTF-8: {error}")]) from None
    missing = [column for column in required if column not in columns]
    if missing:
        reason = f"missing column{'s' if len(missing) > 1 else ''}: {', '.join(missing)}"
        alike = [
            (column, name) for column in columns for name in missing if column != name and _bare(column) == _bare(name)
        ]
        if len(columns) == 1 and not alike:
            reason += f" (the header is one field, {columns[0][:60]!r}: is the delimiter a comma?)"
        elif alike:
            # By ascii() where two look the same: blanks, or letters in two parts as macOS writes Korean names.
            shown = ", ".join(
                f"{ascii(column) if len(column) > len(name) + 2 else repr(column)} is to be {name!r}"
                for column, name in alike[:3]
            )
            reason += f" (the header has other blanks, capitals or letters: {shown})"
        else:
            names = ", ".join(repr(column[:30]) for column in columns[:8])
            more = f" and {len(columns) - 8} more" if len(columns) > 8 else ""
            reason += f" (the header has {names}{more})"
        raise InputError(f"{name} lacks what the evaluator reads", [(f"{name}:{line}", reason)])
    # Check required columns only: a table may repeat others.
    repeated = [column for column, count in Counter(columns).items() if count > 1 and column in required]
    if repeated:
        raise InputError(f"{name} is ambiguous", [(f"{name}:{line}", f"repeated column: {', '.join(repeated)}")])
    return columns


def _bare(column: str) -> str:
    """A column's name without what cannot be seen: blanks, capitals, and the way its letters are composed."""
    return "".join(unicodedata.normalize("NFKC", column).casefold().replace("\ufeff", "").replace("\u200b", "").split())


def format_suffixes(fmt: Format) -> tuple[str, ...]:
    """The file endings to search for in a folder."""
    return (".csv",) if fmt == "csv" else (".jsonl", ".ndjson")


# Making every input a plain file to cut: standard input, packed files, and folders with a record a file.

MAX_UNPACKED_BYTES = 8 << 30
"""The default limit of an unpacked input: a few megabytes can unpack to a full disk."""

Gather = Callable[[str, bytes], bytes]
_ZSTD_PIECE = 8 << 10  # unpacking may make 30,000 times as much of it at once, in memory


def needs_spool(source: Source) -> bool:
    """Whether ``source`` cannot be read by byte range as it is."""
    return os.path.isdir(source.path) or source.path == "-" or source.path.endswith(PACKED)


def spool(source: Source, folder: Path, gather: Gather | None = None, most: int = MAX_UNPACKED_BYTES) -> Source:
    """Copy standard input or a packed file into ``folder``, unpacked, so that it can be read by byte range.

    For a source with members, ``gather`` (an evaluator's `Gathering.line`) makes one file, with a line for each. Other
    sources come back unchanged. Raises InputError if packed data is damaged or more than ``most`` bytes, or a member
    cannot be read; OSError if the folder cannot hold it.
    """
    if not needs_spool(source):
        return source
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / source.name
    # Use another name until it is whole, so that a killed command leaves no half input under this one.
    with replacing(target) as out:
        if gather is not None and source.members:
            for path in source.files:
                out.write(_gathered(path, gather) + b"\n")
        else:
            for piece in unpacked(source.path, source.given, most):
                out.write(piece)
    return msgspec.structs.replace(source, path=str(target), members=tuple(map(_shown, source.members)))


def _shown(member: str) -> str:
    """A member's name in reports: without its packing, and with bytes that are not UTF-8 escaped."""
    return _unpacked_name(os.fsencode(member).decode(errors="backslashreplace"))


def _gathered(path: str, gather: Gather) -> bytes:
    """The line for the file at ``path``. Raises InputError."""
    data = _content(path)
    line = gather(_shown(Path(path).name), data.removeprefix(BOM)) if len(data) <= MAX_RECORD_BYTES else data
    if len(line) > MAX_RECORD_BYTES:
        raise InputError("an input cannot be gathered", [(path, f"a record longer than {MAX_RECORD_BYTES >> 20} MiB")])
    if b"\n" in line or not line.strip():
        # Not an InputError: the evaluator's `gather` is wrong, so changing the input would not help.
        raise ValueError(f"{path}: gathered to no line, or to several")
    return line


def _content(path: str) -> bytes:
    """The bytes of a member, unpacked; one byte more than the limit if it is too long. Raises InputError."""
    if path.endswith(PACKED):
        data = bytearray()
        for piece in unpacked(path, path, MAX_UNPACKED_BYTES):
            data += piece
            if len(data) > MAX_RECORD_BYTES:
                break

        return bytes(data[: MAX_RECORD_BYTES + 1])
    try:
        with open_input(path) as stream:
            return stream.read(MAX_RECORD_BYTES + 1)
    except OSError as error:
        raise InputError("an input cannot be read", [(path, str(error.strerror))]) from error


def unpacked(path: str, given: str, most: int) -> Iterator[bytes]:
    """The bytes of standard input or of a packed file (at ``most`` so many), piece by piece. Raises InputError."""
    try:
        # Standard input needs no limit, since it is not packed.
        yield from _not_too_much(_pieces(path), most if path != "-" else None)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError("an input cannot be unpacked", [(given, str(error))]) from error


def _not_too_much(pieces: Iterable[bytes], most: int | None) -> Iterator[bytes]:
    """``pieces``, up to ``most`` bytes. Raises EOFError beyond that, and for a record that is too long to cut."""
    total = line = 0
    for piece in pieces:
        total += len(piece)
        last = piece.rfind(b"\n")
        # Check lines now: a line without an end would fill the disk before anything cuts it.
        line = line + len(piece) if last < 0 else len(piece) - last
        if most is not None and total > most:
            raise EOFError(f"more than {most:,} bytes unpacked; if they are wanted, raise unpack_bytes")
        if line > MAX_RECORD_BYTES + BLOCK_BYTES:
            raise EOFError(f"a record longer than {MAX_RECORD_BYTES >> 20} MiB")
        yield piece


def _pieces(path: str) -> Iterator[bytes]:
    if path == "-":
        yield from iter(lambda: sys.stdin.buffer.read(BLOCK_BYTES), b"")
    elif path.endswith(".gz"):
        with open_input(path) as packed, gzip.open(packed) as stream:
            yield from iter(lambda: stream.read(BLOCK_BYTES), b"")
    else:
        yield from _unpacked_zstd(path)


def _unpacked_zstd(path: str) -> Iterator[bytes]:
    """Unpack frame by frame: the library's reader does not notice that a file was cut off."""
    import zstandard  # import it only for packed inputs

    frame = None
    with open_input(path) as packed:
        for piece in iter(lambda: packed.read(_ZSTD_PIECE), b""):
            try:
                while piece:
                    frame = frame or zstandard.ZstdDecompressor().decompressobj()
                    yield frame.decompress(piece)
                    piece, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from error
    if frame is not None:
        raise EOFError("compressed file ended before its last frame did")


# Fifteen digits at most, so that every repeat is below 2^53, the limit for a record's repeat.
_NUMBERED = re.compile(r"(?P<case>.+)[.#](?P<repeat>[0-9]{1,15})", re.DOTALL)


def readings(name: str) -> list[tuple[str, int]]:
    """The (case, repeat) that a name without its ending may mean, the likelier first.

    ``v1.5`` is the case with that id, or else repeat 5 of ``v1``.
    """
    match = _NUMBERED.fullmatch(name)
    return [(name, 0), *([(match["case"], int(match["repeat"]))] if match else [])]


def case_of_name(name: str, known: Callable[[str], bool]) -> tuple[str, int] | None:
    """The first reading whose case is ``known``; None if no case is."""
    return next((reading for reading in readings(name) if known(reading[0])), None)


# The likely kind of an unreadable file, by its first bytes, so that a message can say what to do with it.

HEAD_BYTES = 4096

# The order matters: UTF-32's mark begins with that of UTF-16.
_ENCODINGS = {
    b"\xff\xfe\0\0": "UTF-32: save the file as UTF-8",
    b"\0\0\xfe\xff": "UTF-32: save the file as UTF-8",
    b"\xff\xfe": "UTF-16: save the file as UTF-8",
    b"\xfe\xff": "UTF-16: save the file as UTF-8",
    b"\x1f\x8b": "packed by gzip: name the file .gz",
    b"\x28\xb5\x2f\xfd": "packed by zstd: name the file .zst",
}
_BEGINNINGS = {
    b"PK\x03\x04": "an Excel workbook (.xlsx) or another zip archive: export it as CSV in UTF-8",
    b"\xd0\xcf\x11\xe0": "an Excel workbook (.xls): export it as CSV in UTF-8",
    b"PAR1": "a Parquet file: write it as CSV in UTF-8",
    b"%PDF": "a PDF",
}
_EXCEL_ALONE = re.compile(rb'(?:\xef\xbb\xbf)?"?sep=[\x21-\x7e\t]?"?,*\s*', re.IGNORECASE)
_DELIMITERS = {b";": "semicolons", b"\t": "tabs", b"|": "vertical bars"}


def file_encoding(head: bytes) -> str | None:
    """The encoding of a file with these first bytes, in words, if it is not UTF-8; otherwise None."""
    for beginning, words in _ENCODINGS.items():
        if head.startswith(beginning):
            return words
    # ASCII text in UTF-16 is half zero bytes; a quarter leaves room for other scripts.
    wide = head.count(b"\0") > len(head) // 4
    return "UTF-16 without a mark: save the file as UTF-8" if wide else None


def file_kind(head: bytes) -> str | None:
    """What the file whose first bytes these are seems to be, in words; None where it may well be CSV in UTF-8."""
    for beginning, words in _BEGINNINGS.items():
        if head.startswith(beginning):
            return words
    if encoding := file_encoding(head):
        return encoding
    if b"\0" in head:
        return "binary data: no text at all"
    if b"\r" in head and b"\n" not in head:
        return "lines that end in a lone carriage return: save the file with line feeds (\\n or \\r\\n)"
    first = head.partition(b"\n")[0]
    if _EXCEL_ALONE.fullmatch(first):
        return f"{first.strip().removeprefix(BOM).decode()!r}, a line that Excel alone reads: delete it"
    if b"," not in first:
        sign, count = max(((sign, first.count(sign)) for sign in _DELIMITERS), key=lambda found: found[1])
        if count:
            return f"fields separated by {_DELIMITERS[sign]}: is the delimiter a comma? Save the file with commas"
    if _share_of_noise(head) > 0.1:
        advice = other_encoding(head)
        return (
            f"text in another encoding ({advice})"
            if "cp949" in advice
            else f"binary data, or text in another encoding: {advice}"
        )
    return None


def _share_of_noise(head: bytes) -> float:
    """The share of characters that no UTF-8 text has."""
    text = head.decode(errors="replace")
    noise = sum(sign == "\ufffd" or (sign < " " and sign not in "\t\r\n") for sign in text)
    return noise / max(1, len(text))


# What Excel does to texts: it cuts long cells, and makes dates, numbers and formulas of others.

CELL_UNITS = 32_767
"""The most UTF-16 units that a spreadsheet keeps of a cell (Excel, "Specifications and limits")."""
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DATE = re.compile(
    rf"\d{{1,2}}-(?:{_MONTHS})|(?:{_MONTHS})-\d{{1,2}}|\d{{1,2}}월\s?\d{{1,2}}일|\d{{4}}-\d\d-\d\d(?: 0?0:00(?::00)?)?"
)
_SHORT_NUMBER = re.compile(r"\d(?:\.\d+)?E\+\d{2,3}")
_ERROR_VALUES = ("#NAME?", "#VALUE!", "#REF!", "#DIV/0!", "#N/A", "#NUM!", "#NULL!")


def fills_cell(text: str) -> bool:
    """Whether a text is exactly as long as the longest that a cell of a spreadsheet keeps, so that it may be cut."""
    # A character takes one or two units of UTF-16.
    if not CELL_UNITS // 2 <= len(text) <= CELL_UNITS:
        return False
    units = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
    return CELL_UNITS in (len(text), units)


def excel_changed(text: str) -> str:
    """A hint if ``text`` looks like what Excel makes of another text, such as a date of 1/1; else empty."""
    text = text.strip()
    if _DATE.fullmatch(text):
        made = "a date that Excel made of a text such as 1/1"
    elif _SHORT_NUMBER.fullmatch(text):
        made = "a long number that Excel shortened"
    elif text in _ERROR_VALUES:
        made = "an error of Excel, which takes a text that begins with =, + or - for a formula"
    else:
        return ""
    return f"{text!r} looks like {made}: format the column as text, and fill it again"
