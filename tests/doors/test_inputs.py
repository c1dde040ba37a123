"""The ledger's door: a header or chunk that was forged there opens no file and no code, and no worker dies of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalq.evalcore.model.manifest import Chunk, Header, PlannedInput, Seal, to_wire
from evalq.evalcore.records.digests import chunk_digest
from evalq.evalcore.version import code_version
from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.settings import Settings
from tests.doors.intruder import LoggedWorker, logged_worker
from tests.integration.harness import Server, evalq, running_server, wait_until
from tests.samples import KEY

LINE = b'{"turn": 1, "agent": "secret-agent", "decision": "join", "resources": {"stone": 3}}\n'


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that no worker may read: beside its root, in the form its evaluator reads."""
    path = tmp_path_factory.mktemp("outside") / "secret.jsonl"
    path.write_bytes(LINE)
    return path


@pytest.fixture(scope="module")
def root(outside: Path) -> Path:
    """The only folder the worker may read, with a link in it that leads out."""
    folder = outside.parent / "root"
    folder.mkdir()
    (folder / "link.jsonl").symlink_to(outside)
    (folder / "folder").symlink_to(outside.parent)
    (folder / "right.jsonl").write_bytes(LINE)
    return folder


@pytest.fixture(scope="module")
def server(outside: Path) -> Iterator[Server]:
    """One server for all that is forged here."""
    with running_server(outside.parent) as started:
        yield started


@pytest.fixture(scope="module")
def worker(server: Server, root: Path) -> Iterator[LoggedWorker]:
    """A worker that may read ``root``: one, which everything that is forged here comes to."""
    with logged_worker(server, root, root.parent / "log") as started:
        yield started


class Forger:
    """Somebody who may write the ledger and publish."""

    def __init__(self, server: Server) -> None:
        self._settings = Settings(broker=server.url)
        self.ledger = RunLedger(server.client, self._settings)

    def run(self, name: str, path: str = "right.jsonl", chunk: dict[str, Any] | None = None, **header: Any) -> None:
        """A run of one chunk of ``path``, changed as told, and its message."""
        made = Header(
            run=name,
            evaluator="cooperation",
            evaluator_version="1",
            code_version=code_version(),
            params={},
            inputs=(PlannedInput(name="x", given="x", path=path),),
        )
        made = msgspec.structs.replace(made, **header)
        planned = Chunk(0, 0, 0, len(LINE), 1, 1, chunk_digest(LINE, KEY))
        self.ledger.open(made, 1, key=KEY)
        forged = msgspec.to_builtins(planned) | (chunk or {})
        # Forged from the start: what an open run has for a moment only, a worker publishes, too.
        self.ledger.step("append", name, 0, to_wire(Seal(1, ("0" * 64,))), msgspec.json.encode(forged))
        self.publish(made, name)

    def publish(self, header: Header, name: str) -> None:
        """The message of chunk 0."""
        self.ledger.take(name)
        broker = Broker(self._settings)
        broker.publish(header.queue, name, 1, [0])
        broker.close()


@pytest.fixture
def forger(server: Server) -> Iterator[Forger]:
    """The intruder of these tests; the ledger forgets its runs, and the worker does not."""
    yield Forger(server)
    for run in ("forged", "honest"):
        server.client.delete(*server.client.keys(f"evalq:run:{{{run}}}:*"), "nothing")
        server.client.hdel("evalq:runs", run)


OUTSIDE = [
    "../secret.jsonl",
    "folder/secret.jsonl",
    "link.jsonl",
    "a/../../secret.jsonl",
    "//proc/self/environ",
    "",
    ".",
]


