"""A job that gates a commit: enqueued on one host, computed on another that sees none of its files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from evalq.evalcore.evaluators.vs.sample import GOLDEN, sample_cases, write_outputs
from evalq.producer.local.processes import server_program
from tests.chaos.network import HUB, Network, network, unavailable
from tests.integration.harness import EVALQ, clean_environment, wait_until
from tests.integration.ports import free_port

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=f"here: {unavailable()}")

CI, FLEET = "ci", "fleet"
REPEATS = 60
# The outputs of each commit are made from the baseline's: equal ones are no copies here.
POLICY = {"gates": [{"metric": "vs.pass_rate", "max_drop": 0.05}], "deterministic": True}
SUITE = {
    "suite": "agents",
    "runs": [{"evaluator": "vs", "golden": "golden.yaml", "outputs": ["outputs.jsonl"]}],
    "policy": "policy.yaml",
    "baseline": "main",
}

Lines = list[dict[str, Any]]


class Ended(NamedTuple):
    code: int
    out: str
    said: str


class Hosts:
    """The server's host, a runner of CI jobs and a host of workers; a repository with agents' recorded outputs."""

    def __init__(self, folder: Path, net: Network) -> None:
        self.folder = folder
        self.net = net
        port = free_port()
        self.url = f"redis://{net.address}:{port}/0"
        options = ["--port", str(port), "--bind", net.address, "--protected-mode", "no", "--save", ""]
        self.server = subprocess.Popen(
            [*net.prefix(HUB), server_program(), *options, "--dir", str(folder)], stdout=subprocess.DEVNULL
        )
        wait_until(self._answers, "the server answers", pause=0.1)
        self.repository = folder / "repository"
        self._jobs = 0

    def close(self) -> None:
        for process in (self.server, getattr(self, "worker", self.server)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL) if process is not self.server else process.kill()
            process.wait()

    def serve(self) -> None:
        """A worker that does not see the runner's files: all of the test's folder is hidden from it."""
        hidden = f'mount -t tmpfs none "{self.folder}" && cd / && exec "$@"'
        command = ["unshare", "-m", "sh", "-c", hidden, "sh", *EVALQ, "worker", "--broker", self.url]
        self.worker = subprocess.Popen(
            [*self.net.prefix(FLEET), *command, "--concurrency", "1"], env=clean_environment(), start_new_session=True
        )

    def commit(self, lines: Lines, golden: str | None = None) -> str:
        """A commit with these outputs, and maybe another golden set; its id."""
        (self.repository / "outputs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (self.repository / "golden.yaml").write_text(golden or GOLDEN.read_text())
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "outputs", "--allow-empty")
        return self.git("rev-parse", "HEAD")

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
        done = subprocess.run(["git", *who, *words], cwd=self.repository, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def job(self, commit: str) -> Ended:
        """The job of a commit, in a new checkout, as a runner gets it."""
        self._jobs += 1
        checkout = self.folder / f"job-{self._jobs}"
        subprocess.run(["git", "clone", "-q", self.repository, checkout], check=True)
        subprocess.run(["git", "checkout", "-q", commit], cwd=checkout, check=True)
        return self.evalq(checkout, "run", "evalq.yaml", "--once", commit, "--out", "results", "--format", "json", "-q")

    def evalq(self, cwd: Path, *words: str) -> Ended:
        command = [*self.net.prefix(CI), *EVALQ, *words, "--broker", self.url]
        done = subprocess.run(command, cwd=cwd, env=clean_environment(), capture_output=True, text=True, check=False)
        return Ended(done.returncode, done.stdout, done.stderr)

    def _answers(self) -> bool:
        """Asked on its own host."""
        reach = f"import redis; redis.Redis.from_url({self.url!r}).ping()"
        client = [*self.net.prefix(HUB), sys.executable, "-c", reach]
        return subprocess.run(client, stderr=subprocess.DEVNULL, check=False).returncode == 0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("hosts")
    with network("gated", [CI, FLEET]) as net:
        made = Hosts(folder, net)
        try:
            made.repository.mkdir()
            made.git("init", "-q")
            (made.repository / "policy.yaml").write_text(yaml.safe_dump(POLICY))
            (made.repository / "evalq.yaml").write_text(yaml.safe_dump(SUITE))
            made.serve()
            yield made
        finally:
            made.close()


def outputs() -> Lines:
    """The sample's answers, sixty a case; some fail, as they do."""
    stream = io.BytesIO()
    write_outputs(stream, sample_cases(), repeats=REPEATS, seed=3)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def broken(lines: Lines, which: Callable[[int], bool]) -> Lines:
    """The answers of which says so have no content."""
    return [
        {**line, "output": {**line["output"], "content": {}}}
        if which(number) and isinstance(line.get("output"), dict)
        else line
        for number, line in enumerate(lines)
    ]


def test_the_job_ends_as_the_commit_deserves_however_often_it_is_run(hosts: Hosts) -> None:
    """Nothing approved, approved, worse, undecided, cases missing, another golden set, no server."""
    good = outputs()
    first = hosts.commit(good)
    done = hosts.job(first)
    assert done.code == 4, done
    approve = json.loads(done.out)["decision"]["checks"][0]["reason"].partition("evalq baseline set main ")[2]
    checkout = hosts.folder / "job-1"
    assert hosts.evalq(checkout, "baseline", "set", "main", approve).code == 0
    done = hosts.job(first)
    assert done.code == 2, "the run that was approved is no candidate"
    assert "is both the candidate and the baseline" in done.said
    assert hosts.job(hosts.commit(good)).code == 0

    worse = hosts.commit(broken(good, lambda number: number % 5 == 0))
    for again in range(2):
        done = hosts.job(worse)
        assert done.code == 1, (again, done)
        assert json.loads(done.out)["decision"]["decided"] == "NO-GO"

    some = hosts.commit(broken(good, lambda number: number % 37 == 0))
    assert hosts.job(some).code == 4

    lost = [line for line in good if line["case"] not in ("FULL-01", "LIGHT-01")]
    done = hosts.job(hosts.commit(lost))
    assert done.code == 1
    reasons = " ".join(check["reason"] for check in json.loads(done.out)["decision"]["checks"])
    # Of the baseline's 1,800 answers 12 are none (timeouts and bare strings), one of them in a case that is gone now.
    assert "The candidate gave no usable answer for 130 of 1,799 answers (12 of 1,800 in the baseline" in reasons
    assert "2 cases without any answer" in reasons

    changed = GOLDEN.read_text().replace('scenarios: ">= 2"', 'scenarios: ">= 1"')
    done = hosts.job(hosts.commit(good, changed))
    assert done.code == 0, "all cases but the changed one are equal"
    (counts,) = json.loads(done.out)["decision"]["paired"]
    assert counts["changed_count"] == counts["base"] - counts["equal"] > 0

    before = hosts.server
    before.kill()
    before.wait()
    done = hosts.job(first)
    assert done.code == 3, done
    assert "evalq:" in done.said
