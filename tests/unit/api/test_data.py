"""Data of a program as inputs: what becomes of each kind of value, and a clear error for what JSON does not have."""

from __future__ import annotations

import csv
import datetime
import enum
import gzip
import io
import json
import math
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import evalq
from evalq._data import as_files
from evalq.errors import InputError, UsageError
from evalq.evalcore.contract import plugins
from evalq.evalcore.evaluators.planagent.sample import write_rows

ROWS: list[dict[str, Any]] = [{"case": "C", "output": "yes"}, {"case": "D", "output": None}]


def written(value: Any, evaluator: str = "selfcheck", **how: Any) -> list[Any]:
    """The lines, or the CSV's rows, that data becomes."""
    with as_files(plugins.get(evaluator), value, None, **how) as given:
        (path,) = given.inputs
        data = gzip.decompress(Path(path).read_bytes()).decode()
    if ".csv" in path:
        return list(csv.DictReader(io.StringIO(data, newline="")))
    return [json.loads(line) for line in data.splitlines()]


def _generated() -> Iterator[dict[str, Any]]:
    yield from ROWS


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(ROWS, id="list"),
        pytest.param(tuple(ROWS), id="tuple"),
        pytest.param(iter(ROWS), id="iterator"),
        pytest.param(_generated(), id="generator"),
        pytest.param(pd.DataFrame(ROWS), id="pandas"),
        pytest.param(pd.DataFrame(ROWS, index=[7, 7]), id="index"),
        pytest.param(pa.Table.from_pylist(ROWS), id="table"),
        pytest.param(pa.RecordBatch.from_pylist(ROWS), id="batch"),
        pytest.param([pd.DataFrame(ROWS)], id="one frame in a list"),
    ],
)
def test_every_kind_of_data_becomes_the_same_records(value: Any) -> None:
    """The rows in their order; a frame's index is no column."""
    assert written(value) == ROWS


def test_a_polars_frame_becomes_the_same_records() -> None:
    """It is found by its methods, never imported."""
    assert written(pl.DataFrame(ROWS)) == ROWS
    with pytest.raises(UsageError, match="collect it into a frame first"):
        written(pl.DataFrame(ROWS).lazy())


