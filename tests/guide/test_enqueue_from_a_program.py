"""The page about programs that enqueue, walked: its web service, notebook, schedule and task, on a real fleet."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

import evalq
from tests.guide.test_notebook import _RUN, FOLDER
from tests.integration.celery_alone import celery_alone, python
from tests.integration.harness import Fleet, Server, clean_environment, running_fleet, running_server, wait_until
from tests.integration.ports import free_port

TOP = Path(__file__).parents[2]
PATIENT = 60.0
PAGE = (TOP / "docs" / "how-to" / "enqueue-from-a-program.md").read_text(encoding="utf-8")
ANSWERS = [{"case": "refund", "output": "Within 30 days."}, {"case": "parcel", "output": "On Friday."}]


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


SERVICE, SCHEDULE, CLIENT, TASK, DAG = _blocks("python")
CASES, SUITE = _blocks("yaml")


class Place(NamedTuple):
    """The page's folder, its server, and a fleet without a worker yet."""

    folder: Path
    server: Server
    fleet: Fleet


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """The page's files, and the variable that it sets."""
    folder = tmp_path / "work"
    (folder / "requests").mkdir(parents=True)
    for name in ("cases.yaml", "requests/cases.yaml"):
        (folder / name).write_text(CASES)
    (folder / "requests" / "nightly.yaml").write_text(SUITE)
    for name in ("answers.jsonl", "requests/answers.jsonl"):
        (folder / name).write_text("".join(json.dumps(each) + "\n" for each in ANSWERS))
    monkeypatch.chdir(folder)
    with running_server(tmp_path) as server:
        url = server.url.removesuffix("0") + "1"
        monkeypatch.setenv("EVALQ_BROKER", server.url)
        with running_fleet(server.url, folder, EVALQ_SUBMIT_BROKER=url) as fleet:
            yield Place(folder, server, fleet)


def _asked(url: str, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, Any]:
    answer = httpx.request(method, url, json=body, headers=headers, timeout=60)
    return answer.status_code, answer.json()


def test_the_web_service_takes_answers_and_gives_reports(place: Place) -> None:
    """In 50 lines: 202 with an id, progress, the report, one run for one key; typed errors become statuses."""
    code = [line for line in SERVICE.splitlines() if line.strip() and not line.startswith(('"""', "import", "from"))]
    assert len(code) <= 50
    (place.folder / "service.py").write_text(SERVICE)
    port, environment = free_port(), clean_environment(EVALQ_BROKER=place.server.url)
    service = subprocess.Popen(
        [sys.executable, "service.py", str(port)], cwd=place.folder, env=environment, stderr=subprocess.DEVNULL
    )
    try:
        base = f"http://127.0.0.1:{port}"
        wait_until(lambda: _reached(base), "the service answers", PATIENT)
        status, first = _asked(base, "POST", ANSWERS, **{"Idempotency-Key": "k"})
        assert status == 202
        assert _asked(base, "POST", ANSWERS, **{"Idempotency-Key": "k"})[1] == first
        assert _asked(f"{base}/{first['id']}") == (200, {"state": "open", "done": 0, "total": 1})
        status, other = _asked(base, "POST", ANSWERS[:1])
        assert other["id"] != first["id"]
        assert _asked(f"{base}/{other['id']}", "DELETE") == (200, {"state": "cancelled"})
        place.fleet.add(1)
        status, results = _asked(f"{base}/{first['id']}/report")
        here = evalq.evaluate("checks", "cases.yaml", options={"outputs": ANSWERS})
        assert (status, results) == (200, here.report["results"])
        assert _asked(f"{base}/none")[0] == 404
        assert _asked(base, "POST", [{"case": "refund", "output": [[]] * 3}, 5])[0] == 400
        assert _asked(f"{base}/{other['id']}/report")[0] == 503
    finally:
        service.terminate()
        service.wait()


def _reached(base: str) -> bool:
    try:
        return _asked(base)[0] > 0
    except httpx.TransportError:
        return False


def test_the_notebook_runs_from_its_first_cell_to_its_last(place: Place) -> None:
    """It shows what its text says."""
    place.fleet.add(1)
    command = [sys.executable, "-c", _RUN, str(FOLDER / "submit-from-a-notebook.ipynb")]
    environment = clean_environment(EVALQ_BROKER=place.server.url)
    for _ in range(2):  # a second time: the same run
        ran = subprocess.run(command, cwd=place.folder, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        shown = json.loads(ran.stdout)
        assert shown["records"]["text"] == "['passed', 'passed', 'failed']"
        assert shown["gate"]["text"] in ("'GO'", "'NO-GO'", "'INCONCLUSIVE'")
    assert len(evalq.runs()) == 1


def test_a_schedule_and_a_client_without_evalq_begin_the_suite(place: Place, tmp_path: Path) -> None:
    """The page's beat, every second instead of every day, and its client: both get the ids of the suite's runs."""
    place.fleet.add(1, "--submit", str(place.folder / "requests"), "--root", ".")
    alone = tmp_path / "alone"
    alone.mkdir()
    environment = celery_alone(alone)
    url = place.server.url.removesuffix("0") + "1"
    ours = {"redis://localhost:6379/1": url, "24 * 3600.0": "1.0"}
    client, schedule = CLIENT, SCHEDULE
    for old, new in ours.items():
        client, schedule = client.replace(old, new), schedule.replace(old, new)
    said = subprocess.run(
        [python(environment), "-c", client], env=environment, cwd=alone, capture_output=True, text=True, check=True
    )
    (found,) = re.findall(r"'checks': '([\w-]+)'", said.stdout)
    (alone / "schedule.py").write_text(schedule)
    beat = subprocess.Popen(
        [python(environment), "-m", "celery", "-A", "schedule", "beat", "-s", str(alone / "state"), "--pidfile="],
        env=environment, cwd=alone, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: len(evalq.runs()) > 1, "beat has begun one", PATIENT)
    finally:
        beat.terminate()
        beat.wait()
    here = evalq.evaluate("checks", "cases.yaml", options={"outputs": "answers.jsonl"})
    for handle in evalq.runs():
        run = handle.run()
        assert (run.suite, run.report["results"]) == ("nightly", here.report["results"])
    assert found in {handle.id for handle in evalq.runs()}


def test_the_task_of_the_dag_waits_for_its_gate(place: Place) -> None:
    """What Airflow would call: it fails by the policy, and a retry finds the same run."""
    place.fleet.add(1)
    here: dict[str, Any] = {}
    exec(compile(TASK, "evaluation.py", "exec"), here)  # noqa: S102 - the page's own code
    assert "from evaluation import evaluate" in DAG
    low = {"gates": [{"metric": "checks.pass_rate", "min": 0.1}], "minimum_pairs": 1}
    first = here["evaluate"]("answers.jsonl", low, key="scheduled__2026-01-01")
    assert here["evaluate"]("answers.jsonl", low, key="scheduled__2026-01-01") == first
    high = {"gates": [{"metric": "checks.outputs.passed", "min": 2}], "minimum_pairs": 1}
    with pytest.raises(RuntimeError, match="NO-GO"):
        here["evaluate"]("answers.jsonl", high, key="scheduled__2026-01-01")
    assert len(evalq.runs()) == 1
