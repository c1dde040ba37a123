"""Import cases, targets and recorded outputs from another tool's files.

The command lists everything without a counterpart, with its place and the reason. It runs no code in the files.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.views.markdown import plural
from evalq.producer.importing import sources
from evalq.producer.invocation.invocation import Invocation, command

if TYPE_CHECKING:
    from evalq.producer.importing.imported import Imported


_LISTED = 50


def _import(
    invocation: Invocation,
    source: str,
    file: Path,
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
    imported = sources.read(source, file, ImportRequest(checks, anywhere, unchecked))
    if not imported.cases and not imported.targets:
        _print_notes(imported, "")  # no file is written that could list the other notes
        raise ConfigError(f"{file}: nothing in it has a counterpart in evalq")
    written = write(imported, folder, force=force)
    _print_notes(imported)
    outputs = sum(map(len, imported.outputs.values()))
    found = plural(len(imported.cases), "case"), plural(len(imported.targets), "target")
    click.echo(", ".join((*found, plural(outputs, "recorded output"))))
    for path in written.files:
        click.echo(f"wrote {path}")
    for path in written.removed:
        click.echo(f"removed {path}: it came from the earlier import")
    for path in written.left:
        click.echo(f"left {path}: it came from the earlier import and has changed since; it is not for these cases")
    _print_agreement(imported, written.files)
    _print_next_steps(imported, written.files)
    return 0


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
    click.Argument(["source"], type=click.Choice(sources.names())),
    click.Argument(["file"], type=click.Path(dir_okay=False, path_type=Path)),
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
