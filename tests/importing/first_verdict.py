"""One question, "is the new prompt worse?", put to four tools before one server that fails as busy ones do.

    python -m tests.importing.first_verdict

Twenty questions, five times each, with the old and with the new prompt: 200 calls. The server refuses 8 % with status
429, fails 3 % with 500, and answers 1 % with a page and 1 % with half a reply. The new prompt is worse by construction.
Each tool is used as its own first pages say, with nothing set that they do not set. `make peers` runs it; the figures
go to docs/reference/first-verdict.md.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from evalq.evalcore.version import __version__
from tests.agents.server import Agent, running_agent
from tests.importing.environments import INSPECT, PROMPTFOO, inspect_python, promptfoo_command

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "first-verdict.md"
_MADE = Path(__file__).parent / "made" / "first"
_SEED = 20261128
_RIGHT = {"exact": 0.95, "brief": 0.75}
"""How often an answer holds what it should, by a word of the system prompt."""
_QUESTIONS = [
    (f"When does order {number} arrive?", day)
    for number, day in enumerate(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"] * 4, start=1)
]
_REPEATS = 5
_CALLS = 2 * _REPEATS * len(_QUESTIONS)


class Job(NamedTuple):
    """What a user writes and types for one tool, and how to read what came of it.

    ``lost`` gives the number of answers that the tool does not have, ``verdict`` its words on the question; both take
    what was printed. Edits of files stand among the commands as such of ``sed``, and count as lines; a
    copy stands for the name that DeepEval wants, under which pytest would run the file here.
    """

    version: str
    files: tuple[str, ...]
    commands: list[list[str]]
    environment: dict[str, str]
    lost: Callable[[str], int]
    verdict: Callable[[str], str]
    edits: int = 0


def _answers(chosen: random.Random) -> Callable[[list[str]], str]:
    expected = dict(_QUESTIONS)

    def answer(said: list[str]) -> str:
        share = next(share for word, share in _RIGHT.items() if word in said[0])
        good = chosen.random() < share
        return f"Thank you for asking! {f'It arrives on {expected[said[-1]]}.' if good else 'It is on its way.'}"

    return answer


def _found(pattern: str, text: str) -> str:
    return "; ".join(re.findall(pattern, text)) or "nothing"


def _evalq(folder: Path, url: str) -> Job:
    evalq = str(Path(sys.executable).with_name("evalq"))
    run = [evalq, "checks", "cases.yaml", "--target", "agent", "--targets", "targets.yaml", "--repeat", str(_REPEATS)]

    def lost(said: str) -> int:
        lines = [(folder / name / "outputs.jsonl").read_bytes().splitlines() for name in ("old", "new")]
        return _CALLS - sum(not json.loads(line).get("error") for each in lines for line in each)

    return Job(
        __version__,
        (),
        [
            [evalq, "init", "--target", "openai:shop", "--from", "questions.csv"],
            ["sed", "-i", "$ a \\    system_prompt: old.md", "targets.yaml"],
            [*run, "--out", "old"],
            ["sed", "-i", "s/old.md/new.md/", "targets.yaml"],
            [*run, "--out", "new"],
            [evalq, "compare", "old", "new"],
        ],
        {},
        lost,
        lambda said: _found(r"## pass\\?_rate: (\w+\s+.* %) over ", said).replace("\n\n", ", "),
        edits=2,
    )


def _promptfoo(folder: Path, url: str) -> Job:
    results = folder / "results.json"
    command, environment = promptfoo_command(folder / "promptfooconfig.yaml", results, folder / "state")

    def scores() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(results.read_text())["results"]["prompts"]
        return [prompt["metrics"] for prompt in found]

    return Job(
        PROMPTFOO,
        ("promptfooconfig.yaml", "chat-old.json", "chat-new.json"),
        [[*command, "--repeat", str(_REPEATS)]],
        environment,
        lambda said: _CALLS - sum(each["testPassCount"] + each["testFailCount"] for each in scores()),
        lambda said: " and ".join(f"{each['testPassCount']} passed" for each in scores()) + ", by prompt",
    )


def _inspect(folder: Path, url: str) -> Job:
    inspect = str(inspect_python().with_name("inspect"))
    run = [inspect, "eval", "inspect_task.py", "--model", "openai-api/shop/shop", "--display", "plain"]

    def logs() -> list[dict[str, Any]]:
        listed = sorted((folder / "logs").glob("*.eval"))
        shown = (subprocess.run([inspect, "log", "dump", str(log)], capture_output=True, check=True) for log in listed)
        return [json.loads(each.stdout) for each in shown]

    def verdict(said: str) -> str:
        found = []
        for log in logs():
            scores = (log.get("results") or {}).get("scores") or [{"metrics": {"accuracy": {"value": None}}}]
            found.append(f"{log['status']}, accuracy {scores[0]['metrics']['accuracy']['value']}")
        return "; ".join(found)

    return Job(
        INSPECT,
        ("inspect_task.py",),
        [[*run, "-T", "prompt=old.md"], [*run, "-T", "prompt=new.md"]],
        {"SHOP_API_KEY": "key", "SHOP_BASE_URL": url},
        lambda said: _CALLS - sum(bool(each.get("scores")) for log in logs() for each in log.get("samples") or []),
        verdict,
    )


def _deepeval(folder: Path, url: str) -> Job:
    deepeval = str(Path(sys.executable).with_name("deepeval"))

    def lost(said: str) -> int:
        # A test whose call fails is not among those that it counts.
        return _CALLS - int(re.findall(r"Test Results \((\d+) total tests\)", said)[-1])

    return Job(
        version("deepeval"),
        ("deepeval_shop.py",),
        [["cp", "deepeval_shop.py", "test_shop.py"], [deepeval, "test", "run", "test_shop.py"]],
        {"DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "HOME": str(folder), "PYTEST_ADDOPTS": ""},
        lost,
        lambda said: _found(r"Passed: \d+ \| Failed: \d+", said).replace(" |", ",") + ", both prompts together",
    )


TOOLS: dict[str, Callable[[Path, str], Job]] = {
    "evalq": _evalq,
    "promptfoo": _promptfoo,
    "Inspect": _inspect,
    "DeepEval": _deepeval,
}


class Row(NamedTuple):
    """What one tool took, and what came of it."""

    name: str
    version: str
    commands: int
    lines: int
    seconds: float
    requests: int
    lost: int
    verdict: str


def measure(name: str, agent: Agent, url: str, folder: Path) -> Row:
    """Do the job with one tool in an empty ``folder``."""
    rows = ["question,expected", *(f"{question},{day}" for question, day in _QUESTIONS)]
    (folder / "questions.csv").write_text("\n".join(rows) + "\n")
    for path in sorted(_MADE.glob("*.md")):
        shutil.copy(path, folder)
    chosen = random.Random(_SEED)
    agent.chat, agent.faults = _answers(chosen), random.Random(_SEED)
    agent.latency = 0.05
    agent.requests.clear()
    job = TOOLS[name](folder, url)
    for file in job.files:
        shutil.copy(_MADE / file, folder)
    environment = {**os.environ, "OPENAI_API_KEY": "key", "OPENAI_BASE_URL": url, **job.environment}
    began, said, typed = time.monotonic(), "", 0
    for command in job.commands:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=1800
        )
        said += done.stdout + done.stderr
        typed += command[0] not in ("sed", "cp")
    seconds = time.monotonic() - began
    (folder / "said.txt").write_text(said)
    # The prompts are nobody's: each tool has them in a form of its own.
    counted = [folder / file for file in job.files if not file.startswith("chat-")]
    lines = sum(bool(line.strip()) for file in counted for line in file.read_text().splitlines())
    return Row(
        name, job.version, typed, lines + job.edits, seconds, len(agent.requests), job.lost(said), job.verdict(said)
    )


def page(rows: Sequence[Row]) -> str:
    """docs/reference/first-verdict.md."""
    table = [
        f"| {each.name} {each.version} | {each.commands} | {each.lines} | {each.seconds:.0f} | {each.requests} "
        f"| {each.lost} | {each.verdict} |"
        for each in rows
    ]
    return "\n".join([*_HEAD, *table, ""])


_HEAD = f"""# The first verdict, beside other tools

