"""Resume a run (the latest, if none is named) that was interrupted or killed."""

from __future__ import annotations

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


def _resume(invocation: Invocation, run: str | None) -> None:
    from evalq.producer.lifecycle.join import begin_larger, resume_or_take
    from evalq.producer.outputs import check_outputs
    from evalq.producer.run.backend import refuse_ended

    folder = find(run)
    check_outputs(invocation.output.outputs, folder)
    info, backend, budgets = folder.info(), invocation.backend(), invocation.live.budgets
    reporter = invocation.output.reporter(plugins.get(info.evaluator).records.unit)
    with report_errors(reporter):
        begin_larger(folder, backend, budgets)
        refuse_ended(folder)
        with name_server(backend):
            resume_or_take(folder, backend, reporter, budgets)
        conclude(folder, invocation, reporter)


COMMAND = command(_resume, run_argument(), *place_options(), *calling_options(), scorer_option(), *output_options())
