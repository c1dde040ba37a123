"""What a notebook does with a run: evaluate, look at frames, open a folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import evalq
from evalq._evaluate import amount, whole
from evalq.evalcore.evaluators.planagent.evaluator import PlanAgent
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.producer.folder.run_folder import RunFolder


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with results.csv of 300 rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALQ_BROKER", raising=False)
    with (tmp_path / "results.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 300, seed=3)
    return tmp_path


def test_an_evaluation_in_this_process_writes_nothing(rows: Path) -> None:
    """The report and a row for each record, and the folder is as it was."""
    run = evalq.evaluate("planagent", "results.csv", suite="nightly", tags={"model": "m1"})
    assert (run.state, run.done, run.id, run.path) == ("done", True, "", None)
    assert (run.evaluator, run.suite, run.target, run.tags) == ("planagent", "nightly", "", {"model": "m1"})
    assert run.report["records"]["total"] == len(run.records()) == 300
    assert [path.name for path in rows.iterdir()] == ["results.csv"]
    assert run._repr_markdown_()


def test_without_pandas_frames_say_what_to_install_and_all_else_works(
    rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate needs no frames: pandas comes with an extra."""
    monkeypatch.setattr("evalq._run.find_spec", lambda name: None)
    run = evalq.evaluate("planagent", "results.csv")
    found = evalq.compare(run, run)
    decided = evalq.gate(run, {"gates": [{"metric": "planagent.set.intent", "min": 1}]})
    assert (decided.exit_code in (0, 1, 4), "planagent" in str(found)) == (True, True)
    for frame in (run.records, run.summary, found.summary, found[0].cases, found[0].flips, decided.summary):
        with pytest.raises(evalq.errors.UsageError, match=r"needs pandas.*pip install 'evalq\[data\]'"):
            frame()


@pytest.mark.parametrize("folder", [None, "kept"])
def test_a_tag_that_is_no_text_is_refused_by_name(rows: Path, folder: str | None) -> None:
    """Whether it would be written or not; nothing of a run is reported as damaged."""
    with pytest.raises(evalq.errors.UsageError, match=r"tags=\{'seed': 3\}: both are texts"):
        evalq.evaluate("planagent", "results.csv", tags={"seed": 3}, folder=folder)  # type: ignore[dict-item] # the point
    assert [path.name for path in rows.iterdir()] == ["results.csv"]


def test_a_folder_has_what_the_memory_has(rows: Path) -> None:
    """With a folder, the same report, records and summary, and they are found again by opening it."""
    run = evalq.evaluate("planagent", "results.csv")
    kept = evalq.evaluate("planagent", "results.csv", folder="kept", chunk_size=50, tags={"model": "m1"})
    again = evalq.open_run(rows / "kept")
    for other in (kept, again):
        assert other.report == run.report
        pd.testing.assert_frame_equal(other.records(), run.records())
        pd.testing.assert_frame_equal(other.summary(), run.summary())
    assert (again.id, again.path, again.tags) == (kept.id, rows / "kept", {"model": "m1"})
    assert again.report == json.loads((rows / "kept" / "report.json").read_text())


