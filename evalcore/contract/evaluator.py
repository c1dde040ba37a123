"""The contract of evaluators: their required members, and their capabilities.

An evaluator is one object with a name. evalq reads its inputs, cuts them into chunks, and calls `evaluate` on each
chunk, anywhere and in any order. evalq merges the states in input order, and `section` turns them into the report.
Nothing here knows of queues or servers. Nothing here may read a clock, a random source or the environment.
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
from evalq.evalcore.records.inputs import MAX_UNPACKED_BYTES, Source, discover, format_suffixes, spool
from evalq.evalcore.records.layouts import Kind, convert, recorded_sources
from evalq.evalcore.views.charts import Chart, Rows, Summary, generic_rows
from evalq.evalcore.views.markdown import generic
from evalq.evalcore.views.metrics import Metric, Panel

__all__ = [
    "Batch",
    "Beside",
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
    "Prepared",
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
    "begin_request",
    "dead_outcome",
    "inputs_of",
    "live_calls",
    "plain_input",
    "without_result",
]

# The inputs and results of evaluating: params, the state that chunks merge into, a chunk's outcome, an input's result.


class Params(BaseModel):
    """The settings that change an evaluator's answer: strict and frozen; errors name unknown keys.

    Use only hashable field types (tuples, not lists; nested Params, not dicts). An evaluator can then cache objects
    that it compiles from its params, with the params as the key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


class State(Merging):
    """The sum of a chunk's records. Its fields may be further `Merging` ones."""


P = TypeVar("P", bound=Params)
S = TypeVar("S", bound=State)


class Outcome(msgspec.Struct, Generic[S]):
    """The result of `evaluate` for a chunk: its state, a line of records.jsonl for each record, and the counts.

    ``lines`` are JSON objects as bytes, without a newline, in input order. Each has at least the keys ``record`` (the
    text of `Batch.where` for its line), ``id`` and ``status``. If a record is a whole input, there are none.
    """

    state: S
    tally: Tally
    lines: list[bytes] = []


class InputResult(msgspec.Struct, Generic[S]):
    """One input after all its chunks are merged: ``name`` (unique in the run), the path as ``given``, and its state."""

    name: str
    given: str
    state: S
    tally: Tally


# An evaluator may have further members besides the required ones: one value each, made of plain functions and data. An
# evaluator without a capability leaves the member alone and never meets it. If users see that a capability is absent,
# the member is None (`Calls`, `Sample`). Otherwise it is a value that changes nothing.


