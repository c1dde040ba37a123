"""evalq's ledger as the fault suite looks at it: plain reads of the server, none of the product's code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.chaos.recovery import Sample
from tests.integration.harness import info


class LedgerView:
    """The run in the folder ``out``."""

    def __init__(self, client: Any, out: Path) -> None:
        self._client = client
        self._out = out
        self._run = ""
        self._queue = ""

    def sample(self) -> Sample:
        """All zeros while the ledger does not know the run."""
        fields = ("committed", "computed", "epoch", "state")
        found = self._client.hmget(self._key("meta"), fields) if self._named() else [None] * len(fields)
        committed, computed, epoch, state = found
        return Sample(int(committed or 0), int(computed or 0), int(epoch or 0), state == b"done")

    def uncommitted(self, seqs: Iterable[int]) -> set[int]:
        """Those without a digest."""
        asked = sorted(seqs)
        found = self._client.hmget(self._key("digests"), [str(seq) for seq in asked])
        return {seq for seq, digest in zip(asked, found, strict=True) if digest is None}

    def held(self, pid: int) -> set[int]:
        """Chunks leased to that worker; its name has the pid in it."""
        return {seq for seq, (_, worker) in self._leases().items() if f"-{pid}-" in worker}

    def expired(self, seqs: Iterable[int], margin_ms: int = 500) -> bool:
        """Whether no lease on any of ``seqs`` is alive, nor was in the last ``margin_ms``."""
        seconds, micros = self._client.time()
        now, leases = seconds * 1000 + micros // 1000, self._leases()
        return all(leases[seq][0] + margin_ms < now for seq in seqs if seq in leases)

    def tried(self) -> bool:
        """Whether a chunk has been given up by a process that died, or has dead records."""
        notes = self._client.hkeys(self._key("notes"))
        dead = self._client.hget(self._key("meta"), "dead")
        return bool(int(dead or 0)) or any(note.startswith((b"attempts ", b"losses ")) for note in notes)

    def queue(self) -> str:
        """The queue of this code version."""
        if not self._queue and self._named():
            self._queue = str((self._client.hget("evalq:runs", self._run) or b"").decode())
        return self._queue

    def _leases(self) -> dict[int, tuple[int, str]]:
        found = {}
        for seq, text in self._client.hgetall(self._key("leases")).items():
            deadline, _, worker = text.decode().split(" ", 2)
            found[int(seq)] = (int(deadline), worker)
        return found

    def _named(self) -> bool:
        if not self._run:
            self._run = str(info(self._out).get("run", ""))
        return bool(self._run)

    def _key(self, part: str) -> str:
        self._named()
        return f"evalq:run:{{{self._run}}}:{part}"
