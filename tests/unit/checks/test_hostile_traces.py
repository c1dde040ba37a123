"""Files of traces that are damaged or malicious: no crash, no growth without bound, and no calls made up."""

from __future__ import annotations

import json
import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest
import zstandard

from evalq.evalcore.errors import InputError
from evalq.evalcore.records.traces import otlp_files, recording
from evalq.evalcore.records.traces.answers import answer_of
from evalq.evalcore.records.traces.otlp import Trace, TraceSpan
from evalq.evalcore.records.traces.recording import record_traces
from tests.unit.checks.test_traces import agent, lines_of, request, span, value, write

MODEL = {"gen_ai__operation__name": "chat", "gen_ai__request__model": "m"}


@pytest.mark.parametrize("wrong", [5, None, "x", [], True], ids=repr)
@pytest.mark.parametrize("of", ["spans", "logs"])
def test_what_is_no_span_is_named_by_its_line(of: str, wrong: Any, tmp_path: Path) -> None:
    scoped = {"spans": [wrong]} if of == "spans" else {"logRecords": [wrong]}
    listed = [{f"scope{of.capitalize()}": [scoped]}]
    file = write(tmp_path / "t.jsonl", request(agent(1)), {f"resource{of.capitalize()}": listed})
    recorded = record_traces([str(file)], tmp_path / "run")
    assert recorded.traces == 1
    assert any(f"{file}:2: a span or log record that is not of OTLP" in note for note in recorded.notes)


def test_a_value_of_any_type_may_stand_under_any_key(tmp_path: Path) -> None:
    odd = span(2, 7, output__value="x")
    odd["attributes"].append({"key": "gen_ai.operation.name", "value": value(["chat"])})
    assert len(lines_of(write(tmp_path / "t.jsonl", request([odd])), tmp_path / "run")) == 1


def test_a_message_of_gigabytes_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_files, "MOST_MESSAGE", 1 << 16)
    packed = zstandard.ZstdCompressor().compress(b'{"resourceSpans":[],"x":"' + bytes(1 << 20) + b'"}')
    assert len(packed) < 1 << 10
    good = json.dumps(request(agent(1))).encode()
    file = tmp_path / "t.bin"
    file.write_bytes(b"".join(struct.pack(">I", len(each)) + each for each in (packed, good)))
    recorded = record_traces([str(file)], tmp_path / "run")
    assert recorded.traces == 1
    assert any("longer than" in note for note in recorded.notes)


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_without_an_end_is_not_held(end: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its begin names a trace, which has no verdict then; the lines after it are read."""
    monkeypatch.setattr(otlp_files, "MOST_MESSAGE", 1 << 16)
    monkeypatch.setattr(otlp_files, "_BLOCK", 1 << 14)
    good, name = json.dumps(request(agent(1))).encode() + b"\n", f"{2:032x}"
    endless = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"' + name.encode() + b'","x":"' + bytes(1 << 20)
    file = tmp_path / "t.jsonl"
    file.write_bytes(good + endless + (end + json.dumps(request(agent(3))).encode() if end else b""))
    lines = {line["case"]: line for line in lines_of(file, tmp_path / "run")}
    assert "t.jsonl:2" in lines[name]["error"]
    assert len(lines) == (3 if end else 2)


def test_a_trace_that_says_too_much_has_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is too long to be read would end the run of all traces."""
    monkeypatch.setattr(recording, "MAX_RECORD_BYTES", 10_000)
    spans = [*agent(1), span(2, 1, output__value="x" * 10_000)]
    lines = {line["case"]: line for line in lines_of(write(tmp_path / "t.jsonl", request(spans)), tmp_path / "run")}
    assert lines[f"{2:032x}"]["error"] == "what the trace says is longer than 10,000 bytes"
    assert lines[f"{1:032x}"]["output"] == "Seoul: 21"


def test_no_span_at_all_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        lines_of(write(tmp_path / "t.jsonl", {"resourceSpans": []}), tmp_path / "run")
    assert raised.value.faults[0][1] == "it has no span"


def test_a_long_chain_of_spans_takes_time_in_proportion() -> None:
    """Ten times as many spans may take at most some thirty times as long; it took a hundred times."""

    def seconds(count: int) -> float:
        spans = [
            TraceSpan(
                f"{n}", f"{n - 1}" if n else "", "s", (n + 1, n + 2), {"gen_ai.request.model": "m"} if n % 2 else {}
            )
            for n in range(count)
        ]
        began = time.process_time()
        answer_of(Trace("t", spans))
        return time.process_time() - began

    seconds(500)
    assert seconds(10_000) < max(1.0, 30 * seconds(1_000))


def test_spans_in_a_circle_are_as_they_stand() -> None:
    """Each of them counts, and none stands under itself."""
    for kinds in (("chat", "chat"), ("chat", ""), ("execute_tool", "chat"), ("invoke_agent", "execute_tool")):
        spans = [
            TraceSpan(str(n), str(1 - n), "s", (n + 1, n + 2), {"gen_ai.operation.name": kind})
            for n, kind in enumerate(kinds)
        ]
        line = answer_of(Trace("t", spans))
        assert len(line.get("tool_calls", ())) == kinds.count("execute_tool"), kinds


def test_nearest_spans_are_those_found_step_by_step() -> None:
    """Random forests with circles, against a walk from each span."""
    from evalq.evalcore.records.traces.answers import _Tree

    order = random.Random(7)
    names = ("chat", "execute_tool", "invoke_agent", "")
    for _ in range(300):
        count = order.randint(1, 12)
        spans = [
            TraceSpan(
                str(n), str(order.randint(-3, count)), "s", (1, 2), {"gen_ai.operation.name": order.choice(names)}
            )
            for n in range(count)
        ]
        tree = _Tree(spans)
        found = tree._nearest(spans, "model", "tool")
        for each in spans:
            at, seen, wanted = each, {each.id}, None
            while (above := tree._above[at.id]) is not None and above.id not in seen:
                if tree.kinds[above.id] in ("model", "tool"):
                    wanted = above
                    break
                seen.add(above.id)
                at = above
            assert found[each.id] is wanted


@pytest.mark.parametrize(
    ("more", "known"),
    [
        ({"gen_ai__response__finish_reasons": ["tool_calls"]}, False),
        ({}, False),
        ({"gen_ai__response__finish_reasons": ["stop"]}, True),
        ({"gen_ai__output__messages": '[{"role":"assistant","parts":[{"type":"text","content":"x"}]}]'}, True),
    ],
    ids=["asked", "unknown", "ended", "said"],
)
def test_no_call_is_a_fact_only_where_the_trace_says_so(more: dict[str, Any], known: bool, tmp_path: Path) -> None:
    """Instrumentations record no content unless they are asked to: then what a model called is not known."""
    spans = [span(1, 1, input__value="q", output__value="done"), span(1, 2, 1, 1, **MODEL, **more)]
    (line,) = lines_of(write(tmp_path / "t.jsonl", request(spans)), tmp_path / "run")
    assert line.get("tool_calls") == ([] if known else None)
