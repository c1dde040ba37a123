"""Read run.json and report.json: typed, and checked for a form that this evalq knows."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import WireError
from evalq.evalcore.files import read_plain
from evalq.evalcore.fold import REPORT_SCHEMA
from evalq.evalcore.model.calls import Lineage
from evalq.evalcore.model.canonical import Json, longer_than
from evalq.evalcore.model.life import RunState
from evalq.evalcore.model.lines import with_lines
from evalq.evalcore.records.inputs import Source

SCHEMA = 1
"""Raised when a reader of the last form would misread the new one."""


_PARAMS_BYTES = 65_536
"""Longer parameters, such as many cases, are only in the plan and the report: each step of a run writes run.json again,
and lists of runs read it whole."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The typed facts of run.json; other facts stay in the file.

    ``name`` is its name in a suite. ``epoch`` counts how often the run was published to a ledger. ``sources`` are the
    inputs as they are read, and ``roots`` the folders that workers must be allowed to read for them. ``retry`` has
    {chunk: dead records} during a retry, ``progress`` the ledger's counters at the last poll, and ``follows`` the log
    of a run that follows one. ``driver`` is the token of the last driver in this folder, ``server`` the options that
    name its server (empty for an embedded one).
    ``lineage`` says which runs its outputs come from, and ``origin`` is the run that it extends. ``records`` and
    ``result`` are the number of records and the headline of its report, ``interval`` is that of its first number. They
    are for lists of runs. ``ended`` is the time of its report, ``seconds`` is what the evaluation took, and ``calls``
    says how its live calls ended. No program, server, key or
    targets file is chosen by this file (`evalcore.trust`).
    """

    run: str
    evaluator: str
    state: RunState
    started: str
    request: Request
    schema: int = SCHEMA
    suite: str = "default"
    name: str = ""
    tags: dict[str, str] = {}
    epoch: int = 0
    sources: list[Source] = []
    roots: list[str] = []
    target: str = ""
    driver: str = ""
    server: str = ""
    follows: str = ""
    retry: dict[str, int] | None = None
    progress: dict[str, Json] = {}
    lineage: Lineage | None = None
    origin: str = ""
    records: int | None = None
    result: str = ""
    interval: str = ""
    ended: str = ""
    seconds: float | None = None
    calls: dict[str, Json] = {}

    @property
    def headline(self) -> str:
        """The result, with its interval if it has one."""
        return f"{self.result} ({self.interval})" if self.result and self.interval else self.result

    @property
    def cost(self) -> float:
        """The cost of its calls; 0 if none is known."""
        found = self.calls.get("cost")
        return float(found) if isinstance(found, int | float) else 0.0

    @property
    def served(self) -> dict[str, int]:
        """{model: answers that it gave} of its calls."""
        return self._counts("served")

    @property
    def users(self) -> dict[str, int]:
        """{who simulated the user: answers} of its calls."""
        return self._counts("users")

    def _counts(self, name: str) -> dict[str, int]:
        found = self.calls.get(name)
        counts = found.items() if isinstance(found, dict) else ()
        return {label: count for label, count in counts if isinstance(count, int)}

    @property
    def duration(self) -> float | None:
        """The seconds from its start to its report, as far as known."""
        try:
            passed = (datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.started)).total_seconds()
        except (ValueError, TypeError):
            return self.seconds
        # The times have whole seconds.
        return max(passed, self.seconds or 0.0)


def info_of(facts: Mapping[str, Json], path: Path) -> RunInfo:
    """The typed part of the ``facts`` that the file at ``path`` holds. Raises WireError if they are not a run's."""
    # First: the fields of a newer form would look damaged.
    schema = facts.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        raise WireError(f"{path} has form {schema}, and this evalq reads up to {SCHEMA}: use the evalq that wrote it")
    try:
        info = msgspec.convert(facts, RunInfo)
        return msgspec.structs.replace(info, server=_as_options(info.server))
    # JSON that is nested too deeply counts as damage.
    except (msgspec.ValidationError, RecursionError) as error:
        raise WireError(f"{path} is damaged: {error}") from error


