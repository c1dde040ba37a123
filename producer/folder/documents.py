"""run.json and report.json as they are read back: typed, and checked for a form that this evalq knows."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping
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
from evalq.evalcore.records.inputs import Source

SCHEMA = 1
"""Raised when a reader of the last form would misread the new one."""


_PARAMS_BYTES = 65_536
"""Longer parameters, as those with many cases, stand in the plan and in the report: run.json is read whole by every
command that lists runs, and written again at each step of a run."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What every command may rely on; facts beyond these stay in the file as they are.

    ``name`` is what its suite calls it. ``epoch`` is how often the run was told to a ledger, ``sources`` the inputs as
    they are read and ``roots`` the folders a worker must be allowed to read for them. ``retry`` holds {chunk: dead
    records} while dead records are tried again, ``progress`` the ledger's counters at the last look, ``follows`` the
    log of a run that follows one, ``driver`` the token of whoever drove it from this folder last, ``server`` the
    options that name the server it was driven on then (empty: none that outlives a command).
    ``lineage``: whose outputs it has, where it took any; ``origin`` the run that it asks again, to more repeats or
    another target. ``records`` and ``result`` are how many records its report has, and its headline, so that a list of
    runs reads no reports. No program, server, key or targets file is chosen by what stands here (`evalcore.trust`).
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


def info_of(facts: Mapping[str, Json], path: Path) -> RunInfo:
    """The typed part of the ``facts`` that the file at ``path`` holds. Raises WireError where they are not a run's."""
    # Before the fields: those of a newer form would be told as damage, and what helps is another evalq.
    schema = facts.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        raise WireError(f"{path} has form {schema}, and this evalq reads up to {SCHEMA}: use the evalq that wrote it")
    try:
        info = msgspec.convert(facts, RunInfo)
        return msgspec.structs.replace(info, server=_as_options(info.server))
    # JSON that is nested too deep is damage as any other, and no traceback.
    except (msgspec.ValidationError, RecursionError) as error:
        raise WireError(f"{path} is damaged: {error}") from error


def short(params: dict[str, Json]) -> dict[str, Json]:
    """``params`` as files have them that say how a run stands or was cut: none of long ones."""
    return {} if longer_than(params, _PARAMS_BYTES) else params


def request_fact(request: Request) -> dict[str, Json]:
    """``request`` as run.json has it."""
    told: dict[str, Json] = msgspec.to_builtins(msgspec.structs.replace(request, params=short(request.params)))
    return told


def whole_request(request: Request, params: dict[str, Json]) -> Request:
    """What a run was asked, whose run.json has ``request`` and whose plan has ``params``."""
    left_out = not request.params and not short(params)
    return msgspec.structs.replace(request, params=params) if left_out else request


def _as_options(server: str) -> str:
    """The ``server`` of a run.json as it may stand in a command that a person copies: no more than two options."""
    with contextlib.suppress(ValueError):  # a quotation that does not end
        words = shlex.split(server)
        if words[::2] in ([], ["--broker"], ["--broker", "--ledger"]) and len(words) % 2 == 0:
            return shlex.join(words)
    # As where an address has a password: its user knows which one it is.
    return "--broker URL"


def read_facts(path: Path) -> dict[str, Json]:
    """All that a JSON file of a run folder says. Raises WireError, OSError."""
    try:
        found: dict[str, Json] = msgspec.json.decode(read_plain(path), type=dict)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{path} is damaged: {error}") from error
    return found


# report.json as it is read again: it has the frame of a report, and what cannot be shown of it is told in words.

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
    """What every report has, whoever evaluated: `evalq.evalcore.fold.Fold` writes it."""

    evaluator: str
    evaluator_version: str
    params: dict[str, Any]
    inputs: list[_ReportInput]
    records: _ReportRecords
    results: dict[str, Any]
    faults: list[_ReportFault]


def read_report(path: Path) -> dict[str, Json]:
    """The report in the file at ``path``. Raises WireError where it is none that this evalq reads, OSError."""
    return report_of(read_plain(path), str(path))


def report_of(data: bytes, origin: str) -> dict[str, Json]:
    """The report in ``data``, which came from ``origin``. Raises WireError where it is none that this evalq reads."""
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
    """A block that shows the report at ``place``, whose numbers are the evaluator's own and have a form that it knows.

    Raises WireError, which says so, where the block ends in an error of what it is given: other code wrote the report,
    or it was changed since.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        told = f"{type(error).__name__}: {error}"
        raise WireError(
            f"{place}: its report is not of the form that this version of {evaluator} shows ({told}): {_NEXT}"
        ) from error
