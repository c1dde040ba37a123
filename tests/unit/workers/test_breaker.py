"""A target that does not answer is left alone, tried ever less often, and never blamed on one call."""

from __future__ import annotations

from evalq.workers.callers.choices import FAULT_SECONDS, UnreachableTargets, unreachable_reasons
from evalq.workers.callers.outcomes import Breaker
from evalq.workers.callers.target_sessions import TargetSession
from evalq.workers.ledger.heartbeats import CallerFacts, TargetFacts
from evalq.workers.targets import Answered, Failure

DOWN = Failure(kind="server", reason="cannot connect: refused", down=True)
BROKEN = Failure(kind="server", reason="HTTP 500", status=500)
FINE = Answered(text="{}", latency_seconds=0.1)


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def test_it_opens_after_ten_failures_in_a_row_and_no_earlier() -> None:
    """An answer, or a failure that shows that somebody is there, begins the count anew."""
    for alive in (FINE, BROKEN, Failure(kind="rate_limit", reason="HTTP 429")):
        breaker = Breaker(Clock())
        for result in [*[DOWN] * 9, alive, *[DOWN] * 9]:
            breaker.record(result)
        assert (breaker.is_open, breaker.holds(DOWN), breaker.room(50)) == (False, False, 50)
        breaker.record(DOWN)
        assert (breaker.is_open, breaker.holds(DOWN), breaker.holds(BROKEN), breaker.room(50)) == (True, True, False, 0)


def test_probes_come_ever_less_often_and_one_answer_closes_it() -> None:
    """One call after one second, the next after two more, four, eight, ... at most thirty; then all that is wanted."""
    clock = Clock()
    breaker = Breaker(clock)
    for _ in range(10):
        breaker.record(DOWN)
    probes = []
    while clock.now < 300:
        clock.now += 0.5
        if breaker.room(50):
            probes.append(clock.now - 100)
            breaker.record(DOWN)
    assert probes == [1, 3, 7, 15, 31, 61, 91, 121, 151, 181]
    assert (breaker.reason, breaker.seconds) == (DOWN.reason, 200)
    breaker.record(BROKEN)
    assert (breaker.is_open, breaker.room(50), breaker.seconds) == (False, 50, 0)


def _facts(**troubles: str) -> list[CallerFacts]:
    return [
        CallerFacts(host, 1, "v1", 10, 0, {"t": TargetFacts(config="c", trouble=trouble)})
        for host, trouble in troubles.items()
    ]


def test_a_sweep_is_hopeless_when_nobody_can_call_its_target_for_long_enough() -> None:
    """By the reasons of all hosts; one that can, another target and other code say nothing."""
    assert unreachable_reasons(_facts(a="no key", b="refused"), "v1", "t") == "a: no key; b: refused"
    assert unreachable_reasons(_facts(a="no key", b=""), "v1", "t") == ""
    assert unreachable_reasons(_facts(a="no key"), "v2", "t") == ""
    assert unreachable_reasons(_facts(a="no key"), "v1", "u") == ""
    clock = Clock()
    unreachable = UnreachableTargets(300, clock)
    session = TargetSession(None, "c", fault="no key")  # type: ignore[arg-type]  # which target it is plays no part
    assert not unreachable.due("r", session)
    clock.now += FAULT_SECONDS
    assert unreachable.due("r", session)
    assert not unreachable.due("r", session), "asked again after a moment only"
    held = TargetSession(None, "c")  # type: ignore[arg-type]  # the same
    assert not unreachable.due("r", held), "and nothing is wrong any more"
    for _ in range(10):
        held.breaker.record(DOWN)
    clock.now += FAULT_SECONDS
    assert not unreachable.due("r", held)
    clock.now += 299
    assert not unreachable.due("r", held)
    clock.now += 1
    assert unreachable.due("r", held)
