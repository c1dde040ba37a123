"""When a run has failed: the rules, over what its list of failures says and who lives.

A run has failed when a chunk of it was tried CHUNK_TRIES times, and every living worker that can load its evaluator
failed at it (or MANY different ones did); when HOPELESS tries at a chunk came to nothing, wherever they were made;
when every such worker has failed since the last commit, over BARREN_SECONDS, and none is at work; and when for
``unserved_seconds`` no living worker could load its evaluator or, with its producer gone, none could read its input.
A run without any worker waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from evalq.workers.ledger.failures import FailureCounts, LastFailure
from evalq.workers.ledger.heartbeats import unhealthy_of
from evalq.workers.ledger.progress import RunStatus

CHUNK_TRIES = 3
"""Tries at one chunk before the run fails, where every living worker failed at it."""
HOPELESS = 24
"""Tries at one chunk before the run fails, whoever lives: with the pauses between them over ten minutes."""
MANY = 8
"""So many different workers that failed at one chunk are enough."""
BARREN_SECONDS = 5.0
"""Failures alone, for so long, are more than a moment's trouble of a disk."""
_SHOWN = 5


class Judgement(msgspec.Struct, frozen=True):
    """``fails``: why the run ends, or nothing; ``unserved``: each living worker has said that it cannot compute it, or
    not all of it; ``trouble``: a line for each host that failed at it.
    """

    fails: str
    unserved: bool
    trouble: tuple[str, ...]


def judge(
    evaluator: str, counts: FailureCounts, status: RunStatus, living: Mapping[str, Mapping[str, str]]
) -> Judgement:
    """How a run of ``evaluator`` stands. ``living``: the facts of the living workers of its code, by name."""
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
        # Where nobody able is left, nothing is proven against the chunk: the run waits for a worker.
        everywhere = bool(able) and able <= tries.keys()
        if (total >= CHUNK_TRIES and everywhere) or len(tries) >= MANY or total >= HOPELESS:
            whom = [counts.workers[name] for name in tries if name in counts.workers]
            where = f"all {len(able)} living worker(s)" if everywhere else f"{len(tries)} worker(s)"
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
    return f"all {len(able)} living worker(s) failed, and nothing was committed since: {why}"


def _lines(failed: Iterable[LastFailure]) -> tuple[str, ...]:
    """The newest failures, a host's same reason once."""
    by_reason: dict[tuple[str, str], LastFailure] = {}
    # By name where two came at once, so that equal lists read alike.
    for each in sorted(failed, key=lambda one: (-one.at, one.worker)):
        before = by_reason.get((each.host, each.reason))
        count = each.count + (before.count if before else 0)
        by_reason[each.host, each.reason] = msgspec.structs.replace(each, count=count)
    lines = [str(each) for each in by_reason.values()]
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return (*lines[:_SHOWN], *more)
