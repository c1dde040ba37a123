"""A live sweep under test: an agent that counts its calls, workers that call it, and a judgement that counts, too.

An agent's answers are not the same twice, so there is no calm run to compare with. What must hold: every call recorded
once, the report of exactly those outputs, and no more calls paid for than were made, or in flight, when something died.
Where a judge is asked about the outputs, all of that holds of its calls too, and each verdict is on its own output.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.agents.server import CUSTOMER, judged_well, write_golden
from tests.chaos.ledger_view import LedgerView
from tests.chaos.network import Network
from tests.chaos.recovery import Sample, View
from tests.chaos.scenario import Scenario
from tests.chaos.services import COST, Service
from tests.chaos.stage import Stage
from tests.chaos.subjects import Subject
from tests.chaos.verdict import Verdict
from tests.integration.harness import evalq, info

SWEEP, JUDGED, TALKS = "sweep", "sweep of checks with a judge", "sweep of conversations"
SWEEPS = {SWEEP: "vs", "sweep of checks": "checks", JUDGED: "checks", TALKS: "checks"}
"""What calls an agent, and the evaluator of its outputs."""
CASES, REPEATS, IN_FLIGHT, LATENCY = 12, 100, 10, 0.05
_SCRIPTED, _SIMULATED = 4, 6
"""Calls in a conversation: two turns of the user, a call of a tool before each answer; and two of a simulated user."""
_TALK_CALLS = (_SCRIPTED + _SIMULATED) // 2
"""Their mean: every other case has a simulated user."""
_FORGETS = ("FLUSHDB", "lost", "evict", "promote")
"""Faults with these words in their names make a server forget what it counted."""


def sweep_subject(evaluation: str, folder: Path, scale: float = 1.0) -> Subject:
    """Cases to be swept; the targets file is the stage's, since each has an agent of its own."""
    folder.mkdir(parents=True)
    cases, judged = folder / "golden.json", evaluation == JUDGED
    if evaluation == TALKS:
        return _talks(cases, folder, scale)
    write_golden(cases, {f"C{number}": {"share": number / CASES} for number in range(CASES)})
    if SWEEPS[evaluation] == "checks":
        asked = json.loads(cases.read_text())["test_cases"]["full_vs_tests"]
        checks = [{"contains": "the usual"}, {"json-path": "$.agent_id"}, {"max-latency": 60}]
        checks += [{"rubric": "It recommends what most do."}] if judged else []
        cases.write_text(json.dumps({"cases": [{"id": c["id"], "input": c["input"], "checks": checks} for c in asked]}))
    # As many calls in all, of which a judge is asked half.
    repeats = max(10, round(REPEATS * scale / (2 if judged else 1)))
    args = (SWEEPS[evaluation], str(cases), "--target", "agent", "--repeat", str(repeats))
    if not judged:
        return Subject(evaluation, args, folder, folder, CASES * repeats)
    return Subject(evaluation, (*args, "--judge", "judge"), folder, folder, 2 * CASES * repeats)


def _talks(cases: Path, folder: Path, scale: float) -> Subject:
    """Conversations of two turns, in which canned results answer the calls of a tool; half with a simulated user."""
    checks: list[dict[str, Any]] = [{"contains": "it is"}, {"calls-tool": "look_up", "min": 2}]
    checks.append({"max-turns": _SCRIPTED})
    listed = [
        {
            "id": f"C{number}",
            "input": f"what is word{number}",
            **_second_turn(number),
            "tool_results": [
                {"name": "look_up", "arguments": {"word": f"{word}{number}"}, "result": f"{word} of C{number}"}
                for word in ("word", "other")
            ],
            "checks": checks,
        }
        for number in range(CASES)
    ]
    cases.write_text(json.dumps({"cases": listed}))
    repeats = max(5, round(REPEATS * scale / _TALK_CALLS))
    args = ("checks", str(cases), "--target", "agent", "--repeat", str(repeats))
    return Subject(TALKS, args, folder, folder, CASES * repeats)


def _second_turn(number: int) -> dict[str, Any]:
    question = f"and what is other{number}"
    return {"user": {"goal": f'Ask "{question}".', "max_turns": 5}} if number % 2 else {"turns": [question]}


