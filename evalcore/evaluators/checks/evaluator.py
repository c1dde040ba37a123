"""The evaluator of checks: its command, its measures, and the line of records.jsonl for an output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    JudgeStage,
    Option,
    Outcome,
    Records,
    Sample,
    WholeInput,
    without_result,
)
from evalq.evalcore.contract.measures import Judged, Measure, Measures, Number, Observation, spread_of
from evalq.evalcore.contract.repeats import count_first, leave_out_repeated
from evalq.evalcore.evaluators.checks.answer import NOTHING_USED
from evalq.evalcore.evaluators.checks.check import CheckVerdict, any_judged
from evalq.evalcore.evaluators.checks.inputs import (
    ENDINGS,
    FIELDS,
    begin_request,
    complete_request,
    evaluation_request,
    output_line,
    prepare,
    prompts,
    selected_traces,
    stopping,
)
from evalq.evalcore.evaluators.checks.params import ChecksParams
from evalq.evalcore.evaluators.checks.report import checks_section
from evalq.evalcore.evaluators.checks.sample import write_sample
from evalq.evalcore.evaluators.checks.score import NO_LABELS, ScoredOutput, scorer_for
from evalq.evalcore.evaluators.checks.stages import judge_stage, outputs_to_judge
from evalq.evalcore.evaluators.checks.state import ChecksGatherer, ChecksState
from evalq.evalcore.evaluators.checks.views import VIEWS
from evalq.evalcore.model.calls import count_cuts
from evalq.evalcore.model.canonical import Json, canonical_json, digest
from evalq.evalcore.model.state import LISTED, Faults, Tally
from evalq.evalcore.naming import shorten

# Comparing runs: by whether the outputs of a case pass, and by their scores.

_WITHOUT_JUDGES = (
    *("plain", "labels", "judges", "cases", "usage"),
    *("latency_seconds", "cost", "tokens", "first_token_seconds"),
)
"""Results that do not depend on fallible checks."""


_USAGE = ("latency_seconds", "cost", "tokens", "first_token_seconds")
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_NUMBERS = (
    Number("outputs.passed", "higher"),
    Number("outputs.failed", "lower"),
    Number("outputs.errors", "lower", holds_missing=True),
    Number("outputs.*"),
    Number("cases.answered", "higher"),
    Number("cases.unrecorded", "lower", holds_missing=True),
    Number("cases.*"),
    Number("thresholds.holds", "higher"),
    Number("thresholds.fails", "lower"),
    Number("thresholds.*"),
    *(number for name in _USAGE for number in spread_of(name, _QUANTILES)),
    Number("plain.outputs.passed", "higher"),
    Number("plain.outputs.failed", "lower"),
    Number("plain.*", kind="estimate"),
    Number("labels.used"),
    Number("labels.**", kind="estimate"),
    Number("pass_rate_interval.*", "higher", "estimate"),
    Number("diversity.verdicts.collapsed", "lower"),
    Number("diversity.verdicts.diverse", "higher"),
    Number("diversity.verdicts.*"),
    Number("diversity.collision_probability.*", kind="estimate"),
    Number("diversity.cases"),
    Number("diversity.alpha"),
    Number("diversity.*", kind="estimate"),
    Number("stopping.*"),
    Number("judges.**", kind="estimate"),
)


def _observe(line: Mapping[str, Any]) -> Observation | None:
    """The observation of one line; None for an output outside of the selection."""
    if line["status"] == "skipped":
        return None
    case, repeat = line.get("id") or "", line.get("repeat")
    if line.get("passed") is None:
        return Observation(case, repeat=repeat)
    plain = line.get("plain")
    values = (float(line["passed"]), float(line["score"]), None if plain is None else float(plain))
    used = line.get("took", {})
    return Observation(case, values, repeat, line.get("kind"), tuple(used.get(name) for name in _USAGE))


def _collapsed(report: Mapping[str, Any]) -> list[str]:
    entries = report["results"].get("diversity", {}).get("by_case", ())
    return [entry["case"] for entry in entries if entry["verdict"] == "collapsed"]


def _collapse_p(report: Mapping[str, Any]) -> dict[str, float] | None:
    if "diversity" not in report["results"]:
        return None  # no answers are counted by kind
    entries = report["results"]["diversity"]["by_case"]
    return {each["case"]: each["p_collapsed"] for each in entries if each["p_collapsed"] is not None}


def _diverse(report: Mapping[str, Any]) -> list[str]:
    entries = report["results"].get("diversity", {}).get("by_case", ())
    return [entry["case"] for entry in entries if entry["verdict"] == "diverse"]


def _stopped(report: Mapping[str, Any]) -> list[str]:
    entries = report["results"]["by_case"]
    return [each["case"] for each in entries if "stop" in each and sum(each["outputs"].values()) < each["stop"]["of"]]


def _unrecorded(report: Mapping[str, Any]) -> list[str]:
    return [entry["case"] for entry in report["results"]["by_case"] if not sum(entry["outputs"].values())]


def _case_ids(batch: Batch, params: ChecksParams) -> Iterator[str]:
    scorer = scorer_for(params)
    return filter(None, (scorer.case(data) for _, data in batch.lines()))


def _judged_by(report: Mapping[str, Any]) -> Judged | None:
    """The judges of a run, and the labels of the checks they decide."""
    results = report["results"]
    if "plain" not in results:
        return None
    entry = results["labels"]
    labels = {entry["check"]: _by_case(entry) for entry in entry["checks"] if entry["decides"]}
    judges = [[each["judge"], each["configs"], each["prompts"]] for each in results.get("judges", ())]
    return Judged(labels, digest(canonical_json(judges)), _WITHOUT_JUDGES, _by_case(entry["outputs"] or {}))


def _by_case(entry: Mapping[str, Any]) -> dict[str, tuple[int, int, int, int, int, int]]:
    return {case: tuple(counts) for case, *counts in entry.get("by_case", ())}


MEASURES = Measures(
    (Measure("pass_rate"), Measure("score", "score"), Measure("plain.pass_rate", optional=True)),
    _observe,
    _collapsed,
    _stopped,
    _case_ids,
    _judged_by,
    not_compared=("labels", "judges_decide"),
    new_cases="traces",
    collapse_p=_collapse_p,
    diverse=_diverse,
    took=_USAGE,
    numbers=_NUMBERS,
    unrecorded=_unrecorded,
)


# One line of records.jsonl: an output with all of its checks.

_REASON = 300
_SHOWN = 200


class _RecordLine(msgspec.Struct):
    """``id`` is the case; ``passed`` and ``score`` are null without a verdict. ``kind`` stands for the text if answers
    are counted by kind. ``took`` has the known seconds, cost, tokens, and seconds to the first token. ``plain`` is
    whether it passes by the checks that are not fallible, in runs that have others; ``labels`` are people's, by check.
    """

    record: str
    id: str | None
    repeat: int | None
    status: str
    passed: bool | None
    score: float | None
    reason: str | None
    checks: tuple[CheckVerdict, ...]
    output: str | None = None
    kind: str | msgspec.UnsetType = msgspec.UNSET
    took: dict[str, float] | msgspec.UnsetType = msgspec.UNSET
    plain: bool | msgspec.UnsetType | None = msgspec.UNSET
    labels: dict[str, bool] | msgspec.UnsetType = msgspec.UNSET


def record_line(record: str, test: ScoredOutput, *, with_plain: bool = False) -> bytes:
    """The line of the output named ``record``; it has the beginning of a text that failed or is counted by kind.

    ``with_plain`` adds the result by checks that are not fallible.
    """
    plain = test.status == "passed" and test.usage is NOTHING_USED and test.labels is NO_LABELS and not with_plain
    if plain and test.plan is not None and test.plan.plain:
        case = test.plan.case.id
        return _encode(_RecordLine(record, case, test.repeat, "passed", True, test.score, None, test.checks))
    line = _RecordLine(
        record,
        test.plan.case.id if test.plan else None,
        test.repeat,
        test.status,
        {"passed": True, "failed": False}.get(test.status),
        test.score,
        shorten(test.reason, _REASON) or None,
        test.checks,
        None if test.status == "passed" and not test.mark.text else shorten(test.text, _SHOWN) or None,
        test.mark.text.hex() or msgspec.UNSET,
        _usage_of(test) or msgspec.UNSET,
        _passes_plain(test) if with_plain else msgspec.UNSET,
        _labels_of(test) or msgspec.UNSET,
    )
    return _encode(line)


def _labels_of(test: ScoredOutput) -> dict[str, bool]:
    """People's labels of an output, by check."""
    if not test.labels.by_check:
        return {}
    labelled = zip(test.checks, test.labels.by_check, strict=False)
    return {check.name: label for check, label in labelled if label is not None}


