"""The contract every evaluator keeps, and all that a new one has to write.

An evaluator is one object with a name. evalq reads its inputs, cuts them into chunks, and calls
`evaluate` on each chunk, anywhere and in any order; the states are merged in input order, `settle` and
`close` finish each input, and `section` turns what is left into the report. Nothing here knows of
queues or servers, and nothing may read a clock, a random source or the environment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Generic, Literal, Protocol, Self, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict

from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.model.span import Format
from evalq.evalcore.model.tally import Faults, Tally
from evalq.evalcore.records.batch import Batch
from evalq.evalcore.views.metrics import Metric
from evalq.evalcore.views.panels import Panel

__all__ = [
    "Batch",
    "Command",
    "Evaluator",
    "Export",
    "InputResult",
    "Option",
    "Outcome",
    "Params",
    "Request",
    "State",
    "Stopping",
    "Tally",
]


class Params(BaseModel):
    """What changes an evaluator's answer: strict, frozen, unknown keys are errors that name the key.

    Only hashable field types (tuples, not lists; nested Params, not dicts), so that what an evaluator
    compiles from its params can be cached on them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


class State(msgspec.Struct):
    """What a chunk adds up to. Every field has a default, and the defaults are the state of no records.

    The wire form is the fields as JSON, typed and checked on the way in, so fields are of types that
    msgspec can name: no bare ``object``. Floats that are summed are held as ExactSum.
    """

    @classmethod
    def zero(cls) -> Self:
        """The state of no records."""
        return cls()

    def merge(self, later: Self) -> None:
        """Take in the state of the records that follow right behind this state's, in place.

        Must be associative to the last bit, and ``zero()`` must change nothing on either side. ``later`` is
        not used again by the caller. A state of a million records is merged from small ones many times:
        the cost must depend on the size of ``later``, not on what was gathered before.
        """
        raise NotImplementedError

    def to_wire(self) -> bytes:
        """Canonical JSON of the fields: equal states are equal bytes."""
        return msgspec.json.encode(self, order="deterministic")

    @classmethod
    def from_wire(cls, data: bytes) -> Self:
        """The state in ``data``. Raises msgspec.ValidationError when it is none of this type."""
        return msgspec.json.decode(data, type=cls)


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


