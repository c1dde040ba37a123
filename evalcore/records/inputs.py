"""Finding inputs: files, folders, globs, compressed files and standard input."""

from __future__ import annotations

import csv
import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from evalq.evalcore.errors import InputError, UsageError
from evalq.evalcore.model.manifest import Format
from evalq.evalcore.naming import is_text
from evalq.evalcore.records.batch import Batch

__all__ = [
    "PACKED",
    "Source",
    "discover",
    "format_suffixes",
    "read_columns",
    "require_distinct",
    "stands_for",
    "unpacked_name",
]

PACKED = (".gz", ".zst")


class Source(msgspec.Struct, frozen=True):
    """One input: its ``name`` in reports (unique in a run), the path as ``given``, and the ``path`` it is read from.

    ``members`` are the files of a folder that is one input, a line each: `spool` gathers them.
    """

    name: str
    given: str
    path: str
    members: tuple[str, ...] = ()

    @property
    def files(self) -> list[str]:
        """The paths of all that is read of it, before it is spooled."""
        return [str(Path(self.path) / member) for member in self.members] if self.members else [self.path]


def discover(given: Sequence[str], suffixes: Sequence[str], gathers: Sequence[str] = ()) -> list[Source]:
    """The inputs that ``given`` names, in its order; folders and globs are sorted by name.

    A folder stands for its files with one of ``suffixes`` (also packed as .gz or .zst), each an input; a folder of
    files with one of ``gathers`` is itself one input. "-" is standard input. Names are base names; a second input of
    the same name gets "#2".

    Raises InputError for a file that does not exist, for a name that is not UTF-8, for a folder or glob that matches
    nothing, and for a folder that holds both kinds of files.
    """
    sources: dict[str, Source] = {}
    numbers: dict[str, int] = {}
    for source in [source for item in given for source in _expand(item, suffixes, gathers)]:
        # On from the last one of this name: thousands of files may have it, and none of the numbers below is free.
        name, number = source.name, numbers.get(source.name, 1)
        while name in sources:
            number += 1
            name = f"{source.name}#{number}"
        numbers[source.name] = number
        if not is_text(source.given):  # of a member the spool says its bytes by number
            raise InputError("no input", [(ascii(source.given), "its name is not text in UTF-8: rename it")])
        sources[name] = msgspec.structs.replace(source, name=name)
    return list(sources.values())


def require_distinct(outputs: Sequence[str]) -> None:
    """Raise UsageError where ``--outputs`` names one file twice: several inputs count as one, so that every answer of
    it would be two.
    """
    if len({os.path.realpath(path) for path in outputs}) < len(outputs):
        raise UsageError("--outputs names the same file twice: its answers would count twice")


def stands_for(name: str) -> Iterator[str]:
    """The paths that are read for ``name``: itself; of a pattern the paths that match; of a folder its files, too."""
    matching = glob.glob(name, recursive=True) if glob.has_magic(name) and not os.path.lexists(name) else []
    for path in matching or [name]:
        yield path
        if os.path.isdir(path):
            yield from (entry.path for entry in os.scandir(path) if entry.is_file())


def unpacked_name(name: str) -> str:
    """A file's name without the ending of its packing."""
    return name.removesuffix(".gz").removesuffix(".zst")


def _expand(item: str, suffixes: Sequence[str], gathers: Sequence[str]) -> list[Source]:
    """What ``item`` stands for, with names that need not be unique yet."""
    if item == "-":
        return [Source("stdin", item, item)]
    if os.path.isdir(item):
        return _in_folder(item, suffixes, gathers)
    # Before any glob: a file's own name may have a star or brackets in it.
    if os.path.exists(item):
        if not os.path.isfile(item):
            raise InputError("no input", [(item, "not a plain file (a pipe or a device); - reads standard input")])
        return [_file(item)]
    found = sorted(path for path in glob.glob(item, recursive=True) if os.path.isfile(path))
    if not found:
        matches = "no file matches" if glob.has_magic(item) else "no such file"
        raise InputError("no input", [(item, matches)])
    return [_file(path) for path in found]


def _file(path: str) -> Source:
    return Source(unpacked_name(Path(path).name), path, path)


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
        # "." and ".." say nothing of the folder's name, and the name it has on this machine is not the report's.
        return [Source("folder" if name in ("", "..") else name, folder, folder, tuple(members))]
    return [_file(str(Path(folder) / name)) for name in inputs]


def _packable(suffixes: Sequence[str]) -> tuple[str, ...]:
    return tuple(suffix + packing for suffix in suffixes for packing in ("", *PACKED))


def read_columns(header: bytes, name: str, required: Sequence[str], line: int = 1) -> tuple[str, ...]:
    """The columns of a CSV header, which is on ``line``. Raises InputError that names all missing of ``required``."""
    try:
        columns = Batch(name, 1, header).first_row()
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{name} cannot be read", [(f"{name}:{line}", f"not a CSV in UTF-8: {error}")]) from None
    missing = [column for column in required if column not in columns]
    if missing:
        reason = f"missing column{'s' if len(missing) > 1 else ''}: {', '.join(missing)}"
        if len(columns) == 1:
            reason += f" (the header is one field, {columns[0][:60]!r}: is the delimiter a comma?)"
        raise InputError(f"{name} lacks what the evaluator reads", [(f"{name}:{line}", reason)])
    # Only columns that are read: a table may repeat others.
    repeated = [column for column, count in Counter(columns).items() if count > 1 and column in required]
    if repeated:
        raise InputError(f"{name} is ambiguous", [(f"{name}:{line}", f"repeated column: {', '.join(repeated)}")])
    return columns


def format_suffixes(fmt: Format) -> tuple[str, ...]:
    """File endings a folder is searched for."""
    return (".csv",) if fmt == "csv" else (".jsonl", ".ndjson")
