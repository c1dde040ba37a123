"""Files of OpenTelemetry: the messages in them, as JSON.

A Collector's file exporter writes JSON lines, or messages with their length before them: protobuf, or either form
compressed with zstd.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import zstandard

from evalq.evalcore.errors import InputError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.manifest import BOM
from evalq.evalcore.records.inputs import PACKED, file_kind, unpacked

MOST_MESSAGE = 256 << 20
"""A longer line or message is damaged."""
_TOO_LONG = f"it is longer than {MOST_MESSAGE:,} bytes"
_BLOCK = 1 << 20
NO_TRACES = "no JSON lines, and no messages of OTLP with their length before them"
_ZSTD = b"\x28\xb5\x2f\xfd"


class Message(NamedTuple):
    """One message of a file: its line or number, its bytes, whether it is protobuf, and why it cannot be read."""

    number: int
    data: bytes
    proto: bool
    fault: str = ""


def messages_in(path: str, most: int) -> Iterator[Message]:
    """The messages in a file. A length that goes beyond the end of the file gives what is there of the message."""
    pieces = unpacked(path, path, most) if path.endswith(PACKED) else _blocks(path)
    first = next(pieces, b"")
    while len(first) < 16 and (more := next(pieces, b"")):
        first += more
    head = first.removeprefix(BOM).lstrip()
    whole = _chained([first.removeprefix(BOM)], pieces)
    if not head or head[:1] in (b"{", b"["):
        yield from _documents(whole) if path.removesuffix(".gz").endswith(".json") else _lines(whole)
    else:
        yield from _framed(path, first, whole)


def whole_messages(data: bytes, number: int) -> tuple[list[Message], int]:
    """The whole messages that ``data`` begins with, and their length; ``number`` came before. Raises ValueError.

    For a file that is still being written. A last line without its end counts if it is a whole object: a Collector
    writes the end by itself, and a rotation between the two puts it into the next file.
    """
    if data.lstrip()[:1] in (b"{", b""):
        end = data.rfind(b"\n") + 1
        if _is_object(data[end:]):
            end = len(data)
        lines = data[:end].split(b"\n")
        found = [Message(at, line, False) for at, line in enumerate(lines, start=number + 1) if line.strip()]
        return found, end
    found, at = [], 0
    while len(data) - at >= 4:
        length = struct.unpack(">I", data[at : at + 4])[0]
        if not 0 < length <= MOST_MESSAGE:
            raise ValueError(f"message {number + len(found) + 1}: its length is no length")
        if len(data) - at >= 8 and not _begins_message(data[at + 4 : at + 8]):
            raise ValueError(f"message {number + len(found) + 1}: it is no message of OTLP")
        if len(data) - at < 4 + length:
            break
        found.append(_unpacked(number + len(found) + 1, data[at + 4 : at + 4 + length]))
        at += 4 + length
    return found, at


def _begins_message(data: bytes) -> bool:
    """Whether a message may begin like this: compressed, JSON or protobuf."""
    return data == _ZSTD or data[:1] in (b"{", b"\x0a", b"\x12")


def _is_object(data: bytes) -> bool:
    """Whether ``data`` is all of a JSON object: no part of a longer one is."""
    if not data.rstrip().endswith(b"}"):
        return False
    try:
        msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _unpacked(number: int, data: bytes) -> Message:
    if data[:4] == _ZSTD:
        try:
            # No more than a message may have: a few kilobytes can hold gigabytes.
            data = zstandard.ZstdDecompressor().stream_reader(data).read(MOST_MESSAGE + 1)
        except zstandard.ZstdError as error:
            return Message(number, b"", False, f"it cannot be unpacked: {error}")
        if len(data) > MOST_MESSAGE:
            return Message(number, data[:_BLOCK], False, _TOO_LONG)
    return Message(number, data, data[:1] not in (b"{", b""))


def _blocks(path: str) -> Iterator[bytes]:
    with open_input(path) as stream:
        while block := stream.read(_BLOCK):
            yield block


def _chained(first: Sequence[bytes], rest: Iterator[bytes]) -> Iterator[bytes]:
    yield from first
    yield from rest


def _documents(pieces: Iterator[bytes]) -> Iterator[Message]:
    """The requests in a file that is one JSON document, or a list of them; else those on its lines."""
    held, total = [], 0
    for piece in pieces:
        held.append(piece)
        total += len(piece)
        if total > MOST_MESSAGE:
            yield from _lines(_chained(held, pieces))
            return
    data = b"".join(held)
    try:
        listed = msgspec.json.decode(data, type=list[msgspec.Raw] if data.lstrip()[:1] == b"[" else msgspec.Raw)
    except msgspec.DecodeError:
        yield from _lines(iter([data]))
        return
    for number, each in enumerate(listed if isinstance(listed, list) else [listed], start=1):
        yield Message(number, bytes(each), False)


def _lines(pieces: Iterator[bytes]) -> Iterator[Message]:
    number, held = 0, _Held()
    for piece in pieces:
        first, *others = piece.split(b"\n")
        held.add(first)
        if not others:
            continue
        number += 1
        yield from held.line(number)
        for line in others[:-1]:
            number += 1
            if line and not line.isspace():
                yield Message(number, line, False)
        held = _Held()
        held.add(others[-1])
    yield from held.line(number + 1)


class _Held:
    """A line that comes in pieces. Of one that is too long, only the begin is kept: it names some of its traces."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Add the next piece."""
        self._size += len(piece)
        if self._size <= MOST_MESSAGE:
            self._pieces.append(piece)
        else:
            del self._pieces[1:]

    def line(self, number: int) -> Iterator[Message]:
        """The line, unless it is blank."""
        data = b"".join(self._pieces)
        if data and not data.isspace():
            yield Message(number, data, False, _TOO_LONG if self._size > MOST_MESSAGE else "")


