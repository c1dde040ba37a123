"""A server that forgot the last moments of a sweep: what was answered then is reported, not called again."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from evalq.evalcore.model.calls import Attempt, Output, Prompt
from evalq.evalcore.version import code_version
from evalq.workers.ledger.keys import SweepKeys
from evalq.workers.ledger.sweep_model import EndedAttempts, FolderCounts, ProcessTally, Result, SweepHeader, SweepStatus
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.settings import Settings
from tests.integration.harness import PATIENCE, Server, running_server, wait_until

CASES, REPEATS, LEASE, COST = 3, 10, 600.0, 0.125
RUN, DRIVER = "older", "a 1 x"
KEYS = SweepKeys.of(RUN)
HEADER = SweepHeader(RUN, "t", code_version(), CASES, REPEATS)


class Fleet(NamedTuple):
    """A sweep's driver and two processes that call, each with what it remembers."""

    driver: SweepLedger
    p: SweepLedger
    q: SweepLedger

    def look(self) -> SweepStatus:
        """As the driver sees it."""
        found = self.driver.poll(RUN, attending=True)
        assert found is not None
        return found


def _fleet(server: Server, max_calls: int = 0, poll_seconds: float = 0.02) -> Fleet:
    settings = Settings(broker=server.url, poll_seconds=poll_seconds)
    fleet = Fleet(*(SweepLedger(server.client, settings, driver) for driver in (DRIVER, "", "")))
    fleet.driver.delete(RUN)
    fleet.driver.open(HEADER, max_calls)
    fleet.driver.offer(RUN, [Prompt(f"c{number}", "a", "q") for number in range(CASES)])
    return fleet


def _result(call: int, *, resent: bool = False) -> Result:
    output = Output(call=call, case=f"c{call % CASES}", agent="a", repeat=call // CASES, prompt="p", target="t",
                    config="c", attempts=(Attempt(cost=COST),))  # fmt: skip
    return Result(output, resent=resent)


def _record(calls: SweepLedger, holder: str, some: list[int], *, resent: bool = False) -> None:
    calls.commit(RUN, holder, "t", [_result(call, resent=resent) for call in some])


def _begun(some: list[int]) -> dict[int, int]:
    """Calls as a process names them that makes them."""
    return dict.fromkeys(some, 1)


def _moment(server: Server) -> dict[str, bytes]:
    return {key: dump for key in KEYS if (dump := server.client.dump(key)) is not None}


def _promote(server: Server, moment: dict[str, bytes]) -> None:
    """Another server answers now, which has the sweep as it was at a ``moment``."""
    server.client.delete(*KEYS)
    for key, dump in moment.items():
        server.client.restore(key, 0, dump)
    server.client.hset(KEYS.meta, "server", "the one that died")


