"""The ledger of live calls: which call of a sweep is wanted, made by whom, and recorded.

Call number n of a sweep is repeat n // cases of case n % cases. The first recorded output of a call stays; whatever is
lost or doubled costs a call, never a wrong output. Processes take calls straight from here: a message for each would
only be a hint to look here, at a cost near that of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

import msgspec
import redis
import zstandard

from evalcore.calls import Output, Prompt
from evalcore.errors import WireError
from evalcore.life import RunState, leading_to
from evalcore.version import code_version
from workers.measures import bucket
from workers.settings import Settings

__all__ = ["TOTALS", "Calls", "Result", "SweepHeader", "SweepLook", "keys_of"]

PREFIX = "evalq:"
SWEEPS = PREFIX + "sweeps"
TOTALS = PREFIX + "calls"
_PARTS = ("meta", "prompts", "again", "holders", "held", "recorded", "outbox", "halted", "left")
_STEP = 5000
MAX_WIRE_BYTES = 64 << 20


class SweepHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What processes that call need to know of a sweep."""

    run: str
    target: str
    code: str
    cases: Annotated[int, msgspec.Meta(ge=1)]
    repeats: Annotated[int, msgspec.Meta(ge=1)]

    @property
    def total(self) -> int:
        """Calls in all."""
        return self.cases * self.repeats

    def by_case(self) -> Iterator[int]:
        """All calls in the order of outputs.jsonl: a case's repeats after another's."""
        return (repeat * self.cases + case for case in range(self.cases) for repeat in range(self.repeats))


class SweepLook(msgspec.Struct, frozen=True):
    """How a sweep stands. ``started`` counts attempts, ``repaid`` outputs of calls that were recorded already.

    ``waiting`` outputs lie in the ledger, ``busy`` calls are being made by ``holders`` processes, ``left``: more are to
    be handed out; ``halted`` cases get no more.
    """

    state: str
    reason: str = ""
    started: int = 0
    recorded: int = 0
    errors: int = 0
    repaid: int = 0
    reclaimed: int = 0
    spent: float = 0.0
    waiting: int = 0
    busy: int = 0
    holders: int = 0
    known: int = 0
    halted: int = 0
    left: bool = False
    prompts: int = 0


class Result(msgspec.Struct, frozen=True):
    """What became of one call: its output, or why the whole sweep cannot go on (``fatal``)."""

    output: Output
    kind: str = ""
    fatal: str = ""


@cache
def _script(name: str) -> str:
    lua = files("workers") / "lua"
    prelude, body = (lua.joinpath("calls", f"{part}.lua").read_text() for part in ("prelude", name))
    return f"{prelude}\nlocal function body()\n{body}\nend\n{lua.joinpath('epilogue.lua').read_text()}"