def test_a_run_stays_itself_where_the_current_folder_changes(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a folder that holds another run at the same relative path."""
    run = evalq.evaluate("planagent", "results.csv", folder="kept")
    (rows / "other").mkdir()
    monkeypatch.chdir(rows / "other")
    assert (run.path, run.state, len(run.records())) == (rows / "kept", "done", 300)
    evalq.evaluate("planagent", rows / "results.csv", folder="kept", limit=7)
    assert (len(run.records()), run.report["records"]["total"]) == (300, 300)
    assert evalq.compare(run, run)[0].verdict


def test_params_and_options_are_the_evaluators_own(rows: Path) -> None:
    """Both change the report as the command's would; a wrong one is an error that names it."""
    plain = evalq.evaluate("planagent", "results.csv")
    by_params = evalq.evaluate("planagent", "results.csv", params={"rules": {"stability": "error_or_empty"}})
    by_options = evalq.evaluate("planagent", "results.csv", options={"stability_reading": "error_or_empty"})
    assert by_params.report == by_options.report != plain.report
    with pytest.raises(evalq.errors.UsageError, match="has no 'stable'"):
        evalq.evaluate("planagent", "results.csv", options={"stable": 1})
    with pytest.raises(evalq.errors.ConfigError, match="rules"):
        evalq.evaluate("planagent", "results.csv", params={"rules": {"stability": "no"}})
    with pytest.raises(evalq.errors.InputError):
        evalq.evaluate("planagent", "missing.csv")
    with pytest.raises(evalq.errors.UnknownEvaluator):
        evalq.evaluate("nothing", "results.csv")


@pytest.mark.parametrize("given", [{"workers": 0}, {"workers": -1}, {"chunk_size": 0}, {"limit": 0}])
def test_numbers_that_say_nothing_are_refused_by_name(rows: Path, given: dict[str, int]) -> None:
    """As their options are: no workers are not as many as there are cores, and chunks of nothing are no empty file."""
    ((name, value),) = given.items()
    with pytest.raises(evalq.errors.UsageError, match=f"^{name}={value}: at least 1 "):
        evalq.evaluate("planagent", "results.csv", **given)  # type: ignore[arg-type]  # one of several numbers
    assert [path.name for path in rows.iterdir()] == ["results.csv"]


KINDS = "a path, a data frame, a table, a record (a mapping), or a list"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"limit": "3"}, "limit='3': a whole number"),
        ({"chunk_size": 2.5}, "chunk_size=2.5: a whole number"),
        ({"workers": "2"}, "workers='2': a whole number"),
        ({"suite": None}, "suite=None: a text"),
        ({"once": 3}, "once=3: a text"),
        ({"tags": ["seed=3"]}, "tags=['seed=3']: a mapping of texts"),
        ({"params": "x"}, "params='x': a mapping"),
        ({"options": [1]}, "options=[1]: a mapping"),
        ({"inputs": 3}, f"inputs=3: {KINDS}"),
        ({"inputs": ["results.csv", None]}, f"inputs=None: {KINDS}"),
        ({"suite": "\udc80"}, r"suite='\udc80': not text in UTF-8"),
        ({"tags": {"a": "\udc80"}}, r"tags={'a': '\udc80'}: not text in UTF-8"),
    ],
)
def test_what_is_of_another_kind_is_refused_by_name(rows: Path, given: dict[str, Any], told: str) -> None:
    """It was a TypeError of code that nobody knows, or a run of it, or a folder that was called damaged."""
    for folder in (None, "run"):
        with pytest.raises(evalq.errors.UsageError, match=f"^{re.escape(told)}$"):
            evalq.evaluate("planagent", **{"inputs": "results.csv", "folder": folder, **given})
    with pytest.raises(evalq.errors.UsageError, match=r"^folder=3: a path$"):
        evalq.evaluate("planagent", "results.csv", folder=3)  # type: ignore[arg-type]  # as a notebook may
    assert [path.name for path in rows.iterdir()] == ["results.csv"]


def test_what_numpy_has_is_kept_as_python_has_it(rows: Path) -> None:
    """Its whole numbers and texts are such, and a folder keeps those of Python."""
    given: dict[str, Any] = {
        "limit": np.int64(3),
        "chunk_size": np.int64(2),
        "suite": np.str_("s"),
        "once": np.str_("k"),
    }
    run = evalq.evaluate("planagent", "results.csv", folder="run", tags={np.str_("a"): np.str_("b")}, **given)
    assert (run.suite, run.tags, run.report["records"]["total"]) == ("s", {"a": "b"}, 3)
    assert [*whole(n=np.int64(4), x=None), amount(cost=np.float64(1.5)), amount(cost=2)] == [4, None, 1.5, 2.0]
    with pytest.raises(evalq.errors.UsageError, match=r"^max_cost='3': a number$"):
        evalq.resume("run", max_cost="3")  # type: ignore[arg-type] # the point


def test_records_have_one_type_a_column(rows: Path) -> None:
    """Text, whole numbers, numbers and switches have their column types; lists and objects stay what they are."""
    frame = evalq.evaluate("planagent", "results.csv").records()
    kinds = {name: str(kind) for name, kind in frame.dtypes.items()}
    assert list(kinds)[:3] == ["record", "id", "status"]
    assert {kinds[name] for name in ("record", "id", "status", "round", "reason")} == {"string"}
    assert (kinds["score"], kinds["seconds"], kinds["checks"]) == ("Int64", "float64", "object")
    assert frame["record"].iloc[0].startswith("results.csv:")
    assert any(isinstance(value, list) for value in frame["checks"])


