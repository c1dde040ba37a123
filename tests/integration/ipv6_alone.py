"""All that listens or connects, on a machine that has IPv6 alone: what `test_ipv6` runs in a network of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

from evalq.producer.local.processes import server_program
from tests.integration.harness import EVALQ, PATIENCE, wait_until

HEALTH = Path(__file__).parents[2] / "deploy" / "health.sh"


def _answers(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310 - http alone, of a server started here
        return bytes(answer.read())


def main(folder: Path) -> None:
    """Each door in turn; raises where one does not open."""
    ports = iter(range(20_001, 20_100))  # of a network that nobody else is in
    port = next(ports)
    broker, started = f"redis://[::1]:{port}/0", []
    try:
        server = [server_program(), "--port", str(port), "--bind", "::1", "--save", "", "--dir", str(folder)]
        started.append(subprocess.Popen(server, stdout=subprocess.DEVNULL))

        def evalq(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([*EVALQ, *words], cwd=folder, capture_output=True, text=True, check=False)

        def begin(*words: str) -> str:
            process = subprocess.Popen([*EVALQ, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            started.append(process)
            assert process.stdout is not None
            return process.stdout.readline().decode()

        wait_until(lambda: evalq("list", "--broker", broker).returncode == 0, "the server answers")
        assert "is ready" in (said := begin("worker", "--broker", broker, "--concurrency", "1")), said
        run = evalq("verification", "t.jsonl", "--broker", broker, "--out", "run", "--format", "none")
        assert run.returncode == 0, run.stderr
        seen = evalq("doctor", "--worker", "--broker", broker)
        assert seen.returncode == 0, seen.stdout
        for bind in ((), ("--bind", "::1"), ("--bind", "*"), ("--bind", "localhost")):
            at = str(next(ports))
            said = begin("exporter", "--broker", broker, "--port", at, *bind)
            assert said.startswith("metrics at http://[::"), said
            assert b"evalq_ledger_up" in _answers(f"http://[::1]:{at}/metrics")
            process = started[-1]
            well = subprocess.run(["sh", str(HEALTH), str(process.pid)], capture_output=True, text=True, check=False)
            assert well.returncode == 0, well.stderr
        page = json.loads(begin("view", "--json"))["url"]
        assert page.startswith("http://[::1]:"), page
        assert b"<html" in _answers(page)
    finally:
        for process in started:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
