"""Making a run's side of a comparison: cases from record lines, usage from outputs, and whether they can be true."""

from __future__ import annotations

import heapq
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.compare.pairs import ROUNDED
from evalq.evalcore.compare.single_cases import Causes, unusable_of
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary, RunCases, RunUsage, Summing, Taking, Took
from evalq.evalcore.contract.evaluator import Evaluator, InputResult, Measures, Params, Tally, Views
from evalq.evalcore.contract.measures import Measure, Number, Observation
from evalq.evalcore.errors import InfrastructureError, UsageError, WireError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.calls import Attempt
from evalq.evalcore.model.canonical import Json, as_written, canonical_json, digest
from evalq.evalcore.model.manifest import input_of
from evalq.evalcore.model.state import omissions_in
from evalq.evalcore.views.metrics import whole

_BESIDE = ("tags", "weight", "thresholds", "diversity")
"""Of a case: what is asked and checked stays the same without it."""
_DIGITS = 16
"""Of a case's digest: it is compared with that of one other case."""

_TOOK = re.compile(rb',"took":\{[^{}]*\}')
"""As records of checks have it: seconds differ where answers do not."""


class _OffScale(Exception):
    """A value that its measure cannot have."""


class _Scale(NamedTuple):
    """The values that a measure may have: from ``low`` to ``high``, a little more for what sums are rounded by."""

    name: str
    low: float
    high: float
    told: str
    whole: bool

    @classmethod
    def of(cls, measure: Measure) -> _Scale:
        rounding, whole = ROUNDED * measure.width, measure.kind == "pass"
        told = "0 or 1" if whole else f"from {measure.low:g} to {measure.high:g}"
        return cls(measure.name, measure.low - rounding, measure.high + rounding, told, whole)

    def holds(self, value: float) -> bool:
        # NaN is neither below nor above anything.
        return self.low <= value <= self.high and (not self.whole or value in (0, 1))


class CaseCounter:
    """Takes the lines of records.jsonl in their order, then gives the run's cases; memory grows with the cases."""

    def __init__(self, evaluator: Evaluator[Any, Any], place: str = "") -> None:
        """``place`` is where the records are, for what is raised: UsageError where runs of it are not compared."""
        if evaluator.measures is None:
            raise UsageError(
                f"{place or evaluator.name}: runs of {evaluator.name} are not compared: it declares no measures"
            )
        self._evaluator = evaluator
        self._place = place
        self._measures: Measures = evaluator.measures
        self._summing = Summing(self._measures.measures, self._measures.took)
        self._scales = [_Scale.of(measure) for measure in self._measures.measures]
        self._decode = msgspec.json.Decoder().decode

    def add(self, lines: Iterable[bytes]) -> None:
        """Count the next records. Raises InfrastructureError where the evaluator cannot say what one means, and for a
        value that is not on the scale of its measure.
        """
        observe, decode, summing = self._measures.observe, self._decode, self._summing
        try:
            for line in lines:
                told = decode(line)
                observation = observe(told)
                if observation is not None:
                    self._check(observation, told)
                    record = told.get("record", "")
                    summing.add(
                        observation, input_of(record), partial(_said, line, record, told.get("id"), observation)
                    )
        except _OffScale as error:
            raise InfrastructureError(str(error)) from None
        except Exception as error:  # an evaluator's code: it must not take a report along
            raise self._wrong(error) from error

    def _check(self, observation: Observation, told: Mapping[str, Any]) -> None:
        # A mean over such values lies on no scale, and the interval of one is none: 7 of 5 would pass any bound.
        for scale, value in zip(self._scales, observation.values, strict=False):
            if value is not None and not scale.holds(value):
                raise _OffScale(
                    f"{self._place or self._evaluator.name}: {told.get('record', 'a record')} "
                    f"(case {observation.case}): "
                    f"{self._evaluator.name} gives {scale.name} the value {value!r}, and its scale is {scale.told}; "
                    "mend the evaluator or the scale that its measure declares, and evaluate again"
                )

    def cases(self, report: dict[str, Json], *, run: str, digest_of_report: str) -> RunCases:
        """What was counted, as a run called ``run`` that has this report. Raises InfrastructureError as `add` does."""
        told = self._measures
        try:
            found = (
                told.collapsed(report),
                told.stopped(report),
                told.judged(report),
                told.collapse_p(report),
                told.diverse(report),
            )
            unrecorded = self._unrecorded(report)
        except Exception as error:
            raise self._wrong(error) from error
        # Labels that people gave afterwards ask nothing else of an agent: a labelled run stays comparable.
        asked = {name: value for name, value in report["params"].items() if name not in self._measures.beside}
        summary = self._summing.summary(*found)
        return RunCases(
            run=run,
            evaluator=self._evaluator.name,
            # Of what judged the records: another version may have found otherwise.
            version=report["evaluator_version"],
            specification=digest(canonical_json(asked)),
            report=digest_of_report,
            records=dict(report["records"]),
            results=report["results"],
            cases=msgspec.structs.replace(
                summary,
                unrecorded=unrecorded,
                specified=_specified(report["params"]),
                # As recorded; who knows of live calls, or of attempts, says so.
                unusable=unusable_of(summary, Causes()),
            ),
            took=self._summing.took(),
            numbers=list(self._measures.numbers),
            left_out=omissions_in(report),
            parameters=digest(canonical_json({name: value for name, value in asked.items() if name != "cases"})),
            inputs=sorted(each["sha256"] for each in report.get("inputs", ())),
        )

    def _unrecorded(self, report: dict[str, Json]) -> list[str]:
        return sorted(self._measures.unrecorded(report))

    def _wrong(self, error: Exception) -> InfrastructureError:
        what = f"{type(error).__name__}: {error}"
        where = f"{self._place}: " if self._place else ""
        return InfrastructureError(
            f"{where}{self._evaluator.name} cannot say how the cases of this run went ({what}); where another version "
            "wrote it, or it was changed since, evaluate again"
        )


