"""Traces of OpenTelemetry's SDK in rotated files, followed under load while the follower is killed: each counts once.

    python -m tests.bench.following [--seconds 600] [--rate 50]

One process makes traces of six spans with the SDK. It writes them as the file exporter of a Collector does: a line and
its end in two writes, and files that are renamed by the time when they are full, of which the oldest are removed.
Another follows them with `evalq checks --follow` and is killed with SIGKILL again and again.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, Status, StatusCode, Tracer

TRACES, NAMES = "traces.jsonl", "written"
SPANS = 6
BACKUPS = 60
"""Old files that stay."""
CHECKS = "defaults:\n  checks: [{contains: on its way}, {calls-tool: lookup}, {max-tokens: 2000}]\n"
FOLLOW = ("checks", "checks.yaml", "--traces", TRACES, "--follow", "--suite", "production", "--by", "route", "-q")


class CollectorFile:
    """The file of a Collector's file exporter with `rotation`: ``most`` bytes each, and ``backups`` old ones."""

    def __init__(self, path: Path, most: int, backups: int) -> None:
        self._path, self._most, self._backups = path, most, backups
        self._out = path.open("ab", buffering=0)
        self.rotations = self.removed = 0

    def add(self, line: bytes) -> None:
        """Write a line, and then its end: a rotation may come between the two."""
        self._write(line)
        self._write(b"\n")

    def close(self) -> None:
        """No more lines follow."""
        self._out.close()

    def _write(self, data: bytes) -> None:
        if self._out.tell() + len(data) > self._most:
            self._rotate()
        self._out.write(data)

    def _rotate(self) -> None:
        self._out.close()
        stem, suffix = self._path.stem, self._path.suffix
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")[:-3]
        self._path.rename(self._path.with_name(f"{stem}-{at}{suffix}"))
        self._out = self._path.open("wb", buffering=0)
        self.rotations += 1
        for old in sorted(self._path.parent.glob(f"{stem}-*{suffix}"))[: -self._backups]:
            old.unlink()
            self.removed += 1


def line_of(spans: Sequence[ReadableSpan]) -> bytes:
    """Spans as the SDK exports them, in the JSON of a Collector: ids are hex digits, and kinds are numbers."""
    request = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for of_resource in request["resourceSpans"]:
        for span in (span for scoped in of_resource["scopeSpans"] for span in scoped["spans"]):
            span |= {
                key: base64.b64decode(span[key]).hex() for key in ("traceId", "spanId", "parentSpanId") if key in span
            }
    return json.dumps(request, separators=(",", ":")).encode()


class CollectorExporter(SpanExporter):
    """Writes what the SDK exports to the file, and then the ids of traces whose root is there."""

    def __init__(self, file: CollectorFile, names: Path) -> None:
        self._file, self._names = file, names.open("a")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write one line."""
        self._file.add(line_of(spans))
        for span in spans:
            if span.parent is None and span.context is not None:
                self._names.write(f"{span.context.trace_id:032x} {span.end_time}\n")
        self._names.flush()
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close both files."""
        self._file.close()
        self._names.close()


def make_trace(tracer: Tracer, number: int, chance: random.Random) -> None:
    """An agent that calls a model and a tool twice, and answers; some tools fail, and some answers are wrong."""
    about = {"route": chance.choice(("refund", "order", "faq")), "session.id": f"s{number // 3}"}
    question = json.dumps([{"role": "user", "parts": [{"type": "text", "content": f"Where is order {number}?"}]}])
    with tracer.start_as_current_span("agent", attributes={"gen_ai.operation.name": "invoke_agent", **about}):
        for step in range(2):
            asks = {
                "type": "tool_call",
                "id": f"c{step}",
                "name": "lookup",
                "arguments": {"order": number, "step": step},
            }
            with tracer.start_as_current_span("chat") as span:
                _says(span, question, asks, "tool_calls")
            tool = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "lookup",
                "gen_ai.tool.call.id": f"c{step}",
            }
            with tracer.start_as_current_span("lookup", attributes=tool) as span:
                if chance.random() < 0.05:
                    span.set_status(Status(StatusCode.ERROR, "timeout"))
        text = "It is lost." if chance.random() < 0.1 else f"Order {number} is on its way."
        with tracer.start_as_current_span("chat") as span:
            _says(span, question, {"type": "text", "content": text}, "stop")


def _says(span: Span, question: str, part: dict[str, Any], finish: str) -> None:
    reply = [{"role": "assistant", "parts": [part], "finish_reason": finish}]
    span.set_attributes({
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.response.model": "gpt-x",
        "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20, "gen_ai.usage.cost": 0.001,
        "gen_ai.input.messages": question, "gen_ai.output.messages": json.dumps(reply),
    })  # fmt: skip


