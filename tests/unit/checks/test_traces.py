"""Traces become recorded outputs: the same ones, however their spans are spread, and checks are made of each."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.errors import ConfigError, InputError, UsageError
from evalq.evalcore.fold import Evaluation, evaluate_files
from evalq.evalcore.records.traces.recording import record_traces

RECORDED = Path(__file__).parent / "traces"
"""Files of OpenInference's and OpenLLMetry's instrumentations of OpenAI, by OpenTelemetry's own file exporter."""
CHECKS = "defaults:\n  checks: [{contains: Seoul}, {calls-tool: weather}, {max-tokens: 100}]\n"


def lines_of(path: Path | list[Path], folder: Path) -> list[dict[str, Any]]:
    """The recorded outputs of files of traces."""
    given = [str(each) for each in (path if isinstance(path, list) else [path])]
    return [json.loads(line) for line in record_traces(given, folder).path.read_bytes().splitlines()]


def value(given: Any) -> dict[str, Any]:
    """A value as OTLP has it."""
    if isinstance(given, list):
        return {"arrayValue": {"values": [value(each) for each in given]}}
    kinds = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}
    return {kinds[type(given)]: str(given) if type(given) is int else given}


def span(trace: int, number: int, parent: int = 0, at: int = 1, **more: Any) -> dict[str, Any]:
    """A span of the trace; its attributes are `more`, with `__` for a dot."""
    attributes = [{"key": key.replace("__", "."), "value": value(each)} for key, each in more.items()]
    made = {"traceId": f"{trace:032x}", "spanId": f"{number:016x}", "name": "s", "attributes": attributes}
    made |= {"parentSpanId": f"{parent:016x}"} if parent else {}
    return made | {"startTimeUnixNano": str(at * 10**9), "endTimeUnixNano": str((at + 1) * 10**9)}


def request(spans: list[dict[str, Any]], service: str = "bot") -> dict[str, Any]:
    """A line of a file: a request with the spans."""
    resource = {"attributes": [{"key": "service.name", "value": value(service)}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": spans}]}]}


def write(path: Path, *requests: dict[str, Any]) -> Path:
    """A file with a line for each request."""
    path.write_text("".join(json.dumps(each, separators=(",", ":")) + "\n" for each in requests))
    return path


def agent(trace: int, **more: Any) -> list[dict[str, Any]]:
    """The spans of a trace: an agent, a call of a model that asks for a tool, the tool, and the answering call."""
    asks = [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "weather", "arguments": {}}]}]
    question = [{"role": "user", "parts": [{"type": "text", "content": "Seoul?"}]}]
    result = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "21"}]}]
    says = [{"role": "assistant", "parts": [{"type": "text", "content": "Seoul: 21"}], "finish_reason": "stop"}]
    first, second = 100 * trace + 1, 100 * trace + 5
    model = {"gen_ai__operation__name": "chat", "gen_ai__response__model": "m-1", "gen_ai__usage__input_tokens": 10,
             "gen_ai__usage__output_tokens": 5}  # fmt: skip
    return [
        span(trace, first, at=10, gen_ai__operation__name="invoke_agent", **more),
        span(trace, first + 1, first, 11, **model, gen_ai__input__messages=json.dumps(question),
             gen_ai__output__messages=json.dumps(asks)),
        span(trace, first + 2, first, 12, gen_ai__operation__name="execute_tool", gen_ai__tool__name="weather",
             gen_ai__tool__call__id="c", gen_ai__tool__call__result="21"),
        span(trace, second, first, 13, **model, gen_ai__input__messages=json.dumps(question + asks + result),
             gen_ai__output__messages=json.dumps(says)),
    ]  # fmt: skip


def evaluated(folder: Path, *paths: Path, checks: str = CHECKS, **options: Any) -> Evaluation:
    """A run of checks over traces."""
    (folder / "checks.yaml").write_text(checks)
    named = {"traces": [str(path) for path in paths], **options}
    return evaluate_files("checks", folder / "checks.yaml", options=named)


