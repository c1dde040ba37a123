"""Traces: nothing at all when off; one trace a run when on, from every process, without a word in the messages."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.producer.cli import main
from evalq.workers import tracing
from tests.integration.harness import evalq, info, running_fleet, running_server, same_answer, wait_until


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Tracing is on, and what is traced lies in memory."""
    memory = InMemorySpanExporter()
    monkeypatch.setenv(tracing.VARIABLE, "http://127.0.0.1:1")
    monkeypatch.setattr(tracing, "_processor", lambda: SimpleSpanProcessor(memory))
    tracing._on.cache_clear()
    tracing._provider.cache_clear()
    yield memory
    monkeypatch.undo()
    tracing._on.cache_clear()
    tracing._provider.cache_clear()


def test_off_it_is_one_object_that_does_nothing() -> None:
    """Without the variable every span is the same one that does nothing; there is no provider and no exporter."""
    script = (
        "import sys; from evalq.workers import tracing; from evalq.workers.pool import chunk_runner\n"
        "with tracing.span('a', 'run', seq=1) as one, tracing.run_span('run', begun=False) as two:\n"
        "    one.set_attribute('x', 1); assert one is two\n"
        "tracing.flush(); assert not tracing._provider.cache_info().currsize\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry.exporter')]"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": str(Path(__file__).parents[3])})


def _by_name(memory: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in memory.get_finished_spans()}


def test_steps_anywhere_belong_to_the_run(spans: InMemorySpanExporter) -> None:
    """A step without anything around it is the run's child, one inside another that one's; ids come of the run's id."""
    with tracing.span("chunk", "r1", seq=7) as chunk:
        chunk.set_attribute("evalq.outcome", "committed")
        with tracing.span("commit", "r1", seq=7):
            pass
        with tracing.span("chunk", "r2", seq=0):  # another run's is not this one's child
            pass
    with tracing.run_span("r1", begun=False):
        pass
    outer, other = [span for span in spans.get_finished_spans() if span.name == "evalq.chunk"][::-1]
    named = _by_name(spans)
    run, commit = named["evalq.run"], named["evalq.commit"]
    assert run.parent is None
    assert outer.parent is not None
    assert (outer.parent.trace_id, outer.parent.span_id) == (run.context.trace_id, run.context.span_id)
    assert commit.parent == outer.context
    assert other.context.trace_id != run.context.trace_id
    assert dict(outer.attributes or {}) == {"evalq.run": "r1", "evalq.seq": 7, "evalq.outcome": "committed"}


def test_an_error_is_reported_by_its_kind_alone(spans: InMemorySpanExporter) -> None:
    """Texts of errors may quote inputs and agents: a span has none."""
    with pytest.raises(ValueError, match="secret"), tracing.span("evaluate", "r1"):
        raise ValueError("a secret answer")
    (span,) = spans.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "ValueError")
    assert not span.events


def test_a_finished_run_tells_its_rates_as_events(spans: InMemorySpanExporter, tmp_path: Path) -> None:
    """By OpenTelemetry's names, in the run's trace; a run without rates tells nothing."""
    cases, outputs = tmp_path / "cases.yaml", tmp_path / "outputs.jsonl"
    cases.write_text("cases: [{id: a, checks: [{contains: x}]}, {id: b, checks: [{contains: y}]}]\n")
    outputs.write_text('{"case": "a", "output": "x"}\n{"case": "b", "output": "a secret"}\n')
    assert main(["checks", str(cases), "--outputs", str(outputs), "--inline", "--out", str(tmp_path / "run")]) == 0
    result = _by_name(spans)["evalq.result"]
    assert [(event.name, dict(event.attributes or {})) for event in result.events] == [
        (
            "gen_ai.evaluation.result",
            {"gen_ai.evaluation.name": "checks.pass_rate", "gen_ai.evaluation.score.value": 0.5},
        )
    ]
    with tracing.run_span(info(tmp_path / "run")["run"], begun=False):
        pass
    assert result.context.trace_id == _by_name(spans)["evalq.run"].context.trace_id
    tracing.trace_results("other", {})
    assert sum(span.name == "evalq.result" for span in spans.get_finished_spans()) == 1


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is set and the SDK is not there: an error that names both."""
    monkeypatch.setenv(tracing.VARIABLE, "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    tracing._on.cache_clear()
    with pytest.raises(ConfigError, match=r"evalq\[otel\]"):
        tracing.span("chunk", "r1")
    tracing.trace_results("r1", {"checks.pass_rate": 0.5})  # of a run that is finished: no error
    tracing._on.cache_clear()


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[Span]]]:
    """What takes traces over OTLP and HTTP: its address, and the spans it got."""
    got: list[Span] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = ExportTraceServiceRequest.FromString(body)
            got.extend(s for group in request.resource_spans for scope in group.scope_spans for s in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()
    thread.join()


def test_a_run_over_workers_is_one_trace_and_the_same_report(tmp_path: Path, receiver: tuple[str, list[Span]]) -> None:
    """Producer and pool processes send their steps by OTLP: one trace, and the bytes of the inline run."""
    url, got = receiver
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 1_000, seed=7)
    traced = {tracing.VARIABLE: url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    args = ("planagent", "rows.csv", "--chunk-size", "100", "--format", "none")
    with running_server(tmp_path) as server, running_fleet(server.url, tmp_path, **traced) as fleet:
        fleet.add(2)
        done = evalq(*args, "--broker", server.url, "--out", tmp_path / "run", cwd=tmp_path, seconds=120, **traced)
        assert done.returncode == 0, done.stderr
        # A chunk's own span ends behind its commit's, and may be sent later; what is killed at the end sends nothing.
        wait_until(
            lambda: len(_parents_told(got)) == 10, "ten commits were told, and the chunks that they are steps of"
        )
        wait_until(lambda: any(span.name == "evalq.run" for span in list(got)), "the run was told")
    calm = evalq(*args, "--inline", "--out", tmp_path / "calm", cwd=tmp_path)
    assert calm.returncode == 0, calm.stderr
    same_answer(tmp_path / "calm", tmp_path / "run")
    assert len({span.trace_id for span in got}) == 1
    names = {span.name for span in got}
    assert names == {f"evalq.{step}" for step in ("run", "plan", "publish", "chunk", "claim", "evaluate", "commit")}
    run = next(span for span in got if span.name == "evalq.run")
    assert {span.parent_span_id for span in got if span.name == "evalq.chunk"} == {run.span_id}
    said = {item.key: item.value.string_value for span in got for item in span.attributes if item.key == "evalq.run"}
    assert said == {"evalq.run": info(tmp_path / "run")["run"]}
    assert sum(span.name == "evalq.commit" for span in got) == 10, "each is the step of another chunk"


def _parents_told(got: list[Span]) -> set[bytes]:
    """Spans of chunks, told already, of which a commit that was told is a step."""
    message = list(got)
    chunks = {span.span_id for span in message if span.name == "evalq.chunk"}
    return chunks & {span.parent_span_id for span in message if span.name == "evalq.commit"}
