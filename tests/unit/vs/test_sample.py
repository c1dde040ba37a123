"""The bundled golden set and the generator of recorded outputs."""

from __future__ import annotations

import io
from pathlib import Path

from evalq.evalcore.evaluators.vs import evaluator
from evalq.evalcore.evaluators.vs.sample import (
    GOLDEN,
    sample_cases,
    sample_params,
    write_outputs,
)
from evalq.evalcore.fold import evaluate_files
from tests.unit.vs.hard import hard_files


def made(repeats: int, seed: int) -> bytes:
    stream = io.BytesIO()
    write_outputs(stream, sample_cases(), repeats, seed)
    return stream.getvalue()


def test_a_seed_gives_the_same_bytes() -> None:
    """Twice the same, another seed another file, and more repeats begin with the fewer."""
    assert made(2, 1) == made(2, 1) != made(2, 2)
    assert made(3, 1).startswith(made(2, 1))


def test_the_committed_outputs_are_the_generators() -> None:
    """examples/outputs.jsonl is three repeats of seed 7."""
    assert GOLDEN.with_name("outputs.jsonl").read_bytes() == made(3, 7)


def test_fifty_repeats_have_something_of_everything(tmp_path: Path) -> None:
    """Every fifth case collapses and no other; there are passes, failures of every check, faults and errors."""
    path = tmp_path / "fifty.jsonl"
    path.write_bytes(made(50, 1))
    found = evaluate_files(evaluator, [path], sample_params())
    results = found.report["results"]
    collapsed = [index for index, item in enumerate(results["mode_collapse"]) if item["verdict"] == "collapsed"]
    assert collapsed == list(range(0, 30, 5))
    assert all(item["verdict"] == "diverse" for n, item in enumerate(results["mode_collapse"]) if n % 5)
    assert results["collapse_nowhere"]["verdict"] == "fails"
    assert 0.5 < results["pass_rate"] < 1.0
    assert 0 < found.report["records"]["errors"] < 50
    issues = " ".join(issue["issue"] for level in results["test_run"]["summary"].values() for issue in level["issues"])
    for kind in ("Contract", "Phase", "T-Score diversity", "Self-critique", "No readable output"):
        assert kind in issues


def test_the_evaluators_sample_is_a_request_of_its_own(tmp_path: Path) -> None:
    """The demo's request completes to the bundled golden set and as many records as were asked for, about."""
    request = evaluator.command.request(evaluator.sample.write(tmp_path, 100, 4))
    found = evaluate_files(evaluator, request.inputs, request.params)
    assert found.report["records"]["total"] == 90
    assert evaluator.command.request(evaluator.sample.write(tmp_path, 1, 4)).inputs == request.inputs


def test_hard_files_hold_what_is_hard(tmp_path: Path) -> None:
    """One file is calm, one has repeated, blank, unknown and broken lines, one is of a sweep that could stop."""
    calm, rough, stopped = hard_files(tmp_path, 3)
    found = evaluate_files(evaluator, [calm, rough], sample_params())
    reasons = " ".join(fault["reason"] for fault in found.report["faults"])
    for reason in ("came before", "not in the golden set", "not UTF-8", "repeat: -1", "the line is a list"):
        assert reason in reasons
    assert b"\n  \n" in rough.read_bytes()
    assert not rough.read_bytes().endswith(b"\n")
    found = evaluate_files(evaluator, [stopped], sample_params())
    reasons = " ".join(fault["reason"] for fault in found.report["faults"])
    for reason in ("came before", "stop.rule: 'soon'", "stop.of: 0", "timeout"):
        assert reason in reasons
    stopping = found.report["results"]["stopping"]
    assert 0 < stopping["decided"] < stopping["cases"] == 7
    assert 0 < stopping["calls_saved"] < stopping["calls_planned"]
