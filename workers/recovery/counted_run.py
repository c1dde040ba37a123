"""Counting a run that the fleet finishes in the drift of its suite."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from evalq.evalcore.compare.counting import CaseCounter
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import EvalqError
from evalq.evalcore.model.canonical import Json
from evalq.workers.ledger.detached import Detached
from evalq.workers.ledger.drift import Drift
from evalq.workers.ledger.history import HistoryKey

__all__ = ["CountedRun"]

log = logging.getLogger("evalq.worker")


class CountedRun:
    """A run's records on their way into the drift of its suite; what goes wrong is no reason to keep a report back."""

    def __init__(self, evaluator: Evaluator[Any, Any], run: str) -> None:
        self._run = run
        self._counter: CaseCounter | None = CaseCounter(evaluator)

    def add(self, lines: Sequence[bytes]) -> None:
        """The next ones."""
        with self._telling():
            if self._counter is not None:
                self._counter.add(lines)

    def count(self, drift: Drift, place: HistoryKey, facts: Detached, report: dict[str, Json], data: bytes) -> None:
        """Count the run, as its command would have."""
        with self._telling():
            if self._counter is None:
                return
            cases = self._counter.cases(report, run=self._run, digest_of_report=hashlib.sha256(data).hexdigest())
            cases.name, cases.suite, cases.target, cases.tags = facts.name, place.suite, facts.target, facts.tags
            drift.count(place, cases)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except EvalqError as error:
            log.warning("run %s is not counted in the drift of its suite: %s", self._run, error)
            self._counter = None
