"""The report of the vs evaluation: the specification's result format, the pass rate, and mode collapse by case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from evalq.evalcore.contract.evaluator import InputResult
from evalq.evalcore.contract.stopping import stopping_section
from evalq.evalcore.evaluators.vs.collapse import robust_block, specified
from evalq.evalcore.evaluators.vs.findings import LOW_SPREAD, REMEDIES, in_full
from evalq.evalcore.evaluators.vs.params import Case, Level, VsParams
from evalq.evalcore.evaluators.vs.state import CaseState, VsState
from evalq.evalcore.model.calls import WHEN_DECIDED
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.modes.nowhere import CaseCounts, collapse_nowhere
from evalq.evalcore.statistics.exact import ExactSum, is_below

__all__ = ["case_failed", "vs_section"]

_CRITIQUE_CHECKS, _PROVENANCE_CHECKS = 4, 3
_NAMED_ISSUES = 3


def vs_section(results: Sequence[InputResult[VsState]], params: VsParams) -> dict[str, Json]:
    """``results`` of report.json; several inputs count as one, a repeat in two of them as two runs."""
    state = _together([result.state for result in results])
    cases = [(case, state.cases.get(case.id, CaseState())) for case in params.selected()]
    passed = sum(counted.passed for _, counted in cases)
    failed = sum(counted.failed for _, counted in cases)
    # SPEC, section 1: a case that nobody answered is a test with status ERROR, and never passes in silence.
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
        # Summed exactly: the last digit must not depend on the order of the cases.
        "diversity": ExactSum.of(scores).mean(len(scores)) if scores else None,
        "collapse_specified": _detected(collapse),
        "collapse_nowhere": _nowhere(collapse, params),
        "mode_collapse": collapse,
        **_stopping(collapse),
    }


def case_failed(entry: Json) -> bool:
    """Whether an entry of a list in the report is of a case that did not pass, or is collapsed."""
    return isinstance(entry, dict) and (
        entry.get("status", "PASSED") != "PASSED" or entry.get("mode_collapse_detected") is True
    )


def _together(states: Sequence[VsState]) -> VsState:
    if len(states) == 1:
        return states[0]
    whole = VsState.zero()
    for state in states:
        whole.merge(VsState.from_wire(state.to_wire()))  # a copy: merging takes the parts of what it merges
    return whole


def _ratio(part: float, whole: int) -> float | None:
    return part / whole if whole else None


def _mean_spread(cases: Sequence[CaseState]) -> float | None:
    total, count = ExactSum(), 0
    for case in cases:
        total.merge(case.spread)
        count += case.spreads
    return total.mean(count) if count else None


def _summary(cases: Sequence[tuple[Case, CaseState]], params: VsParams) -> dict[str, Json]:
    level_of = {agent.id: agent.level for agent in params.agents}
    summary: dict[str, Json] = {}
    for level in params.levels:
        own = [(case, counted) for case, counted in cases if level_of[case.agent] == level.name]
        summary[level.key] = _level(level, own, params)
    return summary


def _level(level: Level, cases: Sequence[tuple[Case, CaseState]], params: VsParams) -> dict[str, Json]:
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


def _issues(level: Level, cases: Sequence[tuple[Case, CaseState]], params: VsParams) -> Iterator[Json]:
    """What went wrong by agent, commonest first, with the number of tests it was found in."""
    by_agent: dict[str, list[CaseState]] = {}
    for case, counted in cases:
        by_agent.setdefault(case.agent, []).append(counted)
    for agent, states in by_agent.items():
        spread = _mean_spread(states) if level.t_scores else None
        # As decimals: .7 - .4 is not below .3 (SPEC, section 1).
        if spread is not None and is_below(spread, params.min_t_score_spread):
            yield {"agent": agent, "issue": LOW_SPREAD, "tests": sum(state.spreads for state in states)}
        kinds: Counter[str] = Counter()
        for state in states:
            for found in state.issues.values():
                kinds.update(found)
            if state.errors:
                kinds["No readable output"] += state.errors
            # A case of the golden set without any output must not go unnoticed.
            if not state.runs:
                kinds["No output was recorded"] += 1
        for kind, tests in sorted(kinds.items(), key=lambda item: (-item[1], item[0])):
            yield {"agent": agent, "issue": kind, "tests": tests}


def _detail(case: Case, counted: CaseState, params: VsParams) -> dict[str, Json]:
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


def _status(counted: CaseState) -> str:
    if not counted.tests:
        return "ERROR"
    return "FAILED" if counted.failed else "PASSED"


def _worst(counted: CaseState, params: VsParams) -> tuple[str, str]:
    """The commonest issues of a case, and what to do about the first of them."""
    if not counted.tests:
        what = f"No readable output in {counted.errors} runs" if counted.errors else "No output was recorded"
        return what, REMEDIES["output"]
    found = [(-times, kind, check) for check, kinds in counted.issues.items() for kind, times in kinds.items()]
    top = sorted(found)[:_NAMED_ISSUES]
    many = counted.tests > 1
    words = [in_full(check, kind, params) for _, kind, check in top]
    named = [
        f"{text} ({-times} of {counted.tests})" if many else text
        for text, (times, _, _) in zip(words, top, strict=True)
    ]
    return "; ".join(named), REMEDIES[top[0][2]]


def _collapse_entry(case: Case, counted: CaseState, params: VsParams) -> dict[str, Json]:
    """Both readings of one case; a single run repeats nothing, so neither says anything then."""
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
        **(_unrepeated(block) if alone else block),
        **(stop if counted.planned else {}),
    }


def _unrepeated(block: Mapping[str, Json]) -> dict[str, Json]:
    """The block of a single run, without a verdict."""
    return {**block, "verdict": "no_repeats", "fuzzy": {**block["fuzzy"], "verdict": "no_repeats"}}


def _detected(collapse: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """The specification's flag over all cases: detected where any case has it."""
    known = [entry for entry in collapse if entry["mode_collapse_detected"] is not None]
    cases = [entry["case"] for entry in known if entry["mode_collapse_detected"]]
    said = "detected" if cases else "not_detected"
    return {"status": said if known else _unknown(collapse), "cases": len(known), "detected": cases}


def _nowhere(collapse: Sequence[Mapping[str, Json]], params: VsParams) -> dict[str, Json]:
    """The verdict over all cases; where none has a second run, it has nothing to judge either."""
    counts = (
        CaseCounts(each["case"], each["p_collapsed"], each["verdict"], each["fuzzy"]["verdict"]) for each in collapse
    )
    found = {**collapse_nowhere(counts), "collapse_share": params.collapse.collapse_share}
    repeated = any(entry["runs"]["valid"] > 1 for entry in collapse)
    return found if repeated or not collapse else {**found, "verdict": _unknown(collapse)}


def _unknown(collapse: Sequence[Mapping[str, Json]]) -> str:
    return "no_repeats" if any(entry["runs"]["valid"] for entry in collapse) else "no_data"


def _stopping(collapse: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """What stopping early came to; nothing where no case could."""
    calls = [
        (entry["stop"]["of"], entry["runs"]["total"], entry["verdict"] in ("collapsed", "diverse"))
        for entry in collapse
        if "stop" in entry
    ]
    return stopping_section(calls) if calls else {}
