"""The gate's record of a candidate at a baseline: its looks, its confirmations, and whether it was stopped before."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec

from evalq.evalcore.compare.decision import Check, Decided, GateDecision, surprising
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.spending import (
    GateLook,
    answers_digest,
    baseline_digest,
    candidate_digest,
    look_count,
    spent_digest,
)
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.errors import StorageError, UsageError
from evalq.evalcore.files import open_appending, read_plain, write_atomic
from evalq.evalcore.model.canonical import digest
from evalq.producer.comparing.baselines import FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evalq.producer.servers import Servers


_LOOKS_FOLDER = FOLDER / ".looks"


class Looks(Protocol):
    """Looks by the digest of baseline and policy, of a candidate and of its answers.

    `count` is how many there were, `take` gives the look by some answers of a candidate, the next where they are new,
    and `peek` tells it without counting it; `settle` says why a candidate is stopped: why it was stopped first.
    """

    def count(self, baseline: str) -> int: ...

    def peek(self, baseline: str, candidate: str, answers: str) -> GateLook: ...

    def take(self, baseline: str, candidate: str, answers: str) -> GateLook: ...

    def settle(self, baseline: str, candidate: str, stopped: str) -> str: ...


def looks_of(servers: Servers) -> Looks:
    """The server's, where one is named."""
    return servers.looks if servers.named else _FileLooks(_LOOKS_FOLDER)


# Bounded: errors are divided by these numbers, and whoever edits the file could make one of them 0.
_Number = Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]


class _CandidateLooks(msgspec.Struct):
    looks: dict[str, tuple[_Number, _Number]] = {}
    stands: str = ""