def test_one_record_is_a_job_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its report is that of a file with this record."""
    monkeypatch.chdir(tmp_path)
    with open("data.csv", "w", encoding="utf-8", newline="") as out:
        write_rows(out, 1, seed=5)
    with open("data.csv", encoding="utf-8", newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert (
        evalq.evaluate("planagent", row).report["results"] == evalq.evaluate("planagent", "data.csv").report["results"]
    )
    assert evalq.evaluate("planagent", [row]).report == evalq.evaluate("planagent", iter([row])).report
    assert not Path("evalq-runs").exists()


class Colour(enum.Enum):
    """A value with a plain one behind it."""

    RED = "red"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (float("nan"), None),
        (pd.NaT, None),
        (pd.NA, None),
        (np.float64("nan"), None),
        (np.datetime64("NaT"), None),
        (Decimal("NaN"), None),
        (Decimal("1.10"), "1.10"),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([1.5, float("nan")]), [1.5, None]),
        (datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), "2026-01-02T03:04:05+00:00"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (pd.Timestamp("2026-01-02T03:04:05.000000006"), "2026-01-02T03:04:05.000000006"),
        (datetime.timedelta(seconds=90), "PT90S"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        ({"a": [{"b": (1, None)}]}, {"a": [{"b": [1, None]}]}),
        (2**70, 2**70),
        (True, True),
    ],
)
def test_values_become_what_the_page_says(value: Any, plain: Any) -> None:
    """Each kind of missing value is null; the rest keeps what it says."""
    assert written({"x": value}) == [{"x": plain}]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"x": math.inf}, r"inputs: record 1: 'x': inf: JSON has no infinite number"),
        ({"x": Decimal("-Infinity")}, "no infinite number"),
        ({"x": {1, 2}}, "a set has no order"),
        ({"x": b"raw"}, "JSON has no bytes"),
        ({"x": object()}, "object: JSON has no such value"),
        ({3: 1}, "the key 3: names are texts"),
        ({"x": {"y": {3: 1}}}, r"'x': 'y': the key 3"),
        ([{"x": 1}, {"x": [1, math.inf]}], r"record 2: 'x'\[1\]: inf"),
        ([{"x": 1}, 5], "a list holds paths alone, or records alone"),
        (iter([{"x": 1}, "a.csv"]), "record 2: 'a.csv': a record is a mapping"),
        (["a.csv", {"x": 1}], "a list holds paths alone, or records alone"),
        ([pd.DataFrame(ROWS), pd.DataFrame(ROWS)], "concatenate them"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns are called 'a'"),
        (pd.DataFrame([[1, 2]]), "the column 0: names are texts"),
        (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), "names are texts"),
        (pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), "two columns are called 'a'"),
        (5, "inputs=5: a path, a data frame"),
        (None, "inputs=None: a path, a data frame"),
        ([None], r"inputs=None: a path"),
        ({"x": "\ud800"}, "record 1: "),
    ],
)
def test_what_json_does_not_have_is_refused_with_its_place(value: Any, why: str) -> None:
    """Before anything is begun."""
    with pytest.raises(UsageError, match=why):
        written(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    """Instead of an endless file."""
    ring: dict[str, Any] = {}
    ring["me"] = ring
    with pytest.raises(UsageError, match="nested more than 100 deep, or in itself"):
        written(ring)


@pytest.mark.parametrize("value", [pd.DataFrame(), pd.DataFrame(columns=["a"]), pa.table({"a": []})])
def test_data_without_a_record_is_refused(value: Any) -> None:
    """An empty frame is a mistake of its program."""
    with pytest.raises(InputError, match="it has no rows"):
        written(value)


def test_cells_of_a_csv_have_their_texts() -> None:
    """A missing value is an empty cell; lists, objects and truth values are JSON; one header holds for all."""
    row = {"a": None, "b": 1.5, "c": {"k": [1]}, "d": True, "e": 'say "hi"\nthere', "f": float("nan")}
    found = written([row], "planagent")
    assert found == [{"a": "", "b": "1.5", "c": '{"k": [1]}', "d": "true", "e": 'say "hi"\nthere', "f": ""}]
    with pytest.raises(UsageError, match="record 2 has 'z', which the first one has not"):
        written([{"a": 1}, {"z": 2}], "planagent")


def test_of_an_iterator_no_more_is_taken_than_the_limit() -> None:
    """An endless one ends there."""
    endless = ({"n": number} for number in iter(int, 1))
    assert written(endless, limit=3) == [{"n": 0}] * 3


def test_an_iterator_of_paths_is_a_list_of_paths(tmp_path: Path) -> None:
    """As `Path.glob` gives them."""
    (tmp_path / "a.csv").touch()
    with as_files(plugins.get("planagent"), tmp_path.glob("*.csv"), None) as given:
        assert given.inputs == [str(tmp_path / "a.csv")]
        assert given.scratch == ""


def test_cases_and_outputs_may_both_be_data() -> None:
    """A list of cases, and outputs as records: the report of the same in files."""
    cases = [{"id": "C", "input": "Say yes", "checks": [{"contains": "yes"}], "tags": None}]
    outputs = [{"case": "C", "output": "yes"}, {"case": "C", "output": "no"}]
    run = evalq.evaluate("checks", cases, options={"outputs": outputs})
    frame = evalq.evaluate("checks", cases, options={"outputs": pd.DataFrame(outputs)})
    assert (
        run.report
        == frame.report
        == evalq.evaluate("checks", {"cases": cases}, options={"outputs": iter(outputs)}).report
    )
    assert run.report["records"]["total"] == 2


def test_the_same_data_under_one_key_is_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id follows from what it holds, not from the name of a file that it was in for a moment."""
    monkeypatch.chdir(tmp_path)
    with open("data.csv", "w", encoding="utf-8", newline="") as out:
        write_rows(out, 3, seed=5)
    frame = pd.read_csv("data.csv", dtype=str, keep_default_na=False)
    first = evalq.evaluate("planagent", frame, once="k")
    assert evalq.evaluate("planagent", frame, once="k").id == first.id
    assert evalq.evaluate("planagent", frame.head(2), once="k").id != first.id
