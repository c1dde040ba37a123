"""`evalq demo`: every evaluation on sample data made on the spot, through an embedded server and local workers."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import click

from evalq.evalcore.contract import registry
from evalq.evalcore.contract.evaluator import Evaluator, Request
from evalq.evalcore.errors import StorageError, UsageError

__all__ = ["COMMANDS"]

_SEED = 20260224


@click.command("demo")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("evalq-demo"),
    show_default=True,
    help="Folder for data and reports; what an earlier demo left there is replaced.",
)
@click.option("--only", multiple=True, metavar="NAME", help="Only this evaluation. Repeatable.")
@click.option("--records", type=click.IntRange(1), help="Records for each evaluation, instead of its own number.")
@click.option("--data-only", is_flag=True, help="Make the data and stop.")
@click.option("--workers", envvar="EVALQ_WORKERS", type=click.IntRange(1, 1024), help="Worker processes [one a core].")
def _demo(out: Path, only: tuple[str, ...], records: int | None, data_only: bool, workers: int | None) -> None:
    """Every evaluation on sample data made on the spot, through real workers on an embedded server."""
    from evalq.producer.monitor.reporter import Reporter

    began = time.monotonic()
    try:
        samples = _samples(out, only, records)
    except OSError as error:
        raise StorageError.of(error, out, "run the demo again, or name another folder with --out") from error
    if data_only:
        return
    reporter = Reporter("records", quiet=False, bar=True, json_lines=False)
    folders = _evaluate(samples, out, workers, reporter)
    click.echo(f"\n{len(folders)} evaluations in {time.monotonic() - began:.1f} s. Look at them:\n")
    for folder in folders:
        click.echo(f"  less {folder}/report.md")
    click.echo(f"  evalq report {folders[0]} -o rows.csv\n  evalq status {folders[0]}")


def _samples(out: Path, only: tuple[str, ...], records: int | None) -> list[tuple[Evaluator[Any, Any], Request]]:
    unknown = set(only) - set(registry.names())
    if unknown:
        raise UsageError(f"--only {min(unknown)}: there are {', '.join(registry.names())}")
    found = []
    for name in only or registry.names():
        evaluator = registry.get(name)
        folder = out / "data" / name
        folder.mkdir(parents=True, exist_ok=True)
        for path in (out / "data", out / name, folder, *folder.rglob("*")):
            if path.is_symlink():
                raise UsageError(
                    f"{path}: a link, and the demo would write through it: remove it, or name another --out"
                )
        if evaluator.sample is not None:
            count = records or evaluator.sample.records
            found.append((evaluator, evaluator.sample.write(folder, count, _SEED)))
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            click.echo(f"{name:<14} {count:>9,} {evaluator.records.unit} made, {size / 1e6:.0f} MB")
    return found


def _evaluate(
    samples: list[tuple[Evaluator[Any, Any], Request]], out: Path, workers: int | None, reporter: Any
) -> list[Path]:
    from evalq.producer.folder.job import Job, RunOptions
    from evalq.producer.runs.execute import Backend, carry_out, shared_place
    from evalq.workers.settings import load_settings

    folders = []
    names = [evaluator.name for evaluator, _ in samples]
    data = [(out / "data" / evaluator.name).resolve() for evaluator, _ in samples]
    with shared_place(
        Backend(load_settings(broker="", ledger=""), workers=workers), [Path.cwd(), *data], *names, reporter=reporter
    ) as place:
        for evaluator, request in samples:
            folder = out / evaluator.name
            if (folder / "run.json").is_file():
                shutil.rmtree(folder)
            began = time.monotonic()
            report = carry_out(Job.start(evaluator, request, RunOptions(out=folder, suite="demo")), place, reporter)
            seconds = time.monotonic() - began
            click.echo(f"{evaluator.name:<14} {report['records']['total']:>9,} records evaluated in {seconds:.1f} s")
            folders.append(folder)
    return folders


COMMANDS = {"demo": _demo}
