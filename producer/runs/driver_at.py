"""A run's driver at the servers and local workers of a backend, and what it leaves there when it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from evalq.evalcore.errors import Driven, InputError
from evalq.evalcore.model.life import RunState
from evalq.producer.folder.job import Job
from evalq.producer.monitor.progress import RunStatus, Watcher
from evalq.producer.monitor.reporter import Reporter
from evalq.producer.runs.backend import Backend, shared_backend
from evalq.producer.runs.collector import Collector

if TYPE_CHECKING:
    from evalq.producer.runs.driver import RunDriver
    from evalq.producer.runs.planner import Planner
    from evalq.workers.ledger.runs import RunLedger

__all__ = ["driver_at"]


@contextlib.contextmanager
def driver_at(
    job: Job,
    collector: Collector,
    backend: Backend,
    reporter: Reporter,
    seen: Watcher | None = None,
    begun: Planner | None = None,
) -> Iterator[RunDriver]:
    """A driver over the servers and local workers of ``backend``; what was started here ends with it.

    ``seen`` is shown who works there before anything else, however long that takes. ``begun`` has planned the job's
    first chunks.
    """
    with (
        shared_backend(backend, job.roots, job.header.evaluator, reporter=reporter) as shared,
        contextlib.ExitStack() as stack,
    ):
        from evalq.producer.driving.waiting import Patience
        from evalq.workers.ledger.runs import RunLedger
        from evalq.workers.processes.identity import driver_token

        settings = shared.settings
        patience = Patience(settings, reporter, shared.check)
        ledger = RunLedger(patience.client(), settings, driver_token())
        if seen is not None and not shared.served:
            patience.once(partial(_look_round, ledger, job, seen))
        # Imported while the local workers start: Celery takes its time in both.
        from evalq.producer.runs.driver import RunDriver
        from evalq.workers.broker.publisher import Broker

        broker = Broker(settings)
        stack.callback(broker.close)
        stack.enter_context(patience.telling())
        try:
            driver = RunDriver(job, collector, ledger, broker, settings, patience, begun)
            driver.registration.server = backend.server
            yield driver
        except BaseException as error:
            if not patience.once(partial(_let_go, ledger, job.run, error)) and _stops(error):
                reporter.warn("the server does not answer, so workers may compute what was published")
            raise


def _look_round(ledger: RunLedger, job: Job, seen: Watcher) -> None:
    """Show who works at a server."""
    from evalq.workers.ledger.heartbeats import Heartbeats

    workers, others, lacking = Heartbeats(ledger.client).serving(job.header.code_version, job.header.evaluator)
    seen(RunStatus(0, 0, job.total_bytes, workers=workers, others=others, lacking=lacking))


def _stops(error: BaseException) -> bool:
    """Whether nobody shall publish or compute on: a resume reopens the run."""
    return isinstance(error, InputError | KeyboardInterrupt)


def _let_go(ledger: RunLedger, run: str, error: BaseException) -> None:
    """Leave a run that this process drove to whoever comes next; what another drives since is left as it is."""
    with contextlib.suppress(Driven):
        if _stops(error):
            state: RunState = "failed" if isinstance(error, InputError) else "paused"
            # Closed before it is let go: workers go on with a run that is merely without a driver.
            ledger.close(run, state, str(error).partition("\n")[0])
        ledger.hand_over(run)