class _SweepView(LedgerView):
    """A sweep as the ledger has it: its recorded calls are what moves on, and those about its outputs after them."""

    _outputs = 0

    def sample(self) -> Sample:
        """``committed`` and ``computed`` are recorded calls; done when the evaluation of the outputs is."""
        if not self._named():
            return Sample(0, 0, 0, False)
        recorded = self._recorded(self._run)
        further = [name for name in self._sweeps() if name.startswith(f"{self._run}.")]
        # A server that forgets in the second stage is not told again of the first.
        self._outputs = max(self._outputs, recorded) if further else recorded
        recorded = self._outputs + sum(map(self._recorded, further))
        state = self._client.hget(self._key("meta"), "state")
        return Sample(recorded, recorded, 0, state == b"done")

    def _recorded(self, sweep: str) -> int:
        return int(self._client.scard(f"evalq:sweep:{{{sweep}}}:recorded"))

    def _sweeps(self) -> set[str]:
        listed = [*self._client.hkeys("evalq:sweeps"), *self._client.zrange("evalq:sweeps:closed", 0, -1)]
        return {name.decode() for name in listed}

    def held(self, pid: int) -> set[int]:
        """Calls are held by processes under the worker's; which, is not looked for."""
        return set()

    def uncommitted(self, seqs: Iterable[int]) -> set[int]:
        """Nothing is held."""
        return set()


class SweepStage(Stage):
    """A sweep on a fleet whose workers call."""

    def __init__(self, scenario: Scenario, subject: Subject, folder: Path, net: Network | None) -> None:
        super().__init__(scenario, subject, folder, net)
        self.services: list[Service] = []
        self._most = 0

    def open(self) -> None:
        """The services first."""
        talks = self.subject.evaluation == TALKS
        self.services = [Service("agent", self.folder, self.points, latency=LATENCY, talks=talks)]
        if self._has_judge:
            self.services.append(Service("judge", self.folder, self.points, latency=LATENCY, judges=True))
        for service in self.services:
            service.start()
        self.hold(self._most)
        targets = {service.name: service.target for service in self.services}
        if talks:
            tools = {"definitions": [{"name": "look_up"}], "answered_by": "canned"}
            # The same service plays the user: what it served counts the calls of both.
            targets[CUSTOMER] = {**targets["agent"], "model": CUSTOMER}
            targets["agent"] = {**targets["agent"], "tools": tools, "user": CUSTOMER}
        (self.folder / "targets.yaml").write_text(json.dumps({"targets": targets}))
        super().open()

    def close(self) -> None:
        """The services last."""
        super().close()
        for service in self.services:
            service.end()

    def hold(self, units: int) -> None:
        """By those who answer, the judge after the agent."""
        self._most, before = units, 0
        for service in self.services:
            held = max(1, units - before) * self._each if units and units < before + self._outputs else 0
            service.hold(held)
            before += self._outputs

    def hold_further(self, missing: int) -> None:
        """They count what is paid again, too."""
        for service in self.services:
            if service.most and service.served >= service.most:
                service.hold(service.most + (missing + IN_FLIGHT) * self._each)

    @property
    def _each(self) -> int:
        """Calls of the model for an output, on average."""
        return _TALK_CALLS if self.subject.evaluation == TALKS else 1

    @property
    def _longest(self) -> int:
        """The most calls of the model for an output."""
        return _SIMULATED if self.subject.evaluation == TALKS else 1

    @property
    def _outputs(self) -> int:
        """Calls that each of them gets, if none is paid again."""
        return self.subject.records // len(self.services)

    def kill_agent(self) -> None:
        """Whoever is called, the judge too."""
        for service in self.services:
            service.kill()

    def revive_agent(self) -> None:
        """The same addresses, and nothing remembered."""
        for service in self.services:
            service.start()

    def judged(self) -> Verdict:
        """What is recorded, its report, and what was paid."""
        exit_code, said = self.exit_code(), self.said()
        why = [] if exit_code == 0 else ["did not end" if exit_code is None else f"exit {exit_code}: {said}"]
        rows = _lines(self._home / ("judged.jsonl" if self._has_judge else "outputs.jsonl"))
        seen = Counter((row["case"], row["repeat"]) for row in rows)
        lost, doubled = self._outputs - len(seen), sum(seen.values()) - len(seen)
        if self._has_judge:
            votes = [len(row.get("judgements", ())) for row in rows if "output" in row]
            lost, doubled = lost + votes.count(0), doubled + sum(count > 1 for count in votes)
            why += _misjudged(rows)
        if self.subject.evaluation == TALKS:
            why += _mistalked(rows)
        equal = not why and self._replays()
        if not why and not equal:
            why.append("the report is not that of its outputs")
        why += [line for service in self.services for line in self._overpaid(service)]
        return Verdict(equal and not why, lost, doubled, 0, "; ".join(why))

    @property
    def _has_judge(self) -> bool:
        return self.subject.evaluation == JUDGED

    @property
    def _home(self) -> Path:
        """The folder of who recorded the calls: not the first producer's where a second took its sweep over."""
        folders = [self.out, *(twin.out for twin in self.twins)]
        return next((folder for folder in folders if info(folder).get("calls")), self.out)

    def told(self) -> dict[str, dict[str, int]]:
        """What each service served, and what the run says of its calls, for the results file."""
        named = {"agent": "calls", "judge": "judge"}
        return {named[service.name]: self._calls(service) for service in self.services}

    def _calls(self, service: Service) -> dict[str, int]:
        facts = info(self._home)
        told = facts.get("calls") if service.name == "agent" else (facts.get("further") or {}).get("1")
        counts = {name: int((told or {}).get(name, 0)) for name in ("recorded", "attempts", "repaid", "lost")}
        paid = round(float((told or {}).get("cost", 0)) / COST)
        return {"served": service.served, "paid": paid, **counts}

    def _overpaid(self, service: Service) -> list[str]:
        """Calls beyond those recorded: as many as could be in flight when something died, and no silent ones."""
        calls, faults = self._calls(service), [meter.fault for meter in self.observer.meters]
        more = calls["served"] - calls["recorded"] * self._each
        in_flight = IN_FLIGHT * self.scenario.workers
        if self.scenario.exact:
            return _inexact(calls, in_flight * len(faults))
        # What a server forgets may be a second's worth of calls that were not in the folder yet.
        forgot = [fault for fault in faults if any(word in fault for word in _FORGETS)]
        # What only the first folder had is called again where it was taken over: told, but no less for that.
        there = self._left_behind(service) if self._home != self.out else 0
        most = there + in_flight * (len(faults) + self.restarts) + len(forgot) * 2 * int(in_flight / LATENCY)
        # A server that forgets has no conversation that was under way, and what was recorded last is made again whole.
        most += len(forgot) * 2 * in_flight * (self._longest - 1)
        if more > most:
            return [f"{service.name}: {more} calls were paid again, {most} at most were in flight: {calls}"]
        if not forgot and more > calls["repaid"] * self._longest + calls["lost"]:
            return [f"{service.name}: {more} calls were paid again, and the run tells of fewer: {calls}"]
        return []

    def _left_behind(self, service: Service) -> int:
        """Calls that the first folder had alone, at most: of those about outputs nothing stays there."""
        if service.name == "agent":
            return sum("call" in line for line in _lines(self.out / "calls.jsonl")) * self._longest
        return self._outputs

    def _replays(self) -> bool:
        again = self.folder / "replay"
        name = "judged.jsonl" if self._has_judge else "outputs.jsonl"
        args = ("--outputs", self._home / name, "--inline", "--out", again, "--format", "none", "-q")
        done = evalq(*self.subject.args[:2], *args, cwd=self.folder)
        names = ("report.json", "records.jsonl")
        return done.returncode == 0 and all((again / n).read_bytes() == (self._home / n).read_bytes() for n in names)

    # -- what differs from a run over chunks -------------------------------------------------------------

    def _look_at(self, client: Any) -> View:
        return _SweepView(client, self.out)

    def _worker_command(self) -> list[str]:
        targets = str(self.folder / "targets.yaml")
        return [*super()._worker_command(), "--calls", str(IN_FLIGHT), "--targets", targets]


