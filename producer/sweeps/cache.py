"""A cache of recorded outputs in one file: what was paid for once, under the same settings, is not paid for again."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from evalq.evalcore.errors import StorageError, WireError
from evalq.evalcore.model.calls import Output, Prompt

__all__ = ["Cache"]

_SCHEMA = """
create table if not exists outputs (
  target text not null, config text not null, prompt text not null, "case" text not null, repeat integer not null,
  output blob not null, primary key (target, config, prompt, "case", repeat)
) without rowid
"""


class Cache:
    """Outputs by target, its settings' digest, the prompt's digest, case and repeat; errors are never kept.

    Several processes may use one file at once.
    """

    def __init__(self, path: str | Path, then: str = "name another file with --cache, or omit it") -> None:
        """Raises StorageError for a file that is no cache or cannot be written; ``then`` says what to do there."""
        self._path = path
        self._then = then
        with self._telling():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            # Other sweeps may write to the same file: each holds it for one transaction.
            self._db = sqlite3.connect(path, timeout=30)
            with self._db:
                self._db.execute(_SCHEMA)

    def find(self, target: str, config: str, prompt: Prompt, repeats: Sequence[int]) -> dict[int, Output]:
        """{repeat: output} of those that are known. Raises WireError for a damaged entry."""
        query = (
            "select repeat, output from outputs where target = ? and config = ? and prompt = ?"
            ' and "case" = ? and repeat between ? and ?'
        )
        wanted = set(repeats)
        # A range, then exactly those: one query for each prompt instead of one for each repeat.
        bounds = (min(repeats), max(repeats)) if repeats else (0, -1)
        with self._telling():
            rows = self._db.execute(query, (target, config, prompt.digest, prompt.case, *bounds))
            return {repeat: Output.from_wire(data) for repeat, data in rows if repeat in wanted}

    def some(self, target: str, config: str, most: int) -> list[Output]:
        """Any outputs of a target under these settings, ``most`` at most. Raises WireError for a damaged entry."""
        query = "select output from outputs where target = ? and config = ? limit ?"
        with self._telling():
            return [Output.from_wire(data) for (data,) in self._db.execute(query, (target, config, most))]

    def keep(self, outputs: Sequence[Output]) -> None:
        """Add outputs; one that is known already stays as it is."""
        rows = [
            (output.target, output.config, output.prompt, output.case, output.repeat, msgspec.json.encode(output))
            for output in outputs
            if not output.failed
        ]
        with self._telling(), self._db:
            self._db.executemany("insert or ignore into outputs values (?, ?, ?, ?, ?, ?)", rows)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"{self._path}: this cache cannot be used: {error}; {self._then}") from error
        except WireError as error:
            raise WireError(f"{self._path}: {error}") from error
