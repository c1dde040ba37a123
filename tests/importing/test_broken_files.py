"""Files of every tool with parts replaced, dropped and mixed up."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.cases import load_cases
from evalq.evalcore.fold import evaluate_files
from evalq.producer.importing import sources
from evalq.producer.importing.imported import ImportRequest, write
from evalq.workers.targets import load_targets
from tests.importing.record import HERE, MADE
from tests.importing.test_traces import MADE as TRACES
from tests.importing.trajectories import bfcl_question, tau2_results

TIMES = 40
_ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 1e400, "", "x", "{{a}}", "{{", "file://../x", "$ref", [], {}, [[]], [None]),
    *({"type": None}, {"$ref": "#"}, {"a": {"b": []}}, "\ud800", "a\x00b", 2**70, "y" * 600),
    {"type": "assert-set", "assert": [{"type": "contains", "value": [1]}], "threshold": "x"},
    {"type": "regex", "value": "("},
)
_KEYS = ("vars", "assert", "type", "value", "threshold", "weight", "prompts", "tests", "output", "target", "samples")


def _mixed(chance: random.Random, value: Any) -> Any:
    if chance.random() < 0.04:
        return chance.choice(_ODD)
    if isinstance(value, dict):
        kept = {key: _mixed(chance, each) for key, each in value.items() if chance.random() > 0.02}
        return kept | ({chance.choice(_KEYS): chance.choice(_ODD)} if chance.random() < 0.03 else {})
    if isinstance(value, list):
        return [_mixed(chance, each) for each in value[:6]]
    return value


def _given(source: str) -> list[Any]:
    if source == "promptfoo":
        forms = [yaml.safe_load(path.read_text()) for path in sorted(MADE.glob("**/promptfoo*.yaml"))]
        return [*forms, json.loads((HERE / "promptfoo-forms.json").read_text())]
    if source == "deepeval":
        return [json.loads((HERE / "deepeval" / name).read_text()) for name in ("test-run.json", "goldens.json")]
    if source == "lm-eval":
        return [json.loads(path.read_text()) for path in (HERE / "lm-eval").glob("results_*.json")]
    if source == "bfcl":
        return [bfcl_question(number)[0] for number in range(5)]
    if source == "tau2":
        return [tau2_results(), tau2_results()["tasks"]]
    return [
        json.loads((HERE / "inspect-capitals.json" if source == "inspect" else MADE / "openai_evals.json").read_text())
    ]


@pytest.mark.parametrize("source", TRACES)
def test_a_broken_trace_is_read_as_far_as_it_goes_or_refused(source: str, tmp_path: Path) -> None:
    """Never an error of another kind; and evalq evaluates whatever is written."""
    seed = random.randrange(10**9)
    print(f"seed {seed}")  # noqa: T201 - how to repeat it
    chance, path, read = random.Random(seed), TRACES[source](tmp_path), 0
    lines = path.suffix == ".jsonl"
    given = [json.loads(line) for line in path.read_text().splitlines()] if lines else [json.loads(path.read_text())]
    for _ in range(TIMES):
        path.write_text("\n".join(json.dumps(_mixed(chance, each)) for each in given))
        try:
            imported = sources.read(source, path, ImportRequest())
        except ConfigError:
            continue
        if imported.traces:
            read += 1
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
            write(imported, tmp_path / "out", force=False)
            traces = tmp_path / "out" / "traces.jsonl"
            evaluate_files("checks", traces.with_name("checks.yaml"), options={"traces": [traces]})
    assert read


@pytest.mark.parametrize("source", [name for name in sources.names() if name not in TRACES])
def test_a_broken_file_is_read_as_far_as_it_goes_or_refused(source: str, tmp_path: Path) -> None:
    """Never an error of another kind; and whatever is written, evalq reads."""
    seed = random.randrange(10**9)
    print(f"seed {seed}")  # noqa: T201 - how to repeat it
    chance, read = random.Random(seed), 0
    shutil.copytree(MADE / "promptfoo", tmp_path / "in")
    samples = [json.loads(line) for path in (HERE / "lm-eval").glob("samples_sums*") for line in path.open()][:10]
    for _ in range(TIMES):
        path = tmp_path / "in" / ("results_2026-01-01T00-00-00.1.json" if source == "lm-eval" else "file.json")
        path.write_text(json.dumps(_mixed(chance, chance.choice(_given(source)))))
        lines = [json.dumps(_mixed(chance, sample)) for sample in samples]
        (tmp_path / "in" / "samples_sums_2026-01-01T00-00-00.1.jsonl").write_text("\n".join(lines))
        possible = [json.dumps(_mixed(chance, bfcl_question(number)[1])) for number in range(5)]
        (tmp_path / "in" / "possible_answer").mkdir(exist_ok=True)
        (tmp_path / "in" / "possible_answer" / path.name).write_text("\n".join(possible))
        try:
            imported = sources.read(source, path, ImportRequest())
        except ConfigError:
            continue
        read += 1
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        for made in write(imported, tmp_path / "out", force=False).files:
            if made.stem == "cases":
                load_cases([made])
            if made.name == "targets.yaml":
                load_targets(made)
    assert read
