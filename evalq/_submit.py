"""Submitting: runs, sweeps and suites that a program leaves to a fleet, and looks after by handles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalq._data import as_files
from evalq._evaluate import (
    KEPT,
    Inputs,
    Ready,
    amount,
    at_least_one,
    checked_tags,
    live_options,
    refuse_odd,
    refuse_uncallable,
    texts,
    whole,
)
from evalq._handle import Handle, apart, named_settings, served, silent
from evalq._run import Run
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.life import RunState

if TYPE_CHECKING:
    from evalq._compare import Decision, Operand
    from evalq.producer.folder.job import Job
    from evalq.producer.suites.suite_file import SuitePlan
    from evalq.producer.sweep.sweep import Sweep
    from evalq.workers.settings import Settings

__all__ = ["SuiteHandle", "submit", "submit_suite", "submit_sweep"]


def submit(
    evaluator: str | Evaluator[Any, Any],
    inputs: Inputs,
    *,
    params: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    broker: str | None = None,
    ledger: str | None = None,
    folder: str | Path | None = None,
    once: str = "",
    chunk_size: int | None = None,
    limit: int | None = None,
    suite: str = "default",
    tags: Mapping[str, str] | None = None,
    priority: str = "bulk",
    settings: str | Path | None = None,
) -> Handle:
    """Leave the evaluation of ``inputs`` to the fleet at ``broker``, and return its `Handle` at once.

        handle = evalq.submit("planagent", frame, broker="redis://localhost:6379/0", once="import 4711")
        handle.id                              # for evalq.connect, in any other process
        handle.run(timeout=60).report

    It returns when the server has the whole plan, and what workers cannot read themselves: from then on the run ends
    without this process. That takes as long as reading ``inputs`` once. Small inputs (1 MiB at most) go to the server;
    of larger ones workers read the files, under their roots.

    ``inputs``, ``params``, ``options``, ``folder``, ``once``, ``chunk_size`` (records), ``limit`` (records), ``suite``,
    ``tags`` and ``settings`` are those of `evaluate`. With ``once`` the same work is one run, however often and from
    however many processes of this folder it is submitted. ``priority`` is "bulk" or "interactive" (before all bulk
    work). ``broker`` and ``ledger`` are URLs; without them EVALQ_BROKER and EVALQ_LEDGER count. Threads, and processes
    after a fork, may submit at once.

    Raises UsageError, ConfigError or InputError for what was given, and BrokerUnreachable (after ``connect_seconds``)
    or ServerRefused; no run is begun then. If the server goes away in the middle, the error names the folder of the
    run, which `resume` finishes; with ``once``, submitting again does.
    """
    limit, chunk_size = at_least_one(limit=limit, chunk_size=chunk_size)
    suite, once = texts(suite, once)
    refuse_odd(folder, params=params, options=options)
    chosen = _reached(settings, broker, ledger, "submit")
    ready = Ready(evaluator, chosen)
    with as_files(ready.evaluator, inputs, options, limit) as given:
        sizes = {"chunk_size": chunk_size, "limit": limit}
        asked = ready.asked(folder, suite, tags, given, once=once, priority=_priority(priority), **sizes)
        return _left(ready, ready.job(given, params, asked), chosen)


def submit_sweep(
    evaluator: str | Evaluator[Any, Any],
    inputs: Inputs,
    *,
    target: str,
    repeat: int = 1,
    max_calls: int | None = None,
    max_cost: float | None = None,
    keep_prompts: bool = True,
    params: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    broker: str | None = None,
    ledger: str | None = None,
    folder: str | Path | None = None,
    once: str = "",
    suite: str = "default",
    tags: Mapping[str, str] | None = None,
    settings: str | Path | None = None,
) -> Handle:
    """Leave a sweep to the fleet at ``broker``, and return its `Handle` at once: its callers make the calls.

        handle = evalq.submit_sweep("vs", "golden.yaml", target="chat", repeat=20, broker=URL)
        handle.progress()                      # FleetProgress(state='calling', done=12, total=400, unit='calls', ...)

    ``target`` is a name in the targets file of the fleet's workers. The other arguments are those of `sweep`. Some need
    a producer that stays (``stop``, ``cache``, ``reuse``, judges), and are for `sweep` alone. The errors are those of
    `submit`.
    """
    (repeat, max_calls), max_cost = whole(repeat=repeat, max_calls=max_calls), amount(max_cost=max_cost)
    suite, once = texts(suite, once)
    refuse_odd(folder, params=params, options=options)
    chosen = _reached(settings, broker, ledger, "submit_sweep")
    ready = Ready(evaluator, chosen)
    refuse_uncallable(ready.evaluator, repeat)
    named: Any = target
    if not (isinstance(named, str) and named):
        raise UsageError(f"target={named!r:.100}: the name of a target of the fleet")
    live = live_options(target, repeat, "", (max_calls or 0, max_cost or 0.0), None, (), keep_prompts)
    with as_files(ready.evaluator, inputs, options, keep=KEPT) as given:
        asked = ready.asked(folder, suite, tags, given, once=once)
        return _left(ready, ready.sweep(given, params, live, asked), chosen)


def _reached(file: str | Path | None, broker: str | None, ledger: str | None, who: str) -> Settings:
    """The settings, once their server answers: nothing is begun that could not be left."""
    chosen = named_settings(file, broker, ledger, who)
    with served(chosen) as servers:
        servers.client.ping()
    return chosen


def _priority(given: Any) -> str:
    if given not in ("bulk", "interactive"):
        raise UsageError(f"priority={given!r:.100}: bulk or interactive")
    return str(given)


def _left(ready: Ready, begin: Callable[[], Job | Sweep], settings: Settings) -> Handle:
    from evalq.producer.lifecycle.start import leave

    folder = apart(lambda: leave(begin, ready.backend, silent()))
    return Handle(folder.info().run, settings, folder)


class SuiteHandle:
    """The runs of a suite that were left to a fleet: what `submit_suite` returns.

        suite = evalq.submit_suite("nightly.yaml", broker=URL)
        suite.wait(timeout=3600)
        sys.exit(suite.decide(baseline="main").exit_code)

    ``name`` is the suite's, ``runs`` its `Handle` by the name of each run, in the file's order. A run without a name
    has its evaluator's, numbered. Keep the ids to `connect` from elsewhere.
    """

    def __init__(self, plan: SuitePlan, handles: Mapping[str, Handle], servers: Mapping[str, str | None]) -> None:
        """A suite's handle comes from evalq.submit_suite."""
        self.name = plan.name
        self.runs = dict(handles)
        self._plan = plan
        self._servers = servers

    def states(self) -> dict[str, RunState]:
        """How each run stands: `Handle.state` by name."""
        return {name: handle.state() for name, handle in self.runs.items()}

    def wait(self, timeout: float | None = None) -> dict[str, RunState]:
        """Wait for all runs, at most ``timeout`` seconds; returns their states then: see `Handle.wait`."""
        import time

        until = None if timeout is None else time.monotonic() + timeout
        return {
            name: handle.wait(None if until is None else max(0.0, until - time.monotonic()))
            for name, handle in self.runs.items()
        }

    def results(self, timeout: float | None = None) -> dict[str, Run]:
        """The finished runs by name; raises what `Handle.run` raises for the first that did not finish."""
        self.wait(timeout)
        return {name: handle.run(0) for name, handle in self.runs.items()}

    def __await__(self) -> Generator[Any, None, dict[str, Run]]:
        """`results` without a time limit, in a coroutine."""
        return self._awaited().__await__()

    async def _awaited(self) -> dict[str, Run]:
        found = await asyncio.gather(*(handle._awaited() for handle in self.runs.values()))
        return dict(zip(self.runs, found, strict=True))

    def decide(self, *, baseline: Operand | None = None, candidate: str = "", timeout: float | None = None) -> Decision:
        """Wait as `results` does, and decide by the suite's policy: what `evalq run` decides, without its files.

        ``baseline`` is in place of the suite's own. Raises UsageError for a suite without a policy.
        """
        from evalq._compare import decide_by

        if self._plan.policy is None:
            raise UsageError(f"suite {self.name} has no policy: add policy: to its file")
        runs = list(self.results(timeout).values())
        against = baseline if baseline is not None else self._plan.baseline or None
        return decide_by(self._plan.policy, runs, baseline=against, candidate=candidate, **self._servers)

    def pause(self) -> None:
        """Pause every run that has not ended."""
        self._each("pause")

    def resume(self) -> None:
        """Resume every paused run."""
        self._each("resume")

    def cancel(self) -> None:
        """Cancel every run that is not done."""
        self._each("cancel")

    def _each(self, what: str) -> None:
        states = {"resume": {"paused"}, "pause": {"open", "calling", "called"}}
        for handle in self.runs.values():
            now = handle.state()
            if now in states[what] if what in states else now not in ("done", "cancelled"):
                getattr(handle, what)()

    def __repr__(self) -> str:
        return f"<evalq suite {self.name}: {', '.join(handle.id for handle in self.runs.values())}>"


