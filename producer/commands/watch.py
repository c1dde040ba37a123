"""Wait for a run (the latest, if none is named) and show its report."""

from __future__ import annotations

import contextlib

from evalq.evalcore.errors import EvalqError
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.finding import elsewhere, find
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import output_options, run_argument, server_options
from evalq.producer.lifecycle.fetch import run_with_report
from evalq.producer.lifecycle.finish import conclude, report_errors
from evalq.producer.monitor import fleet
from evalq.producer.monitor.progress import Reporter
from evalq.producer.servers import Servers


def _watch(invocation: Invocation, run: str | None) -> None:
    """Wait until a run has its report. Watching computes and changes nothing."""
    from evalq.producer.lifecycle.watch import attend_fleet
    from evalq.producer.outputs import check_outputs

    reporter = invocation.output.reporter("records")
    with invocation.servers() as servers, report_errors(reporter):
        if run is not None and elsewhere(run, servers):
            attend_fleet(run, servers, reporter)
            folder = run_with_report(run, servers)
        else:
            folder = find(run)
            check_outputs(invocation.output.outputs, folder)
            _wait(folder, servers, reporter)
        conclude(folder, invocation, reporter)


def _wait(folder: RunFolder, servers: Servers, reporter: Reporter) -> None:
    """Wait until the run in ``folder`` has its report."""
    from evalq.producer.lifecycle.join import ended_error, resume_any, see_elsewhere
    from evalq.producer.lifecycle.watch import attend_fleet, watch_driver
    from evalq.producer.run.backend import Backend

    watch_driver(folder, reporter, lambda: _fleet(servers))
    see_elsewhere(folder, servers, reporter)
    info = folder.info()
    if info.state == "detached":
        attend_fleet(info.run, servers, reporter, folder)
        # The fleet has finished: bring its answers into the folder.
        resume_any(folder, Backend(servers.settings), reporter)
    elif info.state != "done":
        raise ended_error(folder, info.state)


def _fleet(servers: Servers) -> str:
    """The fleet's state; empty if no server is named, or it does not answer."""
    with contextlib.suppress(EvalqError):
        return str(fleet.fleet_of(servers.watch.snapshot())) if servers.named else ""
    return ""


COMMAND = command(_watch, run_argument(), *server_options(), *output_options())
