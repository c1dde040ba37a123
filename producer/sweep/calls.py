"""Make the calls of a sweep, and the calls about its outputs; show the progress, and pause at Ctrl-C."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from evalq.evalcore.contract.evaluator import Stage
from evalq.evalcore.errors import (
    AlreadyRunning,
    BrokerUnreachable,
    Cancelled,
    Incomplete,
    Interrupted,
    Paused,
    ServerRefused,
    WorkersLost,
)
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.life import RunState
from evalq.producer.driving.interrupts import Interrupts
from evalq.producer.monitor.progress import Reporter, ShownProgress
from evalq.producer.run.backend import Backend, note_state, raise_interrupted
from evalq.producer.sweep.direct import DirectCalls, LocalTargets
from evalq.producer.sweep.intake import warn_of_calls
from evalq.producer.sweep.reuse import open_cache
from evalq.producer.sweep.sweep import Sweep

if TYPE_CHECKING:
    from evalq.producer.sweep.judge_stage import JudgeSweep


class Calling:
    """The calls of ``sweep``: over the servers of ``where``, or by this process alone to the targets there.

    Users name ``backend`` to resume them.
    """

    def __init__(
        self, sweep: Sweep, where: Backend | LocalTargets, backend: Backend, reporter: Reporter, interrupts: Interrupts
    ) -> None:
        self._sweep = sweep
        self._where = where
        self._backend = backend
        self._reporter = reporter
        self._interrupts = interrupts
        self._state: RunState = "stopped"

    def make(self) -> dict[str, Json]:
        """Make all calls that the budgets allow; return how they ended. The recorded answers are in the folder then."""
        sweep, backend = self._sweep, self._backend
        try:
            facts = self._drive()
            self._state = "called"
            if facts["ended"] == "spent":
                self._tell_spent(facts["reason"])
            sweep.note_calls(facts)
            sweep.write_outputs()
            sweep.refuse_nothing()
            return facts
        except AlreadyRunning:
            # Another process drives the sweep: keep the state that it wrote.
            self._state = sweep.folder.info().state
            raise
        except Cancelled as error:
            self._state = "cancelled"
            # Put back the failures that waited for another try: there will be none.
            sweep.recorded.put_back()
            kept = f"what it recorded is in {sweep.outputs}, and another run takes it over: --reuse {sweep.folder.path}"
            raise Cancelled(f"{error}; {kept}") from None
        except (BrokerUnreachable, ServerRefused, WorkersLost) as error:
            raise backend.resumable(error, sweep.folder) from error
        except Incomplete as error:
            raise Incomplete(f"{error}; after fixing it, resume with: {backend.resume(sweep.folder)}") from None
        finally:
            # Write the outputs however it ends: users can look at the paid answers and evaluate them by hand.
            with contextlib.suppress(OSError):
                if self._state != "called":
                    sweep.write_outputs()
                note_state(sweep.folder, self._state)

    def _drive(self) -> dict[str, Json]:
        """Make the calls until they are over; return how they ended. Raises Interrupted if they were paused."""
        try:
            if isinstance(self._where, LocalTargets):
                return self._call_alone(self._where)
            from evalq.producer.sweep.ledger_calls import drive_calls

            return drive_calls(self._sweep, self._where, self._backend, self._reporter, self._interrupts)
        except KeyboardInterrupt:
            raise_interrupted(self._sweep.folder, self._backend, self._leave)
        except Paused:
            self._state = "paused"
            raise Interrupted(self._backend.resume(self._sweep.folder)) from None

    def _call_alone(self, targets: LocalTargets) -> dict[str, Json]:
        reporter = self._reporter
        with contextlib.ExitStack() as stack:
            then = f"move it away, and resume with: {self._backend.resume(self._sweep.folder)}"
            cache = open_cache(self._sweep.live.cache, then, stack)
            calls = DirectCalls(self._sweep, targets, cache, lambda: self._interrupts.again)

            def warn() -> None:
                while calls.warnings:
                    reporter.warn(calls.warnings.pop(0))

            def watch_calls(progress: ShownProgress) -> None:
                warn()
                watch(progress)

            try:
                with reporter.watching() as watch:
                    return calls.make(watch_calls)
            finally:
                warn()
                warn_of_calls(calls.in_flight, reporter)

    def _leave(self, state: RunState) -> None:
        self._state = state

    def _tell_spent(self, reason: Json) -> None:
        sweep = self._sweep
        sweep.spent = True
        spending = sweep.recorded.spending
        # If no answer has a known cost, the calls would never reach a larger cost budget.
        costless = bool(sweep.live.max_cost and spending.unknown and not spending.known)
        others = (
            f"begin another run with --max-calls, and --reuse {sweep.folder.named()}"
            if costless
            else f"raise it: {self._backend.resume(sweep.folder)} {sweep.live.larger}"
        )
        self._reporter.say(
            f"{reason}: {sweep.recorded.count:,} of {sweep.header.total:,} calls are recorded; "
            f"to make the others, {others}"
        )


# Calls about outputs, before they are evaluated.


def ask_further(
    sweep: Sweep,
    stage: Stage,
    backends: tuple[Backend | LocalTargets, Backend],
    reporter: Reporter,
    interrupts: Interrupts,
    used: tuple[int, float],
) -> None:
    """Ask all questions about the outputs, target by target, within the rest of the budgets.

    The first of ``backends`` makes the calls; users name the second to resume them. ``used`` holds the attempts and the
    cost of the calls for the outputs. Raises the errors of making calls.
    """
    from evalq.producer.sweep.judge_stage import JudgeCalls
    from evalq.producer.sweep.judge_targets import settle_targets

    left = False
    with _halting(sweep, backends[1]):
        settle = partial(settle_targets, sweep, backends, reporter)
        further = JudgeCalls(sweep, stage, sweep.given[0].limit, settle)
        sweeps = further.prepare()
    # All targets share one budget. So count what each took before asking any: a resumed run may have stopped at each.
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
            # A target that has all its replies needs no further calls.
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
    """Handle Ctrl-C between the calls: keep the recorded answers, and say how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        raise_interrupted(sweep.folder, backend)


def _took(each: JudgeSweep) -> tuple[int, float]:
    """The attempts begun for it so far, as far as known, and their cost."""
    return max(each.recorded.begun, each.recorded.ended), each.recorded.cost


def _allowed(each: JudgeSweep, sweep: Sweep, own: tuple[int, float], calls: int, cost: float) -> bool:
    """Give it the budget that the others left; False if it has already used that much itself."""
    whole = sweep.live
    left_calls, left_cost = whole.max_calls - calls, whole.max_cost - cost
    # A sum of costs is not exact in its last digits: such a rest of a budget pays for no call.
    spent = left_cost - own[1] <= whole.max_cost * 1e-9
    if (whole.max_calls and left_calls <= own[0]) or (whole.max_cost and spent):
        return False
    each.budget(left_calls if whole.max_calls else 0, left_cost if whole.max_cost else 0.0, whole.cache)
    return True
