"""A gate over finished runs, from its policy file to its decision."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from evalq.evalcore.compare.decision import GateDecision
from evalq.evalcore.compare.eligibility import as_recorded, recorded_once, same_run
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.single_cases import CaseHistory, past_of
from evalq.evalcore.compare.spending import SINGLE, Errors, growing_run_errors, look_count
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract.measures import pass_measure
from evalq.evalcore.contract.params import line_of, load_mapping, validate
from evalq.evalcore.errors import EvalqError, UsageError
from evalq.producer.comparing.baselines import Baselines
from evalq.producer.comparing.gate_record import GateRecord, with_look
from evalq.producer.comparing.operands import alike, operand, partner
from evalq.producer.invocation.finding import folders
from evalq.producer.outputs.cases import cases_of, decode_cases

if TYPE_CHECKING:
    from evalq.producer.servers import Servers


# Earlier runs of a target, for the history of its cases.

MOST = 100
"""At most this many runs of a target count, the latest ones."""


def _pasts_of(
    candidates: Sequence[RunCases], partners: Mapping[str, RunCases], servers: Servers
) -> dict[str, CaseHistory]:
    """The history of each candidate's cases, from ./evalq-runs and from the ledger, if one is named."""
    return {run.called: past_of(run, partners.get(run.called), list(_earlier_runs(run, servers))) for run in candidates}


def _earlier_runs(run: RunCases, servers: Servers) -> Iterator[RunCases]:
    """Finished runs of the same evaluator, suite and target, without those that cannot be read."""
    if not run.target:
        return
    seen: set[str] = set()
    # Only its suite, as in the ledger: a confirmation calls again because of a drop, so its answers would make a case
    # look flakier than it is.
    wanted = (run.evaluator, run.suite, run.target, "done")
    alike = [
        folder
        for folder, info in folders()
        if (info.evaluator, info.suite, info.target, info.state) == wanted and info.run != run.run
    ]
    # Before reading: the cases of a run are large, and there may be thousands of runs.
    for folder in alike[-MOST:]:
        with contextlib.suppress(EvalqError, OSError):
            found = cases_of(folder)
            seen.add(found.run)
            yield found
    if servers.named:
        yield from _in_ledger(run, servers, seen)


def _in_ledger(run: RunCases, servers: Servers, seen: set[str]) -> Iterator[RunCases]:
    from evalq.workers.ledger.detached import Reports
    from evalq.workers.ledger.history import HistoryKey

    reports = Reports(servers.runs, servers.settings)
    for entry in servers.history.entries(HistoryKey(run.evaluator, run.suite, run.target), MOST):
        # A run that is in both counts once: its answers must not count twice.
        if entry.run in seen | {run.run}:
            continue
        with contextlib.suppress(EvalqError):
            data = reports.cases(entry.run)
            if data is not None:
                yield decode_cases(data, f"the ledger's record of run {entry.run}")


ITSELF = "a run compared with itself cannot show a change; gate another run, or name another baseline"
Mode = Literal["policy", "recorded", "statistical", "single"]
"""Which runs are decided by their recorded answers; see `gate_runs`."""


def load_policy(path: str | Path) -> Policy:
    """The policy in a YAML or JSON file. Raises ConfigError with the file and the key."""
    return validate(Policy, load_mapping(path), str(path))


@contextlib.contextmanager
def located(path: str | Path, policy: Policy) -> Iterator[None]:
    """Add file, line and key path to an error of the block that is about one demand of the policy in ``path``."""
    try:
        yield
    except UsageError as error:
        for number, gate in enumerate(policy.gates):
            if str(error).startswith(f"{gate.metric}: "):
                key = ("gates", number, "metric")
                line = line_of(path, key)
                at = f"{path}:{line}" if line else str(path)
                raise UsageError(f"{at}: {'.'.join(map(str, key))}: {error}") from error
        raise


def candidates_of(names: Sequence[str], servers: Servers) -> list[RunCases]:
    """The runs to gate. Raises UsageError for two of one name, since a policy could mean either."""
    return distinct([run for name in names for run in operand(name, servers)])


def distinct(runs: list[RunCases]) -> list[RunCases]:
    """``runs``. Raises UsageError for two of one name."""
    seen: dict[str, RunCases] = {}
    for run in runs:
        if run.called in seen:
            raise UsageError(
                f"{seen[run.called].run} and {run.run} are both called {run.called}: gate them one at a time, or give "
                "them names in a suite file"
            )
        seen[run.called] = run
    return runs


class MatchedRuns(NamedTuple):
    """Candidates and their partners: everything that a decision needs.

    ``baseline`` is its name, ``lacking`` says why a candidate has no partner, and ``pasts`` is the history of each
    candidate's cases. ``approved``: the baseline is an approved one, not just another run.
    """

    policy: Policy
    candidates: Sequence[RunCases]
    partners: Mapping[str, RunCases]
    baseline: str = ""
    lacking: str = ""
    pasts: Mapping[str, CaseHistory] = {}
    approved: bool = False

    def decide(self, errors: Errors = SINGLE) -> GateDecision:
        """Decide, with `evalq.evalcore.compare.gate.decide`."""
        return decide(
            self.policy,
            self.candidates,
            self.partners,
            baseline=self.baseline,
            errors=errors,
            lacking=self.lacking,
            pasts=self.pasts,
            today=_today(),
        )


