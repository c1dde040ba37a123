"""The ledger of live calls, for the processes that make them: they list sweeps, claim calls and commit results.

Call number n of a sweep is repeat n // cases of case n % cases. The first recorded output of a call stays; a lost or
doubled message costs a call, never a wrong output. Processes take calls directly from the ledger: a message for each
would cost nearly as much as the call.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import redis

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.calls import Prompt, Used
from evalq.evalcore.model.canonical import pack, unpack
from evalq.evalcore.model.manifest import QUEUE_CLASSES
from evalq.evalcore.version import code_version
from evalq.workers.ledger.keys import SHARED, SweepKeys, decode_names, reading
from evalq.workers.ledger.scripts import SWEEPS, Scripts
from evalq.workers.ledger.sweep_model import EndedAttempts, ProcessTally, Result, SweepHeader
from evalq.workers.settings import Settings

_MOST_TALLIES = 1000
"""Sweeps whose tally a process keeps in memory; a sweep that it forgot gets a new tally."""
MAX_WIRE_BYTES = 64 << 20


class CallLedger(Scripts):
    """The ledger as calling processes use it, over one client (which returns bytes)."""

    family = SWEEPS

    def __init__(self, client: redis.Redis, settings: Settings, token: str = "") -> None:
        super().__init__(client, settings, token)
        self._tallies: dict[tuple[str, str], ProcessTally] = {}
        self._generations: dict[str, int] = {}
        self._lock = threading.Lock()
        self.regressed = False
        """Whether the server lost part of the sweep claimed last, since this process listed its calls there."""

    def header(self, run: str) -> SweepHeader | None:
        """A sweep's header; None if the ledger does not know the sweep. Raises WireError."""
        with reading(run, SHARED.sweep):
            data = self.client.hget(SweepKeys.of(run).meta, "sweep")
            return SweepHeader.of(run, data) if data else None

    def sweeps(self) -> list[SweepHeader]:
        """Open sweeps of this code version, and closed ones from which no process has claimed since."""
        headers = []
        for data in self.client.hvals(SHARED.sweeps):
            try:
                header = msgspec.json.decode(data, type=SweepHeader)
            except msgspec.DecodeError:
                # Of another version, whose own processes read it: it must not keep this process from other sweeps.
                continue
            # Answers of two versions of the code would mix in one report.
            if header.code == code_version():
                headers.append(header)
        return headers

    def runs(self) -> list[str]:
        """Sweeps that are open, or closed and perhaps not expired yet."""
        listed = self.client.hgetall(SHARED.sweeps)  # HKEYS is not a producer's right
        names = [*listed, *self.client.zrange(SHARED.closed, 0, -1)]
        return sorted(set(decode_names(names)))

    def judge_sweeps(self, run: str) -> list[str]:
        """The judge sweeps of ``run``, in the order in which they run."""
        return [name for name in self.runs() if name.startswith(judge_sweep_id(run, ""))]

    def mean_tokens(self, target: str) -> dict[str, float]:
        """Mean tokens of a target's calls so far: {calls, prompt, completion}; empty before the first call."""
        names = [f"answered {target}", f"tokens {target} prompt", f"tokens {target} completion"]
        values = self.client.hmget(SHARED.calls, names)
        calls, prompt, completion = (int(value) if value and value.isdigit() else 0 for value in values)
        # Both can be 0 after calls: a target that reports no tokens has no mean.
        if not calls or not prompt + completion:
            return {}
        return {"calls": calls, "prompt": prompt / calls, "completion": completion / calls}

    def generation(self, run: str) -> int:
        """The generation of a sweep's server state to which this process reported last; -1 for none."""
        return self._generations.get(run, -1)

    def keep_generation(self, run: str, generation: int) -> None:
        """Note that this process has reported to this generation of a sweep's server state."""
        _keep(self._generations, run, generation)

    def claim(
        self,
        run: str,
        holder: str,
        most: int,
        lease_seconds: float,
        mine: Mapping[int, int] | None = None,
        recent: Collection[int] = (),
    ) -> tuple[str, list[int], list[int]]:
        """Claim at most ``most`` calls and renew the holder's lease; returns (state, calls to make, calls to resend).

        ``mine`` lists the holder's calls that are in flight or not recorded yet, {call: attempts begun}. The ledger
        gives away any other call that it holds for this holder. ``recent`` lists calls that it recorded lately; those
        that the ledger has lost are to be resent, and -1 - call is one to drop. After a claim without ``mine`` see
        `regressed`.
        """
        # -1 lists nothing; 0 says that the holder has no calls.
        items = () if mine is None else (f"{call} {begun}" for call, begun in mine.items())
        listed = [-1] if mine is None else [len(mine), *items, *recent]
        # Every claim carries the whole tally, so a server restored to an older state has the right sums at once.
        tally = self._tally(run, holder).wire()
        state, generation, lost, *calls = self.step(
            "claim", run, run, holder, tally, int(lease_seconds * 1000), most, *listed
        )
        if mine is not None:
            self.keep_generation(run, generation)
        # If this process listed nothing yet, the server cannot have lost anything of it.
        self.regressed = generation != self._generations.get(run, generation)
        return state.decode(), [int(call) for call in calls], [int(call) for call in lost]

    def share(self, run: str) -> tuple[str, str, str]:
        """Whose share a sweep's calls are: its queue class, its team, and the run itself."""
        queue_class, team = self.client.hmget(SweepKeys.of(run).meta, "class", "team")
        name = queue_class.decode(errors="replace") if queue_class else ""
        known = name if name in QUEUE_CLASSES else QUEUE_CLASSES[-1]
        # The judges of a run share with its own calls.
        return known, team.decode(errors="replace") if team else "", run_of(run)

    def prompts(self, run: str, cases: Sequence[int]) -> dict[int, Prompt]:
        """The prompts of ``cases``. Raises WireError if one is damaged."""
        packed = self.client.hmget(SweepKeys.of(run).prompts, [str(case) for case in cases]) if cases else []
        try:
            return {
                case: msgspec.json.decode(unpack_wire(data), type=Prompt)
                for case, data in zip(cases, packed, strict=True)
                if data is not None
            }
        except msgspec.DecodeError as error:
            raise WireError(f"a prompt is not what evalq writes: {error}") from error

    def begin(self, run: str, holder: str, begun: Mapping[int, int]) -> set[int]:
        """Note that attempts begin, {call: number of the attempt}; returns the calls that may be made.

        If the process dies, only these attempts count as lost, and as tries of their cases: its other calls were never
        paid.
        """
        rows = (field for item in begun.items() for field in item)
        return {int(call) for call in self.step("begin", run, holder, *rows)}

    def used(self, run: str, call: int) -> Used:
        """What other processes used of the budget of a call's case."""
        data = self.client.hget(SweepKeys.of(run).used, str(call))
        return Used.of(data.decode(errors="replace")) if data else Used()

    def keep_used(self, run: str, holder: str, used: Mapping[int, Used]) -> None:
        """Keep what calls have used of their cases' budgets, before they are given back."""
        self.step("use", run, holder, *(field for call, one in used.items() for field in (call, one.wire())))

    def again(self, run: str, call: int, *, goes_on: bool = False) -> int:
        """Ask for a retry of a failed call, or for the next call of a conversation that ``goes_on``.

        1: yes, and it is counted; 0: no budget is left, and a conversation is given back; -1: the sweep is closed.
        """
        return int(self.step("again", run, call, int(goes_on)))

    def keep_talk(self, run: str, holder: str, call: int, begun: int, talk: bytes, attempts: int, cost: float) -> bool:
        """Keep the conversation of a call so far, whose ``attempts`` cost so much; False if the call is not held.

        ``begun`` attempts of it are of this hold.
        """
        return bool(self.step("keep_talk", run, holder, call, begun, pack(talk), attempts, repr(cost)))

    def talk(self, run: str, call: int) -> bytes | None:
        """The conversation of a call so far; None without one. Raises WireError."""
        data = self.client.hget(SweepKeys.of(run).talks, str(call))
        return None if data is None else unpack_wire(data)

    def commit(self, run: str, holder: str, target: str, results: Sequence[Result]) -> int:
        """Record results of calls; returns how many were new."""
        tally = self._tally(run, holder)
        # The tally counted a resent result when it was recorded first.
        ended = {
            result.output.call: EndedAttempts.of(result.output, fatal=bool(result.fatal))
            for result in results
            if not result.resent
        }
        tally.count(ended)
        rows = (field for result in results for field in result.row())
        fresh = int(self.step("commit", run, holder, tally.wire(), target, *rows))
        # Only after the server's reply: if the reply is lost, the same commit comes again and must not count again.
        tally.confirm(ended)
        return fresh

    def give_back(self, run: str, holder: str, returned: Mapping[int, int], *, leave: bool = False) -> None:
        """Give back calls, {call: attempts without an output}; with ``leave``, all calls of the holder."""
        tally = self._tally(run, holder)
        ended = {call: EndedAttempts(attempts) for call, attempts in returned.items() if attempts}
        tally.count(ended)
        self.step("give_back", run, holder, tally.wire(), int(leave), *returned)
        tally.confirm(ended)

    def _tally(self, run: str, holder: str) -> ProcessTally:
        with self._lock:
            tally = self._tallies.get((run, holder)) or ProcessTally()
            _keep(self._tallies, (run, holder), tally)
            return tally


def judge_sweep_id(run: str, name: str) -> str:
    """The id of the judge sweep ``name`` of ``run``."""
    return f"{run}.{name}"


def run_of(sweep: str) -> str:
    """The run that a sweep belongs to: the one that it judges, or the sweep itself."""
    return sweep.partition(".")[0]


def _keep(entries: dict[Any, Any], key: Any, value: Any) -> None:
    # Remove and add again: the first entry is then the one used longest ago, and goes when there are too many.
    entries.pop(key, None)
    entries[key] = value
    if len(entries) > _MOST_TALLIES:
        del entries[next(iter(entries))]


def unpack_wire(data: bytes) -> bytes:
    """Unpack a prompt or an output. Raises WireError."""
    try:
        return unpack(data, MAX_WIRE_BYTES)
    except WireError as error:
        raise WireError(f"a prompt or an output is not what evalq writes: {error}") from error
