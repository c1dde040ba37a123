"""Records that kill: found, dead-lettered with their reason, and everything else as it would be without them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.model.canonical import canonical_json
from tests.integration.harness import (
    HAZARDS,
    Fleet,
    Server,
    evalq,
    info,
    running_fleet,
    same_answer,
    start_evalq,
    wait_until,
)
from tests.portions import some

RECORDS = 200
DEEDS = {
    "kill": "killed its process by SIGKILL",
    "hang": "took longer than 1 s",
    "eat": "needed more than 128 MB of memory",
    "leave": "ended its process with exit code 7",
}


def _write(path: Path, deeds: Mapping[int, str], records: int = RECORDS) -> Path:
    """An input whose record ``number`` does ``deeds[number]``, where it is armed and no gate is closed."""
    with path.open("wb") as out:
        for number in range(records):
            record = {"id": f"r{number}", "value": number}
            if number in deeds:
                record |= {"do": deeds[number], "waits": True}
            out.write(canonical_json(record) + b"\n")
    return path


@pytest.fixture
def fleet(server: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Workers that know the hazards, with a tight limit of memory, and of time where a record hangs."""
    hangs = getattr(request.node, "callspec", None) is not None and request.node.callspec.params.get("deed") == "hang"
    limits = {"EVALQ_CHUNK_SECONDS": "1" if hangs else "60", "EVALQ_CHUNK_MEGABYTES": "128"}
    with running_fleet(server.url, tmp_path, PYTHONPATH=HAZARDS, **limits) as started:
        yield started


def _evalq(*args: str | Path, cwd: Path) -> Any:
    return evalq(*args, "--format", "none", cwd=cwd, PYTHONPATH=HAZARDS)


