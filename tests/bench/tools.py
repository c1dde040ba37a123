"""Recorded texts tested by evalq and by other tools' own runners, as whole commands from their start to their exit.

    python -m tests.bench.tools [--times 3]

Each finds which texts contain a word, evalq and DeepEval score transcripts of 4 kB, and all have to find the same
number that pass. Nobody waits for a model: promptfoo echoes its prompts, Inspect's mock model says the texts, DeepEval
and evalq are given them. CPU time is that of the command and of the processes that it has waited for.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.bench.scan import fresh
from tests.bench.start import Taken
from tests.importing.environments import PROMPTFOO_CODES, inspect_python, promptfoo_command
from tests.integration.harness import clean_environment

RIVALS = Path(__file__).parent / "rivals"
ROOT = Path(__file__).parents[2]
CONTAINS, TRANSCRIPTS = (20, 300), (20, 300)
PASSED = re.compile(r"^passed=(\d+)$", re.MULTILINE)

Way = Callable[[], tuple[Taken, int]]


def timed(command: list[str], cwd: Path, environment: Mapping[str, str]) -> tuple[Taken, str]:
    """Seconds of a whole command, which has to end well, and what it said on standard error."""
    with (cwd / "said.txt").open("wb") as said:
        began = time.perf_counter()
        with subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=said) as process:
            _, status, used = os.wait4(process.pid, 0)
            wall = time.perf_counter() - began
            process.returncode = os.waitstatus_to_exitcode(status)
    message = (cwd / "said.txt").read_text(errors="replace")
    assert process.returncode in PROMPTFOO_CODES, message[-2000:]
    return Taken(wall, used.ru_utime + used.ru_stime), message


def evalq(args: list[str], folder: Path) -> tuple[Taken, int]:
    """One of evalq's commands, and how many records passed."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    environment = clean_environment()
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    command = [sys.executable, "-P", "-m", "evalq.producer.cli", *args, "--out", "run", "--format", "none", "--quiet"]
    took, _ = timed(command, folder, environment)
    with (folder / "run" / "records.jsonl").open() as lines:
        return took, sum(json.loads(line)["status"] in ("passed", "scored") for line in lines)


def script(python: Path | str, name: str, folder: Path) -> tuple[Taken, int]:
    """A rival's script over the texts."""
    environment = {**os.environ, "DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    took, said = timed([str(python), str(RIVALS / f"{name}.py"), str(folder / "texts.json")], folder, environment)
    found = PASSED.search(said)
    assert found, said[-2000:]
    return took, int(found[1])


def echoed(folder: Path) -> tuple[Taken, int]:
    """promptfoo's echo provider, asked for each text."""
    results, state = folder / "results.json", folder / "state"
    command, environment = promptfoo_command(folder / "promptfoo.json", results, state)
    took, _ = timed(command, folder, environment)
    return took, int(json.loads(results.read_text())["results"]["stats"]["successes"])


def containing(folder: Path, number: int) -> dict[str, Way]:
    """Ways to find the texts that contain a word, which are written to ``folder``."""
    rng = random.Random(number)
    places = ("Paris", "paris", "London", "P a r i s")
    texts = [f"Text {n}: it is {rng.choice(places)}, as far as I know." for n in range(number)]
    (folder / "texts.json").write_text(json.dumps(texts))
    cases = [{"id": f"c{n}", "input": "Capital?", "checks": [{"contains": "Paris"}]} for n in range(number)]
    (folder / "cases.json").write_text(json.dumps({"cases": cases}))
    outputs = (json.dumps({"case": f"c{n}", "repeat": 0, "output": text}) for n, text in enumerate(texts))
    (folder / "outputs.jsonl").write_text("\n".join(outputs) + "\n")
    tests = [{"vars": {"text": text}, "assert": [{"type": "contains", "value": "Paris"}]} for text in texts]
    config = {"prompts": ["{{text}}"], "providers": ["echo"], "tests": tests}
    (folder / "promptfoo.json").write_text(json.dumps(config))
    (folder / "state").mkdir()
    return {
        "evalq": lambda: evalq(["checks", "cases.json", "--outputs", "outputs.jsonl"], folder),
        "DeepEval, `evaluate`": lambda: script(sys.executable, "deepeval_contains", folder),
        "Inspect, mock model": lambda: script(inspect_python(), "inspect_contains", folder),
        "promptfoo, echo": lambda: echoed(folder),
    }


def scoring(folder: Path, number: int) -> dict[str, Way]:
    """Ways to score transcripts, which are written to ``folder``."""
    texts = [text for texts in fresh(number // 2).values() for text in texts]
    (folder / "texts.json").write_text(json.dumps(texts))
    (folder / "texts.jsonl").write_text("".join(json.dumps({"actual_output": text}) + "\n" for text in texts))
    return {
        "evalq": lambda: evalq(["verification", "texts.jsonl"], folder),
        "DeepEval, a metric of `re`": lambda: script(sys.executable, "deepeval_verification", folder),
    }


def table(what: str, number: int, times: int, ways: Mapping[str, Way]) -> list[str]:
    """Lines of a Markdown table: all ways in turn, after a first time that fills caches."""
    found: dict[str, list[Taken]] = {name: [] for name in ways}
    for turn in range(times + 1):
        passed = set()
        for name, way in ways.items():
            took, count = way()
            passed.add(count)
            if turn:
                found[name].append(took)
        assert len(passed) == 1, f"they differ in how many pass: {passed}"
    ours = found["evalq"]
    return [_line(what, number, name, each, ours) for name, each in found.items()]


def _line(what: str, number: int, name: str, each: list[Taken], ours: list[Taken]) -> str:
    wall, cpu = statistics.median(one.wall for one in each), statistics.median(one.cpu for one in each)
    ratio = statistics.median(one.cpu / other.cpu for one, other in zip(each, ours, strict=True))
    return f"| {what} | {number:,} | {name} | {wall:.2f} | {cpu:.2f} | {ratio:.1f} x |"


def main(words: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tools")
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args(words)
    print("| texts | number | way | wall s | CPU s | CPU of evalq's |\n| --- | ---: | --- | ---: | ---: | ---: |")
    kinds = {"that contain a word": (containing, CONTAINS), "transcripts of 4 kB": (scoring, TRANSCRIPTS)}
    for what, (ways, numbers) in kinds.items():
        for number in numbers:
            with tempfile.TemporaryDirectory(prefix="evalq-bench-") as folder:
                print("\n".join(table(what, number, asked.times, ways(Path(folder), number))), flush=True)


if __name__ == "__main__":
    main()
