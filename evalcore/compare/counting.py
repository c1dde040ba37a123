"""Reads a run for a comparison: cases from record lines, usage from outputs, and a check that both are plausible."""

from __future__ import annotations

import contextlib
import heapq
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.compare.pairs import ROUNDED, left_out
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary, RunCases, RunUsage, Summing, Taking, Took
from evalq.evalcore.contract.evaluator import Evaluator, InputResult, Measures, Params, Tally, Views
from evalq.evalcore.contract.measures import Measure, Number, Observation
from evalq.evalcore.errors import InfrastructureError, UsageError, WireError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.calls import BY_USER, Attempt, count_served, count_user, user_facts
from evalq.evalcore.model.canonical import Json, as_written, canonical_json, digest
from evalq.evalcore.model.lines import Lines, with_markers
from evalq.evalcore.model.manifest import input_of
from evalq.evalcore.model.state import omissions_in
from evalq.evalcore.views.metrics import whole

_BESIDE = ("tags", "weight", "thresholds", "diversity")
"""Keys of a case that change neither its input nor its checks."""
_DIGITS = 16
"""The length of a case's digest, which is compared with that of one other case."""

_TOOK = re.compile(rb',"took":\{[^{}]*\}')
"""Time and cost in a record of checks: these differ although the answers are equal."""


class _OffScale(Exception):
    """A value that its measure cannot have."""


class _Scale(NamedTuple):
    """The values that a measure may have: from ``low`` to ``high``, and a little more for rounding."""

    name: str
    low: float
    high: float
    words: str
    whole: bool

    @classmethod
    def of(cls, measure: Measure) -> _Scale:
        rounding, whole = ROUNDED * measure.width, measure.kind == "pass"
        words = "0 or 1" if whole else f"from {measure.low:g} to {measure.high:g}"
        return cls(measure.name, measure.low - rounding, measure.high + rounding, words, whole)

    def holds(self, value: float) -> bool:
        # NaN is neither below nor above anything.
        return self.low <= value <= self.high and (not self.whole or value in (0, 1))


