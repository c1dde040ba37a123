"""Test one line of recorded outputs by contract, level and case, and describe its faults."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from evalq.evalcore.evaluators.vs.collapse import identity
from evalq.evalcore.evaluators.vs.golden import ExpectationCheck, Unmet, checks_of, t_score_range_check, unmet
from evalq.evalcore.evaluators.vs.params import GoldenCase, Level, VsParams
from evalq.evalcore.evaluators.vs.validators import (
    ContractFault,
    CritiqueResult,
    PhaseResult,
    ProvenanceResult,
    TScoreResult,
    check_phases,
    check_provenance,
    check_self_critique,
    check_t_scores,
    contract_faults,
)
from evalq.evalcore.naming import found, kind_of, shorten
from evalq.evalcore.records.inputs import case_of_name, readings
from evalq.evalcore.records.json_values import Malformed, decode, repeated_keys, stop_of

_MOST_REPEATS = 2**53
_KEYS = ("case", "repeat", "output", "stop", "stop.rule", "stop.of")

REMEDIES: Mapping[str, str] = {
    "output": "Make the agent answer with one JSON object, and record it on one line with its case and repeat.",
    "contract": "Make the agent's output follow the contract at the paths named.",
    "phases": "Have the agent execute the missing phases, or register it at a level that does not require them.",
    "t_scores": "Have the agent sample options of low typicality and select one that is not modal.",
    "self_critique": "Have the agent name strengths, weaknesses, improvements and alternatives to its own answer.",
    "provenance": "Have the agent list its sources and reasoning steps and state its assumptions.",
    "expected": "Make the output meet the expectation, or correct the golden set if it asks too much.",
}
"""What to do, in one sentence, by check."""

LOW_SPREAD = "T-Score diversity below threshold"


class OutputFinding(msgspec.Struct, frozen=True):
    """``check`` is a key of REMEDIES, ``kind`` one of a few texts to count, ``issue`` the text for one output."""

    check: str
    kind: str
    issue: str


class PreparedCase(msgspec.Struct, frozen=True):
    """A case ready for tests: its level, required phases and checks, and whether the selection skips it."""

    case: GoldenCase
    level: Level
    phases: tuple[int, ...]
    checks: tuple[ExpectationCheck, ...]
    skipped: bool


class Scores(msgspec.Struct, frozen=True):
    """The results of the validators; None if one does not apply to the level."""

    phases: PhaseResult
    t_scores: TScoreResult | None
    self_critique: CritiqueResult | None
    provenance: ProvenanceResult


class ExpectationResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """An expectation of the golden set, whether an output meets it, and if not, what is wrong."""

    key: str
    passed: bool
    unmet: Unmet | None = None


class OutputTest(msgspec.Struct, frozen=True):
    """The test of one line. ``status`` is PASSED, FAILED, ERROR or SKIPPED; ``plan`` is None if its case is unknown.

    PASSED and FAILED have ``scores`` and ``expected``. ``option`` is the recommendation, None without a readable one.
    ``planned`` is the number of calls planned for the case if it could stop early, else 0.
    """

    status: str
    findings: tuple[OutputFinding, ...] = ()
    faults: tuple[ContractFault, ...] = ()
    plan: PreparedCase | None = None
    repeat: int | None = None
    scores: Scores | None = None
    expected: tuple[ExpectationResult, ...] = ()
    option: str | None = None
    planned: int = 0


class OutputJudge:
    """Tests lines with one set of params. The result for a line does not depend on other lines."""

    def __init__(self, params: VsParams) -> None:
        self._params = params
        chosen = {case.id for case in params.selected()}
        levels = {level.name: level for level in params.levels}
        level_of = {agent.id: levels[agent.level] for agent in params.agents}
        self._plans = {case.id: self._plan(case, level_of[case.agent], case.id not in chosen) for case in params.cases}

    def _plan(self, case: GoldenCase, level: Level, skipped: bool) -> PreparedCase:
        # SPEC, section 1: a list under `vs_phases` overrides its level's.
        return PreparedCase(case, level, case.phases or level.phases, checks_of(case, self._params), skipped)

    def test(self, data: bytes) -> OutputTest:
        """The test of one line, which may be any bytes."""
        try:
            record = decode(data)
        except Malformed as error:
            return _error(str(error))
        if not isinstance(record, dict):
            return _error(f"the line is {kind_of(record)}, not an object with case, repeat and output")
        repeated = repeated_keys(data, record)
        plan, repeat, problem = self._find_case(record)
        # First, because cases outside of the selection are not tested.
        if plan is not None and plan.skipped:
            return OutputTest("SKIPPED", plan=plan, repeat=repeat)
        planned, stop_fault = stop_of(record)
        # Decoders differ in which of two values they keep, so a repeated key is an error.
        repeated_fields = [path for path in repeated if path in _KEYS]
        if repeated_fields and not problem:
            problem = f"{repeated_fields[0]}: the key is given more than once"
        problem = problem or stop_fault
        if plan is None or problem:
            return _error(problem, plan, repeat)
        output = record.get("output")
        if not isinstance(output, dict):
            return _error(_no_output(record), plan, repeat, planned)
        inside = [path.removeprefix("output.") for path in repeated if path.startswith("output.")]
        return msgspec.structs.replace(self._test_output(output, plan, repeat, inside), planned=planned)

    def case(self, data: bytes) -> str:
        """The case of a line; empty if it has none or the selection skips it."""
        try:
            record = decode(data)
        except Malformed:
            return ""
        plan = self._find_case(record)[0] if isinstance(record, dict) else None
        return plan.case.id if plan is not None and not plan.skipped else ""

    def _find_case(self, record: dict[str, Any]) -> tuple[PreparedCase | None, int | None, str]:
        """The case and the repeat of a line, and what is wrong with them."""
        if "case" not in record and isinstance(record.get("named"), str):
            return self._find_by_name(record["named"])
        case, repeat = record.get("case"), record.get("repeat")
        # By type: to Python a bool is an int, too.
        whole = type(repeat) is int and 0 <= repeat < _MOST_REPEATS
        if not isinstance(case, str):
            return None, None, f"case: {found(record, 'case')} where the id of a case is wanted"
        plan = self._plans.get(case)
        if plan is None:
            return None, repeat if whole else None, f"case: {shorten(case)!r} is not in the golden set"
        if not whole:
            return plan, None, f"repeat: {found(record, 'repeat')} where a whole number from 0 is wanted"
        return plan, repeat, ""

    def _find_by_name(self, name: str) -> tuple[PreparedCase | None, int | None, str]:
        """The same for an output in a file: the case has that name, or the last number of the name is the repeat."""
        match = case_of_name(name, self._plans.__contains__)
        if match is None:
            names = " nor ".join(repr(shorten(case)) for case, _ in readings(name))
            return None, None, f"named: no case of the golden set is {names}; call the file ID.json or ID.REPEAT.json"
        return self._plans[match[0]], match[1], ""

    def _test_output(
        self, output: dict[str, Any], plan: PreparedCase, repeat: int | None, repeated: list[str]
    ) -> OutputTest:
        # The validators run with a broken contract, too: the specification's code has no contract, and reports numbers.
        faults = contract_faults(output)
        faults += _mismatches(output, plan)
        faults += [ContractFault(path, "is given more than once") for path in repeated]
        scores = self._scores(output, plan)
        expected = tuple(_expectation_results(output, plan))
        findings = tuple(self._findings(scores, faults, expected))
        return OutputTest(
            status="FAILED" if findings else "PASSED",
            findings=findings,
            faults=tuple(faults),
            plan=plan,
            repeat=repeat,
            scores=scores,
            expected=expected,
            # A test can pass without an option. Only mode collapse leaves such a run out, and counts it (SPEC).
            option=_option(output),
        )

    def _scores(self, output: dict[str, Any], plan: PreparedCase) -> Scores:
        params, level = self._params, plan.level
        return Scores(
            phases=check_phases(output, plan.phases),
            t_scores=check_t_scores(output, params.t_scores) if level.t_scores else None,
            self_critique=check_self_critique(output, params.self_critique) if level.self_critique else None,
            provenance=check_provenance(output, params.provenance),
        )

    def _findings(
        self, scores: Scores, faults: list[ContractFault], expected: tuple[ExpectationResult, ...]
    ) -> Iterator[OutputFinding]:
        yield from _contract_findings(faults)
        if not scores.phases.passed:
            yield phase_finding(scores.phases, self._params)
        if scores.t_scores is not None and not scores.t_scores.passed:
            yield t_score_finding(scores.t_scores, self._params)
        if scores.self_critique is not None and not scores.self_critique.passed:
            yield _incomplete("self_critique", "Self-critique", scores.self_critique)
        if not scores.provenance.passed:
            yield _incomplete("provenance", "Provenance", scores.provenance)
        for result in expected:
            if result.unmet is not None:
                yield OutputFinding("expected", result.unmet.kind, result.unmet.issue)


@lru_cache(maxsize=16)
def judge_for(params: VsParams) -> OutputJudge:
    """The judge for ``params``, cached for the next chunk."""
    return OutputJudge(params)


def _error(reason: str, plan: PreparedCase | None = None, repeat: int | None = None, planned: int = 0) -> OutputTest:
    finding = OutputFinding("output", "No readable output", reason)
    return OutputTest("ERROR", (finding,), plan=plan, repeat=repeat, planned=planned)


def _no_output(record: dict[str, Any]) -> str:
    """Why a line has no output to test, by its ``error`` if it has one."""
    if isinstance(record.get("error"), str):
        return f"no output: {shorten(record['error'], 200)}"
    return f"output: {found(record, 'output')} where an object is wanted"


def _mismatches(output: dict[str, Any], plan: PreparedCase) -> Iterator[ContractFault]:
    """Faults for an agent or a level that is not its case's. Other types are contract faults already."""
    for key, wanted in (("agent_id", plan.case.agent), ("vs_level", plan.level.name)):
        actual = output.get(key)
        if isinstance(actual, str) and actual != wanted:
            yield ContractFault(key, f"is not {wanted}, its case's")


