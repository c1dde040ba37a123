"""Bad input: the exit code, a message with its place, and no half-written file."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.integration.harness import PATIENCE, Fleet, Server, evalq, start_evalq
from tests.integration.midway import WINDOW, standing_midway
from tests.integration.ports import free_port
from tests.portions import some

HEADER = "Run ID,Item ID,Query ID,질의,기대결과,카테고리,방/반복,오류,LLM 상태,LLM 점수,LLM 코멘트,Raw JSON\n"
EVENT = '{"turn": 1, "agent": "a", "decision": "join", "resources": {"stone": 3}}\n'
ROW = "r,i,q,ask,expect,c,1/1,,,,,{}\n"


CASES = {
    "a missing column, all of them named": (
        "x.csv", b"Run ID,Item ID,Query ID\n1,2,3\n", 2, ["x.csv:1", "질의", "기대결과", "Raw JSON"],
    ),
    "broken quoting": ("x.csv", (HEADER + ROW + 'r,i,q,a"sk,e,c,1/1,,,,,{}\n').encode(), 2, ["x.csv:3", "quot"]),
    "a quote never closed": ("x.csv", (HEADER + ROW + 'r,i,q,"ask,e,c,1/1,,,,,{}\n').encode(), 2, ["x.csv:3"]),
    "not UTF-8": ("x.csv", (HEADER + ROW).encode() + b"r,i,q,\xff\xfe,e,c,1/1,,,,,{}\n", 2, ["x.csv:3", "UTF-8"]),
    "another delimiter": ("x.csv", HEADER.replace(",", ";").encode(), 2, ["x.csv:1", "delimiter"]),
    "semicolons and quotes": ("x.csv", (HEADER + ROW + 'r;"i"').replace(",", ";").encode(), 2, ["semicolons"]),
    "UTF-16": ("x.csv", (HEADER + ROW).encode("utf-16"), 2, ["x.csv:1: UTF-16: save the file as UTF-8"]),
    "a row of another width": ("x.csv", (HEADER + ROW + "r,i,q\n").encode(), 2, ["x.csv:3", "3 fields"]),
    "a bad JSON line": ("x.jsonl", (EVENT + "{nonsense\n").encode(), 2, ["x.jsonl:2"]),
    "a missing turn": ("x.jsonl", (EVENT + '{"agent": "a"}\n').encode(), 2, ["x.jsonl:2", "turn"]),
    "a NaN resource": (
        "x.jsonl", (EVENT + EVENT.replace("3", "NaN")).encode(), 2, ["x.jsonl:2"],
    ),
    "an empty CSV": ("x.csv", b"", 5, ["nothing was evaluated"]),
    "a CSV of a header": ("x.csv", HEADER.encode(), 5, ["nothing was evaluated"]),
}  # fmt: skip


@pytest.mark.parametrize("how", [("--inline",), ("--workers", "1")], ids=["inline", "workers"])
@pytest.mark.parametrize("case", some(list(CASES), of=3))
def test_faulty_content(tmp_path: Path, case: str, how: tuple[str, ...]) -> None:
    """Each fault of content, inline and through workers: exit code, place, and an empty folder but for the input."""
    name, content, code, said = CASES[case]
    (tmp_path / name).write_bytes(content)
    command = "planagent" if name.endswith(".csv") else "cooperation"
    done = evalq(command, name, *how, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    for part in said:
        assert part in done.stderr
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("how", [("--inline",), ("--workers", "1")], ids=["inline", "workers"])
def test_an_empty_log_has_metrics_of_no_events(tmp_path: Path, how: tuple[str, ...]) -> None:
    """Exit 0 and a metrics.json of zeros, from a configuration with keys of its simulation's own."""
    (tmp_path / "events.jsonl").touch()
    (tmp_path / "config.yaml").write_text("experiment: {log_path: events.jsonl, max_turns: 9}\nagents: [{id: a}]\n")
    done = evalq("cooperation", "--config", "config.yaml", *how, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert (metrics["cooperation_rate"], metrics["average_recovery_time"]) == (0, None)
    assert metrics["metadata"]["total_events"] == 0


def test_a_missing_file(tmp_path: Path) -> None:
    """No such file: exit 2, and its name."""
    done = evalq("planagent", "nowhere.csv", cwd=tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "nowhere.csv: no such file" in done.stderr


def test_a_folder_without_inputs(tmp_path: Path) -> None:
    """A folder that holds nothing to read: exit 2, and what was looked for."""
    (tmp_path / "sub").mkdir()
    done = evalq("planagent", "sub", cwd=tmp_path)
    assert done.returncode == 2
    assert "sub: the folder holds no file ending in .csv" in done.stderr


def test_an_unknown_rules_key(tmp_path: Path) -> None:
    """A misspelt key of the rules: exit 2, the file and the key's path, and the keys there are."""
    (tmp_path / "log.jsonl").write_text(EVENT)
    (tmp_path / "rules.json").write_text('{"cooperative_decision": ["join"]}')
    done = evalq("cooperation", "log.jsonl", "--rules", "rules.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "rules.json" in done.stderr
    assert "cooperative_decision" in done.stderr
    assert "cooperative_decisions" in done.stderr


def test_an_unknown_parameter(tmp_path: Path) -> None:
    """A misspelt parameter in a file: exit 2, with its key path."""
    (tmp_path / "rows.csv").write_text(HEADER + ROW)
    (tmp_path / "params.yaml").write_text("rules: {sped: mean_of_points}\n")
    done = evalq("planagent", "rows.csv", "--params", "params.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "rules.sped" in done.stderr


def test_an_unreachable_broker(tmp_path: Path) -> None:
    """Nobody listens: exit 3 at once, and the address without its password."""
    (tmp_path / "rows.csv").write_text(HEADER + ROW)
    began = time.monotonic()
    url = f"redis://me:secret@127.0.0.1:{free_port()}/0"
    done = evalq("planagent", "rows.csv", "--broker", url, cwd=tmp_path)
    assert done.returncode == 3
    assert "no server answers at redis://me:***@127.0.0.1" in done.stderr
    assert "secret" not in done.stderr + "".join(path.read_text() for path in tmp_path.rglob("*.json*"))
    assert time.monotonic() - began < 10, "the promise is 10 seconds"


@pytest.mark.parametrize("way", ["altered", "shortened"])
def test_an_input_changed_in_mid_run(server: Server, fleet: Fleet, data: Path, tmp_path: Path, way: str) -> None:
    """The file is altered after it was planned: exit 2, the place, and no report."""
    rows = tmp_path / "rows.csv"
    rows.write_bytes((data / "rows.csv").read_bytes())
    args = ("planagent", "rows.csv", "--broker", server.url, "--chunk-size", "50", "--out", "run")
    producer = start_evalq(*args, cwd=tmp_path, EVALQ_WINDOW=str(WINDOW))
    size = rows.stat().st_size
    midway = standing_midway(server, fleet, producer, tmp_path / "run", "--root", str(tmp_path))
    with midway, rows.open("r+b") as stream:
        if way == "shortened":
            stream.truncate(size // 20)
        else:
            stream.write(b"\xef\xbb\xbf" + b"x" * (size - 3))
    _, said = producer.communicate(timeout=PATIENCE)
    assert producer.returncode == 2, said
    assert "input" in said
    assert "rows.csv:" in said
    assert not (tmp_path / "run").exists()


def test_an_output_of_unknown_kind(tmp_path: Path) -> None:
    """-o with a suffix nobody writes is refused before anything is computed."""
    (tmp_path / "rows.csv").write_text(HEADER + ROW)
    done = evalq("planagent", "rows.csv", "-o", "x.docx", cwd=tmp_path)
    assert done.returncode == 2
    assert ".docx" in done.stderr
    assert not (tmp_path / "evalq-runs").exists()


def test_a_run_folder_in_use(tmp_path: Path) -> None:
    """--out with something in it is left alone."""
    (tmp_path / "rows.csv").write_text(HEADER + ROW)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    done = evalq("planagent", "rows.csv", "--out", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]
