"""The evaluator against the seed's rules computed the slow way, on generated rows."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.evaluators.planagent import PlanParams, PlanState, evaluator, write_rows
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.model.canonical import canonical_json
from tests.unit.planagent.helpers import Row, batch_of, evaluation, to_csv
from tests.unit.planagent.oracle import report_of, score_row
from tests.unit.planagent.strategies import csv_rows


def _equal(got: float | None, wanted: Fraction | None) -> bool:
    """Whether ``got`` is the exact value, rounded once."""
    return got == (None if wanted is None else float(wanted))


def _agree(results: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert set(results["rounds"]) == set(wanted["rounds"])
    for name, part in [*results["rounds"].items(), ("set", results["set"])]:
        whole = wanted["set"] if name == "set" else wanted["rounds"][name]
        assert _equal(part["intent"], whole["intent"])
        assert _equal(part["stability"]["score_zero"], whole["score_zero"])
        assert _equal(part["stability"]["error_or_empty"], whole["error_or_empty"])
        assert _equal(part["speed"]["mean_seconds"], whole["mean_seconds"])
        assert _equal(part["speed"]["mean_points"], whole["mean_points"])
        assert part["speed"]["points_of_mean"] == whole["points_of_mean"]
        if name != "set":
            for key in ("records", "score_counts", "speed_counts"):
                assert part[key] == whole[key]
    got = results["consistency"]
    assert _equal(got["score"], wanted["consistency"]["score"])
    for key in ("both_pass", "both_fail", "queries"):
        assert got[key] == wanted["consistency"][key]


@given(st.lists(csv_rows, min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_generated_rows_score_as_the_seed_says(rows: list[Row]) -> None:
    """Rounds, set, consistency and every row's score equal the oracle's."""
    with tempfile.TemporaryDirectory() as folder:
        got = evaluation(Path(folder), rows)
    wanted = report_of(to_csv(rows))
    _agree(got.report["results"], wanted)
    for line, row in zip(got.records(), wanted["rows"], strict=True):
        assert line["score"] == row["score"]
        assert line["seconds"] == row["seconds"]
        passed = None if row["passed"] is None else [check["passed"] for check in line["checks"]]
        assert passed == row["passed"]


@given(st.lists(csv_rows, min_size=1, max_size=8), st.data())
@settings(max_examples=60, deadline=None)
def test_a_chunk_and_its_parts_have_the_same_state(rows: list[Row], data: st.DataObject) -> None:
    """Cut anywhere, merged in any grouping, the state is the same to the byte."""
    pieces = [
        evaluator.evaluate(batch_of([row], first_line=10 * i), PlanParams()).state.to_wire()
        for i, row in enumerate(rows)
    ]
    at = data.draw(st.integers(0, len(pieces)))
    left, right = _merged(pieces[:at]), _merged(pieces[at:])
    left.merge(PlanState.from_wire(right.to_wire()))
    assert left.to_wire() == _merged(pieces).to_wire()


def _merged(pieces: Sequence[bytes]) -> PlanState:
    state = PlanState.zero()
    for piece in pieces:
        state.merge(PlanState.from_wire(piece))
    return state


@given(st.lists(csv_rows, min_size=1, max_size=8), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_generated_rows_give_the_same_bytes_in_chunks(rows: list[Row], size: int) -> None:
    """Whatever the rows hold, broken and repeated ones included, cutting them changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        whole, cut = evaluation(Path(folder), rows), evaluation(Path(folder), rows, chunk_size=size)
    assert canonical_json(cut.report) == canonical_json(whole.report)
    assert cut.lines == whole.lines


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A seeded sample file of 240 rows."""
    path = tmp_path_factory.mktemp("sample") / "plan_agent_sample.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        write_rows(stream, 240, seed=5)
    return path


@pytest.mark.parametrize("size", [1, 2, 7])
def test_report_and_lines_are_the_same_bytes_for_any_chunk_size(sample: Path, size: int) -> None:
    """The sample in chunks of 1, 2 or 7 rows gives what it gives in one piece."""
    whole, cut = evaluate_files("planagent", [sample]), evaluate_files("planagent", [sample], chunk_size=size)
    assert canonical_json(cut.report) == canonical_json(whole.report)
    assert cut.lines == whole.lines


def test_the_sample_scores_as_the_seed_says(sample: Path) -> None:
    """Sample rows are plain enough for the oracle, and its numbers are the evaluator's."""
    got = evaluate_files("planagent", [sample])
    _agree(got.report["results"], report_of(sample.read_text(encoding="utf-8")))


def test_the_oracle_tells_a_wrong_score() -> None:
    """The oracle is no rubber stamp: it gives the seed's own example bands."""
    item = {"uiValue": {"formType": "SELECT"}}
    raw = json.dumps({"assistantMessage": "x", "dataUIList": [item], "responseTimeSec": 1})
    line = '{}) dataUIList 내 formType 값이 "{}"인 항목이 존재하는가'
    scores = []
    for good in range(5):
        forms = ["SELECT"] * good + ["ACTION"] * (4 - good)
        random.Random(good).shuffle(forms)
        expected = "\n".join(line.format(i, form) for i, form in enumerate(forms, start=1))
        scores.append(score_row({"기대결과": expected, "오류": "", "Raw JSON": raw})["score"])
    assert scores == [0, 2, 3, 4, 5]
