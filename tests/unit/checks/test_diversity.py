"""Kinds of answers by their text: what is one text, what is kept of it, and what the report and a sweep make of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks import load_cases
from evalq.evalcore.evaluators.checks.diversity.near import WIDTH, kind_of_text, normal
from evalq.evalcore.evaluators.checks.evaluator import MEASURES
from evalq.evalcore.evaluators.checks.inputs import stopping_for
from evalq.evalcore.statistics.mode_share import mean_interval, mode_share_interval, spending_verdict
from evalq.evalcore.statistics.sequences import mode_share_sequence
from tests.unit.checks.helpers import counts, evaluated, line, merged_anyhow, params_of, state_of, stop_mark

ANY: list[dict[str, Any]] = [{"min-length": 0}]


def case(name: str, by: str = "text", **more: Any) -> dict[str, Any]:
    """A case that passes whatever is answered."""
    return {"id": name, "checks": ANY, "diversity": {"by": by}, **more}


def diversity(folder: Path, lines: list[bytes], cases: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """What the report says of it."""
    found: dict[str, Any] = evaluated(folder, lines, params_of(cases, **more)).report["results"]["diversity"]
    return found


@pytest.mark.parametrize(
    "same",
    [
        ("Paris", "paris.", " **PARIS** ", "“Paris”!", "(paris)", "`Paris`", "PA\uff32IS"),
        ("Don't  do\nit", "don’t do it", "DON'T, do: it"),
        ("Straße", "STRASSE"),
        ("# Title\n\n- one\n- two", "title one two"),
        ("!!!", " !!! "),
    ],
)
def test_what_differs_in_writing_alone_is_one_text(same: tuple[str, ...]) -> None:
    """By Unicode form, case, white space, and punctuation around words."""
    assert len({normal(text) for text in same}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [("-5", "5"), ("3.5", "35"), (".5", "5"), ("C#", "C"), ("5%", "5"), ("!!!", "???"), ("a b", "ab"), ("", ".")],
)
def test_what_says_something_else_is_another_text(one: str, other: str) -> None:
    """Signs, points and marks that belong to a word or a number stay."""
    assert normal(one) != normal(other)


@given(st.text(max_size=60))
def test_a_normal_text_stays_what_it_is(text: str) -> None:
    """Else equal texts could differ by how often they were normalised; half surrogates are text, too."""
    once = normal(text)
    assert normal(once) == once
    assert len(kind_of_text(once)) == WIDTH


PARAMS = params_of([case("a"), case("b", "near"), {"id": "c", "checks": [{"contains": "yes"}]}])
answers = st.sampled_from(["yes", "Yes!", "no", "", "a long answer to it", "a longer answer to it", "another one"])
lines = st.lists(
    st.builds(line, st.sampled_from(["a", "b", "c", "?"]), st.integers(0, 1100), answers) | st.just(b"{"), max_size=40
)


@settings(max_examples=60, deadline=None)
@given(lines, st.data())
def test_kinds_are_the_same_bytes_in_any_cut_and_order(chunk: list[bytes], data: st.DataObject) -> None:
    """Cut anywhere, paired off anyhow, merged in any order."""
    assert counts(merged_anyhow(chunk, PARAMS, data)) == counts(state_of(chunk, PARAMS))


def test_a_case_keeps_no_more_than_a_thousand_answers() -> None:
    """Those of higher repeats are counted as left out, and leave nothing else."""
    state = state_of([line("a", repeat, f"answer {repeat}") for repeat in range(3000)], PARAMS)
    answers = state.drawn[0]
    assert (len(answers.texts), answers.left_out) == (1000 * WIDTH, 2000)
    assert len(state.to_wire()) < 1000 * WIDTH * 4 / 3 + 6000
    assert 2 not in state_of([line("c", 0)], PARAMS).drawn  # where kinds are not counted, nothing is kept


def test_the_report_says_what_each_case_has_collapsed_to(tmp_path: Path) -> None:
    """One text in several spellings is collapsed; five texts are diverse; few answers leave it open."""
    answered = [line("same", r, ("Paris", "paris.", "**Paris**")[r % 3]) for r in range(30)]
    answered += [line("mixed", r, "ABCDE"[r % 5]) for r in range(30)]
    answered += [line("few", r, "x") for r in range(3)] + [line("one", 0, "x")]
    cases = [case("same", tags=["t"]), case("mixed", tags=["t", "u"]), case("few"), case("one"), case("silent")]
    found = diversity(tmp_path, answered, [*cases, case("left", "none")])
    entries = {entry["case"]: entry for entry in found["by_case"]}
    assert {name: entry["verdict"] for name, entry in entries.items()} == {
        "same": "collapsed", "mixed": "diverse", "few": "inconclusive", "one": "no_repeats", "silent": "no_data",
    }  # fmt: skip
    assert entries["same"]["distinct"] == {"text": 1, "kinds": 1}
    assert entries["same"]["commonest"] == {"kind": kind_of_text("paris").hex(), "answers": 30}
    assert entries["silent"]["commonest"] is None
    assert entries["mixed"]["effective_modes"]["q1"] == pytest.approx(5)
    low, high = mode_share_interval(6, 30)
    assert entries["mixed"]["mode_share"] == {"value": 0.2, "low": low, "high": high}
    assert (found["verdict"], found["cases"]) == ("fails", 5)
    assert [each["case"] for each in found["collapsed"]] == ["same"]
    assert found["verdicts"]["no_data"] == 1
    tags = {entry["tag"]: entry for entry in found["by_tag"]}
    assert tags["t"]["effective_modes"] == pytest.approx(3)
    assert tags["u"]["collision_probability"] == entries["mixed"]["collision_probability"]
    assert found["mode_share"] == pytest.approx((1 + 0.2 + 1) / 3)  # over the cases with repeats


def test_a_record_shows_what_a_kind_says(tmp_path: Path) -> None:
    """The beginning of every answer that is counted by kind, passed ones too, beside what the report calls it."""
    done = evaluated(
        tmp_path, [line("a", 0, "Paris."), line("b", 0, "Rome")], params_of([case("a"), case("b", "none")])
    )
    first, second = map(json.loads, done.lines)
    assert (first["output"], first["kind"]) == ("Paris.", kind_of_text("paris").hex())
    assert second["output"] is None
    assert "kind" not in second


def test_what_counts_is_the_first_answer_of_each_repeat(tmp_path: Path) -> None:
    """As in every number of checks: a second one is left out; an answer without a verdict is no answer."""
    answered = [line("a", 0, "x"), line("a", 1, "x"), line("a", 0, "y"), line("a", 2, None, error="timeout")]
    found = diversity(tmp_path, answered, [case("a")])
    assert found["by_case"][0]["answers"] == 2
    assert found["by_case"][0]["distinct"]["text"] == 1


def test_a_run_says_it_for_cases_that_do_not(tmp_path: Path) -> None:
    """A case's own word stands over the run's; without any there is no such part of the report."""
    cases: list[dict[str, Any]] = [{"id": "a", "checks": ANY}, case("b", "none")]
    answered = [line(name, r, "x") for name in "ab" for r in range(20)]
    assert "diversity" not in evaluated(tmp_path, answered, params_of(cases)).report["results"]
    found = diversity(tmp_path, answered, cases, diversity={"by": "text", "collapse_share": 0.9})
    assert [(entry["case"], entry["verdict"]) for entry in found["by_case"]] == [("a", "inconclusive")]


def test_a_sweep_stops_as_its_report_would_say(tmp_path: Path) -> None:
    """After each line, by limits that may be looked at after each; thresholds and diversity have to be decided both."""
    demand = {"rates": [{"number": "pass-rate", "least": 0.5}]}
    cases = [case("both", checks=[{"contains": "x"}], thresholds=demand), case("kinds"), case("open")]
    params = params_of(cases)
    stopping, answered = stopping_for(params), list[bytes]()
    for number in range(30):
        answered += [
            line("both", number, "x", **stop_mark(30)),
            line("kinds", number, f"{number % 6}", **stop_mark(30)),
        ]
        answered.append(line("open", number, "x" if number % 10 < 7 else f"{number}", **stop_mark(30)))
        for data in answered[-3:]:
            stopping.add(data)
        results = evaluated(tmp_path, answered, params).report["results"]
        kinds = {
            entry["case"]: entry["verdict"] in ("collapsed", "diverse") for entry in results["diversity"]["by_case"]
        }
        rates = {entry["case"]: entry["thresholds"] for entry in results["by_case"]}
        reached = {name: all(each["verdict"] in ("holds", "fails") for each in own) for name, own in rates.items()}
        for name, settled in kinds.items():
            assert stopping.decided(name) is (settled and reached[name])
        assert results["stopping"]["decided"] == sum(map(stopping.decided, kinds))
    assert [stopping.decided(name) for name in ("both", "kinds", "open")] == [True, True, False]
    entry = results["diversity"]["by_case"][1]
    assert entry["stop"] == {"rule": "when-decided", "of": 30}
    assert entry["verdict"] == spending_verdict(5, 30, 0.7, 30) == "diverse"
    assert (entry["mode_share"]["low"], entry["mode_share"]["high"]) == mode_share_sequence(5, 30)


def test_a_gate_knows_collapsed_cases_and_texts(tmp_path: Path) -> None:
    """By the report's verdict; equal texts have one label, which two runs are compared by."""
    answered = [line("a", r, ("Paris", "paris!")[r % 2]) for r in range(30)] + [
        line("b", r, f"{r % 9}") for r in range(30)
    ]
    done = evaluated(tmp_path, answered, params_of([case("a"), case("b"), {"id": "c", "checks": ANY}]))
    assert MEASURES.collapsed(done.report) == ["a"]
    assert MEASURES.collapsed(evaluated(tmp_path, [line("c", 0)]).report) == []
    seen = [MEASURES.observe(each) for each in (
        {"id": "a", "status": "passed", "passed": True, "score": 1.0, "repeat": 0, "kind": "ab"},
        {"id": "c", "status": "passed", "passed": True, "score": 1.0, "repeat": 0},
    )]  # fmt: skip
    assert [each.label if each else "" for each in seen] == ["ab", None]


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("diversity: words", "cases[0].diversity.by: must be text, near, embedding or none"),
        ("diversity: {by: near, similarity: 0}", "cases[0].diversity.similarity: Input should be greater than 0"),
        ("diversity: 5", "cases[0].diversity: must be text"),
        ("diversity: {by: text, share: 1}", "cases[0].diversity.share: unknown key"),
        ("diversity: {collapse-share: 1}", "cases[0].diversity.collapse-share: Input should be less than 1"),
        ("diversity: {collapse-share: true}", "must be a number"),
    ],
)
def test_mistakes_are_reported_with_their_place(tmp_path: Path, written: str, reason: str) -> None:
    """File, line and key path."""
    path = tmp_path / "cases.yaml"
    path.write_text(f"cases:\n  - id: a\n    checks: [is-json]\n    {written}\n")
    with pytest.raises(ConfigError, match=r"cases\.yaml:4: ") as caught:
        load_cases([path])
    assert reason in str(caught.value)


