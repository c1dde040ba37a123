"""VS behaviour as an evaluator: the lines of outputs, the measures, and how repeated outputs are settled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from evalq.evalcore.contract.evaluator import (
    Batch,
    Calls,
    CommandLine,
    Evaluator,
    Gathering,
    InputResult,
    Option,
    Outcome,
    Records,
    Sample,
    WholeInput,
    without_result,
)
from evalq.evalcore.contract.measures import Measure, Measures, Number, Observation
from evalq.evalcore.contract.repeats import count_first, leave_out_repeated
from evalq.evalcore.evaluators.vs.collapse import normalize
from evalq.evalcore.evaluators.vs.inputs import (
    FIELDS,
    complete_request,
    evaluation_request,
    output_line,
    prompts,
    stopping,
)
from evalq.evalcore.evaluators.vs.params import LEVELS, VsParams
from evalq.evalcore.evaluators.vs.report import OutputGatherer, VsState, section
from evalq.evalcore.evaluators.vs.sample import write_sample
from evalq.evalcore.evaluators.vs.score import REMEDIES, ExpectationResult, OutputTest, Scores, judge_for
from evalq.evalcore.evaluators.vs.validators import CritiqueResult, PhaseResult, ProvenanceResult, TScoreResult
from evalq.evalcore.evaluators.vs.views import VIEWS
from evalq.evalcore.model.calls import count_cuts
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import LISTED, Faults, Tally
from evalq.evalcore.naming import kind_of, shorten

_EXTRA = 20


class _Metrics(msgspec.Struct):
    """The specification's metrics of one test; null if a validator does not apply or has nothing to measure."""

    vs_phase_score: float
    t_score_diversity: float | None
    self_critique_quality: float | None
    provenance_completeness: float


class _LineChecks(msgspec.Struct, omit_defaults=True):
    """What each validator returned, in the specification's names, and each expectation of the golden set.

    A validator that does not apply to the level is left out.
    """

    phases: PhaseResult
    provenance: ProvenanceResult
    t_scores: TScoreResult | None = None
    self_critique: CritiqueResult | None = None
    expected: tuple[ExpectationResult, ...] = ()


class _TestLine(msgspec.Struct):
    """A line of records.jsonl: the result of a test, with each of its checks."""

    record: str
    id: str | None
    status: str
    metrics: _Metrics | None
    issue: str | None
    remediation: str | None
    case: str | None
    repeat: int | None
    agent: str | None
    option: str | None
    faults: list[str]
    checks: _LineChecks | None


def _record_line(record: str, test: OutputTest) -> bytes:
    """The line of the output with the name ``record``."""
    case = test.plan.case if test.plan else None
    first = test.findings[0] if test.findings else None
    line = _TestLine(
        record=record,
        id=f"{case.id}#{test.repeat}" if case and test.repeat is not None else None,
        status=test.status,
        metrics=_metrics(test.scores) if test.scores else None,
        issue="; ".join(finding.issue for finding in test.findings) if first else None,
        remediation=REMEDIES[first.check] if first else None,
        case=case.id if case else None,
        repeat=test.repeat,
        agent=case.agent if case else None,
        option=test.option,
        faults=[f"{fault.path}: {fault.reason}" for fault in test.faults],
        checks=_checks(test.scores, test.expected) if test.scores else None,
    )
    return _encode(line)


def _metrics(scores: Scores) -> _Metrics:
    return _Metrics(
        vs_phase_score=scores.phases.score,
        t_score_diversity=scores.t_scores.t_score_spread if scores.t_scores else None,
        self_critique_quality=scores.self_critique.quality_score if scores.self_critique else None,
        provenance_completeness=scores.provenance.provenance_completeness,
    )


def _checks(scores: Scores, expected: tuple[ExpectationResult, ...]) -> _LineChecks:
    phases = scores.phases
    if phases.extra_phases:
        phases = replace(phases, extra_phases=[_plain(phase) for phase in phases.extra_phases[:_EXTRA]])
    return _LineChecks(phases, scores.provenance, scores.t_scores, scores.self_critique, expected)


def _plain(value: Any) -> Any:
    """A value of an output, shortened."""
    if isinstance(value, str):
        return shorten(value)
    return value if value is None or isinstance(value, bool | int | float) else kind_of(value)


_encode = msgspec.json.Encoder().encode


def _observe(line: Mapping[str, Any]) -> Observation | None:
    """What a line shows of its case; None for an output that the selection leaves out."""
    status, option, repeat = line["status"], line.get("option"), line.get("repeat")
    if status == "SKIPPED":
        return None
    case = line.get("case") or ""
    if status not in ("PASSED", "FAILED"):
        return Observation(case, repeat=repeat)
    return Observation(case, (float(status == "PASSED"),), repeat, None if option is None else normalize(option))


def _collapsed(report: Mapping[str, Any]) -> list[str]:
    return [entry["case"] for entry in report["results"]["mode_collapse"] if entry["verdict"] == "collapsed"]


def _collapse_p(report: Mapping[str, Any]) -> dict[str, float]:
    entries = report["results"]["mode_collapse"]
    return {each["case"]: each["p_collapsed"] for each in entries if each["p_collapsed"] is not None}