def _expectation_results(output: dict[str, Any], plan: PreparedCase) -> Iterator[ExpectationResult]:
    """Each expectation of the case in the golden set's order, but with the range of T-scores first."""
    if plan.case.t_score_range is not None:
        reason = t_score_range_check(plan.case, output)
        yield ExpectationResult("t_score_range", reason is None, reason)
    for check in plan.checks:
        reason = unmet(check, output)
        yield ExpectationResult(check.expectation.key, reason is None, reason)


def _option(output: dict[str, Any]) -> str | None:
    """The finally selected option, if it is text, as the contract demands."""
    metadata = output.get("vs_metadata")
    final = metadata.get("final_selection") if isinstance(metadata, dict) else None
    option = final.get("option") if isinstance(final, dict) else None
    return identity(option) if isinstance(option, str) else None


# Describing the faults of an output

_PHASE = re.compile(r"-?\d+")
_POSITION = re.compile(r"\[\d+\]")
_MISSING = {
    "has_strengths": "strengths",
    "has_weaknesses": "weaknesses",
    "has_improvements": "improvement suggestions",
    "has_alternatives": "alternatives",
    "has_sources": "sources",
    "has_reasoning": "reasoning trace",
    "has_assumptions": "assumptions",
}


def _contract_findings(faults: list[ContractFault]) -> Iterator[OutputFinding]:
    """One finding for each breach, whose kind has no positions in lists."""
    for fault in faults:
        # One mistake in twenty places is one kind of issue in the report.
        kind = f"Contract: {_POSITION.sub('[]', fault.path)} {fault.reason}"
        yield OutputFinding("contract", kind, f"Contract: {fault.path} {fault.reason}")