def _framed(path: str, first: bytes, pieces: Iterator[bytes]) -> Iterator[Message]:
    """Messages with their length before them, as four bytes, the highest first."""
    held, number, ended = b"", 0, False
    length = struct.unpack(">I", first[:4])[0] if len(first) >= 8 else 0
    kind = first[4:8]
    if not 0 < length <= MOST_MESSAGE or not _begins_message(kind):
        what = file_kind(first) or NO_TRACES
        raise InputError(f"{path} has no traces that evalq can read", [(f"{path}:1", what)])
    while not ended or held:
        need = 4 + struct.unpack(">I", held[:4])[0] if len(held) >= 4 else 4
        while len(held) < need and not ended:
            piece = next(pieces, b"")
            ended = not piece
            held += piece
            need = 4 + struct.unpack(">I", held[:4])[0] if len(held) >= 4 else 4
            if need > MOST_MESSAGE:
                raise InputError(f"{path} is damaged", [(f"{path}: message {number + 1}", "its length is no length")])
        if not held:
            return
        data, held = held[4:need], held[need:]
        number += 1
        yield _unpacked(number, data)


# Protobuf: read with the library of OpenTelemetry, and kept as JSON of the same form.


def json_of_proto(path: str, data: bytes) -> bytes:
    """A message of protobuf as OTLP JSON. Raises InputError without the library, ValueError for a damaged message."""
    try:
        from google.protobuf.message import DecodeError  # it has no types
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError:
        reason = "reading protobuf needs OpenTelemetry: pip install 'evalq[otel]', or have the Collector write JSON"
        raise InputError(f"{path} cannot be read", [(path, reason)]) from None
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(str(error)) from None
    return msgspec.json.encode({
        "resourceSpans": [
            {
                "resource": {"attributes": [_pair_json(pair) for pair in each.resource.attributes]},
                "scopeSpans": [{"spans": [_span_json(span) for span in scoped.spans]} for scoped in each.scope_spans],
            }
            for each in request.resource_spans
        ]
    })  # fmt: skip


def _span_json(span: Any) -> dict[str, Any]:
    made = {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "parentSpanId": span.parent_span_id.hex(),
        "name": span.name,
        "startTimeUnixNano": span.start_time_unix_nano,
        "endTimeUnixNano": span.end_time_unix_nano,
        "attributes": [_pair_json(pair) for pair in span.attributes],
    }
    if span.events:
        made["events"] = [
            {
                "name": each.name,
                "timeUnixNano": each.time_unix_nano,
                "attributes": [_pair_json(pair) for pair in each.attributes],
            }
            for each in span.events
        ]
    if span.status.code:
        made["status"] = {"code": span.status.code, "message": span.status.message}
    return made


_VALUES = {
    "string_value": "stringValue", "int_value": "intValue", "bool_value": "boolValue", "double_value": "doubleValue",
}  # fmt: skip


def _pair_json(pair: Any) -> dict[str, Any]:
    return {"key": pair.key, "value": _value_json(pair.value)}


def _value_json(value: Any) -> dict[str, Any]:
    kind = value.WhichOneof("value")
    if kind in _VALUES:
        given = getattr(value, kind)
        return {_VALUES[kind]: given if given == given and given not in (float("inf"), -float("inf")) else str(given)}
    if kind == "array_value":
        return {"arrayValue": {"values": [_value_json(each) for each in value.array_value.values]}}
    if kind == "kvlist_value":
        return {"kvlistValue": {"values": [_pair_json(each) for each in value.kvlist_value.values]}}
    return {} if kind is None else {"bytesValue": base64.b64encode(value.bytes_value).decode()}