def test_layers_are_laid_over_one_another_name_by_name(tmp_path: Path) -> None:
    """Defaults lie under a case; a row of a table has it as text or as JSON."""
    path = tmp_path / "cases.yaml"
    path.write_text(
        "defaults: {checks: [is-json], diversity: {by: text, collapse-share: 0.5}}\n"
        "cases: [{id: a}, {id: b, diversity: none}, {id: c, diversity: {collapse-share: 0.6}}, {file: rows.csv}]\n"
    )
    (tmp_path / "rows.csv").write_text('id,diversity\nd,none\ne,"{""collapse-share"": 0.9}"\nf,\n')
    found = {each.params["id"]: each.params["diversity"] for each in load_cases([path])}
    assert found["a"] == found["f"] == {"by": "text", "collapse_share": 0.5}
    assert found["b"] == found["d"] == {"by": "none", "collapse_share": 0.5}
    assert [found[name]["collapse_share"] for name in "ce"] == [0.6, 0.9]


def test_a_sweep_ends_by_the_repeats_that_the_report_counts() -> None:
    """Those from 1,000 on are in no kind, so that nothing is decided by them on the way either."""
    case: dict[str, Any] = {"id": "a", "checks": [{"min-length": 0}], "diversity": {"by": "text"}}

    def decided(repeats: range) -> bool:
        stopping = stopping_for(params_of([case]))
        for repeat in repeats:
            stopping.add(line("a", repeat, **stop_mark(100)))
        return stopping.decided("a")

    enough = next(many for many in range(1, 100) if decided(range(many)))
    assert decided(range(1000 - enough, 1000))
    assert not decided(range(1001 - enough, 1001))


