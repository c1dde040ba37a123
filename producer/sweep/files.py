"""Whether a run folder holds a sweep, and giving one up whose calls others made; told by its files alone."""

from __future__ import annotations

import shutil
from pathlib import Path

from evalq.producer.folder.files import DRIVER, FURTHER, HEAD, MANIFEST, OUTPUTS, PROMPTS
from evalq.producer.folder.run_folder import RunFolder


def holds_sweep(folder: RunFolder) -> bool:
    """Whether ``folder`` holds a sweep that can be resumed."""
    return (folder.path / HEAD).is_file()


def in_calls(folder: RunFolder) -> bool:
    """Whether ``folder`` holds a sweep whose calls are not over."""
    return holds_sweep(folder) and not (folder.path / MANIFEST).is_file()


def leave_to_others(folder: RunFolder) -> None:
    """Make no more calls from ``folder``, whose sweep others called to its end.

    What it paid for itself stays in calls.jsonl; outputs of these alone are not what the report was made of.
    """
    remove(folder.path, HEAD, PROMPTS, DRIVER, OUTPUTS, FURTHER)


def remove(folder: Path, *names: str) -> None:
    """Remove files and folders of these names, as far as they are there."""
    for path in (folder / name for name in names):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
