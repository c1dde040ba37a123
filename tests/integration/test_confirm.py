"""A gate over live targets: what looks like a drop stops only what answers as badly when both are asked afresh."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agents.server import vs_answer, write_golden
from tests.integration.harness import evalq

CASES = 12
AGENTS = '''
"""Agents that pass, that stopped passing, and that had one bad day; each notes whom it was asked for."""
import json, pathlib, random
ANSWERS = json.loads(pathlib.Path(__file__).with_name("answers.json").read_text())
CALLS = pathlib.Path(__file__).with_name("calls")

def _asked(who, call, bad):
    with CALLS.open("a") as stream:
        stream.write(who + "\\n")
    return {"error": "none"} if bad else json.loads(ANSWERS)

def old(call):
    answer = _asked("old", call, False)
    if CALLS.with_name("dead").exists():
        raise RuntimeError("nobody is there")
    return answer

def worse(call):
    return _asked("worse", call, call["repeat"] % 2)

def moody(call):
    return _asked("moody", call, CALLS.with_name("bad-day").exists() and call["repeat"] % 2)
'''
POLICY = {"gates": [{"metric": "vs.pass_rate", "max_drop": 0.1}]}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a golden set, three agents, a policy, and the first agent's run approved as "main"."""
    golden = write_golden(tmp_path / "golden.json", {f"c{n:02d}": {} for n in range(CASES)})
    order = json.loads(golden.read_text())["test_cases"]["full_vs_tests"][0]["input"]
    (tmp_path / "answers.json").write_text(json.dumps(vs_answer({**order, "level": "Full"}, 1)))
    (tmp_path / "agents.py").write_text(AGENTS)
    kinds: dict[str, dict[str, Any]] = {
        who: {"kind": "python", "function": f"agents:{who}"} for who in ("old", "worse", "moody")
    }
    kinds["old"]["retries"] = {"server": {"times": 0}}
    (tmp_path / "targets.yaml").write_text(yaml.safe_dump({"targets": kinds}))
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    _sweep(tmp_path, "old", "base", repeat=8)
    done = evalq("baseline", "set", "main", "base", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def _sweep(here: Path, target: str, out: str, repeat: int = 4) -> None:
    args = ("vs", "golden.json", "--target", target, "--targets", "targets.yaml", "--repeat", str(repeat))
    done = evalq(*args, "--workers", "1", "--out", out, "--format", "none", cwd=here)
    assert done.returncode == 0, done.stderr


def _gate(here: Path, *args: str) -> tuple[int, dict[str, Any]]:
    fixed = ("--policy", "policy.yaml", "--baseline", "main", "--confirm", "--targets", "targets.yaml", "--json")
    done: subprocess.CompletedProcess[str] = evalq("gate", *args, *fixed, "--workers", "1", cwd=here)
    assert done.returncode in (0, 1, 4), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_live_answers_are_no_baseline_of_themselves(here: Path) -> None:
    """Neither by statistics, nor as they were recorded, nor where they would be asked afresh: nobody is called."""
    called = _calls(here)
    for more in ((), ("--as-recorded",), ("--confirm", "--targets", "targets.yaml")):
        for base in ("main", "base") if "--confirm" not in more else ("main",):
            done = evalq("gate", "base", "--policy", "policy.yaml", "--baseline", base, *more, cwd=here)
            assert done.returncode == 2, (more, base, done)
            assert "is both the candidate and the baseline" in done.stderr
    assert _calls(here) == called


def _calls(here: Path) -> dict[str, int]:
    who = (here / "calls").read_text().split()
    return {each: who.count(each) for each in sorted(set(who))}


def test_only_fresh_answers_of_both_sides_stop(here: Path) -> None:
    """A drop that stays is stopped, after twice the repeats of either side; a bad day is suspect; what is well is not
    asked again. The same candidate and answers are confirmed once.
    """
    _sweep(here, "worse", "worse")
    assert _gate(here, "worse", "--candidate", "0a1b")[0] == 1
    asked = {"old": CASES * (8 + 8), "worse": CASES * (4 + 8)}
    assert _calls(here) == asked
    code, decision = _gate(here, "worse", "--candidate", "0a1b")
    assert (code, _calls(here)) == (1, asked), "a job that is run again pays for nothing"
    *suspects, stands = decision["checks"]
    assert {suspect["decided"] for suspect in suspects} == {"INCONCLUSIVE"}, decision
    assert "stopped by earlier answers" in stands["reason"]
    assert "asked afresh" in stands["reason"]

    (here / "bad-day").touch()
    _sweep(here, "moody", "moody")
    (here / "bad-day").unlink()
    code, decision = _gate(here, "moody", "--candidate", "2c3d")
    (check,) = (each for each in decision["checks"] if each["demand"].startswith("falls"))
    assert (code in (0, 4), "suspect" in check["reason"]) == (True, True), decision
    assert check["decided"] == decision["decided"] in ("GO", "INCONCLUSIVE")
    assert decision["notes"][1].startswith("confirmation 2 on this baseline: NO-GO at 0.00833")
    before = _calls(here)
    _sweep(here, "moody", "well")
    assert _gate(here, "well", "--candidate", "4e5f")[0] in (0, 4)
    assert _calls(here) == {**before, "moody": before["moody"] + CASES * 4}


def test_a_side_that_answers_nothing_confirms_nothing(here: Path) -> None:
    """The other side is not asked then; when it answers again, its calls are made again, and the gate decides."""
    _sweep(here, "worse", "worse")
    before = _calls(here)
    (here / "dead").touch()
    gate = ("gate", "worse", "--policy", "policy.yaml", "--baseline", "main", "--confirm", "--targets", "targets.yaml")
    done = evalq(*gate, "--workers", "1", cwd=here)
    assert (done.returncode, "old answered nothing" in done.stderr) == (3, True), done.stderr
    assert _calls(here) == {**before, "old": before["old"] + CASES * 4}
    (here / "dead").unlink()
    retry = done.stderr.partition("evalq retry ")[2].split()[0]
    done = evalq("retry", retry, "--errors", "--targets", "targets.yaml", "--workers", "1", cwd=here)
    assert done.returncode == 0, done.stderr
    assert _gate(here, "worse")[0] == 1


def test_what_cannot_be_asked_again_is_said_before_anything_is_paid(here: Path) -> None:
    """One target on both sides, recorded outputs, a baseline that nobody approved."""
    _sweep(here, "old", "same")
    args = ("--policy", "policy.yaml", "--confirm", "--targets", "targets.yaml")
    done = evalq("gate", "same", *args, "--baseline", "main", cwd=here)
    assert (done.returncode, "--base-target NAME" in done.stderr) == (2, True), done.stderr
    done = evalq("gate", "same", *args, "--baseline", "base", cwd=here)
    assert (done.returncode, "at an approved baseline: --baseline NAME" in done.stderr) == (2, True), done.stderr
    suite = {"runs": [{"evaluator": "vs", "golden": "golden.json", "target": "old"}], "policy": POLICY}
    (here / "evalq.yaml").write_text(yaml.safe_dump(suite))
    before = _calls(here)
    done = evalq("run", "evalq.yaml", *args[2:], "--baseline", "main", cwd=here)
    assert (done.returncode, "--base-target NAME" in done.stderr) == (2, True), done.stderr
    assert _calls(here) == before
    recorded = ("vs", "golden.json", "--outputs", "same/outputs.jsonl", "--inline", "--out", "recorded")
    assert evalq(*recorded, "--format", "none", cwd=here).returncode == 0
    done = evalq("gate", "recorded", *args, "--baseline", "main", cwd=here)
    assert (done.returncode, "is no sweep whose folder is here" in done.stderr) == (2, True), done.stderr