class Calls:
    """All that evalq keeps of sweeps in Redis or Valkey, over one client (which returns bytes)."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self.client: Any = client
        self._settings = settings
        self._scripts: dict[str, Any] = {}

    def _run(self, script: str, run: str, *args: Any) -> Any:
        if script not in self._scripts:
            self._scripts[script] = self.client.register_script(_script(script))
        return self._scripts[script](keys=keys_of(run), args=[self._settings.keep_ms, *args])

    # -- the producer's side -----------------------------------------------------------------------------

    def open(
        self,
        header: SweepHeader,
        max_calls: int = 0,
        max_cost: float = 0.0,
        unattended_seconds: float = 0.0,
        paid: tuple[int, int, float] = (0, 0, 0.0),
    ) -> None:
        """Begin a sweep or go on with it, under these budgets (0: none).

        ``paid`` is what the run folder knows of: attempts, outputs and their cost; a server that lost the sweep, or has
        an older state of it, counts them against the budgets again.
        Without a producer's `look` for ``unattended_seconds`` (0: for ever) no more calls are handed out.
        """
        budgets = (max_calls, max_cost, int(unattended_seconds * 1000))
        facts = (msgspec.json.encode(header), header.cases, header.total)
        self._run("open", header.run, *facts, *budgets, SWEEPS, header.run, *paid)

    def offer(self, run: str, prompts: Sequence[Prompt], first: int = 0) -> int:
        """Give the prompts of cases ``first`` on; returns how many the ledger has then, -1 for an unknown sweep."""
        flat: list[Any] = []
        for number, prompt in enumerate(prompts, start=first):
            flat += [number, zstandard.ZstdCompressor(level=1).compress(msgspec.json.encode(prompt))]
        return int(self._run("offer", run, *flat))

    def restore(self, run: str, calls: Sequence[int]) -> None:
        """Count calls as recorded whose outputs the run folder has."""
        for start in range(0, len(calls), _STEP):
            self._run("restore", run, *calls[start : start + _STEP])

    def forget(self, run: str, calls: Sequence[int]) -> None:
        """Have calls made (again) that the ledger counts as recorded."""
        for start in range(0, len(calls), _STEP):
            self._run("forget", run, *calls[start : start + _STEP])

    def halt(self, run: str, cases: Iterable[int], *, go: bool = False) -> None:
        """Make no more calls of these cases; with ``go``, make them again."""
        self._run("halt", run, "go" if go else "halt", *cases)

    def look(self, run: str, *, attending: bool = False) -> SweepLook | None:
        """How a sweep stands; None for one the ledger does not know. Its producer looks ``attending``."""
        meta, waiting, busy, holders, known, halted, left, prompts = self._run("look", run, int(attending))
        if not meta:
            return None
        facts = {key.decode(): value.decode() for key, value in zip(meta[0::2], meta[1::2], strict=True)}
        counts = {name: int(facts.get(name, 0)) for name in ("started", "recorded", "errors", "repaid", "reclaimed")}
        return SweepLook(
            state=facts["state"],
            reason=facts.get("reason", ""),
            spent=float(facts.get("spent", 0)),
            waiting=waiting,
            busy=busy,
            holders=holders,
            known=known,
            halted=halted,
            left=bool(left),
            prompts=prompts,
            **counts,
        )

    def collect(self, run: str, most: int, first: int = 0) -> list[Output]:
        """Recorded outputs from the ``first`` on that `trim` has not taken away, the oldest first: fewer than ``most``
        where they are long.

        Raises WireError for what evalq never wrote.
        """
        packed = self.client.lrange(keys_of(run)[6], first, first + most - 1)
        outputs, size = [], 0
        for data in packed:
            wire = _unpacked(data)
            outputs.append(Output.from_wire(wire))
            size += len(wire)
            if size > MAX_WIRE_BYTES:  # long answers come in smaller steps
                break
        return outputs

    def trim(self, run: str, count: int) -> None:
        """Forget the oldest ``count`` outputs, which are safe in the run folder."""
        if count:
            self.client.ltrim(keys_of(run)[6], count, -1)

    def close(self, run: str, state: RunState, reason: str = "") -> str:
        """Move a sweep on to where the table of `evalcore.life` lets it go; returns the state it is in then.

        "gone" for a sweep the ledger does not know.
        """
        result: bytes = self._run("close", run, state, reason, *leading_to(state))
        return result.decode()

    def erase(self, run: str) -> None:
        """Remove all that is known of a sweep."""
        self.client.delete(*keys_of(run))
        self.client.hdel(SWEEPS, run)

    def means(self, target: str) -> dict[str, float]:
        """Mean tokens of a target's calls so far: {calls, prompt, completion}; empty before the first."""
        names = [f"answered {target}", f"tokens {target} prompt", f"tokens {target} completion"]
        calls, prompt, completion = (int(value or 0) for value in self.client.hmget(TOTALS, names))
        if not calls or not prompt + completion:
            return {}
        return {"calls": calls, "prompt": prompt / calls, "completion": completion / calls}

    # -- the side of those who call ----------------------------------------------------------------------

    def header(self, run: str) -> SweepHeader | None:
        """A sweep's header; None for one that the ledger does not know. Raises WireError."""
        data = self.client.hget(keys_of(run)[0], "sweep")
        try:
            return msgspec.json.decode(data, type=SweepHeader) if data else None
        except msgspec.DecodeError as error:
            raise WireError(f"sweep {run}: its header is not what evalq writes: {error}") from error

    def sweeps(self) -> list[SweepHeader]:
        """Open sweeps of this code version, and others that nobody has claimed of since they were closed."""
        headers = []
        for data in self.client.hvals(SWEEPS):
            try:
                header = msgspec.json.decode(data, type=SweepHeader)
            except msgspec.DecodeError:
                continue
            if header.code == code_version():
                headers.append(header)
        return headers

    def runs(self) -> list[str]:
        """Sweeps that are open, or that nobody has claimed of since they were closed."""
        return [name.decode() for name in self.client.hkeys(SWEEPS)]

    def claim(self, run: str, holder: str, most: int, lease_seconds: float) -> tuple[str, list[int]]:
        """(state, calls to make); also the sign of life that keeps what the holder has."""
        state, *calls = self._run("claim", run, holder, int(lease_seconds * 1000), most, SWEEPS, run)
        return state.decode(), [int(call) for call in calls]

    def prompts(self, run: str, cases: Sequence[int]) -> dict[int, Prompt]:
        """The prompts of ``cases``. Raises WireError for one that evalq never wrote."""
        packed = self.client.hmget(keys_of(run)[1], [str(case) for case in cases]) if cases else []
        try:
            return {
                case: msgspec.json.decode(_unpacked(data), type=Prompt)
                for case, data in zip(cases, packed, strict=True)
                if data is not None
            }
        except msgspec.DecodeError as error:
            raise WireError(f"a prompt is not what evalq writes: {error}") from error

    def again(self, run: str) -> int:
        """Whether a failed call may be tried once more (it is counted then): 1 yes, 0 no budget, -1 no longer open."""
        return int(self._run("again", run))

    def record(self, run: str, holder: str, target: str, results: Sequence[Result]) -> int:
        """Keep what became of calls; returns how many were new."""
        flat: list[Any] = []
        for result in results:
            output, last = result.output, result.output.attempts[-1]
            flat += [
                output.call,
                result.kind,
                result.fatal,
                repr(output.cost),
                sum(attempt.prompt_tokens or 0 for attempt in output.attempts),
                sum(attempt.completion_tokens or 0 for attempt in output.attempts),
                bucket(last.latency_seconds),
                round(last.latency_seconds * 1_000_000),
                zstandard.ZstdCompressor(level=1).compress(msgspec.json.encode(output)),
            ]
        return int(self._run("record", run, holder, TOTALS, target, *flat))

    def give_back(self, run: str, holder: str, unmade: Mapping[int, bool], *, leave: bool = False) -> None:
        """Give back calls that are not made, {call: no attempt was made}; with ``leave``, all that the holder has."""
        flat = [value for call, untried in unmade.items() for value in (call, int(untried))]
        self._run("back", run, holder, int(leave), *flat)


def keys_of(run: str) -> list[str]:
    """All keys of a sweep, in the order the scripts know them by."""
    return [f"{PREFIX}sweep:{{{run}}}:{part}" for part in _PARTS]


def _unpacked(data: bytes) -> bytes:
    try:
        if zstandard.frame_content_size(data) not in range(MAX_WIRE_BYTES):
            raise WireError("a prompt or an output is longer than evalq writes any")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_WIRE_BYTES)
    except zstandard.ZstdError as error:
        raise WireError(f"a prompt or an output is not what evalq writes: {error}") from error
