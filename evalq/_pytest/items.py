"""Suites as pytest items: a file per suite, a group per run, a test per case, and one test for the policy."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from evalq._pytest.runs import NotMade, SuiteRuns
from evalq.evalcore.compare.decision import Decided, GateDecision
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.single_cases import by_case, rows_of
from evalq.evalcore.compare.summary import CaseSummary, RunCases
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.measures import pass_measure
from evalq.evalcore.errors import EvalqError
from evalq.evalcore.views.markdown import plural, visible
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.lifecycle.gate import GateOptions, check_gate
from evalq.producer.outputs.cases import cases_of
from evalq.producer.suites.calls import listed_cases
from evalq.producer.suites.suite_file import PlannedRun, SuitePlan, load_suite
from evalq.workers.settings import load_settings

__all__ = ["SuiteFile", "SuiteTest"]

# The verdict on each case of a finished run, as a test needs it.

CaseVerdict = tuple[Decided, str]
"""(decision, reason)."""
_WORST_FIRST: tuple[Decided, ...] = ("NO-GO", "SUSPECT", "INCONCLUSIVE", "GO")
_NAMED = 10


class CaseProblem(Exception):
    """Something was not evaluated, so there is no verdict; the message says what."""


class CaseOutcome:
    """The verdicts on the cases of one run, in ``folder``, by a policy's demands on single cases."""

    def __init__(self, folder: Path, policy: Policy | None) -> None:
        """Raises UsageError for a run whose cases are unknown, and WireError for a damaged folder."""
        self.run = _run(RunFolder.existing(folder))
        self.folder = folder
        self._measure = pass_measure(self.run.cases.measures)
        self._places = {case: place for place, case in enumerate(self.run.cases.ids)}
        self._demanded = _demanded(policy, self.run) if policy else {}

    def case(self, case: str) -> CaseVerdict:
        """The verdict on one case by its answers. Raises CaseProblem if an answer is missing."""
        if case not in self._places or self._measure is None:
            raise CaseProblem("no record of this run is about this case")
        cases, place = self.run.cases, self._places[case]
        column = cases.columns[self._measure.name]
        count, total = column.count[place], column.total[place]
        passed = round(total if self._measure.better == "higher" else count - total)
        passes = f"{passed} of {count} answers pass"
        if cases.missing[place]:
            missing = plural(cases.missing[place], "answer of this case is", "answers of this case are")
            raise CaseProblem(f"{missing} missing (errors, dead or unanswered); {passes}")
        plain: CaseVerdict = ("GO" if passed == count else "NO-GO", "every answer has to")
        decided, why = self._demanded.get(case, plain)
        return decided, f"{passes}; {why}"

    def every_case(self) -> CaseVerdict:
        """The worst verdict of all cases. Raises CaseProblem if an answer is missing."""
        found = [(case, *self.case(case)) for case in self._places]
        order: list[Decided] = sorted((decided for _, decided, _ in found), key=_WORST_FIRST.index)
        worst = order[0] if order else "GO"
        reasons = [f"{case}: {why}" for case, decided, why in found if decided == worst]
        more = [f"and {len(reasons) - _NAMED} more"] if len(reasons) > _NAMED else []
        return worst, "\n".join([*reasons[:_NAMED], *more])

    def records(self, listed: Iterable[str] | None) -> CaseVerdict:
        """GO; raises CaseProblem if a record has no result, or is about a case that is not ``listed``."""
        run = self.run
        problems = [f"{run.records[kind]} {kind}" for kind in ("errors", "dead") if run.records.get(kind)]
        if run.cases.unattributed:
            problems.append(f"{plural(run.cases.unattributed, 'record names', 'records name')} no case")
        unlisted = sorted(self._places.keys() - listed) if listed is not None and self._measure else []
        if unlisted:
            problems.append(
                f"{plural(len(unlisted), 'case was', 'cases were')} not there when tests were collected ({unlisted[0]})"
            )
        if problems:
            raise CaseProblem(f"{', '.join(problems)}: {self.folder}/report.md says why")
        return "GO", ""


def _run(folder: RunFolder) -> RunCases:
    """The run in ``folder``. If its evaluator declares no measures, it has only records, and no cases."""
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


