"""Telling that no worker computes a run, and why."""

from __future__ import annotations

import pytest

from evalq.evalcore.errors import WorkersLost
from evalq.evalcore.model.manifest import Header, PlannedInput
from evalq.producer.monitor.command import command_running
from evalq.producer.monitor.no_workers import Unserved
from evalq.producer.monitor.progress import ShownProgress
from evalq.workers.settings import Settings

HEADER = Header("r", "planagent", "1", "mine", {}, (PlannedInput("x.csv", "x.csv", "x.csv"),))


class Heard:
    """Records the messages that it gets."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, float, float | None]] = []

    def waiting(self, what: str, since: float, limit: float | None) -> None:
        self.lines.append((what, since, limit))

    def recovered(self, what: str, after: float) -> None:
        raise AssertionError("workers that come are seen in the next line")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds, in the one element."""
    now = [1000.0]
    monkeypatch.setattr("evalq.producer.monitor.no_workers.time.monotonic", lambda: now[0])
    return now


def _watched(clock: list[float], seconds: int, own: bool = False, **facts: object) -> Heard:
    heard = Heard()
    settings = Settings(broker="redis://me:secret@host/0", patience_seconds=20)
    unserved = Unserved(HEADER, settings, heard, own=own)
    for _ in range(seconds + 1):
        unserved.observe(ShownProgress(0, 0, 0, **facts))  # type: ignore[arg-type]  # whatever a test gives
        clock[0] += 1
    return heard


def test_nobody_at_all_is_reported_with_the_command_that_helps(clock: list[float]) -> None:
    """Within 5 s, every half minute, without end: somebody may start a worker at any time. No password is shown."""
    heard = _watched(clock, 70, workers=0)
    assert [round(since) for _, since, _ in heard.lines] == [3, 33, 63]
    what, _, limit = heard.lines[0]
    assert what == f"no worker serves {HEADER.queue} yet (start one: evalq worker --broker redis://me:***@host:6379/0)"
    assert limit is None


def test_an_evaluator_that_no_worker_has_is_named(clock: list[float]) -> None:
    """Its package is to be installed there: another version of evalq would not help."""
    heard = _watched(clock, 5, workers=0, others={"theirs": 1}, lacking=True)
    assert heard.lines[0][0] == (
        "1 worker is running, of another version (code theirs), and it has no evaluator planagent: "
        "install the package that registers it there, and restart"
    )


def test_a_command_that_took_long_to_start_tells_it_at_its_first_look(clock: list[float]) -> None:
    """The seconds are those of whoever waits: they begin with the command."""
    with command_running():
        clock[0] += 4.5
        assert [round(since, 1) for _, since, _ in _watched(clock, 5, workers=0).lines] == [4.5]
        clock[0] += 3600
        later = [round(since) for _, since, _ in _watched(clock, 5, workers=0).lines]
        assert later == [3], "of a suite's second run, an hour later"
    assert [round(since) for _, since, _ in _watched(clock, 5, workers=0).lines] == [3], "a program that goes on"


def test_workers_of_other_code_are_distinguished_from_none(clock: list[float]) -> None:
    """How many live, of which code, and which code the run needs."""
    heard = _watched(clock, 5, workers=0, others={"theirs": 2, "old": 1})
    assert heard.lines[0][0] == (
        "3 workers are running, of another version (code old, theirs); this run needs code mine: "
        "start a worker of this version, or upgrade one"
    )


def test_nothing_is_reported_while_a_worker_serves(clock: list[float]) -> None:
    """Nor while it is not known yet."""
    assert not _watched(clock, 60, workers=1, others={"theirs": 2}).lines
    assert not _watched(clock, 60).lines


def test_a_command_s_own_worker_that_never_comes_ends_it(clock: list[float]) -> None:
    """It is starting, for patience_seconds; then there is something wrong with it."""
    with pytest.raises(WorkersLost, match="did not start serving within 20 s"):
        _watched(clock, 60, own=True, workers=0)


def test_a_command_s_own_worker_is_starting(clock: list[float]) -> None:
    """No word of a URL that the user never gave."""
    heard = _watched(clock, 10, own=True, workers=0)
    assert [line[0] for line in heard.lines] == ["the local worker is starting"]


def test_a_command_s_own_workers_of_other_code_end_it_at_once(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started after the files changed, they serve nothing of it: it said for two minutes that they are starting."""
    monkeypatch.setattr("evalq.workers.processes.identity.code_now", lambda: "theirs")
    began = clock[0]
    with pytest.raises(WorkersLost, match=r"while this command ran .* are theirs\).*: begin the run again"):
        _watched(clock, 60, own=True, workers=0, others={"theirs": 1})
    assert clock[0] - began < 5
