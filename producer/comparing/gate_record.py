"""The gate's record of a candidate at a baseline: its looks, its confirmations, and whether it was stopped before."""

from __future__ import annotations

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
from evalq.evalcore.files import lock_file, open_appending, read_plain, write_atomic
from evalq.evalcore.model.canonical import digest
from evalq.producer.comparing.samples import FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evalq.producer.servers import Servers


_LOOKS_FOLDER = FOLDER / ".looks"


class Looks(Protocol):
    """Looks by the digests of baseline and policy, of a candidate and of its answers.

    `count` is the number of looks so far. `take` returns the look for a candidate's answers, and counts a new one if
    the answers are new; `peek` does not count it. `settle` returns the first reason why a candidate was stopped.
    """

    def count(self, baseline: str) -> int: ...

    def peek(self, baseline: str, candidate: str, answers: str) -> GateLook: ...

    def take(self, baseline: str, candidate: str, answers: str) -> GateLook: ...

    def settle(self, baseline: str, candidate: str, stopped: str) -> str: ...


def looks_of(servers: Servers) -> Looks:
    """The looks of the ledger, or of files if no server is named."""
    return servers.looks if servers.named else _FileLooks(_LOOKS_FOLDER)


# Bounded: errors are divided by these numbers, and an edited file could hold a 0.
_Number = Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]


class _CandidateLooks(msgspec.Struct):
    looks: dict[str, tuple[_Number, _Number]] = {}
    stands: str = ""


