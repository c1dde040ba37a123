"""End a run for good."""

from __future__ import annotations

import click

from evalq.evalcore.errors import Driven, UsageError
from evalq.evalcore.model.life import next_step
from evalq.producer.attending.closing import await_driver, close, closed_elsewhere, note
from evalq.producer.invocation.declare import command
from evalq.producer.invocation.finding import find
from evalq.producer.invocation.invocation import Invocation
from evalq.producer.invocation.options import server_options

__all__ = ["COMMAND"]


def _cancel(invocation: Invocation, run: str) -> None:
    with invocation.servers() as servers:
        if closed_elsewhere(servers, run, "cancelled"):
            return
        folder = find(run)
        info = folder.info()
        if info.state == "done":
            raise UsageError(f"{folder.path}: this run is done; {next_step('done', folder.path)}")
        state = close(servers, info.run, "cancelled")
    if state not in ("cancelled", "gone", None):
        raise UsageError(f"{info.run} cannot be cancelled: it is {state}; {next_step('done', folder.path)}")
    if not note(folder, "cancelled"):
        if state != "cancelled":
            raise Driven(info.run, f"{folder.driver()}: end that one with Ctrl-C, or name its server with --broker URL")
        await_driver(folder)
    click.echo(f"{info.run}: cancelled", err=True)


COMMAND = command(_cancel, click.Argument(["run"]), *server_options())
