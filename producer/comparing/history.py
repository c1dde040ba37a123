"""Earlier runs of a target: how often each case passed in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from evalq.evalcore.compare.quarantine import CaseHistory, past_of
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.errors import EvalqError
from evalq.producer.invocation.finding import folders
from evalq.producer.outputs.cases import cases_of, decode_cases

if TYPE_CHECKING:
    from evalq.producer.servers import Servers

__all__ = ["MOST", "pasts_of"]

MOST = 100
"""Runs of a target that are looked at, the latest ones."""


def pasts_of(
    candidates: Sequence[RunCases], partners: Mapping[str, RunCases], servers: Servers
) -> dict[str, CaseHistory]:
    """The history of each candidate's cases: runs in ./evalq-runs and, where one is named, in the ledger."""
    return {run.called: past_of(run, partners.get(run.called), list(_earlier(run, servers))) for run in candidates}


def _earlier(run: RunCases, servers: Servers) -> Iterator[RunCases]:
    """Finished runs of its evaluator, suite and target; recorded outputs have none, and nor has what cannot be read."""
    if not run.target:
        return
    seen: set[str] = set()
    # Of its suite, as in the ledger: a confirmation asks because something looked like a drop, so that its answers
    # would make a case look flakier than it is.
    wanted = (run.evaluator, run.suite, run.target, "done")
    alike = [
        folder
        for folder, info in folders()
        if (info.evaluator, info.suite, info.target, info.state) == wanted and info.run != run.run
    ]
    # Cut before reading: cases of a run are large, and a folder may hold thousands of runs.
    for folder in alike[-MOST:]:
        with contextlib.suppress(EvalqError, OSError):
            found = cases_of(folder)
            seen.add(found.run)
            yield found
    if servers.named:
        yield from _in_ledger(run, servers, seen)


def _in_ledger(run: RunCases, servers: Servers, seen: set[str]) -> Iterator[RunCases]:
    from evalq.workers.ledger.detached import Reports
    from evalq.workers.ledger.history import HistoryKey

    reports = Reports(servers.runs, servers.settings)
    for entry in servers.history.entries(HistoryKey(run.evaluator, run.suite, run.target), MOST):
        # A run of both places counts once: twice the answers would prove more than there is.
        if entry.run in seen | {run.run}:
            continue
        with contextlib.suppress(EvalqError):
            data = reports.cases(entry.run)
            if data is not None:
                yield decode_cases(data, f"what the ledger has of run {entry.run}")
