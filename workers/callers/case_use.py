"""What a case has taken of its budget (`case_budget`): tries, seconds and money, in all processes that called."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from evalq.evalcore.model.calls import Used
from evalq.evalcore.views.markdown import plural
from evalq.workers.targets.answers import Answered, Failure
from evalq.workers.targets.price import Price, attempt_cost
from evalq.workers.targets.target import CaseBudget


class CaseUse:
    """The use of one case's budget in this process, on top of what other processes used ``before``."""

    def __init__(
        self,
        budget: CaseBudget,
        before: Used = Used(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bounded = budget != CaseBudget()
        self._budget = budget
        self._before = before
        self._clock = clock
        self._began: float | None = None
        self._tries, self._cost = before.tries, before.cost

    @property
    def used(self) -> Used:
        """What is used so far."""
        seconds = self._before.seconds + (0.0 if self._began is None else self._clock() - self._began)
        return Used(self._tries, seconds, self._cost)

    @property
    def while_trying(self) -> Used:
        """What is used if the try under way brings no answer."""
        used = self.used
        return used._replace(tries=used.tries + 1)

    def begin(self) -> None:
        """A try begins: the seconds count from the first one."""
        if self._began is None:
            self._began = self._clock()

    def add(self, result: Answered | Failure, price: Price | None) -> None:
        """Count what a try took, at the ``price`` of the target that was asked."""
        self._cost += attempt_cost(price, result) or 0.0
        self._tries += isinstance(result, Failure)

    def spent(self, wait: float = 0.0) -> str:
        """Which part would be spent after ``wait`` seconds, as text; empty while another try is allowed."""
        budget, used = self._budget, self.used
        if budget.tries and used.tries >= budget.tries:
            return plural(budget.tries, "try", "tries")
        if budget.seconds and used.seconds + wait >= budget.seconds:
            return f"{budget.seconds:g} s"
        if budget.cost and used.cost >= budget.cost:
            return f"a cost of {budget.cost:g}"
        return ""

    def ended(self, last: Failure, spent: str) -> Failure:
        """The ``last`` failure, which says that the budget ended the case."""
        return msgspec.structs.replace(last, reason=f"{last.reason}; {_ended(spent)}")

    def lost(self, spent: str) -> Failure:
        """The failure of a case whose tries were all made, and lost, by other processes."""
        return Failure(kind="server", reason=f"{_ended(spent)}; the processes that made its tries have ended")


def _ended(spent: str) -> str:
    return f"the budget of this case is spent: {spent} (case_budget)"
