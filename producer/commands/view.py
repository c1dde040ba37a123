"""Look at runs in a browser: an index, each run's page, two side by side, and the history of a suite."""

from __future__ import annotations

import webbrowser

import click

from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.canonical import canonical_json
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import server_options


def _view(invocation: Invocation, runs: tuple[str, ...], port: int, open_browser: bool, as_json: bool) -> int:
    from evalq.producer.viewing.frame import link
    from evalq.producer.viewing.server import Site, ViewServer
    from evalq.producer.viewing.viewer import Viewer

    with invocation.servers() as servers:
        viewer = Viewer(runs, servers)
        try:
            server = ViewServer(Site(viewer), port)
        except OSError as error:
            raise UsageError(f"port {port} of this machine: {error.strerror}; name another with --port") from error
        asked = viewer.catalogue.asked
        path = "/"
        if len(asked) == len(runs) == 1:
            path = link("run", asked[0])
        elif len(asked) == len(runs) == 2:
            path = link("compare", base=asked[0], cand=asked[1])
        with server:
            address = server.address(path)
            click.echo(canonical_json({"url": address}) if as_json else address)
            try:
                if open_browser and not webbrowser.open(server.address(path, once=True)):
                    click.echo("no browser could be started here: open the address above", err=True)
                server.serve_forever(poll_interval=0.2)
            except KeyboardInterrupt:
                return 0
    return 0


COMMAND = command(
    _view,
    click.Argument(["runs"], nargs=-1, metavar="[RUN...]"),
    # Not from the environment: there EVALQ_PORT is the exporter's.
    click.Option(["--port"], type=click.IntRange(0, 65535), default=0, help="Port of this machine [a free one]."),
    click.Option(["--open", "open_browser"], is_flag=True, help="Open it in a browser."),
    click.Option(["--json", "as_json"], is_flag=True, help="Print the address as a JSON line."),
    *server_options(),
    text=(
        "Look at runs in a browser: an index, each run's page, two side by side, and the history of a suite.\n\n"
        "It shows the runs in ./evalq-runs, those in the folders given as RUN, and with --broker those in the ledger. "
        "With one RUN the address leads to its page, with two to their comparison. The server answers only "
        "this machine, only with the token in the address, and changes nothing. Ctrl-C ends it."
    ),
)
