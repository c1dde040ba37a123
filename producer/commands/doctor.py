"""`evalq doctor`: what is wrong here, and what to do about it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from evalq.evalcore.contract import registry
from evalq.evalcore.errors import BrokerUnreachable, EvalqError, ServerRefused
from evalq.evalcore.version import __version__, code_version
from evalq.producer.commands import SUMMARIES
from evalq.producer.commands import options as shared
from evalq.producer.commands.heartbeat import worker_heard
from evalq.producer.monitor.diagnosis import Finding, diagnose
from evalq.workers.connections import server_options

if TYPE_CHECKING:
    from evalq.workers.settings import Settings

__all__ = ["COMMANDS"]


def _here() -> Iterator[Finding]:
    """This installation, without any server."""
    yield "ok", f"evalq {__version__}, code {code_version()}, Python {sys.version.split()[0]}"
    for name in registry.names():
        try:
            evaluator = registry.get(name)
            yield "ok", f"evaluator {name} {evaluator.version}"
        except Exception as error:  # whatever a plug-in's import raises is what the user has to see
            yield "wrong", f"evaluator {name} cannot be loaded: {error}"


def _embedded() -> Iterator[Finding]:
    from evalq.producer.local.embedded import embedded_server

    try:
        with embedded_server():
            yield "ok", "the embedded server starts"
    except EvalqError as error:
        yield "wrong", str(error)


def _deployment(settings: Settings) -> Iterator[Finding]:
    """The servers that the URLs name, and the workers on them."""
    from evalq.workers.monitor.watcher import Watch

    watch = Watch(settings)
    try:
        snapshot = watch.look()
    except (BrokerUnreachable, ServerRefused) as error:
        yield "wrong", str(error)
    else:
        yield from diagnose(snapshot, code_version(), time.time(), watch.codes(snapshot))
    finally:
        watch.close()


def _doctor(**given: Any) -> int:
    settings = shared.settings_from(given)
    if given["worker"]:
        return worker_heard(settings)
    findings = list(_here())
    findings += _deployment(settings) if settings.broker else _embedded()
    named = server_options(settings)
    for kind, text in findings:
        click.echo(f"{kind:<6} {text.replace('--broker URL', named) if settings.broker else text}")
    return 3 if any(kind == "wrong" for kind, _ in findings) else 0


_command = click.Command(
    "doctor",
    callback=_doctor,
    help=SUMMARIES["doctor"],
    params=[
        *[option for option in shared.place_options() if option.name in ("broker", "ledger", "settings")],
        click.Option(
            ["--worker"],
            is_flag=True,
            help="Only whether the ledger hears a worker of this host: 0 yes, 1 no, 3 it cannot be asked.",
        ),
    ],
)

COMMANDS = {"doctor": _command}
