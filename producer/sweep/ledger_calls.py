"""Make the calls of a sweep over a ledger: a driver publishes them, and the processes that call make them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from evalq.evalcore.model.canonical import Json
from evalq.producer.driving.driver import Driver
from evalq.producer.driving.interrupts import Interrupts
from evalq.producer.driving.retries import ServerRetry
from evalq.producer.monitor.progress import Reporter, ShownProgress
from evalq.producer.run.backend import Backend
from evalq.producer.sweep.callers import Health
from evalq.producer.sweep.intake import warn_of_calls
from evalq.producer.sweep.reuse import open_cache
from evalq.producer.sweep.sweep import Sweep
from evalq.producer.sweep.work import SweepWork
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.sweep_model import SweepStatus
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.processes.identity import driver_token
from evalq.workers.servers.connections import connect


def drive_calls(
    sweep: Sweep, shared: Backend, backend: Backend, reporter: Reporter, interrupts: Interrupts
) -> dict[str, Json]:
    """Drive the sweep over the servers of ``shared`` until the calls are over; return how they ended."""
    # Do not retry here: the news can wait, but the loop that asks for them cannot.
    client = connect(shared.settings.ledger_address, shared.settings, again=False)
    health = Health(Heartbeats(client), sweep.header)
    with (
        reporter.watching() as watch,
        sweep_driver(sweep, shared, reporter, interrupts) as (driver, work),
    ):

        def seen(progress: ShownProgress) -> None:
            work.warnings.show(reporter, sweep.header.target, here=backend.calls_here)
            for line in health.news():
                reporter.warn(line)
            watch(progress)

        driver.drive(seen)
        return work.facts()


@contextlib.contextmanager
def sweep_driver(
    sweep: Sweep, backend: Backend, reporter: Reporter, interrupts: Interrupts
) -> Iterator[tuple[Driver[SweepStatus], SweepWork]]:
    """A driver over the servers of ``backend``, and its work; the driver gives the sweep up at the end.

    The first Ctrl-C pauses the sweep and waits a moment for calls in flight. The next Ctrl-C stops the wait.
    """
    settings = backend.settings
    with contextlib.ExitStack() as stack:
        # The sweep already uses this cache, so users cannot choose another one.
        then = f"move it away, and resume with: {backend.resume(sweep.folder)}"
        cache = open_cache(sweep.live.cache, then, stack)
        retry = ServerRetry(settings, reporter, backend.check)
        stack.enter_context(retry.reporting())
        ledger = SweepLedger(retry.client(), settings, driver_token())
        work = SweepWork(sweep, ledger, cache, server=backend.server, hurried=lambda: interrupts.again)
        driver = Driver(work, retry, backend.server)
        try:
            with driver.leaving(reporter):
                yield driver, work
            retry.once(driver.release)
        finally:
            warn_of_calls(work.in_flight, reporter)
