"""The report of a run as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.contract.plug_in import unprinted
from evalq.evalcore.files import write_atomic
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.views.markdown import visible
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.yaml_text import yaml_text

__all__ = ["plain", "render", "writer"]


@unprinted()
def render(
    fmt: str,
    evaluator: Evaluator[Any, Any],
    report: Mapping[str, Json],
    options: Mapping[str, Any],
    timestamp: str = "",
) -> str:
    """The report as text: markdown, json or yaml; empty for none.

    With a ``timestamp`` json and yaml are in the form that the evaluator's specification has for results.
    """
    if timestamp and fmt in ("json", "yaml"):
        document = evaluator.views.document(report, timestamp)
        if document != report:
            return plain(fmt, document)
    if fmt == "markdown":
        return visible(evaluator.views.markdown(report, options))
    if fmt == "json":
        return canonical_json(report).decode() + "\n"
    if fmt == "yaml":
        return yaml_text(dict(report), sort_keys=True)
    return ""


def plain(fmt: str, document: Json) -> str:
    """A document in its own order."""
    if fmt == "yaml":
        return yaml_text(document)
    return json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def writer(fmt: str) -> Callable[[Path, RunFolder, Evaluator[Any, Any], Mapping[str, Any]], None]:
    """What writes a file in one of these forms."""

    def write(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
        write_atomic(path, render(fmt, evaluator, folder.report(), options).encode())

    return write
