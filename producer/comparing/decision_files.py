"""The files of a decision or a comparison, even of one that failed, and how a command that decides ends."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from evalq.evalcore.compare.decision import GateDecision
from evalq.evalcore.compare.gate import INCOMPLETE
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.errors import EvalqError, InfrastructureError, Interrupted, StorageError, UsageError
from evalq.evalcore.files import open_appending, open_input, write_atomic
from evalq.producer.comparing.comparing import decision_text
from evalq.producer.comparing.formats import (
    write_annotations,
    write_comment,
    write_decision_junit,
    write_shield,
    write_summary,
    write_svg,
)
from evalq.producer.comparing.outcome import ComparedRuns, DecisionOutcome, of_comparisons, of_decision, of_error
from evalq.producer.invocation.help import HelpfulCommand
from evalq.producer.invocation.invocation import echo_markdown, next_step
from evalq.producer.outputs import refuse_read

if TYPE_CHECKING:
    from evalq.producer.suites.summary import Matrices


def _document(outcome: DecisionOutcome, name: str) -> bytes:
    try:
        return msgspec.json.encode(outcome.document) + b"\n"
    except UnicodeEncodeError:  # a file name that is not UTF-8, in an error or as a baseline
        return json.dumps(outcome.document, allow_nan=False).encode() + b"\n"


def _page(outcome: DecisionOutcome, name: str) -> bytes:
    from evalq.producer.comparing.html import write_page  # pages need much code, and few decisions have one

    return write_page(outcome, name)


_FORMATS: dict[str, Callable[[DecisionOutcome, str], bytes]] = {
    "annotations.txt": write_annotations,
    "badge.json": write_shield,
    "comment.md": write_comment,
    ".html": _page,
    ".json": _document,
    ".md": write_summary,
    ".svg": write_svg,
    ".xml": write_decision_junit,
}
"""{ending of the file's name: function that makes the bytes from an outcome and that name}; the first match wins."""


def check_decision_output(path: Path) -> None:
    """Raise UsageError for a file that cannot be written, before anything is decided."""
    _format(path)
    if "\0" in str(path):  # JSON and YAML can hold one
        raise UsageError(f"-o {str(path)!r}: no file's name has a zero byte; name another")
    if path.is_dir():
        raise UsageError(f"-o {path}: that is a folder; name a file in it")


def check_decision_outputs(paths: Iterable[Path], reads: Iterable[str]) -> None:
    """Raise UsageError if one of ``paths`` cannot be written, or is also read."""
    read = list(reads)
    for fault in (_output_fault(path, read) for path in paths):
        if fault is not None:
            raise fault


def write_decision(
    paths: Iterable[Path],
    decision: GateDecision,
    candidates: Sequence[RunCases],
    *,
    allow_inconclusive: bool = False,
    matrices: Matrices | None = None,
) -> None:
    """Write files of a gate's decision on ``candidates``. Raises UsageError and StorageError after writing all others.

    With ``allow_inconclusive``, an inconclusive check is skipped in JUnit XML instead of failed. ``matrices`` of the
    suite are in Markdown and JSON; JUnit XML has a suite for each run.
    """
    _write_each(paths, of_decision(decision, candidates, allowed=allow_inconclusive, matrices=matrices))


def write_comparison(paths: Iterable[Path], compared: Sequence[ComparedRuns]) -> None:
    """Write files of a comparison. Raises UsageError and StorageError after writing all others."""
    _write_each(paths, of_comparisons(compared))


@contextlib.contextmanager
def errors_written(what: str, paths: Iterable[Path], reads: Iterable[str] = ()) -> Iterator[None]:
    """Write an error that ends the command ``what`` ("gate", "compare") in the block into each of ``paths``.

    Otherwise a file of an earlier attempt would pass for this one's. That holds for every end: a full disk, Ctrl-C, a
    plug-in's sys.exit(). If one of ``paths`` cannot be written or is also read, a UsageError is raised at once and
    written into the others.
    """
    checked, read = list(paths), list(reads)
    faults = {path: fault for path in checked if (fault := _output_fault(path, read)) is not None}
    try:
        if faults:
            raise next(iter(faults.values()))
        yield
    except BaseException as error:
        with contextlib.suppress(EvalqError):  # the original error matters more
            _write_each([path for path in checked if path not in faults], of_error(what, _as_ours(error)))
        raise


def _output_fault(path: Path, reads: Iterable[str]) -> UsageError | None:
    try:
        check_decision_output(path)
        refuse_read(path, reads)
    except UsageError as error:
        return error
    return None


def _as_ours(error: BaseException) -> EvalqError:
    """The error that files show; the caller still raises the original one."""
    if isinstance(error, EvalqError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("the same command again")
    if isinstance(error, OSError):
        return StorageError(f"{error.filename or 'a file, or standard output'}: {error.strerror or error}")
    return InfrastructureError(f"{type(error).__name__}: {error}")


def _write_each(paths: Iterable[Path], outcome: DecisionOutcome) -> None:
    """Write as many as possible: a file of an earlier attempt must not pass for this one's."""
    errors = []
    for path in paths:
        try:
            _write(path, outcome)
        except EvalqError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _write(path: Path, outcome: DecisionOutcome) -> None:
    data = _format(path)(outcome, path.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except OSError as error:
        _withdraw(path)
        raise StorageError.of(error, path, f"run evalq {outcome.what} again") from error


def _withdraw(path: Path) -> None:
    """Remove what an earlier attempt wrote to ``path``: the file or, if that fails, its content."""
    try:
        path.unlink(missing_ok=True)
    except OSError:  # the folder may be read-only, or the file a mount
        with contextlib.suppress(OSError), open_appending(path) as stream:
            stream.truncate(0)


def _format(path: Path) -> Callable[[DecisionOutcome, str], bytes]:
    for end, write in _FORMATS.items():
        if path.name.endswith(end):
            return write
    raise UsageError(f"-o {path}: there is no such format; names end in {', '.join(_FORMATS)}")


# Files of an earlier attempt, for a command that ends before it knows which files it reads.

_OURS = re.compile(
    rb'\{"(decided|comparisons|schemaVersion)":|# [A-Z-]+: |# [^\n]* against |<!-- evalq-comment: |<svg '
    rb"|<!doctype html><!-- evalq-decision -->"
    rb'|<\?xml [^>]*>\s*<testsuites name="evalq |::(error|warning|notice) title=evalq |\Z'
)
"""The beginning of a file of a decision or a comparison; a file of annotations may be empty."""
_HEAD = 1000


class DecidingCommand(HelpfulCommand):
    """A command with -o for its decision, which writes wrong arguments as an error into files of an earlier one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            what = "gate" if self.name == "run" else self.name or ""
            named = () if "--dry-run" in given else _outputs(given)  # a dry run decides nothing
            with contextlib.suppress(EvalqError), errors_in_earlier_files(what, named):
                raise UsageError(error.format_message()) from error
            raise


@contextlib.contextmanager
def errors_in_earlier_files(what: str, paths: Iterable[Path]) -> Iterator[None]:
    """Write an error that ends the command ``what`` in the block into those of ``paths`` that hold an earlier decision.

    Only into those: the command does not know yet which files it reads, and must not overwrite recorded outputs.
    """
    try:
        yield
    except BaseException:  # also for a plug-in's sys.exit()
        with errors_written(what, [path for path in paths if _is_ours(path)]):
            raise


def _is_ours(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError, EvalqError), open_input(path) as stream:
        return _OURS.match(stream.read(_HEAD)) is not None
    return False


def _outputs(args: Sequence[str]) -> Iterator[Path]:
    """The files of -o in a command line that click cannot parse."""
    rest = iter(args)
    for each in rest:
        if each in ("-o", "--output"):
            yield Path(next(rest, ""))
        elif each.startswith(("--output=", "-o")):
            yield Path(each.removeprefix("--output=").removeprefix("-o"))


# How a command that has decided ends: its files, its output and its exit code.


def finish_decision(
    decision: GateDecision,
    runs: Sequence[RunCases],
    outputs: Sequence[Path],
    *,
    as_json: bool,
    allow_inconclusive: bool,
) -> int:
    """Write the decision on ``runs`` to ``outputs``, show it, and give the exit code.

    Raises StorageError after showing it and writing the other files.
    """
    try:
        write_decision(outputs, decision, runs, allow_inconclusive=allow_inconclusive)
    finally:
        if as_json:
            click.echo(msgspec.json.encode(decision))
        else:
            echo_markdown(decision_text(decision), nl=False)
            next_step(after_decision(decision, runs))
    return exit_code(decision, allow_inconclusive=allow_inconclusive)


def after_decision(decision: GateDecision, runs: Sequence[RunCases] = ()) -> str:
    """What to do next, by a decision on ``runs`` and what it rests on."""
    names = " ".join(map(shlex.quote, decision.folders))
    one = shlex.quote(decision.folders[0]) if decision.folders else "RUN"
    base = shlex.quote(decision.baseline)
    if decision.decided == "GO":
        return f"merge; the answers are in: evalq view {names}"
    if silent := next((run for run in runs if not _answered(run)), None):
        name = shlex.quote(silent.shown)
        again = f"evalq retry {name} --errors" if silent.target else "evaluate it again"
        return f"nothing in {name} has a verdict: see why (evalq view {name}), mend it, then {again}, and gate again"
    if decision.exit_with == INCOMPLETE:
        return f"call again what the server lost: evalq retry {one} --errors; then gate again"
    if approve := next((c.reason for c in decision.checks if "evalq baseline set " in c.reason), ""):
        return f"approve the runs if they are good: evalq baseline set {approve.partition('evalq baseline set ')[2]}"
    if not decision.baseline:
        return f"look at the answers: evalq view {names}"
    if decision.decided == "INCONCLUSIVE" and any(each.change and not each.evidence for each in decision.checks):
        return f"{base} has no answer to these cases: gate against a run that has (--baseline RUN)"
    if decision.decided == "INCONCLUSIVE":
        return (
            f"see case by case: evalq compare {base} {one}; more repeats decide it: evalq gate --dry-run --repeat N ..."
        )
    return f"see case by case: evalq compare {base} {one}; the answers: evalq view {names}"


def _answered(run: RunCases) -> bool:
    return any(any(column.count) for column in run.cases.columns.values())


def exit_code(decision: GateDecision, *, allow_inconclusive: bool) -> int:
    """The decision's exit code, or 0 if it is INCONCLUSIVE and that is allowed; an incomplete run never passes."""
    allowed = allow_inconclusive and decision.decided == "INCONCLUSIVE" and decision.exit_with is None
    return 0 if allowed else decision.exit_code