def _misjudged(rows: list[dict[str, Any]]) -> list[str]:
    """Verdicts that the judge gives on another output than they stand by."""
    pairs = [(row, vote) for row in rows for vote in row.get("judgements", ())]
    right = [
        vote.get("output", {}).get("pass") in (None, judged_well(json.dumps(row["output"]))) for row, vote in pairs
    ]
    wrong = [row for (row, _), good in zip(pairs, right, strict=True) if not good]
    return (
        [f"{len(wrong)} verdicts are on other outputs: {wrong[0]['case']}#{wrong[0]['repeat']}, ..."] if wrong else []
    )


def _mistalked(rows: list[dict[str, Any]]) -> list[str]:
    """Conversations that are not whole, or have another one's answers."""
    wrong = []
    for row in rows:
        number = int(row["case"].removeprefix("C"))
        said = [message.get("content") for message in row.get("messages", ()) if message["role"] != "assistant"]
        wanted = [
            f"what is word{number}",
            f"word of C{number}",
            f"and what is other{number}",
            f"other of C{number}",
        ]
        answered = sum(not attempt.get("kind") for attempt in row["attempts"])
        calls = _SIMULATED if number % 2 else _SCRIPTED
        if said != wanted or answered != calls or row.get("output") != f"it is other of C{number}":
            wrong.append(f"{row['case']}#{row['repeat']}")
    return [f"{len(wrong)} conversations are not whole: {wrong[0]}, ..."] if wrong else []


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
