"""evalq among somebody else's things: server, environment and folders are as they were, but for evalq's own names."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path
from typing import Any

import redis

from tests.contract.celery_variables import variables_read
from tests.integration.harness import (
    HAZARDS,
    PATIENCE,
    Server,
    committed,
    evalq,
    new_interpreters,
    running_fleet,
    start_evalq,
    wait_until,
)
from tests.integration.midway import hold
from tests.integration.neighbours import foreign, put_foreign_keys

OTHERS = {
    "redis.py": "raise SystemExit('imported')\n",
    "celeryconfig.py": "raise SystemExit('imported')\n",
    "kombu/__init__.py": "raise SystemExit('imported')\n",
    "sitecustomize.py": "raise SystemExit('imported')\n",
    "celerybeat-schedule": "x",
    "celeryd.pid": "1",
    ".env": "EVALQ_BROKER=redis://elsewhere.invalid/0\nCELERY_BROKER_URL=redis://elsewhere.invalid/0\n",
    "evalq.yaml": "this: is no suite\n",
    "evalq.log": "x",
    "evalq-notes/a.txt": "x",
    "runs/run.json": "{}",
    "run.json": "{}",
    "outputs.jsonl": "x",
    "report.json": "{}",
    "pyproject.toml": "[tool.other]\nx = 1\n",
}
"""Files with names that evalq, Celery and Python know."""


def _put_foreign_files(folder: Path) -> None:
    for name, text in OTHERS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "link").symlink_to("run.json")


def _files(folder: Path) -> dict[str, tuple[int, int, str]]:
    """{path: mode, time of change, digest} of what is not evalq's own."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith("evalq-runs/"):
            status = path.lstat()
            found[name] = (status.st_mode, status.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def _server_wide(server: Server) -> dict[str, Any]:
    """What is no key: channels, functions, users, databases and settings."""
    client = server.client
    return {
        "channels": client.pubsub_channels(),
        "patterns": client.pubsub_numpat(),
        "functions": client.function_list(),
        "users": client.acl_list(),
        "databases": sorted(client.info("keyspace")),
        "settings": {name: value for name, value in client.config_get("*").items() if name != "dir"},
    }


def test_nothing_of_anybody_else_s_is_changed(server: Server, tmp_path: Path) -> None:
    """Workers, a run whose workers are killed, commands that look and remove: then all is compared."""
    folders = {name: tmp_path / name for name in ("work", "home", "tmp")}
    for folder in folders.values():
        folder.mkdir()
        _put_foreign_files(folder)
    work = folders["work"]
    _put_foreign_data(server)
    held = hold(work, free=30, held=6)
    environment = _foreign_environment(HOME=str(folders["home"]), TMPDIR=str(folders["tmp"]))
    files = {name: _files(folder) for name, folder in folders.items()}
    keys, wide = foreign(server.client), _server_wide(server)
    place = ("--broker", server.url)
    with new_interpreters(), running_fleet(server.url, work, **environment) as fleet:
        fleet.add(2)
        run = start_evalq(*held.command, *place, "--out", "evalq-runs/r", cwd=work, **environment)
        wait_until(lambda: committed(server, work / "evalq-runs" / "r") >= 5, "some chunks are committed")
        fleet.kill_at_work(server)
        last = fleet.add(2)
        held.let_go()
        _, said = run.communicate(timeout=PATIENCE)
        assert run.returncode == 0, said
        for words in (("list",), ("status", *place), ("doctor", *place), ("prune", "--older-than", "0", *place)):
            done = evalq(*words, cwd=work, seconds=PATIENCE, **environment)
            assert done.returncode in (0, 1), done.stderr
        last.send_signal(signal.SIGTERM)
        assert last.wait(timeout=PATIENCE) == 0
    assert foreign(server.client) == keys
    assert _server_wide(server) == wide
    for name, before in files.items():
        before.pop("gate", None)  # the test's own, with which it let go
        assert _files(folders[name]) == before, f"{name}: a file is new, gone or another"
    assert not (work / "evalq-runs" / "r").exists(), "prune removed evalq's own"


def _put_foreign_data(server: Server) -> None:
    put_foreign_keys(server.client)
    server.client.hset("unacked", mapping={"not a tag": "not a message"})
    server.client.zadd("unacked_index", {"not a tag": 1.0})
    server.client.set("unacked_mutex", "another's", ex=7200)
    with redis.Redis(port=server.port, db=1) as other:
        put_foreign_keys(other)


def _foreign_environment(**named: str) -> dict[str, str]:
    """Celery's variables, a Service's, and plain names; PYTHONSAFEPATH is how the program `evalq` starts."""
    celery = dict.fromkeys(sorted(variables_read().keys() - {"TERM"}), "nonsense")
    links = {"EVALQ_REDIS_SERVICE_HOST": "10.0.0.1", "EVALQ_REDIS_PORT": "tcp://10.0.0.1:6379"}
    plain = {"REDIS_URL": "redis://elsewhere.invalid/0", "BROKER": "x", "LEDGER": "x", "SETTINGS": "x", "DEBUG": "1"}
    return celery | links | plain | named | {"PYTHONPATH": HAZARDS, "PYTHONSAFEPATH": "1"}
