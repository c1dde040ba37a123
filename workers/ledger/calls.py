"""The ledger of live calls, as those see it who make them: which sweeps there are, and calls claimed and committed.

Call number n of a sweep is repeat n // cases of case n % cases. The first recorded output of a call stays; whatever is
lost or doubled costs a call, never a wrong output. Processes take calls straight from here: a message for each would
only be a hint to look here, at a cost near that of the call.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import redis

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.calls import Output, Prompt, Spending
from evalq.evalcore.model.canonical import unpack
from evalq.evalcore.version import code_version
from evalq.workers.ledger.keys import SHARED, SweepKeys, as_written, texts
from evalq.workers.ledger.scripts import SWEEPS, Scripts
from evalq.workers.ledger.sweep_model import Result, SweepHeader
from evalq.workers.settings import Settings

_KEPT = 1000
"""Sweeps of which a process remembers what it made; of one that it comes back to later, a new sum begins."""
MAX_WIRE_BYTES = 64 << 20


class CallLedger(Scripts):
    """What those who call have of the ledger in Redis or Valkey, over one client (which returns bytes)."""

    family = SWEEPS

    def __init__(self, client: redis.Redis, settings: Settings, token: str = "") -> None:
        super().__init__(client, settings, token)
        self._tallies: dict[tuple[str, str], ProcessTally] = {}
        self._generations: dict[str, int] = {}
        self._lock = threading.Lock()
        self.regressed = False
        """Whether a server has forgotten some of the sweep claimed of last since this process named its calls."""

    def header(self, run: str) -> SweepHeader | None:
        """A sweep's header; None for one that the ledger does not know. Raises WireError."""
        with as_written(run, SHARED.sweep):
            data = self.client.hget(SweepKeys.of(run).meta, "sweep")
            return SweepHeader.of(run, data) if data else None

    def sweeps(self) -> list[SweepHeader]:
        """Open sweeps of this code version, and others that nobody has claimed of since they were closed."""
        headers = []
        for data in self.client.hvals(SHARED.sweeps):
            try:
                header = msgspec.json.decode(data, type=SweepHeader)
            except msgspec.DecodeError:
                # Skipped, not raised: one header that this code cannot read must not keep its calls from all other
                # sweeps.
                continue  # of another version: its own processes read it
            # Answers of two versions of the code would mix in one report.
            if header.code == code_version():
                headers.append(header)
        return headers

    def runs(self) -> list[str]:
        """Sweeps that are open, and those that were closed and may not have expired yet."""
        listed = self.client.hgetall(SHARED.sweeps)  # HKEYS is not a producer's right
        names = [*listed, *self.client.zrange(SHARED.closed, 0, -1)]
        return sorted(set(texts(names)))

    def further(self, run: str) -> list[str]:
        """Sweeps that ask about the outputs of ``run``, in the order in which they are made."""
        return [name for name in self.runs() if name.startswith(about(run, ""))]

    def means(self, target: str) -> dict[str, float]:
        """Mean tokens of a target's calls so far: {calls, prompt, completion}; empty before the first."""
        names = [f"answered {target}", f"tokens {target} prompt", f"tokens {target} completion"]
        # Prompt and completion can both be 0 with calls made: a target that tells no tokens has no mean.
        found = self.client.hmget(SHARED.calls, names)
        calls, prompt, completion = (int(value) if value and value.isdigit() else 0 for value in found)
        if not calls or not prompt + completion:
            return {}
        return {"calls": calls, "prompt": prompt / calls, "completion": completion / calls}

    def generation(self, run: str) -> int:
        """Which one of a sweep this process has told what it has; -1 for none."""
        return self._generations.get(run, -1)

    def keep_generation(self, run: str, generation: int) -> None:
        """This process has told what it has to this one of a sweep."""
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
        """(state, calls to make, calls to record again); also the sign of life that keeps what the holder has.

        ``mine`` names what the holder has, {call: attempts of it that have begun}, in flight or yet to be recorded:
        what else the ledger holds for it is handed out again. ``recent`` names what it recorded lately: of those, what
        the ledger has lost is to be recorded again.
        After one that names nothing see `regressed`.
        """
        # -1 says nothing, where 0 says that it has none.
        own = () if mine is None else (f"{call} {begun}" for call, begun in mine.items())
        names = [-1] if mine is None else [len(mine), *own, *recent]
        # The whole sum goes along with every sign of life, so a server that came back older has the right one at once.
        made = self._tally(run, holder).wire()
        state, generation, forgotten, *calls = self.step(
            "claim", run, run, holder, made, int(lease_seconds * 1000), most, *names
        )
        if mine is not None:  # named, so the server knows all that this generation of it may have forgotten
            self.keep_generation(run, generation)
        # A sweep of which it has named nothing yet can have forgotten nothing of this process's.
        self.regressed = generation != self._generations.get(run, generation)
        return state.decode(), [int(call) for call in calls], [int(call) for call in forgotten]

    def prompts(self, run: str, cases: Sequence[int]) -> dict[int, Prompt]:
        """The prompts of ``cases``. Raises WireError for one that evalq never wrote."""
        packed = self.client.hmget(SweepKeys.of(run).prompts, [str(case) for case in cases]) if cases else []
        try:
            return {
                case: msgspec.json.decode(unpacked(data), type=Prompt)
                for case, data in zip(cases, packed, strict=True)
                if data is not None
            }
        except msgspec.DecodeError as error:
            raise WireError(f"a prompt is not what evalq writes: {error}") from error

    def begin(self, run: str, holder: str, begun: Mapping[int, int]) -> set[int]:
        """Note that attempts begin, {call: the number of its attempt}; returns those calls that may be made.

        Of a process that dies later these count as lost: the rest of what it has was never paid.
        """
        rows = (field for item in begun.items() for field in item)
        return {int(call) for call in self.step("begin", run, holder, *rows)}

    def again(self, run: str, call: int) -> int:
        """Whether a failed call may be tried once more (it is counted then): 1 yes, 0 no budget, -1 no longer open."""
        return int(self.step("again", run, call))

    def commit(self, run: str, holder: str, target: str, results: Sequence[Result]) -> int:
        """Keep what became of calls; returns how many were new."""
        tally = self._tally(run, holder)
        # What is told again was added to the tally when it was recorded first.
        made = {
            result.output.call: _made(result.output, fatal=bool(result.fatal))
            for result in results
            if not result.retold
        }
        tally.count(made)
        rows = (field for result in results for field in result.row())
        fresh = int(self.step("commit", run, holder, tally.wire(), target, *rows))
        # Only when the server has answered: a commit whose answer is lost is made again, and must not count again.
        tally.confirm(made)
        return fresh

    def give_back(self, run: str, holder: str, returned: Mapping[int, int], *, leave: bool = False) -> None:
        """Give back calls, {call: attempts that were made of it, for nothing}; with ``leave``, all it has."""
        tally = self._tally(run, holder)
        made = {call: EndedAttempts(attempts) for call, attempts in returned.items() if attempts}
        tally.count(made)
        self.step("give_back", run, holder, tally.wire(), int(leave), *returned)
        tally.confirm(made)

    def _tally(self, run: str, holder: str) -> ProcessTally:
        with self._lock:
            tally = self._tallies.get((run, holder)) or ProcessTally()
            _keep(self._tallies, (run, holder), tally)
            return tally


