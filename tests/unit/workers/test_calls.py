"""The ledger of calls over a real server: whatever order things happen in, each call ends up recorded exactly once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.model.calls import Attempt, Output, Prompt
from evalq.evalcore.version import code_version
from evalq.workers.ledger.calls import MAX_WIRE_BYTES
from evalq.workers.ledger.sweep_model import Result, SweepHeader
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.settings import Settings
from tests.integration.harness import Server

CASES, REPEATS = 3, 5
TOTAL = CASES * REPEATS
LEASE = 600.0


def _sweep(calls: SweepLedger, run: str, **budget: float) -> SweepHeader:
    header = SweepHeader(run, "t", code_version(), CASES, REPEATS)
    calls.delete(run)
    calls.open(header, int(budget.get("max_calls", 0)), budget.get("max_cost", 0.0), budget.get("alone", 0.0))
    calls.offer(run, [Prompt(f"c{number}", "a", "q") for number in range(CASES)])
    return header


def _result(call: int, kind: str = "", fatal: str = "", cost: float = 0.0, text: str = "", attempts: int = 1) -> Result:
    attempt = Attempt(kind=kind, cost=cost or None, latency_seconds=0.2, prompt_tokens=3)
    output = Output(call=call, case=f"c{call % CASES}", agent="a", repeat=call // CASES, prompt="p", target="t",
                    config="c", text=text or None, error=kind, attempts=(attempt,) * attempts)  # fmt: skip
    return Result(output, kind, fatal)


STEPS = st.lists(
    st.sampled_from(["claim", "record", "die", "back", "halt", "go", "lose", "collect", "double"]), max_size=60
)


@given(STEPS, st.randoms(use_true_random=False))
@settings(max_examples=120, deadline=None)
def test_every_call_is_recorded_once_in_any_order_of_things(
    server: Server, steps: list[str], rng: random.Random
) -> None:
    """Claims, deaths, late and doubled records, halts, and a server that forgets what it had recorded."""
    calls = SweepLedger(server.client, Settings(broker=server.url))
    _sweep(calls, "r")
    held: dict[str, list[int]] = {"p0": [], "p1": [], "p2": []}
    zombies: list[tuple[str, int]] = []
    folder: list[Output] = []

    def collect() -> None:
        found = calls.collect("r", 1000)
        folder.extend(output for output in found.outputs if output.call not in {known.call for known in folder})
        calls.trim("r", found)

    for step in steps:
        holder = rng.choice(list(held))
        mine = held[holder]
        if step == "claim":
            _, got, _ = calls.claim("r", holder, rng.randint(0, 4), LEASE)
            assert not set(got) & {call for others in held.values() for call in others}, "a call is held once"
            mine += got
        elif step == "record" and mine:
            calls.commit("r", holder, "t", [_result(mine.pop(rng.randrange(len(mine))), rng.choice(["", "server"]))])
        elif step == "double" and zombies:
            dead, call = zombies.pop()
            calls.commit("r", dead, "t", [_result(call, text="late")])
        elif step == "die":
            server.client.zadd("evalq:sweep:{r}:holders", {holder: 1})
            zombies += [(holder, call) for call in mine]
            mine.clear()
        elif step == "back" and mine:
            calls.give_back("r", holder, {mine.pop(): 0})
        elif step in ("halt", "go"):
            calls.halt("r", [rng.randrange(CASES)], go=step == "go")
        elif step == "lose":
            collect()
            server.client.delete("evalq:sweep:{r}:recorded")
            calls.restore("r", [output.call for output in folder])
        elif step == "collect":
            collect()
    calls.halt("r", range(CASES), go=True)
    for holder, mine in held.items():
        calls.commit("r", holder, "t", [_result(call) for call in mine])
    while (got := calls.claim("r", "last", 4, LEASE)[1]) or calls.poll("r").busy:  # type: ignore[union-attr]  # it is known
        calls.commit("r", "last", "t", [_result(call) for call in got])
        for holder in held:
            calls.give_back("r", holder, {}, leave=True)
    collect()
    assert sorted(output.call for output in folder) == list(range(TOTAL))
    look = calls.poll("r")
    assert look is not None
    assert (look.left, look.busy, look.waiting, look.known) == (False, 0, 0, TOTAL)


def test_calls_come_case_by_case_in_turns(server: Server) -> None:
    """Whenever a sweep ends, no case has had more than one call more than another."""
    calls = SweepLedger(server.client, Settings(broker=server.url))
    header = _sweep(calls, "turns")
    seen: list[int] = []
    while got := calls.claim("turns", "p", 2, LEASE)[1]:
        seen += [call % header.cases for call in got]
        counts = [seen.count(case) for case in range(CASES)]
        assert max(counts) - min(counts) <= 1
    assert len(seen) == TOTAL


@pytest.mark.parametrize("most", [1, 7, TOTAL, TOTAL + 5])
def test_no_more_attempts_than_the_budget(server: Server, most: int) -> None:
    """Retries count; the sweep is spent when nothing is in flight any more, and goes on under a larger budget."""
    calls = SweepLedger(server.client, Settings(broker=server.url))
    header = _sweep(calls, "budget", max_calls=most)
    made = 0
    while got := calls.claim("budget", "p", 3, LEASE)[1]:
        made += len(got)
        tries = 1 + calls.again("budget", got[0])
        made += tries - 1
        look = calls.poll("budget")
        assert look is not None
        assert look.started == made, "what is in flight counts"
        calls.commit("budget", "p", "t", [_result(got[0], attempts=tries), *(_result(call) for call in got[1:])])
    look = calls.poll("budget")
    assert look is not None
    assert made == look.started <= most
    if look.recorded < TOTAL:
        assert made == most
        assert look.state == "spent"
        calls.open(header, most + 3)
        assert calls.claim("budget", "p", 9, LEASE)[1]


def test_cost_is_kept_to_the_mean_of_what_was_paid(server: Server) -> None:
    """One call before anything is known of the price; then only as many as the rest of the budget bears."""
    calls = SweepLedger(server.client, Settings(broker=server.url))
    _sweep(calls, "cost", max_cost=1.2)
    _, first, _ = calls.claim("cost", "p", 100, LEASE)
    assert len(first) == 1
    calls.commit("cost", "p", "t", [_result(call, cost=0.1) for call in first])
    _, more, _ = calls.claim("cost", "p", 100, LEASE)
    assert len(more) == 11
    calls.commit("cost", "p", "t", [_result(call, cost=0.1) for call in more])
    assert calls.claim("cost", "p", 100, LEASE)[:2] == ("spent", [])


def test_without_its_producer_a_sweep_that_stops_early_stands_still(server: Server) -> None:
    """Nothing is handed out once the producer was silent too long, and again when it looks."""
    calls = SweepLedger(server.client, Settings(broker=server.url))
    _sweep(calls, "alone", alone=60)
    assert calls.claim("alone", "p", 1, LEASE)[1]
    server.client.hset("evalq:sweep:{alone}:meta", "attended", 1)
    assert calls.claim("alone", "p", 1, LEASE)[:2] == ("open", [])
    calls.poll("alone")
    assert calls.claim("alone", "p", 1, LEASE)[:2] == ("open", [])
    calls.poll("alone", attending=True)
    assert calls.claim("alone", "p", 1, LEASE)[1]


def test_a_fatal_failure_stops_a_sweep_and_is_no_output(server: Server) -> None:
    """Its call is made when the sweep is opened again."""
    calls = SweepLedger(server.client, Settings(broker=server.url))
    header = _sweep(calls, "fatal")
    _, (call, *others), _ = calls.claim("fatal", "p", 3, LEASE)
    calls.commit("fatal", "p", "t", [_result(call, "quota", "t: quota: spent")])
    look = calls.poll("fatal")
    assert look is not None
    assert (look.state, look.reason, look.known) == ("failed", "t: quota: spent", 0)
    assert calls.claim("fatal", "p", 3, LEASE)[:2] == ("failed", [])
    calls.commit("fatal", "p", "t", [_result(other) for other in others])
    calls.open(header)
    assert call in calls.claim("fatal", "p", 3, LEASE)[1]


def test_a_server_that_was_away_takes_nobody_for_dead(server: Server) -> None:
    """All leases have ended when it comes back; whoever asks first takes nothing from the others."""
    calls = SweepLedger(server.client, Settings(broker=server.url))
    _sweep(calls, "away")
    _, mine, _ = calls.claim("away", "p", 3, LEASE)
    holders, meta = "evalq:sweep:{away}:holders", "evalq:sweep:{away}:meta"
    server.client.zadd(holders, {"p": 1})
    server.client.hset(meta, "touched", 1)
    assert not set(calls.claim("away", "q", 3, LEASE)[1]) & set(mine)
    server.client.zadd(holders, {"p": 1})
    assert set(calls.claim("away", "q", 3, LEASE)[1]) == set(mine), "now others were heard of, and it was not"


def test_all_keys_of_a_sweep_expire(server: Server, tmp_path: Path) -> None:
    """Everything that holds a run's id goes, prolonged by every step; the totals stay."""
    calls = SweepLedger(server.client, Settings(broker=server.url, keep_days=1))
    _sweep(calls, "old")
    calls.commit("old", "p", "t", [_result(call) for call in calls.claim("old", "p", 3, LEASE)[1]])
    keys = list(server.client.scan_iter("evalq:sweep:{old}:*"))
    assert len(keys) >= 4
    assert all(0 < server.client.ttl(key) <= 86_400 for key in keys)
    assert server.client.ttl("evalq:calls") == -1


