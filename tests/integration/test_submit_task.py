"""The Celery task evalq.submit: any Celery client begins runs, and hostile requests begin and read nothing."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
import redis

import evalq
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.producer.door.request import MOST_BYTES, SubmitRequest, schema
from tests.agents.server import running_agent, write_golden
from tests.integration.celery_alone import celery_alone, python
from tests.integration.harness import Fleet, Server, clean_environment, launch, running_fleet, wait_until
from tests.integration.harness import evalq as run_evalq

_CLIENT = """
import json, os, sys
from celery import Celery
url = os.environ["DOOR"]
app = Celery(broker=url, backend=url)
found = []
for request in json.load(sys.stdin):
    result = app.send_task("evalq.submit", kwargs=request)
    try:
        found.append([result.get(timeout=60), result.state])
    except Exception as error:
        found.append([str(error), result.state])
print(json.dumps(found))
"""
_BEAT = """
import os
from celery import Celery
url = os.environ["DOOR"]
app = Celery(broker=url, backend=url)
app.conf.beat_schedule = {
    "continuous": {
        "task": "evalq.submit",
        "schedule": 1.0,
        "kwargs": {"run": {"evaluator": "planagent", "inputs": ["few.csv"]}, "suite_name": "beat"},
        "options": {"task_id": "from-beat"},
    }
}
"""


class Door(NamedTuple):
    """A worker that takes requests: their server and database, and the folder that they may name files in."""

    server: Server
    url: str
    results: Any
    folder: Path
    fleet: Fleet

    def send(self, kwargs: Any, **how: Any) -> str:
        """Put a message of Celery's protocol 2 into the queue; returns its task's id."""
        task_id: str = how.pop("task_id", None) or str(uuid.uuid4())
        body = how.pop("body", None)
        if body is None:
            embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None, **how.pop("embed", {})}
            body = json.dumps([how.pop("args", []), kwargs, embed]).encode()
        headers = {"lang": "py", "task": "evalq.submit", "id": task_id, **how.pop("headers", {})}
        message = {
            "body": base64.b64encode(body).decode(),
            "content-encoding": "utf-8",
            "content-type": how.pop("content_type", "application/json"),
            "headers": {name: value for name, value in headers.items() if value is not ...},
            "properties": {
                "body_encoding": "base64",
                "delivery_tag": str(uuid.uuid4()),
                "delivery_info": {"exchange": "", "routing_key": "celery"},
            },
        }
        assert not how, f"not known: {how}"
        self.results.lpush("celery", json.dumps(message))
        return task_id

    def result(self, task_id: str) -> dict[str, Any]:
        """The result of a task, once it is there."""
        data = wait_until(lambda: self.results.get(f"celery-task-meta-{task_id}"), f"the result of {task_id}")
        found: dict[str, Any] = json.loads(data)
        return found

    def refused(self, task_id: str) -> str:
        """The error that a task ended with."""
        found = self.result(task_id)
        assert (found["status"], found["traceback"]) == ("FAILURE", None)
        (text,) = found["result"]["exc_message"]
        return str(text)

    def environment(self, folder: Path) -> dict[str, str]:
        """An environment with Celery alone, that knows the server of requests."""
        folder.mkdir()
        return celery_alone(folder) | {"DOOR": self.url}


@pytest.fixture
def door(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """A worker with requests allowed, some files, and a secret beside the folder that they may name files in."""
    root = tmp_path / "root"
    folder = root / "requests"
    folder.mkdir(parents=True)
    with (folder / "few.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 20, seed=3)
    (root / "secret.csv").write_bytes((folder / "few.csv").read_bytes())
    (tmp_path / "secret.csv").write_bytes((folder / "few.csv").read_bytes())
    (folder / "link.csv").symlink_to(tmp_path / "secret.csv")
    (folder / "sub").mkdir()
    (folder / "sub" / "up").symlink_to(tmp_path)
    (folder / "ring").symlink_to(folder / "ring")
    runs = [{"evaluator": "planagent", "name": "few", "inputs": ["few.csv"]}]
    (folder / "suite.yaml").write_text(json.dumps({"suite": "nightly", "runs": runs}))
    twice = [runs[0], {**runs[0], "name": "gone", "inputs": ["gone.csv"]}]
    (folder / "half.yaml").write_text(json.dumps({"suite": "half", "runs": twice}))
    runs = [{**runs[0], "inputs": ["../../secret.csv"]}]
    (folder / "hostile.yaml").write_text(json.dumps({"suite": "hostile", "runs": runs}))
    (tmp_path / "suite.yaml").write_text((folder / "suite.yaml").read_text())
    url = server.url.removesuffix("/0") + "/1"
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALQ_BROKER", raising=False)
    results: Any = redis.Redis.from_url(url)
    with running_fleet(server.url, root, EVALQ_SUBMIT_BROKER=url) as fleet:
        yield Door(server, url, results, folder, fleet)


def _start(door: Door, *options: str) -> None:
    door.fleet.add(1, "--submit", str(door.folder), *options)


def test_a_client_with_celery_alone_begins_runs_and_reads_their_ids(door: Door, tmp_path: Path) -> None:
    """By `send_task`, in another environment; the run is that of a file, and errors are errors of its task."""
    _start(door)
    environment = door.environment(tmp_path / "alone")
    single = {"run": {"evaluator": "planagent", "inputs": ["few.csv"], "limit": 15}, "tags": {"by": "client"}}
    requests = [single, {"suite": "suite.yaml"}, {"suite": "none.yaml"}, {"run": {"evaluator": "planagent"}}]
    client = subprocess.run(
        [python(environment), "-c", _CLIENT],
        input=json.dumps(requests), env=environment, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (run, done), (suite, _), (missing, failed), (empty, _) = json.loads(client.stdout)
    assert (done, failed) == ("SUCCESS", "FAILURE")
    assert missing == "suite: none.yaml: no such file"
    assert "no input given" in empty
    found = evalq.connect(run, broker=door.server.url).run()
    here = evalq.evaluate("planagent", door.folder / "few.csv", limit=15)
    assert (found.report, found.tags) == (here.report, {"by": "client"})
    (name,) = suite
    nightly = evalq.connect(suite[name], broker=door.server.url).run()
    assert (name, nightly.suite, nightly.report["records"]["total"]) == ("few", "nightly", 20)
    assert not (door.folder.parent / "evalq-runs").exists(), "the folders of planning are gone"
    ttl = door.results.ttl(next(iter(door.results.scan_iter("celery-task-meta-*"))))
    assert 86_000 < ttl <= 86_400, "a day"


def test_celery_beat_evaluates_again_and_again(door: Door, tmp_path: Path) -> None:
    """A real beat, which knows nothing of evalq; under one task id its request is one run."""
    _start(door)
    environment = door.environment(tmp_path / "alone")
    work = tmp_path / "beat"
    work.mkdir()
    (work / "schedule.py").write_text(_BEAT)
    beat = subprocess.Popen(
        [python(environment), "-m", "celery", "-A", "schedule", "beat", "-s", str(work / "state"), "--pidfile="],
        env=environment, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        run = door.result("from-beat")["result"]
        assert evalq.connect(run, broker=door.server.url).wait() == "done"
        door.results.delete("celery-task-meta-from-beat")
        assert door.result("from-beat")["result"] == run, "sent again"
    finally:
        beat.terminate()
        beat.wait()
    assert [each.id for each in evalq.runs(broker=door.server.url)] == [run]


def test_a_sweep_is_begun_with_a_target_of_the_workers_file_alone(door: Door, tmp_path: Path) -> None:
    """Its callers make the calls; another name, or one that is a program, is refused."""
    with running_agent() as (agent, url):
        write_golden(door.folder / "golden.json", {"C": {}})
        targets = tmp_path / "targets.yaml"
        targets.write_text(json.dumps({"targets": {"chat": {"kind": "openai", "base_url": url, "model": "m"}}}))
        _start(door, "--calls", "2", "--targets", str(targets))
        run = {"evaluator": "vs", "golden": "golden.json", "target": "chat", "repeat": 2}
        good = door.send({"run": run})
        for bad in ("other", "python:os:system", "command:id", "openai:gpt", "http://127.0.0.1:1/v1"):
            text = door.refused(door.send({"run": {**run, "target": bad}}))
            assert "target" in text
        assert "run.stop" in door.refused(door.send({"run": {**run, "stop": "when-decided"}}))
        found = evalq.connect(door.result(good)["result"], broker=door.server.url).run()
        assert (found.report["records"]["total"], len(agent.log)) == (2, 2)


def _hostile(folder: Path) -> Iterator[tuple[Any, dict[str, Any], str]]:
    """(keyword arguments, how they are sent, a part of the error) of requests that are none, or that want too much."""
    run = {"evaluator": "planagent", "inputs": ["few.csv"]}
    outside = "below the folder of requests is needed"
    for name, why in (
        ("../secret.csv", outside),
        ("../../secret.csv", outside),
        ("sub/../../secret.csv", outside),
        (str(folder / "few.csv"), outside),
        ("/etc/passwd", outside),
        ("~/secret.csv", outside),
        ("-", outside),
        ("--inline", outside),
        ("..\\secret.csv", outside),
        ("link.csv", "leads out of the folder"),
        ("sub/up/secret.csv", "leads out of the folder"),
        ("sub/up", "leads out of the folder"),
        ("ring", ""),
        ("http://127.0.0.1/x.csv", "is a URL"),
        ("file:///etc/passwd", "is a URL"),
        ("s3://bucket/x.csv", "is a URL"),
        ("few.csv\0", "zero byte"),
        ("x" * 2000, ""),
        ("x/" * 500, ""),
        ("**/*.csv", "pattern of any depth"),
        ("none.csv", "no such file"),
        ("", ""),
        ("few.csv\u202e", "no such file"),
        ("ｆｅｗ.csv", "no such file"),
        ("\ud800", "not JSON that can be read"),
        ("/dev/zero", outside),
        ("/proc/self/environ", outside),
        (".", ""),
        ("sub/u*/secret.csv", ""),
        ("lin?.csv", ""),
    ):
        yield {"run": {**run, "inputs": [name]}}, {}, why
        if name not in (".", "ring", "") and why != "no such file":
            yield {"suite": name}, {}, ""
    for changed, why in (
        ({"evaluator": "none"}, "no evaluator 'none'"),
        ({"evaluator": ["planagent"]}, "run.evaluator"),
        ({"evaluator": None}, "run.evaluator"),
        ({"inputs": "few.csv", "out": "/tmp/x"}, "run.out: not in a request"),
        ({"output": "x.html"}, "run.output: not in a request"),
        ({"matrix": {"params.x": [1]}}, "run.matrix"),
        ({"cache": "x"}, "run.cache"),
        ({"reuse": ["x"]}, "run.reuse"),
        ({"limit": 0}, "limit"),
        ({"limit": "3"}, "limit"),
        ({"limit": True}, "limit"),
        ({"chunk_size": -1}, "chunk_size"),
        ({"chunk_size": 1.5}, "chunk_size"),
        ({"broker": "redis://x"}, "broker"),
        ({"roots": ["/"]}, "roots"),
        ({"settings": "x.yaml"}, "settings"),
        ({"params": {"no": 1}}, "no"),
        ({"params": "x"}, "params"),
        ({"params": {"rules": {"speed": "none"}}}, "speed"),
        ({"inputs": [["few.csv"]]}, "inputs"),
        ({"inputs": [{"file": "few.csv"}]}, "inputs"),
        ({"inputs": {"few.csv": 1}}, "inputs"),
        ({"inputs": 3}, "inputs"),
        ({"inputs": []}, "no input"),
        ({"name": "a b; rm -rf /"}, "name"),
        ({"target": "chat"}, ""),
        ({"judge": "python:os:system"}, ""),
        ({"judge": "command:touch /tmp/x"}, ""),
        ({"--detach": True}, "--detach"),
        ({"__class__": "x"}, "__class__"),
        ({"lang": "$(id)"}, "lang"),
    ):
        yield {"run": {**run, **changed}}, {}, why
    cooperation = {"evaluator": "cooperation", "inputs": []}
    yield {"run": {**cooperation, "config": "../x.yaml"}}, {}, outside
    yield {"run": {**cooperation, "log": "/etc/passwd"}}, {}, outside
    yield {"run": {**cooperation, "rules": "link.csv"}}, {}, "leads out"
    vs = {"evaluator": "vs", "golden": "few.csv"}
    yield {"run": {**vs, "outputs": ["../secret.csv"]}}, {}, outside
    yield {"run": {**vs, "prompt": {"template": {"file": "../../secret.csv"}}}}, {}, outside
    yield {"suite": "hostile.yaml"}, {}, "neither the suite's folder"
    yield {"suite": "few.csv"}, {}, ""
    yield {"suite": "sub"}, {}, "no such file"
    for kwargs, why in (
        ({}, "give `suite` or `run`"),
        ({"suite": "suite.yaml", "run": run}, "one of the two"),
        ({"suite": "suite.yaml", "suite_name": "x"}, "goes with `run`"),
        ({"suite": None}, "give `suite` or `run`"),
        ({"suite": 3}, "suite"),
        ({"suite": ["suite.yaml"]}, "suite"),
        ({"run": []}, "run"),
        ({"run": "planagent"}, "run"),
        ({"run": run, "unknown": 1}, "unknown: unknown key"),
        ({"run": run, "tags": {"a": 1}}, "tags"),
        ({"run": run, "tags": {str(n): "x" for n in range(21)}}, "tags"),
        ({"run": run, "tags": {"a": "x" * 1001}}, "tags"),
        ({"run": run, "tags": "x"}, "tags"),
        ({"run": run, "once": "x" * 201}, "once"),
        ({"run": run, "once": 3}, "once"),
        ({"run": run, "priority": "urgent"}, "priority"),
        ({"run": run, "suite_name": ""}, "suite_name"),
        ({"run": {**run, "params": {"a": [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}}}, "nested more than"),
        ({"run": {**run, "params": {"a": list(range(11_000))}}}, "more than 10,000 values"),
        ([run], "keyword arguments"),
        ("x", "keyword arguments"),
        (None, "keyword arguments"),
    ):
        yield kwargs, {}, why
    good = {"run": run}
    for how, why in (
        ({"args": [1]}, "keyword arguments are needed"),
        ({"args": [good, good]}, "keyword arguments are needed"),
        ({"args": {"a": 1}}, "keyword arguments are needed"),
        ({"headers": {"task": "evalq.evaluate"}}, "takes evalq.submit alone"),
        ({"headers": {"task": "os.system"}}, "takes evalq.submit alone"),
        ({"headers": {"eta": "2099-01-01T00:00:00+00:00"}}, "use Celery beat"),
        ({"headers": {"eta": "tomorrow"}}, "is no time"),
        ({"headers": {"expires": "never"}}, "is no time"),
        ({"headers": {"compression": "application/x-gzip"}}, "compressed"),
        ({"embed": {"chain": [{"task": "x"}]}}, "chain: a request begins nothing after it"),
        ({"embed": {"callbacks": [{"task": "x"}]}}, "callbacks"),
        ({"embed": {"chord": {"task": "x"}}}, "chord"),
        ({"content_type": "application/x-python-serialize"}, "JSON is needed"),
        ({"content_type": "application/x-yaml"}, "JSON is needed"),
        ({"body": b"\x80\x04."}, "not JSON"),
        ({"body": b"not json"}, "not JSON"),
        ({"body": b"[]"}, "the body of a task is"),
        ({"body": b"{}"}, "the body of a task is"),
        ({"body": b'[[], {"suite": "a", "suite": "suite.yaml"}, {}]'}, "occurs twice"),
        ({"body": b'[[], {"run": {"limit": NaN}}, {}]'}, "not JSON"),
        ({"body": b'[[], {"run": {"limit": 1e999}}, {}]'}, ""),
        ({"body": b"[" * 100_000}, "not JSON"),
        ({"body": b"[[], " + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b", {}]"}, "not JSON"),
        ({"body": b'[[], {"suite": "' + b"x" * MOST_BYTES + b'"}, {}]'}, "bytes; at most"),
        ({"body": "[[], {}, {}]".encode("utf-16")}, "not JSON"),
    ):
        yield good, how, why


def test_hostile_requests_each_get_an_error_and_do_nothing(door: Door, tmp_path: Path) -> None:
    """More than 100 kinds: no run, nothing read outside of the folder, and good requests go on between them."""
    _start(door)
    watched = [tmp_path / "secret.csv", door.folder.parent / "secret.csv"]
    for file in watched:
        os.utime(file, (1, 1))
    sent = [(door.send(kwargs, **how), kwargs, how, why) for kwargs, how, why in _hostile(door.folder)]
    assert len(sent) >= 100
    said = [(door.refused(task_id), why, kwargs, how) for task_id, kwargs, how, why in sent]
    assert [each for each in said if each[1] not in each[0]] == []
    assert [each for each in said if not 0 < len(each[0]) <= 2000] == []
    assert [each for each in said if str(tmp_path) in each[0]] == [], "senders hear no path of this machine"
    assert [each for each in said if "see the worker's log" in each[0]] == []
    assert evalq.runs(broker=door.server.url) == []
    assert all(file.stat().st_atime == 1 for file in watched), "not even read"
    assert not list(tmp_path.rglob("evalq-runs/*"))
    good = door.send({"run": {"evaluator": "planagent", "inputs": ["few.csv"]}})
    assert door.result(good)["status"] == "SUCCESS"


def test_what_is_no_message_costs_nothing_and_a_doubled_id_is_an_error(door: Door) -> None:
    """Garbage is dropped; the same request under one id is one run; another one is told so, and which run there is."""
    for garbage in (
        b"",
        b"x",
        b"{}",
        b"[]",
        b"\x00" * 100,
        b"[" * 100_000,
        b'{"body": 3}',
        json.dumps(["a"] * 9).encode(),
    ):
        door.results.lpush("celery", garbage)
    door.results.lpush("celery", b"x" * (2 * MOST_BYTES + 1))
    run = {"evaluator": "planagent", "inputs": ["few.csv"]}
    for odd in (..., None, 3, "", "a b", "x" * 300, "\n"):
        door.send({"run": run}, headers={"id": odd})
    _start(door)
    first = door.result(door.send({"run": run}, task_id="mine"))["result"]
    door.results.delete("celery-task-meta-mine")
    assert door.result(door.send({"run": run}, task_id="mine"))["result"] == first
    door.results.delete("celery-task-meta-mine")
    text = door.refused(door.send({"run": {**run, "limit": 3}}, task_id="mine"))
    assert "used for another request" in text
    assert first in text
    half = door.refused(door.send({"suite": "half.yaml"}))
    assert "gone.csv" in half
    assert "begun before it: planagent-" in half
    expired = door.result(door.send({"run": run}, headers={"expires": "2000-01-01T00:00:00"}))
    assert expired["status"] == "REVOKED"
    old = {"task": "evalq.submit", "id": "old", "args": [], "kwargs": {"run": run, "once": "k"}}
    door.send(None, body=json.dumps(old).encode(), headers={"task": ..., "id": ...})
    assert door.result("old")["status"] == "SUCCESS", "protocol 1"
    same = door.result(door.send({"run": run, "once": "k"}))["result"]
    assert same == door.result("old")["result"], "one key is one run"
    assert len(evalq.runs(broker=door.server.url)) == 3
    assert door.results.llen("celery") == 0
    assert not door.results.exists("unacked")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "needs the broker of other programs"),
        ({"EVALQ_SUBMIT_BROKER": "{url}"}, "another database or virtual host"),
        (
            {"EVALQ_SUBMIT_BROKER": "{url}/1", "EVALQ_SUBMIT_RESULTS": "{url}"},
            "submit_results: it has Celery's own names",
        ),
        ({"EVALQ_SUBMIT_BROKER": "amqp://127.0.0.1:1//"}, "results need Redis or Valkey"),
        ({"EVALQ_SUBMIT_BROKER": "nonsense"}, "submit_broker: "),
    ],
)
def test_a_worker_says_what_its_settings_lack(tmp_path: Path, settings: dict[str, str], why: str) -> None:
    """Before it serves: exit code 2."""
    url = "redis://127.0.0.1:6399/0"
    given = {name: value.format(url=url).replace("/0/1", "/1") for name, value in settings.items()}
    done = run_evalq(
        *("worker", "--broker", url, "--submit", tmp_path, "--root", tmp_path), cwd=tmp_path, seconds=60, **given
    )
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr


def test_the_folder_of_requests_is_below_a_root(tmp_path: Path) -> None:
    """Else its workers could not read what requests name."""
    (tmp_path / "root").mkdir()
    (tmp_path / "other").mkdir()
    done = run_evalq(
        *("worker", "--broker", "redis://127.0.0.1:6399/0", "--submit", tmp_path / "other"),
        *("--root", tmp_path / "root"), cwd=tmp_path, EVALQ_SUBMIT_BROKER="redis://127.0.0.1:6399/1",
    )  # fmt: skip
    assert (done.returncode, "give --root" in done.stderr) == (2, True)


def test_the_schema_holds_good_requests_and_no_others(tmp_path: Path) -> None:
    """`evalq schema` prints it; it is a JSON Schema, and the examples of the request fit it."""
    printed = json.loads(run_evalq("schema", cwd=tmp_path).stdout)
    assert printed == schema()
    check = jsonschema.Draft202012Validator(printed)
    check.check_schema(printed)
    run = {"evaluator": "planagent", "inputs": ["few.csv"]}
    for good in ({"suite": "a.yaml"}, {"run": run}, {"run": {**run, "inputs": "few.csv"}, "tags": {"a": "b"}}):
        check.validate(good)
        SubmitRequest.model_validate(good)
    for bad in ({}, {"suite": "a", "run": run}, {"run": {**run, "out": "x"}}, {"run": {"evaluator": "x"}}, {"x": 1}):
        assert not check.is_valid(bad), bad


def test_a_process_for_requests_alone_serves_until_it_is_ended(door: Door) -> None:
    """`--concurrency 0 --submit FOLDER`; what it has not taken waits for the next one."""
    environment = clean_environment(EVALQ_SUBMIT_BROKER=door.url)
    words = ["worker", "--broker", door.server.url, "--concurrency", "0", "--submit", str(door.folder)]
    alone = launch(words, cwd=door.folder.parent, env=environment, start_new_session=True)
    run = {"evaluator": "planagent", "inputs": ["few.csv"]}
    first = door.result(door.send({"run": run}))["result"]
    alone.terminate()
    assert alone.wait() == 0
    waiting = door.send({"run": {**run, "limit": 5}})
    _start(door)
    second = door.result(waiting)["result"]
    for each in (first, second):
        assert evalq.connect(each, broker=door.server.url).wait() == "done"
    began = time.monotonic()
    with contextlib.suppress(evalq.errors.EvalqError):
        evalq.connect(first, broker=door.server.url).cancel()
    assert time.monotonic() - began < 60