@pytest.mark.parametrize("name", ["openinference", "traceloop"])
def test_spans_of_real_instrumentations_become_the_typed_answer(name: str, tmp_path: Path) -> None:
    """Messages, tools with results, tokens of both calls with their parts, and the served model."""
    first, second = lines_of(RECORDED / f"{name}.jsonl", tmp_path)
    assert [first["input"], second["input"]] == ["How warm is it in Seoul?", "And in Seoul tomorrow?"]
    assert first["output"] == "It is 21 degrees in Seoul."
    assert [message["role"] for message in first["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    (call,) = first["tool_calls"]
    assert (call["name"], call["arguments"], call["result"], call["id"]) == (
        "weather",
        {"city": "Seoul"},
        "21",
        "call_1",
    )
    assert call["seconds"] > 0
    assert first["usage"] == {"input": 80, "output": 18, "cached_input": 20, "reasoning": 4}
    assert first["served"]["model"] == "gpt-4o-2024-08-06"
    assert (first["turns"], first["finish"], first["session"]) == (2, "stop", "s1")
    assert first["extra"]["route"] == "weather"
    assert first["case"] == first["trace"] != second["case"]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_order_lines_files_and_doubled_spans_change_nothing(data: st.DataObject, tmp_path_factory: Any) -> None:
    """The same spans give the same bytes, wherever they stand."""
    folder = tmp_path_factory.mktemp("spread")
    spans = [each for trace in (1, 2, 3) for each in agent(trace, route="a")]
    whole = record_traces([str(write(folder / "whole.jsonl", request(spans)))], folder / "one").path.read_bytes()
    drawn = data.draw(st.permutations(spans + data.draw(st.lists(st.sampled_from(spans), max_size=5))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(drawn) - 1), max_size=6)))
    pieces = [drawn[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(drawn)], strict=True)]
    files = [write(folder / f"{number}.jsonl", *map(request, pieces[number::2])) for number in (0, 1)]
    files = [path for path in files if path.stat().st_size]
    again = record_traces([str(path) for path in reversed(files)], folder / "two").path
    assert again.read_bytes() == whole
    assert again.parent.name == record_traces([str(folder / "whole.jsonl")], folder / "one").path.parent.name


