"""The processes that make live calls: the targets and settings that they know, and their reported problems."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from evalq.evalcore.errors import UsageError
from evalq.evalcore.version import code_version
from evalq.producer.monitor.command import command_began
from evalq.producer.monitor.fleet import LONG_SECONDS, format_duration
from evalq.producer.monitor.progress import Reporter
from evalq.producer.run.backend import Backend
from evalq.producer.sweep.head import changed_settings, warning_text
from evalq.workers.callers.choices import known_facts, refuse_unknown, unreachable_reasons
from evalq.workers.callers.target_sessions import target_facts
from evalq.workers.ledger.heartbeats import CallerFacts, Heartbeats, TargetFacts
from evalq.workers.ledger.sweep_model import SweepHeader
from evalq.workers.servers.connections import connect
from evalq.workers.servers.errors import SERVER_ERRORS
from evalq.workers.targets import NamedTarget, load_targets


class Callers:
    """The processes that would make a command's calls: its own, or the fleet of ``backend`` or else of ``shared``."""

    def __init__(self, backend: Backend, shared: Backend) -> None:
        self._backend = backend
        self._settings = shared.settings

    @cached_property
    def here(self) -> Mapping[str, NamedTarget]:
        """The targets file of a command that makes calls itself; empty if a fleet makes them by its own files.

        Raises ConfigError.
        """
        targets = self._backend.asked.targets
        return load_targets(targets) if targets and self._backend.calls_here else {}

    @cached_property
    def _known(self) -> list[Mapping[str, TargetFacts]]:
        """{target: its facts} of each process that makes calls."""
        if self.here:
            return [{name: target_facts(named) for name, named in self.here.items()}]
        if not self._settings.broker:
            return []
        callers = Heartbeats(connect(self._settings.ledger_address, self._settings)).callers().values()
        # Processes of another code version never take calls of this command's sweeps.
        return [caller.targets for caller in callers if caller.code == code_version()]

    def facts(self, target: str, *, priced: bool = False) -> list[TargetFacts]:
        """The facts on a target from each process that can call it; empty for a fleet without processes.

        Raises UsageError if no process knows the target or allows its parameters, or if ``priced`` and one has no
        price for it.
        """
        found = [facts for known in self._known if (facts := known_facts(known, target)) is not None]
        if self._known and not found:
            refuse_unknown(self._known, target)
        for each in found:
            if why := each.lacks(target, "the targets file", priced=priced, user=False):
                raise UsageError(why)
        return found


# Which workers call the target of a sweep, and the messages to its user meanwhile.

PATIENT_SECONDS = 3.0
"""How long a sweep may be without a calling process before a warning."""


class Warnings:
    """Warnings to the user of a sweep: named ones, each shown once, and ``lines`` with their own text."""

    def __init__(self) -> None:
        self.due: set[str] = set()
        self.lines: list[str] = []
        self._shown: set[str] = set()
        self._waits_for = ""

    def knows(self, name: str) -> bool:
        """Whether the named warning was shown or is due."""
        return name in self.due | self._shown

    def add(self, name: str) -> None:
        """Make the named warning due, if it was not shown yet; the names are those of `warning_text`."""
        self.due |= {name} - self._shown

    def wait_for(self, what: str) -> None:
        """Show what the sweep waits for, once for each text."""
        if what != self._waits_for:
            self._waits_for = what
            self.lines.append(what)

    def show(self, reporter: Reporter, target: str, *, here: bool) -> None:
        """Show all due warnings. ``here``: this command makes the calls, so it needs no worker."""
        while self.lines:
            reporter.say(self.lines.pop(0))
        for name in sorted(self.due - ({"nobody"} if here else set())):
            (reporter.waiting if name == "nobody" else reporter.warn)(warning_text(name, target))
            self.due.discard(name)
            self._shown.add(name)