def submit_suite(
    config: str | Path,
    *,
    broker: str | None = None,
    ledger: str | None = None,
    folder: str | Path | None = None,
    once: str = "",
    tags: Mapping[str, str] | None = None,
    settings: str | Path | None = None,
) -> SuiteHandle:
    """Leave each run of a suite file to the fleet at ``broker``, as `submit` and `submit_sweep` do; return at once.

        suite = evalq.submit_suite("nightly.yaml", broker=URL, once=commit)
        suite.states()                         # {'plans': 'open', 'chat': 'calling'}

    ``config`` is what `evalq run` takes. ``folder`` is the folder for the run folders [evalq-runs]. With ``once`` the
    same suite is submitted once. The files that the suite's ``output`` and ``outputs`` name are not written: `decide`
    returns the decision. The errors are those of `submit`; a faulty run raises before the first one begins.
    """
    from evalq.producer.folder.job import RunOptions
    from evalq.producer.lifecycle.start import leave
    from evalq.producer.run.backend import Backend
    from evalq.producer.suites.suite_file import load_suite

    refuse_odd(folder)
    _, once = texts("", once)
    chosen = _reached(settings, broker, ledger, "submit_suite")
    plan = load_suite(config, chosen.roots)
    under = None if folder is None else Path(folder)
    asked = RunOptions(under=under, tags=checked_tags(tags), once=once, unpack_bytes=chosen.unpack_bytes)
    # All of them before the first begins.
    starters = [run.starter(plan.name, asked, detach=True) for run in plan.runs]
    handles: dict[str, Handle] = {}
    for run, begin in zip(plan.runs, starters, strict=True):
        left = apart(partial(leave, begin, Backend(chosen), silent()))
        number, name = 1, run.called
        while name in handles:
            number += 1
            name = f"{run.called}-{number}"
        handles[name] = Handle(left.info().run, chosen, left)
    return SuiteHandle(plan, handles, {"broker": chosen.broker, "ledger": chosen.ledger or None})
