"""What the ledger has of a sweep, as types: its header, its status, results of calls; and histograms of times."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.calls import Output
from evalq.evalcore.model.canonical import pack
from evalq.workers.ledger.progress import state_of

SETTINGS = "settings"
"""Where a header's ``asked`` says which settings its target has to have, by their digest: others make no call of it."""

_BY = "by "
"""What begins the names of fields that say what a process made."""


class SweepHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What processes that call need to know of a sweep."""

    run: str
    target: str
    code: str
    cases: Annotated[int, msgspec.Meta(ge=1)]
    repeats: Annotated[int, msgspec.Meta(ge=1)]
    asked: dict[str, str] = {}
    """What else makes it this sweep and no other, by name: a short text, or the digest of a long one."""

    def may_call(self, config: str) -> bool:
        """Whether it may be called under settings of this digest."""
        return self.asked.get(SETTINGS, config) == config

    def differs(self, other: SweepHeader) -> str:
        """What of it is not as in ``other``, in words; empty for the same sweep."""
        mine, theirs = ({"target": h.target, "code": h.code, "cases": str(h.cases), "repeats": str(h.repeats)} | h.asked
                        for h in (self, other))  # fmt: skip
        names = [name for name in dict.fromkeys([*mine, *theirs]) if mine.get(name) != theirs.get(name)]
        return ", ".join(f"{name} ({theirs.get(name, 'none')} there, {mine.get(name, 'none')} here)" for name in names)

    @classmethod
    def of(cls, run: str, data: bytes) -> SweepHeader:
        """The header that the ledger has of a sweep. Raises WireError for what evalq never wrote."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise WireError(f"sweep {run}: its header is not what evalq writes: {error}") from error

    @property
    def total(self) -> int:
        """Calls in all."""
        return self.cases * self.repeats

    def has_call(self, output: Output) -> bool:
        """Whether ``output`` fits one of its calls: what lies in the ledger may be anybody's."""
        return output.call < self.total and (output.repeat, output.target) == (output.call // self.cases, self.target)

    def by_case(self) -> Iterator[int]:
        """All calls in the order of outputs.jsonl: a case's repeats after another's."""
        return (repeat * self.cases + case for case in range(self.cases) for repeat in range(self.repeats))


class SweepStatus(msgspec.Struct, frozen=True):
    """How a sweep stands. ``started`` counts attempts, ``repaid`` outputs that were paid and are not those recorded.

    ``waiting`` outputs lie in the ledger, ``busy`` calls are being made by ``holders`` processes, ``left``: more are to
    be handed out; ``halted`` cases get no more. ``lost`` calls were begun by a process that died: they may have been
    paid. ``folder`` is the one that its driver collects in. ``driver`` is who drives it, or did until it fell silent,
    ``driver_silent`` seconds ago; empty for nobody. ``generation`` is another, higher number each time that its
    server was found to have forgotten some of it; while it is ``unsettled``, that is being told again. ``tallies``:
    what each process made. ``under_way``: {process: attempts of its own that have not ended, lost ones too},
    those of ``living`` processes, which are heard of, first.
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
    lost: int = 0
    folder: str = ""
    driver: str = ""
    driver_silent: float = 0.0
    generation: int = 0
    unsettled: bool = False
    tallies: dict[str, str] = {}
    under_way: dict[str, int] = {}
    living: tuple[str, ...] = ()

    @classmethod
    def of(cls, meta: Sequence[bytes], *found: Any) -> SweepStatus:
        """What the script ``look`` answers of a sweep that is known. Raises ValueError or KeyError for others."""
        waiting, busy, recorded, halted, left, prompts, lost, silent, *sums, unsettled, held, names = found
        living = tuple(names.decode().split())  # in the order that `evalq status` shows
        heard = frozenset(living)
        started, paid, spent = sums
        if not math.isfinite(float(spent)):  # no JSON could tell it, and no budget holds against it
            raise ValueError(f"what it has cost is {spent.decode()}")
        words = [word.decode(errors="replace") for word in meta]
        facts = dict(zip(words[0::2], words[1::2], strict=True))
        counts = {name: int(facts.get(name, 0)) for name in ("recorded", "errors", "reclaimed", "generation")}
        by = {name.removeprefix(_BY): value for name, value in facts.items() if name.startswith(_BY)}
        at = {name.decode(): int(attempts) for name, attempts in zip(held[0::2], held[1::2], strict=True)}
        return cls(
            state=state_of(facts["state"]),
            reason=facts.get("reason", ""),
            started=started,
            # Outputs without a payment here (from a cache or another run) are recorded as well: `free` takes them out
            # again.
            repaid=max(0, paid - recorded + int(facts.get("free", 0))),
            spent=float(spent),
            waiting=waiting,
            busy=busy,
            holders=len(living),
            known=recorded,
            halted=halted,
            left=bool(left),
            prompts=prompts,
            lost=lost,
            folder=facts.get("place", ""),
            driver=facts.get("driver", ""),
            driver_silent=max(0, int(silent)) / 1000 if "driver" in facts else 0.0,
            unsettled=bool(unsettled),
            tallies=by,
            # The next attempts to end are those of the living, of whatever process their outputs do not tell.
            under_way=dict(sorted(at.items(), key=lambda item: (item[0] not in heard, item[0]))),
            living=living,
            **counts,
        )


class CollectedOutputs(msgspec.Struct, frozen=True):
    """Outputs that wait in the ledger, up to running number ``upto``; ``last``: the SHA-1 of the last, packed."""

    outputs: list[Output] = []
    upto: int = 0
    last: str = ""


class FolderCounts(msgspec.Struct, frozen=True):
    """What a run folder knows of a sweep: attempts that ended, outputs that were paid, what those cost, calls lost.

    ``free``: outputs that it has less those that were paid; ``told`` and ``untold``: those that were answered, and what
    that cost is known, or is not. ``tallies`` and ``under_way``: as in `SweepStatus`; attempts
    under way are no lost ones, and become that where their process is not heard of.
    """

    attempts: int = 0
    paid: int = 0
    cost: float = 0.0
    lost: int = 0
    free: int = 0
    tallies: dict[str, str] = {}
    under_way: dict[str, int] = {}
    told: int = 0
    untold: int = 0


class Result(msgspec.Struct, frozen=True):
    """What became of one call: its output, or why the whole sweep cannot go on (``fatal``).

    It is ``retold`` to a ledger that had lost it.
    """

    output: Output
    kind: str = ""
    fatal: str = ""
    retold: bool = False

    def row(self) -> tuple[object, ...]:
        """What the script ``commit`` is given of it."""
        output, last = self.output, self.output.attempts[-1]
        return (
            output.call,
            self.kind,
            self.fatal,
            # All digits of the float, so that the sum in the ledger is that of the process.
            repr(output.cost),
            sum(attempt.prompt_tokens or 0 for attempt in output.attempts),
            sum(attempt.completion_tokens or 0 for attempt in output.attempts),
            bucket(last.latency_seconds),
            round(last.latency_seconds * 1_000_000),
            pack(msgspec.json.encode(output)),
            int(self.retold),
            output.priced,
        )


# -- histograms of times, with fixed buckets, as fields of one hash, whole numbers only ------------


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets, in seconds; one more has no bound."""


def bucket(seconds: float) -> str:
    """The bucket a time falls into, by its upper bound: the lowest that is not below it."""
    at = bisect_left(SECONDS, seconds)
    return f"{SECONDS[at]:g}" if at < len(SECONDS) else "+Inf"


def counters(label: str, took: Mapping[str, float]) -> Iterator[str | int]:
    """Fields and what to add to them, in turn: "<name> <label> <bucket>" one, "<name> <label> sum" microseconds."""
    # Whole microseconds: HINCRBY adds them exactly in any order, HINCRBYFLOAT would not.
    for name, seconds in took.items():
        yield from (f"{name} {label} {bucket(seconds)}", 1, f"{name} {label} sum", round(seconds * 1_000_000))
