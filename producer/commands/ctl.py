"""Steer a run's live calls: list those in flight, hold, cancel or re-queue cases, and set a target's limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.views.markdown import plural, printed, table
from evalq.producer.invocation.finding import elsewhere, find
from evalq.producer.invocation.invocation import Invocation, command, echo_markdown
from evalq.producer.invocation.options import as_json, run_argument, server_options
from evalq.producer.lifecycle.cancel import refuse_unnamed
from evalq.producer.servers import Servers

if TYPE_CHECKING:
    from evalq.workers.ledger.steering import Steering

_LIMIT = re.compile(r"(?P<target>[^=]+)=(?P<value>\d+(\.\d+)?|file)")


def _ctl(
    invocation: Invocation,
    run: str | None,
    hold: tuple[str, ...],
    go_on: tuple[str, ...],
    cancel_case: tuple[str, ...],
    requeue: tuple[str, ...],
    rate: tuple[str, ...],
    in_flight: tuple[str, ...],
    as_json: bool,
) -> None:
    limits = [("rate", each) for each in rate] + [("in_flight", each) for each in in_flight]
    given = [(name, *_limit(name, text)) for name, text in limits]
    with invocation.servers() as servers:
        sweeps = _sweeps(servers, run)
        pools = _pools(sweeps)
        for _, target, _ in given:
            if target not in pools:
                raise UsageError(f"this run calls no target {target!r} (it calls: {', '.join(sorted(pools))})")
        _steer_cases(servers, sweeps, hold, go_on, cancel_case, requeue)
        from evalq.workers.ledger.steering import set_limits

        for name, target, value in given:
            set_limits(servers.client, target, **({"rate": value} if name == "rate" else {"in_flight": int(value)}))
            limit = "as in the targets file" if value < 0 else f"{value:g}" if value else "no limit"
            what = "calls a minute" if name == "rate" else "calls in flight"
            click.echo(printed(f"{target}: {what}: {limit}, on all callers within a second"), err=True)
        if as_json:
            click.echo(canonical_json(_facts(servers, sweeps)))
        elif not (hold or go_on or cancel_case or requeue or given):
            _show(servers, sweeps)


def _sweeps(servers: Servers, run: str | None) -> list[Steering]:
    """The sweeps of a run: its own, and those of its judges. Raises UsageError if the servers have none."""
    from evalq.workers.ledger.steering import Steering

    if not servers.named:
        raise UsageError(
            "evalq ctl steers calls of a fleet: name its server with --broker URL. A command that makes its calls "
            "itself can be stopped with Ctrl-C, and resumed"
        )
    name = run if run is not None and elsewhere(run, servers) else None
    if name is None:
        folder = find(run)
        name = folder.info().run
        if servers.sweeps.header(name) is None:
            refuse_unnamed(servers, folder, "gone", "ctl")
    names = [each for each in (name, *servers.sweeps.judge_sweeps(name)) if servers.sweeps.header(each) is not None]
    if not names:
        raise UsageError(f"{name}: these servers have no live calls of it")
    return [Steering(servers.sweeps, each) for each in names]


def _limit(name: str, text: str) -> tuple[str, float]:
    found = _LIMIT.fullmatch(text)
    value = -1.0 if found and found["value"] == "file" else float(found["value"]) if found else 0.0
    if found is None or (name == "in_flight" and value != int(value)):
        raise UsageError(
            f"--{name.replace('_', '-')} {text}: write TARGET=N, a number from 0 on (0: no limit), or TARGET=file for "
            "the limit of the targets file"
        )
    return found["target"].strip(), value


def _pools(sweeps: list[Steering]) -> set[str]:
    """The targets that the sweeps call; those with other parameters share one pace."""
    from evalq.workers.targets.variable import split_name

    return {split_name(each.header.target)[0] for each in sweeps}


def _steer_cases(
    servers: Servers,
    sweeps: list[Steering],
    hold: tuple[str, ...],
    go_on: tuple[str, ...],
    cancel_case: tuple[str, ...],
    requeue: tuple[str, ...],
) -> None:
    named = {*hold, *go_on, *cancel_case, *requeue}
    if not named:
        return
    numbers = [{prompt.case: number for number, prompt in each.prompts().items()} for each in sweeps]
    if unknown := sorted(name for name in named if not any(name in known for known in numbers)):
        raise UsageError(f"no case {', '.join(map(repr, unknown))} in this run: evalq ctl RUN lists those in flight")
    for sweep, known in zip(sweeps, numbers, strict=True):
        state = servers.sweeps.poll(sweep.header.run)
        if (cancel_case or requeue) and (state is None or state.state != "open"):
            raise UsageError(f"{sweep.header.run}: its calls are over ({state.state if state else 'gone'})")
        _each(hold, known, sweep.hold, "held back: no further call of it is made")
        _each(go_on, known, lambda cases, sweep=sweep: sweep.hold(cases, go=True), "goes on")  # type: ignore[misc]  # a lambda with a default
        for name in requeue:
            if name in known:
                count = sweep.requeue([known[name]])
                click.echo(printed(f"{name}: {plural(count, 'call')} in flight made again"), err=True)
        for name in cancel_case:
            if name in known:
                count = sweep.cancel({known[name]: sweep.prompts()[known[name]]}, _config(servers, sweep))
                click.echo(printed(f"{name}: cancelled; {plural(count, 'call')} had no output"), err=True)


def _each(names: tuple[str, ...], known: Mapping[str, int], step: Callable[[list[int]], None], done: str) -> None:
    if cases := [known[name] for name in names if name in known]:
        step(cases)
    for name in (name for name in names if name in known):
        click.echo(printed(f"{name}: {done}"), err=True)


def _config(servers: Servers, sweep: Steering) -> str:
    """The digest of the settings that a living process calls the target by; empty without one."""
    from evalq.workers.callers.choices import known_facts

    for caller in servers.heartbeats.callers().values():
        facts = known_facts(caller.targets, sweep.header.target)
        if facts is not None and caller.code == sweep.header.code:
            return facts.config
    return ""


def _facts(servers: Servers, sweeps: list[Steering]) -> dict[str, Json]:
    from evalq.workers.ledger.steering import limits

    calls: list[Json] = []
    held: list[Json] = []
    for sweep in sweeps:
        prompts = sweep.prompts()
        names = {number: prompt.case for number, prompt in prompts.items()}
        for each in sweep.in_flight():
            case, repeat = each.call % sweep.header.cases, each.call // sweep.header.cases
            seconds = None if each.seconds is None else round(each.seconds, 1)
            facts: dict[str, Json] = {"case": names.get(case, str(case)), "repeat": repeat, "seconds": seconds}
            calls.append({**facts, "tries": each.tries, "process": each.holder, "target": sweep.header.target})
        held += [names.get(case, str(case)) for case in sweep.held_back()]
    set_now = {pool: limits(servers.client, pool) for pool in sorted(_pools(sweeps))}
    return {
        "calls": calls,
        "held": held,
        "limits": {pool: {"rate": each.rate, "in_flight": each.in_flight} for pool, each in set_now.items()},
    }


def _show(servers: Servers, sweeps: list[Steering]) -> None:
    facts = _facts(servers, sweeps)
    rows: list[tuple[object, ...]] = []
    for call in facts["calls"]:
        waits = "waits for its turn" if call["seconds"] is None else f"{call['seconds']:.0f} s"
        rows.append((call["case"], call["repeat"], waits, call["tries"], call["target"], call["process"]))
    if rows:
        echo_markdown(table(("case", "repeat", "in flight for", "tries", "target", "process"), rows))
    else:
        click.echo("no calls in flight")
    for case in facts["held"]:
        click.echo(printed(f"held back: {case}"))
    for pool, each in facts["limits"].items():
        for name, value in each.items():
            if value is not None:
                click.echo(printed(f"{pool}: {name.replace('_', ' ')} set to {value:g}"))


# Without variables: one that stays in an environment would steer every run.
COMMAND = command(
    _ctl,
    run_argument(),
    click.Option(
        ["--hold"], multiple=True, metavar="CASE", help="Make no further call of a case until it is released."
    ),
    click.Option(["--release", "go_on"], multiple=True, metavar="CASE", help="Let a held case go on."),
    click.Option(["--cancel", "cancel_case"], multiple=True, metavar="CASE", help="Give a case up: it counts as lost."),
    click.Option(["--requeue"], multiple=True, metavar="CASE", help="Drop a case's calls in flight, make them again."),
    click.Option(
        ["--rate"], multiple=True, metavar="TARGET=N", help="Most calls a minute, fleet-wide; `file`: the file's."
    ),
    click.Option(["--in-flight"], multiple=True, metavar="TARGET=N", help="Most calls at once; `file`: the file's."),
    as_json(),
    *server_options(),
)