The question is: is the new prompt worse? Twenty questions are asked five times with each of two prompts, so there are
{_CALLS} calls. The agent answers in prose, and its server is not reliable. It refuses 8 % of the requests with status
429, fails 3 % with status 500, and answers 1 % with an HTML page and 1 % with half a reply. With the old prompt 95 % of
the answers hold what they should, with the new one 75 %.

`make peers` gives the same job to each tool, as its own first pages describe it, and writes this page. Options that
those pages do not name are not set. The lines are those of the files that a user writes or edits, without the questions
and the prompts. An answer is lost if the tool has none for that question and repeat at the end. The seconds are those
of all commands together on a machine with two cores.

| Tool | Commands | Lines | Seconds | Requests | Answers lost | What it says |
| --- | ---: | ---: | ---: | ---: | ---: | --- |""".splitlines()


def main() -> None:
    """Measure all of them, or those that are named, and write the page."""
    found = []
    with running_agent() as (agent, url):
        for name in sys.argv[1:] or TOOLS:
            folder = Path(tempfile.mkdtemp(prefix=f"first-{name}-"))
            found.append(measure(name, agent, url, folder))
            sys.stderr.write(f"{found[-1]} in {folder}\n")
    if not sys.argv[1:]:
        PAGE.write_text(page(found))


if __name__ == "__main__":
    main()