@pytest.mark.parametrize("unusable", [{"case": "b"}, {"repeat": None}, {"error": "timeout"}])
def test_outputs_without_a_verdict_decide_nothing(unusable: dict[str, Any]) -> None:
    """Of a case that nobody asked for, without a repeat, and failed ones."""
    case: dict[str, Any] = {"id": "a", "checks": [{"min-length": 0}], "diversity": {"by": "text"}}
    stopping = stopping_for(params_of([case]))
    for repeat in range(100):
        written = {**json.loads(line("a", repeat, **stop_mark(100))), **unusable}
        stopping.add(json.dumps({key: value for key, value in written.items() if value is not None}).encode())
    assert not stopping.decided("a")
    assert not stopping.decided("b")


def test_the_mean_of_several_cases_is_off_as_independent_errors_are() -> None:
    """By hand: three quarters of .2 and a quarter of .1, squared and added up; of a single case its own bounds."""
    found = [(0.5, 0.4, 0.7), (0.2, 0.1, 0.3), (0.9, 0.0, 1.0)]
    off = math.hypot(0.75 * 0.2, 0.25 * 0.1)
    assert mean_interval(found, [3, 1, 0]) == pytest.approx((0.425 - off, 0.425 + off))
    assert mean_interval(found, [0, 2, 0]) == (0.1, 0.3)
    assert mean_interval(found, [0, 0, 0]) is None
    assert mean_interval([(0.0, 0.0, 0.9), (1.0, 0.1, 1.0)], [1, 1]) == (0.0, 1.0)
