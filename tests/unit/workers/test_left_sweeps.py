"""Sweeps that were left to the fleet: what a worker cannot evaluate keeps it from no other."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from evalq.evalcore.errors import AlreadyRunning, WireError
from evalq.evalcore.model.calls import Attempt, Output, Prompt
from evalq.evalcore.model.manifest import Header, PlannedInput
from evalq.evalcore.version import code_version
from evalq.workers.ledger.detached import Detached
from evalq.workers.ledger.keys import SweepKeys
from evalq.workers.ledger.progress import REPORT_TRIES
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.ledger.sweep_model import Result, SweepHeader
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.recovery import finaliser
from evalq.workers.recovery.unattended import UnattendedSweep, UnattendedSweeps
from evalq.workers.settings import Settings
from tests.integration.harness import Server

HEADER = Header("left", "vs", "1", code_version(), {}, (PlannedInput("outputs.jsonl", "outputs.jsonl", ""),))


def _output(call: int) -> Output:
    return Output(call=call, case=f"c{call}", agent="a", repeat=0, prompt="p", target="t", config="c", text="x",
                  attempts=(Attempt(),))  # fmt: skip


@pytest.fixture
def left(server: Server) -> Iterator[UnattendedSweeps]:
    """With a sweep of two calls, which are over."""
    server.client.flushall()
    calls = SweepLedger(server.client, Settings(broker=server.url))
    calls.open(SweepHeader("left", "t", code_version(), 2, 1))
    calls.offer("left", [Prompt(f"c{number}", "a", "q") for number in range(2)])
    calls.claim("left", "p", 2, 60, {})
    calls.commit("left", "p", "t", [Result(_output(call)) for call in range(2)])
    found = UnattendedSweeps(calls, calls.settings)
    found.leave("left", UnattendedSweep(HEADER, Detached(0.0)))
    assert found.over() == ["left"]
    yield found
    server.client.flushall()


@pytest.mark.parametrize("there", [None, b"damaged"])
def test_a_sweep_that_lost_what_was_left_with_it_is_taken_off_the_list(
    server: Server, left: UnattendedSweeps, there: bytes | None
) -> None:
    """Evicted, say: it came first at each beat, and no other sweep and no run had its turn."""
    server.client.delete(SweepKeys.of("left").left)
    if there:
        server.client.hset(SweepKeys.of("left").left, "left", there)
    ended = finaliser.main(["left"], Settings(broker=server.url).model_dump(mode="json"))
    assert (ended != 0) == bool(there), "damage is told"
    assert left.over() == []


def test_a_sweep_with_a_damaged_header_stops_the_tending_of_no_other(server: Server, left: UnattendedSweeps) -> None:
    """It counts as over, so that the evaluation says what is wrong, and is taken off the list after its tries."""
    server.client.hset(SweepKeys.of("left").meta, "sweep", b"damaged")
    for _ in range(REPORT_TRIES):
        assert left.over() == ["left"]
        with pytest.raises(WireError, match="header"):
            left.evaluate("left", RunLedger(server.client, Settings()))
    assert not left.evaluate("left", RunLedger(server.client, Settings()))
    assert left.over() == []


def test_an_evaluator_that_exits_has_made_no_report(
    server: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With 0: its process ended well, the report was begun again a few times, and nobody was told why there is none."""

    def section(*_: object) -> None:
        sys.exit(0)

    monkeypatch.setattr(finaliser, "finalise", section)
    assert finaliser.main(["run"], Settings(broker=server.url).model_dump(mode="json")) == 1
    assert capfd.readouterr().err.splitlines()[-1] == "the evaluator ended its process by sys.exit(0)"


class Killed(Exception):
    """The end of a process."""


class Dying(RunLedger):
    """A ledger that is spoken to by a process which is killed as it adds its first chunk."""

    def append(self, *_: object) -> int:
        """It ends."""
        raise Killed


def test_a_driver_that_was_killed_uses_up_no_tries_but_its_own(server: Server, left: UnattendedSweeps) -> None:
    """Until it has been silent for long, others are refused: these have tried nothing."""
    with pytest.raises(Killed):
        left.evaluate("left", Dying(server.client, Settings(), "host 1 killed"))
    for _ in range(2 * REPORT_TRIES):
        with pytest.raises(AlreadyRunning):
            left.evaluate("left", RunLedger(server.client, Settings(), "host 2 other"))
        assert left.over() == ["left"]
    silent = Settings(driver_seconds=0.2)
    server.client.hset("evalq:run:{left}:meta", "driver_at", 1)
    assert left.evaluate("left", RunLedger(server.client, silent, "host 2 other"))
    assert left.over() == []


def test_a_sweep_that_is_left_again_has_all_its_tries(server: Server, left: UnattendedSweeps) -> None:
    """Those of before it was resumed were used up; what made them fail may be mended by now."""
    for _ in range(REPORT_TRIES):
        with pytest.raises(Killed):
            left.evaluate("left", Dying(server.client, Settings()))
    assert not left.evaluate("left", RunLedger(server.client, Settings()))
    assert left.over() == []
    left.leave("left", UnattendedSweep(HEADER, Detached(1.0)))
    assert left.evaluate("left", RunLedger(server.client, Settings(), "host 1 next"))