class Evaluator(ABC, Generic[P, S]):
    """One evaluation; subclass it, and register an instance under the entry-point group ``evalq.evaluators``."""

    name: ClassVar[str]
    """Its command, its key in metrics and gates: lower-case letters, digits and dashes."""
    version: ClassVar[str]
    """Raised whenever any number of its report can change for the same input."""
    summary: ClassVar[str]
    """One sentence for ``--help``."""
    format: ClassVar[Format] = "jsonl"
    """How its inputs are cut: "jsonl" by lines, "csv" by rows."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Columns a CSV must have."""
    gathers: ClassVar[tuple[str, ...]] = ()
    """Endings of files that hold one record each (say ".json"): a folder of such files is one input, see `gather`."""
    unit: ClassVar[str] = "records"
    """What the progress bar counts: the lines or rows of the input."""
    positional: ClassVar[str] = "inputs"
    """What its command's arguments are called, there and in a suite file."""
    options: ClassVar[tuple[Option, ...]] = ()
    commands: ClassVar[tuple[Command, ...]] = ()
    asks: ClassVar[str] = ""
    """The option by which a target is named that shall be asked, "target" or "judge"; empty: it asks nobody."""
    answers_suffice: ClassVar[bool] = False
    """Whether `answered` needs nothing but the outputs: they are the only input of its request, whatever they say, and
    nothing is written. Workers can then evaluate a sweep that nobody attends."""
    repeats: ClassVar[bool] = False
    """Whether each of its prompts may be asked many times."""
    demo_records: ClassVar[int] = 1_000
    """How many records of `sample` the demo evaluates."""
    metrics: ClassVar[tuple[Metric, ...]] = ()
    """What of its report is watched over time: gauges that an exporter shows of each suite's newest run."""
    panels: ClassVar[tuple[Panel, ...]] = ()
    """How those are looked at; dashboards are generated from them."""
    follows: ClassVar[bool] = False
    """Whether its command has ``--follow``: its record is a whole JSONL input, so that `evaluate` gives no lines."""
    Params: type[P]
    State: type[S]

    def request(self, asked: Request) -> Request:
        """Complete what the user asked for, say from a configuration file it names. Raises ConfigError, UsageError."""
        return asked

    def prompts(self, asked: Request) -> Iterator[Prompt]:
        """What a target is asked, a prompt for each case, each case once. Raises ConfigError, UsageError, InputError.

        Asked and answered before the evaluation: see `answered`.
        """
        raise NotImplementedError(f"{self.name} asks {self.asks} and has no prompts()")

    def answered(self, asked: Request, outputs: Path, folder: Path) -> Request:
        """The request that evaluates recorded answers, ``outputs`` (JSONL of `evalq.evalcore.model.calls.Output.line`).

        What it has to write goes into ``folder``. Evaluating the same file later must give the same report.
        """
        raise NotImplementedError(f"{self.name} asks {self.asks} and has no answered()")

    def stopping(self, asked: Request) -> Stopping | None:
        """What tells when cases of a sweep are decided; None where there is no such rule."""
        return None

    def gather(self, name: str, data: bytes) -> bytes:
        """A file of a folder that is one input, as the one line of the input that stands for it (no newline in it).

        Called for every file that ends in one of `gathers`, in the order of their names, with its base name and its
        bytes (unpacked, without a byte order mark); its record and its faults are then called "<folder>/<name>".
        Must depend on these two alone and raise nothing: what is no record becomes a line that `evaluate` counts
        as an error. An evaluator that gathers nothing needs none.
        """
        raise NotImplementedError(f"{self.name} gathers {', '.join(self.gathers)} and has no gather()")

    @abstractmethod
    def evaluate(self, batch: Batch, params: P) -> Outcome[S]:
        """Evaluate one chunk: pure, and the same for a record whatever chunk it comes in.

        Bad records are faults in the tally, by line; exceptions are bugs.
        """

    def dead(self, record: Batch, params: P, reason: str) -> Outcome[S]:
        """What stands for a record that killed its process: no result, and a fault that says why."""
        line = {"record": record.where(record.first_line), "id": "", "status": "dead", "reason": reason}
        faults = Faults(1, [(record.first_line, f"dead: {reason}")])
        return Outcome(self.State.zero(), Tally(dead=1, listed=faults), [canonical_json(line)])

    def settle(self, state: S, params: P, reopen: Callable[[], BinaryIO], scratch: Path) -> S:
        """The final state of one input, once all its chunks are merged. Called once an input, by the finaliser.

        Only an evaluator whose merged state cannot answer (say, a log out of order) overrides it: ``reopen``
        gives the input's bytes again, ``scratch`` is a folder for temporary files.
        """
        return state

    def close(self, result: InputResult[S], params: P) -> list[bytes]:
        """Lines of records.jsonl that only a whole input can give; may add to ``result.tally``. Usually none."""
        return []

    @abstractmethod
    def section(self, results: Sequence[InputResult[S]], params: P) -> dict[str, Json]:
        """``results`` of report.json: unrounded numbers, plain JSON, in the keys that the specification names."""

    def sample(self, folder: Path, records: int, seed: int) -> Request | None:
        """Write made-up input of about ``records`` records into ``folder``; returns the request that evaluates it.

        The demo, the benchmarks and the conformance suite live on it. The same arguments give the same bytes.
        """
        return None

    def markdown(self, report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
        """The report as a person reads it, from report.json's content alone (and how it was asked for)."""
        from evalq.evalcore.views.markdown import generic

        return generic(report)

    def notices(self, report: Mapping[str, Json]) -> list[str]:
        """What somebody should know before reading the report, a sentence or two each; shown on standard error."""
        return []

    def document(self, report: Mapping[str, Json], timestamp: str) -> Json:
        """What results.yaml holds: the report, unless a specification has its own form; ``timestamp`` is ISO 8601."""
        return dict(report)

    def exports(self, report: Mapping[str, Json], request: Request) -> list[Export]:
        """Further files that the user asked for, from report.json's content."""
        return []
