"""A sweep has one driver, survives what its server forgets, and ends: the ledger of calls over a real server."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from evalq.evalcore.errors import AlreadyRunning, UsageError
from evalq.evalcore.model.calls import Attempt, Output, Prompt
from evalq.evalcore.model.life import RunState
from evalq.evalcore.version import code_version
from evalq.producer.cli import main
from evalq.workers.ledger.keys import SHARED, SweepKeys
from evalq.workers.ledger.sweep_model import CollectedOutputs, FolderCounts, Result, SweepHeader
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.recovery.unattended import UnattendedSweeps
from evalq.workers.settings import Settings
from tests.integration.harness import PATIENCE, Server, wait_until

CASES, REPEATS = 3, 4
TOTAL = CASES * REPEATS
LEASE = SILENCE = 600.0


def _calls(server: Server, driver: str = "") -> SweepLedger:
    return SweepLedger(server.client, Settings(broker=server.url, driver_seconds=SILENCE), driver)


def _header(run: str, **other: str) -> SweepHeader:
    return SweepHeader(run, "t", code_version(), CASES, REPEATS, other)


def _begun(server: Server, run: str, driver: str = "a 1 x", **budget: float) -> SweepLedger:
    calls = _calls(server, driver)
    calls.delete(run)
    calls.open(_header(run), int(budget.get("max_calls", 0)), budget.get("max_cost", 0.0))
    calls.offer(run, [Prompt(f"c{number}", "a", "q") for number in range(CASES)])
    return calls


def _result(call: int, text: str = "", cost: float = 0.0, *, resent: bool = False) -> Result:
    output = Output(call=call, case=f"c{call % CASES}", agent="a", repeat=call // CASES, prompt="p", target="t",
                    config="c", text=text or None, attempts=(Attempt(cost=cost or None),))  # fmt: skip
    return Result(output, resent=resent)


def _failed(call: int) -> Result:
    output = msgspec.structs.replace(_result(call).output, error="server: 500", attempts=(Attempt(kind="server"),))
    return Result(output, "server")


def _meta(run: str) -> str:
    return SweepKeys.of(run).meta


def _older(server: Server, run: str, moment: dict[bytes, bytes]) -> None:
    """The server has the sweep as it was at a ``moment``."""
    server.client.delete(*SweepKeys.of(run))
    for key, dump in moment.items():
        server.client.restore(key, 0, dump)


def _moment(server: Server, run: str) -> dict[bytes, bytes]:
    return {key: server.client.dump(key) for key in server.client.scan_iter(f"evalq:sweep:{{{run}}}:*")}


def test_who_does_not_drive_a_sweep_changes_nothing_of_it(server: Server) -> None:
    """Every step of a driver is refused to anybody else, and leaves each key as it was."""
    mine, other, nobody = _begun(server, "one"), _calls(server, "b 2 y"), _calls(server)
    _, made, _ = mine.claim("one", "p", 4, LEASE, {})
    mine.commit("one", "p", "t", [_result(call) for call in made])
    found = mine.collect("one", 10)
    before = _moment(server, "one")
    for calls in (other, nobody):
        steps: list[tuple[Callable[..., object], tuple[object, ...], dict[str, bool]]] = [
            (calls.open, (_header("one"),), {}),
            (calls.offer, ("one", [Prompt("c0", "a", "other")]), {}),
            (calls.restore, ("one", [9]), {}),
            (calls.forget, ("one", [0]), {}),
            (calls.halt, ("one", [1]), {}),
            (calls.poll, ("one",), {"attending": True}),
            (calls.collect, ("one", 10), {}),
            (calls.trim, ("one", found), {}),
        ]
        for step, args, named in steps:
            with pytest.raises(AlreadyRunning) as refused:
                step(*args, **named)
            assert refused.value.by == "a 1 x"
    with pytest.raises(AlreadyRunning):
        other.close("one", "done")
    other.release("one")
    assert _moment(server, "one") == before
    assert len(mine.collect("one", 10).outputs) == 4


def test_anybody_may_pause_or_cancel(server: Server) -> None:
    """`evalq pause` and `evalq cancel` drive nothing; what was cancelled is never opened again, what was paused is."""
    mine = _begun(server, "ended")
    assert _calls(server).close("ended", "paused", "by evalq pause") == "paused"
    assert mine.open(_header("ended"), how="keep") == "paused"
    assert mine.open(_header("ended")) == "open"
    assert _calls(server).close("ended", "cancelled") == "cancelled"
    assert mine.open(_header("ended")) == mine.open(_header("ended"), how="anew") == "cancelled"


def test_what_is_done_is_opened_by_whoever_says_so(server: Server) -> None:
    """A second producer of a sweep that is done does not have it called again."""
    mine = _begun(server, "done")
    mine.close("done", "done")
    mine.release("done")
    assert _calls(server, "b 2 y").open(_header("done")) == "done"
    assert _calls(server, "b 2 y").open(_header("done"), how="anew") == "open"


@pytest.mark.parametrize("at", [1, 1 << 50], ids=["silent", "of the future"])
def test_a_silent_driver_loses_the_sweep(server: Server, at: int) -> None:
    """After driver_seconds; one heard of in the future, before the clock was set back, was heard of just now."""
    mine, other = _begun(server, "silent"), _calls(server, "b 2 y")
    server.client.hset(_meta("silent"), "driver_at", at)
    if at > 1:
        with pytest.raises(AlreadyRunning):
            other.open(_header("silent"))
        now = server.client.time()[0] * 1000
        assert int(server.client.hget(_meta("silent"), "driver_at")) < now + 10_000
        server.client.hset(_meta("silent"), "driver_at", now - int(SILENCE + 1) * 1000)
    assert other.open(_header("silent")) == "open"
    with pytest.raises(AlreadyRunning, match="b 2 y"):
        mine.poll("silent", attending=True)


def test_a_driver_that_let_go_or_died_in_the_same_folder_is_followed_at_once(server: Server) -> None:
    """Nobody waits for the silence of a process that is known to be gone."""
    mine, other = _begun(server, "next"), _calls(server, "b 2 y")
    mine.release("next")
    assert other.open(_header("next")) == "open"
    assert _calls(server, "c 3 z").open(_header("next"), before="b 2 y") == "open"


def test_another_sweep_under_the_same_id_is_refused_with_what_differs(server: Server) -> None:
    """The header that is there is compared, and stays."""
    mine = _begun(server, "same")
    for header, said in (
        (SweepHeader("same", "t", code_version(), CASES, 9), "repeats (4 there, 9 here)"),
        (_header("same", parameters="abc"), "parameters (none there, abc here)"),
    ):
        with pytest.raises(UsageError) as refused:
            mine.open(header)
        assert said in str(refused.value)
    assert mine.header("same") == _header("same")


def test_what_was_not_collected_is_never_trimmed(server: Server) -> None:
    """Trimmed twice, or by a number from before the server came back older: others have that number by then."""
    calls = _begun(server, "trim")
    _, made, _ = calls.claim("trim", "p", TOTAL, LEASE, {})

    def recorded(some: list[int], text: str = "") -> None:
        calls.commit("trim", "p", "t", [_result(call, text) for call in some])

    def kept() -> list[int]:
        return [output.call for output in calls.collect("trim", 100).outputs]

    recorded(made[:3])
    moment = _moment(server, "trim")
    recorded(made[3:6])
    found = calls.collect("trim", 100)
    _older(server, "trim", moment)
    recorded(made[6:10])
    calls.trim("trim", found)
    assert kept() == [*made[:3], *made[6:10]]
    found = calls.collect("trim", 5)
    for _ in range(3):
        calls.trim("trim", found)
    assert kept() == made[8:10]
    calls.trim("trim", CollectedOutputs())
    assert kept() == made[8:10]


def test_a_process_has_what_it_names_and_nothing_else(server: Server) -> None:
    """A server that came back older holds calls for it that it has recorded: they are reported again, or made again."""
    calls = _begun(server, "named")
    _, made, _ = calls.claim("named", "p", TOTAL, LEASE, {})
    moment = _moment(server, "named")
    calls.commit("named", "p", "t", [_result(call) for call in made[:6]])
    _older(server, "named", moment)
    look = calls.poll("named")
    assert look is not None
    assert (look.busy, look.known) == (TOTAL, 0)
    state, got, untold = calls.claim("named", "p", 100, LEASE, dict.fromkeys(made[6:], 1), made[:4])
    assert (state, sorted(got), sorted(untold)) == ("open", made[4:6], made[:4])
    calls.commit("named", "p", "t", [_result(call, resent=True) for call in untold])
    calls.commit("named", "p", "t", [_result(call) for call in [*got, *made[6:]]])
    look = calls.poll("named")
    assert look is not None
    assert (look.busy, look.known, look.left, look.repaid) == (0, TOTAL, False, len(got))
    calls.commit("named", "p", "t", [_result(call, resent=True) for call in untold])
    again = calls.poll("named")
    assert again is not None
    then = msgspec.structs.replace(again, driver_silent=look.driver_silent)
    assert then == look, "told once too often counts for nothing"


def test_an_output_that_is_reported_again_for_another_folder_costs_nothing_more(server: Server) -> None:
    """A driver elsewhere has calls made again; one is told once more by its maker, and one is really made again."""
    calls = _begun(server, "twice")
    _, made, _ = calls.claim("twice", "p", 4, LEASE, {})
    calls.commit("twice", "p", "t", [_result(call, cost=1.0) for call in made])
    calls.trim("twice", calls.collect("twice", 10))
    calls.forget("twice", made[:2])
    _, _, untold = calls.claim("twice", "p", 0, LEASE, {}, made)
    assert sorted(untold) == made[:2]
    calls.commit("twice", "p", "t", [_result(made[0], cost=1.0, resent=True), _result(made[1], cost=1.0)])
    look = calls.poll("twice")
    assert look is not None
    assert (look.spent, look.known, look.waiting) == (5.0, 4, 2)


def test_an_answer_that_never_arrived_gives_nobody_calls(server: Server) -> None:
    """What was handed out to a process that never heard of it is handed out again while that one lives."""
    calls = _begun(server, "deaf")
    _, lost, _ = calls.claim("deaf", "p", 5, LEASE, {})
    _, got, _ = calls.claim("deaf", "p", TOTAL, LEASE, {})
    assert set(lost) <= set(got)
    assert len(got) == TOTAL


def test_what_the_folder_has_is_held_by_nobody(server: Server) -> None:
    """Restoring takes calls from whoever the server believes to make them."""
    calls = _begun(server, "restored")
    _, made, _ = calls.claim("restored", "p", TOTAL, LEASE, {})
    calls.restore("restored", made)
    look = calls.poll("restored")
    assert look is not None
    assert (look.busy, look.known, look.left) == (0, TOTAL, False)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_dead_holder_outlives_no_step_of_the_clock(server: Server, hours: int) -> None:
    """Its calls go back when the lease after the step has ended, never an hour later; living ones keep theirs."""
    calls, holders = _begun(server, "clock"), SweepKeys.of("clock").holders
    lease = 0.2
    for holder in ("dead", "alive"):
        calls.claim("clock", holder, 3, lease, {})
    step = -hours * 3_600_000  # what the server wrote lies ahead when its clock was set back
    for holder, at in server.client.zrange(holders, 0, -1, withscores=True):
        server.client.zadd(holders, {holder: at + step})
    for name in ("touched", "attended", "driver_at"):
        server.client.hincrby(_meta("clock"), name, step)
    mine = [call for call, name in server.client.hgetall(SweepKeys.of("clock").held).items() if name == b"alive"]
    got: list[int] = []
    deadline = server.client.time()[0] + PATIENCE
    while len(got) < TOTAL - 3:
        got += calls.claim("clock", "alive", TOTAL, lease, dict.fromkeys([*map(int, mine), *got], 1))[1]
        assert server.client.time()[0] < deadline
    assert not {int(call) for call in mine} & set(got)


def test_a_producer_of_the_future_was_heard_of_just_now(server: Server) -> None:
    """After the clock was set back, a sweep whose producer is gone stands still all the same."""
    calls = _begun(server, "attended")
    calls.open(_header("attended"), unattended_seconds=60)
    server.client.hset(_meta("attended"), "attended", 1 << 50)
    assert calls.claim("attended", "p", 1, LEASE)[1]
    assert int(server.client.hget(_meta("attended"), "attended")) <= (server.client.time()[0] + 1) * 1000


def test_calls_of_the_dead_count_against_the_budgets(server: Server) -> None:
    """They may have been paid: as attempts, and at the mean cost; one that is recorded after all counts as itself."""
    calls = _begun(server, "dead", max_cost=1.0)
    _, first, _ = calls.claim("dead", "p", 4, LEASE, {})
    calls.commit("dead", "p", "t", [_result(call, cost=0.1) for call in first])
    _, first, _ = calls.claim("dead", "p", 3, LEASE, {})
    calls.commit("dead", "p", "t", [_result(call, cost=0.1) for call in first])
    _, gone, _ = calls.claim("dead", "q", 4, LEASE, {})
    calls.begin("dead", "q", dict.fromkeys(gone, 1))
    server.client.zadd(SweepKeys.of("dead").holders, {"q": 1})
    _, rest, _ = calls.claim("dead", "p", 100, LEASE, {})
    assert len(rest) == 2, "4 paid and 4 lost of 10"
    look = calls.poll("dead")
    assert look is not None
    assert (look.started, look.lost) == (10, 4)
    assert look.spent == pytest.approx(0.4)
    calls.commit("dead", "q", "t", [_result(gone[0], cost=0.1)])
    look = calls.poll("dead")
    assert look is not None
    assert look.lost == 3
    assert look.spent == pytest.approx(0.5)


def test_what_a_conversation_has_cost_so_far_counts(server: Server) -> None:
    """Each time that it is kept, as a whole; its output has it in the end, also if the folder alone knows that."""
    calls = _begun(server, "talks", max_cost=1.0)
    assert calls.claim("talks", "p", 1, LEASE, {})[1] == [0]
    calls.commit("talks", "p", "t", [_result(0, cost=0.1)])
    _, held, _ = calls.claim("talks", "p", 2, LEASE, {})
    assert calls.begin("talks", "p", dict.fromkeys(held, 1)) == set(held)
    for attempts, cost in ((1, 0.1), (1, 0.1), (3, 0.3)):
        assert calls.keep_talk("talks", "p", held[0], attempts, b"{}", attempts, cost)
    assert calls.again("talks", held[0], goes_on=True) == 1, "0.4 and the other's next call of 1.0"
    assert calls.keep_talk("talks", "p", held[0], 8, b"{}", 8, 0.8)
    assert calls.claim("talks", "q", 9, LEASE, {})[1] == [], "0.9 and two calls"
    assert calls.again("talks", held[1]) == 1, "a retry of what has its room already"
    assert calls.again("talks", held[0], goes_on=True) == 0
    # It is given back at once, and the other may go on.
    assert server.client.hkeys(SweepKeys.of("talks").held) == [str(held[1]).encode()]
    assert calls.again("talks", held[1], goes_on=True) == 1
    calls.commit("talks", "p", "t", [_result(held[1], cost=0.1)])
    assert calls.claim("talks", "q", 9, LEASE, {})[0] == "spent"
    calls.open(_header("talks"), 0, 2.0)
    assert calls.claim("talks", "q", 1, LEASE, {})[1] == [held[0]]
    calls.commit("talks", "q", "t", [_result(held[0], cost=0.9)])
    keys = SweepKeys.of("talks")
    assert server.client.hgetall(keys.talks) == {}
    assert float(server.client.hget(keys.meta, "talking")) == pytest.approx(0)
    assert int(server.client.hget(keys.meta, "talking_attempts")) == 0
    look = calls.poll("talks")
    assert look is not None
    assert look.spent == pytest.approx(1.1)


def test_what_the_dead_had_not_begun_costs_nothing(server: Server) -> None:
    """It is handed out again for the same room: budgets count attempts that began, each of a call that was tried more
    than once, and nothing else.
    """
    calls = _begun(server, "unbegun", max_calls=6)
    _, held, _ = calls.claim("unbegun", "dead", 5, LEASE, {})
    assert calls.begin("unbegun", "dead", {held[0]: 1, held[1]: 1}) == set(held[:2])
    assert calls.again("unbegun", held[1]) == 1
    assert calls.begin("unbegun", "dead", {held[1]: 2}) == {held[1]}
    server.client.zadd(SweepKeys.of("unbegun").holders, {"dead": 1})
    _, rest, _ = calls.claim("unbegun", "p", 100, LEASE, {})
    look = calls.poll("unbegun")
    assert look is not None
    assert (look.lost, look.started, look.under_way) == (3, 6, {"p": 3, "dead": 3})
    assert rest == held[:3], "6 attempts less 3 that began"
    calls.commit("unbegun", "p", "t", [_result(call) for call in rest])
    assert calls.claim("unbegun", "p", 100, LEASE, {})[0] == "spent"
    twice = msgspec.structs.replace(_result(held[1]).output, attempts=(Attempt(kind="server"), Attempt()))
    calls.commit("unbegun", "dead", "t", [_result(held[0]), Result(twice)])
    look = calls.poll("unbegun")
    assert look is not None
    assert (look.lost, look.started, look.repaid) == (0, 6, 2), "told after all, each as itself"


def test_who_leaves_loses_what_it_had_begun(server: Server) -> None:
    """Cut off at its end: what waited for its turn was never paid."""
    calls = _begun(server, "left")
    _, held, _ = calls.claim("left", "p", 5, LEASE, {})
    calls.begin("left", "p", {held[0]: 1})
    calls.give_back("left", "p", {}, leave=True)
    look = calls.poll("left")
    assert look is not None
    assert (look.lost, look.started, look.busy) == (1, 1, 0)


@pytest.mark.parametrize("named", [False, True])
def test_a_call_that_was_given_to_another_is_not_begun(server: Server, named: bool) -> None:
    """A process stood still for longer than its lease: it keeps what it has begun, and makes none of the rest."""
    calls = _begun(server, "slow")
    _, held, _ = calls.claim("slow", "slow", 4, LEASE, {})
    calls.begin("slow", "slow", {held[0]: 1})
    server.client.zadd(SweepKeys.of("slow").holders, {"slow": 1})
    assert set(held) <= set(calls.claim("slow", "quick", TOTAL, LEASE, {})[1])
    if named:
        calls.claim("slow", "slow", 0, LEASE, dict.fromkeys(held, 0) | {held[0]: 1})
    assert calls.begin("slow", "slow", dict.fromkeys(held, 1)) == ({held[0]} if named else set())
    assert calls.begin("slow", "quick", dict.fromkeys(held, 1)) == set(held[1:]) | (set() if named else {held[0]})


@pytest.mark.parametrize("state", ["paused", "cancelled"])
def test_nothing_begins_of_a_sweep_that_was_stopped(server: Server, state: RunState) -> None:
    """What was handed out before is not paid after."""
    calls = _begun(server, "stopped")
    _, held, _ = calls.claim("stopped", "p", 2, LEASE, {})
    assert calls.begin("stopped", "p", {held[0]: 1}) == {held[0]}
    calls.close("stopped", state)
    assert calls.begin("stopped", "p", {held[1]: 1}) == set()
    calls.delete("stopped")
    assert calls.begin("stopped", "p", {held[1]: 1}) == set()
    assert not server.client.exists(*SweepKeys.of("stopped"))


def test_a_folder_tells_a_new_server_of_lost_calls(server: Server) -> None:
    """The server died with the processes that called: what they had begun counts."""
    calls = SweepLedger(server.client, Settings(broker=server.url, poll_seconds=0.02), "a 1 x")
    calls.delete("told")
    calls.open(_header("told"), 8, known=FolderCounts(attempts=4, paid=4, cost=0.4, lost=2))
    calls.offer("told", [Prompt(f"c{number}", "a", "q") for number in range(CASES)])
    calls.poll("told", attending=True)
    assert len(wait_until(lambda: calls.claim("told", "p", 100, LEASE, {})[1], "all had time to tell")) == 2
    look = calls.poll("told")
    assert look is not None
    assert (look.started, look.lost) == (8, 2)


def _detached(server: Server, run: str) -> tuple[SweepLedger, UnattendedSweeps]:
    calls = _begun(server, run)
    calls.release(run)
    server.client.hset(SHARED.unattended, run, code_version())
    return _calls(server), UnattendedSweeps(_calls(server), Settings(broker=server.url))


@pytest.mark.parametrize(
    "part", ["prompts", "again", "holders", "held", "recorded", "outbox", "halted", "lost", "begun"]
)
def test_a_detached_sweep_is_evaluated_whole_whatever_key_is_lost(server: Server, part: str) -> None:
    """What lies in the ledger is not called again; what is lost is; nothing is evaluated before all is there."""
    calls, left = _detached(server, "left")
    try:
        _, made, _ = calls.claim("left", "p", 6, LEASE, {})
        calls.commit("left", "p", "t", [_result(call) for call in made[:4]])
        calls.give_back("left", "p", dict.fromkeys(made[4:], False))
        server.client.delete(f"evalq:sweep:{{left}}:{part}")
        rounds = paid = 0
        while not left.over():
            if part == "prompts":  # nobody but a producer has them: whoever watches the sweep
                driver = _calls(server, "w 1 x")
                driver.open(_header("left"))
                driver.offer("left", [Prompt(f"c{number}", "a", "q") for number in range(CASES)])
                driver.release("left")
            _, got, _ = calls.claim("left", "p", TOTAL, LEASE, {})
            calls.commit("left", "p", "t", [_result(call) for call in got])
            rounds, paid = rounds + 1, paid + len(got)
            assert rounds < 20
        assert sorted({output.call for output in calls.waiting("left")}) == list(range(TOTAL))
        assert paid <= TOTAL - (0 if part == "outbox" else 4) + (4 if part == "recorded" else 0)
    finally:
        server.client.hdel(SHARED.unattended, "left")


def test_a_detached_sweep_with_a_forged_output_does_not_wait_for_ever(server: Server) -> None:
    """No call made again helps it: it counts as over, so that the evaluation says what is wrong."""
    calls, left = _detached(server, "forged")
    try:
        _, made, _ = calls.claim("forged", "p", TOTAL, LEASE, {})
        calls.commit("forged", "p", "t", [_result(call) for call in made])
        server.client.lpush(SweepKeys.of("forged").outbox, b"forged")
        assert left.over() == ["forged"]
        assert calls.claim("forged", "p", TOTAL, LEASE, {})[1] == []
    finally:
        server.client.hdel(SHARED.unattended, "forged")


def test_a_sweep_is_put_back_on_the_list_of_those_to_call(server: Server) -> None:
    """The list is lost while it is open: whoever looks at it, its producer first, has it called again."""
    calls = _begun(server, "listed")
    server.client.delete(SHARED.sweeps)
    calls.poll("listed", attending=True)
    assert calls.sweeps() == [_header("listed")]
    server.client.delete(SHARED.sweeps)
    calls.close("listed", "paused")
    calls.poll("listed", attending=True)
    assert calls.sweeps() == []


def test_a_closed_sweep_is_listed_until_it_expires(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """Also when a process has claimed of it since, and no longer calls it; those that expired make room."""
    mine = _begun(server, "closed")
    server.client.zadd(SHARED.closed, {"expired": 1})
    mine.close("closed", "paused", "by evalq pause")
    assert _calls(server).claim("closed", "h", 1, 5.0)[0] == "paused"
    assert not server.client.hexists(SHARED.sweeps, "closed")
    assert "closed" in mine.runs()
    assert "expired" not in mine.runs()
    assert server.client.ttl(SHARED.closed) > 0
    assert main(["list", "--broker", server.url]) == 0
    assert f"paused       in the ledger only, 0/{CASES * REPEATS} calls of t\n" in capsys.readouterr().out
    mine.delete("closed")
    assert "closed" not in mine.runs()


def test_a_silent_driver_is_reported(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """Its sweep is still open in the ledger: the list says for how long, once another may take over."""
    mine = _begun(server, "quiet", "host 7 x")
    look = mine.poll("quiet")
    assert look is not None
    assert (look.driver, look.driver_silent < 5) == ("host 7 x", True)
    assert main(["list", "--broker", server.url]) == 0
    assert "silent" not in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("quiet "))
    server.client.hset(_meta("quiet"), "driver_at", (server.client.time()[0] - 60) * 1000)
    assert main(["list", "--broker", server.url]) == 0
    assert "; its driver (host 7) has been silent for 1 min" in capsys.readouterr().out


def test_no_more_than_one_call_is_made_before_it_is_known_what_one_costs(server: Server) -> None:
    """Ten at once would cost many times a small budget. Failures tell nothing: each lets one more be in flight."""
    calls = _begun(server, "first", max_cost=1.0)
    assert calls.claim("first", "p", 50, LEASE, {})[1] == [0]
    calls.commit("first", "p", "t", [_failed(0)])
    assert calls.claim("first", "p", 50, LEASE, {})[1] == [1, 2]
    calls.commit("first", "p", "t", [_result(1, cost=0.25)])
    assert calls.claim("first", "p", 50, LEASE, {2: 1})[1] == [3, 4, 5, 6, 7], "by the mean of what ended"


def test_failures_do_not_say_that_a_target_tells_no_cost(server: Server) -> None:
    """Nor do answers that cost nothing; ten answers of unknown cost do, and those count that the folder knows of."""
    calls = _begun(server, "untold", max_cost=1.0)
    for call in range(TOTAL - 1):
        assert call in calls.claim("untold", "p", 1, LEASE, {})[1]
        calls.commit("untold", "p", "t", [_failed(call)])
    assert calls.claim("untold", "p", 1, LEASE, {})[:2] == ("open", [TOTAL - 1])
    calls = _begun(server, "free", max_cost=1.0)
    calls.claim("free", "p", 1, LEASE, {})
    nothing = msgspec.structs.replace(_result(0).output, attempts=(Attempt(cost=0.0),))
    calls.commit("free", "p", "t", [Result(nothing)])
    assert len(calls.claim("free", "p", 50, LEASE, {})[1]) == TOTAL - 1
    calls = _calls(server, "a 1 x")
    calls.delete("told")
    calls.open(_header("told"), 0, 1.0, known=FolderCounts(unpriced=9))
    calls.offer("told", [Prompt(f"c{number}", "a", "q") for number in range(CASES)])
    assert calls.claim("told", "p", 50, LEASE, {})[1] == [0]
    calls.commit("told", "p", "t", [_result(0)])
    assert calls.claim("told", "p", 50, LEASE, {})[0] == "spent"
    assert calls.poll("told").reason == "the target reports no tokens, so its cost is not known"  # type: ignore[union-attr]  # it is there


def test_an_attempt_is_not_counted_for_ever_when_its_call_was_made_by_another_meanwhile(server: Server) -> None:
    """A process that was silent for too long tries its call again, which another has recorded: it tells that itself."""
    calls, other = _begun(server, "late"), _calls(server)
    assert calls.claim("late", "slow", 1, LEASE, {})[1] == [0]
    assert calls.begin("late", "slow", {0: 1}) == {0}
    server.client.zadd(SweepKeys.of("late").holders, {"slow": 1})
    assert other.claim("late", "quick", 1, LEASE, {})[1] == [0]
    other.commit("late", "quick", "t", [_result(0)])
    assert calls.again("late", 0) == 1
    twice = msgspec.structs.replace(_result(0).output, attempts=(Attempt(kind="server"), Attempt()))
    calls.commit("late", "slow", "t", [Result(twice)])
    look = calls.poll("late")
    assert look is not None
    assert (look.started, look.lost, look.repaid) == (3, 0, 1)


def test_a_commit_that_is_repeated_counts_once_in_the_totals(server: Server) -> None:
    """Its first answer was lost: nothing was paid twice. Where two processes made a call, both payments count."""
    server.client.delete(SHARED.calls)
    calls = _begun(server, "told")
    assert calls.claim("told", "slow", 1, LEASE, {})[1] == [0]
    assert calls.begin("told", "slow", {0: 1}) == {0}
    server.client.zadd(SweepKeys.of("told").holders, {"slow": 1})
    assert calls.claim("told", "quick", 1, LEASE, {})[1] == [0]
    for holder, cost, repaid in (("quick", b"500000", None), ("slow", b"1000000", b"1")):
        for _ in range(2):
            calls.commit("told", holder, "t", [_result(0, cost=0.5)])
            assert server.client.hmget(SHARED.calls, "cost t", "answered t", "repaid t") == [cost, b"1", repaid]
