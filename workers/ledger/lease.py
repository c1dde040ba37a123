"""What a worker gets for a claim."""

from __future__ import annotations

import msgspec

from evalq.evalcore.model.manifest import Chunk, Header, from_wire
from evalq.workers.ledger.answers import Claimed

__all__ = ["Headers", "Lease"]


class Lease(msgspec.Struct, frozen=True):
    """The answer to a claim, and what it comes with: ``key`` is that of the run's chunk digests.

    ``attempts`` counts processes that died with the chunk, ``losses`` whole workers; ``waited`` is the seconds since
    it was first published; ``code`` is the run's code version where that is not the worker's.
    """

    status: Claimed
    chunk: Chunk | None = None
    header: Header | None = None
    key: str = ""
    blob: bytes | None = None
    attempts: int = 0
    losses: int = 0
    holder: str = ""
    holder_pid: int = 0
    waited: float = 0.0
    code: str = ""


class Headers:
    """Headers of the runs that were looked at last: one may list thousands of inputs, and never changes."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._known: dict[str, tuple[str, Header]] = {}

    def id_of(self, run: str) -> str:
        """The id of the header that is known of ``run``; empty for none."""
        return self._known.get(run, ("", None))[0]

    def read(self, run: str, header_id: str, data: bytes) -> Header:
        """The header in ``data``, or the known one where that is empty. Raises WireError."""
        if not data and header_id and self.id_of(run) == header_id:
            return self._known[run][1]
        header = from_wire(data, Header)
        # Out and in again, so that the dictionary's first entry is always the one that was read longest ago.
        self._known.pop(run, None)
        self._known[run] = (header_id, header)
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return header
