"""Call the cases of a finished sweep more often, or call another target, without repeating paid calls.

This makes a new run, and RUN stays as it is. The new run takes over what RUN recorded if the target and its settings
are the same. Without --once, the same command is the same run: it shows the report, or resumes. With another budget it
is another run. If a budget ended a run, `evalq resume NEW --max-calls N` makes the remaining calls. A gate does not
count answers taken over as new evidence, and counts each extension as one more interim look.
"""

from __future__ import annotations

import click

from evalq.evalcore.contract import plugins
from evalq.producer.invocation.finding import find
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import calling_options, output_options, place_options, run_options
from evalq.producer.lifecycle.finish import conclude, report_errors
from evalq.producer.lifecycle.start import begin_or_join, name_server


def _extend(invocation: Invocation, run: str, more: int | None, other: str, cases: tuple[str, ...]) -> None:
    from evalq.producer.outputs import check_output, check_outputs
    from evalq.producer.sweep.estimate import estimate
    from evalq.producer.sweep.execute import with_targets
    from evalq.producer.sweep.extension import Extension, extension_of

    folder = find(run)
    check_outputs(invocation.output.outputs, folder)
    for path in invocation.output.outputs:
        check_output(path, cases)
    backend = with_targets(invocation.backend(), folder)
    wanted = Extension(more, other, cases, *invocation.live.budgets, invocation.live.cache or "")
    reporter = invocation.output.reporter(plugins.get(folder.info().evaluator).records.unit)
    options = invocation.start.options(backend.settings.unpack_bytes)
    with report_errors(reporter):
        if invocation.start.dry_run:
            sweep, live = extension_of(folder, wanted)
            request = sweep.request_of(cases)
            for line in estimate(sweep.evaluator, request, live, backend.settings):
                click.echo(line)
            return
        with name_server(backend):
            begun = begin_or_join(lambda: wanted.begin(folder, options), backend, reporter, detach=False)
        assert begun is not None, "extend never detaches"
        conclude(begun, invocation, reporter)


_RUN_OPTIONS = {"out", "tags", "once", "dry_run"}

COMMAND = command(
    _extend,
    click.Argument(["run"]),
    # Not from EVALQ_REPEAT and EVALQ_TARGET: they are meant for sweeps that begin anew.
    click.Option(["--repeat", "more"], type=click.IntRange(1, 1_000_000), metavar="N",
                 help="How often each case is called in all [as often as in RUN]."),
    click.Option(["--target", "other"], default="", metavar="NAME", help="Call this target instead of RUN's."),
    click.Option(["--cases", "cases"], multiple=True, type=click.Path(exists=True), metavar="FILE",
                 help="Use these cases instead of RUN's, such as its file with more of them. Repeatable."),
    click.Option(["--cache"], type=click.Path(dir_okay=False), metavar="FILE",
                 help="Take further answers, and judges' answers, from FILE, and add new ones to it."),
    *[option for option in run_options() if option.name in _RUN_OPTIONS],
    *place_options(),
    *calling_options(),
    *output_options(),
)  # fmt: skip
