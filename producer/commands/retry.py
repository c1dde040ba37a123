"""Try again the records and calls without a result in a finished run (the latest, if none is named)."""

from __future__ import annotations

import click

from evalq.evalcore.contract import plugins
from evalq.producer.invocation.finding import find
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import (
    calling_options,
    output_options,
    place_options,
    run_argument,
    scorer_option,
)
from evalq.producer.lifecycle.finish import conclude, report_errors
from evalq.producer.lifecycle.start import name_server


def _retry(invocation: Invocation, run: str | None, errors: bool) -> None:
    from evalq.producer.lifecycle.join import begin_retry, refuse_uncallable, resume_any
    from evalq.producer.outputs import check_outputs
    from evalq.producer.run.backend import hold_folder

    del errors  # the default, with or without the option
    folder, backend = find(run), invocation.backend()
    check_outputs(invocation.output.outputs, folder)
    reporter = invocation.output.reporter(plugins.get(folder.info().evaluator).records.unit)
    with report_errors(reporter):
        with hold_folder(folder, backend):
            refuse_uncallable(folder, backend)
            begin_retry(folder)
        with name_server(backend):
            resume_any(folder, backend, reporter, invocation.live.budgets)
        conclude(folder, invocation, reporter)


COMMAND = command(
    _retry,
    run_argument(),
    click.Option(
        ["--errors"],
        is_flag=True,
        help="Try the records that killed their process, and the calls without an output. This is the default.",
    ),
    *place_options(),
    *calling_options(),
    scorer_option(),
    *output_options(),
)
