"""`verification --judge NAME` and `selfcheck --judge NAME`: a real server judges claims, once a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.evaluators import verification
from tests.agents.server import marker_in, running_agent
from tests.integration.harness import evalq

PAIRS = Path(verification.__file__).parent / "labelled" / "pairs.jsonl"


def _run(folder: Path, *args: str | Path) -> dict[str, Any]:
    done = evalq(*args, "--targets", "targets.yaml", "--format", "json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", ["verification", "selfcheck"])
def test_claims_are_judged_live_and_the_run_is_replayed(tmp_path: Path, name: str) -> None:
    """Each record is asked about once; the worst claim of each counts; evaluating the kept copies asks nobody."""
    if name == "verification":
        given = [json.loads(line) for line in PAIRS.read_bytes().splitlines()[:8]]
        quotes = [record["actual_output"].splitlines()[-1] for record in given]
    else:
        given = [{"id": str(at), "testOutput": f"{at} passed in 1 s", "testsPassed": True} for at in range(8)]
        quotes = [record["testOutput"] for record in given]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in given))
    with running_agent() as (agent, address):
        quick = {"server": {"times": 0}}
        targets = {"grader": {"kind": "openai", "base_url": address, "model": "m", "retries": quick}}
        (tmp_path / "targets.yaml").write_text(json.dumps({"targets": targets}))

        def answer(prompt: str) -> str:
            at = next(at for at, quote in enumerate(quotes) if quote in prompt)
            # Half of the quotes are invented: they count as absent, whatever the judge says of them.
            quote = quotes[at] if at % 2 else f"invented {at} of 9"
            claims = [{"claim": "it is done", "quote": quote, "finding": "supported"}]
            return json.dumps({"marker": marker_in(prompt), "reason": "read it", "claims": claims})

        agent.answer = answer
        report = _run(tmp_path, name, "in.jsonl", "--judge", "grader", "--out", "run")
        assert sum(agent.calls.values()) == 8
        found = report["results"]["judged"]
        assert (found["records"], found["supported"], found["absent"]) == (8, 4, 4)
        assert all(each.startswith("grader (") for each in found["judges"])
        replay = _run(tmp_path, name, tmp_path / "run" / "answers" / "in.jsonl", "--inline", "--out", "replay")
        assert sum(agent.calls.values()) == 8
    assert replay == report
