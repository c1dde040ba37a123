"""The fault suite's short form: a few seeds of it, what its judgement is worth, and the negative control."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos import network
from tests.chaos.battle import fight
from tests.chaos.faults import FAULTS
from tests.chaos.scenario import Planned, Scenario, draw
from tests.chaos.subjects import Workshop
from tests.chaos.sweeps import JUDGED
from tests.chaos.table import render
from tests.chaos.verdict import count, judge
from tests.integration import rabbitmq
from tests.portions import some

SCALE = 0.4
OWN = 1
"""The seed of the faults' own choices; with this one a kill point takes its process alone."""


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Inputs smaller than those of the whole suite."""
    return Workshop(tmp_path_factory.mktemp("chaos"), SCALE)


def _scenario(*faults: tuple[str, float], aof: str = "no", workers: int = 2, naive: str = "") -> Scenario:
    planned = tuple(Planned(name, share, OWN) for name, share in faults)
    return Scenario(7, "planagent", 120, workers, 1, aof, False, False, planned, naive)


@pytest.mark.parametrize(
    "faults",
    some(
        [
            pytest.param(
                [
                    ("kill worker main process", 0.1),
                    ("kill between compute and commit", 0.3),
                    ("kill in finalise", 0.5),
                ],
                id="processes",
            ),
            pytest.param(
                [("messages of an old epoch", 0.1), ("restart server, data lost", 0.3), ("kill pool process", 0.6)],
                id="messages and server",
            ),
        ],
        of=2,
    ),
)
def test_a_mixture_of_faults_changes_nothing(
    workshop: Workshop, tmp_path: Path, faults: list[tuple[str, float]]
) -> None:
    """Several faults in one run: the bytes of the calm run, each row once, and every fault has struck."""
    line = fight(_scenario(*faults), workshop, tmp_path, all_strike=True)
    assert line["equal"], line
    assert (line["lost"], line["doubled"], line["divergent"]) == (0, 0, 0)
    assert {name for name, _ in faults} <= set(line["faults"]), line


@pytest.mark.parametrize(
    "faults",
    some(
        [
            pytest.param(
                [("kill process that calls", 0.2), ("second producer", 0.3), ("promote a lagging replica", 0.4)],
                id="failover",
            ),
            pytest.param([("evict one key", 0.2), ("kill producer", 0.3), ("agent away", 0.5)], id="keys"),
        ],
        of=2,
    ),
)
def test_a_live_sweep_under_fire_pays_for_no_more_than_what_was_in_flight(
    workshop: Workshop, tmp_path: Path, faults: list[tuple[str, float]]
) -> None:
    """Every call recorded once, the report of just those outputs, a second producer that ends alike, and a count of
    calls that is the agent's own.
    """
    line = fight(replace(_scenario(*faults), evaluation="sweep"), workshop, tmp_path, all_strike=True)
    assert line["equal"], line
    assert (line["lost"], line["doubled"]) == (0, 0)
    assert {name for name, _ in faults} <= set(line["faults"]), line
    assert line["calls"]["served"] >= line["calls"]["recorded"] > 0


def test_a_judge_is_paid_for_no_more_than_what_was_in_flight(workshop: Workshop, tmp_path: Path) -> None:
    """Killed in both stages: each verdict once, on its own output, and the report of just those; what agent and judge
    counted is what was recorded, and what was in flight.
    """
    faults = [("kill producer", 0.2), ("kill process that calls", 0.6), ("kill producer", 0.75)]
    line = fight(replace(_scenario(*faults), evaluation=JUDGED), workshop, tmp_path, all_strike=True)
    assert line["equal"], line
    assert (line["lost"], line["doubled"]) == (0, 0)
    assert line["faults"] == [name for name, _ in faults], line
    assert line["judge"]["recorded"] == line["calls"]["recorded"] == line["records"] // 2


@pytest.mark.skipif(bool(network.unavailable()), reason=f"here: {network.unavailable()}")
def test_a_host_that_is_cut_and_healed_changes_nothing(workshop: Workshop, tmp_path: Path) -> None:
    """A worker in a network namespace loses its link past its leases; no namespace is left behind."""
    line = fight(_scenario(("cut worker's link", 0.2)), workshop, tmp_path, all_strike=True)
    assert line["equal"], line
    assert line["faults"] == ["cut worker's link"]
    assert not list(Path("/run/netns").glob(f"evq-{os.getpid()}-*"))


@pytest.mark.skipif(bool(rabbitmq.unavailable()), reason=rabbitmq.unavailable())
def test_rabbitmq_may_die_and_forget(workshop: Workshop, tmp_path: Path) -> None:
    """The messages' server dies in mid-run, once it remembers them and once it does not."""
    line = fight(_scenario(("restart RabbitMQ", 0.2), ("restart RabbitMQ", 0.5)), workshop, tmp_path, all_strike=True)
    assert line["equal"], line
    assert (line["lost"], line["doubled"], line["divergent"]) == (0, 0, 0)
    assert line["faults"] == ["restart RabbitMQ"] * 2, line