class CaseCounter:
    """Takes the lines of records.jsonl in their order, then gives the run's cases; memory grows with the cases."""

    def __init__(self, evaluator: Evaluator[Any, Any], location: str = "") -> None:
        """``location`` names the records in errors. Raises UsageError for an evaluator without measures."""
        if evaluator.measures is None:
            raise UsageError(
                f"{location or evaluator.name}: evalq cannot compare runs of {evaluator.name}: it declares no measures"
            )
        self._evaluator = evaluator
        self._location = location
        self._measures: Measures = evaluator.measures
        self._summing = Summing(self._measures.measures, self._measures.took)
        self._scales = [_Scale.of(measure) for measure in self._measures.measures]
        self._decode = msgspec.json.Decoder().decode

    def add(self, lines: Iterable[bytes]) -> None:
        """Count the next records. Raises InfrastructureError if the evaluator fails on one, and for a value that is
        not on the scale of its measure.
        """
        observe, decode, summing = self._measures.observe, self._decode, self._summing
        try:
            for line in lines:
                record = decode(line)
                observation = observe(record)
                if observation is not None:
                    self._check(observation, record)
                    name = record.get("record", "")
                    summing.add(
                        observation, input_of(name), partial(_answer_in, line, name, record.get("id"), observation)
                    )
        except _OffScale as error:
            raise InfrastructureError(str(error)) from None
        except Exception as error:  # an evaluator's code may raise anything
            raise self._failure(error) from error

    def _check(self, observation: Observation, record: Mapping[str, Any]) -> None:
        # A value off the scale would make means and intervals wrong: 7 of 5 would pass any bound.
        for scale, value in zip(self._scales, observation.values, strict=False):
            if value is not None and not scale.holds(value):
                raise _OffScale(
                    f"{self._location or self._evaluator.name}: {record.get('record', 'a record')} "
                    f"(case {observation.case}): "
                    f"{self._evaluator.name} gives {scale.name} the value {value!r}, and its scale is {scale.words}; "
                    "mend the evaluator or the scale that its measure declares, and evaluate again"
                )

    def cases(self, report: dict[str, Json], *, run: str, digest_of_report: str, live: bool = False) -> RunCases:
        """The counted cases, as a run called ``run`` with this report. Raises InfrastructureError as `add` does.

        A ``live`` run records each of its calls, so only another's file may leave repeats out.
        """
        measures = self._measures
        try:
            facts = (
                measures.collapsed(report),
                measures.stopped(report),
                measures.judged(report),
                measures.collapse_p(report),
                measures.diverse(report),
            )
            unrecorded = sorted(measures.unrecorded(report))
        except Exception as error:
            raise self._failure(error) from error
        # Leave out labels, which people give afterwards, so that a labelled run stays comparable.
        params = {name: value for name, value in report["params"].items() if name not in measures.not_compared}
        if measures.new_cases and params.get(measures.new_cases):
            params = {name: value for name, value in params.items() if not name.startswith("cases")}
        summary = self._summing.summary(*facts)
        if not live and (gaps := left_out(self._summing.repeats())):
            decided = frozenset(summary.stopped)
            lacking = [0 if case in decided else gaps.get(case, 0) for case in summary.ids]
            summary.missing = list(map(add, summary.missing, lacking))
            summary.asked = list(map(add, summary.asked, lacking))
        return RunCases(
            run=run,
            evaluator=self._evaluator.name,
            # The version that judged the records: another version may judge otherwise.
            version=report["evaluator_version"],
            specification=digest(canonical_json(params)),
            report=digest_of_report,
            records=dict(report["records"]),
            results=with_markers(report["results"]),
            cases=msgspec.structs.replace(
                summary,
                unrecorded=unrecorded,
                specified=_specified(report["params"]),
                # As for recorded outputs; callers that know of live calls, or of attempts, replace it.
                unusable=unusable_of(summary, Causes()),
            ),
            took=self._summing.took(summary),
            numbers=list(self._measures.numbers),
            left_out=omissions_in(report),
            parameters=digest(canonical_json({name: value for name, value in params.items() if name != "cases"})),
            inputs=sorted(each["sha256"] for each in report.get("inputs", ())),
        )

    def _failure(self, error: Exception) -> InfrastructureError:
        what = f"{type(error).__name__}: {error}"
        where = f"{self._location}: " if self._location else ""
        return InfrastructureError(
            f"{where}{self._evaluator.name} cannot read the cases of this run ({what}); if another version wrote it, "
            "or it was changed since, evaluate again"
        )


def _answer_in(line: bytes, record: str, name: object, observation: Observation) -> bytes:
    """A line of records.jsonl without its record's name, its repeat and its usage.

    So the same answer is equal in another file, and as another repeat.
    """
    answer = _TOOK.sub(b"", line.removeprefix(b'{"record":' + msgspec.json.encode(record) + b","))
    if observation.repeat is None:
        return answer
    # Remove the first one only, since an answer may quote such text.
    answer = answer.replace(b'"repeat":%d,' % observation.repeat, b"", 1)
    # Records of vs have such ids.
    numbered = name == f"{observation.case}#{observation.repeat}"
    return answer.replace(b'"id":' + msgspec.json.encode(name) + b",", b"", 1) if numbered else answer


def _specified(params: Mapping[str, Any]) -> dict[str, str]:
    """{case: the digest of its input and checks}, for parameters that list their cases by id."""
    cases = params.get("cases")
    if not isinstance(cases, list | Lines):
        return {}
    specified = {}
    for case in cases:
        if not isinstance(case, dict) or "id" not in case:
            return {}
        kept = {key: value for key, value in case.items() if key not in _BESIDE}
        specified[str(case["id"])] = digest(canonical_json(kept))[:_DIGITS]
    return specified


# Missing answers by cause: those that the machinery lost, and those that the agent made unusable.

_OWN = frozenset({"bad_output", "refused"})
"""Kinds of failure that the agent caused: it answered, and nobody can use the answer."""


