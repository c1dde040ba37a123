"""A real server of a real model, swept by kind openai: llama-cpp-python's, with a tiny llama of random weights.

    python -m tests.agents.llama

evalq makes 1,000 calls with `stream: true`, and 1,000 without. OpenAI's own package asks the same server the same
questions, and what both read is compared. `make peers` runs it; the figures go to docs/reference/targets-peers.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from evalq.evalcore.version import __version__
from tests.importing.environments import GGUF, LLAMA, llama_python
from tests.integration.ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "targets-peers.md"
_CASES, _REPEATS, _MOST, _SEED = 250, 4, 24, 20261128
_QUESTIONS = {f"c{number}": f"Where is parcel {number * 7919 % 10007}?" for number in range(_CASES)}


class Row(NamedTuple):
    """What came of one sweep."""

    way: str
    calls: int
    answers: int
    failures: str
    same: int
    known: int
    counted: str
    first: str
    seconds: float


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The server, which is up: its address."""
    python, model, port = llama_python(), folder / "tiny.gguf", free_port()
    subprocess.run([python, Path(__file__).with_name("tiny_llama.py"), model, str(_SEED)], check=True)
    command = [str(python), "-m", "llama_cpp.server", "--model", str(model), "--host", "127.0.0.1", "--port", str(port),
               "--n_ctx", "512", "--chat_format", "chatml", "--interrupt_requests", "false"]  # fmt: skip
    url = f"http://127.0.0.1:{port}/v1"
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            until = time.monotonic() + 60
            while time.monotonic() < until:
                with contextlib.suppress(httpx.HTTPError):
                    httpx.get(f"{url}/models", timeout=2).raise_for_status()
                    break
                time.sleep(0.1)
            else:
                sys.exit((folder / "server.log").read_text()[-2000:])
            yield url
        finally:
            server.terminate()
            server.wait(30)


def references(url: str) -> dict[tuple[str, bool], tuple[str, str, int | None]]:
    """{(case, streamed): (text, finish reason, completion tokens)}, as OpenAI's package reads them."""
    import openai

    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    found: dict[tuple[str, bool], tuple[str, str, int | None]] = {}
    for case, question in _QUESTIONS.items():
        asked: dict[str, Any] = {
            "model": "tiny", "messages": [{"role": "user", "content": question}], "max_tokens": _MOST, "temperature": 0,
        }  # fmt: skip
        whole = client.chat.completions.create(**asked)
        choice = whole.choices[0]
        used = whole.usage.completion_tokens if whole.usage else None
        found[case, False] = (choice.message.content or "", choice.finish_reason, used)
        text, finish, tokens = "", "", None
        for chunk in client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
            tokens = chunk.usage.completion_tokens if chunk.usage else tokens
            for each in chunk.choices:
                text, finish = text + (each.delta.content or ""), each.finish_reason or finish
        found[case, True] = (text, finish, tokens)
    return found


def swept(folder: Path, url: str, stream: bool, reference: dict[tuple[str, bool], Any]) -> Row:
    """Have evalq make its calls, and compare what it recorded."""
    check: dict[str, Any] = {"first-token": 60} if stream else {"max-tokens": 500}
    cases = [{"id": case, "input": question, "checks": [check]} for case, question in _QUESTIONS.items()]
    (folder / "cases.yaml").write_text(json.dumps({"cases": cases}))
    target = {"kind": "openai", "base_url": url, "model": "tiny", "stream": stream, "max_concurrency": 8,
              "options": {"max_tokens": _MOST, "temperature": 0}}  # fmt: skip
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"llama": target}}))
    out, evalq = folder / f"run-{stream}", str(Path(sys.executable).with_name("evalq"))
    command = [evalq, "checks", "cases.yaml", "--target", "llama", "--targets", "targets.yaml",
               "--repeat", str(_REPEATS), "--out", str(out)]  # fmt: skip
    began = time.monotonic()
    with open(folder / f"evalq-{stream}.log", "wb") as log:
        subprocess.run(command, cwd=folder, stdout=log, stderr=log, check=False, timeout=1800)
    seconds = time.monotonic() - began
    lines = [json.loads(line) for line in (out / "outputs.jsonl").read_text().splitlines()]
    failures = Counter(each["kind"] for line in lines for each in line.get("attempts") or () if each.get("kind"))
    answers = [line for line in lines if not line.get("error")]
    same = sum(_said(line) == reference[line["case"], stream][:2] for line in answers)
    last = [line["attempts"][-1] for line in answers]
    tokens = [each.get("completion_tokens") for each in last]
    theirs = [reference[line["case"], stream][2] for line in answers]
    firsts = sorted(each["first_token_seconds"] for each in last if "first_token_seconds" in each)
    middle = f"{firsts[len(firsts) // 2] * 1000:.0f} ms" if firsts else "-"
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(failures.items())) or "none"
    known = sum(each is not None for each in tokens)
    agree = "equal" if tokens == theirs else "different"
    counted = f"{agree}, {sum(filter(None, tokens)):,}" if known else f"{agree}: the server counts none"
    way = "`stream: true`" if stream else "whole"
    return Row(way, len(lines), len(answers), listed, same, known, counted, middle, seconds)


def _said(line: dict[str, Any]) -> tuple[str, str]:
    output = line.get("output")
    return (line["text"] if "text" in line else output if isinstance(output, str) else json.dumps(output)), line[
        "finish"
    ]


def page(rows: list[Row]) -> str:
    """docs/reference/targets-peers.md."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("openai", "anthropic", "google-genai", "botocore"))
    table = [
        f"| {row.way} | {row.calls:,} | {row.answers:,} | {row.failures} | {row.same:,} | {row.known:,} "
        f"| {row.counted} | {row.first} | {row.seconds:.0f} |"
        for row in rows
    ]
    return "\n".join([*_HEAD.format(packages=packages).splitlines(), *table, ""])


_HEAD = f"""# Kinds of targets beside real servers and packages

## The providers' own packages

`tests/unit/targets/test_sdks.py` compares the kinds of models with {{packages}}. Each package sends a conversation
with a tool call to a local server of its API, and evalq sends the same one. Path, body, key and version are equal. The
package's types read each reply that the server gives, whole and streamed: texts, calls of tools, reasoning, tokens of
caches, refusals and filters. evalq reads the same text, calls and tokens. AWS signatures are computed again
from what the server received. `make test` runs it.

## llama.cpp's server

`make peers` builds llama-cpp-python {LLAMA} from its source, writes a llama of random weights (with gguf {GGUF}), and
serves it. evalq {__version__} asks {_CASES} questions {_REPEATS} times, with `kind: openai` and temperature 0. OpenAI's
package asks the same questions of the same server. An answer is equal if text and finish reason are those that the
package reads. A failure is an attempt without an answer.

This server counts no tokens in a stream, although it is asked to: evalq says that they are unknown.

| Way | Calls | Answers | Failures | Equal | With tokens | Output tokens as the package's | First token | Seconds |
| --- | ---: | ---: | --- | ---: | ---: | --- | ---: | ---: |"""


def main() -> None:
    """Make both sweeps, and write the page."""
    os.environ["NO_PROXY"] = "127.0.0.1"
    folder = Path(tempfile.mkdtemp(prefix="llama-"))
    with serving(folder) as url:
        reference = references(url)
        rows = [swept(folder, url, stream, reference) for stream in (False, True)]
    sys.stderr.write("".join(f"{row}\n" for row in rows) + f"in {folder}\n")
    PAGE.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