def gate_runs(
    policy: Policy,
    candidates: Sequence[RunCases],
    baseline: str | RunCases,
    servers: Servers,
    *,
    candidate: str = "",
    first: Sequence[str] = (),
    mode: Mode = "policy",
    written: bool = True,
) -> GateDecision:
    """Decide on ``candidates``, compared with ``baseline`` (a run or a name; "" for none).

    At an approved baseline evalq counts each look, and all looks share one error level. ``candidate`` names the thing
    under test, such as a commit; without it, other answers are another candidate. A candidate that was stopped stays
    so. ``mode`` says which runs are decided by their recorded answers instead: as the policy says, all, none, or those
    with one answer a case ("single"). ``written``: the policy is the user's, so its other rules count there, too.
    Raises what `matched` raises (``first`` is for it), UsageError for a run that is compared with itself, and
    StorageError if looks cannot be counted.
    """
    found = matched(policy, candidates, baseline, servers, first=first)
    recorded = _recorded(found, mode)
    refuse_itself(found, recorded)
    if recorded:
        # Recorded answers involve no chance, so this is no look. The statistics are shown, and decide nothing.
        statistical = found.decide(growing_run_errors(look_count(candidates)))
        return as_recorded(policy, candidates, found.partners, statistical, recorded, written=written)
    # Looks are counted for each approved baseline, so without one there are none.
    if not found.partners or not found.approved:
        return _uncounted(found)
    record = GateRecord(policy, candidates, found.partners, servers, candidate)
    decision, look = record.decided(lambda look: found.decide(look.errors))
    return record.settled(with_look(decision, look), found.baseline)


def _recorded(found: MatchedRuns, mode: Mode) -> list[str]:
    """The names of the runs that recorded answers decide. Raises UsageError for a run that has only scores."""
    if mode == "statistical" or (mode == "policy" and not found.policy.as_recorded):
        return []
    named = []
    for run in found.candidates:
        partner = found.partners.get(run.called)
        if partner is None:
            continue
        if mode == "single":
            named += [run.called] if recorded_once(run, partner) else []
        elif pass_measure(run.cases.measures) is None:
            raise UsageError(
                f"{run.called}: its cases have scores and neither pass nor fail: decide by statistics (--statistical)"
            )
        else:
            named.append(run.called)
    return named


def _uncounted(found: MatchedRuns) -> GateDecision:
    """The decision without counted looks, except those that an extended run itself records."""
    looks = look_count(found.candidates)
    decision = found.decide(growing_run_errors(looks))
    if looks == 1:
        return decision
    note = f"look {looks} at a run that was extended: GO and NO-GO at {growing_run_errors(looks).go:.3g}"
    return msgspec.structs.replace(decision, notes=(note, *decision.notes))


def is_approved(baseline: str | RunCases, servers: Servers) -> bool:
    """Whether it is the name of approved runs, which comes before a run or file of that name."""
    return isinstance(baseline, str) and bool(Baselines(servers).known(baseline))


def matched(
    policy: Policy,
    candidates: Sequence[RunCases],
    baseline: str | RunCases,
    servers: Servers,
    *,
    first: Sequence[str] = (),
) -> MatchedRuns:
    """Match each of ``candidates`` with its partner in ``baseline``.

    ``first`` has the names of the candidates if they may be the first runs of their kind: without an approved run,
    comparisons are then inconclusive. Otherwise a missing partner raises UsageError.
    """
    partners: dict[str, RunCases] = {}
    by_name: list[RunCases] = []
    lacking, name = "", baseline.run if isinstance(baseline, RunCases) else baseline
    if baseline:
        compared = {gate.run for gate in policy.gates if gate.compares}
        try:
            by_name = Baselines(servers).known(baseline) if isinstance(baseline, str) else []
            # An approved run comes before a file of that name, which anybody may add.
            approved = by_name or ([baseline] if isinstance(baseline, RunCases) else operand(baseline, servers))
            known = [run for run in candidates if any(alike(run, each) for each in approved)]
            partners |= {run.called: partner(run, approved, name) for run in known}
            for run in candidates:
                # Bounds need no partner: refuse a candidate without one only if a gate would compare it.
                if run not in known and compared & {run.called, run.evaluator}:
                    partner(run, approved, name)  # raises, since there is none
        except UsageError as error:
            if not first:
                raise
            runs = shlex.join(_approvable(candidates, first, servers))
            lacking = f"{error}. Approve the runs if they are good: evalq baseline set {shlex.quote(name)} {runs}"
    # Only for a quarantine, since it reads all earlier runs.
    pasts = _pasts_of(candidates, partners, servers) if policy.quarantine else {}
    return MatchedRuns(policy, candidates, partners, name, lacking, pasts, bool(by_name))


def refuse_itself(found: MatchedRuns, recorded: Collection[str] = ()) -> None:
    """Raise UsageError for a candidate that is its own baseline, or a copy of it: the decision could only be GO.

    Runs decided by ``recorded`` answers may equal their baseline: evaluated again, the same outputs have the same
    results, and a file of results names any run that has them.
    """
    for run in found.candidates:
        base = found.partners.get(run.called)
        if base is None or not same_run(run, base) or (run.called in recorded and run.usage is None):
            continue
        raise UsageError(f"{run.run} is both the candidate and the baseline ({found.baseline}): {ITSELF}")


def _approvable(candidates: Sequence[RunCases], named: Sequence[str], servers: Servers) -> list[str]:
    """Names that other commands accept for ``candidates``: their ids, or how the user ``named`` them if neither
    ./evalq-runs nor a ledger has them.
    """
    ids = [run.run for run in candidates]
    here = {info.run for _, info in folders()}
    return ids if servers.named or here.issuperset(ids) else list(named)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
