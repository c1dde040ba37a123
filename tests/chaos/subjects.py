"""What is evaluated: made inputs, and the answer of an undisturbed inline run over each; made once a session."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.integration.harness import evalq
from tests.samples import sampled

_RECORDS = {"planagent": 12_000, "cooperation": 250_000, "vs": 20_000, "selfcheck": 18_000}
_MOST = 14_000
"""How many records of an evaluator take about as long as those; any other has _MOST."""
"""Records of each evaluation: about 2 to 4 s of computing for two processes."""
_SEED = 11


@dataclass(frozen=True)
class Subject:
    """An evaluation of an input: its command's ``args`` in ``folder``, and the ``calm`` run's folder."""

    evaluation: str
    args: tuple[str, ...]
    folder: Path
    calm: Path
    records: int
    flags: tuple[str, ...] = ()
    """What its command needs again when it is resumed."""

    def chunk_size(self, chunks: int) -> int:
        """The records a chunk that make about ``chunks`` of them."""
        return max(1, -(-self.records // chunks))

    def units(self, chunks: int) -> int:
        """How many things have to be done until it is over: chunks, or calls of a sweep."""
        return self.records if self.calm == self.folder else -(-self.records // self.chunk_size(chunks))


class Workshop:
    """Makes subjects, each when it is first asked for."""

    def __init__(self, folder: Path, scale: float = 1.0) -> None:
        """``scale`` makes all inputs smaller."""
        self._folder = folder
        self._scale = scale
        self._made: dict[str, Subject] = {}
        self._lock = threading.Lock()

    def subject(self, evaluation: str) -> Subject:
        """The input and the calm answer of ``evaluation``."""
        with self._lock:
            if evaluation not in self._made:
                self._made[evaluation] = self._make(evaluation)
            return self._made[evaluation]

    def sweep(self, evaluation: str) -> Subject:
        """The cases that live sweeps of ``evaluation`` share."""
        from tests.chaos.sweeps import sweep_subject

        with self._lock:
            if evaluation not in self._made:
                self._made[evaluation] = sweep_subject(evaluation, self._folder / evaluation, self._scale)
            return self._made[evaluation]

    def _make(self, evaluation: str) -> Subject:
        folder = self._folder / evaluation
        folder.mkdir(parents=True)
        request = sampled(evaluation, folder, int(_RECORDS.get(evaluation, _MOST) * self._scale), _SEED)
        # One log is one run of the cooperation command; the shuffled one beside it is left.
        args = [evaluation, *(request.inputs[:1] if evaluation == "cooperation" else request.inputs)]
        for path in request.options.get("outputs", ()):
            args += ["--outputs", str(path)]
        calm = self._folder / f"{evaluation}-calm"
        done = evalq(*args, "--inline", "--run-dir", calm, "--format", "none", "-q", cwd=folder)
        assert done.returncode == 0, done.stderr
        manifest = msgspec.json.decode((calm / "manifest.json").read_bytes())
        records = sum(chunk["records"] for chunk in manifest["chunks"])
        return Subject(evaluation, tuple(args), folder, calm, records)


def record_keys(path: Path) -> list[str]:
    """The ``record`` key of every line of a records.jsonl; none when it is not there."""
    if not path.exists():
        return []
    with path.open("rb") as lines:
        return [msgspec.json.decode(line)["record"] for line in lines]