def _demanded(policy: Policy, run: RunCases) -> dict[str, CaseVerdict]:
    """{case: verdict} by the policy's demands on single cases; of several, the worst counts."""
    found: dict[str, CaseVerdict] = {}
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


class SuiteFile(pytest.File):
    """A suite. Its tests are known from its inputs; collecting them evaluates nothing."""

    suite: SuitePlan
    runs: SuiteRuns

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """A group for each run, then the policy. Raises CollectError for an invalid suite or a missing input."""
        # Under pytest-xdist each process collects. They share the id of the test run, which becomes a part of the key.
        worker = getattr(self.config, "workerinput", {})
        try:
            self.suite = load_suite(self.path, load_settings(os.environ.get("EVALQ_SETTINGS") or None).roots)
            self.runs = SuiteRuns(self.config, self.path, self.suite, worker.get("testrunuid", ""))
            if self.suite.policy is not None:
                check_gate(self.suite, GateOptions(self.runs.baseline), detach=False)
            listed = [listed_cases(run) for run in self.suite.runs]
        except (EvalqError, OSError) as error:
            raise self.CollectError(visible(f"evalq: {error}")) from error
        names = _Names()
        for number, (run, cases) in enumerate(zip(self.suite.runs, listed, strict=True)):
            yield RunGroup.from_parent(self, name=names.of(run.called), file=self, number=number, run=run, cases=cases)
        if self.suite.policy is not None:
            yield PolicyTest.from_parent(self, name="policy", file=self)

    def decision(self) -> GateDecision:
        """The policy's decision on the runs, which counts as one look at its baseline. Raises CaseProblem."""
        from evalq.producer.comparing.gating import gate_runs
        from evalq.producer.servers import Servers

        policy, runs = self.suite.policy, self.runs
        assert policy is not None, "a suite without a policy decides nothing"
        outcomes = list(self.outcomes())
        found, named = [outcome.run for outcome in outcomes], [str(outcome.folder) for outcome in outcomes]
        # Only once for all tests: each decision on an approved baseline is a look, which spends a part of its error.
        if self._decision is None:
            try:  # from the folder in which pytest was started, because tests may change the current one
                with contextlib.chdir(runs.here), Servers(runs.settings) as servers:
                    self._decision = gate_runs(
                        policy, found, runs.baseline, servers, candidate=runs.candidate, first=named
                    )
            except (EvalqError, OSError) as error:
                raise CaseProblem(f"evalq: {error}") from error
        return self._decision

    def set_aside(self, run: str) -> dict[str, str]:
        """{case: why it is in quarantine}; empty if there is no decision, which the policy's test reports."""
        if self.suite.policy is None or not self.suite.policy.quarantine:
            return {}
        try:
            named = self.decision().quarantined
        except CaseProblem:
            return {}
        return {each.case: each.reason for each in named if each.run == run and each.quarantined and not each.regressed}

    def outcomes(self) -> list[CaseOutcome]:
        """The outcomes of the runs. Waits for them, or makes them if no process does. Raises CaseProblem."""
        if self._outcomes is None:
            try:
                self._outcomes = [CaseOutcome(folder, self.suite.policy) for folder in self.runs.folders()]
            except (EvalqError, NotMade, OSError) as error:
                raise CaseProblem(str(error)) from error
        return self._outcomes

    _outcomes: list[CaseOutcome] | None = None
    _decision: GateDecision | None = None


class RunGroup(pytest.Collector):
    """The tests of one run: its records and its cases."""

    def __init__(self, *, file: SuiteFile, number: int, run: PlannedRun, cases: list[str] | None, **more: Any) -> None:
        super().__init__(**more)
        self._file, self._number, self._planned, self.cases = file, number, run, cases

    def collect(self) -> Iterator[pytest.Item]:
        """`records` first, then the cases in the order of their ids; one test for all if they cannot be listed yet."""
        names = _Names()
        yield RecordsTest.from_parent(self, name=names.of("records"), group=self)
        measures = self._planned.evaluator.measures
        if measures is None or pass_measure(measures.measures) is None:
            return
        if self.cases is None:
            yield CasesTest.from_parent(self, name=names.of("cases"), group=self)
        for case in self.cases or ():
            yield CaseTest.from_parent(self, name=names.of(case), group=self, case=case)

    def outcome(self) -> CaseOutcome:
        """The outcome of the run. Raises CaseProblem."""
        return self._file.outcomes()[self._number]

    def why_aside(self, case: str) -> str:
        """Why a case is in quarantine, where it cannot fail the run; "" if it is not. Raises CaseProblem."""
        return self._file.set_aside(self.outcome().run.called).get(case, "")


