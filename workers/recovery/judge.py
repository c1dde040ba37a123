"""The rules by which a run fails, from its counted failures and the living workers.

A run fails if one of these is true. A chunk failed CHUNK_TRIES times, and at every living worker that can load the
evaluator (or at MANY workers). A chunk failed HOPELESS times, at any workers. Every such worker has failed since the
last commit, over BARREN_SECONDS, and none holds a lease. For ``unserved_seconds`` no living worker could load the
evaluator or, with the producer gone, read the input. A run without any worker waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from evalq.evalcore.views.markdown import plural
from evalq.workers.ledger.failures import FailureCounts, LastFailure
from evalq.workers.ledger.heartbeats import unhealthy_of
from evalq.workers.ledger.progress import RunStatus

CHUNK_TRIES = 3
"""Failures at one chunk before the run fails, if every living worker failed at it."""
HOPELESS = 24
"""Failures at one chunk before the run fails, whatever workers live: with the pauses, over ten minutes."""
MANY = 8
"""So many different workers that failed at one chunk make the run fail."""
BARREN_SECONDS = 5.0
"""Failures without a commit for so long are more than a passing fault."""
_SHOWN = 5


class Judgement(msgspec.Struct, frozen=True):
    """The verdict on a run. ``fails``: why it fails, or ""; ``unserved``: no living worker can compute all of it;
    ``trouble``: a line for each host that failed at it.
    """

    fails: str
    unserved: bool
    trouble: tuple[str, ...]


def judge(
    evaluator: str, counts: FailureCounts, status: RunStatus, living: Mapping[str, Mapping[str, str]]
) -> Judgement:
    """Judge a run of ``evaluator``. ``living``: the facts of the living workers of its code version, by name."""
    able = {name for name, facts in living.items() if evaluator not in unhealthy_of(facts)}
    unhealthy = [
        LastFailure(
            name, facts.get("host", name), "load", f"cannot load {evaluator}: {unhealthy_of(facts)[evaluator]}", 1, 0
        )
        for name, facts in living.items()
        if name not in able
    ]
    others = [failed for failed in counts.workers.values() if failed.worker not in living or failed.worker in able]
    return Judgement(
        fails=_all_failed(counts, able) or _barren(counts, status, able),
        unserved=bool(living) and not status.progress.complete and not able - counts.unread,
        trouble=_lines([*unhealthy, *others]),
    )


def _all_failed(counts: FailureCounts, able: set[str]) -> str:
    for seq, tries in sorted(counts.chunks.items()):
        total = sum(tries.values())
        # Without an able worker, nothing is proven against the chunk: the run waits for one.
        everywhere = bool(able) and able <= tries.keys()
        if (total >= CHUNK_TRIES and everywhere) or len(tries) >= MANY or total >= HOPELESS:
            whom = [counts.workers[name] for name in tries if name in counts.workers]
            where = f"all {plural(len(able), 'living worker')}" if everywhere else plural(len(tries), "worker")
            return f"chunk {seq} failed {total} times, on {where}: " + "; ".join(_lines(whom))
    return ""


def _barren(counts: FailureCounts, status: RunStatus, able: set[str]) -> str:
    # A live lease may still become a commit, and a failure to load says nothing about the chunks.
    committed, first = counts.barren
    if committed != status.progress.committed or status.leases or not counts.chunks:
        return ""
    failing = {
        name: failed
        for name, failed in counts.workers.items()
        if failed.kind != "load" and failed.committed == committed
    }
    last = max((failed.at for failed in failing.values()), default=0)
    # One worker that has not failed since the last commit may still make the next one.
    if not able or not able <= failing.keys() or (last - first) / 1000 < BARREN_SECONDS:
        return ""
    why = "; ".join(_lines(failing.values()))
    return f"all {plural(len(able), 'living worker')} failed, and nothing was committed since: {why}"


def _lines(failed: Iterable[LastFailure]) -> tuple[str, ...]:
    """A line for each of the newest failures, merged by host and reason."""
    by_reason: dict[tuple[str, str], LastFailure] = {}
    # By name if two came at once, so that equal lists give equal lines.
    for each in sorted(failed, key=lambda one: (-one.at, one.worker)):
        before = by_reason.get((each.host, each.reason))
        count = each.count + (before.count if before else 0)
        by_reason[each.host, each.reason] = msgspec.structs.replace(each, count=count)
    lines = [str(each) for each in by_reason.values()]
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return (*lines[:_SHOWN], *more)
