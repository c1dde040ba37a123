"""Asking about outputs for a command: after the calls that gave them, and before they are evaluated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from evalq.evalcore.contract.evaluator import Stage
from evalq.evalcore.errors import UsageError
from evalq.evalcore.version import code_version
from evalq.producer.driving.interrupts import Interrupts
from evalq.producer.monitor.reporter import Reporter
from evalq.producer.runs.backend import Backend
from evalq.producer.runs.holding import halted, left
from evalq.producer.sweeps.calling import Calling
from evalq.producer.sweeps.further import FurtherCalls, FurtherSweep
from evalq.producer.sweeps.sweep import Sweep
from evalq.workers.callers.choices import facts_of, known_facts
from evalq.workers.callers.target_sessions import target_facts
from evalq.workers.ledger.heartbeats import Heartbeats, TargetFacts
from evalq.workers.servers.connections import connect
from evalq.workers.targets import load_targets

__all__ = ["ask_further", "refuse_uncalled"]


def refuse_uncalled(sweep: Sweep, place: Backend, shared: Backend) -> None:
    """Raise UsageError, before anything is paid, where a target that is to be asked about outputs cannot be.

    A fleet that nobody is in yet says nothing.
    """
    if sweep.stage is None:
        return
    callers = _callers(place, shared)
    for target, _ in sorted(sweep.stage.asks()) if callers else ():
        facts = [found for known in callers if (found := known_facts(known, target)) is not None]
        if not facts:
            for known in callers:
                facts_of(known, target)  # raises why nothing of the kind may be chosen
            names = sorted({name for known in callers for name in known})
            raise UsageError(f"no process that calls knows a target {target!r} (known: {', '.join(names)})")
        if sweep.live.max_cost and any(each.price is None for each in facts):
            raise UsageError(f"--max-cost: target {target!r} has no price in the targets file")


def _callers(place: Backend, shared: Backend) -> list[Mapping[str, TargetFacts]]:
    """{target: its facts} of everybody who calls."""
    settings = place.settings
    if settings.targets and (settings.calls or not settings.broker):
        return [{name: target_facts(named) for name, named in load_targets(settings.targets).items()}]
    callers = Heartbeats(connect(shared.settings.ledger_url, shared.settings)).callers().values()
    return [caller.targets for caller in callers if caller.code == code_version()]


def ask_further(
    sweep: Sweep, stage: Stage, places: tuple[Backend, Backend], reporter: Reporter, interrupts: Interrupts,
    used: tuple[int, float],
) -> None:  # fmt: skip
    """Ask all that is to be asked about the outputs, target by target, within what is left of the budgets.

    ``places`` are where the calls are made, and what a user would name to resume them; ``used`` are attempts and cost
    of the calls for the outputs. Raises what making calls raises.
    """
    further = FurtherCalls(sweep, stage, sweep.given[0].limit)
    calls, cost = used
    left = False
    with _halting(sweep, places[1]):
        sweeps = further.prepare()
    for each in sweeps:
        if not _allowed(each, sweep, calls, cost):
            reporter.say(f"the budget is spent: {each.header.target!r} is not asked {each.header.total:,} times")
            left = True
            continue
        reporter.say(f"asking {each.header.target!r} about the outputs: {each.header.total:,} calls")
        facts = Calling(each, *places, reporter, interrupts).make()
        calls, cost = calls + int(facts["attempts"]), cost + float(facts["cost"])
        left = left or bool(each.spent or each.recorded.errors)
    sweep.further_left = left
    with _halting(sweep, places[1]):
        further.join(sweep.evaluated)


@contextlib.contextmanager
def _halting(sweep: Sweep, place: Backend) -> Iterator[None]:
    """Ctrl-C between the calls: what is recorded stays, and the command says how it is resumed."""
    try:
        yield
    except KeyboardInterrupt:
        state, error = halted(sweep.folder, place)
        left(sweep.folder, state)
        raise error from None


def _allowed(each: FurtherSweep, sweep: Sweep, calls: int, cost: float) -> bool:
    """Give it what is left of the budgets; False where that is nothing, and some of its calls are still to be made."""
    whole = sweep.live
    left_calls, left_cost = whole.max_calls - calls, whole.max_cost - cost
    if (whole.max_calls and left_calls <= 0) or (whole.max_cost and left_cost <= 0.0):
        return False
    each.budget(left_calls if whole.max_calls else 0, left_cost if whole.max_cost else 0.0, whole.cache)
    return True