def _usage_of(test: ScoredOutput) -> dict[str, float]:
    """The known usage of an output with a verdict, for the quantiles of the report."""
    usage = test.usage
    if test.score is None or usage is NOTHING_USED:
        return {}
    known = dict(zip(_USAGE, (usage.latency, usage.cost, usage.tokens, usage.first_token), strict=True))
    return {name: value for name, value in known.items() if value is not None}


def _passes_plain(test: ScoredOutput) -> bool | None:
    """Whether an output passes by checks that are not fallible; None without a verdict or without such checks."""
    if test.plan is not None and any(test.plan.judged):
        return test.labels.passes_plain
    return {"passed": True, "failed": False}.get(test.status)


_encode = msgspec.json.Encoder().encode


def settle(state: ChecksState, params: ChecksParams, reopen: Callable[[], BinaryIO], scratch: Path) -> ChecksState:
    """If a (case, repeat) occurs more than once, count again from the input, only its first output."""
    if not state.overlap:
        return state
    settled, repeated = count_first(scorer_for(params).test, ChecksGatherer(), reopen, state.last, state.dead)
    settled.repeated, settled.dead = repeated, state.dead
    return settled


def _dead_output(record: Batch, params: ChecksParams, reason: str) -> Outcome[ChecksState]:
    """The outcome of an output without a result."""
    return without_result(ChecksState(dead=[record.first_line]), record, reason)


