"""The properties that every evaluator must have."""

from __future__ import annotations

import contextlib
import datetime
import gc
import itertools
import json
import math
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from random import Random
from types import CodeType, FrameType, FunctionType
from typing import Any

import msgspec

from evalq.evalcore.compare.counting import why_no_number
from evalq.evalcore.conformance.subject import SampleInput, Subject, garbled, random_cuts
from evalq.evalcore.contract.evaluator import Batch, Outcome, State, dead_outcome
from evalq.evalcore.contract.measures import Measures, Observation
from evalq.evalcore.contract.partial import Partial, encode
from evalq.evalcore.contract.plugins import error_with_line
from evalq.evalcore.model.canonical import Json, as_written
from evalq.evalcore.views.charts import chart_faults, derived_charts, derived_summary, generic_rows, row_faults
from evalq.evalcore.views.metrics import panel_faults

# The properties of the numbers that comparisons and policies use.


def _measures(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """Every record line gives values for at most one case: for each measure a number on its scale, or none."""
    report, lines = subject.report_and_lines(example)
    declared = subject.evaluator.measures
    if declared is None:
        return
    seen: set[str] = set()
    for line in lines:
        try:
            observation = declared.observe(msgspec.json.decode(line))
        except Exception as error:  # any exception at all would end a comparison
            yield f"{error_with_line(error)} from the record line {line[:200]!r}"
            continue
        if observation is not None:
            seen.add(observation.case)
            yield from (f"{fault} of the record line {line[:200]!r}" for fault in _faults(declared, observation))
    if declared.named is not None:
        listed = set(declared.named(example.whole(), subject.params))
        yield from (f"the case {case!r} is listed, and no record line is about it" for case in sorted(listed - seen))
        yield from (f"the case {case!r} is not listed" for case in sorted(seen - listed - {""}))
    if "records" in report:
        collapsed: list[Any] = list(declared.collapsed(report))
        wrong = [case for case in collapsed if not isinstance(case, str)]
        if wrong:
            yield f"{wrong[:3]!r} is given as a collapsed case, but a case's id is a string"
        for case, p in (declared.collapse_p(report) or {}).items():
            if not 0 <= p <= 1:
                yield f"{case!r} is collapsed by a p-value of {p!r}, which is no probability"
        if both := sorted(set(collapsed) & set(declared.diverse(report))):
            yield f"{both[:3]!r} are given both as collapsed and as diverse"


def _paths(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """A policy may name every number of the results: keys from the data are declared, or empty before the run."""
    report, _ = subject.report_and_lines(example)
    declared = subject.evaluator.measures
    known = {each.name for each in declared.measures} if declared is not None else set()
    for path in _numbers(report.get("results")):
        numbers = declared.numbers if declared is not None and path not in known else ()
        if numbers and not any(number.matches(path) for number in numbers):
            yield f"{path} is not declared in `Measures.numbers`: is more of it better, worse or neither?"
        reason = why_no_number(path, subject.evaluator, subject.params, [example.name], live=False)
        if reason:
            yield f"a policy about {path} is refused before the run: {reason}"


def _numbers(results: Any, path: str = "") -> Iterator[str]:
    """The paths to numbers, as a policy writes them; it can name none below a key with dots."""
    for key, value in results.items() if isinstance(results, Mapping) else ():
        here = f"{path}.{key}" if path else str(key)
        if isinstance(value, int | float):
            yield here
        elif "." not in str(key):
            yield from _numbers(value, here)


def _faults(declared: Measures, observation: Observation) -> Iterator[str]:
    if not isinstance(observation.case, str):
        yield f"the case {observation.case!r} is no string"
    if observation.values and len(observation.values) != len(declared.measures):
        yield f"{len(observation.values)} values for {len(declared.measures)} measures"
    for measure, value in zip(declared.measures, observation.values, strict=False):
        if value is not None and not _fits(value, measure.low, measure.high, measure.kind == "pass"):
            yield f"{measure.name} {value!r} is not on its scale"


def _fits(value: Any, low: float, high: float, pass_or_fail: bool) -> bool:
    number = isinstance(value, int | float) and low <= value <= high
    return bool(number and (not pass_or_fail or value in (0, 1)))


# The property of report.html.


def _page(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """A report has a headline and charts that fit its values; a failed record line has a row that says why."""
    report, lines = subject.report_and_lines(example)
    views = subject.evaluator.views
    if "results" not in report:
        return  # the run ended with an input error
    try:
        if views.summary is None:
            summary = derived_summary(report, views.metrics, views.panels)
        else:
            summary = views.summary(report)
        if not summary.headline:
            yield "its page has no headline"
        yield from chart_faults(views.charts or derived_charts(views.metrics, views.panels), report)
        if views.rows is not generic_rows:
            yield from row_faults(views.rows, report, lines)
    except Exception as error:  # any exception at all would end a run at its very end
        yield f"{error_with_line(error)} for a page"


# Watching for calls that a pure function must not make.

_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "sleep")
_BUILTINS: dict[Callable[..., Any], str] = {
    datetime.datetime.now: "datetime.now",
    datetime.datetime.utcnow: "datetime.utcnow",
    datetime.datetime.today: "datetime.today",
    datetime.date.today: "date.today",
    os.urandom: "os.urandom",
    random.random: "the shared random source",
    random.getrandbits: "the shared random source",
}
_ENVIRONMENT: dict[CodeType, str] = {
    method.__code__: "os.environ" for method in vars(type(os.environ)).values() if isinstance(method, FunctionType)
}


def _clock(function: Any) -> str | None:
    """The name of a function of `time`, which this library never imports, if it waits or reads a clock."""
    known = getattr(function, "__module__", None) == "time" and function.__name__ in _CLOCKS
    return f"time.{function.__name__}" if known else None


@contextlib.contextmanager
def watched() -> Iterator[set[str]]:
    """Gather the names of clocks, shared random sources and environment look-ups called inside the block.

    It sees calls under any imported name. It does not see calls on other threads or in compiled extensions (numpy's
    generators, an unseeded ``random.Random()``), values that were read when a module was imported, and files. Of these,
    `_determinism` finds those that change the answer from call to call.
    """
    seen: set[str] = set()

    def record_call(frame: FrameType, event: str, arg: Any) -> None:
        name = None
        if event == "c_call":
            name = _BUILTINS.get(arg) or _clock(arg)
        elif event == "call":
            name = _ENVIRONMENT.get(frame.f_code)
        if name is not None:
            seen.add(name)

    before, collecting = sys.getprofile(), gc.isenabled()
    gc.disable()  # finalizers of other code may call clocks
    sys.setprofile(record_call)
    try:
        yield seen
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()


# The property of record lines: one for each record, in the order of the input.


def _lines(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """One record line for each counted record: an object with the required keys, on a line of its chunk."""
    for batch in [example.whole(), *example.batches(random_cuts(rng, len(example.records)))]:
        yield from _line_faults(batch, subject.evaluate(batch))
    report, every = subject.report_and_lines(example)
    counted = report.get("records", {}).get("total", len(every))
    if counted != len(every):
        yield f"the report counts {counted} records, and there are {len(every)} record lines"


def _line_faults(batch: Batch, outcome: Outcome[Any]) -> Iterator[str]:
    # A fatal fault ends the run without a report: its record needs no line.
    if outcome.tally.total != len(outcome.lines) and not outcome.tally.fatal.total:
        yield f"a chunk counts {outcome.tally.total} records and has {len(outcome.lines)} record lines"
    last_line = batch.first_line + batch.data.count(b"\n")
    before = 0
    for line in outcome.lines:
        try:
            at = _line_number(batch.source, line)
        except (msgspec.DecodeError, ValueError) as error:
            yield f"{error}: {line[:60]!r}"
            continue
        if not batch.first_line <= at <= last_line:
            yield f"a record names line {at}, outside its chunk"
        if at < before:
            yield f"the record of line {at} comes after that of line {before}"
        before = at


def _line_number(source: str, line: bytes) -> int:
    """The input line that a record line names. Raises ValueError or msgspec.DecodeError if it breaks the contract."""
    record = msgspec.json.decode(line, type=dict[str, Any])
    missing = [key for key in ("record", "id", "status") if key not in record]
    if missing:
        raise ValueError(f"a record line lacks {', '.join(missing)}")
    if b"\n" in line:
        raise ValueError("a record line holds a newline")
    name, _, number = str(record["record"]).rpartition(":")
    if name != source or not number.isdecimal():
        raise ValueError(f"'record' is not '{source}:<line>'")
    return int(number)


Property = Callable[[Subject, SampleInput, Random, int], Iterator[str]]
"""(subject, example, random source, rounds) -> violations, in words; none if the property holds."""


def _parts(subject: Subject, example: SampleInput, cuts: list[int]) -> list[Partial]:
    return [subject.compute(batch) for batch in example.batches(cuts)]


def _chunking(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """Any cut of the records gives the same merged state, counts, record lines and report, byte for byte."""
    whole = subject.answer([example], [[subject.whole(example)]])
    for _ in range(rounds):
        cuts = random_cuts(rng, len(example.records))
        for difference in whole.differences(subject.answer([example], [_parts(subject, example, cuts)])):
            yield f"cut at records {_shown(cuts)}: {difference}"


def _empty(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """Chunks without records change nothing, in any position."""
    for _ in range(rounds):
        cuts = random_cuts(rng, len(example.records))
        plain = subject.answer([example], [_parts(subject, example, cuts)])
        more = sorted([*cuts, cuts[0], cuts[-1], *rng.choices(cuts, k=3)])
        for difference in plain.differences(subject.answer([example], [_parts(subject, example, more)])):
            yield f"with empty chunks at records {_shown(more)}: {difference}"


def _associativity(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """Neighbours may be merged in any order: the final state has the same bytes."""
    for _ in range(rounds):
        cuts = random_cuts(rng, len(example.records))
        parts = _parts(subject, example, cuts)
        states: list[State] = [subject.outcome(part).state for part in parts]
        left = subject.outcome(parts[0]).state
        for part in parts[1:]:
            left.merge(subject.outcome(part).state)
        while len(states) > 1:
            at = rng.randrange(len(states) - 1)
            states[at].merge(states.pop(at + 1))
        if states[0].to_wire() != left.to_wire():
            yield f"cut at records {_shown(cuts)}, another order of merges gives another state"


def _neutral(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """zero() changes nothing on either side of a merge, and gives a new state each time."""
    state_type = subject.evaluator.State
    nothing = state_type.zero().to_wire()
    for part in [subject.whole(example), *_parts(subject, example, random_cuts(rng, len(example.records)))]:
        wire = subject.outcome(part).state.to_wire()
        before, after = state_type.zero(), subject.outcome(part).state
        before.merge(subject.outcome(part).state)
        after.merge(state_type.zero())
        if before.to_wire() != wire:
            yield "zero().merge(state) is not the state"
        if after.to_wire() != wire:
            yield "state.merge(zero()) is not the state"
        if state_type.zero().to_wire() != nothing:
            yield "zero() is no longer empty after another zero() was merged into"


def _wire(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """A state survives its wire form; other bytes are refused with msgspec.DecodeError."""
    state_type = subject.evaluator.State
    batches = [example.whole(), *example.batches(random_cuts(rng, len(example.records)))]
    for state in [state_type.zero(), *(subject.evaluate(batch).state for batch in batches)]:
        data = state.to_wire()
        json.loads(data)
        if b"\n" in data:
            yield "the wire holds a newline"
        if state.to_wire() != data:
            yield "to_wire() twice gives different bytes"
        if state_type.from_wire(data).to_wire() != data:
            yield f"from_wire(to_wire()) has other bytes than {data[:60]!r}"
        if msgspec.structs.asdict(state_type.from_wire(data)) != msgspec.structs.asdict(state):
            yield f"from_wire(to_wire()) is not equal to the state of {data[:60]!r}"
        yield from _refused(state_type, [b"", b"7", b'"x"', data[: rng.randrange(len(data))]])


def _refused(state_type: type[State], junk: list[bytes]) -> Iterator[str]:
    for data in junk:
        try:
            state_type.from_wire(data)
        except msgspec.DecodeError:
            continue
        yield f"from_wire({data[:60]!r}) gives a state"


def _determinism(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """The same chunk gives the same bytes at any time and in any order of chunks."""
    for _ in range(rounds):
        batches = example.batches(random_cuts(rng, len(example.records)))
        first = [subject.compute(batch) for batch in batches]
        again: dict[int, Outcome[Any]] = {}
        for at in rng.sample(range(len(batches)), len(batches)):
            again[at] = subject.evaluate(batches[at])
        changed = [at for at, part in enumerate(first) if encode(again[at]).digest != part.digest]
        if changed:
            yield f"chunks {_shown(changed)} have another answer the second time, in another order"


def _results(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """The report is plain JSON: no NaN, no infinity, nothing that JSON would change.

    Tried with one input, with two, and with one beside an input without records.
    """
    part, twin = subject.whole(example), msgspec.structs.replace(example, name=f"{example.name}#2")
    second = subject.compute(twin.whole())
    yield from _no_plain_json(subject.report_and_lines(example)[0])
    for parts in ([[part], [second]], [[part], []]):
        yield from _no_plain_json(subject.finish([example, twin], parts)[0])


def _no_plain_json(report: dict[str, Json]) -> Iterator[str]:
    try:
        back = as_written(report)
    except (TypeError, ValueError) as error:
        yield f"the report is not plain JSON: {error}"
        return
    for key in report:
        if back.get(key) != report[key]:
            yield f"{key!r} of the report does not survive JSON: tuples, or keys that are no strings?"


def _markdown(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """The report, as read from report.json, gives a Markdown text, the same twice."""
    report, _ = subject.report_and_lines(example)
    if "schema" not in report or any(_no_plain_json(report)):
        return  # the data ends the run with an error, or `_results` reports the fault
    first, second = (subject.evaluator.views.markdown(as_written(report), {}) for _ in range(2))
    if not first.strip():
        yield "markdown() is empty"
    if first != second:
        yield "markdown() of one report gives two texts"


def _declarations(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """Metrics and panels fit together, and the report gives each metric one finite number for each set of labels."""
    evaluator = subject.evaluator
    yield from panel_faults(evaluator.name, evaluator.views.metrics, evaluator.views.panels)
    report, _ = subject.report_and_lines(example)
    if "schema" not in report or any(_no_plain_json(report)):
        return  # the data ends the run with an error, or `_results` reports the fault
    for metric in evaluator.views.metrics:
        samples = metric.samples(as_written(report))
        if not all(math.isfinite(sample.value) for sample in samples):
            yield f"{metric.name} has a value that is not finite"
        if len({sample.labels for sample in samples}) < len(samples):
            yield f"{metric.name} has two values for the same labels"


def _dead(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """The report names a record that killed its process; if it counts as dead, the results are those without it."""
    for _ in range(rounds):
        at = rng.randrange(len(example.records)) if example.records else 0
        before, victim, after = example.batches([0, at, at + 1, len(example.records)])
        outcome = dead_outcome(subject.evaluator, victim, subject.params, "made up")
        rest = [subject.compute(before), subject.compute(after)]
        # Left out of the input's bytes, too, which `settle` may read again.
        without, _ = subject.finish([example.without(at)], [rest])
        report, _ = subject.finish([example], [[rest[0], encode(outcome), rest[1]]])
        if "records" not in without or "records" not in report:
            continue  # the data ends the run with an error, or there is nothing else to evaluate
        if "dead: made up" not in (fault["reason"] for fault in report["faults"]):
            yield f"record {at} dead: no fault of the report names it"
        if report["records"]["dead"] and report["results"] != without["results"]:
            yield f"record {at} dead: the results differ from those without it"


def _purity(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """evaluate() calls no clock or shared random source and reads no environment (`watched` says what it misses)."""
    batch = example.whole()
    subject.evaluate(batch)  # imports and compilations of the first call may read anything
    with watched() as seen:
        subject.evaluate(batch)
    for name in sorted(seen):
        yield f"evaluate() calls {name}"


def _follows(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """An evaluator with ``--follow`` reads JSONL, and writes no record line before its input ends."""
    lines = subject.evaluate(example.whole()).lines
    if subject.evaluator.whole.follows and lines:
        yield "it follows, and evaluate() gives record lines"
    if subject.evaluator.whole.follows and subject.evaluator.records.format != "jsonl":
        yield f"it follows {subject.evaluator.records.format}, and only JSONL can be followed"


def _garbage(subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    """Broken records end as faults or errors, never as an exception, and keep the properties of the report."""
    for wild in itertools.islice(itertools.cycle((False, True)), rounds):
        broken = garbled(subject.evaluator, example, rng, wild)
        error = _raised(subject.report_and_lines, broken)
        if error is not None:
            yield f"{error_with_line(error)} from {_culprit(subject, broken)!r}"
            continue
        for test in (_lines, _measures, _page, _results, _markdown, _chunking):
            yield from (f"{_name(test)}: {detail}" for detail in test(subject, broken, rng, 1))


def _raised(run: Callable[..., object], *args: object) -> Exception | None:
    """The exception of ``run(*args)``, or None."""
    try:
        run(*args)
    except Exception as error:  # any exception is a violation
        return error
    return None


def _culprit(subject: Subject, example: SampleInput) -> bytes:
    """The beginning of the first record that raises alone, or of the input if none does."""

    def run(batch: Batch) -> None:
        subject.finish([example], [[subject.compute(batch)]])

    alone = example.batches(range(len(example.records) + 1))
    guilty = next((batch for batch in alone if _raised(run, batch)), example.whole())
    return guilty.data[:200]


def _shown(numbers: list[int]) -> str:
    head = ", ".join(map(str, itertools.islice(numbers, 12)))
    return f"[{head}{', ...' if len(numbers) > 12 else ''}]"


def _name(test: Property) -> str:
    """A property's name: its function's, without the underscore."""
    return test.__name__.removeprefix("_")


PROPERTIES: dict[str, Property] = {
    _name(test): test
    for test in (
        _chunking,
        _empty,
        _associativity,
        _neutral,
        _wire,
        _determinism,
        _results,
        _markdown,
        _declarations,
        _lines,
        _measures,
        _paths,
        _page,
        _dead,
        _purity,
        _follows,
        _garbage,
    )
}