def test_only_what_moves_a_sweep_on_keeps_it(server: Server) -> None:
    """Processes that call ask five times a second: a sweep whose calls are over expires all the same."""
    calls = SweepLedger(server.client, Settings(broker=server.url))
    _sweep(calls, "left")

    def keys() -> list[bytes]:
        return list(server.client.scan_iter("evalq:sweep:{left}:*"))

    def age() -> None:
        for key in keys():
            server.client.pexpire(key, 60_000)

    def kept() -> bool:
        return min(int(server.client.pttl(key)) for key in keys()) > 60_000

    while mine := calls.claim("left", "p", 3, LEASE)[1]:
        age()
        assert calls.claim("left", "q", 0, LEASE)[:2] == ("open", [])
        assert kept(), "calls are in flight"
        age()
        calls.commit("left", "p", "t", [_result(call) for call in mine])
        assert kept()
    age()
    for _ in range(3):
        assert calls.claim("left", "new", 3, LEASE)[:2] == ("open", [])
        calls.poll("left")
        assert not kept()
        assert all(server.client.pttl(key) > 0 for key in keys()), "a holder that is new has a key that expires"
    calls.poll("left", attending=True)
    assert kept()


def test_only_open_sweeps_are_looked_at(server: Server) -> None:
    """One that ended, was paused or is unknown leaves the list with the next claim; opening it again puts it there."""
    calls = SweepLedger(server.client, Settings(broker=server.url))
    header = _sweep(calls, "listed")
    for state in ("paused", "done"):
        assert header in calls.sweeps()
        calls.close("listed", state)
        calls.claim("listed", "p", 1, LEASE)
        assert header not in calls.sweeps()
        calls.open(header)
    server.client.delete("evalq:sweep:{listed}:meta")
    assert calls.claim("listed", "p", 1, LEASE)[:2] == ("gone", [])
    assert header not in calls.sweeps()


def test_long_outputs_are_collected_in_smaller_steps(server: Server) -> None:
    """However many wait, a producer holds no more than one beyond its bound at once, and loses none."""
    calls = SweepLedger(server.client, Settings(broker=server.url))
    _sweep(calls, "long")
    _, mine, _ = calls.claim("long", "p0", TOTAL, LEASE)
    calls.commit("long", "p0", "t", [_result(call, text="x" * (MAX_WIRE_BYTES // 4)) for call in mine])
    steps = []
    while (found := calls.collect("long", 1000)).outputs:
        steps.append([output.call for output in found.outputs])
        calls.trim("long", found)
    assert [call for step in steps for call in step] == mine
    assert max(len(step) for step in steps) <= 5
