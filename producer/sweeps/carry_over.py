"""Replies that a sweep takes over from the one whose place it takes, and what the run did for that one."""

from __future__ import annotations

import msgspec

from evalq.evalcore.model.calls import Output
from evalq.producer.sweeps.head import Before
from evalq.producer.sweeps.sweep import Sweep
from evalq.workers.ledger.sweep_model import SETTINGS

__all__ = ["carry_over"]

_STEP = 500


def carry_over(before: Sweep, sweep: Sweep) -> Before:
    """What ``before`` recorded of questions that ``sweep`` asks again, word for word, of the same target as it was.

    Returns what was done up to and with ``before``, in attempts, calls and the targets' unit of cost.
    """
    paid = _taken_over(before, sweep) if _asked(before) == _asked(sweep) else 0
    recorded, so_far = before.recorded, before.before
    begun = max(recorded.begun, recorded.ended)  # what is told of either may be the older
    return Before(
        so_far.attempts + begun,
        so_far.lost + begun - recorded.ended,  # nobody tells of those under way any more
        so_far.repaid + max(0, recorded.paid - paid),
        so_far.cost + recorded.cost,
    )


def _asked(sweep: Sweep) -> tuple[str, str]:
    return sweep.header.target, sweep.header.asked[SETTINGS]


def _taken_over(before: Sweep, sweep: Sweep) -> int:
    """Take the replies over; returns how many of them ``before`` had paid for."""
    known = {(prompt.case, prompt.digest): number for number, prompt in enumerate(before.prompts())}
    kept: list[Output] = []
    paid = 0
    for number, prompt in enumerate(sweep.prompts()):
        earlier = known.get((prompt.case, prompt.digest))
        if earlier is None:
            continue
        for repeat in range(min(before.header.repeats, sweep.header.repeats)):
            call = repeat * before.header.cases + earlier
            output = before.recorded.get(call)
            # A call that failed is made again; replies are paid for once.
            if output is not None and not output.failed:
                kept.append(msgspec.structs.replace(output, call=repeat * sweep.header.cases + number))
                paid += not before.recorded.given(call)
        # In steps: a sync for each reply takes long, and all of them at once take memory.
        if len(kept) >= _STEP:
            sweep.recorded.add(kept, cached=True)
            kept.clear()
    sweep.recorded.add(kept, cached=True)
    return paid
