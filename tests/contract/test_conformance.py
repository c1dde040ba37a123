"""Every registered evaluator keeps the contract, on its own examples, on samples, and on records made up here."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from evalq.evalcore.conformance import check, param_variants
from evalq.evalcore.conformance.subject import SampleInput
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.records.inputs import HEAD_BYTES, file_encoding, format_suffixes
from tests.contract.folders import conformance_inputs
from tests.portions import some

FEW_RECORDS = 40
"""How many records of a sample each switch is tried on: there are many switches."""
SEED_RECORDS = 40
"""How many records of an evaluator's examples hypothesis mutates."""

Json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


class Trial(NamedTuple):
    """An evaluator, the inputs that it brings, and the params that they need."""

    evaluator: Evaluator[Any, Any]
    files: list[Path]
    params: dict[str, Any]


@pytest.fixture(scope="module", params=plugins.built_in())
def trial(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Each evaluator of evalq in turn."""
    return Trial(plugins.get(request.param), *conformance_inputs(request.param, tmp_path_factory.mktemp(request.param)))


def test_an_evaluator_brings_examples_or_a_sample(trial: Trial) -> None:
    """Without an input of its own no evaluator passes: nothing would have been shown."""
    suffixes = format_suffixes(trial.evaluator.records.format)
    assert trial.files, f"{trial.evaluator.name} has neither examples/*{suffixes} nor a sample"


def test_the_contract_holds_on_its_inputs(trial: Trial) -> None:
    """All properties, with the params that its sample asks for."""
    check(trial.evaluator, some(trial.files, of=2), params=[trial.params], rounds=2)


def test_the_contract_holds_under_every_switch(trial: Trial, tmp_path: Path) -> None:
    """All properties, with each switch flipped and each named choice of its params taken, one at a time."""
    variants = param_variants(trial.evaluator, trial.params)[1:] or [trial.params]
    files, _ = conformance_inputs(trial.evaluator.name, tmp_path, records=FEW_RECORDS)
    check(trial.evaluator, some(files[:2], of=2), params=some(variants, of=2), seed=1, rounds=1)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_contract_holds_on_made_up_records(trial: Trial, data: st.DataObject) -> None:
    """Arbitrary records, and the examples' own with arbitrary values in them, keep every property too."""
    evaluator = trial.evaluator
    assert trial.files
    examples = [SampleInput.of(evaluator, path.name, path.read_bytes()) for path in trial.files]
    made = data.draw(_csv(examples[0]) if evaluator.records.format == "csv" else _jsonl(examples))
    assume(file_encoding(made[:HEAD_BYTES]) is None)  # a line of noughts reads as UTF-16: no file of records at all
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"made{format_suffixes(evaluator.records.format)[0]}"
        path.write_bytes(made)
        check(evaluator, [path], params=[trial.params], rounds=1)


def _jsonl(examples: Sequence[SampleInput]) -> st.SearchStrategy[bytes]:
    known = [json.loads(line) for example in examples for line in example.records[:SEED_RECORDS] if line.strip()]
    objects = [value for value in known if isinstance(value, dict)]
    keys = sorted({key for value in objects for key in value})
    anything = Json.map(lambda value: json.dumps(value).encode())
    of_keys = st.dictionaries(st.sampled_from(keys), Json).map(lambda value: json.dumps(value).encode())
    changed = st.builds(_changed, st.sampled_from(objects), st.sampled_from(keys), Json)
    raw = st.binary(max_size=20).map(lambda value: value.replace(b"\n", b""))
    lines = st.lists(st.one_of(changed, changed, of_keys, anything, raw), min_size=1, max_size=12)
    return lines.map(lambda made: b"\n".join(made) + b"\n")


def _changed(known: dict[str, Any], key: str, value: Any) -> bytes:
    return json.dumps({**known, key: value}).encode()


def _csv(example: SampleInput) -> st.SearchStrategy[bytes]:
    known = [row for _, row in example.batch(0, SEED_RECORDS).rows(lambda line, reason: None)]
    values = sorted({value for row in known for value in row})
    field = st.sampled_from(values) | st.text(max_size=8) | Json.map(json.dumps)
    width = len(example.columns)
    changed = st.builds(
        lambda row, at, value: [*row[:at], value, *row[at + 1 :]], st.sampled_from(known), st.integers(0, width), field
    )
    rows = st.lists(changed | st.lists(field, min_size=width, max_size=width), min_size=1, max_size=8)
    return rows.map(lambda made: _written([list(example.columns), *made]))


def _written(rows: Sequence[Sequence[str]]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    return out.getvalue().encode("utf-8", "replace")
