"""Finding where a value stands that a check misses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.evaluators.planagent.params import Diagnostic
from evalq.evalcore.evaluators.planagent.score import MAX_STEPS
from tests.unit.planagent.helpers import Row, answer, evaluate, evaluation, row

KEY_CHECK = '1) 해당 항목의 value 내 dataKey 값이 "K"인가'
SWITCH_CHECK = "1) 해당 항목의 multiSelectAllowYn 값이 true인가"
WORD_CHECK = '1) assistantMessage에 "환불 기준"과 관련된 내용이 언급되어 있는가'


@pytest.fixture(autouse=True, params=["compiled", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of scoring rows search alike."""
    if request.param == "python":
        monkeypatch.setattr("evalq.evalcore.evaluators.planagent.compiled.compiled", lambda: None)


def _found(expected: str, *values: Any, message: str = "네", ascii_only: bool = False) -> dict[str, int]:
    raw = json.dumps(json.loads(answer(message, values)), ensure_ascii=ascii_only)
    tables = evaluate([row(expected=expected, raw=raw)]).state.found
    return {path: counts[0] for table in tables.values() for path, counts in table.counts.items()}


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ({"value": {"in": {"dataKey": "K"}}}, {"value.in.dataKey": 1}),
        ({"dataKey": "K"}, {"dataKey": 1}),
        ({"value": {"other": "K", "list": [{"k": "K"}, {"k": "K"}]}}, {"value.other": 1, "value.list[*].k": 1}),
        ({"value": {"dataKey": "KK", "K": 1}}, {}),
        ({"value": "K"}, {"value": 1}),
        ({"value": ["K"]}, {"value[*]": 1}),
    ],
)
def test_a_missed_key_is_found_wherever_its_value_stands(value: dict[str, Any], paths: dict[str, int]) -> None:
    """Each path counts once a check, whatever the number of places."""
    assert _found(KEY_CHECK, value) == paths


def test_a_key_that_passes_is_not_looked_for() -> None:
    """Other places of the value do not matter then."""
    assert _found(KEY_CHECK, {"value": {"dataKey": "K", "in": {"dataKey": "K"}}}) == {}


def test_values_outside_ui_value_are_named_from_the_top() -> None:
    """So nobody takes them for a path inside uiValue."""
    raw = json.dumps({"dataUIList": [{"uiDescription": "K", "uiValue": {}}, "K", {"uiValue": "K"}]})
    table = evaluate([row(expected=KEY_CHECK, raw=raw)]).state.found["dataKey"]
    assert set(table.counts) == {"dataUIList[*].uiDescription", "dataUIList[*]", "uiValue"}


def test_a_keyword_is_found_in_the_items_texts() -> None:
    """Across white space, as keywords are compared."""
    assert _found(WORD_CHECK, {"message": "우리 환불\n기준은"}) == {"message": 1}


def test_a_keyword_of_one_word_is_found_within_a_text() -> None:
    """It need not stand in quotes by itself."""
    assert _found(WORD_CHECK.replace("환불 기준", "refund"), {"title": "our refunds"}) == {"title": 1}


def test_a_kind_that_was_never_asked_for_is_not_suspect(tmp_path: Path) -> None:
    """However few checks are enough for a suspicion."""
    report = evaluation(tmp_path, [row(expected=KEY_CHECK)], {"diagnostic": {"checks": 1}}).report
    assert [output["check"] for output in report["results"]["diagnostics"]] == ["dataKey"]


def test_a_switch_is_found_by_its_own_name_only() -> None:
    """Any other true means nothing, nor does it when the switch stands where it belongs with the other value."""
    assert _found(SWITCH_CHECK, {"useYn": True, "options": {"multiSelectAllowYn": True}}) == {
        "options.multiSelectAllowYn": 1
    }
    assert _found(SWITCH_CHECK, {"multiSelectAllowYn": False, "options": {"multiSelectAllowYn": True}}) == {}


@pytest.mark.parametrize("ascii_only", [True, False])
def test_escapes_in_the_json_hide_nothing(ascii_only: bool) -> None:
    """A value outside ASCII is found whether the writer escaped it or not."""
    check = '1) 해당 항목의 value 내 dataKey 값이 "환불"인가'
    assert _found(check, {"value": {"in": "환불"}}, ascii_only=ascii_only) == {"value.in": 1}


def test_the_walk_is_bounded_in_depth_and_width() -> None:
    """A value deeper than MAX_STEPS or behind thousands of others is not searched for, and nothing fails."""
    deep: dict[str, Any] = {"k": "K"}
    for _ in range(MAX_STEPS + 2):
        deep = {"in": deep}
    assert _found(KEY_CHECK, {"value": deep}) == {}
    assert _found(KEY_CHECK, *[{"value": {f"k{i}": i for i in range(100)}}] * 100, {"value": {"in": "K"}}) == {}


@pytest.mark.parametrize(("containers", "found"), [(MAX_STEPS, 1), (MAX_STEPS + 1, 0)])
def test_a_value_is_found_in_as_many_containers_as_are_walked(containers: int, found: int) -> None:
    """The item's uiValue is the first of them; objects and lists count alike."""
    for wrap in (lambda inner: {"in": inner}, lambda inner: [inner]):
        value: Any = {"k": "K"}
        for _ in range(containers - 2):
            value = wrap(value)
        assert len(_found(KEY_CHECK, {"value": value})) == found


def _rows(good: int, bad: int) -> list[Row]:
    right = answer(items=[{"value": {"dataKey": "K"}}])
    nested = answer(items=[{"value": {"a": {"dataKey": "K"}, "b": {"dataKey": "K"}}}])
    lost = answer(items=[{"value": {}}])
    raws = [right] * good + [nested] * (bad - 1) + [lost]
    return [row(f"q{i}", expected=KEY_CHECK, raw=raw) for i, raw in enumerate(raws)]


@pytest.mark.parametrize(
    ("good", "bad", "suspect"), [(0, 20, True), (0, 19, False), (1, 99, False), (1, 100, True), (2, 199, True)]
)
def test_a_kind_is_suspect_below_one_percent_of_twenty(tmp_path: Path, good: int, bad: int, suspect: bool) -> None:
    """Fewer than 1 in 100 of at least 20, without rounding."""
    got = evaluation(tmp_path, _rows(good, bad)).report["results"]
    assert bool(got["diagnostics"]) is suspect
    assert Diagnostic().suspects(good, good + bad) is suspect
    assert (got["checklist"][2]["status"] == "warning") is suspect


def test_the_diagnostic_names_the_most_frequent_place_first(tmp_path: Path) -> None:
    """Ties go by the path's text, the next places stand beside it."""
    (got,) = evaluation(tmp_path, _rows(0, 30)).report["results"]["diagnostics"]
    assert got == {
        "check": "dataKey",
        "passed": 0,
        "of": 30,
        "found_at": "value.a.dataKey",
        "would_pass": 29,
        "also_found": [{"found_at": "value.b.dataKey", "would_pass": 29}],
    }


def test_a_value_found_nowhere_is_said_so(tmp_path: Path) -> None:
    """No place is null, with nothing that would pass."""
    rows = [row(f"q{i}", expected=KEY_CHECK, raw=answer()) for i in range(20)]
    (got,) = evaluation(tmp_path, rows).report["results"]["diagnostics"]
    assert (got["found_at"], got["would_pass"]) == (None, 0)
