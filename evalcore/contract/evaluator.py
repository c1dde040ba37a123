"""The contract every evaluator keeps, and all that a new one has to write.

An evaluator is one object with a name. evalq reads its inputs, cuts them into chunks, and calls `evaluate` on each
chunk, anywhere and in any order; the states are merged in input order, and `section` turns them into the report.
Nothing here knows of queues or servers, and nothing may read a clock, a random source or the environment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Generic, Literal, Protocol, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict

from evalq.evalcore.contract.measures import Measure, Measures, Observation
from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.calls import Output, Prompt
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.model.manifest import Format
from evalq.evalcore.model.state import Faults, Merging, Tally
from evalq.evalcore.records.batch import Batch
from evalq.evalcore.views.charts import Chart, Rows, Summary, generic_rows
from evalq.evalcore.views.markdown import generic
from evalq.evalcore.views.metrics import Metric, Panel

__all__ = [
    "Batch",
    "Calls",
    "Command",
    "CommandLine",
    "Evaluator",
    "Export",
    "Gathering",
    "InputResult",
    "JudgeStage",
    "Measure",
    "Measures",
    "Observation",
    "Option",
    "Outcome",
    "OutputQuestion",
    "Params",
    "Records",
    "Request",
    "Sample",
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

# What evaluating takes and gives: params, the state that chunks merge into, a chunk's outcome, an input's result.


class Params(BaseModel):
    """What changes an evaluator's answer: strict, frozen, unknown keys are errors that name the key.

    Only hashable field types (tuples, not lists; nested Params, not dicts), so that what an evaluator
    compiles from its params can be cached on them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


class State(Merging):
    """What a chunk adds up to. Its fields may be further `Merging` ones."""


P = TypeVar("P", bound=Params)
S = TypeVar("S", bound=State)


class Outcome(msgspec.Struct, Generic[S]):
    """What `evaluate` returns for a chunk: its state, one line of records.jsonl a record, and the counts.

    ``lines`` are JSON objects as bytes, without a newline, in input order, each with at least the keys
    ``record`` (what `Batch.where` says of its line), ``id`` and ``status``; an evaluator whose record is a whole
    input has none.
    """

    state: S
    tally: Tally
    lines: list[bytes] = []


class InputResult(msgspec.Struct, Generic[S]):
    """One input when all of it is merged: ``name`` (unique in the run), the path as ``given``, and its state."""

    name: str
    given: str
    state: S
    tally: Tally


# What an evaluator may have besides its required members: one value each, made of plain functions and data.
# An evaluator without a capability leaves the member alone and never meets what is in here. Where its absence
# changes what users are offered the member is None (`Calls`, `Sample`); otherwise it is a value that changes
# nothing.


class Option(msgspec.Struct, frozen=True):
    """A command-line option of an evaluator: ``flags`` such as ("--rules",) or ("--skip-bad-lines",).

    ``kind`` is str, int, float, bool (a switch) or path (an existing file). Where ``param`` names a key path in Params
    ("rules.speed"), a given value goes there; otherwise it is found in `Request.options` under its name.
    """

    flags: tuple[str, ...]
    help: str
    kind: Literal["str", "int", "float", "bool", "path"] = "str"
    param: str = ""
    choices: tuple[str, ...] = ()
    many: bool = False

    @property
    def name(self) -> str:
        """The option's key: its longest flag without dashes, with underscores."""
        return max(self.flags, key=len).lstrip("-").replace("-", "_")


class Request(msgspec.Struct):
    """What the user asked for: input paths, params as plain data (not yet validated), and the other options."""

    inputs: list[str]
    params: dict[str, Any]
    options: dict[str, Any]


class Export(msgspec.Struct, frozen=True):
    """A further file the user asked an evaluator for, outside the run folder."""

    path: Path
    text: str


class Command(msgspec.Struct, frozen=True):
    """A further command of an evaluator that needs no run: ``call`` gets the options and returns what to print."""

    name: str
    help: str
    options: tuple[Option, ...]
    call: Callable[[Mapping[str, Any]], str]


class Stopping(Protocol):
    """Says, output by output, when a case of a live sweep needs no more calls."""

    def add(self, line: bytes) -> str | None:
        """Take in a line of outputs.jsonl; the case that is decided by it and was not before, else None."""

    def decided(self, case: str) -> bool:
        """Whether the case is decided as things stand; calls that were in flight may have opened it again."""


