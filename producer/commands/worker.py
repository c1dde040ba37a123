"""`evalq worker`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from evalq.evalcore.errors import ConfigError

__all__ = ["COMMANDS"]


@click.command("worker")
@click.option("--broker", envvar="EVALQ_BROKER", metavar="URL", help="Redis, Valkey or RabbitMQ to serve.")
@click.option("--ledger", envvar="EVALQ_LEDGER", metavar="URL", help="Redis or Valkey of the ledger [the broker].")
@click.option(
    "--concurrency",
    envvar="EVALQ_CONCURRENCY",
    type=click.IntRange(0, 1024),
    help="Pool processes [one a core]; 0: none.",
)
@click.option("--calls", envvar="EVALQ_CALLS", type=click.IntRange(0, 10_000), help="Live calls in flight [none].")
@click.option(
    "--targets", envvar="EVALQ_TARGETS", type=click.Path(dir_okay=False), metavar="FILE", help="The agents to call."
)
@click.option(
    "--root",
    "roots",
    envvar="EVALQ_ROOT",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="A folder inputs may be read from [the current one]. Repeatable.",
)
@click.option("--preload", multiple=True, metavar="NAME", help="Load this evaluator before forking. Repeatable.")
@click.option("--settings", envvar="EVALQ_SETTINGS", type=click.Path(dir_okay=False), help="A YAML file of settings.")
@click.option(
    "--loglevel",
    default="WARNING",
    show_default=True,
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
)
@click.option("-q", "--quiet", is_flag=True, help="Do not say when it is ready.")
def _worker(
    roots: tuple[str, ...], preload: tuple[str, ...], settings: str | None, loglevel: str, quiet: bool, **given: Any
) -> int:
    """Compute chunks and make live calls for every run of this version on a broker, until SIGTERM."""
    # billiard reads it when it is imported: SIGTERM then lets running chunks end and gives the others back.
    os.environ.setdefault("REMAP_SIGTERM", "SIGQUIT")
    from evalq.workers.settings import load_settings

    chosen = load_settings(settings, roots=tuple(Path(root) for root in roots) or None, **given)
    if not chosen.broker:
        raise ConfigError("a worker needs a broker: --broker URL, EVALQ_BROKER, or broker: in the settings file")
    if chosen.calls and not chosen.targets:
        raise ConfigError("--calls needs a targets file: --targets FILE, EVALQ_TARGETS, or targets: in the settings")
    if chosen.calls:
        from evalq.workers.targets import load_targets

        load_targets(chosen.targets)
    if not chosen.processes:
        if not chosen.calls:
            raise ConfigError("a worker with --concurrency 0 has nothing to do without --calls N")
        from evalq.workers.callers.main import run_calls

        return run_calls(chosen, loglevel.upper(), quiet=quiet)
    from evalq.workers.pool.main import run_worker

    return run_worker(chosen, loglevel.upper(), preload, quiet=quiet)


COMMANDS = {"worker": _worker}
