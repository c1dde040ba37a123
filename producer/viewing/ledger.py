"""What pages show of the ledger, where a server is named: one that is away costs its part of a page, not the page."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from evalq.evalcore.errors import EvalqError, Incomplete
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.life import CALLS_OVER
from evalq.producer.folder.documents import report_of
from evalq.producer.servers import Servers

if TYPE_CHECKING:
    from evalq.evalcore.compare.drift import DriftState
    from evalq.workers.ledger.detached import Reports
    from evalq.workers.ledger.history import Entry, HistoryKey
    from evalq.workers.ledger.progress import RunStatus
    from evalq.workers.ledger.sweep_model import SweepHeader, SweepStatus

__all__ = ["Ledger"]

T = TypeVar("T")

_QUIET_SECONDS = 5.0
"""For so long a server that did not answer is not asked again: nobody waits for each part of a page anew."""


class Ledger:
    """The ledger of a viewer; without a server it is empty. For many threads at a time."""

    def __init__(self, servers: Servers) -> None:
        """Connects, so that a wrong URL is told when the viewer starts. Raises what `Servers.client` raises."""
        self._servers = servers
        self._asking = threading.Lock()
        self._again = 0.0
        self._created: dict[str, str] = {}
        self.trouble = ""
        """Why the server did not answer when it was asked last; empty while it does."""
        if servers.named:
            _ = servers.client

    @property
    def named(self) -> bool:
        """Whether there is one."""
        return self._servers.named

    @property
    def servers(self) -> Servers:
        """The servers themselves, for what reports its own errors."""
        return self._servers

    def ask(self, what: Callable[[Servers], T], otherwise: T) -> T:
        """What the server answers; ``otherwise`` where there is none, or it does not answer: `trouble` says why."""
        if not self.named or time.monotonic() < self._again:
            return otherwise
        from evalq.workers.servers.errors import SERVER_ERRORS, explained

        try:
            with self._asking:  # clients of a ledger keep what they read, for one thread at a time
                found = what(self._servers)
        except Incomplete:  # it expired
            return otherwise
        except EvalqError as error:
            self._missed(error)
        except SERVER_ERRORS as error:
            self._missed(explained(error, "the ledger's server"))
        else:
            self.trouble = ""
            return found
        return otherwise

    def _missed(self, error: EvalqError) -> None:
        self.trouble = str(error)
        self._again = time.monotonic() + _QUIET_SECONDS

    def runs(self) -> list[str]:
        """Ids of all runs that have not expired."""
        from evalq.workers.ledger.calls import subject

        def of(servers: Servers) -> list[str]:
            return sorted({*servers.runs.runs(), *map(subject, servers.sweeps.runs())})

        return self.ask(of, [])

    def created(self, run: str) -> str:
        """When a run was begun, as run.json says it; empty where that is not known. It is asked for once."""
        if run not in self._created:
            seconds = self.ask(lambda servers: servers.runs.created(run), 0.0)
            if not seconds:
                return ""
            self._created[run] = datetime.fromtimestamp(seconds, UTC).isoformat()
        return self._created[run]

    def facts(self, run: str) -> tuple[str, str, str, str] | None:
        """(evaluator, suite, target, state) of a run, as far as they are known; None for one that is not there."""
        look, header = self.look(run), self.ask(lambda servers: servers.runs.header(run), None)
        calls = self.sweep(run)
        target = calls[0].target if calls else ""
        # Calls about outputs follow those that gave them: the run is where the last of them are.
        going = [each for each in self.about(run) if each[1].state not in CALLS_OVER]
        if look is not None and header is not None:
            return header.evaluator, header.suite, target, look.progress.state
        last = going[0] if going else calls
        return ("", "", target, last[1].state) if last else None

    def look(self, run: str) -> RunStatus | None:
        """How a run's evaluation stands."""
        return self.ask(lambda servers: servers.runs.poll(run), None)

    def sweep(self, run: str) -> tuple[SweepHeader, SweepStatus] | None:
        """How a run's live calls stand."""

        return self.ask(lambda servers: _calls(servers, run), None)

    def about(self, run: str) -> list[tuple[SweepHeader, SweepStatus]]:
        """How the calls about a run's outputs stand, of judges for instance."""

        def of(servers: Servers) -> list[tuple[SweepHeader, SweepStatus]]:
            found = (_calls(servers, name) for name in servers.sweeps.further(run))
            return [each for each in found if each is not None]

        return self.ask(of, [])

    def report(self, run: str) -> dict[str, Json] | None:
        """The report.json of a run that workers finished, or whose command left it there.

        Raises WireError where it is none that this evalq reads.
        """
        data = self.ask(lambda servers: _reports(servers).report(run), None)
        return None if data is None else report_of(data, f"what the ledger has of run {run}")

    def cases(self, run: str) -> bytes | None:
        """How the cases of a run went."""
        return self.ask(lambda servers: _reports(servers).cases(run), None)

    def places(self) -> list[HistoryKey]:
        """All histories."""
        return self.ask(lambda servers: servers.history.places(), [])

    def entries(self, evaluator: str, suite: str, target: str, most: int) -> list[Entry]:
        """The runs of a history, the newest first."""
        from evalq.workers.ledger.history import HistoryKey

        return self.ask(lambda servers: servers.history.entries(HistoryKey(evaluator, suite, target), most), [])

    def drift(self, evaluator: str, suite: str, target: str) -> list[DriftState]:
        """How the chains of a history stand."""
        from evalq.workers.ledger.history import HistoryKey

        return self.ask(lambda servers: servers.drift.states(HistoryKey(evaluator, suite, target)), [])


def _calls(servers: Servers, sweep: str) -> tuple[SweepHeader, SweepStatus] | None:
    header, look = servers.sweeps.header(sweep), servers.sweeps.poll(sweep)
    return None if header is None or look is None else (header, look)


def _reports(servers: Servers) -> Reports:
    from evalq.workers.ledger.detached import Reports

    return Reports(servers.runs, servers.settings)