def test_batches_have_the_types_of_the_whole(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that is empty, whole or fractional by batch has the type that holds all of it; none is lost."""
    evalq.evaluate("planagent", "results.csv", folder="kept")
    lines: list[dict[str, Any]] = [
        {"record": "a:1", "id": "1", "status": "scored", "n": 1, "big": 2**70, "ok": True},
        {"record": "a:2", "id": "2", "status": "scored", "n": None, "big": 1, "more": {"x": [1]}},
        {"record": "a:3", "id": "3", "status": "scored", "n": 2.5, "big": 2, "ok": False},
    ]
    (rows / "kept" / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = evalq.open_run("kept")
    whole, batches = run.records(), list(run.record_batches(1))
    kinds = {"n": "float64", "big": "object", "ok": "boolean", "more": "object"}
    assert {name: str(whole.dtypes[name]) for name in kinds} == kinds
    assert [len(batch) for batch in batches] == [1, 1, 1]
    assert all((batch.dtypes == whole.dtypes).all() for batch in batches)
    assert [value for batch in batches for value in batch["big"]] == [2**70, 1, 2]
    with pytest.raises(evalq.errors.UsageError, match="at least 1"):
        run.record_batches(0)


def test_a_summary_has_a_row_for_each_value_of_a_metric(rows: Path) -> None:
    """What the exporter would show, with a column for each label."""
    frame = evalq.evaluate("planagent", "results.csv").summary()
    assert list(frame.columns[:4]) == ["metric", "unit", "value", "state"]
    assert {str(frame.dtypes[name]) for name in frame.columns if name != "value"} == {"string"}
    assert str(frame.dtypes["value"]) == "float64"
    rates = frame[frame["metric"] == "evalq_planagent_check_failure_rate"]
    assert len(rates) > 1
    assert rates["check"].notna().all()
    assert frame["round"].isna().any()


def test_the_word_of_a_state_stands_beside_its_number(tmp_path: Path) -> None:
    """vs has a verdict: its number in `value`, its word in `state`."""
    (tmp_path / "golden.json").write_text(
        json.dumps({"test_cases": {"light_vs_tests": [{"id": "C", "agent": "17-journal-matcher", "input": "?"}]}})
    )
    output = {"vs_metadata": {"final_selection": {"option": "b", "t_score": 0.3}}, "content": {"summary": "s"}}
    lines = [json.dumps({"case": "C", "repeat": n, "output": output}) for n in range(3)]
    (tmp_path / "outputs.jsonl").write_text("\n".join(lines))
    run = evalq.evaluate("vs", tmp_path / "golden.json", options={"outputs": [tmp_path / "outputs.jsonl"]})
    states = run.summary().query("unit == 'state'")
    assert len(states) > 0
    assert states["state"].notna().all()


def test_an_unfinished_run_says_so(rows: Path) -> None:
    """Its state and the next step; report and records are errors that say the same, and nothing is changed."""
    evalq.evaluate("planagent", "results.csv", folder="kept")
    (rows / "kept" / "report.json").unlink()
    RunFolder(rows / "kept").note(state="retrying")
    RunFolder(rows / "kept").note(state="interrupted")
    run = evalq.open_run("kept")
    assert (run.state, run.done) == ("interrupted", False)
    assert "interrupted" in repr(run)
    assert "evalq resume" in repr(run)
    for ask in (lambda: run.report, run.records, run.summary):
        with pytest.raises(evalq.errors.UsageError, match=r"no report.*evalq resume"):
            ask()
    assert run._repr_markdown_() is None


def test_a_run_is_opened_by_its_id(rows: Path) -> None:
    """One in ./evalq-runs needs no path; what is no run folder is refused."""
    made = evalq.evaluate("planagent", "results.csv", folder="evalq-runs/planagent-1")
    assert evalq.open_run("planagent-1").id == made.id
    with pytest.raises(evalq.errors.UsageError, match="not a run folder"):
        evalq.open_run("planagent-2")


def test_damaged_files_are_errors_of_evalq(rows: Path) -> None:
    """A broken line is named by its number; records that were removed by their path."""
    run = evalq.evaluate("planagent", "results.csv", folder="kept")
    records = rows / "kept" / "records.jsonl"
    records.write_bytes(records.read_bytes().replace(b"{", b"[", 1))
    with pytest.raises(evalq.errors.WireError, match=r"records\.jsonl:1 is damaged"):
        run.records()
    records.unlink()
    with pytest.raises(evalq.errors.StorageError, match=r"records\.jsonl"):
        run.records()


def test_an_evaluator_that_is_not_installed_is_computed_here_only(rows: Path) -> None:
    """An object will do for this process; the queue, and a folder that is resumed later, find evaluators by name."""

    class Mine(PlanAgent):
        name = "mine"

    assert evalq.evaluate(Mine(), "results.csv").records().shape[0] == 300
    for where in ({"folder": "kept"}, {"workers": 1}):
        with pytest.raises(evalq.errors.UsageError, match="not installed"):
            evalq.evaluate(Mine(), "results.csv", **where)
    assert not (rows / "kept").exists()


def test_an_evaluator_that_calls_nobody_sweeps_nothing(rows: Path) -> None:
    """`cooperation` reads logs: it has nobody to call."""
    with pytest.raises(evalq.errors.UsageError, match="calls nobody"):
        evalq.sweep("cooperation", "results.csv", target="x")
    with pytest.raises(evalq.errors.UsageError, match="repeat=3"):
        evalq.sweep("planagent", "results.csv", target="x", repeat=3)


def test_a_history_needs_a_server(rows: Path) -> None:
    """Without one it says what to give."""
    with pytest.raises(evalq.errors.UsageError, match="broker=URL"):
        evalq.evaluate("planagent", "results.csv").history()
