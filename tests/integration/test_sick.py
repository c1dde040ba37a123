"""A sick worker process beside a healthy one: its host is named, and nobody's run fails by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalq.evalcore.model.canonical import canonical_json
from evalq.workers.ledger.heartbeats import Heartbeats, unhealthy_of
from tests.integration.harness import HAZARDS, PATIENCE, Server, evalq, running_fleet, start_evalq, wait_until

WHY = "cannot load hazards: the entry point 'hazards' (evalq_hazards:evaluator) cannot be loaded: no module named torch"
SICK = {"PYTHONPATH": HAZARDS, "HAZARDS_IMPORT": "no module named torch"}


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """An input of the evaluator `hazards`, without any hazard."""
    path = tmp_path / "in.jsonl"
    lines = (canonical_json({"id": f"r{number}", "value": number}) + b"\n" for number in range(100))
    path.write_bytes(b"".join(lines))
    return path


def test_a_sick_worker_is_named_and_fails_nobodys_run(server: Server, records: Path, tmp_path: Path) -> None:
    """A run with a sick worker alone waits and says why; with a healthy one beside it, it is done."""
    with running_fleet(server.url, tmp_path, **SICK) as fleet:
        fleet.add(1)
        args = ("hazards", records.name, "--chunk-size", "10", "--broker", server.url, "--out", "run", "--json")
        producer = start_evalq(*args, cwd=tmp_path, PYTHONPATH=HAZARDS)
        assert producer.stdout is not None

        def named() -> bool:
            assert producer.stdout is not None
            return "no module named torch" in json.dumps(json.loads(producer.stdout.readline()).get("trouble", ""))

        wait_until(named, "the producer names the reason")
        workers = Heartbeats(server.client).workers()
        assert ["no module named torch" in unhealthy_of(facts)["hazards"] for facts in workers.values()] == [True]
        status = evalq("status", "run", "--broker", server.url, cwd=tmp_path, PYTHONPATH=HAZARDS)
        assert "trouble   " in status.stdout
        assert WHY in status.stdout
        doctor = evalq("doctor", "--broker", server.url, cwd=tmp_path, PYTHONPATH=HAZARDS)
        assert doctor.returncode == 3
        assert WHY in doctor.stdout
        with running_fleet(server.url, tmp_path, PYTHONPATH=HAZARDS) as healthy:
            healthy.add(1)
            _, said = producer.communicate(timeout=PATIENCE)
        assert producer.returncode == 0, said


def test_a_run_that_only_sick_workers_could_serve_ends(server: Server, records: Path, tmp_path: Path) -> None:
    """Exit 3 after the stated time, with host and reason."""
    with running_fleet(server.url, tmp_path, **SICK) as fleet:
        fleet.add(1)
        args = ("hazards", records.name, "--broker", server.url, "--out", "run", "--format", "none")
        done = evalq(*args, cwd=tmp_path, PYTHONPATH=HAZARDS, EVALQ_UNSERVED_SECONDS="3")
    assert done.returncode == 3
    assert "no living worker could compute it for 3 s: " in done.stderr
    assert WHY in done.stderr
