"""Show or write the report of a finished run (the latest, if none is named) again."""

from __future__ import annotations

import msgspec

from evalq.evalcore.errors import WireError
from evalq.producer.attending.fetch import run_with_report
from evalq.producer.attending.finish import refuse_unscored, show
from evalq.producer.invocation.declare import command
from evalq.producer.invocation.invocation import Invocation
from evalq.producer.invocation.options import output_options, run_argument, server_options
from evalq.producer.outputs import check_outputs

__all__ = ["COMMAND"]


def _report(invocation: Invocation, run: str | None) -> None:
    with invocation.servers() as servers:
        folder = run_with_report(run, servers)
    check_outputs(invocation.output.outputs, folder)
    info, report = folder.info(), folder.report()
    try:
        show(folder, report, info.request.options, msgspec.structs.replace(invocation.output, quiet=True))
    except (LookupError, TypeError, AttributeError) as error:  # written by other code, or changed since
        told = f"{type(error).__name__}: {error}"
        raise WireError(
            f"{folder.place}: its report is not of the form that this version of {report['evaluator']} shows ({told}): "
            "show it with the version that wrote it (evalq --version), or evaluate again"
        ) from error
    refuse_unscored(folder, report)


COMMAND = command(
    _report,
    run_argument(),
    *server_options(),
    *[option for option in output_options() if option.name in ("fmt", "outputs")],
)