class Records(msgspec.Struct, frozen=True):
    """How an input is cut into records: ``format`` "jsonl" by lines, "csv" by rows, with the ``columns`` it must have.

    ``unit`` is what the progress bar counts: the lines or rows of the input.
    """

    format: Format = "jsonl"
    columns: tuple[str, ...] = ()
    unit: str = "records"


class Gathering(msgspec.Struct, frozen=True):
    """A folder of files that hold one record each is one input.

    ``endings`` are those files' (say ".json"). ``line`` makes a file one line of the input, without a newline: it is
    called for every such file, in the order of their names, with its base name and its bytes (unpacked, without a byte
    order mark); its record and its faults are then called "<folder>/<name>". It must depend on these two alone and
    raise nothing: what is no record becomes a line that `evaluate` counts as an error.
    """

    endings: tuple[str, ...] = ()
    line: Callable[[str, bytes], bytes] | None = None


def _as_asked(asked: Request) -> Request:
    return asked


class CommandLine(msgspec.Struct, frozen=True):
    """What an evaluator's command adds to what all have: ``options``, and further ``commands`` without a run.

    ``positional`` is what the command's arguments are called, there and in a suite file. ``request`` completes what
    the user asked for, say from a configuration file that it names; it raises ConfigError or UsageError.
    """

    options: tuple[Option, ...] = ()
    commands: tuple[Command, ...] = ()
    positional: str = "inputs"
    request: Callable[[Request], Request] = _as_asked


def _no_rule(asked: Request) -> None:
    return None


class OutputQuestion(msgspec.Struct, frozen=True):
    """What ``target`` is asked, ``repeats`` times, about an output; ``prompt.case`` names it among all of a run.

    Two of one name are one question: it is asked once, and both are given the answers.
    """

    prompt: Prompt
    target: str
    repeats: int = 1


