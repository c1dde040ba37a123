"""The state that sums recorded outputs, and the results of the report, with mode collapse by case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import msgspec

from evalq.evalcore.contract.evaluator import InputResult, State
from evalq.evalcore.contract.repeats import stopping_section
from evalq.evalcore.evaluators.vs.collapse import robust_block, specified
from evalq.evalcore.evaluators.vs.params import GoldenCase, Level, VsParams
from evalq.evalcore.evaluators.vs.score import LOW_SPREAD, REMEDIES, OutputTest, Scores, in_full
from evalq.evalcore.model.calls import WHEN_DECIDED
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import Faults, Merging, add_counts, has_seen, mark_seen, merge_seen, overlap
from evalq.evalcore.statistics.exact import ExactSum, is_below
from evalq.evalcore.statistics.mode_share import CaseDiversity, collapse_nowhere


class CaseTotals(Merging):
    """One case: tests by status, sums of its metrics, its options and issues as counted, and the repeats seen.

    Hits count the checks that held; only spreads need a sum of floats. Dicts keep the order of first occurrence.
    ``planned``: the number of calls planned if the case could stop early, the largest in its lines; else 0.
    """

    passed: int = 0
    failed: int = 0
    errors: int = 0
    phases_passed: int = 0
    phase_hits: int = 0
    critique_hits: int = 0
    provenance_hits: int = 0
    # Counted separately: a test on Light has no spread, nor has one whose scores cannot be read.
    spreads: int = 0
    spread: ExactSum = msgspec.field(default_factory=ExactSum)
    options: dict[str, int] = msgspec.field(default_factory=dict)
    issues: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    seen: dict[int, int] = msgspec.field(default_factory=dict)
    planned: int = 0

    @property
    def tests(self) -> int:
        """Tests with a result."""
        return self.passed + self.failed

    @property
    def runs(self) -> int:
        """All runs, including those without a result."""
        return self.passed + self.failed + self.errors

    def merge(self, later: CaseTotals) -> None:
        """Add the tests of later lines."""
        self.passed += later.passed
        self.failed += later.failed
        self.errors += later.errors
        self.phases_passed += later.phases_passed
        self.phase_hits += later.phase_hits
        self.critique_hits += later.critique_hits
        self.provenance_hits += later.provenance_hits
        self.spreads += later.spreads
        # Exact: a plain sum of floats would depend on where the input was cut.
        self.spread.merge(later.spread)
        self.planned = max(self.planned, later.planned)
        add_counts(self.options, later.options)
        for check, kinds in later.issues.items():
            add_counts(self.issues.setdefault(check, {}), kinds)
        merge_seen(self.seen, later.seen)

    def add_scores(self, scores: Scores, required: int) -> None:
        """Count the metrics of one test; its case requires ``required`` phases."""
        self.phases_passed += scores.phases.passed
        self.phase_hits += required - len(scores.phases.missing_phases)
        self.provenance_hits += sum(scores.provenance.checks.values())
        if scores.self_critique is not None:
            self.critique_hits += sum(scores.self_critique.checks.values())


class VsState(State):
    """Cases by id, in the order of first occurrence. ``overlap``: some (case, repeat) came twice, and must be settled.

    ``last`` is the last line counted, ``repeated`` the lines left out as repeats, ``dead`` the lines without a result.
    """

    cases: dict[str, CaseTotals] = msgspec.field(default_factory=dict)
    overlap: bool = False
    last: int = 0
    repeated: Faults = msgspec.field(default_factory=Faults)
    dead: list[int] = msgspec.field(default_factory=list)

    def merge(self, later: Self) -> None:
        """Add the state of later lines."""
        self.overlap = self.overlap or later.overlap
        self.last = max(self.last, later.last)
        self.repeated.merge(later.repeated)
        self.dead += later.dead
        for name, case in later.cases.items():
            mine = self.cases.setdefault(name, CaseTotals())
            self.overlap = self.overlap or overlap(mine.seen, case.seen)
            mine.merge(case)

    def to_wire(self) -> bytes:
        """JSON of the fields. Dicts keep the order of first occurrence, which breaks ties; no cut changes it."""
        return msgspec.json.encode(self)


class OutputGatherer:
    """Sums tests to a state. It sums spreads once, at the end, because exact sums are faster for many values."""

    def __init__(self) -> None:
        self.state = VsState()
        self._spreads: dict[str, list[float]] = {}

    def add(self, line: int, test: OutputTest) -> None:
        """Count the test of ``line``; of skipped tests and unknown cases, only the line number."""
        self.state.last = line
        plan = test.plan
        if plan is None or test.status == "SKIPPED":
            return
        case = self.state.cases.setdefault(plan.case.id, CaseTotals())
        case.planned = max(case.planned, test.planned)
        # SPEC, section 1: an error is counted, but not in the pass rate.
        if test.scores is None or test.repeat is None:
            case.errors += 1
            return
        if test.status == "PASSED":
            case.passed += 1
        else:
            case.failed += 1
        # A kind counts once for each test: one mistake in ten places of an output is one test with it.
        for kind, check in {finding.kind: finding.check for finding in test.findings}.items():
            kinds = case.issues.setdefault(check, {})
            kinds[kind] = kinds.get(kind, 0) + 1
        # Which output is the first is known only when all chunks are merged; then the evaluator leaves out the others.
        if mark_seen(case.seen, test.repeat):
            self.state.overlap = True
        case.add_scores(test.scores, len(plan.phases))
        if test.option is not None:
            case.options[test.option] = case.options.get(test.option, 0) + 1
        spread = test.scores.t_scores.t_score_spread if test.scores.t_scores else None
        # A spread above 1 comes from scores outside [0, 1], which are contract faults and must not raise the mean.
        if spread is not None and 0 <= spread <= 1:
            self._spreads.setdefault(plan.case.id, []).append(spread)

    def has(self, test: OutputTest) -> bool:
        """Whether the state already holds an output of this test's case and repeat."""
        if test.plan is None or test.repeat is None or test.scores is None:
            return False
        case = self.state.cases.get(test.plan.case.id)
        return case is not None and has_seen(case.seen, test.repeat)

    def finish(self) -> VsState:
        """The state, with the spreads."""
        for name, spreads in self._spreads.items():
            case = self.state.cases[name]
            case.spreads = len(spreads)
            case.spread = ExactSum.of(spreads)
        return self.state


