"""What is kept of a chain of runs between two of them, and what is shown of it: with each run counted exactly once."""

from __future__ import annotations

import msgspec

from evalq.evalcore.compare.drift import Chain, begin, count
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.model.canonical import canonical_json

__all__ = ["SCHEMA", "DriftRecord", "DriftState", "MeasureState", "approved", "counted", "key_of", "state_of"]

SCHEMA = "evalq.drift-record/2"
_OF_RUN, _RUNS = 8, 100
"""Answers remembered of each run, and of how many runs. A run that took half of its answers from the cache that one of
them filled is noticed in 255 of 256 cases, one that took a tenth in more than half."""


class DriftRecord(msgspec.Struct, kw_only=True):
    """A chain with its newest run, and ``before`` that run: its answers may be replaced, as `evalq retry` does.

    ``before`` is empty where the newest run began the chain. ``name`` is what the suite calls these runs, ``run`` the
    newest one. ``sampled`` are numbers of some answers of each (`Usage.sample`).
    """

    schema: str = SCHEMA
    name: str = ""
    run: str
    now: Chain
    before: Chain | None = None
    sampled: list[int] = []


class MeasureState(msgspec.Struct, frozen=True):
    """How one measure stands. ``since`` is the run that paged, empty where none did; ``worse`` the one from which on it
    looks worse, by a tenth of the evidence.

    ``e`` is the detector's value, ``p`` the newest run's p-value, ``change`` by how much the newest run differs from
    all before it, as a share of the scale; below 0 is worse. ``run`` is the newest that has values of it.
    """

    since: str = ""
    worse: str = ""
    e: float = 0.0
    p: float = 1.0
    change: float = 0.0
    run: str = ""


class DriftState(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a chain: without the answers that it holds.

    ``run`` is the newest run, ``runs`` how many were compared with the ``reference``, which was approved (``kind``
    "baseline") or came first. ``counted`` is when the newest one was, in seconds since 1970; 0 where nobody knows.
    """

    specification: str
    version: str = ""
    name: str = ""
    run: str
    reference: str
    kind: str
    runs: int
    measures: dict[str, MeasureState]
    counted: float = 0.0

    @property
    def drifting(self) -> bool:
        """Whether any measure pages."""
        return any(measure.since for measure in self.measures.values())

    @property
    def looks_worse(self) -> bool:
        """Whether any measure looks worse, or pages."""
        return any(measure.since or measure.worse for measure in self.measures.values())


def key_of(run: RunCases) -> str:
    """Which chain of its suite ``run`` belongs to: runs of one specification, version of the evaluator, and name."""
    # By version, too: other code may judge the same answers otherwise, which would look like drift.
    return canonical_json([run.specification, run.version, run.name]).decode()


def counted(record: DriftRecord | None, run: RunCases) -> DriftRecord | None:
    """The record with ``run``; the very same one where that is no further evidence, None where there is none yet.

    The newest run again, with other answers, takes its own place. An older one stays as it was counted, since all that
    came later was compared with it; so does the reference. A run without any answer tells nothing, and neither does one
    that has answers of an earlier one, from a cache or as it took them over, nor one with cases that stopped when they
    were decided: how many answers these have depends on what they are, so that they are no draw from all of them.
    """
    if run.cases.stopped or not any(any(column.count) for column in run.cases.columns.values()):
        return record
    if record is None:
        return DriftRecord(name=run.name, run=run.run, now=begin(run), sampled=_sampled([], run))
    known = dict(record.now.known)
    if run.run == record.run and known.get(run.run) not in (None, run.report):
        if record.before is not None:
            return _after(record, record.before, run)
        # The reference itself was answered anew, and nothing has been compared with it yet.
        if record.now.kind == "first":
            return msgspec.structs.replace(record, now=begin(run), sampled=_sampled(record.sampled, run))
    # A run that is counted has its own sample in the record: only of a new one does a shared answer say anything.
    if run.run == record.now.reference or (run.run not in known and _cached(record, run)):
        return record
    return _after(record, record.now, run)


def _after(record: DriftRecord, before: Chain, run: RunCases) -> DriftRecord:
    now = count(before, run)
    if now is before:
        return record
    return DriftRecord(name=run.name, run=run.run, now=now, before=before, sampled=_sampled(record.sampled, run))


def _cached(record: DriftRecord, run: RunCases) -> bool:
    # By lineage too: answers that were taken over need not be among the few that are sampled.
    if run.lineage is not None and not dict(record.now.known).keys().isdisjoint(run.lineage.akin):
        return True
    return run.usage is not None and not set(run.usage.sample).isdisjoint(record.sampled)


def _sampled(before: list[int], run: RunCases) -> list[int]:
    return [*before, *(run.usage.sample[:_OF_RUN] if run.usage else [])][-_OF_RUN * _RUNS :]


def approved(record: DriftRecord | None, run: RunCases) -> DriftRecord | None:
    """A chain that begins anew with the approved ``run``: what was counted before is evidence no more.

    The very same record where that run is its reference already, so that approving it once more forgets nothing, and
    where cases of it stopped, so that it is no reference (see `counted`).
    """
    if run.cases.stopped:
        return record
    chain = begin(run, "baseline")
    if record is None:
        return DriftRecord(name=run.name, run=run.run, now=chain, sampled=_sampled([], run))
    old = record.now
    if (old.kind, old.reference) == ("baseline", run.run) and dict(old.known).get(run.run, run.report) == run.report:
        return record
    # A run that was counted before, and is resumed or tried again later, is none that came after the approved one.
    chain.known += [each for each in old.known if each[0] != run.run]
    # The samples stay: what a cache gave before an approval is no fresh answer after it.
    return DriftRecord(name=run.name, run=record.run, now=chain, sampled=_sampled(record.sampled, run))


def state_of(record: DriftRecord, version: str) -> DriftState:
    """What is shown of ``record``."""
    chain = record.now
    return DriftState(
        specification=chain.specification,
        version=version,
        name=record.name,
        run=record.run,
        reference=chain.reference,
        kind=chain.kind,
        runs=chain.runs,
        measures={
            name: MeasureState(watched.since, watched.worse, watched.e, watched.p, watched.change, watched.run)
            for name, watched in chain.watched.items()
        },
    )
