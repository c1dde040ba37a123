"""The checkpoint of a follower in its run folder, written atomically and synced."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.files import read_plain, write_atomic
from evalq.evalcore.model.canonical import Json, digest
from evalq.evalcore.model.state import Tally
from evalq.producer.follow.log_files import Segment

CHECKPOINT = "follow.checkpoint"
MOST_MARKS = 128


class DigestMark(msgspec.Struct, frozen=True, array_like=True):
    """The first ``position`` bytes of the whole, which end before ``line``, have this SHA-256."""

    position: int
    line: int
    sha256: str


class Checkpoint(msgspec.Struct, forbid_unknown_fields=True):
    """The position in a log, and the state up to it.

    ``position`` counts the bytes of evaluated lines; ``hashing``, ``state`` and ``tally`` belong to it. ``line`` is the
    next line, and ``carry`` the part of it that was read. ``segments`` are the log's files in
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
    marks: list[DigestMark] = []
    hashing: bytes = b""
    state: msgspec.Raw = msgspec.Raw(b"{}")
    tally: Tally = msgspec.field(default_factory=Tally)

    @property
    def sha256(self) -> str:
        """The digest of the first ``position`` bytes."""
        return self.marks[-1].sha256 if self.marks else digest(b"")

    def mark(self, sha256: str) -> None:
        """Note the digest at the position reached. If there are too many marks, every second one is removed."""
        self.marks.append(DigestMark(self.position, self.line, sha256))
        if len(self.marks) > MOST_MARKS:
            # From the end, to keep the newest: it is the digest of everything read.
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
        """The checkpoint in ``folder``; None without one. Raises WireError if it is damaged."""
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


# SHA-256 of a growing input, which another process can continue.

try:
    from rehashes import PySha256
except ImportError:  # no wheel for this platform
    PySha256 = None


class RunningSha256:
    """The digest of all bytes so far, with a state that can be stored if `rehashes` is installed.

    Without it (it has wheels for Linux only), or with a state of another version, the bytes have to be read again.
    """

    def __init__(self, state: bytes = b"") -> None:
        self._hash: Any = hashlib.sha256()
        if PySha256 is not None:
            self._hash = PySha256.deserialize(state) if state else PySha256()

    @classmethod
    def resume(cls, state: bytes, sha256: str) -> RunningSha256 | None:
        """Go on from a kept ``state``, whose digest was ``sha256``; None if that is not possible."""
        if PySha256 is None or not state:
            return None
        try:
            found = cls(state)
        except ValueError:
            return None
        return found if found.hexdigest() == sha256 else None

    def update(self, data: bytes) -> None:
        """Add the next bytes."""
        self._hash.update(data)

    def hexdigest(self) -> str:
        """The digest of all bytes so far."""
        return str(self._hash.hexdigest() if PySha256 is None else self._hash.finalize())

    def state(self) -> bytes:
        """The state for `resume`; empty without `rehashes`."""
        return b"" if PySha256 is None else bytes(self._hash.serialize())