class ChecksEvaluator(Evaluator[ChecksParams, ChecksState]):
    """Scores recorded or live outputs of any agent by cases with checks."""

    name = "checks"
    version = "3"
    summary = "Check any agent's outputs, case by case: by text, JSON, numbers, tool calls or cost, with many repeats."
    records = Records(unit="outputs")
    Params = ChecksParams
    State = ChecksState
    command = CommandLine(
        positional="cases",
        request=complete_request,
        prepare=prepare,
        traces=selected_traces,
        begin=begin_request,
        attach=ChecksParams.attached,
        shown=ChecksParams.shown,
        options=(
            Option(
                ("--outputs",),
                "Recorded outputs: JSONL, CSV or Parquet with case, repeat and output, or a folder of .json, .txt or "
                ".md files, an output each; may be repeated.",
                "path",
                many=True,
            ),
            Option(
                ("--map",),
                "The keys of your --outputs: case=qid,output=response.text. With expected=gold, your records have the "
                "expected answers, and no cases file is needed.",
                many=True,
            ),
            Option(
                ("--traces",),
                "Traces of OpenTelemetry, as a Collector's file exporter writes them (JSON or protobuf); may be "
                "repeated. CASES is then a file of checks: each trace is a case.",
                "path",
                many=True,
            ),
            Option(
                ("--by",),
                "An attribute of traces, such as route: results are also shown for each of its values.",
                many=True,
            ),
            Option(
                ("--judge",),
                "The judge, a target of the targets file, for checks that name none. With --outputs, it judges these.",
            ),
            Option(
                ("--against",),
                "Outputs of another run (outputs.jsonl). Checks prefer: true compare its answers of the same repeats.",
                "path",
            ),
            Option(("--case-tag",), "Evaluate only the cases with this tag.", param="tag"),
            Option(
                ("--pass-rate",),
                "The pass rate, from 0 to 1, that cases without their own thresholds must reach.",
                "float",
                "pass_rate",
            ),
            Option(
                ("--diversity",),
                "Count answers by kind, and detect collapse to one kind, in cases without their own setting.",
                "str",
                "diversity.by",
                choices=("text", "near", "embedding", "none"),
            ),
            Option(
                ("--embedder",),
                "The target of kind embeddings that gives vectors of answers, for cases that name none. With "
                "--outputs, it gives vectors of these outputs.",
            ),
            Option(
                ("--labels",),
                "People's labels of a random sample of the outputs: JSONL or CSV of case, repeat, check, passed.",
                "path",
            ),
            Option(
                ("--judges-decide",),
                "Let thresholds count even if their judges have too few labels.",
                "bool",
                "judges_decide",
            ),
        ),
    )
    measures = MEASURES
    views = VIEWS
    sample = Sample(write_sample, records=2_000)
    gathering = Gathering(ENDINGS, output_line, FIELDS)
    calls = Calls(
        *("target", prompts, evaluation_request),
        answers_suffice=True,
        text=True,
        repeats=True,
        stopping=stopping,
        judge_stage=JudgeStage(judge_stage, outputs_to_judge, "judged.jsonl"),
    )
    whole = WholeInput(settle, leave_out_repeated, _dead_output)

    def evaluate(self, batch: Batch, params: ChecksParams) -> Outcome[ChecksState]:
        """Score every line of a chunk."""
        scorer, gatherer, tally, with_plain = scorer_for(params), ChecksGatherer(), Tally(), any_judged(params)
        lines: list[bytes] = []
        faults: list[tuple[int, str]] = []
        for number, data in batch.lines():
            test = scorer.test(data)
            gatherer.add(number, test)
            count_cuts(scorer.output_in(data), number, tally.left_out)
            lines.append(record_line(batch.where(number), test, with_plain=with_plain))
            if test.status == "error":
                tally.errors += 1
                faults.append((number, test.reason))
            elif test.status == "skipped":
                tally.unscored += 1
            else:
                tally.scored += 1
        tally.listed = Faults(len(faults), faults[:LISTED])
        return Outcome(gatherer.finish(), tally, lines)

    def section(self, results: Sequence[InputResult[ChecksState]], params: ChecksParams) -> dict[str, Json]:
        """Pass rates by case, tag and check, thresholds, and usage."""
        return checks_section(results, params)


evaluator = ChecksEvaluator()