class Causes(msgspec.Struct, frozen=True):
    """{case: failed outputs} by cause: those that were ``lost`` on the way, and the agent's ``own`` failures."""

    lost: dict[str, int] = {}
    own: dict[str, int] = {}


class _Attempt(msgspec.Struct):
    kind: str = ""
    by: str = ""


class _LossLine(msgspec.Struct):
    case: str = ""
    error: str | bool | None = ""
    attempts: tuple[_Attempt, ...] | None = ()


_decode = msgspec.json.Decoder(_LossLine).decode


def causes_in(outputs: Path) -> Causes:
    """The causes of failed outputs in a file of live ones. Raises WireError for a damaged line."""
    causes = Causes()
    with open_input(outputs) as lines:
        for number, data in enumerate(lines, start=1):
            try:
                _count(_decode(data), causes)
            except msgspec.DecodeError as error:
                raise WireError(f"{outputs}:{number}: not a recorded output: {error}") from error
    return causes


def count_recorded(data: bytes, causes: Causes) -> None:
    """Count a line of recorded outputs if its attempts say why it failed."""
    # Without attempts no call lost it on the way: the recording itself has no answer.
    if b'"attempts"' not in data or b'"error"' not in data:
        return
    with contextlib.suppress(msgspec.DecodeError):
        if (line := _decode(data)).attempts:
            _count(line, causes)


def _count(line: _LossLine, causes: Causes) -> None:
    if not line.error or not line.case:
        return
    # The last attempt is why there is no answer. What the simulated user could not say is no failure of the agent.
    last = line.attempts[-1] if line.attempts else None
    own = last is not None and last.kind in _OWN and last.by != BY_USER
    counts = causes.own if own else causes.lost
    counts[line.case] = counts.get(line.case, 0) + 1


def unusable_of(cases: CaseSummary, causes: Causes) -> dict[str, int]:
    """{case: how many of its missing answers arrived, but were unusable}, by the known ``causes``.

    An answer that was not lost on the way arrived. If judges decide, the judge's reply may be what is missing: then
    count only failures that the agent surely caused.
    """
    unusable = {}
    for case, missing in zip(cases.ids, cases.missing, strict=True):
        lost = causes.lost.get(case, 0)
        own = causes.own.get(case, 0) if cases.judged is not None else missing - lost
        if (own := min(own, missing)) > 0:
            unusable[case] = own
    return unusable


# Usage of the live calls of a run: time, tokens and money, from its outputs.jsonl.

_SAMPLE = 32
"""If two runs share a tenth of their answers, their samples have one in common in 24 of 25 cases."""


class _UsageLine(msgspec.Struct):
    case: str = ""
    repeat: int = 0
    config: str = ""
    error: str = ""
    attempts: tuple[Attempt, ...] = ()
    seconds: float | None = None
    user: Any = None


_USAGE_KEYS = ("usage.seconds", "usage.cost", "usage.prompt_tokens", "usage.completion_tokens")
"""Usage of single outputs of live calls: the time of the last attempt, and cost and tokens of all attempts."""
_CALL_KEYS = ("cost", "prompt_tokens", "completion_tokens")
"""Numbers that a target may lack: one without a price, or a server that counts no tokens."""
USAGE_NUMBERS = (
    Number("usage.outputs"),
    Number("usage.errors", "lower", holds_missing=True),
    Number("usage.attempts", "lower"),
    *(Number(name, "lower", "total", name) for name in _USAGE_KEYS[1:]),
    *(Number(f"usage.seconds.p{share}", "lower", "quantile", "usage.seconds", share / 100) for share in (50, 95, 99)),
    *(Number(f"usage.each.{name.partition('.')[2]}", "lower", "mean", name) for name in _USAGE_KEYS),
)
"""The numbers under ``usage`` in the results of a live run."""


def usage_of(outputs: Path) -> RunUsage:
    """The usage in all lines of ``outputs``, in eight bytes of memory a line. Raises WireError for a damaged line."""
    return read_usage(outputs)[0]