class Option(msgspec.Struct, frozen=True):
    """A command-line option of an evaluator: ``flags`` such as ("--rules",) or ("--skip-bad-lines",).

    ``kind`` is str, int, float, bool (a switch) or path (an existing file). If ``param`` names a key path in Params
    ("rules.speed"), evalq puts a given value there. Otherwise `Request.options` has it under its name.
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
    """The user's request: input paths, params as plain data (not yet validated), and the other options.

    ``questions`` are what cases of recorded outputs ask, a `Prompt` each, for pages alone; no file keeps them here.
    """

    inputs: list[str]
    params: dict[str, Any]
    options: dict[str, Any]
    questions: Any = ()


class Export(msgspec.Struct, frozen=True):
    """A further file that the user requested, outside the run folder."""

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
        """Take in a line of outputs.jsonl; return the case if this line newly decides it, else None."""

    def decided(self, case: str) -> bool:
        """Whether the case is decided now; answers to calls in flight may have made it undecided."""


class Records(msgspec.Struct, frozen=True):
    """How an input is cut into records: ``format`` "jsonl" by lines, "csv" by rows, with the ``columns`` it must have.

    ``unit`` is what the progress bar counts: the lines or rows of the input.
    """

    format: Format = "jsonl"
    columns: tuple[str, ...] = ()
    unit: str = "records"


class Gathering(msgspec.Struct, frozen=True):
    """Makes one input of a folder whose files hold one record each.

    ``endings`` are the endings of those files (say ".json"). ``line`` makes a file one line of the input, without a
    newline. evalq calls it for every such file, in the order of their names, with its base name and its bytes
    (unpacked, without a byte order mark). Its record and its faults are then called "<folder>/<name>". ``line`` must
    depend on these two alone and raise nothing. A file without a record must become a line that `evaluate` counts as an
    error.

    With ``fields``, the keys of a line and what they hold, a file may also be CSV, Parquet or a JSON list. The options
    of the request may then have a ``map`` from these keys to others (`evalq.evalcore.records.layouts`).
    """

    endings: tuple[str, ...] = ()
    line: Callable[[str, bytes], bytes] | None = None
    fields: Mapping[str, Kind] = {}


def _unchanged(request: Request) -> Request:
    return request


class Prepared(msgspec.Struct, frozen=True):
    """A request after `CommandLine.prepare`: ``messages`` say what was made, ``warnings`` what was left out."""

    request: Request
    messages: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def _as_it_is(request: Request, folder: Path) -> Prepared:
    return Prepared(request)


class Beside(Protocol):
    """Parameters of a request that are too long for a plan: a run has them in files of its folder."""

    def write(self, folder: Path) -> None:
        """Write the files into a new run folder. Raises OSError."""

    def join(self, source: Source, folder: Path) -> Source:
        """``source``, a plain file, with what each of its records needs: `Source.joined` is a file in ``folder``.

        Raises OSError.
        """


def _as_they_are(params: Any, folder: Path) -> Any:
    return params


class CommandLine(msgspec.Struct, frozen=True):
    """The additions of an evaluator's command to the common ones: ``options``, and further ``commands`` without a run.

    ``positional`` is the name of the command's arguments, there and in a suite file. ``request`` completes the user's
    request, say from a configuration file that the request names. It raises ConfigError or UsageError.

    ``prepare`` comes before ``request``, once for each run: it may turn files that the request names into others below
    a folder. The same files give the same name there.

    ``traces`` says that ``--follow`` evaluates traces window by window: it gives which traces of a request count, by
    their attributes.

    ``begin`` does the same for a run that has a folder: it also gives the parameters that are kept there, if there are
    any. ``attach`` then gives the parameters with that folder, to make the report, and ``shown`` the plain parameters
    as the report has them.
    """

    options: tuple[Option, ...] = ()
    commands: tuple[Command, ...] = ()
    positional: str = "inputs"
    request: Callable[[Request], Request] = _unchanged
    prepare: Callable[[Request, Path], Prepared] = _as_it_is
    traces: Callable[[Request], Callable[[Mapping[str, Any]], bool]] | None = None
    begin: Callable[[Request], tuple[Request, Beside | None]] | None = None
    attach: Callable[[Any, Path], Any] = _as_they_are
    shown: Callable[[dict[str, Any]], dict[str, Any]] = dict


def _no_stopping(request: Request) -> None:
    return None


class OutputQuestion(msgspec.Struct, frozen=True):
    """A question about an output, asked of ``target`` ``repeats`` times; ``prompt.case`` names it among all of a run.

    Two questions of one name are one question: evalq asks it once and gives both the answers.
    """

    prompt: Prompt
    target: str
    repeats: int = 1


class Stage(Protocol):
    """Asks about outputs, line by line, and adds the answers to the lines.

    It must depend only on the line and on the outputs that `prepare` read.
    """

    def prepare(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """Read all outputs before any question is asked: a question may be about two of them."""

    def count_questions(self, repeats: int = 1) -> Mapping[tuple[str, int], int]:
        """{(target, votes): questions} for ``repeats`` outputs of each case, if every possible question applies.

        Raises UsageError if no target is named.
        """

    def questions(self, line: bytes) -> Sequence[OutputQuestion]:
        """The questions about the output in a line of outputs.jsonl; none if there is nothing to ask."""

    def add_replies(self, line: bytes, answers: Callable[[OutputQuestion], Sequence[Output]]) -> bytes:
        """The line with the recorded answers: ``answers`` gives those that exist for each of its questions."""

    def recorded_replies(self, line: bytes) -> Sequence[Output]:
        """The recorded answers in a line from `add_replies`, to the questions that evalq would ask about it now."""


class JudgeStage(msgspec.Struct, frozen=True):
    """Asking further targets about outputs, recorded or live, before they are evaluated.

    ``begin`` gives the stage that asks, or None if nothing asks; it raises UsageError and ConfigError. ``recorded``
    gives the files of outputs that a request without a target asks about; it gives none if the request only evaluates.
    evalq writes the lines of `Stage.add_replies` to a file called ``file``, and evaluates that file in place of
    outputs.jsonl.
    """

    begin: Callable[[Request], Stage | None]
    recorded: Callable[[Request], Sequence[str]]
    file: str


class Calls(msgspec.Struct, frozen=True):
    """Asking a target, live, before its answers are evaluated.

    ``option`` is the option that names the target, "target" or "judge". ``prompts`` gives the prompts, each case once;
    it raises ConfigError, UsageError or InputError. ``answered`` gets the request, the recorded answers (JSONL of
    `evalq.evalcore.model.calls.Output.line`) and a folder for files that it writes. It returns the request that
    evaluates the answers. Evaluating the same file later must give the same report.

    ``answers_suffice`` says that ``answered`` needs only the answers: they are the only input of its request, and it
    writes nothing. Workers can then evaluate a sweep after its producer has left. ``text``: an answer may be any
    text; otherwise it has to be JSON. ``repeats`` says that evalq may ask a prompt many times. ``stopping`` then gives
    an object that reports which cases are decided, or None.
    ``judge_stage`` asks other targets about the outputs.
    """

    option: str
    prompts: Callable[[Request], Iterator[Prompt]]
    answered: Callable[[Request, Path, Path], Request]
    answers_suffice: bool = False
    text: bool = False
    repeats: bool = False
    stopping: Callable[[Request], Stopping | None] = _no_stopping
    judge_stage: JudgeStage | None = None


def _as_merged(state: S, params: P, reopen: Callable[[], BinaryIO], scratch: Path) -> S:
    return state


def _no_lines(result: InputResult[S], params: P) -> list[bytes]:
    return []


class WholeInput(msgspec.Struct, Generic[P, S], frozen=True):
    """Results that need a whole input, after all its chunks are merged. evalq calls both functions once per input.

    If the merged state cannot answer (say, for a log out of order), ``settle`` gives the final one. ``reopen`` gives
    the input's bytes again; ``scratch`` is a folder for temporary files. ``finish_input`` comes after it. It gives
    lines of records.jsonl, usually none, and may add to ``result.tally``.

    If the record is the input itself, ``dead`` gives the outcome for a line that killed its process. Without it, evalq
    takes a fault and a record without a result. ``follows`` says that the command has ``--follow``: its record is a
    whole JSONL input, so that `evaluate` gives no lines.
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
    """How its report is shown, from report.json's content alone.

    ``metrics`` are gauges to watch over time; an exporter shows those of each suite's newest run. ``panels`` say how to
    draw them; evalq generates dashboards from them. ``markdown`` gives the report for people; it also gets the options
    of the request. ``notices`` gives warnings for standard error, a sentence or two each, to read before the report.
    ``document`` gives the content of results.yaml if a specification has its own form (the timestamp is ISO 8601).
    ``exports`` gives further files that the user asked for.

    For report.html, ``summary`` gives the beginning, ``charts`` the drawings, and ``rows`` says how records become its
    table. Without them, the page has the metrics and the fields that every record has.

    A policy may be about any number of the results. If no run has that number, evalq refuses the policy before the run.
    ``at_times`` are the paths that results have with some records only, if no metric shows them.

    ``language`` is that of its Markdown, unless the option --lang names another; report.html has the same.

    For a long report, results.yaml has only a part of each list, and ``document`` gets no more. ``failed`` says which
    entries of lists are about a failure; these come first.
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
    language: str = "en"


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

    A small one has only the first eight members. The others are capabilities (`evalq.evalcore.contract.evaluator`).
    docs/how-to/add-an-evaluator.md builds one, and `evalq.check_evaluator` holds it to this contract.
    """

    name: ClassVar[str]
    """Its command, its key in metrics and gates: lower-case letters, digits and dashes."""
    version: ClassVar[str]
    """Raise it whenever any number of the report can change for the same input."""
    summary: ClassVar[str]
    """One sentence for ``--help``."""
    records: ClassVar[Records] = Records()
    """How evalq cuts its inputs into records: by the lines of JSONL, unless it says otherwise."""
    Params: type[P]
    """The class of its parameters. Its answer depends only on these and the records."""
    State: type[S]
    """The class of a chunk's state."""

    @abstractmethod
    def evaluate(self, batch: Batch, params: P) -> Outcome[S]:
        """Evaluate one chunk: pure, with the same result for a record in any chunk.

        ``batch`` holds whole records of one input; ``params`` are validated. Count each record once in the outcome's
        tally: scored, unscored, or an error. Report bad records as faults in the tally, by line. evalq takes an
        exception for a bug and tries the chunk again elsewhere. If it is raised everywhere, the run ends.
        """

    @abstractmethod
    def section(self, results: Sequence[InputResult[S]], params: P) -> dict[str, Json]:
        """Give ``results`` of report.json: unrounded numbers, plain JSON, in the keys of the specification.

        ``results`` has an entry for each input, in input order. JSON has no NaN and no infinities: use None for a
        number that cannot be computed.
        """

    command: ClassVar[CommandLine] = CommandLine()
    """Its additional options and commands."""
    views: ClassVar[Views] = Views()
    """Metrics, panels and texts, if the generic ones are not enough."""
    measures: ClassVar[Measures | None] = None
    """The numbers by which two runs are compared and gated."""
    sample: ClassVar[Sample | None] = None
    """Made-up input for it."""
    gathering: ClassVar[Gathering] = Gathering()
    """How a folder of files with one record each becomes one input."""
    calls: ClassVar[Calls | None] = None
    """How it calls a live target."""
    whole: WholeInput[P, S] = WholeInput()
    """Results that need a whole input."""


