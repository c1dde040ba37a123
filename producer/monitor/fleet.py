"""A snapshot of the ledger and its fleet in words: what `status` and `watch` show in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from evalq.evalcore.version import code_parts, code_version, differences
from evalq.producer.monitor.spans import spell

if TYPE_CHECKING:
    from evalq.workers.monitor import Snapshot, WorkerStatus

__all__ = ["LONG_SECONDS", "Fleet", "fleet_of", "rows", "served_by"]

LONG_SECONDS = 45.0
"""A live call in flight for so long is named."""


class Fleet(msgspec.Struct, frozen=True):
    """What the whole fleet is at: messages that wait, the age of the oldest pending chunk in seconds, and workers."""

    queued: int
    oldest: float
    workers: int
    consuming: int
    stuck: tuple[str, ...]
    sick: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.queued:,} queued"]
        if self.oldest >= 1:
            parts.append(f"the oldest for {spell(self.oldest)}")
        parts.append(f"{self.consuming} of {self.workers} workers consuming" if self.workers else "no worker yet")
        return ", ".join([*parts, *self.sick])


def fleet_of(snapshot: Snapshot) -> Fleet:
    """The part of a snapshot that a line has room for."""
    stuck = tuple(worker.name for worker in snapshot.workers if worker.state == "stuck")
    alive = len(snapshot.workers)
    sick = tuple(dict.fromkeys(f"{worker.host} cannot load {name}" for worker, name, _ in snapshot.unhealthy))
    return Fleet(sum(snapshot.queues.values()), snapshot.oldest_age, alive, alive - len(stuck), stuck, sick)


def rows(
    snapshot: Snapshot, codes: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> Iterator[tuple[str, str]]:
    """(what, how it stands) of everything that the exporter shows of work and fleet.

    ``codes`` is what the code versions at the server are made of: those that differ from this one get a row.
    """
    fleet = fleet_of(snapshot)
    for queue, messages in snapshot.queues.items():
        yield "queue", f"{queue}: {messages:,} waiting, {len(snapshot.serving(queue))} worker(s)"
    yield "oldest", spell(snapshot.oldest_age) if snapshot.oldest_age else "nothing is pending"
    if snapshot.last_commit:
        yield "commit", f"the last one {spell(max(0.0, snapshot.now - snapshot.last_commit))} ago"
    yield "workers", f"{fleet.workers} alive, {fleet.consuming} consuming, {len(fleet.stuck)} stuck"
    for code in sorted(codes.keys() - {code_version()}):
        yield "code", f"{code} differs from this one in: {', '.join(differences(codes[code], code_parts()))}"
    for worker in filter(served_by, snapshot.workers):
        yield "serves", f"{worker.name} on {worker.host}: {served_by(worker)}"
    for name in fleet.stuck:
        yield "stuck", name
    for worker, evaluator, reason in snapshot.unhealthy:
        yield "sick", f"{worker.name} on {worker.host} cannot load {evaluator}: {reason}"
    for run in snapshot.unserved:
        yield "unserved", f"{run.run}: for {spell(run.seconds)} no living worker can compute it"
    if snapshot.sweeps or snapshot.callers:
        yield (
            "calls",
            f"{len(snapshot.sweeps)} sweep(s) with calls to make, {len(snapshot.callers)} process(es) that call",
        )
    for sweep in snapshot.uncalled:
        yield "waiting", f"{sweep.run}: no process of code {sweep.code} calls {sweep.target!r}"
    for trouble in snapshot.troubles:
        yield "trouble", trouble
    for slow in snapshot.slow(LONG_SECONDS):
        yield "slow", slow
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(snapshot.runs.items()))
    yield "runs", states or "none"
    counts = ("records", "committed"), ("dead", "dead"), ("duplicates", "duplicates"), ("divergent", "divergent")
    told = [f"{snapshot.total(name):,} {word}" for name, word in counts]
    yield "records", ", ".join([*told, f"{snapshot.total('reconciled'):,} chunks published again"])


def served_by(worker: WorkerStatus) -> str:
    """The evaluators that a worker serves, those of one package together; empty for one that does not say."""
    packages: dict[str, list[str]] = {}
    for name, package in sorted(worker.evaluators.items()):
        if name not in worker.unhealthy:
            packages.setdefault(package, []).append(name)
    return "; ".join(f"{', '.join(names)} ({package})" for package, names in packages.items())
