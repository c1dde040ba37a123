"""Comparing and gating from Python: what `evalq compare` and `evalq gate` decide, as objects and DataFrames."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalq._compared import Comparison, Comparisons, Decision, Sides
from evalq._run import Run, unwritten_cases
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.errors import UsageError
from evalq.producer.comparing.comparing import MARGIN

if TYPE_CHECKING:
    import msgspec

    from evalq.producer.servers import Servers

__all__ = ["compare", "gate"]

Operand = str | Path | Run
"""A run as the command line names it, or as Python has it."""


def compare(
    base: Operand,
    cand: Operand,
    *,
    margin: float = MARGIN,
    measure: str = "",
    by_cases: bool = False,
    broker: str | None = None,
    ledger: str | None = None,
) -> Comparisons:
    """Compare two runs, case by case: what `evalq compare BASE CAND` says, as a `Comparison` for each measure.

    Both are run folders, ids of runs in ./evalq-runs or in the ledger, files (report.json, cases.json), names of
    baselines, or a `Run`.

        found = evalq.compare("main", evalq.evaluate("verification", "transcripts.jsonl"))
        found["pass_rate"].verdict             # "same", "worse", "better" or "inconclusive"
        found["pass_rate"].flips()             # a DataFrame of the cases that changed

    Changes of less than ``margin``, a share of each measure's scale, are the same. ``measure`` compares by that one
    alone. ``by_cases`` decides for cases like these instead of for these: where repeats of one unchanged target are not
    independent. ``broker`` and ``ledger`` are URLs as the command line takes them; without, EVALQ_BROKER and
    EVALQ_LEDGER count. No verdict raises anything.

    Raises UsageError for what names no run, for a run without a report or without measures, for runs of two evaluators,
    a measure that there is not and a margin that is no share above 0; WireError for damaged files; BrokerUnreachable,
    ServerRefused.
    """
    from evalq.producer.comparing.comparing import compare_runs
    from evalq.producer.comparing.operands import base_of, partner

    if not 0 < margin <= 1:
        raise UsageError(f"margin={margin}: a share of a measure's scale, above 0 and at most 1")
    with _servers(broker, ledger) as servers:
        # A name of approved runs before a path of that name, as on the command line.
        bases = base_of(base, servers) if isinstance(base, str) else _runs(base, servers)
        candidates = _runs(cand, servers)
    name = str(base.path or base) if isinstance(base, Run) else str(base)
    pairs = [Sides(partner(run, bases, name), run) for run in candidates]
    return Comparisons(
        Comparison(sides=sides, **_fields(each))
        for sides in pairs
        for each in compare_runs(*sides, margin, measure, by_cases=by_cases)
    )


def gate(
    cand: Operand | Sequence[Operand],
    policy: str | Path | Mapping[str, Any],
    *,
    baseline: Operand | None = None,
    candidate: str = "",
    broker: str | None = None,
    ledger: str | None = None,
) -> Decision:
    """Decide by a policy whether a run may pass: what `evalq gate CAND --policy FILE` decides, as a `Decision`.

        decided = evalq.gate(run, "policy.yaml", baseline="main")
        evalq.gate(run, {"gates": [{"metric": "verification.pass_rate", "min": 0.9}]}).exit_code

    ``cand`` is a run as `compare` takes it, or several, each called otherwise: by the name that its suite gave it, or
    by its evaluator. ``policy`` is a YAML or JSON file, or what would stand in it. ``baseline`` is what drops are
    measured against; looks at one that was approved by name are counted, for ``candidate`` as `evalq gate --candidate`
    does. ``broker`` and ``ledger`` are those of `compare`. No decision raises anything: look at
    ``decided``, or exit with ``exit_code``.

    Raises ConfigError for a policy that is none (with the key), UsageError for a number that the results do not have,
    two runs that are called the same, a run that is its own baseline, a baseline that is needed and not named, and what
    `compare` raises for a run.
    """
    from evalq.evalcore.compare.policy import Policy
    from evalq.evalcore.contract.params import validate
    from evalq.producer.comparing.gating import ITSELF, distinct, gate_runs, load_policy

    wanted = validate(Policy, policy, "policy") if isinstance(policy, Mapping) else load_policy(policy)
    given = [cand] if isinstance(cand, str | Path | Run) else list(cand)
    if not given:
        raise UsageError("gate: no run is given")
    # What wrote nothing has no id of its own by which the rest would know.
    if any(each is baseline for each in given if isinstance(each, Run)):
        raise UsageError(f"gate: {baseline!r} is both the candidate and the baseline: {ITSELF}")
    with _servers(broker, ledger) as servers:
        candidates = distinct([run for each in given for run in _runs(each, servers)])
        against = "" if baseline is None else _named(baseline)
        found = gate_runs(wanted, candidates, against, servers, candidate=candidate)
    return Decision(**_fields(found))


def _fields(found: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__struct_fields__}


def _named(given: Operand) -> RunCases | str:
    """A run as commands name it; itself where only this process has it."""
    if isinstance(given, Run):
        return unwritten_cases(given) or str(given.path)
    return str(given)


def _runs(given: Operand, servers: Servers) -> list[RunCases]:
    from evalq.producer.comparing.operands import operand

    named = _named(given)
    return operand(named, servers) if isinstance(named, str) else [named]


@contextlib.contextmanager
def _servers(broker: str | None, ledger: str | None) -> Iterator[Servers]:
    from evalq.producer.servers import Servers
    from evalq.workers.servers.errors import SERVER_ERRORS, explained
    from evalq.workers.settings import load_settings

    settings = load_settings(None, broker=broker, ledger=ledger)
    with Servers(settings) as servers:
        try:
            yield servers
        except SERVER_ERRORS as error:
            raise explained(error, f"the server at {settings.ledger_address}") from error
