"""What a sweep asks as its outputs arrive, held against the verdicts of the report from the same lines."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalq.evalcore.evaluators.vs.inputs import stopping_for
from tests.unit.vs.helpers import (
    PARAMS,
    entry,
    evaluated,
    good_output,
    line,
    make_params,
    marked,
    runs_of,
    stop_mark,
    with_value,
    without,
)

DECIDED = ("collapsed", "diverse")

outputs = st.one_of(
    st.sampled_from(["a plan", "A  plan.", "another", "a third"]).map(good_output),
    st.just(without(good_output("a plan"), "provenance")),
    st.sampled_from([None, {}, "sorry", with_value(good_output(), "vs_metadata.final_selection.option", 7)]),
)
arriving = st.one_of(
    st.builds(line, st.sampled_from(["F", "E"]), st.integers(0, 40), outputs).map(marked),
    st.builds(line, st.sampled_from(["F", "E"]), st.integers(0, 40), st.just(good_output("a plan"))).map(marked),
    st.sampled_from(
        [
            b"",
            b"{",
            b'{"case": "?", "repeat": 0, "output": {}}',
            b'{"case": "F", "repeat": 3, "error": "timeout"}',
            b'{"case": "F", "repeat": 3, "output": {}, "stop": {"rule": "soon", "of": 9}}',
        ]
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(arriving, min_size=40, max_size=90), st.sampled_from([0.3, 0.5, 0.7]))
def test_what_is_said_is_the_verdict_of_the_report(tmp_path: Path, lines: list[bytes], share: float) -> None:
    """At the end of any lines, in any order, repeated or broken: decided exactly where the report is."""
    lines = [*lines, marked(line("F", 99, good_output("a plan"))), marked(line("E", 99, good_output("another")))]
    params: dict[str, Any] = {"collapse": {"collapse_share": share}}
    stopping = stopping_for(make_params(**params))
    standing: dict[str, bool] = {"F": False, "E": False, "L": False}
    for data in lines:
        before = dict(standing)
        case = stopping.add(data)
        standing = {name: stopping.decided(name) for name in standing}
        became = [name for name in standing if standing[name] and not before[name]]
        assert became == ([] if case is None else [case])
    report = evaluated(tmp_path, lines, {**PARAMS, **params})
    for name, decided in standing.items():
        assert decided == (entry(report, name)["verdict"] in DECIDED)


@settings(max_examples=30, deadline=None)
@given(st.permutations(runs_of("F", ["a"] * 17 + ["b"] * 2 + ["c"])))
def test_the_order_of_arrival_does_not_matter_in_the_end(lines: list[bytes]) -> None:
    """The same lines in any order leave the case as it is in one order."""
    stopping, ordered = stopping_for(make_params()), stopping_for(make_params())
    for data in lines:
        stopping.add(data)
    for data in sorted(lines):
        ordered.add(data)
    assert stopping.decided("F") == ordered.decided("F")


def test_a_case_is_decided_by_one_line_and_said_once() -> None:
    """Thirteen that agree decide it at the thirteenth; further ones say nothing new."""
    stopping = stopping_for(make_params())
    said = [stopping.add(data) for data in runs_of("F", ["a"] * 20)]
    assert said == [None] * 12 + ["F"] + [None] * 7
    assert stopping.decided("F")
    assert not stopping.decided("E")


def test_a_decided_case_can_become_undecided_and_decided_again() -> None:
    """Answers to calls that were under way count; then it is called on."""
    stopping = stopping_for(make_params())
    said = [stopping.add(data) for data in runs_of("F", [*"a" * 13, "b", *"a" * 12])]
    assert said[12] == "F"
    assert said[13] is None
    assert said.index("F", 13) > 14
    stopping = stopping_for(make_params())
    for data in runs_of("F", [*"a" * 13, "b"]):
        stopping.add(data)
    assert not stopping.decided("F")


def test_a_repeated_output_counts_once() -> None:
    """The first of a (case, repeat) counts, also where a later one says something else."""
    stopping = stopping_for(make_params())
    lines = runs_of("F", ["a"] * 12)
    assert [stopping.add(data) for data in (*lines, *lines, line("F", 0, good_output("z")))] == [None] * 25
    assert stopping.add(line("F", 12, good_output("a"))) == "F"


def test_errors_are_never_a_mode() -> None:
    """A hundred failed calls, unreadable answers and answers without an option decide nothing, and take no repeat."""
    stopping = stopping_for(make_params())
    bad = without(good_output(), "vs_metadata.final_selection.option")
    for repeat in range(100):
        assert stopping.add(json.dumps({"case": "F", "repeat": repeat, "error": "timeout"}).encode()) is None
        assert stopping.add(line("F", repeat, "sorry")) is None
        assert stopping.add(line("E", repeat, bad)) is None
    assert not stopping.decided("F")
    assert not stopping.decided("E")
    said = [stopping.add(data) for data in runs_of("F", ["a"] * 13)]
    assert said[-1] == "F"


def test_cases_left_out_of_the_selection_are_never_decided() -> None:
    """As in the report, which leaves them out."""
    stopping = stopping_for(make_params(level="Light"))
    assert [stopping.add(data) for data in runs_of("F", ["a"] * 20)] == [None] * 20


def test_thousands_of_cases_are_quick() -> None:
    """Twenty thousand lines of two thousand cases within some seconds; the bound leaves room for a busy machine."""
    cases = [{"id": f"C{n}", "agent": PARAMS["cases"][2]["agent"]} for n in range(2000)]
    stopping = stopping_for(make_params(cases=cases))
    lines = [
        marked(line(f"C{number}", repeat, good_output("ab"[repeat % 5 == 4])))
        for repeat in range(10)
        for number in range(2000)
    ]
    began = time.process_time()
    for data in lines:
        stopping.add(data)
    assert time.process_time() - began < 15


def test_the_mark_is_what_the_report_reads(tmp_path: Path) -> None:
    """What the driver writes into a line makes its case one of those that could stop."""
    lines = [marked(data, stop_mark(40)) for data in runs_of("F", ["a"] * 13)]
    assert entry(evaluated(tmp_path, lines), "F")["stop"]["of"] == 40