class SuiteTest(pytest.Item):
    """A test of a suite. The first one waits until the suite's runs are done."""

    _verdict: CaseVerdict

    def decide(self) -> CaseVerdict:
        """The verdict of this test. Raises CaseProblem."""
        raise NotImplementedError

    def setup(self) -> None:
        """Get the verdict here, so that a CaseProblem is an error of the setup and not a failure of the test."""
        problem = ""
        try:
            self._verdict = self.decide()
        except CaseProblem as error:
            problem = str(error)
        if problem:
            _fail(problem)

    def runtest(self) -> None:
        """Pass, fail or be undecided, by the verdict."""
        decided, why = self._verdict
        if decided == "GO":
            return
        choice = self.config.getoption("evalq_undecided") or self.config.getini("evalq_undecided")
        if decided == "INCONCLUSIVE" and choice != "fail":
            say = pytest.skip if choice == "skip" else pytest.xfail
            say(visible(f"undecided: {why}"))
        word = {"NO-GO": "", "SUSPECT": "suspect: "}.get(decided, "undecided: ")
        _fail(f"{word}{why}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **more: Any) -> Any:
        """For an undecided test only the reason: a traceback takes pytest a sixth of a second."""
        if isinstance(excinfo.value, pytest.xfail.Exception):
            return str(excinfo.value)
        return super().repr_failure(excinfo, *args, **more)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """(suite file, no line, test name)."""
        return self.path, None, self.name


class CaseTest(SuiteTest):
    """One case."""

    def __init__(self, *, group: RunGroup, case: str, **more: Any) -> None:
        super().__init__(**more)
        self._group, self._case = group, case

    def decide(self) -> CaseVerdict:
        """The verdict by the case's answers."""
        decided, why = self._group.outcome().case(self._case)
        self._aside = self._group.why_aside(self._case) if decided != "GO" else ""
        return decided, why

    def runtest(self) -> None:
        """As every suite test, but a case in quarantine is skipped instead of failing."""
        if self._aside:
            pytest.skip(visible(f"quarantine: {self._aside}; {self._verdict[1].partition('; ')[0]}"))
        super().runtest()


class CasesTest(SuiteTest):
    """All cases of a run whose evaluator cannot list them beforehand."""

    def __init__(self, *, group: RunGroup, **more: Any) -> None:
        super().__init__(**more)
        self._group = group

    def decide(self) -> CaseVerdict:
        """The worst verdict of all cases."""
        return self._group.outcome().every_case()


class RecordsTest(SuiteTest):
    """Whether every record of a run could be evaluated."""

    def __init__(self, *, group: RunGroup, **more: Any) -> None:
        super().__init__(**more)
        self._group = group

    def decide(self) -> CaseVerdict:
        """GO, or a CaseProblem; never a failure."""
        return self._group.outcome().records(self._group.cases)


class PolicyTest(SuiteTest):
    """The decision of the suite's policy over all of its runs."""

    def __init__(self, *, file: SuiteFile, **more: Any) -> None:
        super().__init__(**more)
        self._file = file

    def decide(self) -> CaseVerdict:
        """The same decision as by `evalq run`; also writes the suite's outputs."""
        from evalq.producer.comparing.comparing import decision_text
        from evalq.producer.comparing.decision_files import write_decision

        decision = self._file.decision()
        try:
            write_decision(self._file.suite.outputs, decision, [outcome.run for outcome in self._file.outcomes()])
        except (EvalqError, OSError) as error:
            raise CaseProblem(f"evalq: {error}") from error
        return decision.decided, decision_text(decision)


def _fail(reason: str) -> NoReturn:
    """Fail without a traceback, which would only show this plug-in."""
    pytest.fail(visible(reason), pytrace=False)


class _Names:
    """Unique names of tests, each on one line and without "::", which would look like the path of a test."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def of(self, case: str) -> str:
        name = visible(" ".join(case.split())).replace("::", ":")[:200] or "-"
        number = self._given.get(name, 0)
        self._given[name] = number + 1
        return name if not number else self.of(f"{name[:190]}#{number + 1}")
