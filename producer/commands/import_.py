"""Import cases, targets and recorded outputs from another tool's files.

TOOL is atif, bfcl, claude-code, codex, deepeval, inspect, langfuse, langsmith, lm-eval, openai-evals, phoenix,
promptfoo, swe-agent or tau2; without it, evalq takes the tool whose file FILE is. The command lists everything without
a counterpart, with its place and the reason. It runs no code in the
files.
"""

from __future__ import annotations

import difflib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.views.markdown import plural
from evalq.producer.importing import sources
from evalq.producer.invocation.invocation import Invocation, command

if TYPE_CHECKING:
    from evalq.producer.importing.imported import Imported, ImportRequest


_LISTED = 50


def _import(
    invocation: Invocation,
    words: tuple[str, ...],
    folder: Path,
    checks: tuple[str, ...],
    unchecked: bool,
    anywhere: bool,
    force: bool,
) -> int:
    from evalq.producer.importing.imported import ImportRequest, write
    from evalq.producer.importing.patterns import NoCounterpart, accepted

    for check in checks:
        try:
            accepted({check: "x"})
        except NoCounterpart as error:
            raise UsageError(f"--check {check}: {error}") from None
    request = ImportRequest(checks, anywhere, unchecked)
    source, file = _source_and_file(words)
    imported = sources.read(source, file, request) if source else _guessed(file, request)
    if not imported.cases and not imported.targets and not imported.traces:
        _print_notes(imported, "")  # no file is written that could list the other notes
        raise ConfigError(f"{file}: nothing in it has a counterpart in evalq")
    written = write(imported, folder, force=force)
    _print_notes(imported)
    outputs = sum(map(len, imported.outputs.values()))
    found = [plural(len(imported.cases), "case"), plural(len(imported.targets), "target")]
    found = [plural(len(imported.traces), "trace")] if imported.traces else [*found, plural(outputs, "recorded output")]
    click.echo(", ".join(found))
    for path in written.files:
        click.echo(f"wrote {path}")
    for path in written.removed:
        click.echo(f"removed {path}: it came from the earlier import")
    for path in written.left:
        click.echo(f"left {path}: it came from the earlier import and has changed since; it is not for these cases")
    _print_agreement(imported, written.files)
    _print_next_steps(imported, written.files)
    return 0


def _source_and_file(words: tuple[str, ...]) -> tuple[str, Path]:
    """The tool, "" without one, and the file. Raises UsageError."""
    tools = sources.names()
    usage = f"evalq import TOOL FILE, with TOOL as one of {', '.join(tools)}"
    source, name = words if len(words) == 2 else ("", words[0]) if len(words) == 1 else ("", "")
    if not name:
        raise UsageError(f"name {'one file only' if words else 'a file'}: {usage}")
    if not source and name in tools and not Path(name).exists():
        raise UsageError(f"name the file of {name}, too: evalq import {name} FILE")
    if source and source not in tools:
        near = difflib.get_close_matches(source.lower(), tools, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"{source}: evalq imports from no tool of this name{meant}: {usage}")
    if Path(name).is_dir():
        raise UsageError(f"{name}: that is a folder: {usage}")
    if not source and not Path(name).exists():
        raise UsageError(f"{name}: there is no such file: {usage}")
    return source, Path(name)


def _guessed(file: Path, request: ImportRequest) -> Imported:
    """The content of a file whose tool is not named. Raises UsageError unless it is of exactly one tool."""
    try:
        found = sources.guess(file, request)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
    if len(found) != 1:
        tools = ", ".join(found or sources.names())
        which = "this may be a file of" if found else "no case is found in it as a file of"
        raise UsageError(f"{file}: {which} {tools}; name the tool: evalq import TOOL {shlex.quote(str(file))}")
    ((source, imported),) = found.items()
    click.echo(f"read as a file of {source}: evalq import {source} {shlex.quote(str(file))}")
    return imported


def _print_agreement(imported: Imported, written: list[Path]) -> None:
    """One line on how far the checks agree with the source's own verdicts on the recorded outputs."""
    from evalq.evalcore.views.markdown import printed
    from evalq.producer.importing.imported import agreement

    cases = next((path for path in written if path.stem == "cases"), None)
    if cases is not None and imported.outputs:
        click.echo(printed(" ".join(agreement(imported, cases).sentence().splitlines())))


def _print_notes(imported: Imported, others: str = ", all of them in not-imported.jsonl") -> None:
    """Print a line for each kind of note, with its first locations; ``others`` says where the rest are."""
    from evalq.evalcore.views.markdown import printed

    lines = imported.summary()
    for kind, omission in lines[:_LISTED]:
        # A key and a difference leave nothing out.
        sentence = omission.sentence()
        line = sentence if kind in ("none", "later") else f"{kind}: {sentence.partition(': ')[2]}"
        if kind == "key":
            line = f"key: {omission.examples[0].where}: {omission.what}, {omission.why}"
        click.echo(printed(" ".join(line.splitlines())))
    more = len(lines) - _LISTED
    if more > 0:
        click.echo(f"and {more} more{others}")


def _print_next_steps(imported: Imported, written: list[Path]) -> None:
    from evalq.producer.importing.patterns import asks_judge
    from evalq.workers.targets.spec import FORMS

    cases = next((path for path in written if path.stem == "cases"), None)
    if imported.traces:
        checks, traces = (
            next(path for path in written if path.name == name) for name in ("checks.yaml", "traces.jsonl")
        )
        click.echo(f"check them: evalq checks {shlex.quote(str(checks))} --traces {shlex.quote(str(traces))}")
    if cases is None:
        return
    recorded = next((path for path in written if path.name.startswith("outputs")), None)
    if recorded is not None:
        click.echo(f"check them: evalq checks {shlex.quote(str(cases))} --outputs {shlex.quote(str(recorded))}")
    elif imported.targets:
        targets = shlex.quote(str(cases.with_name("targets.yaml")))
        name = shlex.quote(next(iter(imported.targets)))
        click.echo(f"sweep: evalq checks {shlex.quote(str(cases))} --targets {targets} --target {name} --repeat 5")
    else:
        click.echo(
            f"sweep: evalq checks {shlex.quote(str(cases))} --target TARGET --repeat 5, with TARGET as one of "
            f"{', '.join(FORMS)}"
        )
    if any(asks_judge(check) for case in imported.cases for check in case["checks"]):
        click.echo(
            "some checks are for a judge: add --judge NAME, a target that judges; without one they are not computed"
        )


COMMAND = command(
    _import,
    click.Argument(["words"], nargs=-1, metavar="[TOOL] FILE"),
    click.Option(["-d", "--directory", "folder"], type=click.Path(file_okay=False, path_type=Path),
                 default=Path("evals"), show_default=True, metavar="DIR", help="Where to write the files."),
    click.Option(["--check", "checks"], multiple=True, metavar="NAME",
                 help="For cases with an expected answer and no check: compare by this one, such as equals."),
    click.Option(["--keep-unchecked", "unchecked"], is_flag=True,
                 help="Keep cases without a check: each gets a check that the answer is not empty."),
    click.Option(["--anywhere"], is_flag=True, help="Also read named files that are outside FILE's folder."),
    click.Option(["--force"], is_flag=True, help="Replace the files of an earlier import."),
    name="import",
)  # fmt: skip