@pytest.mark.parametrize("path", [*OUTSIDE, "ABSOLUTE", "right.jsonl/../../secret.jsonl", "x\x00y", "x" * 5_000])
def test_no_path_leads_out(forger: Forger, worker: LoggedWorker, outside: Path, path: str) -> None:
    """A path that is absolute, climbs, follows a link out or is no path: unreadable, and nothing is committed."""
    forger.run("forged", str(outside) if path == "ABSOLUTE" else path)
    look = wait_until(lambda: _ended(forger.ledger, "forged"), "the worker has said what it thinks of it")
    assert look.refused == {0: "unreadable"}
    assert look.progress.committed == 0
    assert worker.alive


def _ended(ledger: RunLedger, run: str) -> Any:
    look = ledger.poll(run)
    return look if look.refused or look.progress.state != "open" or look.progress.committed else None


FAILS: dict[str, tuple[dict[str, Any], str]] = {
    "an evaluator nobody registered": ({"evaluator": "nothing"}, "no evaluator 'nothing'"),
    "a module for an evaluator": ({"evaluator": "os:system"}, "no evaluator 'os:system'"),
    "a parameter nobody knows": ({"params": {"shell": "id"}}, "shell: unknown key"),
    "a parameter of another kind": ({"params": {"cooperative_decisions": 7}}, "cooperative_decisions"),
    "parameters nested deeply": (
        {"params": {"a": __import__("functools").reduce(lambda x, _: [x], range(150), 1)}},
        "a:",
    ),
    "a chunk of an input that is not there": ({"chunk": {"input": 7}}, "input"),
    "a chunk of an exabyte": ({"chunk": {"end": 1 << 60}}, "chunk"),
    "a chunk that ends before it begins": ({"chunk": {"start": 50, "end": 10}}, "chunk"),
    "a chunk that begins before the file": ({"chunk": {"start": -50}}, "chunk"),
    "another chunk's number": ({"chunk": {"seq": 5}}, "chunk"),
    "no digest": ({"chunk": {"digest": "x"}}, "chunk"),
}


@pytest.mark.parametrize("case", FAILS)
def test_a_forged_plan_fails_its_run_alone(forger: Forger, worker: LoggedWorker, case: str) -> None:
    """The run ends with a reason that names what is wrong; the worker lives, and computes the next run."""
    changes, said = FAILS[case]
    forger.run("forged", **changes)
    look = wait_until(lambda: _ended(forger.ledger, "forged"), "the run has ended")
    assert (look.progress.state, look.progress.committed) == ("failed", 0)
    assert said in look.progress.reason
    assert len(look.progress.reason) < 2_000
    assert worker.alive
    forger.run("honest")
    assert wait_until(lambda: _ended(forger.ledger, "honest"), "the next run").progress.committed == 1


@pytest.mark.parametrize("what", ["header", "chunk"])
@pytest.mark.parametrize("bad", [b"", b"\xff", b"null", b"[1]", b"[" * 100_000, b'{"run":5}'])
def test_a_damaged_ledger_fails_the_run_alone(
    forger: Forger, worker: LoggedWorker, server: Server, what: str, bad: bytes
) -> None:
    """What cannot be read as a plan ends its run with a reason, here and in a producer's commands."""
    forger.run("forged", path="nowhere.jsonl")
    wait_until(lambda: forger.ledger.poll("forged").refused, "the plan is in place")
    header = forger.ledger.header("forged")
    assert header is not None
    if what == "header":
        server.client.hset("evalq:run:{forged}:meta", "header", bad)
    else:
        server.client.lset("evalq:run:{forged}:chunks", 0, bad)
    forger.publish(header, "forged")
    look = wait_until(lambda: _closed(forger.ledger), "the run has ended")
    assert "not what evalq writes" in look.progress.reason
    assert worker.alive
    done = evalq("list", "--broker", server.url, cwd=Path(worker.log).parent)
    assert "Traceback" not in done.stderr
    forger.run("honest")
    assert wait_until(lambda: _ended(forger.ledger, "honest"), "the next run").progress.committed == 1


def _closed(ledger: RunLedger) -> Any:
    look = ledger.poll("forged")
    return look if look.progress.state == "failed" else None
