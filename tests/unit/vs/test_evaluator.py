"""The whole evaluation: the same bytes however it is cut, repeated outputs, several inputs, and what it costs."""

from __future__ import annotations

import tracemalloc
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalq.evalcore.contract.evaluator import Batch, InputResult, dead_outcome
from evalq.evalcore.errors import NothingEvaluated
from evalq.evalcore.evaluators.vs import VsState, evaluator
from evalq.evalcore.evaluators.vs.report import CaseTotals
from evalq.evalcore.evaluators.vs.sample import sample_params
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.model.state import Tally
from evalq.evalcore.statistics.exact import ExactSum
from tests.unit.vs.hard import hard_files
from tests.unit.vs.helpers import PARAMS, detail, entry, evaluated, good_output, line, make_params, runs_of, without

any_line = st.one_of(
    st.builds(
        line,
        st.sampled_from(["F", "E", "L", "?"]),
        st.integers(0, 3),
        st.sampled_from(
            [good_output("a"), good_output("b"), without(good_output("c"), "vs_metadata.t_scores"), {}, None]
        ),
    ),
    st.sampled_from([b"", b"  ", b"{", b'{"case": "F", "repeat": 0, "repeat": 0}']),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(any_line, min_size=1, max_size=14), st.integers(1, 5))
def test_the_report_does_not_depend_on_the_cuts(tmp_path: Path, lines: list[bytes], size: int) -> None:
    """Any chunk size gives the same report and the same record lines, byte for byte, repeated outputs included."""
    try:
        whole = evaluated(tmp_path, lines)
    except NothingEvaluated:
        with pytest.raises(NothingEvaluated):
            evaluated(tmp_path, lines, chunk_size=size)
        return
    cut = evaluated(tmp_path, lines, chunk_size=size)
    assert canonical_json(cut.report) == canonical_json(whole.report)
    assert cut.lines == whole.lines


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_sample_files_are_the_same_at_any_chunk_size(tmp_path: Path, size: int) -> None:
    """The two files of the conformance suite, calm and rough, give one report."""
    paths, params = hard_files(tmp_path, 5), sample_params()
    whole, cut = evaluate_files(evaluator, paths, params), evaluate_files(evaluator, paths, params, chunk_size=size)
    assert canonical_json(cut.report) == canonical_json(whole.report)
    assert cut.lines == whole.lines


@settings(max_examples=40, deadline=None)
@given(st.lists(any_line, max_size=12), st.data())
def test_merging_is_associative_and_survives_the_wire(lines: list[bytes], data: st.DataObject) -> None:
    """However three pieces are bracketed, the merged state is one byte string, and nothing is the neutral element."""
    first, second = sorted((data.draw(st.integers(0, len(lines))), data.draw(st.integers(0, len(lines)))))
    pieces = [(1, lines[:first]), (1 + first, lines[first:second]), (1 + second, lines[second:])]

    def state(index: int) -> VsState:
        start, own = pieces[index]
        made = evaluator.evaluate(Batch("o", start, b"\n".join(own)), make_params()).state
        assert VsState.from_wire(made.to_wire()).to_wire() == made.to_wire()
        return made

    left, right, tail = state(0), state(0), state(1)
    left.merge(state(1))
    left.merge(state(2))
    tail.merge(state(2))
    right.merge(tail)
    assert left.to_wire() == right.to_wire()
    left.merge(VsState.zero())
    empty = VsState.zero()
    empty.merge(right)
    assert left.to_wire() == empty.to_wire()


def test_the_first_output_of_a_repeat_counts(tmp_path: Path) -> None:
    """Later ones are listed and leave counts, options and averages as if they had never been recorded."""
    lines = runs_of("F", ["a", "b", "b"])
    extra = [line("F", 1, {}), line("F", 0, good_output("z"))]
    clean = evaluated(tmp_path, lines)
    doubled = evaluated(tmp_path, [lines[0], lines[1], extra[0], lines[2], extra[1]], chunk_size=2)
    assert doubled.report["results"] == clean.report["results"]
    assert doubled.report["records"] == {"total": 5, "scored": 3, "unscored": 2, "errors": 0, "dead": 0}
    assert doubled.report["faults"] == [
        {"where": "outputs.jsonl:3", "reason": "F repeat 1 came before; left out"},
        {"where": "outputs.jsonl:5", "reason": "F repeat 0 came before; left out"},
    ]


def test_repeats_far_apart_are_distinguished(tmp_path: Path) -> None:
    """Repeats that share a place in a block of 64, or are huge, are not mistaken for one another."""
    lines = [line("F", repeat, good_output()) for repeat in (0, 64, 63, 128, 2**52, 2**52 + 64)]
    assert evaluated(tmp_path, lines, chunk_size=1).report["records"]["scored"] == 6
    again = evaluated(tmp_path, [*lines, line("F", 2**52, good_output())], chunk_size=1)
    assert again.report["records"] == {"total": 7, "scored": 6, "unscored": 1, "errors": 0, "dead": 0}


def test_an_error_does_not_take_a_repeats_place(tmp_path: Path) -> None:
    """An output recorded after a failed call is the first output of its repeat, before or after it another error."""
    lines = [line("F", 0, None), line("F", 0, good_output()), line("F", 0, None)]
    found = evaluated(tmp_path, lines)
    assert found.report["records"] == {"total": 3, "scored": 1, "unscored": 0, "errors": 2, "dead": 0}
    assert entry(found, "F")["runs"] == {"total": 3, "valid": 1, "errors": 2}


