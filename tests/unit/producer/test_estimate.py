"""What `--dry-run` tells: the calls that a sweep would make, each once, under the name by which it would call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.model.calls import Attempt, Output
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.sweep.estimate import estimate
from evalq.producer.sweep.options import SweepOptions, prompts_of
from evalq.producer.sweep.reuse import Cache
from evalq.workers.callers.target_sessions import target_facts
from evalq.workers.settings import Settings
from evalq.workers.targets import load_targets
from evalq.workers.targets.config import choose
from tests.agents.server import write_golden

TARGET = "chat[model=large,temperature=0.5]"
WRITTEN = "chat[temperature=0.5,model=large]"
CHAT = {
    "kind": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "small",
    "variable": {"model": ["small", "large"], "temperature": {"min": 0, "max": 1}},
}  # fmt: skip
REQUEST = Request(["golden.json"], {}, {})
EVALUATOR = plugins.get("vs")


@pytest.fixture
def outputs(here: Path) -> list[Output]:
    """Of three cases, asked once each, as the target would give them now."""
    write_golden(here / "golden.json", {"A": {}, "B": {}, "C": {}})
    (here / "targets.json").write_text(json.dumps({"targets": {"chat": CHAT}}))
    named = choose(load_targets("targets.json"), TARGET)
    assert named is not None
    attempts = (Attempt(prompt_tokens=100, completion_tokens=50),)
    told = (TARGET, target_facts(named).config, msgspec.Raw(b"1"))
    prompts = prompts_of(EVALUATOR, REQUEST, SweepOptions(TARGET))
    return [Output(n, p.case, "a", 0, p.digest, *told, attempts=attempts) for n, p in enumerate(prompts)]


def run_of(name: str, outputs: Sequence[Output]) -> str:
    """A finished run with these."""
    with RunFolder.begin(Path("evalq-runs", name)) as folder:
        begun = "2024-01-01T00:00:00+00:00"
        folder.note(
            run=name, evaluator="vs", state="done", epoch=0, started=begun, request=msgspec.to_builtins(REQUEST)
        )
        (folder.path / "outputs.jsonl").write_bytes(b"".join(output.line() + b"\n" for output in outputs))
    return f"evalq-runs/{name}"


def told(**live: object) -> list[str]:
    """The estimate for a sweep of the target, as a user wrote it."""
    options = SweepOptions(**{"target": WRITTEN, **live})  # type: ignore[arg-type]  # one of its fields each
    return list(estimate(EVALUATOR, REQUEST, options, Settings(targets="targets.json")))


def test_what_is_known_of_a_call_twice_is_one_call_less(outputs: list[Output]) -> None:
    """By two runs, or a run and a cache; each is reported as the one that a sweep takes first."""
    with_cache = Cache("cache.sqlite")
    with_cache.keep(outputs)
    with_cache.close()
    one, two = run_of("one", outputs[:2]), run_of("two", outputs[1:])
    assert told(repeat=2, reuse=(one, two))[:2] == [
        "3 cases x 2 = 6 calls, 3 of them answered in an earlier run",
        "tokens: about 300 prompt and 150 completion (mean of 2 calls made: evalq-runs/two)",
    ]
    assert told(repeat=2, reuse=(one,), cache="cache.sqlite")[:2] == [
        "3 cases x 2 = 6 calls, 1 of them cached, 2 of them answered in an earlier run",
        "tokens: about 300 prompt and 150 completion (mean of 2 calls made: evalq-runs/two)",
    ]
    assert told(reuse=(one, two), cache="cache.sqlite")[1].startswith("tokens: about 0 prompt and 0 completion")


def test_a_target_is_known_in_whatever_order_its_choices_are_written(outputs: list[Output]) -> None:
    """To the cache, to the runs that are taken over, and to those that tell what a call takes."""
    assert told()[1] == "tokens: not known before the target was called"
    cache = Cache("cache.sqlite")
    cache.keep(outputs[:1])
    cache.close()
    assert told(cache="cache.sqlite")[:2] == [
        "3 cases x 1 = 3 calls, 1 of them cached",
        "tokens: about 200 prompt and 100 completion (mean of 1 call made: cache.sqlite)",
    ]
    run = run_of("one", outputs)
    assert told(reuse=(run,))[0] == "3 cases x 1 = 3 calls, 3 of them answered in an earlier run"


def test_so_is_a_judge(outputs: list[Output]) -> None:
    """What it took in an earlier run is found."""
    Path("cases.yaml").write_text("cases: [{id: a, input: Go., checks: [{rubric: polite}]}]")
    Path("said.jsonl").write_text('{"case": "a", "output": "x"}\n')
    run_of("one", outputs)
    request = Request(["cases.yaml"], {}, {"judge": WRITTEN, "outputs": ["said.jsonl"]})
    lines = list(estimate(plugins.get("checks"), request, SweepOptions(""), Settings(targets="targets.json")))
    assert "tokens: about 100 prompt and 50 completion (mean of 3 calls made: evalq-runs/one)" in lines
