"""Show or write the report of a finished run (the latest, if none is named) again."""

from __future__ import annotations

import msgspec

from evalq.producer.folder.documents import explain_unknown_form
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import output_options, run_argument, server_options
from evalq.producer.lifecycle.fetch import run_with_report
from evalq.producer.lifecycle.finish import refuse_unscored, show
from evalq.producer.outputs import check_outputs


def _report(invocation: Invocation, run: str | None) -> None:
    with invocation.servers() as servers:
        folder = run_with_report(run, servers)
    check_outputs(invocation.output.outputs, folder)
    info, report = folder.info(), folder.report()
    with explain_unknown_form(folder.final_path, report["evaluator"]):
        show(folder, report, info.request.options, msgspec.structs.replace(invocation.output, quiet=True))
    refuse_unscored(folder, report)


COMMAND = command(
    _report,
    run_argument(),
    *server_options(),
    *[option for option in output_options() if option.name in ("fmt", "outputs")],
)