def phase_finding(result: PhaseResult, params: VsParams) -> OutputFinding:
    """Which phases are missing, with their names."""
    phases = result.missing_phases
    noun = "Phase" if len(phases) == 1 else "Phases"
    kind = f"{noun} {', '.join(map(str, phases))} missing"
    issue = in_full("phases", kind, params)
    if result.reason:
        issue += f": {result.reason}"
    return OutputFinding("phases", kind, issue)


def in_full(check: str, kind: str, params: VsParams) -> str:
    """A kind of issue as in a detailed result: missing phases have number and name, all else is unchanged."""
    if check != "phases":
        return kind

    def with_name(match: re.Match[str]) -> str:
        number = int(match[0])
        # Not negative: a golden set may require phase -1, which Python would read as the last name.
        return f"{number} ({params.phase_names[number]})" if 0 <= number < len(params.phase_names) else match[0]

    return f"{_PHASE.sub(with_name, kind.removesuffix(' missing'))} not executed"


def t_score_finding(result: TScoreResult, params: VsParams) -> OutputFinding:
    """Why the T-scores fail: none, unreadable, no option of low typicality, or a modal selection."""
    if result.t_score_spread is None:
        missing = result.reason == "No T-scores provided"
        return OutputFinding(
            "t_scores", "No T-scores provided" if missing else "T-scores unreadable", result.reason or ""
        )
    rule, kinds, issues = params.t_scores, [], []
    if not result.has_diversity:
        kinds.append("no T-score is low")
        issues.append(f"no T-score is below {rule.diverse_below:g}")
    final = result.final_selection_t_score
    if final is None:
        kinds.append("the final selection has no T-score")
        # SPEC, section 1: a missing score of the selection counts as 1.0.
        issues.append(result.reason or "the final selection has no T-score, which counts as modal")
    elif final > rule.modal_above:
        # Without the score, so that outputs with different scores are counted together.
        kinds.append("the final selection is modal")
        issues.append(f"the final selection is modal (T-score {_format_score(final)} above {rule.modal_above:g})")
    return OutputFinding("t_scores", "T-scores: " + ", ".join(kinds), "T-scores: " + ", ".join(issues))


def _format_score(score: float) -> str:
    # A whole number may be larger than any float, and then cannot be formatted as one.
    return f"{score:g}" if abs(score) <= sys.float_info.max else shorten(str(score))


def _incomplete(check: str, title: str, result: CritiqueResult | ProvenanceResult) -> OutputFinding:
    """Which parts of the self-critique or of the provenance are missing or too few."""
    if reason := result.reason:
        return OutputFinding(check, reason if reason.startswith("No ") else f"{title} unreadable", reason)
    text = f"{title} lacks " + ", ".join(_MISSING[name] for name, present in result.checks.items() if not present)
    return OutputFinding(check, text, text)