def _milliseconds(server: Server) -> int:
    now, micros = server.client.time()
    return int(now * 1000 + micros // 1000)


def _pass_a_millisecond(server: Server) -> None:
    """By which a fall is named."""
    began = _milliseconds(server)
    wait_until(lambda: _milliseconds(server) > began + 1, "the server's clock goes on")


def _fell(server: Server, seconds: float) -> None:
    """It is so many seconds since the server was found to have forgotten something."""
    server.client.hset(KEYS.meta, "fallen", _milliseconds(server) - int(seconds * 1000))


def _restored(fleet: Fleet, folder: list[int]) -> None:
    """The driver tells what its folder has."""
    known = FolderCounts(len(folder), len(folder), COST * len(folder))
    fleet.driver.open(HEADER, known=known, how="keep")
    fleet.driver.restore(RUN, folder)
    fleet.look()


def test_no_call_is_offered_before_all_who_live_have_reported(server: Server) -> None:
    """Two processes have answers, and calls in flight, that the promoted server has never heard of: none is made again,
    and calls, cost and attempts are those that were made.
    """
    fleet = _fleet(server)
    _, mine, _ = fleet.p.claim(RUN, "p", 6, LEASE, {})
    _, its, _ = fleet.q.claim(RUN, "q", 6, LEASE, {})
    moment = _moment(server)
    _record(fleet.p, "p", mine[:4])
    _record(fleet.q, "q", its[:2])
    _, more, _ = fleet.p.claim(RUN, "p", 3, LEASE)
    _record(fleet.p, "p", more[:1])
    collected = [output.call for output in fleet.driver.collect(RUN, 3).outputs]
    _promote(server, moment)

    assert fleet.q.claim(RUN, "q", 30, LEASE)[1] == []
    assert fleet.q.regressed, "it is asked to tell"
    assert fleet.q.claim(RUN, "q", 30, LEASE, _begun(its[2:]), its[:2])[1:] == ([], its[:2])
    _record(fleet.q, "q", its[:2], resent=True)
    assert fleet.look().unsettled
    assert fleet.look().generation != fleet.driver.generation(RUN), "the driver is asked, too"
    _restored(fleet, collected)
    _fell(server, 1)
    assert fleet.q.claim(RUN, "q", 30, LEASE)[1] == [], "one is awaited still"
    messages = [*mine[:4], *more[:1]]
    _, got, untold = fleet.p.claim(RUN, "p", 0, LEASE, _begun([*mine[4:], *more[1:]]), messages)
    assert (got, set(untold)) == ([], set(messages) - set(collected))
    _record(fleet.p, "p", untold, resent=True)

    rest = wait_until(lambda: fleet.q.claim(RUN, "q", 30, LEASE, _begun(its[2:]))[1], "all have told")
    assert not set(rest) & {*mine, *its, *more}
    assert not fleet.look().unsettled
    _record(fleet.p, "p", [*mine[4:], *more[1:]])
    _record(fleet.q, "q", [*its[2:], *rest])
    look = fleet.look()
    assert (look.known, look.busy, look.left) == (HEADER.total, 0, False)
    assert (look.started, look.repaid, look.lost) == (HEADER.total, 0, 0)
    assert look.spent == COST * HEADER.total


def test_who_came_after_the_servers_moment_is_awaited_where_the_driver_saw_it(server: Server) -> None:
    """For longer than the pause: a busy machine may let it wait. Who died by what the server knows is not."""
    fleet = _fleet(server)
    fleet.q.claim(RUN, "q", 0, LEASE, {})
    fleet.p.begin(RUN, "dead", _begun(fleet.p.claim(RUN, "dead", 1, 0.1, {})[1]))

    def given_up() -> bool:
        fleet.q.claim(RUN, "q", 0, LEASE)
        return fleet.look().lost == 1

    wait_until(given_up, "its lease has ended")
    moment = _moment(server)
    _, mine, _ = fleet.p.claim(RUN, "p", 6, LEASE, {})
    seen = fleet.look()
    assert set(seen.under_way) == {"p", "dead"}
    assert set(seen.living) == {"p", "q"}
    _record(fleet.p, "p", mine[:4])
    _promote(server, moment)
    assert fleet.q.claim(RUN, "q", 30, LEASE, {})[1] == [], "it notices by itself, and the first has told"
    known = FolderCounts(1, 0, 0.0, 0, 0, seen.tallies, seen.under_way)
    fleet.driver.open(HEADER, known=known, how="keep", living=seen.living)
    fleet.look()
    _fell(server, 7)
    assert fleet.q.claim(RUN, "q", 30, LEASE, {})[1] == [], "the other one is awaited"
    assert server.client.smembers(KEYS.awaited) == {b"p"}
    _, _, untold = fleet.p.claim(RUN, "p", 0, LEASE, _begun(mine[4:]), mine[:4])
    assert set(untold) == set(mine[:4])
    _record(fleet.p, "p", untold, resent=True)
    rest = fleet.q.claim(RUN, "q", 30, LEASE)[1]
    assert set(rest) == set(range(HEADER.total)) - set(mine)


def test_who_has_recorded_all_it_had_is_awaited_while_the_driver_has_not_collected_it(server: Server) -> None:
    """It has no call at the driver's last look, and nobody else has its answers when that server is gone."""
    fleet = _fleet(server)
    fleet.q.claim(RUN, "q", 0, LEASE, {})
    moment = _moment(server)
    _, mine, _ = fleet.p.claim(RUN, "p", 6, LEASE, {})
    _record(fleet.p, "p", mine)
    living = fleet.look().living
    _promote(server, moment)
    fleet.q.claim(RUN, "q", 0, LEASE, {})
    fleet.driver.open(HEADER, how="keep", living=living)
    fleet.look()
    _fell(server, 7)
    assert fleet.q.claim(RUN, "q", 30, LEASE, {})[1] == [], "nobody is given its calls"
    assert fleet.p.claim(RUN, "p", 0, LEASE, {}, mine)[2] == mine


def test_attempts_of_the_living_are_reported_before_lost_ones(server: Server) -> None:
    """A folder takes those that end next for theirs, since no output says who made it."""
    fleet = _fleet(server)
    dead, living = [f"d{number}" for number in range(6)], [f"p{number}" for number in range(6)]
    for holder in dead:
        fleet.p.begin(RUN, holder, _begun(fleet.p.claim(RUN, holder, 1, 0.1, {})[1]))
    wait_until(lambda: fleet.look().lost == len(dead), "their leases have ended")
    for holder in living:
        fleet.p.claim(RUN, holder, 2, LEASE, {})
    assert [*fleet.look().under_way] == [*living, *dead]


def test_a_second_server_that_is_just_as_old_is_given_everything_again(server: Server) -> None:
    """What was told to the first one is nothing that this one has heard: each fall has a name of its own."""
    fleet = _fleet(server)
    mine = fleet.p.claim(RUN, "p", 6, LEASE, {})[1]
    moment, living = _moment(server), fleet.look().living
    _record(fleet.p, "p", mine[:4])
    for _ in range(2):
        _promote(server, moment)
        fleet.q.claim(RUN, "q", 0, LEASE, {})
        fleet.driver.open(HEADER, how="keep", living=living)
        _pass_a_millisecond(server)  # no two servers are promoted in one
        fleet.p.claim(RUN, "p", 0, LEASE)
        assert fleet.p.regressed, "it is asked to tell"
        assert fleet.p.claim(RUN, "p", 0, LEASE, _begun(mine[4:]), mine[:4])[2] == mine[:4]


def test_a_driver_that_is_no_more_is_not_waited_for(server: Server) -> None:
    """It died with the old server; whoever follows it in its folder tells what that has, and calls go on."""
    fleet = _fleet(server)
    fleet.q.claim(RUN, "q", 0, LEASE, {})
    _promote(server, _moment(server))
    assert fleet.q.claim(RUN, "q", 30, LEASE, {})[1] == [], "it notices by itself"
    assert server.client.smembers(KEYS.awaited) == {DRIVER.encode()}
    follower = SweepLedger(server.client, fleet.driver.settings, "b 2 y")
    follower.open(HEADER, before=DRIVER)
    assert server.client.smembers(KEYS.awaited) == {b"b 2 y"}, "until it has told"
    follower.poll(RUN, attending=True)
    _fell(server, 1)
    assert len(fleet.q.claim(RUN, "q", 30, LEASE, {})[1]) == HEADER.total


@pytest.mark.parametrize("waits", [False, True])
def test_who_never_tells_is_waited_for_ten_seconds(server: Server, waits: bool) -> None:
    """One that the driver saw and nobody heard of since: also by a server that has forgotten everybody."""
    fleet = _fleet(server)
    fleet.p.claim(RUN, "p", 6, LEASE, {})
    seen = fleet.look()
    server.client.delete(*KEYS)
    fleet.driver.open(HEADER, known=FolderCounts(under_way=seen.under_way), how="keep", living=seen.living)
    fleet.driver.offer(RUN, [Prompt(f"c{number}", "a", "q") for number in range(CASES)])
    fleet.look()
    _fell(server, 7 if waits else 11)
    assert fleet.look().unsettled == waits
    assert bool(fleet.q.claim(RUN, "q", 30, LEASE, {})[1]) != waits


def test_what_was_paid_twice_is_reported(server: Server) -> None:
    """A process is cut off for longer than it is waited for: its answers are paid again, and the sums say so."""
    fleet = _fleet(server)
    _, mine, _ = fleet.p.claim(RUN, "p", 6, 0.2, {})
    fleet.p.begin(RUN, "p", _begun(mine))
    fleet.q.claim(RUN, "q", 0, 0.2, {})
    moment = _moment(server)
    _record(fleet.p, "p", mine)
    _promote(server, moment)
    fleet.look()
    _restored(fleet, [])
    got: list[int] = []

    def all_got() -> bool:
        got.extend(fleet.q.claim(RUN, "q", 30, 0.2, _begun(got))[1])
        return len(got) == HEADER.total

    wait_until(all_got, "the calls of the silent one are made again")
    _record(fleet.q, "q", got)
    assert (fleet.look().repaid, fleet.look().lost) == (0, 6), "as far as is known yet"
    _, _, untold = fleet.p.claim(RUN, "p", 0, 0.2, {}, mine)
    assert not untold
    look = fleet.look()
    assert (look.known, look.repaid) == (HEADER.total, 6)
    assert look.spent == COST * (HEADER.total + 6)


def test_a_process_that_died_meanwhile_is_waited_for_no_longer_than_its_lease(server: Server) -> None:
    """Nothing stands still because of it; what it had in flight counts as lost."""
    fleet = _fleet(server)
    _, gone, _ = fleet.p.claim(RUN, "p", 6, 0.3, {})
    fleet.p.begin(RUN, "p", _begun(gone))
    fleet.q.claim(RUN, "q", 0, 0.3, {})
    _promote(server, _moment(server))
    fleet.look()
    _restored(fleet, [])
    wait_until(lambda: set(gone) <= set(fleet.q.claim(RUN, "q", 30, LEASE, {})[1]), "the lease has ended")
    assert fleet.look().lost == len(gone)


def test_a_flushed_server_is_given_the_sums(server: Server) -> None:
    """By the folder for processes that are no more, and by those that live for themselves: each counts once."""
    fleet = _fleet(server, poll_seconds=30)  # twice as long do all wait for what anybody has to tell
    _, dead, _ = fleet.p.claim(RUN, "p", 4, LEASE, {})
    _, alive, _ = fleet.q.claim(RUN, "q", 4, LEASE, {})
    _record(fleet.p, "p", dead)
    _record(fleet.q, "q", alive[:2])
    seen = fleet.look()
    _record(fleet.q, "q", alive[2:])
    server.client.delete(*KEYS)
    folder = [*dead, *alive]
    known = FolderCounts(8, 8, 8 * COST, 0, 0, seen.tallies)
    fleet.driver.open(HEADER, known=known, how="keep")
    fleet.driver.restore(RUN, folder)
    assert fleet.look().started == 8, "what the folder knows counts at once"
    assert fleet.q.claim(RUN, "q", 1, LEASE)[1] == []
    fleet.q.claim(RUN, "q", 0, LEASE, {}, alive)
    assert fleet.look().unsettled
    _fell(server, 60)
    look = fleet.look()
    assert not look.unsettled, "all had time to tell"
    assert (look.started, look.repaid, look.lost, look.spent) == (8, 0, 0, 8 * COST)


def test_calls_that_are_reported_once_more_are_no_attempts(server: Server) -> None:
    """A driver elsewhere has calls made again that their maker still knows: the budget is not touched by them."""
    fleet = _fleet(server, max_calls=HEADER.total)
    _, made, _ = fleet.p.claim(RUN, "p", 16, LEASE, {})
    _record(fleet.p, "p", made)
    fleet.driver.forget(RUN, made)
    _, got, untold = fleet.p.claim(RUN, "p", 16, LEASE, {}, made)
    assert not set(got) & set(made), "what it is to tell nobody makes"
    _record(fleet.p, "p", untold, resent=True)
    got += fleet.p.claim(RUN, "p", 16, LEASE)[1]
    _record(fleet.p, "p", got)
    look = fleet.look()
    assert (look.started, look.known, look.repaid) == (HEADER.total, HEADER.total, 0)


def test_a_lagging_replica_that_is_promoted_is_known_for_what_it_is(tmp_path: Path) -> None:
    """By its own replication id, without a word of any process: so nothing is offered to whoever comes first."""
    for name in ("primary", "replica"):
        (tmp_path / name).mkdir()
    with (
        running_server(tmp_path / "primary", None, "--repl-diskless-sync-delay", "0") as primary,
        running_server(tmp_path / "replica", None, "--replicaof", f"127.0.0.1 {primary.port}") as replica,
    ):
        link = replica.client.info
        # Before anything is written: a primary takes another id when its first replica comes, and would count as older.
        wait_until(lambda: link("replication").get("master_link_status") == "up", "it follows")
        fleet = _fleet(primary, poll_seconds=30)  # so long do all wait for what anybody has to tell
        _, mine, _ = fleet.p.claim(RUN, "p", 6, LEASE, {})
        fleet.q.claim(RUN, "q", 0, LEASE, {})
        assert primary.client.wait(1, int(PATIENCE * 1000)) == 1
        replica.client.replicaof("NO", "ONE")
        _record(fleet.p, "p", mine)
        promoted = Fleet(*(SweepLedger(replica.client, Settings(broker=replica.url)) for _ in range(3)))
        assert promoted.q.claim(RUN, "q", 30, LEASE)[1] == []
        look = promoted.q.poll(RUN)
        assert look is not None
        assert (look.generation > fleet.driver.generation(RUN), look.unsettled, look.left) == (True, True, True)


def test_a_tally_counts_once_what_is_reported_twice() -> None:
    """An answer of the server's was lost, so it is recorded again; made again later, it counts again."""
    tally = ProcessTally()
    assert tally.wire() == ""
    tally.count({1: EndedAttempts(2, 1, 0.5), 2: EndedAttempts(1, 1)})
    name, *first = tally.wire().split()
    tally.count({1: EndedAttempts(2, 1, 0.5), 2: EndedAttempts(1, 1), 3: EndedAttempts(1)})
    assert (first, tally.wire().split()) == (["2", "3", "2", "0.5"], [name, "3", "4", "2", "0.5"])
    tally.confirm([1, 2, 3])
    tally.count({1: EndedAttempts(1, 1, 0.25)})
    assert tally.wire().split() == [name, "4", "5", "3", "0.75"]
    assert ProcessTally().wire() != tally.wire()


def test_an_answer_that_tells_no_tokens_counts_at_the_mean_of_those_that_do() -> None:
    """In whatever order they come; where none does, nothing is known."""
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        tally = ProcessTally()
        made = [
            EndedAttempts(1, 1, 0.5),
            EndedAttempts(1, 1, unpriced=True),
            EndedAttempts(1, 1, 1.0),
            EndedAttempts(1, 1, unpriced=True),
        ]
        for call in order:
            tally.count({call: made[call]})
        assert tally.wire().split()[2:] == ["4", "4", "3.0"]
    tally = ProcessTally()
    tally.count({1: EndedAttempts(1, 1, unpriced=True)})
    assert tally.wire().split()[2:] == ["1", "1", "0.0"]


def _cut_off(server: Server) -> tuple[Fleet, list[int], list[int]]:
    """One process has two answers that it cannot tell and two calls in flight, and the server forgets all; nobody hears
    of that process for longer than the pause, and the other one takes every call.
    """
    fleet = _fleet(server)
    _, mine, _ = fleet.p.claim(RUN, "p", 4, LEASE, {})
    seen = fleet.look()
    server.client.delete(*KEYS)
    fleet.driver.open(HEADER, known=FolderCounts(tallies=seen.tallies, under_way=seen.under_way), how="keep")
    fleet.driver.offer(RUN, [Prompt(f"c{number}", "a", "q") for number in range(CASES)])

    def offered() -> list[int]:
        fleet.look()
        return fleet.q.claim(RUN, "q", HEADER.total, LEASE, {})[1]

    its = wait_until(offered, "the pause is over")
    assert set(its) == set(range(HEADER.total)), "its calls, too: nobody knows of them any more"
    assert (fleet.look().started, fleet.look().lost) == (len(mine) + HEADER.total, len(mine))
    return fleet, mine, its


@pytest.mark.parametrize("first", ["p", "q"])
def test_who_was_cut_off_for_longer_than_the_pause_counts_once(server: Server, first: str) -> None:
    """Whoever tells first, each answer that was served is one attempt, one output is kept of a call, and what was paid
    twice is reported as such.
    """
    fleet, mine, its = _cut_off(server)
    if first == "q":
        _record(fleet.q, "q", its)
        assert (fleet.look().started, fleet.look().lost) == (len(mine) + HEADER.total, len(mine))
    fleet.p.claim(RUN, "p", 0, LEASE, _begun(mine))
    _record(fleet.p, "p", mine[:2])
    _record(fleet.p, "p", mine[2:])
    if first == "p":
        _record(fleet.q, "q", its)
    look, kept = fleet.look(), fleet.driver.collect(RUN, 100).outputs
    assert sorted(output.call for output in kept) == list(range(HEADER.total))
    assert (look.started, look.repaid, look.lost) == (HEADER.total + len(mine), len(mine), 0)
    assert look.started == look.known + look.repaid + look.busy