def test_a_byte_order_mark_and_blank_lines_change_nothing(tmp_path: Path) -> None:
    """Also where repeated outputs make the input be read once more; line numbers count blank lines."""
    lines = [b"\xef\xbb\xbf" + line("F", 0, good_output()), b"", line("F", 0, good_output("z")), b" ", line("F", 1, {})]
    found = evaluated(tmp_path, lines)
    assert found.report["records"]["scored"] == 2
    assert found.report["faults"] == [{"where": "outputs.jsonl:3", "reason": "F repeat 0 came before; left out"}]
    assert entry(found, "F")["most_common"] == [["a quiet theory", 1]]


def test_counting_again_stops_where_the_run_stopped(tmp_path: Path) -> None:
    """Of an input of which only the first lines were evaluated, `settle` looks at no more."""
    lines = [line("F", 0, good_output("a")), line("F", 0, good_output("b")), line("F", 1, good_output("c"))]
    path = tmp_path / "o.jsonl"
    path.write_bytes(b"\n".join(lines))
    params = make_params()
    state = evaluator.evaluate(Batch("o", 1, b"\n".join(lines[:2])), params).state
    settled = evaluator.whole.settle(state, params, lambda: path.open("rb"), tmp_path)
    assert settled.cases["F"].options == {"a": 1}
    assert settled.repeated.total == 1


def test_several_inputs_are_one_result(tmp_path: Path) -> None:
    """The same repeat in two files is two runs, ties go to the file named first, and the order of files is kept."""
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_bytes(b"\n".join(runs_of("F", ["b", "a"])))
    two.write_bytes(b"\n".join(runs_of("F", ["c", "a", "b"])))
    found = evaluate_files(evaluator, [one, two], PARAMS)
    assert entry(found, "F")["most_common"] == [["b", 2], ["a", 2], ["c", 1]]
    assert entry(found, "F")["runs"] == {"total": 5, "valid": 5, "errors": 0}
    assert entry(evaluate_files(evaluator, [two, one], PARAMS), "F")["most_common"] == [["a", 2], ["b", 2], ["c", 1]]


def test_section_leaves_the_states_as_they_were(tmp_path: Path) -> None:
    """Asked twice for its section, the evaluator gives the same one: nothing is counted double."""
    params = make_params()
    states = [evaluator.evaluate(Batch("o", 1, b"\n".join(runs_of("F", "ab"))), params).state for _ in range(2)]
    results = [InputResult(f"{n}", f"{n}", state, Tally()) for n, state in enumerate(states)]
    assert evaluator.section(results, params) == evaluator.section(results, params)


def test_selection_leaves_the_other_cases_out(tmp_path: Path) -> None:
    """With a level selected, other cases are neither in the results nor in the counts of passed and failed."""
    lines = [line("F", 0, good_output()), line("L", 0, {}), line("E", 0, {})]
    found = evaluated(tmp_path, lines, {**PARAMS, "level": "Full"})
    assert found.report["records"] == {"total": 3, "scored": 1, "unscored": 2, "errors": 0, "dead": 0}
    assert [item["case"] for item in found.report["results"]["mode_collapse"]] == ["F"]
    assert found.report["results"]["pass_rate"] == 1.0
    assert detail(found, "F")["status"] == "PASSED"


def test_many_faults_are_counted_and_the_first_are_listed(tmp_path: Path) -> None:
    """Of 250 broken lines a hundred are shown, whatever chunk they came in."""
    found = evaluated(tmp_path, [b"{"] * 250, chunk_size=60)
    assert found.report["records"]["errors"] == 250
    assert len(found.report["faults"]) == 101
    assert found.report["faults"][-1] == {"where": "outputs.jsonl", "reason": "150 more, not listed"}
    assert found.report["results"]["pass_rate"] is None


def test_a_million_runs_fit_in_little_memory() -> None:
    """Twenty cases of 50,000 runs with 500 options each, merged chunk by chunk: the state stays under 10 MB."""
    blocks, options = 16, 100
    tracemalloc.start()
    state = VsState.zero()
    for step in range(50):
        cases = {}
        for number in range(20):
            case = CaseTotals(passed=64 * blocks, spreads=64 * blocks, spread=ExactSum.of([0.1 * step]))
            case.options = {f"option {(step * options + n) % 500} of case {number}": 10 for n in range(options)}
            case.seen = {step * blocks + block: 2**64 - 1 for block in range(blocks)}
            cases[f"C{number}"] = case
        state.merge(VsState.from_wire(VsState(cases=cases).to_wire()))
    del cases, case
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert state.cases["C19"].tests == 50 * 1024
    assert len(state.cases["C19"].options) == 500
    assert not state.overlap
    assert size < 10_000_000


def test_an_output_that_killed_its_process_is_not_judged_again() -> None:
    """Neither does it take a repeat's place, where the outputs of a repeat make the input be read once more."""
    lines = [line("F", 0, good_output("a")), line("F", 0, good_output("b")), line("F", 0, good_output("b"))]
    params, state = make_params(), VsState.zero()
    state.merge(dead_outcome(evaluator, Batch("f", 1, lines[0]), params, "killed").state)
    state.merge(evaluator.evaluate(Batch("f", 2, b"\n".join(lines[1:])), params).state)
    settled = evaluator.whole.settle(state, params, lambda: BytesIO(b"\n".join(lines)), Path())
    assert (settled.cases["F"].options, settled.dead) == ({"b": 1}, [1])
    assert settled.repeated.first == [(3, "F repeat 0 came before; left out")]
