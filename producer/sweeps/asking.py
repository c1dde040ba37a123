"""Asking about outputs for a command: after the calls that gave them, and before they are evaluated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from evalq.evalcore.contract.evaluator import Stage
from evalq.producer.driving.interrupts import Interrupts
from evalq.producer.monitor.reporter import Reporter
from evalq.producer.runs.backend import Backend
from evalq.producer.runs.holding import halted, left
from evalq.producer.sweeps.calling import Calling
from evalq.producer.sweeps.further import FurtherCalls, FurtherSweep
from evalq.producer.sweeps.stage_targets import settle_targets
from evalq.producer.sweeps.sweep import Sweep

__all__ = ["ask_further"]


def ask_further(
    sweep: Sweep, stage: Stage, backends: tuple[Backend, Backend], reporter: Reporter, interrupts: Interrupts,
    used: tuple[int, float],
) -> None:  # fmt: skip
    """Ask all that is to be asked about the outputs, target by target, within what is left of the budgets.

    ``backends`` are where the calls are made, and what a user would name to resume them; ``used`` are attempts and cost
    of the calls for the outputs. Raises what making calls raises.
    """
    left = False
    with _halting(sweep, backends[1]):
        settle = partial(settle_targets, sweep, backends, reporter)
        further = FurtherCalls(sweep, stage, sweep.given[0].limit, settle)
        sweeps = further.prepare()
    # One budget for all targets, and so what all took before any is asked: a resumed run may have stopped at each.
    took = [_took(each) for each in sweeps]
    for place, each in enumerate(sweeps):
        of_others = [
            used,
            *((own.before.attempts, own.before.cost) for own in sweeps),
            *took[:place],
            *took[place + 1 :],
        ]
        calls, cost = sum(attempts for attempts, _ in of_others), sum(costs for _, costs in of_others)
        if not _allowed(each, sweep, took[place], calls, cost):
            each.recorded.put_back()
            open_calls = each.header.total - each.recorded.count
            if open_calls:
                reporter.say(f"the budget is spent: {each.header.target!r} is not asked {open_calls:,} times")
            # One that has all its replies lacks nothing, and takes nothing.
            left = left or bool(open_calls or each.recorded.errors)
            continue
        reporter.say(f"asking {each.header.target!r} about the outputs: {each.header.total:,} calls")
        facts = Calling(each, *backends, reporter, interrupts).make()
        took[place] = int(facts["attempts"]), float(facts["cost"])
        left = left or bool(each.spent or each.recorded.errors)
    sweep.further_left = left
    with _halting(sweep, backends[1]):
        further.join(sweep.evaluated)


@contextlib.contextmanager
def _halting(sweep: Sweep, backend: Backend) -> Iterator[None]:
    """Ctrl-C between the calls: what is recorded stays, and the command says how it is resumed."""
    try:
        yield
    except KeyboardInterrupt:
        state, error = halted(sweep.folder, backend)
        left(sweep.folder, state)
        raise error from None


def _took(each: FurtherSweep) -> tuple[int, float]:
    """Attempts that were begun for it so far, as far as is known, and what they cost."""
    return max(each.recorded.begun, each.recorded.ended), each.recorded.cost


def _allowed(each: FurtherSweep, sweep: Sweep, own: tuple[int, float], calls: int, cost: float) -> bool:
    """Give it what is left of the budgets beside what others took; False where that is no more than it took itself."""
    whole = sweep.live
    left_calls, left_cost = whole.max_calls - calls, whole.max_cost - cost
    # A sum of costs differs from what it should be in its last digits: that rest of a budget pays for no call.
    spent = left_cost - own[1] <= whole.max_cost * 1e-9
    if (whole.max_calls and left_calls <= own[0]) or (whole.max_cost and spent):
        return False
    each.budget(left_calls if whole.max_calls else 0, left_cost if whole.max_cost else 0.0, whole.cache)
    return True
