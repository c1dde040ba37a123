"""Whether all that a suite asks can be called: looked at before the first call, since a matrix may have 200 runs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from evalq.evalcore.contract.evaluator import live_calls
from evalq.evalcore.errors import UsageError
from evalq.producer.suites.suite_file import PlannedRun, Suite
from evalq.producer.sweep.callers import Callers
from evalq.workers.targets.variable import canonical_name

__all__ = ["refuse_uncallable"]


def refuse_uncallable(suite: Suite, callers: Callers) -> None:
    """Raise UsageError that names each run of a target which nobody can call: unknown, without a price that its budget
    takes, or with choices that its file does not list. A fleet that nobody is in yet says nothing.
    """
    judges: dict[bytes, list[str]] = {}
    faults = []
    for run in suite.runs:
        try:
            for target in _targets(run, judges):
                callers.facts(target, priced=bool(run.live and run.live.max_cost))
        except UsageError as error:
            faults.append(f"{run.called}: {error}")
    if faults:
        raise UsageError("\n  ".join(faults))


def _targets(run: PlannedRun, judges: dict[bytes, list[str]]) -> Iterator[str]:
    """Whom a run asks, for outputs and about them; ``judges`` are those of requests that were looked at before."""
    if run.live is None:
        return
    if run.live.target:
        yield canonical_name(run.live.target)
    further = live_calls(run.evaluator).further
    if further is None:
        return
    request = msgspec.json.encode(run.request, enc_hook=str)
    if request not in judges:
        stage = further.begin(run.request)
        judges[request] = sorted({canonical_name(name) for name, _ in stage.asks()}) if stage is not None else []
    yield from judges[request]