def _made(output: Output, *, fatal: bool) -> EndedAttempts:
    """What comes of a call, as its process tells of itself."""
    return EndedAttempts(len(output.attempts), int(not fatal), output.cost, output.untold)


def about(run: str, name: str) -> str:
    """The id of the sweep ``name`` that asks about the outputs of ``run``."""
    return f"{run}.{name}"


def subject(sweep: str) -> str:
    """The run that a sweep belongs to: whose outputs it asks about, or its own."""
    return sweep.partition(".")[0]


def _keep(kept: dict[Any, Any], key: Any, value: Any) -> None:
    # Out and in again: the first entry is then the one that was used longest ago, and goes when there are too many.
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > _KEPT:
        del kept[next(iter(kept))]


def unpacked(data: bytes) -> bytes:
    """A prompt or an output as it was packed. Raises WireError."""
    try:
        return unpack(data, MAX_WIRE_BYTES)
    except WireError as error:
        raise WireError(f"a prompt or an output is not what evalq writes: {error}") from error


# -- what one process made for one sweep: it reports the sum again and again, so no server can lose it ---


class EndedAttempts(NamedTuple):
    """Attempts of a call that ended, the outputs that came of them (0 or 1), and what they cost.

    ``untold``: it was answered, and what that cost is not known.
    """

    attempts: int
    outputs: int = 0
    cost: float = 0.0
    untold: bool = False


class ProcessTally:
    """Attempts, outputs and cost so far, numbered by their changes: of two that were reported, the later counts.

    A ledger that adds up events counts some twice, when an answer is lost, and forgets others, when a replica that lags
    is promoted. A sum that its only writer always reports as a whole suffers from neither.
    """

    def __init__(self) -> None:
        # A name of its own: the numbers of a new sum begin at 1, and would be older than those of the sum before.
        self._name = secrets.token_hex(6)
        self._number = self._attempts = self._outputs = 0
        self._spending = Spending()
        self._telling: set[int] = set()
        self._lock = threading.Lock()

    def count(self, made: Mapping[int, EndedAttempts]) -> None:
        """Add what came of calls; what was counted and may not have been confirmed since counts once."""
        with self._lock:
            # A commit that is tried again after a lost answer brings the same calls: they are in the sum already.
            for call in made.keys() - self._telling:
                self._attempts += made[call].attempts
                self._outputs += made[call].outputs
                self._spending.add(made[call].cost, untold=made[call].untold)
                self._telling.add(call)
                self._number += 1

    def confirm(self, calls: Iterable[int]) -> None:
        """These are in the ledger: when they are made again, that counts."""
        with self._lock:
            self._telling.difference_update(calls)

    def wire(self) -> str:
        """Its name and the sums; empty before anything was made."""
        with self._lock:
            # All digits (!r): the script takes differences of such sums, and what is rounded away would add up.
            sums = f"{self._attempts} {self._outputs} {self._spending.total!r}"
            return f"{self._name} {self._number} {sums}" if self._number else ""