def _said(line: bytes, record: str, name: object, observation: Observation) -> bytes:
    """A line of records.jsonl without its place, its repeat and what the answer took, so that the same answer says the
    same in another file, and as another repeat.
    """
    said = _TOOK.sub(b"", line.removeprefix(b'{"record":' + msgspec.json.encode(record) + b","))
    if observation.repeat is None:
        return said
    # The first one alone: what an answer quotes is the answer.
    said = said.replace(b'"repeat":%d,' % observation.repeat, b"", 1)
    # As records of vs are called.
    own = name == f"{observation.case}#{observation.repeat}"
    return said.replace(b'"id":' + msgspec.json.encode(name) + b",", b"", 1) if own else said


def _specified(params: Mapping[str, Any]) -> dict[str, str]:
    """{case: the digest of all that is asked of it}, of parameters that list their cases by id."""
    cases = params.get("cases")
    if not isinstance(cases, list) or not all(isinstance(case, dict) and "id" in case for case in cases):
        return {}
    asked = ({key: value for key, value in case.items() if key not in _BESIDE} for case in cases)
    return {str(case["id"]): digest(canonical_json(case))[:_DIGITS] for case in asked}


# What the live calls of a run took: time, tokens and money, from its outputs.jsonl.

_SAMPLE = 32
"""Where two runs share a tenth of their answers, their samples have one in common in 24 of 25 cases."""


class _UsageLine(msgspec.Struct):
    case: str = ""
    repeat: int = 0
    config: str = ""
    error: str = ""
    attempts: tuple[Attempt, ...] = ()


_USAGE_KEYS = ("usage.seconds", "usage.cost", "usage.prompt_tokens", "usage.completion_tokens")
"""What single outputs of live calls took: the time of the last attempt, and cost and tokens of all attempts."""
_CALL_KEYS = ("cost", "prompt_tokens", "completion_tokens")
"""What a target may not tell: one without a price, or a server that counts no tokens."""
USAGE_NUMBERS = (
    Number("usage.outputs"),
    Number("usage.errors", "lower", holds_missing=True),
    Number("usage.attempts", "lower"),
    *(Number(name, "lower", "total", name) for name in _USAGE_KEYS[1:]),
    *(Number(f"usage.seconds.p{share}", "lower", "quantile", "usage.seconds", share / 100) for share in (50, 95, 99)),
    *(Number(f"usage.each.{name.partition('.')[2]}", "lower", "mean", name) for name in _USAGE_KEYS),
)
"""What stands under ``usage`` in the results of a live run."""


def usage_of(outputs: Path) -> RunUsage:
    """What all lines of ``outputs`` say, in eight bytes of memory a line. Raises WireError for a damaged line."""
    return read_usage(outputs)[0]


