"""The current folder's door: what lies beside the data is data; no command and no process of ours imports any of it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.workers.ledger.detached import Reports
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.processes.system import child
from evalq.workers.settings import Settings
from tests.agents.server import running_agent, write_golden
from tests.integration.harness import Server, clean_environment, evalq, same_answer, serves, wait_until

EVALQ = str(Path(sys.executable).parent / "evalq")
OURS = {"evalq", "evalcore", "workers", "producer"}
BESIDE = {"celeryconfig", "sitecustomize", "usercustomize", "conftest"}
SECONDS = 100  # a command that waits for a process which cannot start never ends
# posix is built in: the marker is made before anything else is imported.
TRAP = "import posix\nposix.close(posix.open({!r}, posix.O_CREAT))\nraise ImportError('a module of the data')\n"


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Path]:
    """A folder with results.csv, and modules of every name that anything could import; none was when the test ends."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    with (folder / "results.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 600, seed=3)
    names = {*sys.stdlib_module_names, *packages_distributions(), *BESIDE}
    for name in sorted(names - OURS - {"__main__"}):
        (folder / f"{name}.py").write_text(_trap(tmp_path, name))
    for name in OURS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(_trap(tmp_path, name))
    (folder / "x-1.dist-info").mkdir()
    (folder / "x-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: x\nVersion: 1\n")
    (folder / "x-1.dist-info" / "entry_points.txt").write_text("[evalq.evaluators]\nplanagent = secrets:evaluator\n")
    yield folder
    assert not sorted(path.name for path in tmp_path.glob("imported-*")), "modules of the data were imported"


def _trap(folder: Path, name: str) -> str:
    return TRAP.format(str(folder / f"imported-{name}"))