_CRITIQUE_CHECKS, _PROVENANCE_CHECKS = 4, 3
_NAMED_ISSUES = 3


def section(results: Sequence[InputResult[VsState]], params: VsParams) -> dict[str, Json]:
    """``results`` of report.json. Several inputs count as one; a repeat in two of them is two runs."""
    state = VsState.zero()
    for result in results:
        state.merge(result.state)
    cases = [(case, state.cases.get(case.id, CaseTotals())) for case in params.selected()]
    passed = sum(counted.passed for _, counted in cases)
    failed = sum(counted.failed for _, counted in cases)
    # SPEC, section 1: a case without any output is a test with status ERROR, so that its absence is seen.
    unrecorded = sum(not counted.runs for _, counted in cases)
    errors = sum(result.tally.errors for result in results) + unrecorded
    collapse = [_collapse_entry(case, counted, params) for case, counted in cases]
    scores = [entry["diversity_score"] for entry in collapse if entry["diversity_score"] is not None]
    return {
        "test_run": {
            "total_tests": passed + failed + errors,
            "passed": passed,
            "failed": failed,
            "errors": errors,
            "summary": _summary(cases, params),
            "detailed_results": [_detail(case, counted, params) for case, counted in cases],
        },
        "cases": {
            "total": len(cases),
            "answered": sum(bool(counted.tests) for _, counted in cases),
            "unrecorded": unrecorded,
        },
        "pass_rate": _ratio(passed, passed + failed),
        # Summed exactly, so that the last digit does not depend on the order of the cases.
        "diversity": ExactSum.of(scores).mean(len(scores)) if scores else None,
        "collapse_specified": _specified_flag(collapse),
        "collapse_nowhere": _collapse_nowhere(collapse, params),
        "mode_collapse": collapse,
        **_stopping(collapse),
    }


