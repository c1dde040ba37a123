"""The docket of a candidate at a baseline: its looks, its confirmations, and whether it was stopped before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from evalq.evalcore.compare.decision import Check, Decided, Decision, surprising
from evalq.evalcore.compare.looks import (
    Look,
    answers_digest,
    baseline_digest,
    candidate_digest,
    looks_at,
    spent_digest,
)
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.canonical import digest
from evalq.producer.comparing.looks import looks_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evalq.producer.servers import Servers

__all__ = ["Docket", "noted"]

_STOPPED: dict[Decided, str] = {"NO-GO": "it was stopped", "SUSPECT": "it was suspect"}


class Docket:
    """What was counted of ``candidate`` by ``policy`` at the approved ``partners``.

    Where that is "", it is these answers alone, and those that they were extended from.
    """

    def __init__(
        self,
        policy: Policy,
        candidates: Sequence[RunCases],
        partners: Mapping[str, RunCases],
        servers: Servers,
        candidate: str,
    ) -> None:
        self._looks = looks_of(servers)
        self._place = baseline_digest(policy, partners.values())
        # What was spent on a baseline stays spent where a policy changes what can decide (GATE, What a look counts
        # against): numbers are shared by all policies, and whose answers were seen is known by each.
        self._spent = spent_digest(partners.values())
        self._answers = answers_digest(candidates)
        self._candidate = _digest(candidate) if candidate else candidate_digest(candidates)
        # Further answers of an extended run are paid for as looks, though nobody may have gated the first ones.
        self._least = looks_at(candidates)

    def look(self, kind: str = "") -> Look:
        """The look by these answers, among those of a ``kind`` of their own; raises what counting raises."""
        return self._look(self._looks.take, kind)

    def decided(self, decide: Callable[[Look], Decision], kind: str = "") -> tuple[Decision, Look]:
        """What ``decide`` makes of the look by these answers, which is counted once there is a decision.

        What cannot be decided, for a metric that the results do not have say, spends nothing.
        """
        expected = self._look(self._looks.peek, kind)
        decision, look = decide(expected), self.look(kind)
        # Another machine may have taken that number meanwhile.
        return decision if look == expected else decide(look), look

    def _look(self, of: Callable[[str, str, str], Look], kind: str) -> Look:
        own = of(self._place + kind, self._candidate, self._answers)
        # Looking again at a candidate that was stopped decides nothing, and spends nothing.
        spend = self._looks.peek if own.stands else of
        number = spend(self._spent + kind, f"{self._place} {self._candidate}", self._answers).number
        return msgspec.structs.replace(own, number=number).at_least(self._least)

    @property
    def key(self) -> str:
        """The same for the same answers of the same candidate at this baseline and policy."""
        return digest(f"{self._place} {self._candidate} {self._answers}".encode())[:16]

    def stopped(self) -> bool:
        """Whether the candidate was stopped before."""
        return bool(self._looks.settle(self._place, self._candidate, ""))

    def settled(self, decision: Decision, baseline: str, unconfirmed: Sequence[Check] = ()) -> Decision:
        """The decision that counts: the candidate is stopped where it was before, by whatever answers.

        ``unconfirmed`` are checks that stop it, surprising as they are, though no confirmation looks at them.
        """
        # Surprises alone bind: what chance has no part in may be fixed, and is then decided anew.
        why = _why([*surprising(decision, "NO-GO"), *unconfirmed], decision.candidates)
        worse = _why(surprising(decision, "SUSPECT"), decision.candidates)
        stands: dict[Decided, str] = {
            "NO-GO": self._looks.settle(self._place, self._candidate, why),
            "SUSPECT": self._looks.settle(self._place, f"{self._candidate} suspect", worse),
        }
        for verdict, reason in stands.items():
            # A NO-GO of these answers says more than that there was one before.
            if decision.decided == verdict:
                return decision
            if reason:
                demand = "one decision a candidate, however often it is run"
                check = Check(
                    baseline, demand, "critical", verdict, f"{_STOPPED[verdict]} by earlier answers: {reason}"
                )
                return msgspec.structs.replace(decision, decided=verdict, checks=(*decision.checks, check))
        return decision


def noted(decision: Decision, look: Look) -> Decision:
    """The decision, with the look that it was."""
    return msgspec.structs.replace(decision, look=look, notes=(look.told(), *decision.notes))


def _digest(candidate: str) -> str:
    try:
        # Arguments and variables may hold bytes that are no UTF-8, and come as lone surrogates.
        return digest(candidate.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise UsageError(f"candidate: {candidate!r} is not text: name what is judged, such as a commit") from None


def _why(checks: Iterable[Check], runs: Iterable[str]) -> str:
    reasons = "; ".join(f"{check.metric} {check.reason}" for check in checks)
    return f"run {', '.join(runs)}: {reasons}" if reasons else ""
