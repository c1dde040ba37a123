"""OpenTelemetry spans in files, as the file exporter of a Collector writes them, put together by trace.

Spans of one trace may be on many lines and in many files, in any order, and more than once.
Spans go to temporary files by the last byte of their trace id, so that memory does not grow with the input.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.errors import InputError
from evalq.evalcore.naming import shorten
from evalq.evalcore.records.inputs import MAX_UNPACKED_BYTES
from evalq.evalcore.records.traces.otlp_files import Message, json_of_proto, messages_in

_BUFFERED = 32 << 20
"""Bytes of spans in memory before they go to files."""
RECORDED = "recorded"
_HEX_ID = re.compile(r"[0-9a-f]{32}\Z")
_ID_IN_LINE = re.compile(rb'"traceId"\s*:\s*"([0-9A-Fa-f]{32})"')
_SHOWN = 20


# The JSON of OTLP, as far as it is read. Other keys are skipped.


class _List(msgspec.Struct):
    values: list[_Value] = []


class _KeyValues(msgspec.Struct):
    values: list[_KeyValue] = []


class _Value(msgspec.Struct, rename="camel"):
    string_value: str | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    bool_value: bool | None = None
    array_value: _List | None = None
    kvlist_value: _KeyValues | None = None
    bytes_value: str | None = None


class _KeyValue(msgspec.Struct):
    key: str
    value: _Value | None = None


class _EventJson(msgspec.Struct, rename="camel"):
    name: str = ""
    time_unix_nano: int | str = 0
    attributes: list[_KeyValue] = []


class _Status(msgspec.Struct):
    code: int | str = 0
    message: str = ""


class _SpanJson(msgspec.Struct, rename="camel"):
    span_id: str
    parent_span_id: str = ""
    name: str = ""
    start_time_unix_nano: int | str = 0
    end_time_unix_nano: int | str = 0
    attributes: list[_KeyValue] = []
    events: list[_EventJson] = []
    status: _Status | None = None


class _LogJson(msgspec.Struct, rename="camel"):
    span_id: str = ""
    event_name: str = ""
    time_unix_nano: int | str = 0
    observed_time_unix_nano: int | str = 0
    body: _Value | None = None
    attributes: list[_KeyValue] = []


class _Resource(msgspec.Struct):
    attributes: list[_KeyValue] = []


class _Scoped(msgspec.Struct, rename="camel"):
    spans: list[msgspec.Raw] = []
    log_records: list[msgspec.Raw] = []


class _OfResource(msgspec.Struct, rename="camel"):
    resource: msgspec.Raw = msgspec.Raw(b"{}")
    scope_spans: list[_Scoped] = []
    scope_logs: list[_Scoped] = []
    instrumentation_library_spans: list[_Scoped] = []


class _Request(msgspec.Struct, rename="camel"):
    resource_spans: list[_OfResource] | None = None
    resource_logs: list[_OfResource] | None = None
    resource_metrics: msgspec.Raw = msgspec.Raw(b"")


class _Entry(msgspec.Struct, array_like=True):
    """Spans of one trace that stand on one line, in a temporary file."""

    trace: str
    source: int
    line: int
    resource: msgspec.Raw
    spans: list[msgspec.Raw]
    logs: list[msgspec.Raw]


class _RecordedJson(msgspec.Struct):
    case: str = ""
    output: Any = msgspec.UNSET
    messages: Any = msgspec.UNSET
    error: str = ""


class _Ids(msgspec.Struct, rename="camel"):
    trace_id: Any = ""


_request = msgspec.json.Decoder(_Request).decode
_ids = msgspec.json.Decoder(_Ids).decode
_entry = msgspec.json.Decoder(_Entry).decode
_resource = msgspec.json.Decoder(_Resource).decode
_span = msgspec.json.Decoder(_SpanJson).decode
_log = msgspec.json.Decoder(_LogJson).decode


# Spans as they are used.


class SpanEvent(NamedTuple):
    """An event of a span, or a log record that belongs to one; ``body`` only of a log record."""

    name: str
    time: int
    attributes: dict[str, Any]
    body: Any = None


class TraceSpan:
    """One span: times are nanoseconds since 1970, 0 if unknown. ``error`` is None unless its status is an error."""

    __slots__ = ("attributes", "end", "error", "events", "id", "name", "parent", "resource", "start")

    def __init__(
        self,
        identity: str,
        parent: str,
        name: str,
        times: tuple[int, int],
        attributes: dict[str, Any],
        events: Sequence[SpanEvent] = (),
        error: str | None = None,
        resource: Mapping[str, Any] = {},
    ) -> None:
        self.id, self.parent, self.name = identity, parent, name
        self.start, self.end = times
        self.attributes, self.events, self.error, self.resource = attributes, list(events), error, resource

    @property
    def rank(self) -> tuple[int, str]:
        """The order of spans in a trace."""
        return self.start, self.id


class Trace(NamedTuple):
    """All spans of a trace, each once, by start and id. ``cut`` says where a file ends in the middle of it, or ""."""

    id: str
    spans: list[TraceSpan]
    cut: str = ""


def _time(given: int | str) -> int:
    time = int(given)
    return time if 0 < time < 1 << 63 else 0


def _attributes(pairs: Sequence[_KeyValue]) -> dict[str, Any]:
    return {pair.key: _plain(pair.value) for pair in pairs}


def _plain(value: _Value | None) -> Any:
    if value is None:
        return None
    if value.string_value is not None:
        return value.string_value
    if value.int_value is not None:
        return int(value.int_value)
    if value.bool_value is not None:
        return value.bool_value
    if value.double_value is not None:
        return float(value.double_value)
    if value.array_value is not None:
        return [_plain(each) for each in value.array_value.values]
    if value.kvlist_value is not None:
        return _attributes(value.kvlist_value.values)
    return value.bytes_value


def _trace_id(given: str) -> str:
    """A trace id as 32 hex digits; "" for no valid one. JSON from protobuf libraries has it in base64."""
    known = given.lower() if len(given) == 32 else _of_base64(given, 16)
    return known if _HEX_ID.match(known) and known.strip("0") else ""


def _recorded(data: bytes) -> bytes | None:
    """A line that is a recorded output already, compact; None for another."""
    try:
        line = msgspec.json.decode(data, type=_RecordedJson)
    except msgspec.DecodeError:
        return None
    known = line.case and (line.output is not msgspec.UNSET or line.error or line.messages is not msgspec.UNSET)
    return msgspec.json.format(data, indent=-1) if known else None


def _span_id(given: str) -> str:
    if not given:
        return ""
    known = given.lower() if len(given) != 12 else _of_base64(given, 8) or given
    return known if known.strip("0") else ""


def _of_base64(given: str, length: int) -> str:
    try:
        data = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        return ""
    return data.hex() if len(data) == length else ""


# Putting spans together by trace.


class Gathered:
    """The spans of all files, in temporary files by trace id. Use `add` for each file, then `traces` once."""

    def __init__(self, scratch: Path, most: int = MAX_UNPACKED_BYTES) -> None:
        self._scratch, self._most = scratch, most
        self._buffers: dict[str, list[bytes]] = {}
        self._spilled: set[str] = set()
        self._held = 0
        self._cut: dict[str, str] = {}
        self._names: list[str] = []
        self.spans = 0
        """Spans that were read, doubled ones too."""
        self.doubled = 0
        """Spans that came more than once, counted while `traces` is read."""
        self.faults: list[tuple[str, str]] = []
        """The first (location, reason) of lines that could not be read."""
        self.unread = 0
        """Lines that could not be read."""
        self.recorded = 0
        """Lines that are recorded outputs already, in the file `RECORDED` of the folder."""
        self.others = 0
        """Lines of metrics, or of logs without a trace."""

    def add(self, path: str, given: str = "") -> None:
        """Read a file. Raises InputError if nothing in it can be read, OSError."""
        name, unread = given or path, self.unread
        messages = self.feed(name, messages_in(path, self._most))
        if messages and self.unread - unread == messages:
            raise InputError(f"{name} has no traces that evalq can read", self.faults[-_SHOWN:])

    def feed(self, name: str, given: Iterable[Message]) -> int:
        """Read messages of a file that is called ``name``; returns their number. Raises InputError."""
        source, messages = len(self._names), 0
        self._names.append(name)
        for message in given:
            messages += 1
            where = f"{name}: message {message.number}" if message.proto else f"{name}:{message.number}"
            if message.fault:
                self._note(where, message.data, message.fault)
                continue
            try:
                data = json_of_proto(name, message.data) if message.proto else message.data
                request = _request(data)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                self._note(where, message.data, f"no request of OTLP: {error}")
                continue
            self._place(request, data, source, message.number, where)
        return messages

    def restore(self, lines: Iterable[bytes]) -> None:
        """Add what `split` kept of an earlier reading."""
        self._names.append("an earlier pass")
        for line in lines:
            entry = _entry(line)
            entry.source = len(self._names) - 1
            self._keep(entry)

    def split(self, ends: Callable[[Trace], bool]) -> tuple[list[Trace], list[bytes]]:
        """The traces that ``ends`` says are whole, and the lines of the others for `restore`."""
        whole, kept = [], []
        for part in self.parts():
            for trace, entries in self._entries_of(part).items():
                together = self._together(trace, entries)
                if ends(together):
                    whole.append(together)
                else:
                    kept += [msgspec.json.encode(entry) for entry in entries]
        return whole, kept

    def _note(self, where: str, data: bytes, reason: str) -> None:
        """Note a line that cannot be read, and the traces that it names: a part of them is lost."""
        self.unread += 1
        if len(self.faults) < _SHOWN:
            self.faults.append((where, shorten(reason, 200)))
        for found in _ID_IN_LINE.findall(data):
            self._cut.setdefault(found.decode().lower(), where)

    def _place(self, request: _Request, data: bytes, source: int, number: int, where: str) -> None:
        if request.resource_spans is None and request.resource_logs is None:
            if (line := _recorded(data)) is not None:
                self._store(line)
            elif not bytes(request.resource_metrics):
                self._note(where, b"", "no `resourceSpans`: each line is an ExportTraceServiceRequest in JSON")
            else:
                self.others += 1
            return
        for of_resource in request.resource_spans or ():
            found: dict[str, list[msgspec.Raw]] = {}
            for scoped in (*of_resource.scope_spans, *of_resource.instrumentation_library_spans):
                for raw in scoped.spans:
                    found.setdefault(self._trace_of(raw, where), []).append(raw)
                self.spans += len(scoped.spans)
            for trace, spans in found.items():
                self._keep(_Entry(trace, source, number, of_resource.resource, spans, []))
        for of_resource in request.resource_logs or ():
            logs: dict[str, list[msgspec.Raw]] = {}
            for raw in (raw for scoped in of_resource.scope_logs for raw in scoped.log_records):
                named = self._named_trace(raw, where)
                if named:
                    logs.setdefault(named, []).append(raw)
                elif named is not None:
                    self.others += 1
            for trace, records in logs.items():
                self._keep(_Entry(trace, source, number, of_resource.resource, [], records))

    def _store(self, line: bytes) -> None:
        """Keep a line of recorded outputs, which an import made of another tool's traces."""
        with (self._scratch / RECORDED).open("ab") as out:
            out.write(line + b"\n")
        self.recorded += 1

    def recorded_lines(self) -> Iterator[dict[str, Any]]:
        """The lines that are recorded outputs already."""
        if self.recorded:
            with (self._scratch / RECORDED).open("rb") as stream:
                yield from (msgspec.json.decode(line) for line in stream)

    def _trace_of(self, raw: msgspec.Raw, where: str) -> str:
        """The trace of a span; "" with a fault for a span that names none."""
        head = bytes(memoryview(raw)[:45])
        # The Collector writes the trace id first.
        fast = head.startswith(b'{"traceId":"') and head.endswith(b'"')
        known = _trace_id(head[12:44].decode("ascii", "replace")) if fast else ""
        trace = known or self._named_trace(raw, where)
        if trace == "":
            self._note(where, b"", f"traceId: {shorten(str(_ids(raw).trace_id), 40)!r} where 32 hex digits are wanted")
        return trace or ""

    def _named_trace(self, raw: msgspec.Raw, where: str) -> str | None:
        """The trace that a span or a log record names; "" if it names none, None with a fault if it is neither."""
        try:
            given = _ids(raw).trace_id
        except (msgspec.DecodeError, RecursionError) as error:
            self._note(where, b"", f"a span or log record that is not of OTLP: {error}")
            return None
        return _trace_id(given) if isinstance(given, str) else ""

    def _keep(self, entry: _Entry) -> None:
        if not entry.trace:
            return
        data = msgspec.json.encode(entry)
        if b"\n" in data:
            data = msgspec.json.format(data, indent=-1)
        self._buffers.setdefault(entry.trace[-2:], []).append(data)
        self._held += len(data)
        if self._held > _BUFFERED:
            self._spill()

    def _spill(self) -> None:
        for name, lines in self._buffers.items():
            with (self._scratch / name).open("ab") as out:
                out.writelines(line + b"\n" for line in lines)
        self._spilled.update(self._buffers)
        self._buffers.clear()
        self._held = 0

    def parts(self) -> list[str]:
        """The parts that `traces_of` reads; no trace is in two of them."""
        return sorted({*self._buffers, *self._spilled, *(trace[-2:] for trace in self._cut)})

    def names_in(self, part: str) -> list[str]:
        """The traces in a part."""
        return list(self._entries_of(part))

    def traces_of(self, part: str) -> list[Trace]:
        """The traces in a part, with their spans put together, by trace id."""
        return [self._together(trace, found) for trace, found in sorted(self._entries_of(part).items())]

    def _entries_of(self, part: str) -> dict[str, list[_Entry]]:
        lines = self._buffers.get(part, ())
        if part in self._spilled:
            with (self._scratch / part).open("rb") as stream:
                lines = [*stream.read().splitlines(), *lines]
        entries: dict[str, list[_Entry]] = {}
        for line in lines:
            entry = _entry(line)
            entries.setdefault(entry.trace, []).append(entry)
        for trace in self._cut:
            if trace[-2:] == part:
                entries.setdefault(trace, [])
        return entries

    def _together(self, trace: str, entries: list[_Entry]) -> Trace:
        spans: dict[str, TraceSpan] = {}
        logs: dict[str, dict[Any, SpanEvent]] = {}
        resources: dict[bytes, dict[str, Any]] = {}
        for entry in entries:
            key = bytes(entry.resource)
            if key not in resources:
                resources[key] = self._read(_resource_attributes, entry.resource, entry) or {}
            for raw in entry.spans:
                span = self._read(_read_span, (raw, resources[key]), entry)
                if span is None:
                    continue
                known = spans.get(span.id)
                self.doubled += known is not None
                # Of two versions, the one that ended later has more.
                if known is None or _version(known) < _version(span):
                    spans[span.id] = span
            for raw in entry.logs:
                if (log := self._read(_log, raw, entry)) is not None:
                    event = _event_of(log)
                    logs.setdefault(_span_id(log.span_id), {})[repr(event)] = event
        for owner, events in logs.items():
            if owner in spans:
                spans[owner].events = sorted([*spans[owner].events, *events.values()], key=lambda each: each.time)
        return Trace(trace, sorted(spans.values(), key=lambda span: span.rank), self._cut.get(trace, ""))

    def _read(self, read: Any, given: Any, entry: _Entry) -> Any:
        """What ``read`` makes of ``given``; None with a fault if it is not of OTLP."""
        try:
            return read(given)
        except (msgspec.ValidationError, msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
            where = f"{self._names[entry.source]}:{entry.line}"
            self._note(where, b"", f"a span that is not of OTLP: {error}")
            self._cut.setdefault(entry.trace, where)
            return None


def _resource_attributes(raw: msgspec.Raw) -> dict[str, Any]:
    return _attributes(_resource(raw).attributes)


def _read_span(given: tuple[msgspec.Raw, dict[str, Any]]) -> TraceSpan:
    span = _span(given[0])
    status = span.status
    failed = status is not None and status.code in (2, "STATUS_CODE_ERROR", "2")
    return TraceSpan(
        _span_id(span.span_id),
        _span_id(span.parent_span_id),
        span.name,
        (_time(span.start_time_unix_nano), _time(span.end_time_unix_nano)),
        _attributes(span.attributes),
        [SpanEvent(each.name, _time(each.time_unix_nano), _attributes(each.attributes)) for each in span.events],
        (status.message if status is not None else "") if failed else None,
        given[1],
    )


def _version(span: TraceSpan) -> tuple[int, int, str]:
    return span.end, len(span.attributes) + len(span.events), repr(sorted(span.attributes.items(), key=repr))


def _event_of(log: _LogJson) -> SpanEvent:
    attributes = _attributes(log.attributes)
    name = log.event_name or str(attributes.get("event.name") or "")
    return SpanEvent(name, int(log.time_unix_nano) or int(log.observed_time_unix_nano), attributes, _plain(log.body))