def _ratio(part: float, whole: int) -> float | None:
    return part / whole if whole else None


def _mean_spread(cases: Sequence[CaseTotals]) -> float | None:
    total, count = ExactSum(), 0
    for case in cases:
        total.merge(case.spread)
        count += case.spreads
    return total.mean(count) if count else None


def _summary(cases: Sequence[tuple[GoldenCase, CaseTotals]], params: VsParams) -> dict[str, Json]:
    level_of = {agent.id: agent.level for agent in params.agents}
    summary: dict[str, Json] = {}
    for level in params.levels:
        of_level = [(case, counted) for case, counted in cases if level_of[case.agent] == level.name]
        summary[level.key] = _level(level, of_level, params)
    return summary


def _level(level: Level, cases: Sequence[tuple[GoldenCase, CaseTotals]], params: VsParams) -> dict[str, Json]:
    """A level's line of the summary; ``phase_completion`` is the share of tests whose phases were all executed."""
    counted = [state for _, state in cases]
    tests = sum(state.tests for state in counted)
    critique_hits = sum(state.critique_hits for state in counted)
    return {
        "agents_tested": len({case.agent for case, state in cases if state.runs}),
        "pass_rate": _ratio(sum(state.passed for state in counted), tests),
        "avg_t_score_diversity": _mean_spread(counted) if level.t_scores else None,
        "phase_completion": _ratio(sum(state.phases_passed for state in counted), tests),
        "avg_self_critique_quality": _ratio(critique_hits, tests * _CRITIQUE_CHECKS) if level.self_critique else None,
        "issues": list(_issues(level, cases, params)),
    }


def _issues(level: Level, cases: Sequence[tuple[GoldenCase, CaseTotals]], params: VsParams) -> Iterator[Json]:
    """The issues by agent, commonest first, each with its number of tests."""
    by_agent: dict[str, list[CaseTotals]] = {}
    for case, counted in cases:
        by_agent.setdefault(case.agent, []).append(counted)
    for agent, states in by_agent.items():
        spread = _mean_spread(states) if level.t_scores else None
        # Compared as decimals: .7 - .4 is not below .3 (SPEC, section 1).
        if spread is not None and is_below(spread, params.min_t_score_spread):
            yield {"agent": agent, "issue": LOW_SPREAD, "tests": sum(state.spreads for state in states)}
        kinds: Counter[str] = Counter()
        for state in states:
            for counts in state.issues.values():
                kinds.update(counts)
            if state.errors:
                kinds["No readable output"] += state.errors
            # A case of the golden set without any output is an issue, too.
            if not state.runs:
                kinds["No output was recorded"] += 1
        for kind, tests in sorted(kinds.items(), key=lambda item: (-item[1], item[0])):
            yield {"agent": agent, "issue": kind, "tests": tests}


def _detail(case: GoldenCase, counted: CaseTotals, params: VsParams) -> dict[str, Json]:
    """A case in the specification's detailed results; its metrics are means over its tests."""
    level_name = next(agent.level for agent in params.agents if agent.id == case.agent)
    level = next(level for level in params.levels if level.name == level_name)
    required = len(case.phases or level.phases)
    tests = counted.tests
    detail: dict[str, Json] = {
        "test_id": case.id,
        "agent": case.agent,
        "status": _status(counted),
        "passes": counted.passed,
        "of": tests,
        "metrics": {
            "vs_phase_score": _ratio(counted.phase_hits, tests * required),
            "t_score_diversity": _mean_spread([counted]) if level.t_scores else None,
            "self_critique_quality": _ratio(counted.critique_hits, tests * _CRITIQUE_CHECKS)
            if level.self_critique
            else None,
            "provenance_completeness": _ratio(counted.provenance_hits, tests * _PROVENANCE_CHECKS),
        },
    }
    if detail["status"] != "PASSED":
        detail["issue"], detail["remediation"] = _worst(counted, params)
    return detail


