"""The records as they are in the run folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalq.evalcore.files import replacing
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.rows import records_of

__all__ = ["write"]


def write(path: Path, folder: RunFolder, evaluator: Any, options: Mapping[str, Any]) -> None:
    """A copy of records.jsonl."""
    with records_of(folder).open("rb") as records, replacing(path) as out:
        shutil.copyfileobj(records, out)