class _CountedLooks(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0
    candidates: dict[str, _CandidateLooks] = {}

    def look(self, candidate: str, answers: str) -> GateLook:
        """By some answers of a candidate: the one that it was before, or the next."""
        known = self.candidates.get(candidate, _CandidateLooks())
        given = known.looks.get(answers, (self.count + 1, len(known.looks) + 1))
        return GateLook(*given, known.stands)


class _FileLooks:
    """A file for each baseline and policy, one process at a time. They are of this clone alone, and not committed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def count(self, baseline: str) -> int:
        path = self._folder / f"{baseline}.json"
        return self._read(path).count if path.exists() else 0

    def peek(self, baseline: str, candidate: str, answers: str) -> GateLook:
        with self._counted(baseline) as count:
            return count.look(candidate, answers)

    def take(self, baseline: str, candidate: str, answers: str) -> GateLook:
        with self._counted(baseline) as count:
            look = count.look(candidate, answers)
            known = count.candidates.setdefault(candidate, _CandidateLooks())
            # A candidate that was stopped stays so: looking at it again decides nothing, and spends nothing.
            if answers not in known.looks and not known.stands:
                count.count, known.looks[answers] = look.number, (look.number, look.draw)
            return look

    def settle(self, baseline: str, candidate: str, stopped: str) -> str:
        with self._counted(baseline) as count:
            known = count.candidates.setdefault(candidate, _CandidateLooks())
            # The first reason stays, whatever later answers say.
            # A reason may quote a name that is no UTF-8, and such text has no JSON: its bytes stay readable.
            known.stands = known.stands or stopped.encode(errors="backslashreplace").decode()
            return known.stands

    @contextmanager
    def _counted(self, baseline: str) -> Iterator[_CountedLooks]:
        """What is counted so far, and written back at the end. Raises StorageError."""
        path = self._folder / f"{baseline}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not (ignored := self._folder / ".gitignore").exists():
                write_atomic(ignored, b"*\n")
            with open_appending(self._folder / "lock") as lock:
                # Before it is read: two that read one count would take the same look.
                fcntl.flock(lock, fcntl.LOCK_EX)
                count = self._read(path) if path.exists() else _CountedLooks()
                before = msgspec.json.encode(count)
                yield count
                # Only what was counted: a peek leaves the file as it is.
                if (after := msgspec.json.encode(count)) != before:
                    write_atomic(path, after)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror or error}: looks at a baseline have to be counted") from error

    @staticmethod
    def _read(path: Path) -> _CountedLooks:
        try:
            return msgspec.json.decode(read_plain(path), type=_CountedLooks)
        except msgspec.DecodeError as error:
            raise StorageError(f"{path} is damaged ({error}): remove it, and looks are counted anew") from error


# The record of a candidate at a baseline: its looks, its confirmations, and whether it was stopped before.

_STOPPED: dict[Decided, str] = {"NO-GO": "it was stopped", "SUSPECT": "it was suspect"}


class GateRecord:
    """What was counted of ``candidate`` by ``policy`` at the approved ``partners``.

    Where that is "", it is these answers alone, and those that they were extended from.
    """

    def __init__(
        self,
        policy: Policy,
        candidates: Sequence[RunCases],
        partners: Mapping[str, RunCases],
        servers: Servers,
        candidate: str,
    ) -> None:
        self._looks = looks_of(servers)
        self._place = baseline_digest(policy, partners.values())
        # What was spent on a baseline stays spent where a policy changes what can decide (GATE, What a look counts
        # against): numbers are shared by all policies, and whose answers were seen is known by each.
        self._spent = spent_digest(partners.values())
        self._answers = answers_digest(candidates)
        self._candidate = _candidate_name(candidate) if candidate else candidate_digest(candidates)
        # Further answers of an extended run are paid for as looks, though nobody may have gated the first ones.
        self._least = look_count(candidates)

    def look(self, kind: str = "") -> GateLook:
        """The look by these answers, among those of a ``kind`` of their own; raises what counting raises."""
        return self._look(self._looks.take, kind)

    def decided(self, decide: Callable[[GateLook], GateDecision], kind: str = "") -> tuple[GateDecision, GateLook]:
        """What ``decide`` makes of the look by these answers, which is counted once there is a decision.

        What cannot be decided, for a metric that the results do not have say, spends nothing.
        """
        expected = self._look(self._looks.peek, kind)
        decision, look = decide(expected), self.look(kind)
        # Another machine may have taken that number meanwhile.
        return decision if look == expected else decide(look), look

    def _look(self, of: Callable[[str, str, str], GateLook], kind: str) -> GateLook:
        own = of(self._place + kind, self._candidate, self._answers)
        # Looking again at a candidate that was stopped decides nothing, and spends nothing.
        spend = self._looks.peek if own.stop_reason else of
        number = spend(self._spent + kind, f"{self._place} {self._candidate}", self._answers).number
        return msgspec.structs.replace(own, number=number).at_least(self._least)

    @property
    def key(self) -> str:
        """The same for the same answers of the same candidate at this baseline and policy."""
        return digest(f"{self._place} {self._candidate} {self._answers}".encode())[:16]

    def stopped(self) -> bool:
        """Whether the candidate was stopped before."""
        return bool(self._looks.settle(self._place, self._candidate, ""))

    def settled(self, decision: GateDecision, baseline: str, unconfirmed: Sequence[Check] = ()) -> GateDecision:
        """The decision that counts: the candidate is stopped where it was before, by whatever answers.

        ``unconfirmed`` are checks that stop it, surprising as they are, though no confirmation looks at them.
        """
        # Surprises alone bind: what chance has no part in may be fixed, and is then decided anew.
        why = _reasons([*surprising(decision, "NO-GO"), *unconfirmed], decision.candidates)
        worse = _reasons(surprising(decision, "SUSPECT"), decision.candidates)
        stands: dict[Decided, str] = {
            "NO-GO": self._looks.settle(self._place, self._candidate, why),
            "SUSPECT": self._looks.settle(self._place, f"{self._candidate} suspect", worse),
        }
        for verdict, reason in stands.items():
            # A NO-GO of these answers says more than that there was one before.
            if decision.decided == verdict:
                return decision
            if reason:
                demand = "one decision a candidate, however often it is run"
                check = Check(
                    baseline, demand, "critical", verdict, f"{_STOPPED[verdict]} by earlier answers: {reason}"
                )
                return msgspec.structs.replace(decision, decided=verdict, checks=(*decision.checks, check))
        return decision


def with_look(decision: GateDecision, look: GateLook) -> GateDecision:
    """The decision, with the look that it was."""
    return msgspec.structs.replace(decision, look=look, notes=(look.sentence(), *decision.notes))


def _candidate_name(candidate: str) -> str:
    try:
        # Arguments and variables may hold bytes that are no UTF-8, and come as lone surrogates.
        return digest(candidate.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise UsageError(f"candidate: {candidate!r} is not text: name what is judged, such as a commit") from None


def _reasons(checks: Iterable[Check], runs: Iterable[str]) -> str:
    reasons = "; ".join(f"{check.metric} {check.reason}" for check in checks)
    return f"run {', '.join(runs)}: {reasons}" if reasons else ""