def write(folder: Path, seconds: float, rate: float, most: int, backups: int, traces: int = 1 << 60) -> CollectorFile:
    """Make traces for so long, or so many, in four threads that share the ``rate`` a second."""
    file = CollectorFile(folder / TRACES, most, backups)
    resource_ = Resource({"service.name": "shop", "service.version": "1.4"})
    provider = TracerProvider(resource=resource_)
    exporter = CollectorExporter(file, folder / NAMES)
    batches = BatchSpanProcessor(exporter, 1 << 20, schedule_delay_millis=200, max_export_batch_size=256)
    provider.add_span_processor(batches)
    tracer, until = provider.get_tracer("bench"), time.monotonic() + seconds

    def work(thread: int) -> None:
        chance, number = random.Random(thread), thread
        begin = time.monotonic()
        while (now := time.monotonic()) < until and number < traces:
            due = begin + (number // 4) * 4 / rate
            if due > now:
                time.sleep(min(due, until) - now)
                continue
            make_trace(tracer, number, chance)
            number += 4

    threads = [threading.Thread(target=work, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    provider.shutdown()
    return file


class Followed(NamedTuple):
    """What is left of a followed run: traces written, in how many runs each is, and what the follower noted."""

    written: dict[str, int]
    counted: Counter[str]
    runs: int
    state: dict[str, Any]
    lags: list[float]


def outcome(folder: Path) -> Followed:
    """Read the written ids and the runs below ``folder``."""
    written = {name: int(end) for name, end in (line.split() for line in (folder / NAMES).read_text().splitlines())}
    counted, lags, runs = Counter[str](), list[float](), 0
    for path in sorted((folder / "evalq-runs").glob("*/run.json")):
        if json.loads(path.read_text())["state"] != "done":
            continue
        runs += 1
        ended = path.with_name("report.json").stat().st_mtime
        for line in path.with_name("records.jsonl").read_text().splitlines():
            name = json.loads(line)["id"]
            counted[name] += 1
            lags.append(ended - written.get(name, 0) / 1e9)
    (state,) = (folder / "evalq-runs").glob("traces-follow-*/traces.state")
    return Followed(written, counted, runs, json.loads(state.read_text()), sorted(lags))


@contextlib.contextmanager
def _started(words: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "errors.txt").open("ab") as errors:
        process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=errors)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def follow(folder: Path, seconds: float, chance: random.Random, every: float, settle: float, most: float = 30.0) -> int:
    """Follow for so long, killed within ``most`` seconds again and again; then to the end. Returns the kills."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "evalq.producer.cli",
        *FOLLOW,
        "--every",
        str(every),
        "--settle",
        str(settle),
    ]
    until, kills = time.monotonic() + seconds, 0
    while (left := until - time.monotonic()) > 0:
        with _started(command, folder) as process, contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(left, chance.uniform(most / 10, most)))
            raise AssertionError(f"the follower ended: {(folder / 'errors.txt').read_text()[-2000:]}")
        kills += 1
    for _ in range(2):
        time.sleep(settle)
        done = subprocess.run([*command, "--passes", "1"], cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    return kills


def measure(
    folder: Path, seconds: float, rate: float, every: float, settle: float, most: int = 1 << 20, most_kill: float = 30.0
) -> tuple[str, Followed]:
    """Write and follow for so long; a row of the table, and what was found."""
    (folder / "checks.yaml").write_text(CHECKS)
    writer = [sys.executable, "-m", "tests.bench.following", "--write", str(folder), "--seconds", str(seconds)]
    with subprocess.Popen([*writer, "--rate", str(rate), "--most", str(most)], stdout=subprocess.PIPE) as process:
        while not (folder / TRACES).exists():
            time.sleep(0.05)
        kills = follow(folder, seconds + 2, random.Random(1), every, settle, most_kill)
        said, _ = process.communicate(timeout=60)
    rotations, removed = map(int, said.split())
    found = outcome(folder)
    missing = sum(name not in found.counted for name in found.written)
    twice = sum(count > 1 for count in found.counted.values())
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    middle, high = (found.lags[int(len(found.lags) * share)] for share in (0.5, 0.95))
    cells = (
        f"{seconds:.0f}", f"{len(found.written):,}", f"{len(found.written) * SPANS:,}", rotations, removed, kills,
        found.runs, missing, twice, found.state["late"], f"{middle:.1f}", f"{high:.1f}", f"{memory:.0f}",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |", found


HEADS = (
    *("seconds", "traces", "spans", "rotations", "files removed", "kills", "runs", "missing", "twice", "late"),
    *("lag, median s", "95 %", "most memory, MB"),
)


def main(words: list[str] | None = None) -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.following")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=float, default=50.0, help="traces a second")
    parser.add_argument("--every", type=float, default=5.0)
    parser.add_argument("--settle", type=float, default=2.0)
    parser.add_argument("--most", type=int, default=1 << 20, help="bytes of a file")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    if asked.write is not None:
        file = write(asked.write, asked.seconds, asked.rate, asked.most, BACKUPS)
        print(file.rotations, file.removed)
        return
    print(f"| {' | '.join(HEADS)} |\n| {' | '.join(['---:'] * len(HEADS))} |")
    with tempfile.TemporaryDirectory(prefix="evalq-bench-") as scratch:
        row, found = measure(Path(scratch), asked.seconds, asked.rate, asked.every, asked.settle, asked.most)
    print(row, flush=True)
    counted = set(found.counted)
    assert counted == found.written.keys(), f"{len(counted ^ found.written.keys())} traces are missing or unknown"
    assert set(found.counted.values()) == {1}, "traces that count twice"


if __name__ == "__main__":
    os.environ.pop("EVALQ_BROKER", None)
    main()
