"""Leaving a folder's plan for that of another folder, which has begun the same run in a ledger that had lost it."""

from __future__ import annotations

from evalq.evalcore.errors import ConfigError
from evalq.producer.folder.names import HEAD, JOURNAL, KEPT, RECORDS
from evalq.producer.folder.run_folder import RunFolder

__all__ = ["Replanned", "drop_answers", "has_its_own"]


class Replanned(ConfigError):
    """A run has no plan in its folder any more, as another folder's stands: whoever drives it loads it again."""


def has_its_own(folder: RunFolder) -> bool:
    """Whether a run is about what no other folder has: the outputs of its sweep, or the answers that a retry kept."""
    return (folder.path / HEAD).is_file() or (folder.path / KEPT).exists() or folder.info().retry is not None


def drop_answers(folder: RunFolder) -> None:
    """Remove what was answered, which is computed again; what was planned can go then. May be repeated after a crash.

    Raises OSError.
    """
    for name in (JOURNAL, f"{RECORDS}.partial"):
        (folder.path / name).unlink(missing_ok=True)
