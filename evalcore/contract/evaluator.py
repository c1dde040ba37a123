"""The contract every evaluator keeps, and all that a new one has to write.

An evaluator is one object with a name. evalq reads its inputs, cuts them into chunks, and calls `evaluate` on each
chunk, anywhere and in any order; the states are merged in input order, and `section` turns them into the report.
Nothing here knows of queues or servers, and nothing may read a clock, a random source or the environment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic

from evalq.evalcore.contract.answers import InputResult, Outcome, P, Params, S, State
from evalq.evalcore.contract.capabilities import (
    Calls,
    Command,
    CommandLine,
    Export,
    Further,
    Gathering,
    Option,
    Question,
    Records,
    Request,
    Sample,
    Stage,
    Stopping,
    Views,
    WholeInput,
)
from evalq.evalcore.contract.measures import Measure, Measures, Sighting
from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.model.state import Faults, Tally
from evalq.evalcore.records.batch import Batch

__all__ = [
    "Batch",
    "Calls",
    "Command",
    "CommandLine",
    "Evaluator",
    "Export",
    "Further",
    "Gathering",
    "InputResult",
    "Measure",
    "Measures",
    "Option",
    "Outcome",
    "Params",
    "Question",
    "Records",
    "Request",
    "Sample",
    "Sighting",
    "Stage",
    "State",
    "Stopping",
    "Tally",
    "Views",
    "WholeInput",
    "asks_recorded",
    "dead_outcome",
    "live_calls",
    "without_result",
]


class Evaluator(ABC, Generic[P, S]):
    """One evaluation; subclass it, and register an instance under the entry-point group ``evalq.evaluators``.

        class Lengths(Evaluator[LengthParams, LengthState]):
            name, version, summary = "lengths", "1", "Measure how long answers are."
            Params, State = LengthParams, LengthState

            def evaluate(self, batch, params): ...      # a chunk: Outcome(state, tally, record lines)
            def section(self, results, params): ...     # all chunks merged: {"mean": 12.5}

        evaluator = Lengths()

    A small one has the first eight members. The others are capabilities (`evalq.evalcore.contract.capabilities`).
    docs/how-to/add-an-evaluator.md builds one, and `evalq.check_evaluator` holds it to this contract.
    """

    name: ClassVar[str]
    """Its command, its key in metrics and gates: lower-case letters, digits and dashes."""
    version: ClassVar[str]
    """Raised whenever any number of its report can change for the same input."""
    summary: ClassVar[str]
    """One sentence for ``--help``."""
    records: ClassVar[Records] = Records()
    """How its inputs are cut: by the lines of JSONL, unless it says otherwise."""
    Params: type[P]
    """The class of its parameters: all that its answer depends on besides the records."""
    State: type[S]
    """The class of what a chunk adds up to."""

    @abstractmethod
    def evaluate(self, batch: Batch, params: P) -> Outcome[S]:
        """Evaluate one chunk: pure, and the same for a record whatever chunk it comes in.

        ``batch`` holds whole records of one input, ``params`` have been validated. Each record is counted once in the
        outcome's tally: scored, unscored, or an error. Bad records are faults in the tally, by line; an exception is
        taken for a bug, has the chunk tried again elsewhere, and ends the run where it is raised everywhere.
        """

    @abstractmethod
    def section(self, results: Sequence[InputResult[S]], params: P) -> dict[str, Json]:
        """``results`` of report.json: unrounded numbers, plain JSON, in the keys that the specification names.

        ``results`` has an entry for each input, in input order. NaN and infinities are no JSON: what cannot be computed
        is None.
        """

    command: ClassVar[CommandLine] = CommandLine()
    """Options and commands of its own."""
    views: ClassVar[Views] = Views()
    """Metrics, panels and texts, where the generic ones won't do."""
    measures: ClassVar[Measures | None] = None
    """By which of its numbers two runs are compared, and gated."""
    sample: ClassVar[Sample | None] = None
    """Made-up input for it."""
    gathering: ClassVar[Gathering] = Gathering()
    """How a folder of files that hold one record each becomes one input."""
    calls: ClassVar[Calls | None] = None
    """How a live target is asked."""
    whole: WholeInput[P, S] = WholeInput()
    """What is known only of a whole input."""


def dead_outcome(evaluator: Evaluator[P, S], record: Batch, params: P, reason: str) -> Outcome[S]:
    """What stands for a record that killed its process: no result, and a fault that says why."""
    if evaluator.whole.dead is not None:
        return evaluator.whole.dead(record, params, reason)
    return without_result(evaluator.State.zero(), record, reason)


def without_result(state: S, record: Batch, reason: str) -> Outcome[S]:
    """The answer of a record that killed its process, with a state of its own."""
    line = {"record": record.where(record.first_line), "id": "", "status": "dead", "reason": reason}
    faults = Faults(1, [(record.first_line, f"dead: {reason}")])
    return Outcome(state, Tally(dead=1, listed=faults), [canonical_json(line)])


def asks_recorded(evaluator: Evaluator[Any, Any], request: Request) -> bool:
    """Whether ``request`` asks targets about recorded outputs: then evaluating these is not enough."""
    further = evaluator.calls.further if evaluator.calls is not None else None
    return further is not None and bool(further.recorded(request))


def live_calls(evaluator: Evaluator[Any, Any]) -> Calls:
    """How a target is asked. Raises UsageError for an evaluator that asks nobody."""
    if evaluator.calls is None:
        raise UsageError(f"{evaluator.name} asks no target")
    return evaluator.calls