def test_protobuf_and_packed_messages_give_the_bytes_of_json(tmp_path: Path) -> None:
    """The forms of the Collector's file exporter: JSON lines, protobuf with lengths, and both packed with zstd."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    attributes: dict[str, Any] = {"openinference.span.kind": "AGENT", "input.value": "q", "output.value": "a",
                                  "tags": ["x", "y"], "ok": True, "share": 0.5, "count": 3}  # fmt: skip
    with provider.get_tracer("t").start_as_current_span("agent", attributes=attributes) as top:
        top.add_event("exception", {"exception.message": "late"})
    message = encode_spans(exporter.get_finished_spans())
    scoped = message.resource_spans[0].scope_spans[0].spans[0]
    made = {
        "traceId": scoped.trace_id.hex(), "spanId": scoped.span_id.hex(), "name": scoped.name,
        "startTimeUnixNano": str(scoped.start_time_unix_nano), "endTimeUnixNano": str(scoped.end_time_unix_nano),
        "attributes": [{"key": key, "value": value(each)} for key, each in attributes.items()],
    }  # fmt: skip
    resource = [{"key": pair.key, "value": {"stringValue": pair.value.string_value}}
                for pair in message.resource_spans[0].resource.attributes]  # fmt: skip
    text = json.dumps({"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"spans": [made]}]}]})
    binary = message.SerializeToString()
    pack = zstandard.ZstdCompressor().compress
    files = {
        "a.jsonl": text.encode() + b"\n",
        "b.pb": struct.pack(">I", len(binary)) + binary,
        "c.bin": b"".join(struct.pack(">I", len(pack(each))) + pack(each) for each in (binary, text.encode())),
        "d.jsonl.zst": pack(text.encode() + b"\n"),
        "e.json": json.dumps(json.loads(text), indent=2).encode(),
    }
    found = []
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        found.append(record_traces([str(tmp_path / name)], tmp_path / name.replace(".", "-")).path.read_bytes())
    assert len(set(found)) == 1
    line = json.loads(found[0])
    assert (line["input"], line["output"], line["extra"]["share"], line["extra"]["count"]) == ("q", "a", 0.5, 3)


def test_a_cut_line_names_its_traces_and_they_have_no_verdict(tmp_path: Path) -> None:
    """The end of a file that is being written: the trace has an error, and the message says where."""
    path = write(tmp_path / "t.jsonl", request(agent(1)), request(agent(2)))
    path.write_bytes(path.read_bytes() + json.dumps(request(agent(3))).encode()[:700])
    recorded = record_traces([str(path)], tmp_path / "made")
    lines = {line["case"]: line for line in map(json.loads, recorded.path.read_bytes().splitlines())}
    assert "error" in lines[f"{3:032x}"]
    assert "t.jsonl:3" in lines[f"{3:032x}"]["error"]
    assert "error" not in lines[f"{1:032x}"]
    assert "t.jsonl:3" in recorded.notes[0]
    report = evaluated(tmp_path, path).report["results"]
    assert report["outputs"] == {"total": 3, "passed": 2, "failed": 0, "errors": 1}


def test_calls_count_once_and_judges_do_not_count(tmp_path: Path) -> None:
    """A client's span under its library's is the same call; an evaluator's calls are not the agent's."""
    model = {"gen_ai__operation__name": "chat", "gen_ai__usage__input_tokens": 7, "gen_ai__usage__output_tokens": 1}
    spans = [
        span(1, 1, at=1, openinference__span__kind="AGENT", input__value="q", output__value="a"),
        span(1, 2, 1, 2, openinference__span__kind="LLM", llm__token_count__prompt=7, llm__token_count__completion=1),
        span(1, 3, 2, 3, **model),
        span(1, 4, 1, 4, openinference__span__kind="EVALUATOR"),
        span(1, 5, 4, 5, **model),
    ]
    (line,) = lines_of(write(tmp_path / "t.jsonl", request(spans)), tmp_path)
    assert (line["turns"], line["usage"]) == (1, {"input": 7, "output": 1})


def test_unknown_tokens_stay_unknown(tmp_path: Path) -> None:
    """A call without counts makes the sum unknown; a failed call without them does not."""
    counted = {"gen_ai__operation__name": "chat", "gen_ai__usage__input_tokens": 7, "gen_ai__usage__output_tokens": 1}
    failed = span(2, 7, 1, 3, gen_ai__operation__name="chat") | {"status": {"code": 2, "message": "429"}}
    path = write(
        tmp_path / "t.jsonl",
        request([span(1, 1), span(1, 2, 1, 2, **counted), span(1, 3, 1, 3, gen_ai__operation__name="chat")]),
        request([span(2, 5), span(2, 6, 5, 2, **counted), failed]),
    )
    lines = {line["case"]: line for line in lines_of(path, tmp_path)}
    assert "usage" not in lines[f"{1:032x}"]
    assert lines[f"{2:032x}"]["usage"] == {"input": 7, "output": 1}


def test_log_records_are_events_of_their_span(tmp_path: Path) -> None:
    """The older GenAI conventions write messages as log records."""

    def record(name: str, body: dict[str, Any]) -> dict[str, Any]:
        pairs = [{"key": key, "value": {"stringValue": text}} for key, text in body.items()]
        return {"traceId": f"{1:032x}", "spanId": f"{2:016x}", "eventName": name, "timeUnixNano": "5",
                "body": {"kvlistValue": {"values": pairs}}}  # fmt: skip

    logs = [record("gen_ai.user.message", {"content": "hi"}), record("gen_ai.choice", {"finish_reason": "stop",
            "message": json.dumps({"role": "assistant", "content": "hello"})})]  # fmt: skip
    of_logs = {"resourceLogs": [{"resource": {}, "scopeLogs": [{"logRecords": logs}]}]}
    spans = [span(1, 1), span(1, 2, 1, 2, gen_ai__operation__name="chat")]
    (line,) = lines_of(write(tmp_path / "t.jsonl", of_logs, request(spans)), tmp_path)
    assert (line["input"], line["output"], line["finish"]) == ("hi", "hello", "stop")


def test_attributes_are_tags_and_sessions_are_clusters(tmp_path: Path) -> None:
    """Results by the attributes that are named; 20 traces of two sessions are two clusters."""
    spans = [
        each for trace in range(1, 21) for each in agent(trace, route="ab"[trace % 2], session__id=f"s{trace % 2}")
    ]
    one = evaluated(tmp_path, write(tmp_path / "t.jsonl", request(spans)), by=["route"]).report["results"]
    tags = {entry["tag"]: entry["cases"] for entry in one["by_tag"]}
    assert tags == {"route:a": 10, "route:b": 10, "service.name:bot": 20}
    assert (one["outputs"]["passed"], one["cases"]["answered"]) == (20, 20)
    alone = [each for trace in range(1, 21) for each in agent(trace, route="a")]
    other = evaluated(tmp_path, write(tmp_path / "u.jsonl", request(alone))).report["results"]
    assert one["pass_rate_interval"]["low"] < 0.5 < other["pass_rate_interval"]["low"]


def test_where_selects_traces_and_adds_checks(tmp_path: Path) -> None:
    """An entry is for the traces with its attributes; those that no entry selects are left out."""
    spans = [each for trace, route in enumerate("aabcc", start=1) for each in agent(trace, route=route, tier=trace)]
    checks = (
        "defaults: {checks: [{contains: Seoul}]}\n"
        "cases:\n"
        "  - where: {route: [a, b]}\n"
        "  - {where: {route: b, tier: 3}, checks: [{contains: Busan}], tags: [south]}\n"
    )
    path = write(tmp_path / "t.jsonl", request(spans))
    report = evaluated(tmp_path, path, checks=checks).report["results"]
    assert report["outputs"] == {"total": 3, "passed": 2, "failed": 1, "errors": 0}
    assert [entry["tag"] for entry in report["by_tag"]] == ["service.name:bot", "south"]


def test_faults_say_where_and_what_to_do(tmp_path: Path) -> None:
    """Unknown attributes, files without spans, and cases with ids."""
    path = write(tmp_path / "t.jsonl", request(agent(1, route="a")))
    with pytest.raises(UsageError, match=r"--by rout: no trace has this attribute \(there are: .*route"):
        evaluated(tmp_path, path, by=["rout"])
    with pytest.raises(ConfigError, match=r"cases\[0\]: each trace is a case.*where"):
        evaluated(tmp_path, path, checks="cases: [{id: a, checks: [{contains: x}]}]")
    with pytest.raises(UsageError, match="--outputs goes with"):
        evaluated(tmp_path, path, outputs=["o.jsonl"])
    (tmp_path / "n.jsonl").write_text('{"case": "a"}\n')
    with pytest.raises(InputError, match="resourceSpans"):
        evaluated(tmp_path, tmp_path / "n.jsonl")
    (tmp_path / "m.jsonl").write_text('{"resourceMetrics": []}\n')
    with pytest.raises(InputError, match="metrics"):
        evaluated(tmp_path, tmp_path / "m.jsonl")
    with pytest.raises(InputError, match="no `where` selects any"):
        evaluated(tmp_path, path, checks="defaults: {checks: [{contains: x}]}\ncases: [{where: {route: z}}]")
    write(tmp_path / "i.jsonl", request([{**span(1, 1), "traceId": "abc"}]))
    with pytest.raises(InputError, match="'abc' where 32 hex digits"):
        evaluated(tmp_path, tmp_path / "i.jsonl")


def test_spans_that_are_no_spans_have_no_verdict(tmp_path: Path) -> None:
    """Random damage of single values: the trace has an error or an answer, and nothing else is raised."""
    chance = random.Random(3)
    for _ in range(60):
        spans = agent(1) + agent(2)
        broken = chance.choice(spans)
        key = chance.choice([*broken])
        broken[key] = chance.choice([None, 7, "x", [], {}, [None], [{"key": 1}], -1, 2**70, "9" * 30])
        try:
            lines = lines_of(write(tmp_path / "t.jsonl", request(spans)), tmp_path)
        except InputError:
            continue
        assert {line["case"] for line in lines} >= {f"{1:032x}"} or {f"{2:032x}"} <= {line["case"] for line in lines}
