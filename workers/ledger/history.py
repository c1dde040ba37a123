"""What is kept of finished runs when the runs themselves have expired: one capped list a (evaluator, suite, target).

Trends, baselines and "the last 10 runs" come from here and need no other store. A run that was evaluated without a
server has no entry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import redis

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.model.canonical import Json, canonical_json, digest
from evalq.evalcore.views.metrics import samples
from evalq.workers.ledger.keys import SHARED, HistoryKeys
from evalq.workers.ledger.scripts import HISTORY, script_text
from evalq.workers.settings import Settings

__all__ = ["Entry", "History", "HistoryKey", "entry_of", "read_recent", "read_text"]

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
