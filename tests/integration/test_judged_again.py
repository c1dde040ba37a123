"""What a judge was paid stays counted where a retry gives other outputs, and its second stage begins anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.agents.server import Agent
from tests.integration.harness import evalq, info
from tests.integration.test_checks_judged import LIVE, OUTPUTS, VERDICTS, asked, replayed, service

__all__ = ["service"]  # the fixture


def _told(folder: Path) -> dict[str, Any]:
    """Sums of what run.json says of the calls about outputs."""
    facts = info(folder)["further"].values()
    return {name: sum(each[name] for each in facts) for name in ("attempts", "recorded", "repaid", "lost", "cost")}


def test_replies_about_the_outputs_of_before_stay_paid(tmp_path: Path, service: Agent) -> None:
    """In run.json, whose cost is that of all replies; of the budget is left what nobody had taken."""
    fails = iter(range(1))
    # The second request of all is one for an output: nobody is judged before all of these came.
    service.dead = lambda: len(service.requests) >= 1 and next(fails, None) is not None
    done = evalq(*LIVE, "--calls", "1", cwd=tmp_path)
    assert (done.returncode, asked(service, "m")) == (3, OUTPUTS - 1), done.stderr
    before = _told(tmp_path / "run")
    assert before["attempts"] == before["recorded"] == asked(service) < VERDICTS
    said = evalq("status", "run", cwd=tmp_path).stdout.splitlines()
    judges = [line.split() for line in said if line.startswith("judge ")]
    assert sum(int(words[2]) for words in judges) == before["recorded"], said
    retry = ("retry", "run", "--targets", "targets.yaml", "--format", "none")
    done = evalq(*retry, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (asked(service, "m"), asked(service)) == (OUTPUTS, VERDICTS)
    after = _told(tmp_path / "run")
    assert (after["attempts"], after["recorded"], after["repaid"], after["lost"]) == (VERDICTS, VERDICTS, 0, 0)
    assert round(after["cost"] / before["cost"], 6) == round(VERDICTS / before["attempts"], 6)
    replayed(tmp_path)
