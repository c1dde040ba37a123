"""The same input gives the same bytes, however it is computed."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from tests.integration.conftest import Calm
from tests.integration.harness import Fleet, Server, evalq, running_fleet, same_answer
from tests.portions import some
from tests.samples import sampled

REAL = Path(__file__).parents[3] / "shared" / "data" / "plan_agent_260224.csv"


@pytest.mark.parametrize("workers", some([1, 2, 4], of=3))
@pytest.mark.parametrize(("name", "command"), [("rows.csv", "planagent"), ("log.jsonl", "cooperation")])
def test_any_number_of_workers_equals_inline(
    data: Path, calm: Calm, tmp_path: Path, name: str, command: str, workers: int
) -> None:
    """20,000 records in 80 chunks over 1, 2 and 4 local workers on an embedded server: the inline run's bytes."""
    args = ("--workers", str(workers), "--chunk-size", "250", "--run-dir", tmp_path / "run", "--format", "none")
    done = evalq(command, name, *args, cwd=data)
    assert done.returncode == 0, done.stderr
    same_answer(calm(name), tmp_path / "run")


@pytest.mark.parametrize(
    ("size", "name"), [(1, "few.csv"), (37, "small.csv"), (1000, "small.csv"), (10_000_000, "small.csv")]
)
def test_any_chunk_size_equals_inline(data: Path, calm: Calm, tmp_path: Path, size: int, name: str) -> None:
    """2,000 rows, or 300 one by one, cut into chunks of any number of records, through real workers."""
    args = ("planagent", name, "--chunk-size", str(size), "--run-dir", tmp_path / "run", "--format", "none")
    done = evalq(*args, cwd=data)
    assert done.returncode == 0, done.stderr
    same_answer(calm(name), tmp_path / "run")


@pytest.mark.parametrize("size", [177, 5_000])
def test_a_log_out_of_order_equals_inline(data: Path, calm: Calm, tmp_path: Path, size: int) -> None:
    """A shuffled log cut over workers is sorted outside memory to the answer of the log in one piece."""
    args = ("cooperation", "shuffled.jsonl", "--chunk-size", str(size), "--run-dir", tmp_path / "run")
    done = evalq(*args, "--format", "none", cwd=data)
    assert done.returncode == 0, done.stderr
    same_answer(calm("shuffled.jsonl"), tmp_path / "run")


@pytest.mark.skipif(not REAL.exists(), reason=f"the real CSV is not here: {REAL}")
@pytest.mark.parametrize("args", [("--inline",), ("--workers", "1"), ("--workers", "4", "--chunk-size", "5")])
def test_the_real_file_gives_one_report(tmp_path: Path, args: tuple[str, ...]) -> None:
    """The real CSV, in one piece here and in pieces over workers."""
    for folder, how in (("one", ("--inline",)), ("other", args)):
        done = evalq("planagent", REAL, *how, "--out", folder, "--format", "none", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    same_answer(tmp_path / "one", tmp_path / "other")


def test_packed_and_piped_input_is_the_same_input(data: Path, calm: Calm, tmp_path: Path) -> None:
    """A .gz through workers has the file's records and digest."""
    packed = tmp_path / "small.csv.gz"
    packed.write_bytes(gzip.compress((data / "small.csv").read_bytes()))
    done = evalq("planagent", packed, "--out", tmp_path / "run", "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    same_answer(calm("small.csv"), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "report.json").read_bytes())["inputs"][0]["name"] == "small.csv"


def test_workers_elsewhere_get_the_bytes_by_the_ledger(
    server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path
) -> None:
    """A worker whose roots do not hold the input is sent each chunk, and leaves no blob behind."""
    fleet.add(2, "--root", str(tmp_path))
    args = ("planagent", "small.csv", "--broker", server.url, "--chunk-size", "100", "--out", tmp_path / "run")
    done = evalq(*args, "--format", "none", cwd=data)
    assert done.returncode == 0, done.stderr
    same_answer(calm("small.csv"), tmp_path / "run")
    assert not [key for key in server.client.keys("*:blobs") if server.client.hlen(key)]


def test_several_files_are_one_run(data: Path, tmp_path: Path) -> None:
    """A glob of files is one run with a result each, in any number of workers the same."""
    for name in ("b.csv", "a.csv"):
        (tmp_path / name).write_bytes((data / "small.csv").read_bytes())
    for folder, how in (("one", ("--inline",)), ("other", ("--workers", "2", "--chunk-size", "300"))):
        done = evalq("planagent", "*.csv", *how, "--out", folder, "--format", "none", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    same_answer(tmp_path / "one", tmp_path / "other")


def test_a_folder_of_a_record_a_file_is_one_answer(server: Server, tmp_path: Path) -> None:
    """vs over a folder of JSON files: inline, here and there, over an embedded server, and over a fleet that has none
    of the files; a broken file is named in all of them, and the same --once key is the same run."""
    outputs = tmp_path / "here" / "outputs"
    golden = write_singles(outputs)
    shutil.copytree(outputs, tmp_path / "there" / "outputs")
    (tmp_path / "elsewhere").mkdir()
    with running_fleet(server.url, tmp_path / "elsewhere") as fleet:
        fleet.add(1)
        ways: dict[str, tuple[str, ...]] = {
            "one": ("--outputs", "here/outputs", "--inline", "--once", "k"),
            "two": ("--outputs", "there/outputs/", "--workers", "2", "--chunk-size", "7"),
            "three": ("--outputs", str(outputs), "--broker", server.url, "--chunk-size", "11"),
        }
        for folder, args in ways.items():
            done = evalq("vs", golden, *args, "--out", folder, "--format", "none", cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert "fault: outputs/FULL-01.9.json: no output: not JSON" in done.stderr
    same_answer(tmp_path / "one", tmp_path / "two")
    same_answer(tmp_path / "one", tmp_path / "three")
    records = [json.loads(line) for line in (tmp_path / "one" / "records.jsonl").read_text().splitlines()]
    files = sorted(path.name for path in outputs.iterdir())
    assert [record["record"] for record in records] == [f"outputs/{name}" for name in files]
    done = evalq("vs", golden, *ways["one"], "--out", "one", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "one" / "report.json").read_bytes())
    shown = json.loads(done.stdout)
    started = json.loads((tmp_path / "one" / "run.json").read_bytes())["started"]
    assert shown["test_run"] == {"timestamp": started, **kept["results"]["test_run"]}
    assert shown["mode_collapse"] == kept["results"]["mode_collapse"]


def write_singles(folder: Path) -> Path:
    """The sample of vs as a file an output, in ``folder``, and a broken one; returns its golden set."""
    folder.mkdir(parents=True)
    request = sampled("vs", folder.parent, 90, 3)
    for line in Path(request.options["outputs"][0]).read_text().splitlines():
        record = json.loads(line)
        (folder / f"{record['case']}.{record['repeat']}.json").write_text(json.dumps(record["output"], indent=2))
    (folder / "FULL-01.9.json").write_text("{")
    return Path(request.inputs[0])
