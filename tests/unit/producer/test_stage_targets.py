"""Replies of two settings of a target are never in one run: refused with what differs, or nothing of before is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.calls import Attempt, Output
from evalq.evalcore.version import code_version
from evalq.producer.monitor.progress import Reporter
from evalq.producer.run.backend import Backend
from evalq.producer.sweep.judge_stage import JudgeCalls, JudgeSweep, TargetSettings
from evalq.producer.sweep.judge_targets import refuse_uncalled, settle_targets
from evalq.producer.sweep.sweep import Sweep
from evalq.workers.ledger.heartbeats import CallerFacts, Heartbeats, TargetFacts
from evalq.workers.ledger.sweep_model import Result
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.settings import Settings
from tests.integration.harness import Server, running_server
from tests.unit.producer.test_further import answer, sweep

__all__ = ["sweep"]

ENTRY = {"kind": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A ledger of this test's own."""
    with running_server(tmp_path) as started:
        yield started


class Fleet:
    """Where a command learns which processes call: its own targets file, or the heartbeats of a fleet."""

    def __init__(self, sweep: Sweep, server: Server) -> None:
        self.sweep = sweep
        self.server = server
        self.settings = Settings(broker=server.url)
        self.ledger = SweepLedger(server.client, self.settings)

    def here(self, **grader: object) -> dict[str, TargetSettings]:
        """What is settled where the targets file of this command has these settings."""
        Path("targets.yaml").write_text(json.dumps({"targets": {"grader": {**ENTRY, **grader}, "other": ENTRY}}))
        return self.settled(Backend(Settings(targets="targets.yaml")))

    def settled(self, backend: Backend | None = None) -> dict[str, TargetSettings]:
        """What is settled by ``backend``, or by the fleet."""
        backend = backend or Backend(self.settings)
        reporter = Reporter("calls", quiet=False, bar=False, json_lines=False)
        refuse_uncalled(self.sweep, backend, Backend(self.settings))
        return settle_targets(self.sweep, (Backend(self.settings), backend), reporter, ["grader", "other"])

    def beat(self, name: str, config: str) -> None:
        """A process that calls, under settings of this digest."""
        targets = {target: TargetFacts(config) for target in ("grader", "other")}
        facts = CallerFacts("host", os.getpid(), code_version(), 4, 0, targets)
        Heartbeats(self.server.client).beat_caller(name, facts, 600)

    def begun(self, settled: dict[str, TargetSettings]) -> list[JudgeSweep]:
        """The sweeps that ask under these settings, known to the ledger."""
        assert self.sweep.stage is not None
        made = JudgeCalls(self.sweep, self.sweep.stage, None, lambda _: settled).prepare()
        for each in made:
            self.ledger.open(each.header)
        return made

    def left(self, begun: JudgeSweep, *, repeat: int) -> None:
        """An answer to the first call, said to be of this repeat, that no driver lived to collect."""
        prompt, said = next(begun.prompts()), msgspec.Raw(b'{"better": "A"}')
        output = Output(0, prompt.case, "", repeat, prompt.digest, "grader", "c", said, attempts=(Attempt(),))
        self.ledger.offer(begun.run, list(begun.prompts()))
        self.ledger.claim(begun.run, "caller", 1, 60)
        self.ledger.commit(begun.run, "caller", "grader", [Result(output)])


@pytest.fixture
def fleet(sweep: Sweep, server: Server) -> Fleet:
    """About a sweep whose outputs are there."""
    return Fleet(sweep, server)


def test_replies_of_before_hold_the_settings(fleet: Fleet) -> None:
    """What differs is named, with a way on; put back, all that was answered is there."""
    first = fleet.begun(fleet.here(options={"temperature": 0}))
    done = answer(first[0], 2)
    for changed in ({"options": {"temperature": 1}}, {"model": "n", "options": {"temperature": 0}}):
        with pytest.raises(UsageError) as message:
            fleet.here(**changed)
        differs = 'model: "m" then, "n" now' if "model" in changed else "options.temperature: 0 then, 1 now"
        assert f"'grader' has other settings than when it gave 2 replies ({differs})" in str(message.value)
        assert f"put them back and resume, or begin another run: --reuse {fleet.sweep.folder.path}" in str(
            message.value
        )
    again = fleet.begun(fleet.here(options={"temperature": 0}))
    assert (again[0].run, again[0].recorded.calls()) == (first[0].run, done)
    # Another way to the same answers is no other setting.
    assert fleet.here(options={"temperature": 0}, price={"prompt_per_million": 1}, timeout_seconds=9)


def test_where_nothing_was_answered_other_settings_begin_anew(fleet: Fleet) -> None:
    """A model that does not exist is mended: what failed is no reply, and nobody makes its calls any more."""
    first = fleet.begun(fleet.here(model="misspelt"))
    answer(first[0], 2, error="rejected: no such model")
    second = fleet.begun(fleet.here())
    assert {each.run for each in first}.isdisjoint(each.run for each in second[:2])
    assert second[0].recorded.count == 0
    assert {header.run for header in fleet.ledger.sweeps()} == {each.run for each in second}


def test_what_lies_in_the_ledger_is_a_reply(fleet: Fleet) -> None:
    """Its driver was killed before it collected: it is collected, and other settings are refused."""
    first = fleet.begun(fleet.here(model="one"))[0]
    fleet.left(first, repeat=0)
    with pytest.raises(UsageError, match=r'gave 1 reply \(model: "one" then, "two" now\)'):
        fleet.here(model="two")
    assert fleet.begun(fleet.here(model="one"))[0].recorded.calls() == [0]


def test_what_fits_no_call_is_no_reply(fleet: Fleet) -> None:
    """What lies in the ledger may be anybody's: an answer of a repeat that its call is not of is left there."""
    first = fleet.begun(fleet.here(model="one"))[0]
    fleet.left(first, repeat=1)
    fleet.here(model="two")
    assert first.recorded.calls() == []


def test_a_fleet_of_two_settings_is_asked_under_those_of_the_replies(fleet: Fleet) -> None:
    """Without any there is nothing to choose by: it is refused."""
    fleet.beat("a", "one")
    first = fleet.begun(fleet.settled())
    assert {each.settings for each in first} == {"one"}
    fleet.beat("b", "two")
    with pytest.raises(UsageError, match=r"different settings of 'grader' \(digests one, two\)"):
        fleet.settled()
    answer(first[0], 1)
    answer(first[2], 1)
    assert fleet.settled() == {"grader": TargetSettings("one"), "other": TargetSettings("one")}
    Heartbeats(fleet.server.client).leave("a")
    with pytest.raises(UsageError, match=r"1 reply \(digest one then, two now\)"):
        fleet.settled()