def _status(counted: CaseTotals) -> str:
    if not counted.tests:
        return "ERROR"
    return "FAILED" if counted.failed else "PASSED"


def _worst(counted: CaseTotals, params: VsParams) -> tuple[str, str]:
    """The commonest issues of a case, and what to do about the first of them."""
    if not counted.tests:
        issue = f"No readable output in {counted.errors} runs" if counted.errors else "No output was recorded"
        return issue, REMEDIES["output"]
    ranked = [(-times, kind, check) for check, kinds in counted.issues.items() for kind, times in kinds.items()]
    top = sorted(ranked)[:_NAMED_ISSUES]
    many = counted.tests > 1
    words = [in_full(check, kind, params) for _, kind, check in top]
    named = [
        f"{text} ({-times} of {counted.tests})" if many else text
        for text, (times, _, _) in zip(words, top, strict=True)
    ]
    return "; ".join(named), REMEDIES[top[0][2]]


def _collapse_entry(case: GoldenCase, counted: CaseTotals, params: VsParams) -> dict[str, Json]:
    """The specified and the robust block of one case; a single run has no verdict in either."""
    report = specified(counted.options, params.collapse)
    block, alone = robust_block(counted.options, params.collapse, counted.planned), report.total_runs == 1
    stop = {"stop": {"rule": WHEN_DECIDED, "of": counted.planned}}
    return {
        "agent": case.agent,
        "case": case.id,
        "unique_recommendations": report.unique_recommendations,
        "total_runs": report.total_runs,
        "diversity_score": None if alone else report.diversity_score,
        "mode_collapse_detected": None if alone else report.mode_collapse_detected,
        "most_common": [[option, count] for option, count in report.most_common],
        "runs": {"total": counted.runs, "valid": report.total_runs, "errors": counted.runs - report.total_runs},
        "passes": counted.passed,
        "of": counted.tests,
        **(_without_verdict(block) if alone else block),
        **(stop if counted.planned else {}),
    }


def _without_verdict(block: Mapping[str, Json]) -> dict[str, Json]:
    """The block of a single run, without a verdict."""
    return {**block, "verdict": "no_repeats", "fuzzy": {**block["fuzzy"], "verdict": "no_repeats"}}


def _specified_flag(collapse: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """The specification's flag over all cases: detected if any case has it."""
    known = [entry for entry in collapse if entry["mode_collapse_detected"] is not None]
    cases = [entry["case"] for entry in known if entry["mode_collapse_detected"]]
    status = "detected" if cases else "not_detected"
    return {"status": status if known else _no_verdict(collapse), "cases": len(known), "detected": cases}


def _collapse_nowhere(collapse: Sequence[Mapping[str, Json]], params: VsParams) -> dict[str, Json]:
    """The verdict over all cases; no_repeats or no_data if no case has a second run."""
    counts = (
        CaseDiversity(each["case"], each["p_collapsed"], each["verdict"], each["fuzzy"]["verdict"]) for each in collapse
    )
    block = {**collapse_nowhere(counts), "collapse_share": params.collapse.collapse_share}
    repeated = any(entry["runs"]["valid"] > 1 for entry in collapse)
    return block if repeated or not collapse else {**block, "verdict": _no_verdict(collapse)}


def _no_verdict(collapse: Sequence[Mapping[str, Json]]) -> str:
    return "no_repeats" if any(entry["runs"]["valid"] for entry in collapse) else "no_data"


def _stopping(collapse: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """The calls saved by stopping early; nothing if no case could."""
    calls = [
        (entry["stop"]["of"], entry["runs"]["total"], entry["verdict"] in ("collapsed", "diverse"))
        for entry in collapse
        if "stop" in entry
    ]
    return stopping_section(calls) if calls else {}
