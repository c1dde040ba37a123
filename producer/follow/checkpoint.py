"""What a follower goes on from: kept in its run folder, whole or not at all, and safe on disk."""

from __future__ import annotations

from pathlib import Path

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.files import read_plain, write_atomic
from evalq.evalcore.model.canonical import Json, digest
from evalq.evalcore.model.state import Tally
from evalq.producer.follow.segment import Segment

__all__ = ["CHECKPOINT", "Checkpoint", "Mark"]

CHECKPOINT = "follow.checkpoint"
MOST_MARKS = 128


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """The first ``position`` bytes of the whole, which end before ``line``, have this SHA-256."""

    position: int
    line: int
    sha256: str


class Checkpoint(msgspec.Struct, forbid_unknown_fields=True):
    """How far a log was read, and what that adds up to.

    ``position`` counts the bytes of the whole lines that were evaluated; ``hashing``, ``state`` and ``tally`` are those
    there. ``line`` is the one behind them, and ``carry`` as much of it as was read. ``segments`` are the log's files in
    order, the last one still being read.
    """

    evaluator: str
    evaluator_version: str
    code_version: str
    params: dict[str, Json]
    given: str
    schema: str = "evalq.follow/1"
    segments: list[Segment] = []
    position: int = 0
    line: int = 1
    carry: bytes = b""
    marks: list[Mark] = []
    hashing: bytes = b""
    state: msgspec.Raw = msgspec.Raw(b"{}")
    tally: Tally = msgspec.field(default_factory=Tally)

    @property
    def sha256(self) -> str:
        """The digest of the first ``position`` bytes."""
        return self.marks[-1].sha256 if self.marks else digest(b"")

    def mark(self, sha256: str) -> None:
        """Note the digest at the position reached. Of too many marks every second one goes: the older, the sparser."""
        self.marks.append(Mark(self.position, self.line, sha256))
        if len(self.marks) > MOST_MARKS:
            # From the end, so that the newest stays: it is the digest of all that was read.
            self.marks = self.marks[::-2][::-1]

    def same_question(self, other: Checkpoint) -> bool:
        """Whether both are about the same log under the same parameters."""
        return (self.evaluator, self.given, self.params) == (other.evaluator, other.given, other.params)

    def same_code(self, other: Checkpoint) -> bool:
        """Whether both were computed by the same code."""
        return (self.evaluator_version, self.code_version) == (other.evaluator_version, other.code_version)

    def store(self, folder: Path) -> None:
        """Write it into ``folder``: the digest in a line of its own, then JSON."""
        body = msgspec.json.encode(self, order="deterministic")
        write_atomic(folder / CHECKPOINT, digest(body).encode() + b"\n" + body + b"\n")

    @classmethod
    def load(cls, folder: Path) -> Checkpoint | None:
        """What was kept in ``folder``; None where nothing was. Raises WireError when it is damaged."""
        path = folder / CHECKPOINT
        if not path.exists():
            return None
        found, _, body = read_plain(path).partition(b"\n")
        body = body.removesuffix(b"\n")
        try:
            if digest(body).encode() != found:
                raise ValueError("its digest is another")
            return msgspec.json.decode(body, type=cls)
        except (ValueError, RecursionError) as error:
            raise WireError(f"{path} is damaged: {error}; begin anew: name another --run-dir") from error
