"""Runs that are written down: an evaluator's whole output on its examples and samples, as it was when last looked at.

``recorded/`` beside an evaluator's unit tests holds what this module makes of it. Whatever is different afterwards was
changed on purpose, and then `Evaluator.version` is raised where a number is, or by mistake. To write them anew::

    python -m tests.unit.recorded planagent
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.conformance import param_variants
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, Option
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.views.charts import Row
from evalq.producer.page.build import chart_tables
from tests.contract.folders import conformance_inputs

SHOWN = 8
"""Record lines that are kept of a run; the others only as a digest."""
LANGUAGES = {"planagent": ("ko", "en")}
"""Of an evaluator's Markdown, where there are several."""
STAMP = "2026-01-02T03:04:05Z"


def kept(name: str) -> dict[str, str]:
    """The files that are written down for an evaluator."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(_folder(name).iterdir())}


def made(name: str) -> dict[str, str]:
    """What the files would be now: declaration, inputs, and each run's report, lines, Markdown and page.

    A run is taken with the params that the sample needs, and with each switch of them flipped. Numbers are kept to 12
    digits, beyond which mathematical libraries differ.
    """
    evaluator = plugins.get(name)
    files = {"declared.json": _text(_declared(evaluator))}
    with tempfile.TemporaryDirectory(prefix="evalq-recorded-") as folder:
        inputs, params = conformance_inputs(name, Path(folder))
        before = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in inputs}
        runs = []
        for variant in param_variants(evaluator, params):
            run = evaluate_files(evaluator, inputs, variant)
            report = json.loads(_placeless(json.dumps(run.report), inputs))
            lines = [_placeless(json.dumps(_rounded(line), ensure_ascii=False), inputs) for line in run.records()]
            pages = {
                f"report{lang}.md": evaluator.views.markdown(report, {"lang": lang})
                for lang in LANGUAGES.get(name, ("",))
            }
            shown = _shown(evaluator, report, lines)
            digests = {
                "lines": _digest(lines),
                "report": _digest([_text(report)]),
                "markdown": _digest(pages.values()),
                "page": _digest([_text(shown)]),
                "cases": _digest([_text(_seen(evaluator, report, lines))]),
            }
            runs.append({"params": variant, **digests})
            if len(runs) == 1:
                files["report.json"] = _text(report)
                document = evaluator.views.document(report, STAMP)
                if document != report:
                    files["document.json"] = _text(document)
                files["records.jsonl"] = "".join(line + "\n" for line in lines[:SHOWN])
                files["page.json"] = _text({**shown, "rows": _few(shown["rows"])})
                files |= pages
    files["runs.json"] = _text({"inputs": before, "runs": runs})
    return dict(sorted(files.items()))


def _shown(evaluator: Evaluator[Any, Any], report: dict[str, Any], lines: list[str]) -> dict[str, Any]:
    """What report.html shows of a run: its summary, its notices, its charts, and a row for each record."""
    views = evaluator.views
    see = views.rows.reader(report)
    rows = (see(msgspec.json.decode(line, type=views.rows.line)) for line in lines)
    return {
        "summary": msgspec.to_builtins(views.summary(report) if views.summary else None),
        "notices": list(views.notices(report)),
        "charts": [msgspec.to_builtins(each) for each in chart_tables(views.charts, report)],
        "columns": msgspec.to_builtins(views.rows.columns),
        "rows": [_row(row) for row in rows if row is not None],
    }


def _seen(evaluator: Evaluator[Any, Any], report: dict[str, Any], lines: list[str]) -> list[Any]:
    """What a comparison sees of each record, and which cases it takes for collapsed."""
    measures = evaluator.measures
    if measures is None:
        return []
    observations = [msgspec.to_builtins(measures.observe(json.loads(line))) for line in lines]
    return [msgspec.to_builtins(measures.measures), observations, sorted(measures.collapsed(report))]


def _row(row: Row) -> dict[str, Any]:
    plain = {name: getattr(row, name) for name in row.__struct_fields__ if name != "evidence"}
    failed = row.state in ("bad", "doubtful")
    return plain | {"evidence": msgspec.to_builtins(row.evidence()) if failed else []}


def _few(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first rows of each status; the others are kept as a digest."""
    seen, few = Counter[str](), []
    for row in rows:
        seen[row["status"]] += 1
        if seen[row["status"]] <= SHOWN:
            few.append(row)
    return few


def _declared(evaluator: Evaluator[Any, Any]) -> dict[str, Any]:
    return {
        "name": evaluator.name,
        "version": evaluator.version,
        "format": evaluator.records.format,
        "columns": evaluator.records.columns,
        "unit": evaluator.records.unit,
        "positional": evaluator.command.positional,
        "demo_records": evaluator.sample.records if evaluator.sample else 0,
        "options": [_option(option) for option in evaluator.command.options],
        "commands": {
            command.name: [_option(option) for option in command.options] for command in evaluator.command.commands
        },
        "params": evaluator.Params().model_dump(mode="json"),
        "limits": _limits(evaluator.Params.model_json_schema()),
        "metrics": [_plain(metric) for metric in evaluator.views.metrics],
        "panels": msgspec.to_builtins(evaluator.views.panels),
    }


def _plain(declared: msgspec.Struct) -> dict[str, Any]:
    fields = {name: getattr(declared, name) for name in declared.__struct_fields__}
    return {name: msgspec.to_builtins(value) for name, value in fields.items() if not callable(value)}


def _limits(schema: Any) -> Any:
    """What may be given for params, without words and defaults."""
    if isinstance(schema, list):
        return [_limits(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _limits(inner)
        for key, inner in schema.items()
        if isinstance(inner, dict) or key not in ("title", "description", "default")
    }


def _option(option: Option) -> dict[str, Any]:
    return {
        "flags": option.flags,
        "kind": option.kind,
        "param": option.param,
        "choices": option.choices,
        "many": option.many,
    }


def _placeless(text: str, inputs: Iterable[Path]) -> str:
    """``text`` without the folders of the inputs, which lie elsewhere on another machine."""
    for folder in {path.parent for path in inputs}:
        text = text.replace(f"{folder}/", "")
    return text


def _text(value: Any) -> str:
    return json.dumps(_rounded(value), ensure_ascii=False, indent=1) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def _folder(name: str) -> Path:
    return Path(__file__).parent / name / "recorded"


if __name__ == "__main__":
    for asked in sys.argv[1:]:
        _folder(asked).mkdir(exist_ok=True)
        for file, text in made(asked).items():
            (_folder(asked) / file).write_text(text, encoding="utf-8")