def read_usage(outputs: Path) -> tuple[RunUsage, dict[str, Took]]:
    """The usage of a run, and that of single outputs."""
    decode = msgspec.json.Decoder(_UsageLine).decode
    seconds, count, errors, attempts, cost, prompt, completion = array("d"), 0, 0, 0, 0.0, 0, 0
    configs: set[str] = set()
    served: dict[str, int] = {}
    users: dict[str, int] = {}
    taking, unknown = Taking(_USAGE_KEYS), dict.fromkeys(("seconds", *_CALL_KEYS), 0)
    sample: list[int] = []  # a heap of the smallest numbers, negated so that the largest of them is its root
    with open_input(outputs) as lines:
        for number_of_line, data in enumerate(lines, start=1):
            try:
                line = decode(data)
            except msgspec.DecodeError as error:
                raise WireError(f"{outputs}:{number_of_line}: not a recorded output: {error}") from error
            configs.add(line.config)
            number = -_number(line)
            if len(sample) < _SAMPLE:
                heapq.heappush(sample, number)
            elif number > sample[0]:
                heapq.heapreplace(sample, number)
            count += 1
            errors += bool(line.error)
            if (user := user_facts(line.user)) is not None:
                count_user(users, user, line.attempts)
            line.attempts = tuple([attempt for attempt in line.attempts if attempt.by != BY_USER])
            attempts += len(line.attempts)
            count_served(served, line.attempts)
            answered = [attempt for attempt in line.attempts if not attempt.kind]
            unknown["seconds"] += bool(answered) and _seconds(line) is None
            for name in _CALL_KEYS:
                unknown[name] += any(getattr(attempt, name) is None for attempt in answered)
            for attempt in line.attempts:
                cost += attempt.cost or 0.0
                prompt += attempt.prompt_tokens or 0
                completion += attempt.completion_tokens or 0
            # Only the last attempt gave an output.
            if line.attempts and (took_seconds := _seconds(line)) is not None:
                seconds.append(took_seconds)
            if line.case:
                taking.add(line.case, _usage_values(line))
    config = configs.pop() if len(configs) == 1 else ""
    took = taking.by_name({})
    each = {name.partition(".")[2]: numbers.sketch.mean() for name, numbers in took.items()}
    usage = RunUsage(
        count, errors, attempts, cost, prompt, completion, _quantiles(seconds), config,
        sorted(-number for number in sample),
        {name: mean for name, mean in each.items() if mean is not None},
        {name: outputs for name, outputs in unknown.items() if outputs},
        served, users,
    )  # fmt: skip
    return usage, took


def usage_results(usage: RunUsage) -> dict[str, Json]:
    """The values under ``usage`` in the results: null, not 0, for a number that no output has."""
    results: dict[str, Json] = msgspec.to_builtins(usage)
    named = [number.path.split(".")[1:] for number in USAGE_NUMBERS]
    for holder in ("each", "seconds"):
        keys = [name for above, *name in named if above == holder and name]
        results[holder] = {**{name: None for (name,) in keys}, **results[holder]}
    if not usage.users:
        del results["users"]
    return {**results, **{name: None for name in _CALL_KEYS if not results[name] and results["each"][name] is None}}


def _usage_values(line: _UsageLine) -> tuple[float | None, ...]:
    """The usage of an output; None for a number that no attempt has, such as the cost without a price."""
    if not line.attempts:
        return (None,) * len(_USAGE_KEYS)
    columns = (
        [attempt.cost for attempt in line.attempts],
        [attempt.prompt_tokens for attempt in line.attempts],
        [attempt.completion_tokens for attempt in line.attempts],
    )
    known = ([each for each in column if each is not None] for column in columns)
    return (_seconds(line), *(float(sum(each)) if each else None for each in known))


def _seconds(line: _UsageLine) -> float | None:
    # No call takes 0 seconds: 0 means that nobody measured it.
    return line.seconds or line.attempts[-1].latency_seconds or None