def run(*args: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The installed command, as a user types it."""
    done = subprocess.run(
        [EVALQ, *map(str, args)],
        cwd=cwd,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@contextlib.contextmanager
def running(*args: str | Path, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """The same, for the length of a block, also where something asks for Django's ways."""
    environment = clean_environment(DJANGO_SETTINGS_MODULE="settings")
    command = [EVALQ, *map(str, args)]
    process = subprocess.Popen(command, cwd=cwd, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS)


def test_a_trap_is_sprung_by_an_import(tmp_path: Path, trap: Path) -> None:
    """Where the current folder is on the path, the marker appears: without it the tests here would show nothing."""
    done = subprocess.run([sys.executable, "-c", "import redis"], cwd=trap, capture_output=True, text=True, check=False)
    assert "a module of the data" in done.stderr
    for marker in tmp_path.glob("imported-*"):
        marker.unlink()


def test_embedded_runs_import_nothing_of_the_folder(trap: Path) -> None:
    """Demo, a run, its report and `doctor`, beside modules of every name."""
    run("demo", "--only", "planagent", "--records", "300", "--workers", "1", cwd=trap)
    run("planagent", "results.csv", "--workers", "1", "--out", "embedded", cwd=trap)
    run("planagent", "results.csv", "--inline", "--out", "inline", cwd=trap)
    same_answer(trap / "inline", trap / "embedded")
    run("report", "embedded", "-o", "rows.csv", cwd=trap)
    run("status", "embedded", cwd=trap)
    run("doctor", cwd=trap)


def test_a_run_folder_may_have_the_name_of_a_package(tmp_path: Path) -> None:
    """`--out workers` makes a folder that Python would take for a package of that name; so with all of evalq's."""
    with (tmp_path / "results.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 300, seed=3)
    *others, last = sorted(OURS)
    for name in others:
        assert evalq("planagent", "results.csv", "--inline", "--out", name, cwd=tmp_path).returncode == 0
    run("planagent", "results.csv", "--workers", "1", "--out", last, cwd=tmp_path)  # from nothing, beside all of them
    for name in OURS:
        assert (tmp_path / name / "report.json").is_file()


def test_a_fleet_imports_nothing_of_the_folder_of_the_inputs(server: Server, tmp_path: Path, trap: Path) -> None:
    """A worker, a run, a detached run that the worker finishes, a live sweep, and an exporter."""
    place, calm = ("--broker", server.url), tmp_path / "calm"
    shutil.copy(trap / "results.csv", tmp_path)
    assert evalq("planagent", "results.csv", "--inline", "--out", calm, cwd=tmp_path).returncode == 0
    with running_agent() as (agent, url):
        write_golden(trap / "golden.json", {"C": {}})
        chat = {"kind": "openai", "base_url": url, "model": "m"}
        (trap / "targets.yaml").write_text(json.dumps({"targets": {"chat": chat}}))
        serving = ("--concurrency", "1", "--calls", "2", "--targets", "targets.yaml")
        with running("worker", *place, *serving, cwd=trap):
            wait_until(lambda: serves(server), "the worker serves", SECONDS)
            run("planagent", "results.csv", *place, "--out", "fleet", cwd=trap)
            same_answer(calm, trap / "fleet")
            left = run("planagent", "results.csv", *place, "--detach", "--out", "left", cwd=trap).stdout.strip()
            reports = Reports(RunLedger(server.client, Settings()), Settings())
            wait_until(lambda: reports.report(left), "the worker finishes the detached run", SECONDS)
            run("vs", "golden.json", *place, "--target", "chat", "--repeat", "3", "--out", "swept", cwd=trap)
            assert len(agent.log) == 3
            run("doctor", *place, cwd=trap)
            run("list", *place, cwd=trap)


def test_an_exporter_imports_nothing_of_its_folder(server: Server, trap: Path) -> None:
    """It answers."""
    with running("exporter", "--broker", server.url, "--port", "0", cwd=trap) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split()[-1]
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:  # noqa: S310 - the exporter's own address
            assert answer.status == 200


CELL = """
import evalq

run = evalq.evaluate("planagent", "results.csv")
assert evalq.evaluate("planagent", "results.csv", workers=1, folder="queued").report == run.report
assert len(run.records()) == 600 and len(run.summary())
evalq.open_run("queued")._repr_markdown_()
"""
PLUG_IN = """
import json
from evalq import Evaluator, Outcome, Params, State, Tally, canonical_json, check_evaluator

class Count(State):
    lines: int = 0
    def merge(self, later):
        self.lines += later.lines

class Lines(Evaluator[Params, Count]):
    name, version, summary, Params, State = "lines", "1", "Count lines.", Params, Count
    def evaluate(self, batch, params):
        found = [number for number, _ in batch.lines()]
        lines = [canonical_json({"record": batch.where(n), "id": str(n), "status": "scored"}) for n in found]
        return Outcome(Count(len(found)), Tally(scored=len(found)), lines)
    def section(self, results, params):
        return {"lines": sum(result.state.lines for result in results)}

def test_the_contract(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"n": n}) + chr(10) for n in range(3)))
    check_evaluator(Lines(), [tmp_path / "a.jsonl"], rounds=1)
"""


@pytest.fixture
def checkout(tmp_path: Path, trap: Path) -> Path:
    """A folder with results.csv whose modules have the names of evalq's parts, and none those of other packages."""
    folder = tmp_path / "repository"
    folder.mkdir()
    shutil.copy(trap / "results.csv", folder)
    for name in OURS - {"evalq"}:
        shutil.copytree(trap / name, folder / name)
    for name in ("celeryconfig", "settings", "tasks"):
        (folder / f"{name}.py").write_text(_trap(tmp_path, name))
    return folder


def python(*words: str, cwd: Path) -> str:
    """Python as a user starts it, in a folder."""
    command = [sys.executable, *words]
    environment = clean_environment()
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_notebook_is_not_shown_the_folder_s_parts_for_evalq_s(checkout: Path) -> None:
    """A cell's code, with the current folder first on the path, beside folders workers/, producer/ and evalcore/."""
    python("-c", CELL, cwd=checkout)


def test_a_notebook_that_leaves_its_folder_out_works_beside_anything(trap: Path) -> None:
    """With `-P`, also beside a redis.py, yaml.py and celery.py, and an evalq/; without, these are what is imported."""
    python("-P", "-c", CELL, cwd=trap)


def test_pytest_checks_a_plug_in_beside_foreign_parts(checkout: Path) -> None:
    """Beside workers/, producer/ and evalcore/, pytest runs as its user is used to."""
    (checkout / "test_plug_in.py").write_text(PLUG_IN)
    assert "1 passed" in python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_plug_in.py", cwd=checkout)


def test_pytest_that_leaves_its_folder_out_checks_a_plug_in_beside_anything(trap: Path) -> None:
    """Beside modules of every name, once pytest neither puts the folder on the path nor reads its conftest.py."""
    (trap / "test_plug_in.py").write_text(PLUG_IN)
    words = ("-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--noconftest")
    assert "1 passed" in python(*words, "test_plug_in.py", cwd=trap)


def test_there_is_one_way_to_start_a_process_of_our_own() -> None:
    """Only one module runs Python, so that none forgets to leave the current folder out."""
    top = Path(__file__).parents[2]
    sources = [path for package in ("evalcore", "workers", "producer") for path in (top / package).rglob("*.py")]
    starting = [path.relative_to(top).as_posix() for path in sources if "sys.executable" in path.read_text()]
    assert starting == ["workers/processes/system.py"]
    assert child("m", "x") == [sys.executable, "-P", "-m", "m", "x"]
