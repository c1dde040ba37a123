"""Histories of finished runs and their drift. They stay when the runs themselves expire.

Each (evaluator, suite, target) has one capped list. Trends and "the last 10 runs" need no other store. A run that was
evaluated without a server has no entry.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import redis

from evalq.evalcore.compare.drift import RECORD_SCHEMA, DriftRecord, DriftState, approved, counted, key_of, state_of
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import InfrastructureError, WireError
from evalq.evalcore.model.canonical import Json, canonical_json, digest, pack, unpack
from evalq.evalcore.views.metrics import samples
from evalq.workers.ledger.keys import SHARED, HistoryKeys
from evalq.workers.ledger.scripts import HISTORY, script_text
from evalq.workers.settings import Settings

_Read = TypeVar("_Read")


class HistoryKey(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The evaluator, suite and target (empty: recorded outputs) whose runs form one history."""

    evaluator: str
    suite: str
    target: str = ""

    @property
    def member(self) -> str:
        """Its name in the index and in Redis keys."""
        return msgspec.json.encode(self).decode()


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finished run: its counts of ``records``, the ``seconds`` of its last session, the ``digest`` of its report.

    ``ended`` is when the run was recorded, by the server's clock, in seconds since 1970. ``served`` counts the answers
    of its calls by the model that gave them.
    """

    run: str
    key: HistoryKey = msgspec.field(name="place")
    records: dict[str, int]
    samples: list[tuple[str, tuple[str, ...], float]]
    seconds: float = 0.0
    tags: dict[str, str] = {}
    digest: str = ""
    ended: float = 0.0
    served: dict[str, int] = {}


def entry_of(
    evaluator: Evaluator[Any, Any],
    run: str,
    key: HistoryKey,
    report: dict[str, Json],
    seconds: float,
    tags: dict[str, str],
    served: dict[str, int] | None = None,
) -> Entry:
    """The entry of a run with this report."""
    found = [(sample.metric, sample.labels, sample.value) for sample in samples(evaluator.views.metrics, report)]
    # By the digest of the report: two processes that finish a run record it once; a retry with other answers replaces
    # the entry.
    return Entry(
        run, key, dict(report["records"]), found, seconds, tags, digest(canonical_json(report)), served=served or {}
    )


class History:
    """The histories of one ledger."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client: Any = client
        self._settings = settings

    def record(self, entry: Entry, recent: Iterable[str] = ()) -> bool:
        """Add a run, or replace its entry; False when nothing changed.

        Values of the metrics named in ``recent`` are also stored apart, so that reading those of many runs is quick.
        """
        member = entry.key.member
        wanted = set(recent)
        # Each scrape reads these values of many runs in one script, so keep them short.
        kept = [sample for sample in entry.samples if sample[0] in wanted]
        limits = (self._settings.history_runs, self._settings.histories)
        text = msgspec.json.encode(entry)
        args = (member, entry.run, entry.digest, text, msgspec.json.encode(kept), *limits)
        return bool(self._client.register_script(script_text(HISTORY, "record"))(HistoryKeys.of(member), args))

    def all(self) -> list[HistoryKey]:
        """All histories, the one that changed last first."""
        members = self._client.zrange(SHARED.histories, 0, -1)  # users of a role may not ask for them in reverse
        return list(_read_valid(reversed(members), lambda member: msgspec.json.decode(member, type=HistoryKey)))

    def entries(self, key: HistoryKey, most: int | None = None) -> list[Entry]:
        """The runs of a history, the newest first."""
        keys = HistoryKeys.of(key.member)
        runs = self._client.lrange(keys.ids, 0, -1 if most is None else most - 1)
        texts: Sequence[bytes | None] = self._client.hmget(keys.texts, runs) if runs else []
        return list(_read_valid((text for text in texts if text is not None), read_entry))

    def forget(self, key: HistoryKey) -> None:
        """Drop a history for good, so that no page shows its suite and no alert waits for it."""
        pipe = self._client.pipeline(transaction=True)
        pipe.zrem(SHARED.histories, key.member)
        pipe.delete(*HistoryKeys.of(key.member))
        pipe.execute()


def _read_valid(texts: Iterable[bytes], read: Callable[[bytes], _Read]) -> Iterator[_Read]:
    """Read ``texts``; skip those that evalq did not write, since one bad entry must not hide the others."""
    for text in texts:
        with contextlib.suppress(ValueError, msgspec.DecodeError):
            yield read(text)


def read_entry(text: bytes) -> Entry:
    """Parse a stored entry: its digest, the time in microseconds, and the rest as JSON."""
    _, ended, body = text.split(b" ", 2)
    return msgspec.structs.replace(msgspec.json.decode(body, type=Entry), ended=int(ended) / 1_000_000)