def call_number(data: bytes) -> int | None:
    """The number of an answer in a line of recorded outputs; None if the line does not say how long its calls took."""
    try:
        line = msgspec.json.decode(data, type=_UsageLine)
    except (msgspec.DecodeError, RecursionError):
        return None
    return _number(line) if line.case and any(attempt.latency_seconds for attempt in line.attempts) else None


def _number(line: _UsageLine) -> int:
    """A number that differs for each answer of the target, and stays the same for an answer from a cache."""
    # Use latencies: two calls hardly ever take exactly the same time, and a cached answer keeps that of its call.
    text = f"{line.case}\0{line.repeat}\0{[attempt.latency_seconds for attempt in line.attempts]}"
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=6).digest())


def _quantiles(seconds: array[float]) -> dict[str, float]:
    """The smallest times that 50, 95 and 99 of 100 outputs did not exceed."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {f"p{share}": ordered[-(-share * len(ordered) // 100) - 1] for share in (50, 95, 99)}


# A check of files with a run's cases, since anybody may have written one, as in a pull request.

_MOST_ANSWERS = 100_000_000
"""The limit for one case: more than anybody has, and as many as evalq can draw from."""
_ROUNDED = 1e-9
"""The relative error of sums that were added in another order, or written to a file."""
_LINES = re.compile(r"[0-9]{1,18}-[0-9a-f]{32}\Z")
_CALLED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(\[[A-Za-z0-9._:+=,-]{1,400}\])?\Z")


def fault_of(run: RunCases) -> str:
    """What is wrong with ``run``, and at which key; empty if nothing is."""
    return next(_faults(run), "")


def _faults(run: RunCases) -> Iterator[str]:
    for key, name in (("evaluator", run.evaluator), ("name", run.name or run.evaluator)):
        if not _CALLED.match(name):
            yield f"{key}: {name[:100]!r} is no name for one"
    if not all(map(_LINES.match, run.lines)):
        yield "lines: no digests of lines"
    cases = run.cases
    if not cases.measures:
        yield "cases.measures: there are none"
    if len(set(cases.ids)) < len(cases.ids):
        yield "cases.ids: a case is there twice"
    if len(cases.missing) != len(cases.ids) or min(cases.missing, default=0) < 0 or cases.unattributed < 0:
        yield "cases.missing: not a count for each case"
    if cases.asked and (len(cases.asked) != len(cases.ids) or min(cases.asked) < 0):
        yield "cases.asked: not a count for each case"
    if cases.labels and len(cases.labels) != len(cases.ids):
        yield "cases.labels: not one for each case"
    if any(min(each.values(), default=1) < 1 or sum(each.values()) > _MOST_ANSWERS for each in cases.labels):
        yield "cases.labels: no answers add up to these numbers"
    if not all(0 <= p <= 1 for p in (cases.collapse_p or {}).values()):
        yield "cases.collapse_p: not all are probabilities"
    for measure in cases.measures:
        yield from _of_measure(measure, cases)
    for name, took in run.took.items():
        if not _addable(took):
            yield f"took.{name}: no answers add up to these numbers"


def _addable(took: Took) -> bool:
    """Whether the sums by case may belong to the answers that the sketch counts."""
    columns = (took.count, took.missing, took.total, took.squares, took.logs, took.log_squares)
    if any(len(each) != len(took.ids) for each in columns) or len(set(took.ids)) < len(took.ids):
        return False
    sketch = took.sketch
    counted = sketch.zeros + sum(sketch.buckets.values())
    whole = min([0, *took.count, *took.missing]) == 0 and sum(took.count) == sketch.count == counted
    sums = [*took.total, *took.squares, *took.logs, *took.log_squares, sketch.most, sketch.least or 0.0]
    return whole and all(map(math.isfinite, sums)) and min([0.0, *took.total, *took.squares]) == 0.0


def _of_measure(measure: Measure, cases: CaseSummary) -> Iterator[str]:
    key, column = f"cases.columns.{measure.name}", cases.columns.get(measure.name)
    if column is None or not all(len(each) == len(cases.ids) for each in (column.count, column.total, column.squares)):
        yield f"{key}: not a number for each case"
    elif not measure.low < measure.high:
        yield f"{key}: its scale has no width"
    elif not all(_possible(measure, column, at) for at in range(len(cases.ids))):
        yield f"{key}: no answers add up to these numbers"


def _possible(measure: Measure, column: CaseColumn, at: int) -> bool:
    count, total, squares = column.count[at], column.total[at], column.squares[at]
    if not 0 <= count <= _MOST_ANSWERS or squares < 0 or (not count and (total or squares)):
        return False
    if measure.kind == "pass":
        return 0 <= total <= count and total == int(total)
    # A mean off the scale would pass any bound, and has no interval.
    rounding = _ROUNDED * max(abs(measure.low), abs(measure.high)) * count
    if not count * measure.low - rounding <= total <= count * measure.high + rounding:
        return False
    # The squares must be finite, too, since variances use them.
    return math.isfinite(total * total) and math.isfinite(squares)


# Whether a path leads to a number of an evaluator's results, as far as evalq knows before a run is paid.

_NAMED = 20
_INPUT = "input}"  # the label of inputs, whose names are known; no key has this name


def why_no_number(
    path: str, evaluator: Evaluator[Any, Any], params: Params, inputs: Sequence[str], *, live: bool
) -> str:
    """Why no run of ``evaluator`` over ``inputs`` (their names) has a number at ``path``; empty if one may have it.

    evalq knows the measures, the paths that views declare, and the keys of results without any record. If such a key
    holds an empty mapping or null, anything may come below it.
    """
    measures = [measure.name for measure in evaluator.measures.measures] if evaluator.measures else []
    results = None if path in measures else _without_records(evaluator, params, inputs)
    if results is None:
        return ""
    parts = path.split(".")
    if parts[0] == "usage" and not live:
        return "usage is the time, cost and tokens of live calls, and this run makes none"
    if parts[:2] in (["usage", "each"], ["usage", "seconds"]):
        known = [each.path for each in USAGE_NUMBERS]
        return "" if path in known else f"the results have no {path!r}; there are: {', '.join(known)}"
    value: Json = {**results, "usage": msgspec.to_builtins(RunUsage())}
    for number, part in enumerate(parts):
        if value is None or value == {} or (isinstance(value, Mapping) and ".".join(parts[number:]) in value):
            return ""
        if not isinstance(value, Mapping) or part not in value:
            if _declared(parts[: number + 1], evaluator.views):
                return ""
            known = sorted(value)[:_NAMED] if isinstance(value, Mapping) else []
            known += [f"{name} (by case)" for name in measures if not number and name not in known]
            return f"the results have no {part!r} there; there are: {', '.join(known) or 'nothing'}"
        value = value[part]
    return ""


def _without_records(evaluator: Evaluator[Any, Any], params: Params, inputs: Sequence[str]) -> dict[str, Json] | None:
    """The results of inputs without any record; None if the evaluator cannot make them."""
    nothing = [InputResult(name, name, evaluator.State.zero(), Tally()) for name in inputs]
    try:
        results: dict[str, Json] = as_written(evaluator.section(nothing, params))
    except Exception:  # no run gets here without records, so an evaluator may fail on none
        return None
    return results


def _declared(parts: Sequence[str], views: Views) -> bool:
    """Whether a declared path ends or goes on here: it may be there with some records, and not with others."""
    paths = [metric.path for metric in views.metrics if metric.scope is whole] + [*views.at_times]
    for steps in map(list, map(_steps, paths)):
        if len(steps) >= len(parts) and all(step in ("", part) for step, part in zip(steps, parts, strict=False)):
            return True
    return False


def _steps(path: str) -> Iterator[str]:
    """The keys of a declared path, "" for any; up to a list, into which no policy leads."""
    for step in path.split("."):
        key, brace, label = step.partition("{")
        if "[" in step:
            return
        if key:
            yield key
        if brace:
            yield _INPUT if label == _INPUT else ""
