"""Show the runs of each suite that finished, and whether they get worse."""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec

from evalq.evalcore.errors import UsageError
from evalq.evalcore.views.markdown import printed
from evalq.producer.comparing.drifting import SuiteHistory, drift_lines, histories, replaced_lines
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import as_json, server_options


def _history(invocation: Invocation, suites: tuple[str, ...], runs: int, as_json: bool) -> None:
    with invocation.servers() as servers:
        every, named = histories(servers, runs), servers.named
    known = sorted({each.suite for each in every})
    for suite in suites:
        if suite not in known:
            raise UsageError(f"suite {suite!r} has no history (known suites: {', '.join(known) or 'none'})")
    shown = [each for each in every if not suites or each.suite in suites]
    if as_json:
        click.echo(msgspec.json.encode(shown))
        return
    for each in shown:
        for line in _lines(each):
            click.echo(printed(line))
    if not shown:
        where = "this ledger" if named else "./evalq-runs (--broker URL: in a ledger)"
        click.echo(f"no run has finished yet in {where}", err=True)


_WHY_NOT_WATCHED = (
    "drift is not watched: its runs declare no measures, or have no answers, too many records, or cases that --stop "
    "ended early"
)


_WHY_NOT_COUNTED = (
    "nothing in it was answered, its answers were counted before, it follows a log, has too many records, or cases "
    "that --stop ended early"
)


def _lines(history: SuiteHistory) -> Iterator[str]:
    yield " · ".join(filter(None, history.place))
    drift = list(drift_lines(history.drift))
    for line in drift or [_WHY_NOT_WATCHED]:
        yield f"  {line}"
    # Otherwise "No drift" would seem to include this run.
    if drift and history.runs and history.runs[0].run not in {chain.run for chain in history.drift}:
        yield f"  Run {history.runs[0].run} is newer than what drift counts: {_WHY_NOT_COUNTED}."
    for line in replaced_lines(history.replaced):
        yield f"  {line}"
    for finished in history.runs:
        faulty = finished.records.get("errors", 0) + finished.records.get("dead", 0)
        yield f"  {finished.run:<28} {finished.when:<26} {finished.records.get('total', 0):>9,} records" + (
            f", {faulty:,} faulty" if faulty else ""
        )
        values = ", ".join(f"{name.removeprefix('evalq_')} {value:.4g}" for name, value in finished.metrics.items())
        if values:
            yield f"    {values}"
    yield ""


COMMAND = command(
    _history,
    click.Argument(["suites"], nargs=-1, metavar="[SUITE]..."),
    click.Option(
        ["--runs"],
        type=click.IntRange(0, 10_000),
        default=10,
        show_default=True,
        metavar="N",
        help="Show only the N newest runs; drift is counted over all of them.",
    ),
    as_json(),
    *server_options(),
    text="Show the runs of each suite that finished, and whether they get worse.\n\nA detector that raises at most one "
    "false alarm in 1,000 unchanged runs looks for drift. It says since which run, by how much, and on what "
    "evidence. With --broker the ledger's history is shown; without it the runs in ./evalq-runs are counted again, in "
    "the order they began.",
)
