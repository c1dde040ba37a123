"""Run every evaluation on sample data.

The command makes up the data. Real workers on an embedded server evaluate it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, Request
from evalq.evalcore.errors import StorageError, UsageError
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import option

if TYPE_CHECKING:
    from evalq.producer.monitor.progress import Reporter


_SEED = 20260224
_SUITE = "demo"


def _demo(invocation: Invocation, out: Path, only: tuple[str, ...], records: int | None, data_only: bool) -> None:
    from evalq.workers.processes.system import require_forks

    if not data_only:
        require_forks()
    began = time.monotonic()
    try:
        samples = _samples(out, only, records)
    except OSError as error:
        raise StorageError.of(error, out, "run the demo again, or name another folder with --out") from error
    if data_only:
        return
    folders = _evaluate(samples, out, invocation.where.workers, invocation.output.reporter("records"))
    click.echo(
        f"\n{len(folders)} evaluations in {time.monotonic() - began:.1f} s. The reports are the same every time."
    )
    for folder in folders[:1]:
        program, name = _program(), shlex.quote(str(folder))
        click.echo(
            f"""
Open the reports:         {program} view {shlex.quote(str(out))}
  or one of them:         {name}/report.html
Take rows away:           {program} report {name} -o rows.csv
Start with your agent:    {program} init"""
        )


def _program() -> str:
    """How to call this program from the current folder."""
    own = Path(sys.argv[0])
    return "evalq" if shutil.which("evalq") or own.name != "evalq" else shlex.quote(os.path.relpath(own))


def _samples(out: Path, only: tuple[str, ...], records: int | None) -> list[tuple[Evaluator[Any, Any], Request]]:
    unknown = set(only) - set(plugins.names())
    if unknown:
        raise UsageError(f"--only {min(unknown)}: no such evaluation; there are {', '.join(plugins.names())}")
    found = []
    click.echo("Sample data:")
    for name in only or plugins.names():
        evaluator = plugins.get(name)
        _refuse_others(out / name)
        folder = out / "data" / name
        folder.mkdir(parents=True, exist_ok=True)
        for path in (out / "data", out / name, folder, *folder.rglob("*")):
            if path.is_symlink():
                raise UsageError(
                    f"{path}: a link, and the demo would write through it; remove it, or name another folder with --out"
                )
        if evaluator.sample is not None:
            count = records or evaluator.sample.records
            found.append((evaluator, evaluator.sample.write(folder, count, _SEED)))
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            click.echo(f"  {name:<14} {count:>9,} {evaluator.records.unit:<11} {size / 1e6:>7.1f} MB")
    return found


def _refuse_others(folder: Path) -> None:
    """Raise UsageError for a run that no demo made: its calls may have cost money."""
    if (folder / "run.json").is_file() and RunFolder(folder).info().suite != _SUITE:
        raise UsageError(f"{folder}: not a run of the demo, which would replace it; name another folder with --out")


def _evaluate(
    samples: list[tuple[Evaluator[Any, Any], Request]], out: Path, workers: int | None, reporter: Reporter
) -> list[Path]:
    from evalq.producer.folder.job import Job, RunOptions
    from evalq.producer.outputs.final import run_json_facts
    from evalq.producer.run.backend import Backend, shared_backend
    from evalq.producer.run.execute import carry_out
    from evalq.workers.processes.system import usable_cpus
    from evalq.workers.settings import load_settings

    folders = []
    names = [evaluator.name for evaluator, _ in samples]
    data = [(out / "data" / evaluator.name).resolve() for evaluator, _ in samples]
    processes = workers or usable_cpus()
    backend = Backend(load_settings(broker="", ledger=""), workers=processes)
    click.echo(f"\nEvaluations, on an embedded server with {processes} worker process{'' if processes == 1 else 'es'}:")
    with shared_backend(backend, [Path.cwd(), *data], *names, reporter=reporter) as shared:
        for evaluator, request in samples:
            folder = out / evaluator.name
            if (folder / "run.json").is_file():
                shutil.rmtree(folder)
            began = time.monotonic()
            report = carry_out(Job.start(evaluator, request, RunOptions(out=folder, suite=_SUITE)), shared, reporter)
            seconds = time.monotonic() - began
            facts = run_json_facts(evaluator, report)
            click.echo(
                f"  {evaluator.name:<14} {facts['records']:>9,} records {seconds:>9.1f} s   {facts['result'] or ''}"
            )
            folders.append(folder)
    return folders


COMMAND = command(
    _demo,
    click.Option(
        ["--out"],
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("evalq-demo"),
        show_default=True,
        help="Folder for data and reports; what an earlier demo left there is replaced.",
    ),
    click.Option(["--only"], multiple=True, metavar="NAME", help="Only this evaluation. Repeatable."),
    click.Option(["--records"], type=click.IntRange(1), help="Records for each evaluation [its own number]."),
    click.Option(["--data-only"], is_flag=True, help="Make the data and stop."),
    option("--workers", type=click.IntRange(1, 1024), help="Worker processes [one per usable CPU]."),
)
