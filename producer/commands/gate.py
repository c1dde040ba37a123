"""Decide by a policy whether a run may pass: GO (exit 0), NO-GO (1) or INCONCLUSIVE (4)."""

from __future__ import annotations

import click
import msgspec

from evalq.producer.comparing.gating import candidates_of, gate_runs, load_policy
from evalq.producer.comparing.text import decision_text
from evalq.producer.invocation.declare import command
from evalq.producer.invocation.invocation import Invocation
from evalq.producer.invocation.options import allow_inconclusive as may_be_inconclusive
from evalq.producer.invocation.options import as_json, option, server_options

__all__ = ["COMMAND"]


def _gate(
    invocation: Invocation,
    candidates: tuple[str, ...],
    policy: str,
    baseline: str,
    allow_inconclusive: bool,
    as_json: bool,
) -> int:
    wanted = load_policy(policy)
    with invocation.servers() as servers:
        decision = gate_runs(wanted, candidates_of(candidates, servers), baseline, servers)
    if as_json:
        click.echo(msgspec.json.encode(decision))
    else:
        click.echo(decision_text(decision), nl=False)
    return 0 if decision.decided == "INCONCLUSIVE" and allow_inconclusive else decision.exit_code


COMMAND = command(
    _gate,
    click.Argument(["candidates"], nargs=-1, required=True, metavar="CAND..."),
    click.Option(
        ["--policy"], required=True, type=click.Path(exists=True, dir_okay=False), help="What has to hold: a YAML file."
    ),
    option("--baseline", default="", metavar="BASE", help="What drops are measured against: a baseline's name, a run."),
    may_be_inconclusive(),
    as_json(),
    *server_options(),
    text=(
        "Decide by a policy whether a run may pass: GO (exit 0), NO-GO (1) or INCONCLUSIVE (4).\n\n"
        "CAND are run folders, ids or files, one of each evaluator that the policy is about. What it demands is "
        "decided by intervals: GO where a violation is excluded, NO-GO where one is seen, INCONCLUSIVE where the "
        "answers cannot tell. Errors are no scores: what is missing is held against the candidate before it may go."
    ),
)