@pytest.mark.parametrize(
    ("naive", "fault", "kind"),
    some([("early", "kill worker group", "lost"), ("late", "double messages", "doubled")], of=2),
)
def test_naive_celery_loses_or_doubles_rows_under_the_same_faults(
    workshop: Workshop, tmp_path: Path, naive: str, fault: str, kind: str
) -> None:
    """The negative control: the suite sees the harm where there is some."""
    line = fight(_scenario((fault, 0.2), workers=1, naive=naive), workshop, tmp_path, patience=10.0, all_strike=True)
    assert line["faults"] == [fault], line
    assert line[kind] > 0, line


def test_every_fault_is_drawn() -> None:
    """The seeds of the documented number of runs meet every fault that is registered; a seed always means the same."""
    scenarios = [draw(seed) for seed in range(200)]
    assert {planned.fault for scenario in scenarios for planned in scenario.faults} == set(FAULTS)
    assert scenarios == [draw(seed) for seed in range(200)]


def test_the_judge_counts_rows_and_compares_bytes(tmp_path: Path) -> None:
    """Lost rows, doubled rows, a differing report and an unfinished run are each reported."""
    assert count(["a", "b", "b"], ["a", "b", "c"]) == (1, 1)
    calm, run = tmp_path / "calm", tmp_path / "run"
    for folder, keys in ((calm, "abc"), (run, "abb")):
        folder.mkdir()
        (folder / "report.json").write_text('{"records": {"total": 3}}')
        (folder / "records.jsonl").write_text("".join(f'{{"record": "{key}"}}\n' for key in keys))
    verdict = judge(run, calm, 0, "")
    assert (verdict.equal, verdict.lost, verdict.doubled) == (False, 1, 1)
    assert judge(calm, calm, 0, "").good
    assert "did not end" in judge(calm, calm, None, "").why
    (run / "records.jsonl").unlink()
    assert judge(run, calm, 0, "").lost == 3
    assert judge(run, calm, 0, "", computed=calm).good
    assert not judge(calm, calm, 0, "", computed=run).equal


def test_the_table_counts_the_last_line_of_each_seed() -> None:
    """A seed that was run again counts once; a run of a changed tree does not count; naive runs stand beside."""
    base = {
        "setup": "evalq", "seed": 1, "only": "", "faults": ["FLUSHDB"], "equal": False, "lost": 3, "doubled": 0,
        "divergent": 0, "records": 1000, "recoveries": [{"fault": "FLUSHDB", "seconds": 2.0, "held": None}],
        "commit": "abc", "dirty": False,
    }  # fmt: skip
    again = base | {"equal": True, "lost": 0}
    naive = base | {"setup": "naive Celery, defaults", "lost": 70, "doubled": 5}
    text = render([base, again, naive, again | {"seed": 2, "dirty": True, "lost": 9}])
    assert "| FLUSHDB | 1 | 1 | 0 | 0 | 2.0 s | 2.0 s | - | 70 / 5 in 1 | - |" in text
