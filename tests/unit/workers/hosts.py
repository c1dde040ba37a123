"""Workers by name, each a host of its own, and a reconciler, over one real server in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Batch, Evaluator, Outcome
from evalq.evalcore.model.manifest import Chunk, Header, PlannedInput, Seal
from evalq.evalcore.records.digests import chunk_digest
from evalq.evalcore.version import code_version
from evalq.workers.broker.message import read_hint
from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger.detached import Detached, Reports
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.progress import RunStatus
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.pool.chunk_runner import ChunkRunner
from evalq.workers.recovery.reconciler import Reconciler
from evalq.workers.settings import Settings
from tests.contract.specimens import Summing, SumParams
from tests.integration.harness import Server, wait_until
from tests.samples import KEY

CHUNKS = 4
HEADER = Header("r", "summing", "1", code_version(), {}, (PlannedInput("in.jsonl", "in.jsonl", "in.jsonl"),))


class Hosts(Summing):
    """The evaluator of all workers; `cannot` and `fails` say what the one that acts is spared.

    ``turn`` takes the place of a fleet's time: nothing waits for a clock but for the grace of two looks.
    """

    def __init__(self, server: Server, data: Path, **settings: Any) -> None:
        server.client.flushall()
        lines = [b'{"id": "r%d", "value": %d}\n' % (number, number) for number in range(10 * CHUNKS)]
        (data / "in.jsonl").write_bytes(b"".join(lines))
        self.data = data
        self.chunks = []
        for seq in range(CHUNKS):
            start, size = (sum(map(len, some)) for some in (lines[: seq * 10], lines[seq * 10 : seq * 10 + 10]))
            text = b"".join(lines)[start : start + size]
            self.chunks.append(Chunk(seq, 0, start, start + size, seq * 10 + 1, 10, chunk_digest(text, KEY)))
        self.settings = Settings(broker=server.url, grace_seconds=0.02, lease_seconds=60, **settings)
        self.ledger = RunLedger(server.client, self.settings)
        self.register = Heartbeats(server.client)
        self.reconciler = Reconciler(self.ledger, Broker(self.settings))
        self.workers: dict[str, ChunkRunner] = {}
        self.cannot: dict[str, Callable[[], Any]] = {}
        self.fails: dict[str, Callable[[], Any]] = {}
        self.acting = ""
        self.resting: dict[str, int] = {}

    def get(self, name: str) -> Evaluator[Any, Any]:
        """In place of the registry: what loading the evaluator does on the host that acts."""
        assert name == "summing"
        if self.acting in self.cannot:
            self.cannot[self.acting]()
        return self

    def evaluate(self, batch: Batch, params: SumParams) -> Outcome[Any]:
        """Sum a chunk, where the host that acts can."""
        if self.acting in self.fails:
            self.fails[self.acting]()
        return super().evaluate(batch, params)

    def add(self, name: str, folder: Path | None = None) -> None:
        """A worker that reads ``folder`` (that of the data), and lives until it leaves."""
        settings = self.settings.model_copy(update={"roots": (folder or self.data,)})
        self.workers[name] = ChunkRunner(self.ledger, settings, name, host=f"host-{name}")
        self.register.beat(name, {"host": f"host-{name}", "code": code_version()}, 600)

    def leave(self, name: str) -> None:
        """A worker ends in good order."""
        del self.workers[name]
        self.register.leave(name)

    def begin(self, *, left: bool = False) -> None:
        """A run of CHUNKS chunks, which its producer attends or has left."""
        self.ledger.open(HEADER, 1, key=KEY)
        self.ledger.append("r", self.chunks, 0, Seal(CHUNKS, ("s",)))
        if left:
            Reports(self.ledger, self.settings).detach("r", Detached(0.0))

    def turn(self, *, attending: bool = True) -> RunStatus:
        """The reconciler looks, and each worker that does not rest takes one message, where there is one."""
        look = self.reconciler.tend(HEADER, attending=attending)
        for name in sorted(self.workers):
            self.resting[name] = self.resting.get(name, 0) - 1
            if self.resting[name] < 0 and (message := self.ledger.client.rpop(HEADER.queue)):
                self.act(name, read_hint(message)[1].seq)
                self.resting[name] = int(4 * self.workers[name].rest)
        return look

    def act(self, name: str, seq: int) -> str:
        """A worker takes a chunk; returns what became of it."""
        self.acting = name
        return self.workers[name].evaluate("r", seq, 1)

    def until(self, condition: Callable[[RunStatus], Any], what: str) -> RunStatus:
        """Turns until a look shows ``condition``; that look."""

        def turned() -> RunStatus | None:
            look = self.turn()
            return look if condition(look) else None

        found: RunStatus = wait_until(turned, what, 60)
        return found