class Stage(Protocol):
    """Asks about outputs, line by line, and adds the answers to the lines.

    It must depend on the line alone, and on the outputs that it was shown.
    """

    def look(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """See all outputs, which ``lines`` gives, before anything is asked: a question may be about two of them."""

    def asks(self, repeats: int = 1) -> Mapping[tuple[str, int], int]:
        """{(target, votes): questions} about so many outputs of each case, which have all that can be asked about.

        Raises UsageError where it is not said who is asked.
        """

    def questions(self, line: bytes) -> Sequence[OutputQuestion]:
        """What is asked about the output in a line of outputs.jsonl; nothing where it has none."""

    def joined(self, line: bytes, answers: Callable[[OutputQuestion], Sequence[Output]]) -> bytes:
        """The line with what was recorded: ``answers`` gives, to each of its questions, those that there are."""

    def recorded(self, line: bytes) -> Sequence[Output]:
        """The answers in a line that `joined` made to what would be asked about it now, as they were recorded."""


class JudgeStage(msgspec.Struct, frozen=True):
    """Asking further targets about outputs, recorded or live, before they are evaluated.

    ``begin`` gives what asks, None where nothing does; it raises UsageError and ConfigError. ``recorded`` gives the
    files of outputs that a request without a target asks about; of one that only evaluates, none. The lines that
    `Stage.joined` made are in a file called ``file``, which is evaluated in place of outputs.jsonl.
    """

    begin: Callable[[Request], Stage | None]
    recorded: Callable[[Request], Sequence[str]]
    file: str


class Calls(msgspec.Struct, frozen=True):
    """Asking a target, live, before its answers are evaluated.

    ``option`` is the one by which the target is named, "target" or "judge". ``prompts`` gives what it is asked, each
    case once, and raises ConfigError, UsageError or InputError. ``answered`` is given the request, the recorded answers
    (JSONL of `evalq.evalcore.model.calls.Output.line`) and a folder for what it has to write, and returns the request
    that evaluates them; evaluating the same file later must give the same report.

    ``answers_suffice`` says that ``answered`` needs nothing but the answers: they are the only input of its request,
    whatever they say, and nothing is written. Workers can then evaluate a sweep that nobody attends. ``repeats`` says
    that a prompt may be asked many times; ``stopping`` then gives what tells when cases are decided, or None.
    ``judge_stage`` asks other targets about the outputs.
    """

    option: str
    prompts: Callable[[Request], Iterator[Prompt]]
    answered: Callable[[Request, Path, Path], Request]
    answers_suffice: bool = False
    repeats: bool = False
    stopping: Callable[[Request], Stopping | None] = _no_rule
    judge_stage: JudgeStage | None = None


def _as_merged(state: S, params: P, reopen: Callable[[], BinaryIO], scratch: Path) -> S:
    return state


def _no_lines(result: InputResult[S], params: P) -> list[bytes]:
    return []


class WholeInput(msgspec.Struct, Generic[P, S], frozen=True):
    """What is known only of a whole input, once all its chunks are merged. Both functions are called once per input.

    ``settle`` gives the final state where the merged one cannot answer (say, of a log out of order): ``reopen`` gives
    the input's bytes again, ``scratch`` is a folder for temporary files. ``finish_input`` comes after it: it gives
    lines of records.jsonl, usually none, and may add to ``result.tally``.

    Where the record is the input itself, ``dead`` says what stands for a line that killed its process (without it, a
    fault and a record without a result). ``follows`` says that its command has ``--follow``: its record is a whole
    JSONL input, so that `evaluate` gives no lines.
    """

    settle: Callable[[S, P, Callable[[], BinaryIO], Path], S] = _as_merged
    finish_input: Callable[[InputResult[S], P], list[bytes]] = _no_lines
    dead: Callable[[Batch, P, str], Outcome[S]] | None = None
    follows: bool = False


def _generic(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    return generic(report)


def _no_notices(report: Mapping[str, Json]) -> list[str]:
    return []


def _the_report(report: Mapping[str, Json], timestamp: str) -> Json:
    return dict(report)


def _no_exports(report: Mapping[str, Json], request: Request) -> list[Export]:
    return []


def _never(entry: Json) -> bool:
    return False


class Views(msgspec.Struct, frozen=True):
    """How its report is looked at, from report.json's content alone.

    ``metrics`` are what is watched over time: gauges that an exporter shows of each suite's newest run. ``panels`` are
    how those are drawn; dashboards are generated from them. ``markdown`` gives the report as a person reads it, given
    also the options it was asked for with; ``notices`` what somebody should know before that, a sentence or two each,
    on standard error. ``document`` is what results.yaml holds where a specification has its own form (the timestamp is
    ISO 8601), and ``exports`` gives further files that the user asked for.

    Of report.html, ``summary`` is what it begins with, ``charts`` what it draws, and ``rows`` how records become its
    table. Without them it has the metrics and what every record has.

    A policy may be about any number of the results, and one that no run has is refused before the run: ``at_times``
    are the paths that results have with some records only, where no metric shows them.

    Of a long report results.yaml has a part of each list alone, and ``document`` is given no more: ``failed`` says
    which entries of lists are of something that failed, and stand there first.
    """

    metrics: tuple[Metric, ...] = ()
    panels: tuple[Panel, ...] = ()
    markdown: Callable[[Mapping[str, Json], Mapping[str, Any]], str] = _generic
    notices: Callable[[Mapping[str, Json]], list[str]] = _no_notices
    document: Callable[[Mapping[str, Json], str], Json] = _the_report
    exports: Callable[[Mapping[str, Json], Request], list[Export]] = _no_exports
    summary: Callable[[Mapping[str, Json]], Summary] | None = None
    charts: tuple[Chart, ...] = ()
    rows: Rows = generic_rows
    at_times: tuple[str, ...] = ()
    failed: Callable[[Json], bool] = _never


class Sample(msgspec.Struct, frozen=True):
    """Made-up input, for the demo, the benchmarks and the conformance suite.

    ``write`` is called with a folder, about how many records to write into it, and a seed; it returns the request that
    evaluates them. The same arguments give the same bytes. ``records`` is how many the demo evaluates.
    """

    write: Callable[[Path, int, int], Request]
    records: int = 1_000


class Evaluator(ABC, Generic[P, S]):
    """One evaluation; subclass it, and register an instance under the entry-point group ``evalq.evaluators``.

        class Lengths(Evaluator[LengthParams, LengthState]):
            name, version, summary = "lengths", "1", "Measure how long answers are."
            Params, State = LengthParams, LengthState

            def evaluate(self, batch, params): ...      # a chunk: Outcome(state, tally, record lines)
            def section(self, results, params): ...     # all chunks merged: {"mean": 12.5}

        evaluator = Lengths()

    A small one has the first eight members. The others are capabilities (`evalq.evalcore.contract.evaluator`).
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
    judge_stage = evaluator.calls.judge_stage if evaluator.calls is not None else None
    return judge_stage is not None and bool(judge_stage.recorded(request))


def live_calls(evaluator: Evaluator[Any, Any]) -> Calls:
    """How a target is asked. Raises UsageError for an evaluator that asks nobody."""
    if evaluator.calls is None:
        raise UsageError(f"{evaluator.name} asks no target")
    return evaluator.calls
