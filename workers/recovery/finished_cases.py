"""How the cases of a run went that the fleet finishes: for those who compare, and for the drift of its suite."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import redis

from evalq.evalcore.compare.counting import CaseCounter
from evalq.evalcore.compare.missing import unusable_of
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import EvalqError
from evalq.evalcore.model.canonical import Json
from evalq.workers.ledger.damage import of_one_key
from evalq.workers.ledger.detached import Detached
from evalq.workers.ledger.drift import Drift
from evalq.workers.ledger.history import HistoryKey
from evalq.workers.servers.errors import explained

__all__ = ["FinishedCases"]

log = logging.getLogger("evalq.worker")


class FinishedCases:
    """A run's records on their way into its cases; what goes wrong is told, and is no reason to keep a report back."""

    def __init__(self, evaluator: Evaluator[Any, Any], run: str) -> None:
        self._run = run
        self._counter: CaseCounter | None = CaseCounter(evaluator)

    def add(self, lines: Sequence[bytes]) -> None:
        """Count the next records."""
        with self._telling("its cases are not kept"):
            if self._counter is not None:
                self._counter.add(lines)

    def cases(self, suite: str, facts: Detached, report: dict[str, Json], data: bytes) -> RunCases | None:
        """Those of the run whose ``report`` is written as ``data``; None where they cannot be told."""
        with self._telling("its cases are not kept"):
            if self._counter is not None:
                found = self._counter.cases(report, run=self._run, digest_of_report=hashlib.sha256(data).hexdigest())
                found.name, found.suite, found.target, found.tags = facts.name, suite, facts.target, facts.tags
                found.usage, found.day = facts.usage, _day(facts.began)
                found.took = {**found.took, **facts.took}
                if facts.usage is not None:
                    found.cases.unusable = unusable_of(found.cases, facts.causes)
                return found
        return None

    def count(self, drift: Drift, place: HistoryKey, cases: RunCases) -> None:
        """Count the run in the drift of its suite, as its command would have."""
        with self._telling("it is not counted in the drift of its suite"):
            drift.count(place, cases)

    @contextlib.contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        try:
            yield
        except (EvalqError, redis.ResponseError) as error:
            # What lies in the history's keys is no reason either; a server that is full or away is waited for.
            if isinstance(error, redis.ResponseError) and not of_one_key(error):
                raise
            log.warning("run %s: %s: %s", self._run, what, explained(error, "the ledger"))
            # For good: cases without those that failed would look like all of them.
            self._counter = None


def _day(began: float) -> str:
    """The day of a time in seconds since 1970, in UTC; empty for a run that does not say when it began."""
    return datetime.fromtimestamp(began, UTC).date().isoformat() if began > 0 else ""