def _diverse(report: Mapping[str, Any]) -> list[str]:
    entries = report["results"]["mode_collapse"]
    # By both counts: one option in two spellings looks diverse, but is not.
    return [each["case"] for each in entries if {each["verdict"], each["fuzzy"]["verdict"]} <= {"diverse", None}]


def _stopped(report: Mapping[str, Any]) -> list[str]:
    entries = report["results"]["mode_collapse"]
    return [each["case"] for each in entries if "stop" in each and each["runs"]["total"] < each["stop"]["of"]]


def _unrecorded(report: Mapping[str, Any]) -> list[str]:
    return [entry["case"] for entry in report["results"]["mode_collapse"] if not entry["runs"]["total"]]


def _case_ids(batch: Batch, params: VsParams) -> Iterator[str]:
    judge = judge_for(params)
    return filter(None, (judge.case(data) for _, data in batch.lines()))


_LEVEL = "test_run.summary.*."
MEASURES = Measures(
    (Measure("pass_rate"),),
    _observe,
    _collapsed,
    _stopped,
    _case_ids,
    collapse_p=_collapse_p,
    diverse=_diverse,
    numbers=(
        Number("test_run.passed", "higher"),
        Number("test_run.failed", "lower"),
        Number("test_run.errors", "lower", holds_missing=True),
        Number("test_run.total_tests"),
        Number(_LEVEL + "agents_tested"),
        Number(_LEVEL + "pass_rate", "higher", "estimate"),
        Number(_LEVEL + "phase_completion", "higher", "estimate"),
        Number(_LEVEL + "avg_t_score_diversity", "higher", "estimate"),
        Number(_LEVEL + "avg_self_critique_quality", "higher", "estimate"),
        Number("cases.answered", "higher"),
        Number("cases.unrecorded", "lower", holds_missing=True),
        Number("cases.*"),
        Number("diversity", "higher", "estimate"),
        Number("collapse_nowhere.p", kind="estimate"),
        Number("collapse_nowhere.together", kind="estimate"),
        Number("collapse_nowhere.*"),
        Number("collapse_specified.*"),
        Number("stopping.*"),
    ),
    unrecorded=_unrecorded,
)


def _settle(state: VsState, params: VsParams, reopen: Callable[[], BinaryIO], scratch: Path) -> VsState:
    """If a (case, repeat) came more than once, count the input again, with only the first output of each."""
    if not state.overlap:
        return state
    settled, repeated = count_first(judge_for(params).test, OutputGatherer(), reopen, state.last, state.dead)
    settled.repeated, settled.dead = repeated, state.dead
    return settled


def _dead_output(record: Batch, params: VsParams, reason: str) -> Outcome[VsState]:
    """An output without a result. It does not count as a repeat."""
    return without_result(VsState(dead=[record.first_line]), record, reason)


class VsEvaluator(Evaluator[VsParams, VsState]):
    """Tests recorded outputs of agents against a golden set, and repeated outputs for mode collapse."""

    name = "vs"
    version = "4"
    summary = "Test agents' outputs against a golden set of verbalized-sampling cases, and find mode collapse."
    records = Records(unit="outputs")
    Params = VsParams
    State = VsState
    command = CommandLine(
        positional="golden",
        request=complete_request,
        options=(
            Option(
                ("--outputs",),
                "Recorded outputs: JSONL, CSV or Parquet with case, repeat and output, or a folder of JSON files; "
                "may be repeated.",
                "path",
                many=True,
            ),
            Option(("--map",), "The keys of your --outputs: case=qid,output=response.", many=True),
            Option(("--registry",), "Agents and their levels; replaces the included registry.", "path"),
            Option(("--all",), "Every case of the golden set (the default).", "bool"),
            Option(("--agent",), "Only the cases of this agent (its id or the number that it begins with)."),
            Option(("--level",), "Only the cases of this level.", choices=tuple(level.name for level in LEVELS)),
        ),
    )
    measures = MEASURES
    views = VIEWS
    sample = Sample(write_sample, records=1_500)
    gathering = Gathering((".json",), output_line, FIELDS)
    calls = Calls("target", prompts, evaluation_request, answers_suffice=True, repeats=True, stopping=stopping)
    whole = WholeInput(_settle, leave_out_repeated, _dead_output)

    def evaluate(self, batch: Batch, params: VsParams) -> Outcome[VsState]:
        """Test each line of a chunk."""
        judge, gatherer, tally = judge_for(params), OutputGatherer(), Tally()
        lines: list[bytes] = []
        faults: list[tuple[int, str]] = []
        for number, data in batch.lines():
            test = judge.test(data)
            gatherer.add(number, test)
            count_cuts(data, number, tally.left_out)
            lines.append(_record_line(batch.where(number), test))
            if test.status == "ERROR":
                tally.errors += 1
                faults.append((number, test.findings[0].issue))
            elif test.status == "SKIPPED":
                tally.unscored += 1
            else:
                tally.scored += 1
        tally.listed = Faults(len(faults), faults[:LISTED])
        return Outcome(gatherer.finish(), tally, lines)

    def section(self, results: Sequence[InputResult[VsState]], params: VsParams) -> dict[str, Json]:
        """The specification's result format, and mode collapse by case."""
        return section(results, params)


evaluator = VsEvaluator()
