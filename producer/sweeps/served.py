"""Who calls the target of a sweep, under which settings, and what its user has to be told meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterable

from evalq.evalcore.errors import UsageError
from evalq.producer.monitor.began import began
from evalq.producer.monitor.reporter import Reporter
from evalq.workers.callers.choices import known_facts, refuse_unknown
from evalq.workers.ledger.heartbeats import CallerFacts, Heartbeats
from evalq.workers.ledger.sweep_model import SETTINGS, SweepHeader

__all__ = ["CallingProcesses", "Notices"]

PATIENT_SECONDS = 3.0
"""So long from the beginning of a command, or from when the last one left, nobody need call."""

_START = "start one: evalq worker --calls N --targets FILE; or call from here: --calls N --targets FILE"


class Notices:
    """What the user of a sweep has to be told of it, by name: each once; and ``news``, in words."""

    def __init__(self) -> None:
        self.due: set[str] = set()
        self.news: list[str] = []
        self._told: set[str] = set()
        self._waits_for = ""

    def knows(self, name: str) -> bool:
        """Whether it was told, or is about to be."""
        return name in self.due | self._told

    def add(self, name: str) -> None:
        """There is something to tell, by its name in `tell`."""
        self.due |= {name} - self._told

    def wait_for(self, what: str) -> None:
        """It waits, and for what is to be told: once, and again where that changes."""
        if what != self._waits_for:
            self._waits_for = what
            self.news.append(what)

    def tell(self, reporter: Reporter, target: str, *, here: bool) -> None:
        """Tell what there is; who calls ``target`` from ``here`` need not start anything."""
        texts = {
            "nobody": f"no process calls {target!r} yet ({_START})",
            "differ": f"warning: the fleet's targets files differ in {target!r}; its outputs are of several settings",
            "changed": f"warning: {target!r} has other settings than before; its outputs are of several settings",
            "untold": f"warning: some answers of {target!r} tell no tokens: they count at the mean cost in --max-cost",
            "elsewhere": "warning: another producer drove this sweep; what only its folder has is called again",
        }
        while self.news:
            reporter.say(self.news.pop(0))
        for name in sorted(self.due - ({"nobody"} if here else set())):
            (reporter.waiting if name == "nobody" else reporter.warn)(texts[name])
            self.due.discard(name)
            self._told.add(name)


class CallingProcesses:
    """The processes that call for one sweep. ``priced``: its target needs a price."""

    def __init__(self, heartbeats: Heartbeats, header: SweepHeader, notices: Notices, *, priced: bool) -> None:
        self._heartbeats = heartbeats
        self._header = header
        self._notices = notices
        self._priced = priced
        self._alone: float | None = began()

    def leaving(self) -> bool:
        """Whether nobody can call it now, which is to be told at once to somebody who leaves it to the fleet."""
        alone = not any(known_facts(caller.targets, self._header.target) for caller in self._callers())
        if alone:
            self._notices.add("nobody")
        return alone

    def _callers(self) -> list[CallerFacts]:
        # Processes of other code pass this sweep over, whatever they know of its target.
        return [one for one in self._heartbeats.callers().values() if one.code == self._header.code]

    def config(self) -> str | None:
        """The digest of the target's settings, from who can call it; empty where they differ, None while nobody can.

        Raises UsageError where processes that call do not know the target, or have no price that is needed.
        """
        target = self._header.target
        callers = self._callers()
        found = [(caller, known_facts(caller.targets, target)) for caller in callers]
        able = [(caller, facts) for caller, facts in found if facts is not None]
        if callers and not able:
            refuse_unknown([caller.targets for caller in callers], target)
        # A single one is enough: what it calls would be in no budget.
        unpriced = [caller for caller, facts in able if facts.price is None]
        if self._priced and unpriced:
            raise UsageError(f"--max-cost: target {target!r} has no price in the targets file of {unpriced[0].host}")
        if not able:
            now = time.monotonic()
            self._alone = self._alone or now
            if now - self._alone >= PATIENT_SECONDS:
                self._notices.add("nobody")
            return None
        self._alone = None
        configs = {facts.config for _, facts in able}
        if not any(map(self._header.may_call, configs)):
            raise UsageError(_changed(self._header, configs))
        # Those who may not call it give no outputs, and so make no difference.
        configs = set(filter(self._header.may_call, configs))
        if len(configs) > 1:
            self._notices.add("differ")
            return ""
        return configs.pop()


def _changed(header: SweepHeader, configs: Iterable[str]) -> str:
    then, now = header.asked[SETTINGS], ", ".join(sorted(configs))
    before = header.asked.get("extends", header.run)
    return (
        f"target {header.target!r} has other settings (digest {now}) than when {before} was asked "
        f"({then}), and answers of two settings are never one run: put them back, or start a new sweep"
    )
