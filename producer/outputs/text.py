"""The report of a run as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.contract.plug_in import unprinted
from evalq.evalcore.files import write_atomic
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.views.markdown import visible
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.yaml_text import yaml_text

__all__ = ["plain", "render", "results_yaml", "writer"]

_WHOLE_BYTES = 1 << 20
"""Of a report.json that is longer, results.yaml has a part of each long list alone: YAML takes thirty times as long to
write as JSON, and nobody reads so much of it."""
_PART = 100


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


def results_yaml(evaluator: Evaluator[Any, Any], report: Mapping[str, Json], timestamp: str, size: int) -> str:
    """What results.yaml holds; ``size`` is that of report.json."""
    if size <= _WHOLE_BYTES:
        return yaml_text(evaluator.views.document(report, timestamp))
    cut: list[Json] = []
    brief = {**report, **{name: _brief(report[name], name, evaluator, cut) for name in ("params", "results")}}
    document = evaluator.views.document(brief, timestamp)
    told = {"left_out_here": {"lists": cut, "all_in": "report.json, and a line for each record in records.jsonl"}}
    return yaml_text({**document, **told} if isinstance(document, dict) else document)


def _brief(value: Json, path: str, evaluator: Evaluator[Any, Any], cut: list[Json]) -> Json:
    """``value`` with a part of each long list or mapping in it; what was left out is noted in ``cut``."""
    if isinstance(value, dict):
        if len(value) > _PART:
            cut.append({"where": path, "listed": _PART, "of": len(value)})
        return {key: _brief(each, f"{path}.{key}", evaluator, cut) for key, each in islice(value.items(), _PART)}
    if not isinstance(value, list):
        return value
    kept = value
    if len(value) > _PART:
        failed = list(filter(evaluator.views.failed, value))
        # In the order of the whole list; the first of all where none failed.
        kept = failed[:_PART] or value[:_PART]
        cut.append({"where": path, "listed": len(kept), "of": len(value), "failed": len(failed)})
    return [_brief(each, f"{path}[]", evaluator, cut) for each in kept]


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