def short(params: dict[str, Json]) -> dict[str, Json]:
    """``params`` for run.json and the plan: empty if they are long."""
    return {} if longer_than(params, _PARAMS_BYTES) else params


def request_fact(request: Request) -> dict[str, Json]:
    """``request`` as run.json has it."""
    facts: dict[str, Json] = msgspec.to_builtins(
        msgspec.structs.replace(request, params=short(request.params), questions=())
    )
    del facts["questions"]
    return facts


def whole_request(request: Request, params: dict[str, Json]) -> Request:
    """The whole request of a run, from ``request`` in run.json and ``params`` in its plan."""
    left_out = not request.params and not short(params)
    return msgspec.structs.replace(request, params=params) if left_out else request


def _as_options(server: str) -> str:
    """The ``server`` of a run.json, safe for a command that a person copies: at most two options."""
    with contextlib.suppress(ValueError):  # an unclosed quote
        words = shlex.split(server)
        if words[::2] in ([], ["--broker"], ["--broker", "--ledger"]) and len(words) % 2 == 0:
            return shlex.join(words)
    # As for an address with a password.
    return "--broker URL"


def read_facts(path: Path) -> dict[str, Json]:
    """All facts of a JSON file in a run folder. Raises WireError, OSError."""
    try:
        found: dict[str, Json] = msgspec.json.decode(read_plain(path), type=dict)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{path} is damaged: {error}") from error
    return found


# report.json: the frame that every report has, and an error for content that cannot be shown.

_Count = Annotated[int, msgspec.Meta(ge=0)]
_NEXT = "use the evalq that wrote it (evalq --version), or evaluate again"


class _ReportRecords(msgspec.Struct):
    total: _Count
    scored: _Count
    unscored: _Count
    errors: _Count
    dead: _Count


class _ReportInput(msgspec.Struct):
    name: str
    sha256: str
    records: _Count


class _ReportFault(msgspec.Struct):
    where: str
    reason: str


class _ReportFrame(msgspec.Struct):
    """The fields of every report: `evalq.evalcore.fold.Fold` writes them."""

    evaluator: str
    evaluator_version: str
    params: dict[str, Any]
    inputs: list[_ReportInput]
    records: _ReportRecords
    results: dict[str, Any]
    faults: list[_ReportFault]


def read_report(path: Path) -> dict[str, Json]:
    """The report in the file at ``path``; long lists are read from files beside it when they are used.

    Raises WireError if this evalq cannot read it, OSError.
    """
    report = report_of(read_plain(path), str(path))
    try:
        found: dict[str, Json] = with_lines(report, path.parent)
    except (msgspec.ValidationError, RecursionError) as error:
        raise WireError(f"{path} is not a report as this evalq writes it ({error}): {_NEXT}") from error
    return found


def report_of(data: bytes, origin: str) -> dict[str, Json]:
    """The report in ``data``, which came from ``origin``. Raises WireError if this evalq cannot read it."""
    try:
        found: dict[str, Json] = msgspec.json.decode(data, type=dict)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{origin} is damaged: {error}; evaluate again") from error
    schema = found.get("schema")
    if schema != REPORT_SCHEMA:
        raise WireError(f"{origin} has the form {schema!r}, and this evalq reads {REPORT_SCHEMA}: {_NEXT}")
    try:
        msgspec.convert(found, _ReportFrame)
    except (msgspec.ValidationError, RecursionError) as error:
        raise WireError(f"{origin} is not a report as this evalq writes it ({error}): {_NEXT}") from error
    return found


@contextlib.contextmanager
def explain_unknown_form(place: object, evaluator: str) -> Iterator[None]:
    """A block that shows the report at ``place``, whose results have the evaluator's own form.

    Raises WireError if the block fails on that form: another version wrote the report, or somebody changed it.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise WireError(
            f"{place}: its report is not of the form that this version of {evaluator} shows ({reason}): {_NEXT}"
        ) from error
