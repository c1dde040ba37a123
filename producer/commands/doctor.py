"""`evalq doctor`: what is wrong here, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from evalcore import registry
from evalcore.errors import EvalqError
from evalcore.plan import QUEUE_CLASSES, queue_name
from evalcore.version import __version__, code_version
from producer.commands import SUMMARIES
from producer.commands import options as shared

__all__ = ["COMMANDS"]

Finding = tuple[str, str]


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
    from producer.embedded import embedded_server

    try:
        with embedded_server():
            yield "ok", "the embedded server starts"
    except EvalqError as error:
        yield "wrong", str(error)


def _server(settings: Any) -> Iterator[Finding]:
    """A broker that is a Redis or Valkey, or the ledger beside another broker."""
    from workers.connect import connect
    from workers.ledger import Ledger

    client: Any = connect(settings.ledger_url, settings)
    info = client.info()
    yield "ok", f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}"
    policy = info.get("maxmemory_policy", "unknown")
    if info.get("maxmemory") and policy != "noeviction":
        yield "wrong", f"maxmemory-policy is {policy}: the server may drop answers; set it to noeviction"
    if not info.get("aof_enabled"):
        yield "note", "no append-only file: a server crash loses what no run folder holds (it is computed again)"
    if info.get("rdb_last_bgsave_status") == "err":
        yield "wrong", "the last snapshot failed and the server may refuse writes: see its log"
    ledger = Ledger(client, settings)
    workers = ledger.workers()
    mine = [name for name, facts in workers.items() if facts.get("code") == code_version()]
    kind = "ok" if mine else "wrong"
    yield kind, f"{len(mine)} worker(s) of this code, {len(workers) - len(mine)} of other code"
    for name in QUEUE_CLASSES:
        queue = queue_name(name, code_version())
        yield "ok", f"queue {queue}: {client.llen(queue)} waiting"
    others = {queue for queue in ledger.runs().values() if not queue.endswith(code_version())}
    for queue in sorted(others):
        yield "note", f"runs wait in {queue}, which only workers of that code serve"


def _doctor(**given: Any) -> int:
    settings = shared.settings_from(given)
    findings = list(_here())
    findings += _server(settings) if settings.broker else _embedded()
    for kind, text in findings:
        click.echo(f"{kind:<6} {text}")
    return 3 if any(kind == "wrong" for kind, _ in findings) else 0


_command = click.Command(
    "doctor",
    callback=_doctor,
    help=SUMMARIES["doctor"],
    params=[option for option in shared.place_options() if option.name in ("broker", "ledger", "settings")],
)

COMMANDS = {"doctor": _command}
