"""Folding the answers of chunks into a report: what is in it, what ends the run instead, and in what order."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.contract.evaluator import Evaluator, InputResult, Outcome, Tally, WholeInput
from evalq.evalcore.errors import InputError, NothingEvaluated
from evalq.evalcore.fold import Fold, InputSummary
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import Faults
from evalq.evalcore.statistics.exact import ExactSum
from tests.contract.specimens import Summing, SumParams, SumState


def outcome(count: int = 1, **tally: Any) -> Outcome[Any]:
    """An answer of ``count`` records of value 0.5."""
    return Outcome(SumState(count, ExactSum.of([0.5] * count)), Tally(scored=count, **tally))


def summaries(*names: str) -> list[InputSummary]:
    """Inputs of these names, at "given/<name>"."""
    return [InputSummary(name, f"given/{name}", f"sha of {name}") for name in names]


def folded(
    chunks: Sequence[tuple[int, Outcome[Any]]], names: Sequence[str], evaluator: Evaluator[Any, Any] | None = None
) -> tuple[dict[str, Json], list[bytes]]:
    """The report and closing lines of ``chunks``, pairs of input index and outcome."""
    fold = Fold(evaluator or Summing(), SumParams(shift=0.25), len(names))
    for index, part in chunks:
        fold.add(index, part)
    return fold.finish(summaries(*names), lambda index: io.BytesIO(names[index].encode()), Path("scratch"))


def test_the_report_says_what_was_evaluated_and_how() -> None:
    """Schema, evaluator, params, inputs with digest and count, counts of all, results in input order."""
    chunks = [(0, outcome(2, errors=1)), (1, outcome(3, unscored=2, dead=1)), (0, outcome(1))]
    report, lines = folded(chunks, ["b", "a"])
    assert report == {
        "schema": "evalq.report/1",
        "evaluator": "summing",
        "evaluator_version": "1",
        "params": {"shift": 0.25, "strict": False},
        "inputs": [
            {"name": "b", "sha256": "sha of b", "records": 4},
            {"name": "a", "sha256": "sha of a", "records": 6},
        ],
        "records": {"total": 10, "scored": 6, "unscored": 2, "errors": 1, "dead": 1},
        "results": {"b": {"count": 3, "sum": 1.5}, "a": {"count": 3, "sum": 1.5}},
        "faults": [],
    }
    assert lines == []


def test_listed_faults_are_shown_with_their_place_and_the_rest_counted() -> None:
    """By input, by line; what is beyond the list is one more entry of that input."""
    many = Faults(150, [(line, f"reason {line}") for line in range(1, 101)])
    report, _ = folded([(0, outcome(listed=Faults(1, [(7, "odd")]))), (1, outcome(listed=many))], ["a", "b"])
    assert report["faults"][:2] == [{"where": "a:7", "reason": "odd"}, {"where": "b:1", "reason": "reason 1"}]
    assert report["faults"][-1] == {"where": "b", "reason": "50 more, not listed"}
    assert len(report["faults"]) == 102


def test_fatal_faults_end_the_run_with_the_first_and_their_number() -> None:
    """Of all inputs, in input order; the message shows twenty and says how many more."""
    first = outcome(fatal=Faults(40, [(line, "bad") for line in range(1, 41)]))
    with pytest.raises(InputError) as caught:
        folded([(1, outcome(fatal=Faults(1, [(5, "late")]))), (0, first)], ["a", "b"])
    error = caught.value
    assert (error.total, len(error.faults)) == (41, 41)
    assert error.faults[0] == ("a:1", "bad")
    assert error.faults[-1] == ("b:5", "late")
    assert str(error).startswith("41 faults in the input\n  a:1: bad\n  a:2: bad\n")
    assert str(error).endswith("\n  a:20: bad\n  ... and 21 more")


def test_one_fatal_fault_is_one_fault() -> None:
    """The message says so, and nothing of more."""
    with pytest.raises(InputError) as caught:
        folded([(0, outcome(fatal=Faults(1, [(3, "no id")])))], ["a"])
    assert str(caught.value) == "1 fault in the input\n  a:3: no id"


def test_without_a_record_nothing_was_evaluated() -> None:
    """No chunk, or only chunks of no record: an error that names the inputs as they were given."""
    for chunks in ([], [(0, outcome(0)), (1, outcome(0))]):
        with pytest.raises(NothingEvaluated, match="no records in given/a, given/b"):
            folded(chunks, ["a", "b"])


@pytest.mark.parametrize("kind", ["errors", "unscored", "dead"])
def test_a_record_without_a_score_is_a_record(kind: str) -> None:
    """A run of broken records has a report, which says that they are broken; an empty input beside is no error."""
    report, _ = folded([(0, outcome(0, **{kind: 2}))], ["a", "empty"])
    assert report["records"] == {"total": 2, "scored": 0, "unscored": 0, "errors": 0, "dead": 0, kind: 2}
    assert report["inputs"][1]["records"] == 0


def _length(state: Any, params: SumParams, reopen: Callable[[], BinaryIO], scratch: Path) -> Any:
    """The count becomes the length of the input."""
    with reopen() as stream:
        return SumState(len(stream.read()), state.total)


def _one_line(result: InputResult[Any], params: SumParams) -> list[bytes]:
    """One record, one line."""
    result.tally.scored += 1
    if result.name == "twice":
        result.tally.fatal.add(2, "said twice")
    return [result.given.encode()]


class Whole(Summing):
    """Its record is a whole input: settled from the input's bytes, counted and given a line when it is finished."""

    whole = WholeInput(_length, _one_line)


def test_an_input_is_settled_from_its_own_bytes_and_then_finished() -> None:
    """In input order; what finishing counts is in the report, and its lines come after the chunks'."""
    report, lines = folded([(1, outcome(0)), (0, outcome(0))], ["aa", "bbb"], Whole())
    assert lines == [b"given/aa", b"given/bbb"]
    assert report["results"] == {"aa": {"count": 2, "sum": 0.0}, "bbb": {"count": 3, "sum": 0.0}}
    assert report["records"]["total"] == 2
    assert [entry["records"] for entry in report["inputs"]] == [1, 1]


def test_a_fatal_fault_found_when_an_input_is_finished_ends_the_run_too() -> None:
    """What only the whole input shows (say, an id given twice) is no less wrong."""
    with pytest.raises(InputError, match="1 fault in the input\n  twice:2: said twice"):
        folded([], ["once", "twice"], Whole())


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=10))
def test_chunks_of_several_inputs_may_be_added_in_turns(chunks: list[tuple[int, int]]) -> None:
    """Only the order within an input counts."""
    parts = [(index, outcome(count, errors=1)) for index, count in chunks]
    if not parts:
        return
    report, _ = folded(parts, ["a", "b", "c"])
    parts = [(index, outcome(count, errors=1)) for index, count in sorted(chunks, key=lambda chunk: chunk[0])]
    assert folded(parts, ["a", "b", "c"])[0] == report