def read_usage(outputs: Path) -> tuple[RunUsage, dict[str, Took]]:
    """The same, and what single outputs took."""
    decode = msgspec.json.Decoder(_UsageLine).decode
    seconds, count, errors, attempts, cost, asked, told = array("d"), 0, 0, 0, 0.0, 0, 0
    configs: set[str] = set()
    taking, untold = Taking(_USAGE_KEYS), dict.fromkeys(("seconds", *_CALL_KEYS), 0)
    sample: list[int] = []  # a heap of the smallest, turned, as its root is to be the largest
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
            attempts += len(line.attempts)
            answered = [attempt for attempt in line.attempts if not attempt.kind]
            untold["seconds"] += bool(answered) and _seconds(line) is None
            for name in _CALL_KEYS:
                untold[name] += any(getattr(attempt, name) is None for attempt in answered)
            for attempt in line.attempts:
                cost += attempt.cost or 0.0
                asked += attempt.prompt_tokens or 0
                told += attempt.completion_tokens or 0
            # Of the last attempt: those before it gave no output.
            if line.attempts and (took_seconds := _seconds(line)) is not None:
                seconds.append(took_seconds)
            if line.case:
                taking.add(line.case, _taken(line))
    config = configs.pop() if len(configs) == 1 else ""
    took = taking.found({})
    each = {name.partition(".")[2]: own.sketch.mean() for name, own in took.items()}
    found = RunUsage(
        count, errors, attempts, cost, asked, told, _quantiles(seconds), config, sorted(-number for number in sample),
        {name: mean for name, mean in each.items() if mean is not None},
        {name: outputs for name, outputs in untold.items() if outputs},
    )  # fmt: skip
    return found, took


def told_in(usage: RunUsage) -> dict[str, Json]:
    """What stands under ``usage`` in the results: null for what no output says, which is not 0."""
    found: dict[str, Json] = msgspec.to_builtins(usage)
    named = [number.path.split(".")[1:] for number in USAGE_NUMBERS]
    for holder in ("each", "seconds"):
        keys = [name for above, *name in named if above == holder and name]
        found[holder] = {**{name: None for (name,) in keys}, **found[holder]}
    # Runs of before say nothing of it; a sum above 0 was told by somebody.
    return {**found, **{name: None for name in _CALL_KEYS if not found[name] and found["each"][name] is None}}


def _taken(line: _UsageLine) -> tuple[float | None, ...]:
    """What an output took; None where no attempt says, as of a target without a price."""
    if not line.attempts:
        return (None,) * len(_USAGE_KEYS)
    costs, asked, told = (
        [each for each in given if each is not None]
        for given in (
            [attempt.cost for attempt in line.attempts],
            [attempt.prompt_tokens for attempt in line.attempts],
            [attempt.completion_tokens for attempt in line.attempts],
        )
    )
    sums = (float(sum(known)) if known else None for known in (costs, asked, told))
    return (_seconds(line), *sums)


def _seconds(line: _UsageLine) -> float | None:
    # No call takes no time at all: where 0 stands, nobody took it.
    return line.attempts[-1].latency_seconds or None


def call_number(data: bytes) -> int | None:
    """The same for a line of recorded outputs; None where it does not say how long its calls took."""
    try:
        line = msgspec.json.decode(data, type=_UsageLine)
    except (msgspec.DecodeError, RecursionError):
        return None
    return _number(line) if line.case and any(attempt.latency_seconds for attempt in line.attempts) else None


def _number(line: _UsageLine) -> int:
    """A number for an answer: another one for each that was given, the same for one that came from a cache."""
    # By latencies: two calls hardly ever take the very same time, and a cached answer keeps that of its own call.
    told = f"{line.case}\0{line.repeat}\0{[attempt.latency_seconds for attempt in line.attempts]}"
    return int.from_bytes(blake2b(told.encode(errors="surrogatepass"), digest_size=6).digest())


