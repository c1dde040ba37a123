"""Leaving a folder's plan for that of another folder, which has begun the same run in a ledger that had lost it."""

from __future__ import annotations

from evalq.evalcore.errors import ConfigError
from evalq.producer.folder.names import HEAD, JOURNAL, KEPT, RECORDS
from evalq.producer.folder.run_folder import RunFolder

__all__ = ["Replanned", "drop_answers"]


class Replanned(ConfigError):
    """A run has no plan in its folder any more, as another folder's stands: whoever drives it loads it again."""


def drop_answers(folder: RunFolder) -> None:
    """Remove what was answered, which is computed again; what was planned can go then. May be repeated after a crash.

    Raises ConfigError where another folder's answers would not be those of this one: in a sweep, or in a retry.
    """
    info = folder.info()
    if (folder.path / HEAD).is_file() or (folder.path / KEPT).exists() or info.retry is not None:
        raise ConfigError(
            f"{folder.place}: run {info.run} is in the ledger as begun in another folder, and chunks are planned here, "
            "too, under another key: resume it in that folder, or remove this one and give its command again"
        )
    for name in (JOURNAL, f"{RECORDS}.partial"):
        (folder.path / name).unlink(missing_ok=True)