class _CountedLooks(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0
    candidates: dict[str, _CandidateLooks] = {}

    def look(self, candidate: str, answers: str) -> GateLook:
        """The look for a candidate's answers: the same as before, or the next."""
        known = self.candidates.get(candidate, _CandidateLooks())
        given = known.looks.get(answers, (self.count + 1, len(known.looks) + 1))
        return GateLook(*given, known.stands)


class _FileLooks:
    """A file for each baseline and policy, one process at a time. They stay in this clone, and are not committed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def count(self, baseline: str) -> int:
        path = self._folder / f"{baseline}.json"
        return self._read(path).count if path.exists() else 0

    def peek(self, baseline: str, candidate: str, answers: str) -> GateLook:
        with self._locked_count(baseline) as count:
            return count.look(candidate, answers)

    def take(self, baseline: str, candidate: str, answers: str) -> GateLook:
        with self._locked_count(baseline) as count:
            look = count.look(candidate, answers)
            known = count.candidates.setdefault(candidate, _CandidateLooks())
            # A stopped candidate stays stopped, so another look decides nothing, and must spend nothing.
            if answers not in known.looks and not known.stands:
                count.count, known.looks[answers] = look.number, (look.number, look.draw)
            return look

    def settle(self, baseline: str, candidate: str, stopped: str) -> str:
        with self._locked_count(baseline) as count:
            known = count.candidates.setdefault(candidate, _CandidateLooks())
            # The first reason stays. It may quote a name that is not UTF-8, which JSON cannot hold.
            known.stands = known.stands or stopped.encode(errors="backslashreplace").decode()
            return known.stands

    @contextmanager
    def _locked_count(self, baseline: str) -> Iterator[_CountedLooks]:
        """Lock the file and read its count; a changed count is written at the end. Raises StorageError."""
        path = self._folder / f"{baseline}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not (ignored := self._folder / ".gitignore").exists():
                write_atomic(ignored, b"*\n")
            with open_appending(self._folder / "lock") as lock:
                # Before reading: two processes must not take the same look.
                lock_file(lock, wait=True)
                count = self._read(path) if path.exists() else _CountedLooks()
                before = msgspec.json.encode(count)
                yield count
                if (after := msgspec.json.encode(count)) != before:
                    write_atomic(path, after)
        except OSError as error:
            raise StorageError(
                f"{path}: {error.strerror or error}: the gate must count its looks at a baseline there"
            ) from error

    @staticmethod
    def _read(path: Path) -> _CountedLooks:
        try:
            return msgspec.json.decode(read_plain(path), type=_CountedLooks)
        except msgspec.DecodeError as error:
            raise StorageError(
                f"{path} is damaged ({error}): remove it, and evalq counts looks from 1 again"
            ) from error


# The record of a candidate at a baseline: its looks, its confirmations, and whether it was stopped before.

_STOPPED: dict[Decided, str] = {"NO-GO": "it was stopped", "SUSPECT": "it was suspect"}


class GateRecord:
    """The looks at ``candidate`` by ``policy`` at the approved ``partners``.

    Without a name of the candidate, only these answers and those that they extend are the candidate.
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
        self._baseline = baseline_digest(policy, partners.values())
        # All policies share the number of looks at a baseline, so that a changed policy gains no error level (GATE,
        # What a look counts against). Each policy knows which answers it has seen.
        self._spent = spent_digest(partners.values())
        self._answers = answers_digest(candidates)
        self._candidate = _candidate_name(candidate) if candidate else candidate_digest(candidates)
        # Each extension of a run counts as a look, even if nobody gated the run before.
        self._least = look_count(candidates)

    def look(self, kind: str = "") -> GateLook:
        """The look by these answers, counted for each ``kind`` apart. Raises what counting raises."""
        return self._look(self._looks.take, kind)

    def decided(self, decide: Callable[[GateLook], GateDecision], kind: str = "") -> tuple[GateDecision, GateLook]:
        """The decision of ``decide`` at the look by these answers, which counts only once there is a decision.

        If ``decide`` fails, for example for an unknown metric, the look spends nothing.
        """
        expected = self._look(self._looks.peek, kind)
        decision, look = decide(expected), self.look(kind)
        # Another machine may have taken that number meanwhile.
        return decision if look == expected else decide(look), look

    def _look(self, of: Callable[[str, str, str], GateLook], kind: str) -> GateLook:
        own = of(self._baseline + kind, self._candidate, self._answers)
        # Another look at a stopped candidate decides nothing, and must spend nothing.
        spend = self._looks.peek if own.stop_reason else of
        number = spend(self._spent + kind, f"{self._baseline} {self._candidate}", self._answers).number
        return msgspec.structs.replace(own, number=number).at_least(self._least)

    @property
    def key(self) -> str:
        """The same for the same answers of the same candidate at this baseline and policy."""
        return digest(f"{self._baseline} {self._candidate} {self._answers}".encode())[:16]

    def stopped(self) -> bool:
        """Whether an earlier gate stopped the candidate."""
        return bool(self._looks.settle(self._baseline, self._candidate, ""))

    def settled(self, decision: GateDecision, baseline: str, unconfirmed: Sequence[Check] = ()) -> GateDecision:
        """The final decision: a candidate that was stopped before, by any answers, stays stopped.

        ``unconfirmed`` are surprising checks that stop it without a confirmation.
        """
        # Only surprises stop a candidate for good: faults that involve no chance can be fixed.
        why = _reasons([*surprising(decision, "NO-GO"), *unconfirmed], decision.candidates)
        worse = _reasons(surprising(decision, "SUSPECT"), decision.candidates)
        stands: dict[Decided, str] = {
            "NO-GO": self._looks.settle(self._baseline, self._candidate, why),
            "SUSPECT": self._looks.settle(self._baseline, f"{self._candidate} suspect", worse),
        }
        for verdict, reason in stands.items():
            # These answers say the same, in more detail.
            if decision.decided == verdict:
                return decision
            if reason:
                demand = "one decision for a candidate, however often it runs"
                check = Check(
                    baseline, demand, "critical", verdict, f"{_STOPPED[verdict]} by earlier answers: {reason}"
                )
                return msgspec.structs.replace(decision, decided=verdict, checks=(*decision.checks, check))
        return decision


def with_look(decision: GateDecision, look: GateLook) -> GateDecision:
    """The decision with its look."""
    return msgspec.structs.replace(decision, look=look, notes=(look.sentence(), *decision.notes))


def _candidate_name(candidate: str) -> str:
    try:
        # Bytes of arguments and variables that are not UTF-8 come as lone surrogates.
        return digest(candidate.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise UsageError(
            f"candidate: {candidate!r} is not UTF-8: name the candidate in plain text, such as a commit"
        ) from None


def _reasons(checks: Iterable[Check], runs: Iterable[str]) -> str:
    reasons = "; ".join(f"{check.metric} {check.reason}" for check in checks)
    return f"run {', '.join(runs)}: {reasons}" if reasons else ""
