"""The ledger of live calls: which call of a sweep is wanted, made by whom, and recorded.

Call number n of a sweep is repeat n // cases of case n % cases. The first recorded output of a call stays; whatever is
lost or doubled costs a call, never a wrong output. Processes take calls straight from here: a message for each would
only be a hint to look here, at a cost near that of the call.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
import redis

from evalq.evalcore.errors import UsageError, WireError
from evalq.evalcore.model.calls import Output, Prompt
from evalq.evalcore.model.packing import pack, unpack
from evalq.evalcore.version import code_version
from evalq.workers.ledger.keys import SHARED, SweepKeys
from evalq.workers.ledger.scripts import STEP, SWEEPS, Scripts
from evalq.workers.ledger.sweep_model import Collected, Known, Result, SweepHeader, SweepLook
from evalq.workers.ledger.tally import Made, Tally
from evalq.workers.settings import Settings

__all__ = ["SweepLedger", "about", "subject"]

_PAUSE_LOOKS, _PAUSE_SECONDS = 2, 0.5
"""For so many looks, and no less long, a server that lost calls offers none, so that all may tell what they have."""
_KEPT = 1000
"""Sweeps of which a process remembers what it made; of one that it comes back to later, a new sum begins."""
_PAGE = 500
MAX_WIRE_BYTES = 64 << 20


class SweepLedger(Scripts):
    """All that evalq keeps of sweeps in Redis or Valkey, over one client (which returns bytes).

    ``token`` is that of a process that drives sweeps; where another one does, its steps raise Driven.
    """

    family = SWEEPS

    def __init__(self, client: redis.Redis, settings: Settings, token: str = "") -> None:
        super().__init__(client, settings, token)
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._generations: dict[str, int] = {}
        self._lock = threading.Lock()
        self.fell = False
        """Whether a server has forgotten some of the sweep claimed of last since this process named its calls."""

    # -- the producer's side -----------------------------------------------------------------------------

    def open(
        self,
        header: SweepHeader,
        max_calls: int = 0,
        max_cost: float = 0.0,
        unattended_seconds: float = 0.0,
        known: Known | None = None,
        *,
        before: str = "",
        place: str = "",
        how: Literal["on", "keep", "anew"] = "on",
    ) -> str:
        """Begin a sweep or resume it, under these budgets (0: none), as its driver; returns the state it is in.

        What the run folder has (``known``) counts against the budgets, whatever the server has lost. Without a
        producer's `look` for ``unattended_seconds`` (0: for ever) no more calls are handed out.
        ``before`` is the token of the folder's last driver, which is known to be dead. What is done stays so unless it
        goes on "anew", what was cancelled always; "keep" leaves what was paused, too.
        Raises Driven where another process drives it, UsageError where the ledger has another sweep of this id.
        """
        known = known or Known()
        budgets = (max_calls, max_cost, int(unattended_seconds * 1000))
        facts = (msgspec.json.encode(header, order="sorted"), header.cases, header.total)
        driver = (before, int(self.settings.driver_seconds * 1000), how, place)
        pause = round(1000 * max(_PAUSE_SECONDS, _PAUSE_LOOKS * self.settings.look_seconds))
        sums = (known.attempts, known.paid, repr(known.cost), known.lost, known.free)
        under_way = [text for item in known.under_way.items() for text in item]
        told = [len(known.under_way), *under_way, *(text for item in known.tallies.items() for text in item)]
        state, *other = self.step("open", header.run, header.run, *facts, *budgets, *driver, pause, *sums, *told)
        if state == b"differs":
            differs = header.differs(SweepHeader.of(header.run, other[0])) or "its form"
            raise UsageError(f"sweep {header.run} is another one in the ledger: {differs}; choose another --once key")
        _keep(self._generations, header.run, other[0])
        return str(state.decode())

    def generation(self, run: str) -> int:
        """Which one of a sweep this process has told what it has; -1 for none."""
        return self._generations.get(run, -1)

    def offer(self, run: str, prompts: Sequence[Prompt], first: int = 0) -> int:
        """Give the prompts of cases ``first`` on; returns how many the ledger has then, -1 for an unknown sweep."""
        flat: list[Any] = []
        for number, prompt in enumerate(prompts, start=first):
            flat += [number, pack(msgspec.json.encode(prompt))]
        return int(self.step("offer", run, *flat))

    def restore(self, run: str, calls: Sequence[int]) -> None:
        """Count calls as recorded whose outputs the run folder has."""
        self.in_steps("restore", run, ((call,) for call in calls))

    def forget(self, run: str, calls: Sequence[int]) -> None:
        """Have calls made (again) that the ledger counts as recorded."""
        self.in_steps("forget", run, ((call,) for call in calls))

    def halt(self, run: str, cases: Iterable[int], *, go: bool = False) -> None:
        """Make no more calls of these cases; with ``go``, make them again."""
        self.step("halt", run, "go" if go else "halt", *cases)

    def look(self, run: str, *, attending: bool = False, free: int = 0) -> SweepLook | None:
        """How a sweep stands; None for one the ledger does not know.

        Its driver looks ``attending``, and stays that; ``free`` is as in `Known`.
        """
        found = self.step("look", run, run, int(attending), self.generation(run), free)
        return SweepLook.of(*found) if found[0] else None

    def collect(self, run: str, most: int) -> Collected:
        """Recorded outputs that `trim` has not taken away, the oldest first: fewer than ``most`` where they are long.

        Raises WireError for what evalq never wrote.
        """
        number, *packed = self.step("collect", run, most)
        outputs, size = [], 0
        for data in packed:
            wire = _unpacked(data)
            outputs.append(Output.from_wire(wire))
            size += len(wire)
            if size > MAX_WIRE_BYTES:  # long answers come in smaller steps
                break
        if not outputs:
            return Collected()
        # For `trim`: a server that came back older may have other outputs under these numbers by then.
        last = hashlib.sha1(packed[len(outputs) - 1], usedforsecurity=False).hexdigest()
        return Collected(outputs, number + len(outputs), last)

    def trim(self, run: str, collected: Collected) -> None:
        """Forget outputs that are safe in the run folder; those that have other numbers by now stay."""
        if collected.outputs:
            self.step("trim", run, collected.upto, collected.last)

    def waiting(self, run: str) -> Iterator[Output]:
        """All outputs in the ledger, which stay there. Raises WireError."""
        first = 0
        while packed := self.client.lrange(SweepKeys.of(run).outbox, first, first + _PAGE - 1):
            for data in packed:
                yield Output.from_wire(_unpacked(data))
            first += len(packed)

    def has(self, run: str, calls: Sequence[int]) -> set[int]:
        """Those of ``calls`` that the ledger counts as recorded."""
        found: set[int] = set()
        for start in range(0, len(calls), STEP):
            some = calls[start : start + STEP]
            pipe = self.client.pipeline(transaction=False)
            for call in some:
                pipe.sismember(SweepKeys.of(run).recorded, call)
            found |= {call for call, there in zip(some, pipe.execute(), strict=True) if there}
        return found

    def delete(self, run: str) -> None:
        """Remove all that is known of a sweep."""
        self.client.delete(*SweepKeys.of(run))
        self.client.hdel(SHARED.sweeps, run)
        self.client.zrem(SHARED.closed, run)

    def means(self, target: str) -> dict[str, float]:
        """Mean tokens of a target's calls so far: {calls, prompt, completion}; empty before the first."""
        names = [f"answered {target}", f"tokens {target} prompt", f"tokens {target} completion"]
        calls, prompt, completion = (int(value or 0) for value in self.client.hmget(SHARED.calls, names))
        if not calls or not prompt + completion:
            return {}
        return {"calls": calls, "prompt": prompt / calls, "completion": completion / calls}

    # -- the side of those who call ----------------------------------------------------------------------

    def header(self, run: str) -> SweepHeader | None:
        """A sweep's header; None for one that the ledger does not know. Raises WireError."""
        data = self.client.hget(SweepKeys.of(run).meta, "sweep")
        return SweepHeader.of(run, data) if data else None

    def sweeps(self) -> list[SweepHeader]:
        """Open sweeps of this code version, and others that nobody has claimed of since they were closed."""
        headers = []
        for data in self.client.hvals(SHARED.sweeps):
            try:
                header = msgspec.json.decode(data, type=SweepHeader)
            except msgspec.DecodeError:
                continue  # of another version: its own processes read it
            if header.code == code_version():
                headers.append(header)
        return headers

    def runs(self) -> list[str]:
        """Sweeps that are open, and those that were closed and may not have expired yet."""
        listed = self.client.hgetall(SHARED.sweeps)  # HKEYS is not a producer's right
        names = [*listed, *self.client.zrange(SHARED.closed, 0, -1)]
        return sorted({name.decode() for name in names})

    def further(self, run: str) -> list[str]:
        """Sweeps that ask about the outputs of ``run``, in the order in which they are made."""
        return [name for name in self.runs() if name.startswith(about(run, ""))]

    def claim(
        self,
        run: str,
        holder: str,
        most: int,
        lease_seconds: float,
        mine: Collection[int] | None = None,
        told: Collection[int] = (),
    ) -> tuple[str, list[int], list[int]]:
        """(state, calls to make, calls to record again); also the sign of life that keeps what the holder has.

        ``mine`` names what the holder has, in flight or yet to be recorded: what else the ledger holds for it is handed
        out again. ``told`` names what it recorded lately: of those, what the ledger has lost is to be recorded again.
        After one that names nothing see `fell`.
        """
        names = [-1] if mine is None else [len(mine), *mine, *told]
        made = self._tally(run, holder).wire()
        state, generation, untold, *calls = self.step(
            "claim", run, run, holder, made, int(lease_seconds * 1000), most, *names
        )
        if mine is not None:  # named, so the server knows all that this generation of it may have forgotten
            _keep(self._generations, run, generation)
        self.fell = generation != self._generations.get(run, generation)
        return state.decode(), [int(call) for call in calls], [int(call) for call in untold]

    def prompts(self, run: str, cases: Sequence[int]) -> dict[int, Prompt]:
        """The prompts of ``cases``. Raises WireError for one that evalq never wrote."""
        packed = self.client.hmget(SweepKeys.of(run).prompts, [str(case) for case in cases]) if cases else []
        try:
            return {
                case: msgspec.json.decode(_unpacked(data), type=Prompt)
                for case, data in zip(cases, packed, strict=True)
                if data is not None
            }
        except msgspec.DecodeError as error:
            raise WireError(f"a prompt is not what evalq writes: {error}") from error

    def again(self, run: str, call: int) -> int:
        """Whether a failed call may be tried once more (it is counted then): 1 yes, 0 no budget, -1 no longer open."""
        return int(self.step("again", run, call))

    def commit(self, run: str, holder: str, target: str, results: Sequence[Result]) -> int:
        """Keep what became of calls; returns how many were new."""
        tally = self._tally(run, holder)
        made = {
            result.output.call: _made(result.output, fatal=bool(result.fatal))
            for result in results
            if not result.retold
        }
        tally.count(made)
        rows = (field for result in results for field in result.row())
        fresh = int(self.step("commit", run, holder, tally.wire(), target, *rows))
        # Only when the server has answered: a commit whose answer is lost is made again, and must not count again.
        tally.told(made)
        return fresh

    def give_back(self, run: str, holder: str, returned: Mapping[int, int], *, leave: bool = False) -> None:
        """Give back calls, {call: attempts that were made of it, for nothing}; with ``leave``, all it has."""
        tally = self._tally(run, holder)
        made = {call: Made(attempts) for call, attempts in returned.items() if attempts}
        tally.count(made)
        self.step("give_back", run, holder, tally.wire(), int(leave), *returned)
        tally.told(made)

    def _tally(self, run: str, holder: str) -> Tally:
        with self._lock:
            tally = self._tallies.get((run, holder)) or Tally()
            _keep(self._tallies, (run, holder), tally)
            return tally


def _made(output: Output, *, fatal: bool) -> Made:
    """What comes of a call, as its process tells of itself."""
    return Made(len(output.attempts), int(not fatal), output.cost, output.untold)


def about(run: str, name: str) -> str:
    """The id of the sweep ``name`` that asks about the outputs of ``run``."""
    return f"{run}.{name}"


def subject(sweep: str) -> str:
    """The run that a sweep belongs to: whose outputs it asks about, or its own."""
    return sweep.partition(".")[0]


def _keep(kept: dict[Any, Any], key: Any, value: Any) -> None:
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > _KEPT:
        del kept[next(iter(kept))]


def _unpacked(data: bytes) -> bytes:
    try:
        return unpack(data, MAX_WIRE_BYTES)
    except WireError as error:
        raise WireError(f"a prompt or an output is not what evalq writes: {error}") from error
