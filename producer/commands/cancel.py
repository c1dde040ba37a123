"""End a run for good."""

from __future__ import annotations

import click

from evalq.evalcore.errors import UsageError
from evalq.producer.invocation.finding import find
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import server_options
from evalq.producer.lifecycle.cancel import await_driver, close, close_elsewhere, end_here, note_ending, refuse_unnamed


def _cancel(invocation: Invocation, run: str) -> None:
    with invocation.servers() as servers:
        if close_elsewhere(servers, run, "cancelled"):
            return
        folder = find(run)
        info = folder.info()
        if info.state == "done":
            raise UsageError(f"{folder.path}: this run is done; {folder.next_step('done')}")
        state = close(servers, info.run, "cancelled")
    if info.state != "cancelled":
        refuse_unnamed(servers, folder, state, "cancel")
    if state not in ("cancelled", "gone", None):
        raise UsageError(f"{info.run} cannot be cancelled: it is {state}; {folder.next_step(info.state)}")
    if state == "cancelled":
        if not note_ending(folder, "cancelled"):
            await_driver(folder)
    else:
        end_here(folder, info)
    click.echo(f"{info.run}: cancelled", err=True)


COMMAND = command(_cancel, click.Argument(["run"]), *server_options())