def read_recent(text: bytes) -> list[tuple[str, tuple[str, ...], float]]:
    """Parse the stored values of the metrics that dashboards show of many runs."""
    return msgspec.json.decode(text, type=list[tuple[str, tuple[str, ...], float]])


# -- drift: one chain for each specification of a suite --------------------------------------------
# The process that ends a run reads the chain, counts the run, and writes the chain back unless another process wrote
# meanwhile. So two runs that end at the same time both count. A run counts once, by its id.

_Change = Callable[[DriftRecord | None, RunCases], DriftRecord | None]


CHAINS = 20
"""Chains of a history; beyond that the one counted longest ago goes: nobody runs its specification any more."""
# A try fails only because another run of the suite was counted meanwhile, so the suite moves on with each.
_TRIES = 1000


class Drift:
    """The chains of one ledger."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client: Any = client
        self._settings = settings

    def count(self, key: HistoryKey, run: RunCases) -> DriftState | None:
        """Count a run of this history; returns its chain's new state, or None while no run has an answer.

        Raises WireError if the chain cannot be read, InfrastructureError if the history is gone.
        """
        return self._step(key, run, counted)

    def approve(self, run: RunCases) -> list[HistoryKey]:
        """Restart chains with the approved ``run``: in its suite's history, and in other suites' histories that have
        runs of its specification, evaluator and target. Returns these histories.
        """
        restarted = []
        for key in History(self._client, self._settings).all():
            if (key.evaluator, key.target) != (run.evaluator, run.target):
                continue
            if key.suite == run.suite or self._client.hexists(HistoryKeys.of(key.member).drift, key_of(run)):
                self._step(key, run, approved, restart=True)
                restarted.append(key)
        return restarted

    def states(self, key: HistoryKey) -> list[DriftState]:
        """The states of a history's chains, the one counted last first."""
        texts = self._client.hvals(HistoryKeys.of(key.member).drifting)
        return sorted(read_states(texts), key=lambda state: -state.counted)

    def _step(self, key: HistoryKey, run: RunCases, change: _Change, *, restart: bool = False) -> DriftState | None:
        keys, chain = HistoryKeys.of(key.member), key_of(run)
        script = self._client.register_script(script_text(HISTORY, "drift"))
        # The chain is read and written in two steps; the script refuses the second if another run was counted between.
        for _ in range(_TRIES):
            stored = self._client.hget(keys.drift, chain)
            before = self._record(stored, restart=restart)
            try:
                after = change(before, run)
            except (ValueError, LookupError, ArithmeticError) as error:
                raise WireError(f"the drift chain or the run's cases are damaged: {error}") from error
            if after is None:
                return None
            state = state_of(after, run.version)
            # The run is counted already: writing would move its suite to the front for nothing.
            if after is before:
                return state
            # SHA-1 only shows whether the chain has changed; it is the digest that scripts can compute.
            read = "" if stored is None else hashlib.sha1(stored, usedforsecurity=False).hexdigest()
            texts = (pack(msgspec.json.encode(after)), msgspec.json.encode(state))
            status = script(keys, (key.member, chain, read, *texts, CHAINS))
            if status == 1:
                return state
            if status == -1:
                raise InfrastructureError(f"suite {key.suite} has no history in the ledger any more")
        raise InfrastructureError(f"suite {key.suite}: other runs ended {_TRIES} times while this one was counted")

    def _record(self, stored: bytes | None, *, restart: bool) -> DriftRecord | None:
        if stored is None:
            return None
        try:
            record = msgspec.json.decode(unpack(stored, self._settings.cases_bytes), type=DriftRecord)
            if record.schema != RECORD_SCHEMA:
                raise WireError(f"the chain has the form {record.schema!r}, and this evalq reads {RECORD_SCHEMA}")
        except (msgspec.DecodeError, UnicodeDecodeError, WireError) as error:
            # Approving a baseline repairs a damaged chain, so the damage must not prevent it.
            if restart:
                return None
            raise WireError(f"the drift chain cannot be read; approve a baseline to restart it: {error}") from error
        return record


def read_states(texts: Iterable[bytes]) -> list[DriftState]:
    """Parse stored states of chains, each the time in microseconds and JSON; skip those that evalq did not write."""
    return list(_read_valid(texts, _read_state))


def _read_state(text: bytes) -> DriftState:
    counted_at, body = text.split(b" ", 1)
    return msgspec.structs.replace(msgspec.json.decode(body, type=DriftState), counted=int(counted_at) / 1_000_000)
