"""A gate in CI behind a server that fails as real ones do: the unchanged prompt many times, and a worse one.

    python -m tests.bench.hostile_ci --runs 20

The server answers 8 % of the calls with status 429, 3 % with 500, 1 % with a proxy's page and status 200, and cuts 1 %
of its JSON. Every run is a job of its own, with `evalq run` as CI calls it, and a commit of its own. The unchanged
prompt may be GO or INCONCLUSIVE, the worse one NO-GO or SUSPECT; else this ends with 1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CASES, REPEATS, MARGIN = 20, 10, 0.1
GOOD, WORSE = 0.95, 0.6
"""How often a prompt answers rightly."""
_TARGET = "{{kind: openai, base_url: '{url}', model: {model}}}"
_SUITE = """suite: prompts
runs:
  - {{evaluator: checks, cases: cases.yaml, target: {target}, repeat: {repeats}}}
policy:
  gates: [{{metric: checks.pass_rate, max_drop: {margin}}}]
baseline: main
"""
EVALQ = (sys.executable, "-m", "evalq.producer.cli")


class Answers(NamedTuple):
    """What the server sends for one call."""

    status: int
    kind: str
    body: bytes


def answer_of(rng: random.Random, model: str) -> Answers:
    """The model's answer, or what comes in its place."""
    right = rng.random() < (WORSE if model == "worse" else GOOD)
    text = "The answer is 42." if right else "I would rather not say."
    message = {"choices": [{"message": {"content": text}}], "usage": {"prompt_tokens": 9, "completion_tokens": 5}}
    whole, lot = json.dumps(message).encode(), rng.random()
    if lot < 0.08:
        return Answers(429, "application/json", b'{"error": {"message": "slow down"}}')
    if lot < 0.11:
        return Answers(500, "application/json", b'{"error": "internal"}')
    if lot < 0.12:
        return Answers(200, "text/html", b"<html><body>Please log in</body></html>")
    return Answers(200, "application/json", whole[: len(whole) // 2] if lot < 0.13 else whole)


@contextlib.contextmanager
def hostile_server(seed: int) -> Iterator[str]:
    """Its base_url; the prompt's quality is the model's name."""
    rng = random.Random(seed)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
                asked = json.loads(await reader.readexactly(int(fields.get(b"content-length", b"0"))))
                sent = answer_of(rng, asked["model"])
                length = f"content-type: {sent.kind}\r\ncontent-length: {len(sent.body)}\r\n\r\n"
                writer.write(f"HTTP/1.1 {sent.status} -\r\n{length}".encode() + sent.body)
                await writer.drain()
        writer.close()

    loop, ready = asyncio.new_event_loop(), threading.Event()
    ports: list[int] = []

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()

    def forever() -> None:
        loop.run_until_complete(run())
        loop.run_forever()

    thread = threading.Thread(target=forever, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield f"http://127.0.0.1:{ports[0]}/v1"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


class Job(NamedTuple):
    """How a job ended."""

    decided: str
    code: int
    seconds: float
    lost: int


def prepare(folder: Path, url: str) -> None:
    """Cases, targets, suites, and an approved baseline with four times the repeats of a candidate."""
    cases = [{"id": f"q{n}", "input": f"Question {n}?", "checks": [{"contains": "42"}]} for n in range(CASES)]
    (folder / "cases.yaml").write_text(json.dumps({"cases": cases}))
    models = {"before": "good", "unchanged": "good", "worse": "worse"}
    lines = [f"  {name}: {_TARGET.format(url=url, model=model)}\n" for name, model in models.items()]
    (folder / "targets.yaml").write_text("targets:\n" + "".join(lines))
    for name in ("unchanged", "worse"):
        text = _SUITE.format(target=name, repeats=REPEATS, margin=MARGIN)
        (folder / f"{name}.yaml").write_text(text)
    sweep = ("checks", "cases.yaml", "--target", "before", "--targets", "targets.yaml", "--repeat", str(4 * REPEATS))
    _evalq(folder, *sweep, "--out", "before", "-q", "--format", "none", check=True)
    _evalq(folder, "baseline", "set", "main", "before", check=True)


def job(folder: Path, target: str, commit: str) -> Job:
    """A job of CI for a commit, as the action calls it."""
    began, gate = time.monotonic(), folder / f"{commit}.json"
    given = ("--targets", "targets.yaml", "--once", commit, "--out", f"runs-{commit}", "-o", str(gate))
    done = _evalq(folder, "run", f"{target}.yaml", *given, "--format", "none", "--no-progress", "-q")
    report = json.loads((folder / f"runs-{commit}" / "checks" / "report.json").read_text())
    decided = json.loads(gate.read_text())["decided"]
    return Job(decided, done.returncode, time.monotonic() - began, report["records"]["errors"])


def _evalq(folder: Path, *words: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*EVALQ, *words], cwd=folder, capture_output=True, text=True, check=check)


def main() -> int:
    """Run the jobs, and print a row for each prompt."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    faults = 0
    with tempfile.TemporaryDirectory() as made, hostile_server(given.seed) as url:
        folder = Path(made)
        prepare(folder, url)
        print("| prompt | jobs | decisions | replies lost | seconds a job |")
        print("| --- | ---: | --- | ---: | ---: |")
        for target, runs, wanted in (
            ("unchanged", given.runs, ("GO", "INCONCLUSIVE")),
            ("worse", max(1, given.runs // 4), ("NO-GO", "SUSPECT")),
        ):
            jobs = [job(folder, target, f"{target}-{number}") for number in range(runs)]
            counts = ", ".join(f"{count} {word}" for word, count in Counter(each.decided for each in jobs).items())
            lost, seconds = sum(each.lost for each in jobs), sum(each.seconds for each in jobs) / runs
            print(f"| {target} | {runs} | {counts} | {lost} of {runs * CASES * REPEATS:,} | {seconds:.1f} |")
            faults += sum(each.decided not in wanted for each in jobs)
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
