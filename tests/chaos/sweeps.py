"""A live sweep under test: an agent that counts its calls, workers that call it, and a judgement that counts, too.

An agent's answers are not the same twice, so there is no calm run to compare with. What must hold: every call recorded
once, the report of exactly those outputs, and no more calls paid for than were made, or in flight, when something died.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.agents.server import write_golden
from tests.chaos.ledger_view import LedgerView
from tests.chaos.processes import environment, spawn
from tests.chaos.recovery import Sample, View
from tests.chaos.stage import Stage
from tests.chaos.subjects import Subject
from tests.chaos.verdict import Verdict
from tests.integration.harness import evalq, info, wait_until

__all__ = ["SWEEP", "SWEEPS", "SweepStage", "sweep_subject"]

SWEEP = "sweep"
SWEEPS = {SWEEP: "vs", "sweep of checks": "checks"}
"""What calls an agent, and the evaluator of its outputs."""
CASES, REPEATS, IN_FLIGHT, LATENCY = 12, 100, 10, 0.05
COST = 0.02
"""Of a call, at the targets file's price for the agent's tokens."""
_FORGETS = ("FLUSHDB", "lost", "evict", "promote")
"""Faults with these words in their names make a server forget what it counted."""


def sweep_subject(evaluation: str, folder: Path, scale: float = 1.0) -> Subject:
    """Cases to be swept; the targets file is the stage's, since each has an agent of its own."""
    folder.mkdir(parents=True)
    cases = folder / "golden.json"
    write_golden(cases, {f"C{number}": {"share": number / CASES} for number in range(CASES)})
    if SWEEPS[evaluation] == "checks":
        asked = json.loads(cases.read_text())["test_cases"]["full_vs_tests"]
        checks = [{"contains": "the usual"}, {"json-path": "$.agent_id"}, {"max-latency": 60}]
        cases.write_text(json.dumps({"cases": [{"id": c["id"], "input": c["input"], "checks": checks} for c in asked]}))
    repeats = max(10, round(REPEATS * scale))
    args = (SWEEPS[evaluation], str(cases), "--target", "agent", "--repeat", str(repeats))
    return Subject(evaluation, args, folder, folder, CASES * repeats)


class _SweepView(LedgerView):
    """A sweep as the ledger has it: its recorded calls are what moves on."""

    def sample(self) -> Sample:
        """``committed`` and ``computed`` are recorded calls; done when the evaluation of the outputs is."""
        if not self._named():
            return Sample(0, 0, 0, False)
        recorded = self._client.scard(f"evalq:sweep:{{{self._run}}}:recorded")
        state = self._client.hget(self._key("meta"), "state")
        return Sample(int(recorded), int(recorded), 0, state == b"done")

    def held(self, pid: int) -> set[int]:
        """Calls are held by processes under the worker's; which, is not looked for."""
        return set()

    def uncommitted(self, seqs: Iterable[int]) -> set[int]:
        """Nothing is held."""
        return set()


