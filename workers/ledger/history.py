"""What is kept of finished runs when the runs themselves have expired: histories, drift, baselines, looks at them.

A history is one capped list a (evaluator, suite, target): trends and "the last 10 runs" come from there and need no
other store. A run that was evaluated without a server has no entry.
"""

from __future__ import annotations

import contextlib
import hashlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import redis

from evalq.evalcore.compare.drift import RECORD_SCHEMA, DriftRecord, DriftState, approved, counted, key_of, state_of
from evalq.evalcore.compare.spending import GateLook
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import InfrastructureError, WireError
from evalq.evalcore.model.canonical import Json, canonical_json, digest, pack, unpack
from evalq.evalcore.views.metrics import samples
from evalq.workers.ledger.keys import SHARED, HistoryKeys, LookKeys
from evalq.workers.ledger.scripts import HISTORY, LOOKS, script_text
from evalq.workers.settings import Settings

_Read = TypeVar("_Read")


class HistoryKey(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Which history: runs are compared with those of the same evaluator, suite and target (empty: recorded outputs)."""

    evaluator: str
    suite: str
    target: str = ""

    @property
    def member(self) -> str:
        """Its name in the index, and in the names of its keys."""
        return msgspec.json.encode(self).decode()


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finished run: its counts of ``records``, how many ``seconds`` its last session took, ``digest`` of its report.

    ``ended`` is when it was recorded, by the server's clock, in seconds since 1970.
    """

    run: str
    place: HistoryKey
    records: dict[str, int]
    samples: list[tuple[str, tuple[str, ...], float]]
    seconds: float = 0.0
    tags: dict[str, str] = {}
    digest: str = ""
    ended: float = 0.0


def entry_of(
    evaluator: Evaluator[Any, Any],
    run: str,
    place: HistoryKey,
    report: dict[str, Json],
    seconds: float,
    tags: dict[str, str],
) -> Entry:
    """The entry of a run whose report this is."""
    found = [(sample.metric, sample.labels, sample.value) for sample in samples(evaluator.views.metrics, report)]
    # By the digest of the report: two who finish one run record it once, and a retry with other answers takes its
    # place.
    return Entry(run, place, dict(report["records"]), found, seconds, tags, digest(canonical_json(report)))


class History:
    """The histories of one ledger."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client: Any = client
        self._settings = settings

    def record(self, entry: Entry, recent: Iterable[str] = ()) -> bool:
        """Add a run, or put its new answer in the place of its old one; False when nothing changed.

        Values of the metrics named in ``recent`` are kept apart too, so that those of the last runs are read quickly.
        """
        member = entry.place.member
        wanted = set(recent)
        # Values that a dashboard shows of many runs are kept short, since each scrape reads them in one script.
        kept = [sample for sample in entry.samples if sample[0] in wanted]
        limits = (self._settings.history_runs, self._settings.histories)
        text = msgspec.json.encode(entry)
        args = (member, entry.run, entry.digest, text, msgspec.json.encode(kept), *limits)
        return bool(self._client.register_script(script_text(HISTORY, "record"))(HistoryKeys.of(member), args))

    def places(self) -> list[HistoryKey]:
        """All histories, the one that was added to last first."""
        members = self._client.zrange(SHARED.histories, 0, -1)  # users of a role may not ask for them in reverse
        return list(_read(reversed(members), lambda member: msgspec.json.decode(member, type=HistoryKey)))

    def entries(self, place: HistoryKey, most: int | None = None) -> list[Entry]:
        """Its runs, the newest first."""
        keys = HistoryKeys.of(place.member)
        runs = self._client.lrange(keys.ids, 0, -1 if most is None else most - 1)
        found: Sequence[bytes | None] = self._client.hmget(keys.texts, runs) if runs else []
        return list(_read((text for text in found if text is not None), read_text))

    def forget(self, place: HistoryKey) -> None:
        """Drop a history for good, so that no page shows its suite and no alert waits for it."""
        pipe = self._client.pipeline(transaction=True)
        pipe.zrem(SHARED.histories, place.member)
        pipe.delete(*HistoryKeys.of(place.member))
        pipe.execute()


def _read(found: Iterable[bytes], read: Callable[[bytes], _Read]) -> Iterator[_Read]:
    """What is there, without what evalq did not write: the others are still wanted."""
    for data in found:
        with contextlib.suppress(ValueError, msgspec.DecodeError):
            yield read(data)


def read_text(text: bytes) -> Entry:
    """The entry in what the ledger holds of it: its digest, the time in microseconds, and the rest as JSON."""
    _, ended, body = text.split(b" ", 2)
    return msgspec.structs.replace(msgspec.json.decode(body, type=Entry), ended=int(ended) / 1_000_000)


def read_recent(text: bytes) -> list[tuple[str, tuple[str, ...], float]]:
    """The values that are kept for the last runs."""
    return msgspec.json.decode(text, type=list[tuple[str, tuple[str, ...], float]])


# -- drift: a chain for each specification of a suite, counted by who ends a run -------------------
# A chain is read, counted with the run in this process, and written back if nobody wrote meanwhile, so that two runs
# that end at one instant both count. A run counts once, by its id, however often it is finished.

_Change = Callable[[DriftRecord | None, RunCases], DriftRecord | None]


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
            if record.schema != RECORD_SCHEMA:
                raise WireError(f"its chain has the form {record.schema!r}, and this evalq reads {RECORD_SCHEMA}")
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


# -- baselines: approved runs by name, which do not expire -----------------------------------------


class BaselineStore:
    """Baselines of one ledger: {slot: JSON} for each name, a slot for each evaluator and target."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client: Any = client
        self._most = settings.cases_bytes

    def keep(self, name: str, slot: str, data: bytes) -> None:
        """Put ``data`` in the slot, in place of what was approved there before."""
        # Both or none: an approved run whose name is not on the list could be read, but would never be listed.
        pipe = self._client.pipeline(transaction=True)
        pipe.sadd(SHARED.baselines, name)
        pipe.hset(SHARED.baseline + name, slot, pack(data))
        pipe.execute()

    def read(self, name: str) -> dict[str, bytes]:
        """All of a name's. Raises WireError for what is no baseline."""
        found = {}
        for at, data in self._client.hgetall(SHARED.baseline + name).items():
            slot = at.decode(errors="replace")
            try:
                # Bounded: whoever may write to the ledger could otherwise have a few bytes unpack to all of the memory
                # here.
                found[slot] = unpack(data, self._most)
            except WireError as error:
                raise WireError(
                    f"the baseline {name} in the ledger is damaged at {slot!r}: {error}; approve the run again: "
                    f"evalq baseline set {shlex.quote(name)} RUN"
                ) from error
        return found

    def names(self) -> list[str]:
        """All names."""
        return sorted(name.decode() for name in self._client.smembers(SHARED.baselines))

    def forget(self, name: str) -> bool:
        """Drop a name; whether there was one."""
        pipe = self._client.pipeline(transaction=True)
        pipe.srem(SHARED.baselines, name)
        pipe.delete(SHARED.baseline + name)
        return bool(pipe.execute()[0])


# -- looks at baselines: counted over all machines, since each spends of one error -----------------

_KEPT_MS = 400 * 24 * 3600 * 1000
"""A count begins anew when nobody has looked for so long."""


class LookStore:
    """Looks by baseline: which number each has, and which candidates were stopped. Raises WireError for no count."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client

    def count(self, baseline: str) -> int:
        """How many looks there were."""
        found: bytes = self._client.hget(LookKeys.of(baseline).looks, "count") or b"0"
        if not found.isdigit():
            raise _looks_damaged(baseline)
        return int(found)

    def peek(self, baseline: str, candidate: str, answers: str) -> GateLook:
        """What `take` would give; nothing is counted."""
        return self._look(baseline, candidate, answers, "peek")

    def take(self, baseline: str, candidate: str, answers: str) -> GateLook:
        """The look at ``candidate`` by those ``answers``: the one that it was before, or the next."""
        return self._look(baseline, candidate, answers)

    def _look(self, baseline: str, *args: str) -> GateLook:
        found = self._step("take", baseline, *args)
        if found == b"damaged":
            raise _looks_damaged(baseline)
        number, draw, stands = found
        return GateLook(int(number), int(draw), stands.decode("utf-8", "surrogateescape"))

    def settle(self, baseline: str, candidate: str, stopped: str) -> str:
        """Why ``candidate`` is stopped: ``stopped``, unless it was before or is not ("")."""
        # A reason may quote a name that is no UTF-8: its bytes come back as they were.
        given = stopped.encode("utf-8", "surrogateescape")
        return str(self._step("settle", baseline, candidate, given).decode("utf-8", "surrogateescape"))

    def _step(self, script: str, baseline: str, *args: Any) -> Any:
        return self._client.register_script(script_text(LOOKS, script))(LookKeys.of(baseline), [_KEPT_MS, *args])


def _looks_damaged(baseline: str) -> WireError:
    key = LookKeys.of(baseline).looks
    return WireError(
        f"looks at this baseline cannot be counted: {key} in the ledger holds what evalq never wrote; "
        "delete that key, and they are counted anew"
    )
