"""The runs of a parent folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from evalq.evalcore.errors import EvalqError
from evalq.producer.folder.info import RunInfo
from evalq.producer.folder.names import INFO
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.folder.staging import is_private

__all__ = ["run_folders"]


def run_folders(parent: Path, warn: Callable[[str], None]) -> list[tuple[RunFolder, RunInfo]]:
    """The runs whose folders lie in ``parent``, the latest begun last; what cannot be read is told and passed over."""
    found = []
    for path in parent.glob("*/" + INFO):
        # A folder that is being made has its run.json before it has its name.
        if is_private(path.parent.name) or not path.is_file():
            continue
        try:
            info = RunFolder(path.parent).info()
            # By what a run says itself: its file is written anew with each note, and by whoever copies it. That file
            # tells only runs apart that were begun within a second.
            found.append(((info.started, path.stat().st_ctime_ns, path.parent), info))
        except (EvalqError, OSError) as error:
            warn(f"warning: {path.parent} is skipped: {error}")
    return [(RunFolder(key[-1]), info) for key, info in sorted(found, key=lambda each: each[0])]
