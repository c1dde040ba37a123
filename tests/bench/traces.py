"""Traces to a report, whole commands from their start to their exit, beside agentevals where it installs.

    python -m tests.bench.traces [--traces 5000 50000] [--peer]

A trace has 20 spans: an agent, nine calls of a model, nine of a tool, and one of a server; evalq makes four checks of
each. agentevals reads the same file, and compares with nothing. Also said: what reading alone takes, with its memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.tools import evalq, timed
from tests.importing.environments import agentevals_python

SPANS = 20
_CHECKS = (
    "defaults:\n  checks: [{contains: on its way}, {calls-tool: lookup}, {max-tool-calls: 9}, {max-tokens: 2000}]\n"
)
_READ = (
    "import sys; from pathlib import Path; from evalq.evalcore.records.traces.recording import record_traces; "
    "record_traces(['traces.jsonl'], Path('made'))"
)


def _span(trace: str, number: str, parent: str, times: tuple[int, int], attributes: dict[str, Any]) -> dict[str, Any]:
    listed = []
    for key, value in attributes.items():
        kind = "intValue" if isinstance(value, int) else "stringValue"
        listed.append({"key": key, "value": {kind: str(value)}})
    made = {"traceId": trace, "spanId": number, "name": str(attributes.get("gen_ai.operation.name", "GET")), "kind": 1}
    made |= {"parentSpanId": parent} if parent else {}
    start, end = map(str, times)
    return {**made, "startTimeUnixNano": start, "endTimeUnixNano": end, "attributes": listed, "status": {}}


def spans_of(number: int, chance: random.Random) -> list[dict[str, Any]]:
    """The spans of one trace."""
    trace, root = f"{chance.getrandbits(128):032x}", f"{chance.getrandbits(64):016x}"
    begin = 1_760_000_000_000_000_000 + number * 1_000_000_000
    about = {"route": chance.choice(("refund", "order", "faq")), "session.id": f"s{number // 3}"}
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop", **about}
    spans = [_span(trace, root, "", (begin, begin + 900_000_000), agent)]
    history: list[Any] = [{"role": "user", "parts": [{"type": "text", "content": f"Where is my order {number}?"}]}]
    for step in range(9):
        call = f"call_{number}_{step}"
        asks = {"type": "tool_call", "id": call, "name": "lookup", "arguments": {"order": number, "step": step}}
        says = {"type": "text", "content": f"Order {number} is on its way."}
        reply = {"role": "assistant", "parts": [says if step == 8 else asks], "finish_reason": "stop"}
        model = {
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.response.model": "gpt-x",
            "gen_ai.usage.input_tokens": 100 + step, "gen_ai.usage.output_tokens": 20,
            "gen_ai.input.messages": json.dumps(history[-3:]), "gen_ai.output.messages": json.dumps([reply]),
        }  # fmt: skip
        at = begin + 1_000 + step * 50_000_000
        spans.append(_span(trace, f"{chance.getrandbits(64):016x}", root, (at, at + 40_000_000), model))
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup", "gen_ai.tool.call.id": call,
                "gen_ai.tool.call.arguments": json.dumps(asks["arguments"]),
                "gen_ai.tool.call.result": "in transit"}  # fmt: skip
        times = at + 41_000_000, at + 45_000_000
        spans.append(_span(trace, f"{chance.getrandbits(64):016x}", root, times, tool))
        result = {"type": "tool_call_response", "id": call, "response": "in transit"}
        history += [reply, {"role": "tool", "parts": [result]}]
    server = {"http.route": "/orders", "db.system": "postgresql"}
    return [*spans, _span(trace, f"{chance.getrandbits(64):016x}", root, (begin + 5, begin + 9), server)]


def write(path: Path, traces: int) -> None:
    """A file of so many traces, 200 spans a line."""
    chance, waiting = random.Random(1), list[dict[str, Any]]()
    resource_ = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    with path.open("w") as out:
        for number in range(traces):
            waiting += spans_of(number, chance)
            if len(waiting) >= 200 or number == traces - 1:
                scoped = [{"scope": {"name": "bench"}, "spans": waiting}]
                line = {"resourceSpans": [{"resource": resource_, "scopeSpans": scoped}]}
                out.write(json.dumps(line, separators=(",", ":")) + "\n")
                waiting = []


def _alone(command: list[str], folder: Path) -> tuple[float, float, float]:
    """Seconds from start to exit, CPU seconds, and the most memory in MB, in a process that has no other children."""
    script = (
        "import json, resource, subprocess, sys, time; began = time.perf_counter(); "
        "subprocess.run(sys.argv[1:], check=False, stdout=subprocess.DEVNULL); "
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(json.dumps([time.perf_counter() - began, "
        "used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]), file=sys.stderr)"
    )
    _, said = timed([sys.executable, "-c", script, *command], folder, dict(os.environ))
    wall, cpu, most = json.loads(said.splitlines()[-1])
    return wall, cpu, most


def row(traces: int, peer: bool) -> str:
    """A line of the table."""
    with tempfile.TemporaryDirectory(prefix="evalq-bench-") as scratch:
        folder = Path(scratch)
        write(folder / "traces.jsonl", traces)
        (folder / "checks.yaml").write_text(_CHECKS)
        size = (folder / "traces.jsonl").stat().st_size / 1e6
        read = _alone([sys.executable, "-c", _READ], folder)
        took, passed = evalq(["checks", "checks.yaml", "--traces", "traces.jsonl", "--by", "route"], folder)
        assert passed == traces, f"{passed} of {traces} passed"
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        cells = [f"{traces:,}", f"{traces * SPANS:,}", f"{size:,.0f}", f"{read[1]:.1f}", f"{read[2]:,.0f}"]
        cells += [f"{took.wall:.1f}", f"{took.cpu:.1f}", f"{most:,.0f}"]
        if peer:
            program = agentevals_python().with_name("agentevals")
            other = _alone([str(program), "run", "traces.jsonl", "-o", "summary"], folder)
            cells += [f"{other[1]:.1f}", f"{other[2]:,.0f}"]
    return f"| {' | '.join(cells)} |"


def main(words: list[str] | None = None) -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.traces")
    parser.add_argument("--traces", type=int, nargs="+", default=[5_000, 50_000])
    parser.add_argument("--peer", action="store_true", help="also agentevals")
    asked = parser.parse_args(words)
    heads = ["traces", "spans", "file, MB", "reading, CPU s", "MB", "report, wall s", "CPU s", "MB"]
    heads += ["agentevals, CPU s", "MB"] if asked.peer else []
    print(f"| {' | '.join(heads)} |\n| {' | '.join(['---:'] * len(heads))} |")
    for traces in sorted(asked.traces):
        print(row(traces, asked.peer), flush=True)


if __name__ == "__main__":
    main()
