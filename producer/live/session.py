"""Carrying a sweep out: the calls first, then the evaluation of what was recorded, in one folder."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evalcore.canonical import Json
from evalcore.errors import (
    BrokerUnreachable,
    Cancelled,
    ConfigError,
    Incomplete,
    Interrupted,
    NothingEvaluated,
    Paused,
    ServerRefused,
    StorageError,
    UsageError,
    WorkersLost,
)
from producer.job import Job
from producer.live.asked import Live
from producer.live.sweep import Sweep
from producer.progress import Reporter
from producer.session import Place, carry_out_here, resumable, shared_place

if TYPE_CHECKING:
    from producer.live.drive import SweepDriver
    from producer.patience import Patience

__all__ = ["carry_out_sweep", "launch_sweep", "refuse_detached"]


def carry_out_sweep(sweep: Sweep, place: Place, reporter: Reporter) -> tuple[Job, dict[str, Json]]:
    """Call, record and evaluate; returns the evaluation's job and its report.

    Raises what driving a sweep and a job raises; the folder can be gone on with after anything but faulty input.
    """
    try:
        if place.inline:
            raise UsageError("--inline calls nobody: live calls are paced by way of a server; leave it away")
        with sweep.folder.driving() as mine:
            if not mine:
                raise UsageError(f"{sweep.folder.path}: another evalq process is driving this run; see: evalq watch")
            with shared_place(place, _roots(sweep), sweep.evaluator.name, reporter=reporter, calls=True) as shared:
                _call(sweep, shared, place, reporter)
                _forget_evaluation(sweep, shared, place, reporter)
                job = sweep.job()
                report = carry_out_here(job, shared, reporter, place)
                sweep.drop_working_files()
                return job, report
    except (UsageError, ConfigError):
        if sweep.new and not sweep.recorded.count:  # one begun before may have outputs in the ledger, or another driver
            sweep.discard()
        raise
    except OSError as error:
        raise StorageError.of(error, sweep.folder.path, f"go on with: {place.resume(sweep)}") from error


def refuse_detached(live: Live) -> None:
    """Raise UsageError for what cannot be left to the processes that call."""
    if live.stop or live.cache:
        raise UsageError("--detach goes with neither --stop nor --cache: both need a producer that stays")


def launch_sweep(sweep: Sweep, place: Place, reporter: Reporter) -> None:
    """Leave a sweep to the processes that call."""
    with resumable(sweep, place), _driver(sweep, place, reporter) as (driver, _):
        driver.launch()
    sweep.folder.note(state="detached")


def _call(sweep: Sweep, shared: Place, place: Place, reporter: Reporter) -> None:
    """All calls, as far as the budgets go; outputs.jsonl is there after this, whatever ended them."""
    from producer.live.health import Health
    from workers.connect import connect
    from workers.register import Register

    state, here = "stopped", bool(place.settings.calls or not place.settings.broker)
    try:
        health = Health(Register(connect(shared.settings.ledger_url, shared.settings, again=False)), sweep.header)
        with reporter.watching() as watch, _driver(sweep, shared, reporter) as (driver, patience):

            def seen(standing: object) -> None:
                _warn(driver, reporter, sweep, here)
                for line in health.news():
                    reporter.warn(line)
                watch(standing)  # type: ignore[arg-type]

            try:
                facts = driver.drive(seen)
            except KeyboardInterrupt:
                state = "interrupted"
                with contextlib.suppress(KeyboardInterrupt):
                    if not patience.once(driver.pause):
                        reporter.warn("the server does not answer, so processes that call may go on for a while")
                raise Interrupted(place.resume(sweep)) from None
            except Paused:
                state = "paused"
                raise Interrupted(place.resume(sweep)) from None
        state = "called"
        if facts["ended"] == "spent":
            sweep.spent = True
            given = "--max-calls N" if sweep.live.max_calls else "--max-cost X"
            reporter.say(
                f"{facts['reason']}: {sweep.recorded.count:,} of {sweep.header.total:,} calls are recorded; "
                f"to make the others, raise it: {place.resume(sweep)} {given}"
            )
        sweep.folder.note(calls=facts)
        sweep.write_outputs()
        if not sweep.recorded.count:
            raise NothingEvaluated("nothing was called: the budget allows no call")
    except Cancelled as error:
        state = "cancelled"
        raise Cancelled(f"{error}; what it recorded is in {sweep.outputs}") from None
    except (BrokerUnreachable, ServerRefused, WorkersLost) as error:
        raise type(error)(f"{error}; resume with: {place.resume(sweep)}") from error
    except Incomplete as error:
        raise Incomplete(f"{error}; when it is mended, go on with: {place.resume(sweep)}") from None
    finally:
        with contextlib.suppress(OSError):
            if state != "called":
                sweep.write_outputs()
            sweep.folder.note(state=state)


def _forget_evaluation(sweep: Sweep, shared: Place, place: Place, reporter: Reporter) -> None:
    """Of other outputs than there are now: the ledger shall not take its answers for those of the new ones."""
    from producer.patience import Patience
    from workers.ledger import Ledger
    from workers.reports import Reports

    patience = Patience(shared.settings, reporter, shared.check)
    with resumable(sweep, place), patience.telling(), contextlib.closing(patience.client()) as client:
        ledger = Ledger(client, shared.settings)

        def forget() -> bool:
            _, seal = Reports(ledger, shared.settings).plan(sweep.run)
            with sweep.outputs.open("rb") as stream:
                if seal is None or seal.sha256 != (hashlib.file_digest(stream, "sha256").hexdigest(),):
                    ledger.forget(sweep.run)
            return True

        patience(forget)


def _warn(driver: SweepDriver, reporter: Reporter, sweep: Sweep, here: bool) -> None:
    """Tell once what a user has to know while the calls go; who calls from ``here`` need not start anything."""
    target = sweep.header.target
    texts = {
        "nobody": f"no process calls {target!r} yet (start one: evalq worker --calls N --targets FILE)",
        "differ": f"warning: the fleet's targets files differ in {target!r}; its outputs are of several settings",
        "elsewhere": "warning: another producer drove this sweep; outputs that only its folder has are called again",
    }
    for name in sorted(driver.warned & texts.keys() - ({"nobody"} if here else set())):
        (reporter.waiting if name == "nobody" else reporter.warn)(texts[name])
        driver.warned.discard(name)
        driver.told.add(name)


@contextlib.contextmanager
def _driver(sweep: Sweep, place: Place, reporter: Reporter) -> Iterator[tuple[SweepDriver, Patience]]:
    from producer.live.cache import Cache
    from producer.live.drive import SweepDriver
    from producer.patience import Patience
    from workers.calls import Calls

    settings = place.settings
    with contextlib.ExitStack() as stack:
        cache = Cache(sweep.live.cache) if sweep.live.cache else None
        if cache is not None:
            stack.callback(cache.close)
        patience = Patience(settings, reporter, place.check)
        stack.enter_context(patience.telling())
        driver = SweepDriver(sweep, Calls(patience.client(), settings), settings, patience, cache)
        try:
            yield driver, patience
        finally:
            patience.once(driver.release)


def _roots(sweep: Sweep) -> list[Path]:
    return list(dict.fromkeys([Path.cwd().resolve(), sweep.folder.path.resolve()]))
