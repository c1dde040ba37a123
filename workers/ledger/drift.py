"""Drift over the runs of each suite, beside its history: a chain for each specification, counted by who ends a run.

A chain is read, counted with the run in this process, and written back if nobody wrote meanwhile, so that two runs
that end at one instant both count. A run counts once, by its id, however often it is finished.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import redis

from evalq.evalcore.compare.drift_record import SCHEMA, DriftRecord, DriftState, approved, counted, key_of, state_of
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.errors import InfrastructureError, WireError
from evalq.evalcore.model.packing import pack, unpack
from evalq.workers.ledger.history import History, HistoryKey
from evalq.workers.ledger.keys import HistoryKeys
from evalq.workers.ledger.scripts import HISTORY, script_text
from evalq.workers.settings import Settings

_Change = Callable[[DriftRecord | None, RunCases], DriftRecord | None]

__all__ = ["CHAINS", "Drift", "read_states"]

CHAINS = 20
"""Chains of a history; beyond that the one that was counted longest ago goes: its specification is no longer run."""
# A try fails only because another run of the suite was counted meanwhile, so the suite moves on with each.
_TRIES = 1000


class Drift:
    """The chains of one ledger."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client: Any = client
        self._settings = settings

    def count(self, place: HistoryKey, run: RunCases) -> DriftState | None:
        """Count a run that is in its history; how its chain stands then, or None where no run had an answer yet.

        Raises WireError for a chain that cannot be read, InfrastructureError where the history is gone.
        """
        return self._step(place, run, counted)

    def approve(self, run: RunCases) -> list[HistoryKey]:
        """Begin anew with the approved ``run``: in its suite's history, where there is one, and in those that have runs
        of its specification, evaluator and target under another suite's name. Returns these histories.
        """
        begun = []
        for place in History(self._client, self._settings).places():
            if (place.evaluator, place.target) != (run.evaluator, run.target):
                continue
            if place.suite == run.suite or self._client.hexists(HistoryKeys.of(place.member).drift, key_of(run)):
                self._step(place, run, approved, anew=True)
                begun.append(place)
        return begun

    def states(self, place: HistoryKey) -> list[DriftState]:
        """How the chains of a history stand, the one that was counted last first."""
        return sorted(
            read_states(self._client.hvals(HistoryKeys.of(place.member).drifting)), key=lambda one: -one.counted
        )

    def _step(self, place: HistoryKey, run: RunCases, change: _Change, *, anew: bool = False) -> DriftState | None:
        """``anew``: a chain that cannot be read is none."""
        keys, chain = HistoryKeys.of(place.member), key_of(run)
        script = self._client.register_script(script_text(HISTORY, "drift"))
        # The chain is read and written in two steps; the script refuses the second where another run was counted
        # between.
        for _ in range(_TRIES):
            stored = self._client.hget(keys.drift, chain)
            before = self._record(stored, anew=anew)
            try:
                after = change(before, run)
            except (ValueError, LookupError, ArithmeticError) as error:
                raise WireError(f"its chain is damaged, or the run's cases are: {error}") from error
            if after is None:
                return None
            state = state_of(after, run.version)
            # It is counted already: writing would move its suite to the front for nothing.
            if after is before:
                return state
            # By SHA-1, as it is the digest that scripts can make themselves; it tells whether the chain was changed, no
            # more.
            read = "" if stored is None else hashlib.sha1(stored, usedforsecurity=False).hexdigest()
            texts = (pack(msgspec.json.encode(after)), msgspec.json.encode(state))
            done = script(keys, (place.member, chain, read, *texts, CHAINS))
            if done == 1:
                return state
            if done == -1:
                raise InfrastructureError(f"suite {place.suite} has no history in the ledger any more")
        raise InfrastructureError(f"suite {place.suite}: other runs ended {_TRIES} times while this one was counted")

    def _record(self, stored: bytes | None, *, anew: bool) -> DriftRecord | None:
        if stored is None:
            return None
        try:
            record = msgspec.json.decode(unpack(stored, self._settings.cases_bytes), type=DriftRecord)
            if record.schema != SCHEMA:
                raise WireError(f"its chain has the form {record.schema!r}, and this evalq reads {SCHEMA}")
        except (msgspec.DecodeError, UnicodeDecodeError, WireError) as error:
            # Approving is how a damaged chain is repaired, so the damage must not prevent it.
            if anew:
                return None
            raise WireError(f"its chain cannot be read, and approving a baseline begins it anew: {error}") from error
        return record


def read_states(texts: Iterable[bytes]) -> list[DriftState]:
    """What is shown of chains, in what the ledger holds of each: the time in microseconds, and JSON.

    What is neither is left out: somebody else wrote it, and the others are still wanted.
    """
    found = []
    for text in texts:
        with contextlib.suppress(ValueError, msgspec.DecodeError):
            at, body = text.split(b" ", 1)
            state = msgspec.json.decode(body, type=DriftState)
            found.append(msgspec.structs.replace(state, counted=int(at) / 1_000_000))
    return found