class SweepStage(Stage):
    """A sweep on a fleet whose workers call."""

    def open(self) -> None:
        """The agent first."""
        self._agent = self._start_agent()
        super().open()

    def close(self) -> None:
        """The agent last."""
        super().close()
        with contextlib.suppress(AttributeError):
            self._agent.kill()
            self._agent.wait()

    def kill_agent(self) -> None:
        """SIGKILL: connections are refused until `revive_agent`."""
        # Else what it answers between its count and its end would be served and not counted.
        self._served += self._count(halted=True)
        self._agent.kill()
        self._agent.wait()

    def revive_agent(self) -> None:
        """The same address, and nothing remembered."""
        self._agent = self._start_agent(self._port)

    def judged(self) -> Verdict:
        """What is recorded, its report, and what was paid."""
        exit_code, said = self.exit_code(), self.said()
        why = [] if exit_code == 0 else ["did not end" if exit_code is None else f"exit {exit_code}: {said}"]
        rows = _lines(self._home / "outputs.jsonl")
        seen = Counter((row["case"], row["repeat"]) for row in rows)
        lost, doubled = self.subject.records - len(seen), sum(seen.values()) - len(seen)
        equal = not why and self._replays()
        if not why and not equal:
            why.append("the report is not that of its outputs")
        why += self._overpaid()
        return Verdict(equal and not why, lost, doubled, 0, "; ".join(why))

    @property
    def _home(self) -> Path:
        """The folder of who recorded the calls: not the first producer's where a second took its sweep over."""
        folders = [self.out, *(twin.out for twin in self.twins)]
        return next((folder for folder in folders if info(folder).get("calls")), self.out)

    def calls(self) -> dict[str, int]:
        """What the agent served, and what the run says of its calls."""
        told = info(self._home).get("calls") or {}
        counts = {name: int(told.get(name, 0)) for name in ("recorded", "attempts", "repaid", "lost")}
        paid = round(float(told.get("cost", 0)) / COST)
        return {"served": self._served + self._count(), "paid": paid, **counts}

    def _overpaid(self) -> list[str]:
        """Calls beyond those recorded: as many as could be in flight when something died, and no silent ones."""
        calls, faults = self.calls(), [meter.fault for meter in self.observer.meters]
        more = calls["served"] - calls["recorded"]
        in_flight = IN_FLIGHT * self.scenario.workers
        if self.scenario.exact:
            return _inexact(calls, in_flight * len(faults))
        # What a server forgets may be a second's worth of calls that were not in the folder yet.
        forgot = [fault for fault in faults if any(word in fault for word in _FORGETS)]
        # What only the first folder had is called again where it was taken over: told, but no less for that.
        there = sum("call" in line for line in _lines(self.out / "calls.jsonl")) if self._home != self.out else 0
        most = there + in_flight * (len(faults) + self.restarts) + len(forgot) * 2 * int(in_flight / LATENCY)
        if more > most:
            return [f"{more} calls were paid again, {most} at most were in flight: {calls}"]
        if not forgot and more > calls["repaid"] + calls["lost"]:
            return [f"{more} calls were paid again, and the run tells of fewer: {calls}"]
        return []

    def _replays(self) -> bool:
        again = self.folder / "replay"
        args = ("--outputs", self._home / "outputs.jsonl", "--inline", "--out", again, "--format", "none", "-q")
        done = evalq(*self.subject.args[:2], *args, cwd=self.folder)
        names = ("report.json", "records.jsonl")
        return done.returncode == 0 and all((again / n).read_bytes() == (self._home / n).read_bytes() for n in names)

    # -- what differs from a run over chunks -------------------------------------------------------------

    def _look_at(self, client: Any) -> View:
        return _SweepView(client, self.out)

    def _worker_command(self) -> list[str]:
        targets = str(self.folder / "targets.yaml")
        return [*super()._worker_command(), "--calls", str(IN_FLIGHT), "--targets", targets]

    def _start_agent(self, port: int = 0) -> subprocess.Popen[bytes]:
        port_file = self.folder / "agent.port"
        port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.agents.server", str(port_file), str(port)]
        process = spawn(command, self.folder, self.folder / "agent.log", environment(self.points))
        self._port = int(wait_until(lambda: port_file.exists() and port_file.read_text(), "the agent listens"))
        chat = {"kind": "openai", "base_url": f"http://127.0.0.1:{self._port}/v1", "model": "m", "timeout_seconds": 10}
        chat["price"] = {"prompt_per_million": 1000, "completion_per_million": 1000}
        chat["retries"] = {"server": {"times": 20, "wait_seconds": 0.3}, "timeout": {"times": 20, "wait_seconds": 0.3}}
        (self.folder / "targets.yaml").write_text(json.dumps({"targets": {"agent": chat}}))
        self._control({"latency": LATENCY})
        return process

    _served = 0
    _port = 0

    def _count(self, **values: bool) -> int:
        """Calls that the agent of now has answered well, once ``values`` are set there."""
        try:
            return sum(status == 200 for _, status in self._control(values)["log"])
        except OSError:  # it was killed, and what it had served was counted then
            return 0

    def _control(self, values: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/control", json.dumps(values).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - the agent of this very run
            return json.load(answer)


def _inexact(calls: dict[str, int], most: int) -> list[str]:
    """What is wrong with a run's own account of its calls, where no process that called has died."""
    more, wrong = calls["served"] - calls["recorded"], []
    if more > most:
        wrong.append(f"{more} calls were paid again, {most} at most were in flight")
    if calls["repaid"] + calls["lost"] != more:
        wrong.append(f"{more} calls were paid again, and the run tells of {calls['repaid']} and {calls['lost']} lost")
    if calls["attempts"] != calls["served"] or calls["paid"] != calls["served"]:
        wrong.append("attempts or cost are not those that were made")
    return [f"{'; '.join(wrong)}: {calls}"] if wrong else []


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
