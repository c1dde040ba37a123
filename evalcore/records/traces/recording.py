"""Files of traces as one file of recorded outputs: a line for each trace, by its start."""

from __future__ import annotations

import hashlib
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.errors import InputError
from evalq.evalcore.files import replacing
from evalq.evalcore.model.manifest import MAX_RECORD_BYTES
from evalq.evalcore.records.inputs import MAX_UNPACKED_BYTES, Source, discover
from evalq.evalcore.records.traces.answers import answer_of
from evalq.evalcore.records.traces.otlp import Gathered, Trace

SUFFIXES = (".jsonl", ".ndjson", ".json", ".pb", ".proto", ".bin")
NAME = "traces.jsonl"
"""The name of the file of recorded outputs, and so of the input in reports."""
_SHOWN = 3
_DIGITS = 16

Keeps = Callable[[Mapping[str, Any]], bool]
"""Whether a trace counts, by its attributes."""


class Recorded(NamedTuple):
    """The file of recorded outputs, its number of traces, and what there is to say about its making."""

    path: Path
    traces: int
    spans: int
    notes: tuple[str, ...]


def record_traces(
    given: Sequence[str], folder: Path, keeps: Keeps = lambda attributes: True, most: int = MAX_UNPACKED_BYTES
) -> Recorded:
    """Write the traces in ``given`` (files, folders, globs) below ``folder``, into a folder called by their digest.

    The same traces give the same file, in whatever order, on whatever lines and in whatever files their spans are.
    Raises InputError if there is no trace, or a file has none that can be read; OSError.
    """
    sources = _distinct(discover(given, SUFFIXES))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".traces-", dir=folder) as scratch:
        gathered = Gathered(Path(scratch), most)
        for source in sources:
            gathered.add(source.path, source.given)
        lines = _OrderedLines(Path(scratch) / "lines")
        left_out = rootless = 0
        for trace in _traces(gathered):
            line = answer_of(trace)
            if not keeps(line.get("extra", {})):
                left_out += 1
                continue
            rootless += line.get("extra", {}).get("root") == "missing"
            lines.add(int(line.pop("start", 0)), trace.id, _encoded(line))
        for line in gathered.recorded_lines():
            if not keeps(line.get("extra") or {}):
                left_out += 1
                continue
            start, name = line.pop("start", 0), f"{line['case']}\n{line.get('repeat', 0)}"
            identity = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
            known = type(start) is int and 0 <= start < 1 << 63
            lines.add(start if known else 0, identity, _encoded(line))
        lines.close()
        if not lines.count:
            raise InputError("there are no traces", _why_none(sources, gathered, left_out))
        path = lines.write(folder)
    return Recorded(path, lines.count, gathered.spans, tuple(_notes(gathered, left_out, rootless)))


class Written(NamedTuple):
    """The traces that were written and those that do not count, the calls of tools, and when the last trace ended.

    ``ended`` is in nanoseconds since 1970; 0 if no trace says it.
    """

    traces: int = 0
    left_out: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    ended: int = 0


def write_traces(traces: Iterable[Trace], path: Path, keeps: Keeps) -> Written:
    """Write the lines of ``traces`` that count to ``path``, by their starts. Raises OSError."""
    lines, left_out, calls, failed, ended = [], 0, 0, 0, 0
    for trace in traces:
        line = answer_of(trace)
        if not keeps(line.get("extra", {})):
            left_out += 1
            continue
        lines.append((int(line.pop("start", 0)), trace.id, _encoded(line)))
        made = line.get("tool_calls", ())
        calls += len(made)
        failed += sum(call.get("error") is not None for call in made)
        ended = max(ended, *(span.end for span in trace.spans), 0)
    with replacing(path) as out:
        out.writelines(line + b"\n" for _, _, line in sorted(lines))
    return Written(len(lines), left_out, calls, failed, ended)


def _encoded(line: Mapping[str, Any]) -> bytes:
    """The line of a trace, or that it is too long: a record that cannot be read would end the run of all."""
    data = msgspec.json.encode(line)
    if len(data) <= MAX_RECORD_BYTES:
        return data
    error = f"what the trace says is longer than {MAX_RECORD_BYTES:,} bytes"
    return msgspec.json.encode({"case": line["case"], "trace": line.get("trace"), "error": error})


def _distinct(sources: Sequence[Source]) -> list[Source]:
    """The files, each once, by what they are called."""
    return list({str(Path(source.path).resolve()): source for source in sources}.values())


def _traces(gathered: Gathered) -> Iterator[Trace]:
    for part in gathered.parts():
        yield from gathered.traces_of(part)


def _why_none(sources: Sequence[Source], gathered: Gathered, left_out: int) -> list[tuple[str, str]]:
    if left_out:
        return [(sources[0].given, f"{left_out:,} traces, of which no `where` selects any")]
    if gathered.others:
        return [(sources[0].given, f"{gathered.others:,} lines of metrics or logs, and no spans")]
    return gathered.faults or [(sources[0].given, "it has no span")]


def _notes(gathered: Gathered, left_out: int, rootless: int) -> Iterator[str]:
    if gathered.unread:
        shown = "; ".join(f"{where}: {reason}" for where, reason in gathered.faults[:_SHOWN])
        more = f"; and {gathered.unread - _SHOWN} more" if gathered.unread > _SHOWN else ""
        yield f"{gathered.unread:,} lines cannot be read ({shown}{more}): traces with a part there have no verdict"
    if gathered.doubled:
        yield f"{gathered.doubled:,} spans came more than once, and count once"
    if rootless:
        yield f"{rootless:,} traces have no root span here: their first span stands for it"
    if left_out:
        yield f"{left_out:,} traces are not selected by `where`"
    if gathered.others:
        yield f"{gathered.others:,} lines or records are metrics, or logs of no trace"


class _OrderedLines:
    """Lines in a temporary file, which `write` puts into the order of their times.

    In memory are the time, the id and the place of each: 48 bytes a trace.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._out = path.open("wb")
        self._starts, self._places = array("Q"), array("Q", [0])
        self._ids = bytearray()

    @property
    def count(self) -> int:
        """The number of lines."""
        return len(self._starts)

    def add(self, start: int, trace: str, line: bytes) -> None:
        """Add a line."""
        self._out.write(line + b"\n")
        self._starts.append(start)
        self._places.append(self._places[-1] + len(line) + 1)
        self._ids += bytes.fromhex(trace)

    def close(self) -> None:
        """No more lines follow."""
        self._out.close()

    def write(self, folder: Path) -> Path:
        """All lines in order, in a file whose folder is called by its digest; one that is there already stays."""
        view = memoryview(self._ids)
        order = sorted(range(self.count), key=lambda at: (self._starts[at], bytes(view[16 * at : 16 * at + 16])))
        digest, ordered = hashlib.sha256(), self._path.with_name("ordered")
        with self._path.open("rb") as lines, replacing(ordered) as out:
            for at in order:
                lines.seek(self._places[at])
                line = lines.read(self._places[at + 1] - self._places[at])
                digest.update(line)
                out.write(line)
        made = folder / digest.hexdigest()[:_DIGITS] / NAME
        made.parent.mkdir(exist_ok=True)
        ordered.replace(made)
        return made
