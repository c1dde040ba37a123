"""The page of a run: report.html."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalq.producer.folder.files import RECORDS
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.page import write_page

__all__ = ["write"]


def write(path: Path, folder: RunFolder, evaluator: Any, options: Mapping[str, Any]) -> None:
    """Write the page of a finished run's folder."""
    write_page(path, evaluator, folder.report(), folder.own(RECORDS))