def _quantiles(seconds: array[float]) -> dict[str, float]:
    """Each is the smallest time that 50, 95 or 99 of 100 did not exceed."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {f"p{share}": ordered[-(-share * len(ordered) // 100) - 1] for share in (50, 95, 99)}


# Whether a file that is given as a run's cases can be one: anybody may have written it, as in a pull request.

_MOST_ANSWERS = 100_000_000
"""To one case: more than anybody has, and as many as can be drawn from."""
_ROUNDED = 1e-9
"""By what share of their size sums differ that were added in another order, or written down."""
_LINES = re.compile(r"[0-9]{1,18}-[0-9a-f]{32}\Z")
_CALLED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(\[[A-Za-z0-9._:+=,-]{1,400}\])?\Z")


def fault_of(run: RunCases) -> str:
    """Why ``run`` cannot be one, with the place; empty for one that can."""
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
    """Whether the sums by case are those of the answers that the sketch counts, as far as it can be told."""
    columns = (took.count, took.missing, took.total, took.squares, took.logs, took.log_squares)
    if any(len(each) != len(took.ids) for each in columns) or len(set(took.ids)) < len(took.ids):
        return False
    sketch = took.sketch
    counted = sketch.zeros + sum(sketch.buckets.values())
    whole = min([0, *took.count, *took.missing]) == 0 and sum(took.count) == sketch.count == counted
    sums = [*took.total, *took.squares, *took.logs, *took.log_squares, sketch.most, sketch.least or 0.0]
    return whole and all(map(math.isfinite, sums)) and min([0.0, *took.total, *took.squares]) == 0.0


def _of_measure(measure: Measure, cases: CaseSummary) -> Iterator[str]:
    place, column = f"cases.columns.{measure.name}", cases.columns.get(measure.name)
    if column is None or not all(len(each) == len(cases.ids) for each in (column.count, column.total, column.squares)):
        yield f"{place}: not a number for each case"
    elif not measure.low < measure.high:
        yield f"{place}: its scale has no width"
    elif not all(_possible(measure, column, at) for at in range(len(cases.ids))):
        yield f"{place}: no answers add up to these numbers"


def _possible(measure: Measure, column: CaseColumn, at: int) -> bool:
    count, total, squares = column.count[at], column.total[at], column.squares[at]
    if not 0 <= count <= _MOST_ANSWERS or squares < 0 or (not count and (total or squares)):
        return False
    if measure.kind == "pass":
        return 0 <= total <= count and total == int(total)
    # On its scale: a mean beyond it passes any bound, and has no interval.
    rounding = _ROUNDED * max(abs(measure.low), abs(measure.high)) * count
    if not count * measure.low - rounding <= total <= count * measure.high + rounding:
        return False
    # Squared, as variances are taken of it.
    return math.isfinite(total * total) and math.isfinite(squares)


# Which paths lead into an evaluator's results, as far as it is known before a run of it is paid for.

_NAMED = 20
_INPUT = "input}"  # whose names are known: no key is called so


def why_no_number(
    path: str, evaluator: Evaluator[Any, Any], params: Params, inputs: Sequence[str], *, live: bool
) -> str:
    """Why no run of ``evaluator`` over ``inputs`` (their names) has a number at ``path``; empty where one may have.

    Known are its measures, what its views declare, and the keys that its results have without any record. Below a
    mapping that is empty then, and below null, anything may come.
    """
    measures = [measure.name for measure in evaluator.measures.measures] if evaluator.measures else []
    results = None if path in measures else _without_records(evaluator, params, inputs)
    if results is None:
        return ""
    parts = path.split(".")
    if parts[0] == "usage" and not live:
        return "usage is what live calls took, and this run makes none"
    place: Json = {**results, "usage": msgspec.to_builtins(RunUsage())}
    for number, part in enumerate(parts):
        if place is None or place == {} or (isinstance(place, Mapping) and ".".join(parts[number:]) in place):
            return ""
        if not isinstance(place, Mapping) or part not in place:
            if _declared(parts[: number + 1], evaluator.views):
                return ""
            known = sorted(place)[:_NAMED] if isinstance(place, Mapping) else []
            known += [f"{name} (by case)" for name in measures if not number and name not in known]
            return f"the results have no {part!r} there; there are: {', '.join(known) or 'nothing'}"
        place = place[part]
    return ""


def _without_records(evaluator: Evaluator[Any, Any], params: Params, inputs: Sequence[str]) -> dict[str, Json] | None:
    """The results of inputs without any record; None where an evaluator has none to tell."""
    nothing = [InputResult(name, name, evaluator.State.zero(), Tally()) for name in inputs]
    try:
        found: dict[str, Json] = as_written(evaluator.section(nothing, params))
    except Exception:  # a run without records never comes so far, so nothing promises that it can be told
        return None
    return found


def _declared(parts: Sequence[str], views: Views) -> bool:
    """Whether a declared path ends or goes on here: with some records it is there, and with others it is not."""
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
