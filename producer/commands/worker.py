"""Serve a broker's queues.

Compute chunks and make live calls for every run of this version on a broker, until SIGTERM.
"""

from __future__ import annotations

import contextlib
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalq.evalcore.errors import ConfigError
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import option, scorer_option

if TYPE_CHECKING:
    from evalq.workers.settings import Settings


def _worker(
    invocation: Invocation,
    concurrency: int | None,
    roots: tuple[str, ...],
    preload: tuple[str, ...],
    loglevel: str,
    submit: str | None,
) -> int:
    # billiard reads it when it is imported: SIGTERM then lets running chunks end and gives the others back.
    os.environ["REMAP_SIGTERM"] = "SIGQUIT"
    from evalq.workers.processes.system import require_forks
    from evalq.workers.settings import load_settings

    require_forks()
    where, quiet = invocation.where, invocation.output.quiet
    named = {"broker": where.broker, "ledger": where.ledger, "calls": where.calls, "targets": where.targets}
    named |= {"scorer": where.scorer, "submit": submit}
    folders = tuple(Path(root) for root in roots) or None
    chosen = load_settings(where.settings, roots=folders, concurrency=concurrency, **named)
    if not chosen.broker:
        raise ConfigError("a worker needs a broker: --broker URL, EVALQ_BROKER, or broker: in the settings file")
    if chosen.calls and not chosen.targets:
        raise ConfigError("--calls needs a targets file: --targets FILE, EVALQ_TARGETS, or targets: in the settings")
    if chosen.calls:
        from evalq.workers.processes.environment import seal
        from evalq.workers.targets import key_names, load_targets

        seal(key_names(load_targets(chosen.targets)))
    if not (chosen.processes or chosen.calls or chosen.submit):
        raise ConfigError("a worker with --concurrency 0 has nothing to do without --calls N or --submit FOLDER")
    with _requests(chosen):
        return _serve(chosen, loglevel.upper(), preload, quiet=quiet)


def _requests(chosen: Settings) -> AbstractContextManager[None]:
    """The process for requests of other programs, where the settings ask for one."""
    if not chosen.submit or not (chosen.processes or chosen.calls):
        return contextlib.nullcontext()
    from evalq.producer.door.serving import door_beside

    return door_beside(chosen)


def _serve(chosen: Settings, loglevel: str, preload: tuple[str, ...], *, quiet: bool) -> int:
    if chosen.processes:
        from evalq.workers.pool.main import run_worker

        return run_worker(chosen, loglevel, preload, quiet=quiet)
    if chosen.calls:
        from evalq.workers.callers.main import run_calls

        return run_calls(chosen, loglevel, quiet=quiet)
    from evalq.producer.door.serving import serve
    from evalq.workers.processes.identity import log_to_stderr

    log_to_stderr(loglevel)
    return serve(chosen)


COMMAND = command(
    _worker,
    option("--broker", metavar="URL", help="Redis, Valkey or RabbitMQ to serve."),
    option("--ledger", metavar="URL", help="Redis or Valkey of the ledger [the broker]."),
    option(
        "--concurrency",
        type=click.IntRange(0, 1024),
        help="Worker processes [one per usable CPU]; with 0, only make calls.",
    ),
    option(
        "--calls",
        type=click.IntRange(0, 10_000),
        help="Make at most this many live calls at once [none: only compute].",
    ),
    option("--targets", type=click.Path(dir_okay=False), metavar="FILE", help="The agents to call."),
    option(
        "--root",
        "roots",
        multiple=True,
        type=click.Path(exists=True, file_okay=False),
        help="Read inputs from this folder [the current one]. Repeatable.",
    ),
    option(
        "--submit",
        type=click.Path(exists=True, file_okay=False),
        metavar="FOLDER",
        help="Begin runs of files below it for other programs, by the Celery task evalq.submit.",
    ),
    scorer_option(),
    click.Option(["--preload"], multiple=True, metavar="NAME", help="Load this evaluator before forking. Repeatable."),
    option("--settings", type=click.Path(dir_okay=False), metavar="FILE", help="A YAML file of settings."),
    click.Option(
        ["--loglevel"],
        default="WARNING",
        show_default=True,
        type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
        help="How much to log on standard error.",
    ),
    click.Option(["-q", "--quiet"], is_flag=True, help="Do not say when the worker is ready."),
)
