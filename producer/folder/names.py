"""Where run folders go, the names of what lies in one, and which of it an unfinished run may have written."""

from __future__ import annotations

import shutil
from pathlib import Path

from evalq.producer.folder.lock import CANCEL, LOCK, WAIT

__all__ = [
    "ASKED",
    "CALLS",
    "DRIVER",
    "FURTHER",
    "HEAD",
    "INFO",
    "JOINED",
    "JOURNAL",
    "KEPT",
    "KEY",
    "MANIFEST",
    "OUTPUTS",
    "PROMPTS",
    "RECORDED",
    "RECORDS",
    "RUNS",
    "SETTLED",
    "SWEPT",
    "is_unfinished",
    "remove_unfinished",
]

RUNS = Path("evalq-runs")
"""Where the folder of a run goes that is given none."""
INFO = "run.json"
MANIFEST = "manifest.jsonl"
JOURNAL = "parts.journal"
KEPT = "parts.kept"
KEY = "chunks.key"
RECORDS = "records.jsonl"
HEAD = "sweep.json"
ASKED = "asked.json"
"""The head of a sweep that is over: what was asked, so that it can be asked again."""
PROMPTS = "prompts.jsonl"
CALLS = "calls.jsonl"
RESERVE = "calls.reserve"
"""Room for the last count of a sweep's calls on a disk that is full."""
OUTPUTS = "outputs.jsonl"
RECORDED = "recorded.jsonl"
"""The outputs that further targets are asked about, where this run called nobody for them."""
FURTHER = "further"
"""The folder of the sweeps that ask about outputs."""
SETTLED = "settings.json"
"""The settings under which a further target is asked, by digests."""
DRIVER = "driver"
JOINED = "judged.jsonl"
"""The outputs with what was said of them."""
SWEPT = (HEAD, ASKED, PROMPTS, CALLS, RESERVE, OUTPUTS, DRIVER, RECORDED, FURTHER, JOINED, "answers")
"""What a sweep reads and writes beside its evaluation."""
_RUNNING = (INFO, MANIFEST, JOURNAL, KEPT, KEY, *SWEPT, "spool")
_UNFINISHED = frozenset({*_RUNNING, LOCK, CANCEL, WAIT})


def is_unfinished(name: str) -> bool:
    """Whether a run that was begun and came to no report may have written a file or folder of that name."""
    return name in _UNFINISHED or ".partial" in name or name.startswith("scratch-")


def remove_unfinished(folder: Path) -> None:
    """Remove what an unfinished run wrote, but its lock; run.json goes first, so that no half of a run is left."""
    (folder / INFO).unlink(missing_ok=True)
    for path in list(folder.iterdir()):
        # A link goes as a file does: what it leads to is somebody else's.
        if path.is_dir() and not path.is_symlink() and is_unfinished(path.name):
            shutil.rmtree(path)
        elif path.name != LOCK and is_unfinished(path.name):
            path.unlink()
