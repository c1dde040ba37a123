"""Report that no worker computes a run, and why."""

from __future__ import annotations

import time
from collections.abc import Mapping

from evalq.evalcore.errors import WorkersLost
from evalq.evalcore.model.manifest import Header
from evalq.producer.monitor.command import command_began
from evalq.producer.monitor.progress import AGAIN_SECONDS, ShownProgress, StatusSink
from evalq.workers.processes.identity import code_change
from evalq.workers.settings import Settings

TELL_SECONDS = 4.0
"""Local workers need about this long to start."""
FLEET_SECONDS = 3.0
"""A command reports a fleet without workers this long after its start: with a poll each second, within 5 s."""


class Unserved:
    """Reports that no worker serves a run; `observe` gets each progress."""

    def __init__(self, header: Header, settings: Settings, sink: StatusSink, *, own: bool = False) -> None:
        """``own``: the workers are the command's, so their absence is an error in the end. A fleet's worker may start
        at any time."""
        self._header = header
        self._settings = settings
        self._sink = sink
        self._own = own
        self._patience = TELL_SECONDS if own else FLEET_SECONDS
        self._since: float | None = None if own else command_began()
        self._reported_at: float | None = None

    def observe(self, progress: ShownProgress) -> None:
        """Report missing workers after a few seconds, and again every AGAIN_SECONDS.

        Raises WorkersLost after ``patience_seconds``, and if the installed version has changed meanwhile.
        """
        if progress.workers != 0:
            self._since = self._reported_at = None
            return
        now = time.monotonic()
        self._since = self._since or now
        lasted, limit = now - self._since, self._settings.patience_seconds if self._own else None
        if limit is not None and lasted >= limit:
            raise WorkersLost(f"the local worker did not start serving within {lasted:.0f} s (patience_seconds)")
        if lasted >= self._patience and (self._reported_at is None or now - self._reported_at >= AGAIN_SECONDS):
            if self._own and (other := code_change("command")):
                raise WorkersLost(f"{other}, and so are the workers that it starts: begin the run again")
            self._reported_at = now
            self._sink.waiting(self._words(progress.others, lacking=progress.lacking), lasted, limit)

    def report_detached(self, workers: int, others: Mapping[str, int], lacking: bool) -> None:
        """Report missing workers at once, when the run is detached."""
        if not workers:
            self._sink.waiting(self._words(others, lacking=lacking), 0.0, None)

    def _words(self, others: Mapping[str, int], *, lacking: bool) -> str:
        if self._own:
            return "the local worker is starting"
        if others:
            return another_version(self._header.code_version, others, self._header.evaluator if lacking else "")
        start = f"evalq worker --broker {self._settings.broker_address}"
        return f"no worker serves {self._header.queue} yet (start one: {start})"


def another_version(code: str, others: Mapping[str, int], lacking: str = "") -> str:
    """Advice if all workers have another version; ``others`` counts those of each version.

    ``lacking`` is an evaluator that none of them has.
    """
    workers = sum(others.values())
    which = ", ".join(sorted(others))
    live = f"{workers} worker{'s are' if workers > 1 else ' is'} running, of another version (code {which})"
    if lacking:
        each = "it has no" if workers == 1 else "none has an"
        return f"{live}, and {each} evaluator {lacking}: install the package that registers it there, and restart"
    return f"{live}; this run needs code {code}: start a worker of this version, or upgrade one"
