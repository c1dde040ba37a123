"""promptfoo: a configuration, or the results of an evaluation."""

from __future__ import annotations

from pathlib import Path

from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.promptfoo.config import read_config
from evalq.producer.importing.promptfoo.results import is_results, read_results
from evalq.producer.importing.reading import read_json

__all__ = ["read"]


def read(path: Path, asked: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from promptfooconfig.yaml or results.json. Raises ConfigError."""
    data = read_json(path) if path.suffix == ".json" else None
    if isinstance(data, dict) and is_results(data):
        read_results(path, data, asked, imported)
    else:
        read_config(path, asked, imported)
