"""What a sweep of live calls is, how it stands, and what comes of its calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from evalq.evalcore.model.calls import Output

__all__ = ["Collected", "Known", "Result", "SweepHeader", "SweepLook"]


class SweepHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What processes that call need to know of a sweep."""

    run: str
    target: str
    code: str
    cases: Annotated[int, msgspec.Meta(ge=1)]
    repeats: Annotated[int, msgspec.Meta(ge=1)]
    asked: dict[str, str] = {}
    """What else makes it this sweep and no other, by name: a short text, or the digest of a long one."""

    def differs(self, other: SweepHeader) -> str:
        """What of it is not as in ``other``, in words; empty for the same sweep."""
        mine, theirs = ({"target": h.target, "code": h.code, "cases": str(h.cases), "repeats": str(h.repeats)} | h.asked
                        for h in (self, other))  # fmt: skip
        names = [name for name in dict.fromkeys([*mine, *theirs]) if mine.get(name) != theirs.get(name)]
        return ", ".join(f"{name} ({theirs.get(name, 'none')} there, {mine.get(name, 'none')} here)" for name in names)

    @property
    def total(self) -> int:
        """Calls in all."""
        return self.cases * self.repeats

    def by_case(self) -> Iterator[int]:
        """All calls in the order of outputs.jsonl: a case's repeats after another's."""
        return (repeat * self.cases + case for case in range(self.cases) for repeat in range(self.repeats))


class SweepLook(msgspec.Struct, frozen=True):
    """How a sweep stands. ``started`` counts attempts, ``repaid`` outputs that were paid and are not those recorded.

    ``waiting`` outputs lie in the ledger, ``busy`` calls are being made by ``holders`` processes, ``left``: more are to
    be handed out; ``halted`` cases get no more. ``lost`` calls were begun by a process that died: they may have been
    paid. ``place`` is the folder that its driver collects in. ``driver`` is who drives it, or did until it fell silent,
    ``driver_silent`` seconds ago; empty for nobody. ``generation`` counts how often its server was found to have
    forgotten some of it; while it is ``unsettled``, that is being told again. ``tallies``: what each process made.
    ``under_way``: {process: attempts of its own that have not ended, lost ones too}.
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
    place: str = ""
    driver: str = ""
    driver_silent: float = 0.0
    generation: int = 0
    unsettled: bool = False
    tallies: dict[str, str] = {}
    under_way: dict[str, int] = {}


class Collected(msgspec.Struct, frozen=True):
    """Outputs that wait in the ledger, up to running number ``upto``; ``last``: the SHA-1 of the last, packed."""

    outputs: list[Output] = []
    upto: int = 0
    last: str = ""


class Known(msgspec.Struct, frozen=True):
    """What a run folder knows of a sweep: attempts that ended, outputs that were paid, what those cost, calls lost.

    ``free``: outputs that it has less those that were paid. ``tallies`` and ``under_way``: as in `SweepLook`; attempts
    under way are no lost ones, and become that where their process is not heard of.
    """

    attempts: int = 0
    paid: int = 0
    cost: float = 0.0
    lost: int = 0
    free: int = 0
    tallies: dict[str, str] = {}
    under_way: dict[str, int] = {}


class Result(msgspec.Struct, frozen=True):
    """What became of one call: its output, or why the whole sweep cannot go on (``fatal``).

    It is ``retold`` to a ledger that had lost it.
    """

    output: Output
    kind: str = ""
    fatal: str = ""
    retold: bool = False
