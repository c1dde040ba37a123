"""The properties, one function each: what it yields are the ways in which the subject breaks it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec

from evalq.evalcore.conformance.garbage import garbled
from evalq.evalcore.conformance.measures import measures, paths
from evalq.evalcore.conformance.page import page
from evalq.evalcore.conformance.purity import watched
from evalq.evalcore.conformance.record_lines import lines
from evalq.evalcore.conformance.subject import Example, Subject, random_cuts
from evalq.evalcore.contract.evaluator import Batch, Outcome, State, dead_outcome
from evalq.evalcore.contract.partial import Partial, encode
from evalq.evalcore.contract.plug_in import located
from evalq.evalcore.model.canonical import Json, as_written
from evalq.evalcore.views.panels import panel_faults

__all__ = ["PROPERTIES", "Property"]

Property = Callable[[Subject, Example, Random, int], Iterator[str]]
"""(subject, example, random source, rounds) -> what is broken, in words; nothing when it holds."""


def _parts(subject: Subject, example: Example, cuts: list[int]) -> list[Partial]:
    return [subject.compute(batch) for batch in example.batches(cuts)]


def chunking(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """Wherever the records are cut: the same merged state, counts, record lines and report, byte for byte."""
    whole = subject.answer([example], [[subject.whole(example)]])
    for _ in range(rounds):
        cuts = random_cuts(rng, len(example.records))
        for difference in whole.differences(subject.answer([example], [_parts(subject, example, cuts)])):
            yield f"cut at records {_shown(cuts)}: {difference}"


def empty(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """Chunks without records change nothing, wherever they stand."""
    for _ in range(rounds):
        cuts = random_cuts(rng, len(example.records))
        plain = subject.answer([example], [_parts(subject, example, cuts)])
        more = sorted([*cuts, cuts[0], cuts[-1], *rng.choices(cuts, k=3)])
        for difference in plain.differences(subject.answer([example], [_parts(subject, example, more)])):
            yield f"with empty chunks at records {_shown(more)}: {difference}"


def associativity(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """However neighbours are paired off for merging, the state has the same bytes in the end."""
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
            yield f"cut at records {_shown(cuts)}, another bracketing gives another state"


def neutral(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """zero() changes nothing on either side, and is a state of its own each time."""
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


def wire(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """A state comes back from its wire as it was; what is no state is refused with msgspec.DecodeError."""
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
            yield f"from_wire(to_wire()) has another wire than {data[:60]!r}"
        if msgspec.structs.asdict(state_type.from_wire(data)) != msgspec.structs.asdict(state):
            yield f"from_wire(to_wire()) is not equal to the state of {data[:60]!r}"
        yield from _refused(state_type, [b"", b"7", b'"x"', data[: rng.randrange(len(data))]])


def _refused(state_type: type[State], junk: list[bytes]) -> Iterator[str]:
    for data in junk:
        try:
            state_type.from_wire(data)
        except msgspec.DecodeError:
            continue
        yield f"from_wire({data[:60]!r}) is taken for a state"


def determinism(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """The same chunk gives the same bytes whenever, after whatever, and in whatever order chunks are evaluated."""
    for _ in range(rounds):
        batches = example.batches(random_cuts(rng, len(example.records)))
        first = [subject.compute(batch) for batch in batches]
        kept: dict[int, Outcome[Any]] = {}
        for at in rng.sample(range(len(batches)), len(batches)):
            kept[at] = subject.evaluate(batches[at])
        changed = [at for at, part in enumerate(first) if encode(kept[at]).digest != part.digest]
        if changed:
            yield f"chunks {_shown(changed)} have another answer when evaluated a second time, in another order"


def results(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """The report is plain JSON: no NaN, no infinity, nothing that JSON would turn into something else.

    Of one input, of two, and of one beside an input without records.
    """
    part, twin = subject.whole(example), msgspec.structs.replace(example, name=f"{example.name}#2")
    second = subject.compute(twin.whole())
    yield from _no_plain_json(subject.told(example)[0])
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


def markdown(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """The report, as it stands in report.json, can be told as Markdown, twice the same."""
    report, _ = subject.told(example)
    if "schema" not in report or any(_no_plain_json(report)):
        return  # the data ends the run with an error, or the report is what is wrong
    first, second = (subject.evaluator.views.markdown(as_written(report), {}) for _ in range(2))
    if not first.strip():
        yield "markdown() is empty"
    if first != second:
        yield "markdown() of one report gives two texts"


def declarations(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """Metrics and panels fit together, and the report gives each metric finite numbers, one a set of labels."""
    evaluator = subject.evaluator
    yield from panel_faults(evaluator.name, evaluator.views.metrics, evaluator.views.panels)
    report, _ = subject.told(example)
    if "schema" not in report or any(_no_plain_json(report)):
        return  # the data ends the run with an error, or the report is what is wrong
    for metric in evaluator.views.metrics:
        found = metric.samples(as_written(report))
        if not all(math.isfinite(sample.value) for sample in found):
            yield f"{metric.name} has a value that is not finite"
        if len({sample.labels for sample in found}) < len(found):
            yield f"{metric.name} has two values for the same labels"


def dead(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """A record that killed its process is told of; where it is counted as dead, the results are those without it."""
    for _ in range(rounds):
        at = rng.randrange(len(example.records)) if example.records else 0
        before, victim, after = example.batches([0, at, at + 1, len(example.records)])
        outcome = dead_outcome(subject.evaluator, victim, subject.params, "made up")
        rest = [subject.compute(before), subject.compute(after)]
        # Also of the bytes that `settle` may read again.
        without, _ = subject.finish([example.without(at)], [rest])
        report, _ = subject.finish([example], [[rest[0], encode(outcome), rest[1]]])
        if "records" not in without or "records" not in report:
            continue  # the data ends the run with an error, or there is nothing else to evaluate
        if "dead: made up" not in (fault["reason"] for fault in report["faults"]):
            yield f"record {at} dead: no fault of the report tells of it"
        if report["records"]["dead"] and report["results"] != without["results"]:
            yield f"record {at} dead: the results differ from those without it"


def purity(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """evaluate() calls no clock, no shared random source and reads no environment (see `watched` for what escapes)."""
    batch = example.whole()
    subject.evaluate(batch)  # what is imported or compiled on the first call may look at anything
    with watched() as seen:
        subject.evaluate(batch)
    for name in sorted(seen):
        yield f"evaluate() calls {name}"


def follows(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """An evaluator whose inputs can be followed reads JSONL, and writes no record line before its input ends."""
    given = subject.evaluate(example.whole()).lines
    if subject.evaluator.whole.follows and given:
        yield "it follows, and evaluate() gives record lines"
    if subject.evaluator.whole.follows and subject.evaluator.records.format != "jsonl":
        yield f"it follows {subject.evaluator.records.format}, where only lines can be followed"


def garbage(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """Broken records end as faults or errors, never as an exception, and keep the properties of the report."""
    for wild in itertools.islice(itertools.cycle((False, True)), rounds):
        broken = garbled(subject.evaluator, example, rng, wild)
        error = _raised(subject.told, broken)
        if error is not None:
            yield f"{located(error)} from {_culprit(subject, broken)!r}"
            continue
        for held in (lines, measures, page, results, markdown, chunking):
            yield from (f"{held.__name__}: {detail}" for detail in held(subject, broken, rng, 1))


def _raised(run: Callable[..., object], *given: object) -> Exception | None:
    """What a run over what is ``given`` raises, if anything."""
    try:
        run(*given)
    except Exception as error:  # any exception at all is what is looked for
        return error
    return None


def _culprit(subject: Subject, example: Example) -> bytes:
    """The beginning of the first record that raises alone, or of them all where none does."""

    def run(batch: Batch) -> None:
        subject.finish([example], [[subject.compute(batch)]])

    alone = example.batches(range(len(example.records) + 1))
    guilty = next((batch for batch in alone if _raised(run, batch)), example.whole())
    return guilty.data[:200]


def _shown(numbers: list[int]) -> str:
    head = ", ".join(map(str, itertools.islice(numbers, 12)))
    return f"[{head}{', ...' if len(numbers) > 12 else ''}]"


PROPERTIES: dict[str, Property] = {
    held.__name__: held
    for held in (
        chunking,
        empty,
        associativity,
        neutral,
        wire,
        determinism,
        results,
        markdown,
        declarations,
        lines,
        measures,
        paths,
        page,
        dead,
        purity,
        follows,
        garbage,
    )
}
