"""`evalq exporter`."""

from __future__ import annotations

import logging
from typing import Any

import click

from evalq.evalcore.errors import ConfigError, UsageError

__all__ = ["COMMANDS"]


@click.command("exporter")
@click.option("--broker", envvar="EVALQ_BROKER", metavar="URL", help="Redis, Valkey or RabbitMQ with the queues.")
@click.option("--ledger", envvar="EVALQ_LEDGER", metavar="URL", help="Redis or Valkey of the ledger [the broker].")
@click.option("--port", envvar="EVALQ_PORT", type=click.IntRange(0, 65535), default=9808, show_default=True)
@click.option("--bind", envvar="EVALQ_BIND", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--settings", envvar="EVALQ_SETTINGS", type=click.Path(dir_okay=False), help="A YAML file of settings.")
def _exporter(port: int, bind: str, settings: str | None, **given: Any) -> None:
    """Show the ledger as Prometheus metrics on /metrics, with /healthz and /readyz, until SIGTERM."""
    from evalq.workers.connections import is_redis, redacted
    from evalq.workers.exporter.server import Exporter
    from evalq.workers.settings import load_settings

    chosen = load_settings(settings, **given)
    if not chosen.broker:
        raise ConfigError("an exporter needs a broker: --broker URL, EVALQ_BROKER, or broker: in the settings file")
    if not is_redis(chosen.ledger_url):
        raise ConfigError(f"{redacted(chosen.ledger_url)}: the ledger is on Redis or Valkey; give --ledger too")
    logging.basicConfig(level="WARNING", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        exporter = Exporter(chosen, bind, port)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {bind}:{port}: {error.strerror or error}; choose --bind and --port"
        ) from error
    click.echo(f"metrics at http://{bind}:{exporter.port}/metrics", err=True)
    exporter.serve()


COMMANDS = {"exporter": _exporter}