class CallingProcesses:
    """The processes that call for one sweep. ``priced``: the target needs a price.

    ``then`` gives the settings that it had before, as `shown_settings` has them.
    """

    def __init__(
        self,
        heartbeats: Heartbeats,
        header: SweepHeader,
        warnings: Warnings,
        *,
        priced: bool,
        then: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._then = then
        self.settings: Mapping[str, str] = {}
        """Those of the target in a process that may call it, at the last `config`."""
        self._heartbeats = heartbeats
        self._header = header
        self._warnings = warnings
        self._priced = priced
        self._alone: float | None = command_began()

    def leaving(self) -> bool:
        """Whether no process can call the target now; a command that leaves the sweep to the fleet says so at once."""
        alone = not any(known_facts(caller.targets, self._header.target) for caller in self._callers())
        if alone:
            self._warnings.add("nobody")
        return alone

    def _callers(self) -> list[CallerFacts]:
        # Processes of another code version skip this sweep.
        return [one for one in self._heartbeats.callers().values() if one.code == self._header.code]

    def config(self) -> str | None:
        """The digest of the target's settings in the processes that can call it.

        "" if they differ, None while no process can call it. Raises UsageError if there are processes but none knows
        the target, or if one lacks a price that is needed.
        """
        target = self._header.target
        callers = self._callers()
        found = [(caller, known_facts(caller.targets, target)) for caller in callers]
        able = [(caller, facts) for caller, facts in found if facts is not None]
        if callers and not able:
            refuse_unknown([caller.targets for caller in callers], target)
        for caller, facts in able:
            where = f"the targets file of {caller.host}"
            # One process without a price is too many: no budget would count its calls.
            if why := facts.lacks(target, where, priced=self._priced, user=self._header.has_users):
                raise UsageError(why)
        if not able:
            now = time.monotonic()
            self._alone = self._alone or now
            if now - self._alone >= PATIENT_SECONDS:
                self._warnings.add("nobody")
            return None
        self._alone = None
        configs = {facts.config for _, facts in able}
        if not any(map(self._header.may_call, configs)):
            here = next(facts.settings for _, facts in able)
            raise UsageError(changed_settings(self._header, configs, self._then(), here))
        self.settings = next(facts.settings for _, facts in able if self._header.may_call(facts.config))
        # Ignore processes that may not call it, because they give no outputs.
        configs = set(filter(self._header.may_call, configs))
        if len(configs) > 1:
            self._warnings.add("differ")
            return ""
        return configs.pop()


# Problems of these processes with a sweep's target: which cannot call it and why, and which call takes long.

_AGAIN_SECONDS = 60.0


class Health:
    """The callers of one sweep, as its producer sees them. `news` are messages, each shown at most once a minute."""

    def __init__(self, heartbeats: Heartbeats, header: SweepHeader, *, poll_seconds: float = 2.0) -> None:
        self._heartbeats = heartbeats
        self._header = header
        self._poll_seconds = poll_seconds
        # Makes the first `news` poll at once.
        self._looked = -poll_seconds
        self._shown: dict[str, float] = {}
        self._waiting = False

    def news(self) -> list[str]:
        """New messages since the last poll; none while the server is away."""
        now = time.monotonic()
        if now - self._looked < self._poll_seconds:
            return []
        self._looked = now
        # Ignore the failure: the steps that need the server report that it is away.
        with contextlib.suppress(*SERVER_ERRORS):
            callers = self._heartbeats.callers().values()
            lines = [*self._troubles(list(callers)), *self._long(list(callers))]
            fresh = [line for key, line in lines if now - self._shown.get(key, -_AGAIN_SECONDS) >= _AGAIN_SECONDS]
            self._shown |= {key: now for key, line in lines if line in fresh}
            return fresh
        return []

    def _troubles(self, callers: list[CallerFacts]) -> Iterator[tuple[str, str]]:
        target = self._header.target
        reasons = unreachable_reasons(callers, self._header.code, target)
        if reasons:
            self._waiting = True
            yield "nobody", f"waiting: no process can call {target!r} now: {reasons}; calls are held, none is lost"
            return
        if self._waiting:
            self._waiting = False
            # Otherwise the next outage would not be shown for a minute.
            self._shown.pop("nobody", None)
            yield f"again {time.monotonic()}", warning_text("again", target)
        for caller in callers:
            known = known_facts(caller.targets, target)
            if known is not None and known.trouble:
                line = f"warning: {caller.host} does not call {target!r} now: {known.trouble}"
                yield f"{caller.host} {caller.pid}", line

    def _long(self, callers: list[CallerFacts]) -> Iterator[tuple[str, str]]:
        found = [
            (*caller.oldest[self._header.run], caller.host) for caller in callers if self._header.run in caller.oldest
        ]
        case, seconds, host = max(found, key=lambda known: known[1], default=("", 0.0, ""))
        if seconds >= LONG_SECONDS:
            yield "long", f"oldest call in flight: case {case}, for {format_duration(seconds)}, on {host}"
