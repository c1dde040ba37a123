"""Runs that grow: answers that two runs share are no evidence between them, and each further look has a price."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.compare.drift import counted
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.spending import GateLook, candidate_digest, growing_run_errors, look_count
from evalq.evalcore.compare.summary import RunCases, RunUsage, common_answers, has_common_answers
from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.calls import Lineage
from evalq.producer.comparing.comparing import compare_runs
from evalq.producer.folder.run_folder import RunFolder
from tests.unit.compare.made import passes, run_of
from tests.unit.comparing.conftest import Command, Made

POLICY = {"gates": [{"metric": "vs.pass_rate", "max_drop": 0.1}]}


def _run(name: str, *akin: str, number: int = 1, first: str = "", sample: tuple[int, ...] = ()) -> RunCases:
    lineage = Lineage({akin[0]: 3}, akin, number, first) if akin else None
    run = run_of(passes([(20, 20)] * 10))
    return msgspec.structs.replace(
        run, run=name, report=f"report of {name}", lineage=lineage, usage=RunUsage(config="k", sample=list(sample))
    )


SHARING = [
    (_run("b", "a"), _run("a"), "b and a have answers of a in common"),
    (_run("a"), _run("b", "a"), "a and b have answers of a in common"),
    (_run("b", "a"), _run("c", "a"), "b and c have answers of a in common"),  # both took over those of a third
    (_run("c", "b", "a"), _run("a"), "c and a have answers of a in common"),  # b had them of a
    (_run("b", sample=(1, 2)), _run("c", sample=(2, 3)), "b and c have answers in common, from a cache"),
    (_run("b", "a"), _run("d", "c"), ""),
    (_run("b", sample=(1,)), _run("c", sample=(3,)), ""),
]


@pytest.mark.parametrize(("run", "other", "reason"), SHARING)
def test_what_two_runs_share_is_known_by_their_lines(run: RunCases, other: RunCases, reason: str) -> None:
    """And no gate goes by it: it is inconclusive, whatever the numbers; a comparison is refused."""
    assert (common_answers(run, other), has_common_answers(run, other)) == (reason, bool(reason))
    decision = decide(Policy.model_validate(POLICY), [run], {"vs": other})
    assert decision.decided == ("INCONCLUSIVE" if reason else "GO")
    if reason:
        assert decision.checks[0].reason.startswith(reason)
        with pytest.raises(UsageError, match=reason):
            compare_runs(other, run)
    else:
        assert compare_runs(other, run)


def test_a_run_and_itself_is_no_borrowing() -> None:
    """As where a run is held to itself after it was approved."""
    assert common_answers(_run("a"), _run("a")) == ""
    assert has_common_answers(_run("a"), _run("a"))


def test_an_extended_run_is_its_first_one_for_a_gate() -> None:
    """The candidate is the same, and the look at least as late as it was extended often."""
    first, more, most = _run("a"), _run("b", "a", first="report of a"), _run("c", "b", number=2, first="report of a")
    assert candidate_digest([first]) == candidate_digest([more]) == candidate_digest([most])
    assert candidate_digest([first]) != candidate_digest([_run("d")])
    assert [look_count([run]) for run in (first, more, most)] == [1, 2, 3]
    assert GateLook(1, 1).at_least(3) == GateLook(3, 3)
    assert GateLook(7, 2, "why").at_least(3) == GateLook(7, 3, "why")


def test_all_looks_at_a_growing_run_spend_one_error() -> None:
    """However often it is extended: half as much again as the first."""
    assert growing_run_errors(1) == (0.025, 0.025, None)
    assert sum(growing_run_errors(looks).go for looks in range(1, 20_000)) == pytest.approx(0.0375, abs=1e-5)


def test_drift_does_not_count_answers_twice() -> None:
    """A run that was extended tells a monitor nothing that it has not heard."""
    record = counted(counted(None, _run("a")), _run("x"))
    assert record is not None
    assert counted(record, _run("b", "a")) is record
    assert counted(record, _run("y")) is not record


def test_extending_until_it_passes_is_counted(made: Made, here: Path, command: Command) -> None:
    """At an approved baseline by the ledger's count, elsewhere by the run's own; a candidate that was stopped stays so
    when it is extended, though nobody named it.
    """
    rows = [(f"t{n}", True) for n in range(80)]
    base, once = str(made("base", rows)), made("once", [(t, n >= 2) for n, (t, _) in enumerate(rows)])
    more = made("more", [(t, n >= 1) for n, (t, _) in enumerate(rows)])
    (here / "policy.yaml").write_text(json.dumps({"gates": [{"metric": "verification.pass_rate", "max_drop": 0.1}]}))
    assert command("baseline", "set", "main", base).code == 0

    def gate(run: Path, baseline: str = "main") -> dict[str, object]:
        ended = command("gate", str(run), "--policy", "policy.yaml", "--baseline", baseline, "--json")
        found: dict[str, object] = json.loads(ended.stdout)
        return found

    assert gate(once)["look"] == {"number": 1, "draw": 1, "stands": ""}
    _extend(more, once)
    assert gate(more)["look"] == {"number": 2, "draw": 2, "stands": ""}
    assert str(gate(more, base)["notes"]).startswith("['look 2 at a run that was extended: GO and NO-GO at 0.00625")
    bad = made("bad", [(t, n >= 30) for n, (t, _) in enumerate(rows)])
    good = made("good", [*rows[:-1], ("t79", False)])
    assert gate(bad)["decided"] == "NO-GO"
    _extend(good, bad)
    assert gate(good)["decided"] == "NO-GO"


def _extend(run: Path, origin: Path) -> None:
    """Say of ``run`` that it extends ``origin``, as a sweep does."""
    from evalq.producer.sweep.reuse import SourceRun, lineage_of

    (origin / "outputs.jsonl").touch()
    giver = SourceRun(str(origin))
    from collections import Counter

    lineage = lineage_of({giver.run: giver}, Counter({giver.run: 80}))
    RunFolder(run).note(lineage=msgspec.to_builtins(lineage))
    (run / "cases.json").unlink(missing_ok=True)