def dead_outcome(evaluator: Evaluator[P, S], record: Batch, params: P, reason: str) -> Outcome[S]:
    """The outcome for a record that killed its process: no result, and a fault that says why."""
    if evaluator.whole.dead is not None:
        return evaluator.whole.dead(record, params, reason)
    return without_result(evaluator.State.zero(), record, reason)


def without_result(state: S, record: Batch, reason: str) -> Outcome[S]:
    """The outcome of a record that killed its process: an error line, and ``state``."""
    line = {"record": record.where(record.first_line), "id": "", "status": "dead", "reason": reason}
    faults = Faults(1, [(record.first_line, f"dead: {reason}")])
    return Outcome(state, Tally(dead=1, listed=faults), [canonical_json(line)])


LANGUAGES = ("en", "ko")
"""The languages of report.html."""
_LANGUAGE = Option(("--lang",), "Language of report.html, and of the report if it has several.", choices=LANGUAGES)


def options_of(evaluator: Evaluator[Any, Any]) -> tuple[Option, ...]:
    """The options of an evaluator's requests: its own, and those that every evaluator has."""
    own = evaluator.command.options
    return own if any(option.name == _LANGUAGE.name for option in own) else (*own, _LANGUAGE)


def report_language(evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> str:
    """The language of a report that was requested with ``options``."""
    return str(options.get(_LANGUAGE.name) or evaluator.views.language)


def inputs_of(evaluator: Evaluator[Any, Any], request: Request) -> list[Source]:
    """The inputs of a complete request, found and named. Raises InputError, UsageError."""
    gathering = evaluator.gathering
    if gathering.fields:
        return recorded_sources(request.inputs, request.options.get("map"), gathering.fields, gathering.endings)
    return discover(request.inputs, format_suffixes(evaluator.records.format), gathering.endings)


def plain_input(evaluator: Evaluator[Any, Any], source: Source, folder: Path, most: int = MAX_UNPACKED_BYTES) -> Source:
    """``source`` as a plain file that can be cut, in ``folder`` unless it is one already; raises as `spool` does."""
    if source.layout is not None:
        return convert(source, folder, evaluator.gathering.fields, most)
    return spool(source, folder, evaluator.gathering.line, most)


def begin_request(
    evaluator: Evaluator[Any, Any], request: Request, *, whole: bool = False
) -> tuple[Request, Beside | None]:
    """The complete request of a run with a folder, and what of its parameters is kept there; ``whole``: nothing is.

    Raises ConfigError, UsageError, InputError.
    """
    begin = evaluator.command.begin
    return (evaluator.command.request(request), None) if begin is None or whole else begin(request)


def asks_recorded(evaluator: Evaluator[Any, Any], request: Request) -> bool:
    """Whether ``request`` asks targets about recorded outputs; if so, evaluating the outputs is not enough."""
    judge_stage = evaluator.calls.judge_stage if evaluator.calls is not None else None
    return judge_stage is not None and bool(judge_stage.recorded(request))


def live_calls(evaluator: Evaluator[Any, Any]) -> Calls:
    """How the evaluator calls a target. Raises UsageError if it calls none."""
    if evaluator.calls is None:
        raise UsageError(f"{evaluator.name} calls no target")
    return evaluator.calls
