"""What outputs add up to: in any cut, and merged in any order, the same bytes."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.contract.evaluator import Batch, dead_outcome
from evalq.evalcore.evaluators.checks import ChecksState, evaluator
from evalq.evalcore.evaluators.checks.score import OutputScorer
from evalq.evalcore.evaluators.checks.state import ChecksGatherer
from tests.unit.checks.helpers import counts, line, merged_anyhow, params_of, state_of

PARAMS = params_of()
DIVERSE = params_of(diversity={"by": "text"})
extras = st.fixed_dictionaries(
    {},
    optional={
        "cost": st.floats(0, 10),
        "latency_seconds": st.sampled_from([0, 0.1, 0.2, 0.3, 1e-70, 1e12]),
        "completion_tokens": st.integers(0, 5000),
        "stop": st.just({"rule": "when-decided", "of": 20}),
    },
)
lines = st.lists(
    st.builds(
        lambda case, repeat, output, more: line(case, repeat, output, **more),
        st.sampled_from(["a", "b", "c", "?"]),
        st.integers(0, 200) | st.integers(998, 1003),
        st.sampled_from(["yes", "no", "", "yes, but no", 5, {"yes": 1}]),
        extras,
    )
    | st.sampled_from([b"{", b'{"case": "a", "error": "timeout"}']),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(lines, st.data())
def test_merging_in_any_order_gives_the_same_bytes(chunk: list[bytes], data: st.DataObject) -> None:
    """Cut anywhere, paired off anyhow, in any order: cases, checks, quantiles, kinds of answers."""
    assert counts(merged_anyhow(chunk, DIVERSE, data)) == counts(state_of(chunk, DIVERSE))


def test_quantities_are_added_up_once_for_each_output() -> None:
    """Counts by case and check, scores in billionths, what outputs took."""
    state = state_of(
        [
            line("a", 0, "yes", cost=0.5, latency_seconds=2, prompt_tokens=3),
            line("a", 1, "a long no, no"),
            line("b", 0, "no"),
            line("c", 0),
            b"{",
        ],
        PARAMS,
    )
    first, second, third = (state.cases[index] for index in range(3))
    assert (first.passed, first.failed, first.errors, first.score) == (1, 1, 0, 1_000_000_000)
    assert first.checks == [[1, 1, 0], [1, 1, 0]]
    assert (second.passed, second.failed, second.checks) == (0, 1, [[0, 1, 0], [0, 1, 0]])
    assert (third.errors, third.checks) == (1, [[0, 0, 1]])
    assert (state.cost.count, state.latency.most, state.tokens.mean()) == (1, 2.0, 3.0)
    assert state.failures.total == 2
    assert "b repeat 0: contains" in state.failures.first[1][1]


def test_a_state_grows_with_cases_and_not_with_outputs() -> None:
    """A hundred times the outputs make the state hardly longer."""

    def size(repeats: int) -> int:
        made: list[Any] = [line("a", r, "yes", cost=1.0 + r % 7, latency_seconds=r % 5) for r in range(repeats)]
        return len(state_of(made, PARAMS).to_wire())

    # Repeats are bits: so many outputs are a hundred numbers of 64 bits, and nothing else of them is kept one by one.
    assert size(6400) < size(64) + 100 * 30


def test_repeats_past_those_counted_by_kind_are_counted_as_left_out() -> None:
    """Those of all parts: the report says of how many answers it says nothing."""
    state = state_of([line("a", repeat) for repeat in range(998, 1003)], DIVERSE)
    state.merge(state_of([line("a", repeat) for repeat in (1003, 1004)], DIVERSE))
    assert (state.drawn[0].left_out, len(state.drawn[0].counts())) == (5, 1)
    assert state.drawn[0].counts().total() == 2


def test_only_outputs_with_a_verdict_are_known_from_before() -> None:
    """Of its case and repeat: another one, one in error and one of no case were not."""
    gatherer, judge = ChecksGatherer(), OutputScorer(params_of())
    gatherer.add(1, judge.test(line("a", 3)))
    assert gatherer.has(judge.test(line("a", 3, "no")))
    error = b'{"case": "a", "repeat": 3, "error": "lost"}'
    for other in (line("a", 4), line("b", 3), line("?", 3), b"{", error, b'{"case": "a", "repeat": -1}'):
        assert not gatherer.has(judge.test(other))


def test_an_output_that_killed_its_process_is_not_judged_again() -> None:
    """Neither does it take a repeat's place, where the outputs of a repeat make the input be read once more."""
    lines = [line("a", 0, "no"), line("a", 0, "yes"), line("a", 0, "no")]
    params, state = params_of(), ChecksState.zero()
    state.merge(dead_outcome(evaluator, Batch("f", 1, lines[0]), params, "killed").state)
    state.merge(evaluator.evaluate(Batch("f", 2, b"\n".join(lines[1:])), params).state)
    settled = evaluator.whole.settle(state, params, lambda: BytesIO(b"\n".join(lines)), Path())
    assert (settled.cases[0].passed, settled.cases[0].failed, settled.dead) == (1, 0, [1])
    assert settled.repeated.first == [(3, "a repeat 0 came before; left out")]