def _calm(folder: Path, flag: Path) -> Path:
    """The run over in.jsonl with all hazards disarmed."""
    done = _evalq("hazards", "in.jsonl", "--inline", "--params", _params(folder, flag), "--out", "calm", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "calm"


def _params(folder: Path, flag: Path, gate: Path | None = None) -> Path:
    """Hazards are armed while ``flag`` is there, and wait as long as ``gate`` is."""
    path = folder / "params.json"
    path.write_text(json.dumps({"flag": str(flag)} | ({"gate": str(gate)} if gate else {})))
    return path


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("deed", some(list(DEEDS), of=2))
def test_a_record_that_kills_is_dead_lettered_and_the_others_are_untouched(
    server: Server, fleet: Fleet, tmp_path: Path, deed: str
) -> None:
    """Exit 3, one dead record with place and reason, and every other record's line as in the calm run."""
    flag = tmp_path / "armed"
    _write(tmp_path / "in.jsonl", {123: deed})
    calm = _calm(tmp_path, flag)
    flag.touch()
    fleet.add(2)
    args = ("hazards", "in.jsonl", "--broker", server.url, "--params", _params(tmp_path, flag), "--chunk-size", "20")
    done = _evalq(*args, "--out", "run", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "1 record has no result" in done.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["records"] == {"total": RECORDS, "scored": RECORDS - 1, "unscored": 0, "errors": 0, "dead": 1}
    assert report["results"] == {"count": RECORDS - 1, "sum": sum(range(RECORDS)) - 123}
    assert report["faults"] == [{"where": "in.jsonl:124", "reason": f"dead: {DEEDS[deed]}"}]
    dead = {"record": "in.jsonl:124", "id": "", "status": "dead", "reason": DEEDS[deed]}
    assert _lines(tmp_path / "run") == [*_lines(calm)[:123], dead, *_lines(calm)[124:]]


def test_a_record_that_kills_does_not_kill_a_command_without_a_server(tmp_path: Path) -> None:
    """It, one that ends it, and one that kills its whole process group: the job is left to workers of the command's
    own, with the rest of its chunks, and these records are dead in its report; no worker falls with them."""
    flag = tmp_path / "armed"
    _write(tmp_path / "in.jsonl", {123: "kill", 141: "leave", 199: "fall"})
    calm = _calm(tmp_path, flag)
    flag.touch()
    gate = tmp_path / "gate"
    gate.touch()
    params = _params(tmp_path, flag, gate)
    args = ("hazards", "in.jsonl", "--params", params, "--chunk-size", "20", "--out", "run", "--format", "none")
    process = start_evalq(*args, cwd=tmp_path, PYTHONPATH=HAZARDS)
    journal = tmp_path / "run" / "parts.journal"
    wait_until(lambda: journal.exists() and journal.stat().st_size, "the first chunk is collected")
    gate.unlink()
    _, errors = process.communicate()
    assert process.returncode == 3, errors
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["records"] == {"total": RECORDS, "scored": RECORDS - 3, "unscored": 0, "errors": 0, "dead": 3}
    assert report["faults"] == [
        {"where": "in.jsonl:124", "reason": f"dead: {DEEDS['kill']}"},
        {"where": "in.jsonl:142", "reason": f"dead: {DEEDS['leave']}"},
        {"where": "in.jsonl:200", "reason": f"dead: {DEEDS['kill']}"},
    ]
    assert "is started again" not in errors
    assert _lines(tmp_path / "run")[:123] == _lines(calm)[:123]
    assert info(tmp_path / "run")["progress"]["computed"] < 10, "the first chunk was computed before"


def test_dead_records_are_retried_alone(server: Server, fleet: Fleet, tmp_path: Path) -> None:
    """Once nothing kills any more, `retry --errors` computes their two chunks and no other: the calm run's bytes."""
    flag = tmp_path / "armed"
    _write(tmp_path / "in.jsonl", {7: "kill", 199: "kill"})
    calm = _calm(tmp_path, flag)
    flag.touch()
    fleet.add(2)
    args = ("hazards", "in.jsonl", "--broker", server.url, "--params", _params(tmp_path, flag), "--chunk-size", "10")
    done = _evalq(*args, "--out", "run", "--allow-dead", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    before = info(tmp_path / "run")["progress"]
    assert (before["chunks"], before["dead"]) == (20, 2)
    again = _evalq("retry", "run", "--errors", "--broker", server.url, cwd=tmp_path)
    assert again.returncode == 3, "still armed: dead again"
    flag.unlink()
    last = _evalq("retry", "run", "--errors", "--broker", server.url, cwd=tmp_path)
    assert last.returncode == 0, last.stderr
    same_answer(calm, tmp_path / "run")
    assert info(tmp_path / "run")["progress"]["computed"] == 20 + 2 + 2
    assert not list((tmp_path / "run").glob("parts.*")), "working files go once every record has its answer"
    assert _evalq("retry", "run", "--errors", "--broker", server.url, cwd=tmp_path).returncode == 2


def test_a_retry_needs_no_ledger_that_remembers(server: Server, fleet: Fleet, tmp_path: Path) -> None:
    """The folder alone is enough, also inline."""
    flag = tmp_path / "armed"
    _write(tmp_path / "in.jsonl", {7: "kill"})
    calm = _calm(tmp_path, flag)
    flag.touch()
    fleet.add(2)
    args = ("hazards", "in.jsonl", "--broker", server.url, "--params", _params(tmp_path, flag), "--chunk-size", "10")
    assert _evalq(*args, "--out", "run", cwd=tmp_path).returncode == 3
    flag.unlink()
    server.client.flushall()
    done = _evalq("retry", "run", "--errors", "--inline", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    same_answer(calm, tmp_path / "run")


def test_a_retry_over_another_input_leaves_the_report_that_there_is(
    server: Server, fleet: Fleet, tmp_path: Path
) -> None:
    """Exit 2 with the place, and the run's report can still be shown."""
    _write(tmp_path / "in.jsonl", {7: "kill"}, records=50)
    fleet.add(1)
    args = ("hazards", "in.jsonl", "--broker", server.url, "--chunk-size", "10", "--out", "run")
    assert _evalq(*args, cwd=tmp_path).returncode == 3
    before = (tmp_path / "run" / "report.json").read_bytes()
    _write(tmp_path / "in.jsonl", {8: "kill"}, records=50)
    again = _evalq("retry", "run", "--errors", "--inline", cwd=tmp_path)
    assert again.returncode == 2
    assert "in.jsonl:1: not the bytes that were planned" in again.stderr
    assert (tmp_path / "run" / "report.json").read_bytes() == before
    assert _evalq("report", "run", cwd=tmp_path).returncode == 0


def test_a_bug_is_not_blamed_on_a_record(server: Server, fleet: Fleet, tmp_path: Path) -> None:
    """An exception ends the run with exit 3, the chunk's place and the exception's."""
    _write(tmp_path / "in.jsonl", {3: "raise"})
    fleet.add(1)
    done = _evalq("hazards", "in.jsonl", "--broker", server.url, "--out", "run", cwd=tmp_path)
    assert done.returncode == 3
    assert "in.jsonl:1: ValueError: a bug (in evalq_hazards.py" in done.stderr


@pytest.mark.parametrize("place", [("--inline",), (), ("--workers", "1")])
def test_an_evaluator_that_exits_is_no_good_end(place: tuple[str, ...], tmp_path: Path) -> None:
    """With 0, which the command ended with that computed by itself, and without a report. Wherever it computes."""
    _write(tmp_path / "in.jsonl", {3: "exit"})
    done = _evalq("hazards", "in.jsonl", *place, "--out", "run", cwd=tmp_path)
    assert done.returncode == 3
    assert ("by sys.exit(0)" if place == ("--inline",) else "SystemExit: 0") in done.stderr
    assert not (tmp_path / "run" / "report.json").exists()


@pytest.mark.parametrize("place", [("--inline",), (), ("--workers", "1")])
def test_what_an_evaluator_prints_is_in_no_answer(place: tuple[str, ...], tmp_path: Path) -> None:
    """Standard output is for a program that reads the report, wherever it was computed."""
    _write(tmp_path / "in.jsonl", {3: "print"})
    args = ("hazards", "in.jsonl", *place, "--out", "run", "--format", "json")
    done = evalq(*args, cwd=tmp_path, PYTHONPATH=HAZARDS, HAZARDS_LOUD="1")
    assert done.returncode == 0, done.stderr
    assert "hello from hazards" in done.stderr
    assert "a section of hazards" in done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "run" / "report.json").read_bytes())


def test_what_an_evaluator_prints_is_in_no_decision(tmp_path: Path) -> None:
    """Nor in a comparison, a plan, an event, or what a command of its own says."""
    _write(tmp_path / "in.jsonl", {}, records=3)
    gates = [{"metric": "hazards.value", "min": 0}]
    suite = {"runs": [{"evaluator": "hazards", "inputs": ["in.jsonl"]}], "policy": {"gates": gates}}
    (tmp_path / "evalq.yaml").write_text(json.dumps(suite))

    def said(*args: str) -> str:
        done = evalq(*args, cwd=tmp_path, PYTHONPATH=HAZARDS, HAZARDS_LOUD="1")
        assert done.returncode == 0, done.stderr
        assert "loud hazards" in done.stderr
        return done.stdout

    decided = said("run", "evalq.yaml", "--inline", "--out", "one", "--format", "json")
    assert json.loads(decided)["decision"]["decided"] == "GO"
    events = said("run", "evalq.yaml", "--inline", "--out", "two", "--json")
    assert json.loads(events.splitlines()[-1])["event"] == "decision"
    assert all(json.loads(line) for line in events.splitlines())
    for kept in tmp_path.glob("*/*/cases.json"):
        kept.unlink()
    one, two = (str(path.parent) for path in sorted(tmp_path.glob("*/*/report.json")))
    assert json.loads(said("compare", one, two, "--json"))["measures"]
    assert json.loads(said("run", "evalq.yaml", "--dry-run", "--format", "json"))["runs"]
    assert said("hazards-echo") == "an answer\n"
