"""A run starts as fast as what it imports: nothing that it does not use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evalq.evalcore.evaluators.cooperation.sample import write_events
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.evalcore.native import compiled_log
from tests.integration.harness import clean_environment

SERVERS = {"amqp", "asyncio", "billiard", "celery", "hiredis", "kombu", "redis", "ssl", "vine"}
"""What reaches or serves queues: 150 ms, and as much again for a worker's."""
OTHERS = {"google", "httpx", "numpy", "pandas", "prometheus_client", "pyarrow", "pydantic_settings", "rapidfuzz", "re2"}
"""What other evaluators, larger inputs and other outputs need."""
SHOWN = {"opentelemetry", "rich", "webbrowser"}
"""What nobody asked for here: traces, a bar on a terminal, a page that is opened."""
_RUN = """
import json, sys
from evalq.producer.cli import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]))
"""


def _imported(folder: Path, *args: str) -> set[str]:
    """All modules that a command has imported when it ends."""
    command = [sys.executable, "-c", _RUN, *args]
    done = subprocess.run(
        command, cwd=folder, env=clean_environment(), capture_output=True, text=True, check=True, timeout=120
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules)


@pytest.mark.parametrize("where", [["--inline"], []], ids=["inline", "by default"])
def test_a_run_in_this_process_imports_what_it_uses(tmp_path: Path, where: list[str]) -> None:
    """No queue, no server's client, no other evaluator, no comparing or viewing, and no library of theirs."""
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 20, seed=1)
    modules = _imported(tmp_path, "planagent", "rows.csv", *where, "--out", "run", "--format", "none", "--quiet")
    assert (tmp_path / "run" / "report.json").is_file()
    tops = {name.partition(".")[0] for name in modules}
    assert not tops & (SERVERS | OTHERS | SHOWN)
    evaluators = {name for name in modules if name.startswith("evalq.evalcore.evaluators.")}
    assert {name.split(".")[3] for name in evaluators} == {"planagent"}
    unused = (
        "workers.pool.main",
        "workers.pool.chunk_runner",
        "workers.broker",
        "workers.callers.main",
        "workers.monitor",
    )
    others = ("producer.comparing", "producer.viewing", "producer.follow", "evalcore.compare", "evalcore.scan")
    rooms = {f"evalq.{room}" for room in (*unused, *others)}
    assert not {name for name in modules if any(name == room or name.startswith(f"{room}.") for room in rooms)}


@pytest.mark.skipif(compiled_log() is None, reason="nothing is compiled here")
def test_a_log_is_counted_without_numpy(tmp_path: Path) -> None:
    """Whatever its length: importing NumPy takes as long as reading 70 MB of events, and half of a process's memory."""
    with (tmp_path / "events.jsonl").open("wb") as stream:
        write_events(stream, 40_000, seed=1)
    modules = _imported(tmp_path, "cooperation", "events.jsonl", "--inline", "--run-dir", "run", "--format", "none")
    assert (tmp_path / "run" / "report.json").stat().st_size
    assert not {name.partition(".")[0] for name in modules} & (SERVERS | OTHERS | SHOWN)


def test_a_process_for_functions_imports_next_to_nothing() -> None:
    """A call that may have killed one is made in another, and those that were in flight with it wait for that."""
    code = "import json, sys; import evalq.workers.processes.function_host; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=120)
    tops = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not tops & ({"pydantic", "yaml"} | (SERVERS - {"asyncio", "ssl"}) | OTHERS | SHOWN)


def test_help_imports_no_evaluator(tmp_path: Path) -> None:
    """The list of commands comes at once: it is read from entry points and docstrings."""
    modules = _imported(tmp_path, "--help")
    assert not {name.partition(".")[0] for name in modules} & (SERVERS | OTHERS | SHOWN | {"pydantic", "yaml"})
    assert not {name for name in modules if name.startswith("evalq.evalcore.evaluators.")}


def test_driving_a_run_on_redis_imports_no_celery() -> None:
    """A producer writes hints itself; Celery is the workers', and of those who publish to RabbitMQ."""
    program = "import json, sys, evalq.producer.run.work; print(json.dumps([0, sorted(sys.modules)]))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=clean_environment(), capture_output=True, text=True, check=True
    )
    tops = {name.partition(".")[0] for name in json.loads(done.stdout)[1]}
    assert "redis" in tops
    assert not tops & ((SERVERS | OTHERS | {"rich"}) - {"amqp", "asyncio", "hiredis", "kombu", "redis", "ssl", "vine"})
