"""Types for a sweep in the ledger: its header, status and results of calls; and histograms of times."""

from __future__ import annotations

import math
import secrets
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.calls import Output, Spending
from evalq.evalcore.model.canonical import pack
from evalq.workers.ledger.progress import state_of

SETTINGS = "settings"
"""The field of a header's ``asked`` with the digest of the target settings that the sweep needs."""

USER, SIMULATED = "user", "simulated"
"""Where ``asked`` says that cases have simulated users, and its value then."""

FORM, TEXT_FORM = "answers", "text"
"""Where ``asked`` says that an answer may be any text, and its value then: else it has to be JSON."""

_BY = "by "
"""The prefix of fields with the tally of a process."""


def differing_settings(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The settings that differ, each with both values of a target's `shown_settings`; "" if one side is not known."""
    if not then or not now:
        return ""
    names = (name for name in sorted({*then, *now}) if then.get(name) != now.get(name))
    return "; ".join(f"{name}: {then.get(name, 'not set')} then, {now.get(name, 'not set')} now" for name in names)


class SweepHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The facts of a sweep that calling processes need."""

    run: str
    target: str
    code: str
    cases: Annotated[int, msgspec.Meta(ge=1)]
    repeats: Annotated[int, msgspec.Meta(ge=1)]
    asked: dict[str, str] = {}
    """Further facts that identify the sweep, by name: a short text, or the digest of a long one."""

    def may_call(self, config: str) -> bool:
        """Whether a target with settings of this digest may serve the sweep."""
        return self.asked.get(SETTINGS, config) == config

    @property
    def has_users(self) -> bool:
        """Whether cases have simulated users."""
        return self.asked.get(USER) == SIMULATED

    @property
    def takes_text(self) -> bool:
        """Whether an answer may be any text, unless its target says otherwise."""
        return self.asked.get(FORM) == TEXT_FORM

    def differs(self, other: SweepHeader) -> str:
        """The differences from ``other`` in words; empty for the same sweep."""
        mine, theirs = ({"target": h.target, "code": h.code, "cases": str(h.cases), "repeats": str(h.repeats)} | h.asked
                        for h in (self, other))  # fmt: skip
        names = [name for name in dict.fromkeys([*mine, *theirs]) if mine.get(name) != theirs.get(name)]
        return ", ".join(f"{name} ({theirs.get(name, 'none')} there, {mine.get(name, 'none')} here)" for name in names)

    @classmethod
    def of(cls, run: str, data: bytes) -> SweepHeader:
        """Parse a sweep's header in the ledger. Raises WireError."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise WireError(f"sweep {run}: its header in the ledger is damaged: {error}") from error

    @property
    def total(self) -> int:
        """The number of calls."""
        return self.cases * self.repeats

    def has_call(self, output: Output) -> bool:
        """Whether ``output`` fits one of the sweep's calls; other programs may have written to the ledger."""
        return output.call < self.total and (output.repeat, output.target) == (output.call // self.cases, self.target)

    def by_case(self) -> Iterator[int]:
        """All calls in the order of outputs.jsonl: by case, then by repeat."""
        return (repeat * self.cases + case for case in range(self.cases) for repeat in range(self.repeats))


class SweepStatus(msgspec.Struct, frozen=True):
    """A sweep's progress. ``started`` counts attempts, ``repaid`` outputs that were paid and not recorded.

    ``waiting`` outputs are in the ledger. ``holders`` processes make ``busy`` calls; ``left``: there are more calls to
    hand out; ``halted`` cases get no more calls. A process that died began ``lost`` calls, which may have been paid.
    The driver collects outputs in ``folder``. ``driver`` drives the sweep, or did until ``driver_silent`` seconds ago;
    empty for none. ``generation`` rises each time the server is found to have lost data; while the sweep is
    ``unsettled``, processes report that data again. ``tallies``: {process: its tally}. ``under_way``: {process: its
    attempts that have not ended, including lost ones}, ``living`` processes first.
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
    def of(cls, meta: Sequence[bytes], *rest: Any) -> SweepStatus:
        """Parse the reply of the script ``poll`` for a known sweep. Raises ValueError or KeyError for others."""
        waiting, busy, recorded, halted, left, prompts, lost, silent, *sums, unsettled, attempts, names = rest
        living = tuple(names.decode().split())  # in the order that `evalq status` shows
        alive = frozenset(living)
        started, paid, spent = sums
        if not math.isfinite(float(spent)):  # JSON cannot hold it, and no budget could be checked
            raise ValueError(f"the cost is {spent.decode()}")
        words = [word.decode(errors="replace") for word in meta]
        facts = dict(zip(words[0::2], words[1::2], strict=True))
        counts = {name: int(facts.get(name, 0)) for name in ("recorded", "errors", "reclaimed", "generation")}
        tallies = {name.removeprefix(_BY): value for name, value in facts.items() if name.startswith(_BY)}
        under_way = {name.decode(): int(count) for name, count in zip(attempts[0::2], attempts[1::2], strict=True)}
        return cls(
            state=state_of(facts["state"]),
            reason=facts.get("reason", ""),
            started=started,
            # Outputs that were not paid here (from a cache or another run) are recorded, too: subtract them (`free`).
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
            tallies=tallies,
            # Living processes first: outputs do not name their process, and theirs are the next attempts to end.
            under_way=dict(sorted(under_way.items(), key=lambda item: (item[0] not in alive, item[0]))),
            living=living,
            **counts,
        )


class CollectedOutputs(msgspec.Struct, frozen=True):
    """Outputs collected from the ledger, up to running number ``upto``; ``last``: the SHA-1 of the last packed one."""

    outputs: list[Output] = []
    upto: int = 0
    last: str = ""


class FolderCounts(msgspec.Struct, frozen=True):
    """A run folder's counts of a sweep: attempts that ended, outputs that were paid, their cost, lost calls.

    ``free``: recorded outputs less paid ones; ``priced`` and ``unpriced``: answers whose cost is known or unknown.
    ``tallies`` and ``under_way`` are as in `SweepStatus`; attempts under way become lost if their process stays silent.
    ``answered``: attempts of paid outputs that were answered.
    """

    attempts: int = 0
    paid: int = 0
    cost: float = 0.0
    lost: int = 0
    free: int = 0
    tallies: dict[str, str] = {}
    under_way: dict[str, int] = {}
    priced: int = 0
    unpriced: int = 0
    answered: int = 0


class Result(msgspec.Struct, frozen=True):
    """The result of one call: its output, or why the whole sweep cannot go on (``fatal``).

    It is ``resent`` to a ledger that had lost it.
    """

    output: Output
    kind: str = ""
    fatal: str = ""
    resent: bool = False

    def row(self) -> tuple[object, ...]:
        """The arguments of the script ``commit`` for it."""
        output = self.output
        took = output.attempts[-1].latency_seconds if output.attempts else 0.0
        return (
            output.call,
            self.kind,
            self.fatal,
            # All digits of the float, so that the sum in the ledger equals the process's sum.
            repr(output.cost),
            sum(attempt.prompt_tokens or 0 for attempt in output.attempts),
            sum(attempt.completion_tokens or 0 for attempt in output.attempts),
            bucket(took),
            round(took * 1_000_000),
            pack(msgspec.json.encode(output)),
            int(self.resent),
            output.priced,
            output.answered,
        )


# -- histograms of times, with fixed buckets, as fields of one hash, whole numbers only ------------


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets, in seconds; one more has no bound."""


def bucket(seconds: float) -> str:
    """The bucket of a time: the lowest upper bound that is not below it."""
    at = bisect_left(SECONDS, seconds)
    return f"{SECONDS[at]:g}" if at < len(SECONDS) else "+Inf"


def counters(label: str, took: Mapping[str, float]) -> Iterator[str | int]:
    """Fields and what to add to them, in turn: "<name> <label> <bucket>" one, "<name> <label> sum" microseconds."""
    # Whole microseconds: HINCRBY adds them exactly in any order, HINCRBYFLOAT would not.
    for name, seconds in took.items():
        yield from (f"{name} {label} {bucket(seconds)}", 1, f"{name} {label} sum", round(seconds * 1_000_000))


# A process's tally of one sweep: it reports the whole sum again and again, so no server can lose it.


class EndedAttempts(NamedTuple):
    """Attempts of a call that ended, their outputs (0 or 1) and their cost.

    ``unpriced``: the target answered, and no cost of it is known.
    """

    attempts: int
    outputs: int = 0
    cost: float = 0.0
    unpriced: bool = False

    @classmethod
    def of(cls, output: Output, *, fatal: bool = False) -> EndedAttempts:
        """The attempts of an output; a ``fatal`` one is no output of its case."""
        return cls(len(output.attempts), int(not fatal), output.likely_cost, output.unpriced)


class ProcessTally:
    """Attempts, outputs and cost so far, numbered by changes: of two reported tallies, the later one counts.

    A ledger that adds up events counts some twice when a reply is lost, and loses some when a lagging replica is
    promoted. A sum that its only writer always reports as a whole has neither problem.
    """

    def __init__(self) -> None:
        # A unique name: the numbers of a new tally start at 1, and would look older than those of the one before.
        self.name = secrets.token_hex(6)
        self.attempts = 0
        self._number = self._outputs = 0
        self._spending = Spending()
        self._unconfirmed: set[int] = set()
        self._lock = threading.Lock()

    def count(self, ended: Mapping[int, EndedAttempts]) -> None:
        """Add the ended attempts of calls; a call that was counted and not confirmed since counts once."""
        with self._lock:
            # A commit that is retried after a lost reply brings the same calls: they are in the sum already.
            for call in ended.keys() - self._unconfirmed:
                self.attempts += ended[call].attempts
                self._outputs += ended[call].outputs
                self._spending.add(ended[call].cost, unknown=ended[call].unpriced)
                self._unconfirmed.add(call)
                self._number += 1

    def confirm(self, calls: Iterable[int]) -> None:
        """Note that the ledger has these calls: if they are made again, that counts."""
        with self._lock:
            self._unconfirmed.difference_update(calls)

    def sums(self) -> str:
        """The tally as ledger and folder keep it under its name: "number attempts outputs cost"."""
        with self._lock:
            # All digits (!r): the script takes differences of such sums, and rounding errors would add up.
            return f"{self._number} {self.attempts} {self._outputs} {self._spending.total!r}"

    def wire(self) -> str:
        """The tally as it is sent, "name number attempts outputs cost"; empty before the first call."""
        return f"{self.name} {self.sums()}" if self._number else ""
