"""What a finished run says of each of its cases, in the words of a test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from evalq.evalcore.compare.decision import Decided
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.repeats import by_case, rows_of
from evalq.evalcore.compare.summary import CaseSummary, RunCases
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.measures import pass_measure
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of

__all__ = ["Outcome", "Problem", "Verdict"]

Verdict = tuple[Decided, str]
"""What was decided, and why."""
_WORST_FIRST: tuple[Decided, ...] = ("NO-GO", "SUSPECT", "INCONCLUSIVE", "GO")
_NAMED = 10


class Problem(Exception):
    """Something was not evaluated, so that there is nothing to decide."""


class Outcome:
    """One run, in `folder`, held to a policy's demands on single cases."""

    def __init__(self, folder: Path, policy: Policy | None) -> None:
        """Raises UsageError for a run whose cases nobody can tell, WireError."""
        self.run = _run(RunFolder.existing(folder))
        self.folder = folder
        self._measure = pass_measure(self.run.cases.measures)
        self._places = {case: place for place, case in enumerate(self.run.cases.ids)}
        self._demanded = _demanded(policy, self.run) if policy else {}

    def case(self, case: str) -> Verdict:
        """What its answers come to. Raises Problem where one is missing."""
        if case not in self._places or self._measure is None:
            raise Problem("no record of this run is about this case")
        cases, place = self.run.cases, self._places[case]
        column = cases.columns[self._measure.name]
        count, total = column.count[place], column.total[place]
        passed = round(total if self._measure.better == "higher" else count - total)
        told = f"{passed} of {count} answers pass"
        if cases.missing[place]:
            raise Problem(
                f"{cases.missing[place]} answer(s) of this case are missing (errors, dead or unanswered); {told}"
            )
        plain: Verdict = ("GO" if passed == count else "NO-GO", "every answer has to")
        decided, why = self._demanded.get(case, plain)
        return decided, f"{told}; {why}"

    def every_case(self) -> Verdict:
        """The worst of all. Raises Problem where an answer is missing."""
        found = [(case, *self.case(case)) for case in self._places]
        order: list[Decided] = sorted((decided for _, decided, _ in found), key=_WORST_FIRST.index)
        worst = order[0] if order else "GO"
        told = [f"{case}: {why}" for case, decided, why in found if decided == worst]
        more = [f"and {len(told) - _NAMED} more"] if len(told) > _NAMED else []
        return worst, "\n".join([*told[:_NAMED], *more])

    def records(self, listed: Iterable[str] | None) -> Verdict:
        """Raises Problem where a record has no result, or is about none of the cases that were ``listed``."""
        run = self.run
        told = [f"{run.records[kind]} {kind}" for kind in ("errors", "dead") if run.records.get(kind)]
        if run.cases.unattributed:
            told.append(f"{run.cases.unattributed} record(s) name no case")
        unlisted = sorted(self._places.keys() - listed) if listed is not None and self._measure else []
        if unlisted:
            told.append(f"{len(unlisted)} case(s) were not there when tests were collected ({unlisted[0]})")
        if told:
            raise Problem(f"{', '.join(told)}: {self.folder}/report.md says why")
        return "GO", ""


def _run(folder: RunFolder) -> RunCases:
    """The run in ``folder``; where its evaluator declares no measures it has no cases, and its records count alone."""
    report = folder.report()
    evaluator = plugins.get(report["evaluator"])
    if evaluator.measures is not None:
        return cases_of(folder)
    return RunCases(
        run=folder.info().run,
        evaluator=evaluator.name,
        version=report["evaluator_version"],
        specification="",
        report="",
        records=report["records"],
        cases=CaseSummary([]),
    )


def _demanded(policy: Policy, run: RunCases) -> dict[str, Verdict]:
    """{case: what the policy's demands on single cases come to}; the worst counts where there are several."""
    found: dict[str, Verdict] = {}
    for gate in policy.gates:
        measure = gate.measure_in(run.cases.measures)
        if gate.per_case is None or gate.tier != "critical" or measure is None or measure.kind != "pass":
            continue
        if gate.run not in (run.called, run.evaluator):
            continue
        rows = rows_of(run.cases, measure)
        for demand in gate.per_case.demands:
            for case, decided in by_case(demand, rows, minimum=policy.minimum_repeats)[0].items():
                if case not in found or _WORST_FIRST.index(decided) < _WORST_FIRST.index(found[case][0]):
                    found[case] = decided, f"the policy: {demand.demand}"
    return found
