"""Steer a sweep in mid-run: see its calls in flight, hold back or cancel cases, and set the limits of its target."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import redis

from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.calls import Output, Prompt, Used
from evalq.workers.ledger.keys import RateLimitKeys, SweepKeys, reading
from evalq.workers.ledger.scripts import server_micros
from evalq.workers.ledger.sweep_model import Result, SweepHeader
from evalq.workers.ledger.sweeps import SweepLedger

CANCELLED = "server: evalq ctl cancelled this case"
"""The error of a case that a user cancelled. It counts as lost: the agent is not to blame."""
_STEP = 500
_LIMIT_SECONDS = 3600
"""How long a limit stays that nobody calls by."""
_RATE, _IN_FLIGHT = "set_rate", "set_in_flight"


class CallInFlight(NamedTuple):
    """A call that a process has: its number, the process, the seconds since its first try began (None: it waits for its
    turn), and its tries so far, with those of other processes."""

    call: int
    holder: str
    seconds: float | None
    tries: int


class TargetLimits(NamedTuple):
    """Limits of a target that a user set: calls a minute, and calls in flight; None: those of the targets file."""

    rate: float | None
    in_flight: int | None


class Steering:
    """One sweep of the ledger. Raises UsageError for one that the ledger does not know."""

    def __init__(self, ledger: SweepLedger, run: str) -> None:
        header = ledger.header(run)
        if header is None:
            raise UsageError(f"{run}: the ledger has no live calls of it")
        self.header: SweepHeader = header
        self._ledger = ledger
        self._run = run
        self._keys = SweepKeys.of(run)
        self._client: Any = ledger.client

    def prompts(self) -> dict[int, Prompt]:
        """The prompts of all cases, by number."""
        found: dict[int, Prompt] = {}
        for first in range(0, self.header.cases, _STEP):
            found |= self._ledger.prompts(self._run, range(first, min(first + _STEP, self.header.cases)))
        return found

    def in_flight(self) -> list[CallInFlight]:
        """The calls that processes have, the oldest first."""
        with reading(self._run):
            held, begun, used = (
                self._client.hgetall(key) for key in (self._keys.held, self._keys.begun, self._keys.used)
            )
            now = server_micros(self._client) / 1000
            found = []
            for call, holder in held.items():
                at = used.get(b"at " + call)
                tries = int(begun.get(call, 0)) + Used.of(used.get(call, b"").decode()).tries
                seconds = None if at is None else max(0.0, (now - float(at)) / 1000)
                found.append(CallInFlight(int(call), holder.decode(), seconds, tries))
        return sorted(found, key=lambda each: (-(each.seconds or 0.0), each.call))

    def held_back(self) -> list[int]:
        """The cases that a user holds back."""
        return sorted(int(case) for case in self._client.smembers(self._keys.aside))

    def hold(self, cases: Collection[int], *, go: bool = False) -> None:
        """Make no further call of ``cases``, or let them go on."""
        self._ledger.step("hold", self._run, "go" if go else "hold", *sorted(cases))

    def requeue(self, cases: Collection[int]) -> int:
        """Have the calls in flight of ``cases`` made again at once; returns how many these are.

        Processes drop them within a second. A try that is dropped may have been paid, and counts as lost.
        """
        return int(self._ledger.step("requeue", self._run, *sorted(cases)))

    def cancel(self, cases: Mapping[int, Prompt], config: str) -> int:
        """Record all calls of ``cases`` that have no output as failed; returns how many these were.

        A call that is in flight is paid for, and its output is dropped. ``config`` is the digest of the target's
        settings.
        """
        header, results = self.header, list[Result]()
        for case, prompt in sorted(cases.items()):
            for call in range(case, header.total, header.cases):
                output = Output(
                    call, prompt.case, prompt.agent, call // header.cases, prompt.digest, header.target, config,
                    error=CANCELLED,
                )  # fmt: skip
                results.append(Result(output, "server"))
        recorded = self._ledger.has(self._run, [each.output.call for each in results])
        missing = [each for each in results if each.output.call not in recorded]
        if missing:
            self._ledger.commit(self._run, "evalq-ctl", header.target, missing)
            # The driver waits for no process that still has one.
            self._ledger.step("let_go", self._run, *(each.output.call for each in missing))
        return len(missing)


def set_limits(client: redis.Redis, pool: str, *, rate: float | None = None, in_flight: int | None = None) -> None:
    """Set limits of a target for the whole fleet, above those of its targets file: 0 is no limit, -1 sets the file's.

    They hold within a second, and until nobody has called for an hour.
    """
    key = RateLimitKeys.of(pool).state
    for name, value in ((_RATE, rate), (_IN_FLIGHT, in_flight)):
        if value is None:
            continue
        if not math.isfinite(value):
            raise UsageError(f"{value}: not a limit; give a number from 0 on, or -1 for that of the targets file")
        if value < 0:
            client.hdel(key, name)
        else:
            client.hset(key, name, repr(value))
    client.expire(key, _LIMIT_SECONDS, gt=True)
    client.expire(key, _LIMIT_SECONDS, nx=True)


def limits(client: Any, pool: str) -> TargetLimits:
    """The limits that a user set."""
    rate, in_flight = client.hmget(RateLimitKeys.of(pool).state, [_RATE, _IN_FLIGHT])
    return TargetLimits(None if rate is None else float(rate), None if in_flight is None else int(float(in_flight)))
