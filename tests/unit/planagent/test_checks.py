"""Reading checks out of expected results, and judging them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.evaluators.planagent import PlanCheck, PlanParams
from evalq.evalcore.evaluators.planagent.params import Kind
from evalq.evalcore.evaluators.planagent.score import Checklist, checklist_reader, points_by_passes

READ = checklist_reader(PlanParams())


def _checks(text: str) -> tuple[PlanCheck, ...]:
    return READ(text).checks


@pytest.mark.parametrize(
    ("line", "kind", "want"),
    [
        ('assistantMessage에 "합격자 결정"과 관련된 내용이 언급되어 있는가', "message", "합격자 결정"),
        ('assistantMessage에 "평가"와 관련된 내용이 언급되어 있는가', "message", "평가"),
        ('assistantMessage 에 "평가" 와 관련된  내용이 언급되어 있는가?', "message", "평가"),
        ('assistantMessage에 "말 "안" 말"과 관련된 내용이 언급되어 있는가', "message", '말 "안" 말'),
        ('dataUIList 내 formType 값이 "SELECT"인 항목이 존재하는가', "formType", "SELECT"),
        ('dataUIList내 formType값이 "SELECT" 인 항목이 존재하는가', "formType", "SELECT"),
        ("해당 항목의 multiSelectAllowYn 값이 true인가", "multiSelectAllowYn", "true"),
        ("해당 항목의 multiSelectAllowYn 값이 False 인가", "multiSelectAllowYn", "false"),
        ('해당 항목의 actionType 값이 "A_B"인가', "actionType", "A_B"),
        ('해당 항목의 value 내 dataKey 값이 "K"인가', "dataKey", "K"),
        ("해당 항목의 value.buttonKey 값이 “K”인가", "buttonKey", "K"),
    ],
)
@pytest.mark.parametrize("number", ["1) ", "1. ", "12)", "  3 ) ", "2.\t"])
def test_every_form_is_read_after_either_numbering(number: str, line: str, kind: Kind, want: str) -> None:
    """The specification's forms, with 과 or 와, loose spacing, any case of a switch."""
    assert _checks(f"평가 요소 4가지 ->:\n{number}{line}") == (PlanCheck(kind, want),)


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1e"])
def test_a_keyword_may_hold_what_only_python_takes_for_a_line_s_end(sign: str) -> None:
    """Lines end as editors and spreadsheets end them; torn elsewhere, a check was none any more."""
    check = f'assistantMessage에 "A{sign}B"과 관련된 내용이 언급되어 있는가'
    for end in ("\n", "\r\n", "\r"):
        assert _checks(f"1) {check}{end}2) {check}") == (PlanCheck("message", f"A{sign}B"),) * 2


@pytest.mark.parametrize(
    "line",
    [
        "",
        "평가 요소 4가지 ->:",
        '1) assistantMessage에 "A"과 관련된 내용이 언급되어 있지 않은가',
        '1) dataUIList 내 formType 값이 "A"인 항목이 존재하지 않는가',
        "1) 해당 항목의 multiSelectAllowYn 값이 maybe인가",
        '1) 해당 항목의 actionType 값이 ""인가',
        '1) assistantMessage에 " "과 관련된 내용이 언급되어 있는가',
        '1) 해당 항목의 value 내 otherKey 값이 "K"인가',
    ],
)
def test_what_is_no_check_is_not_read_as_one(line: str) -> None:
    """Negated, empty and unknown forms are no checks, so a row of them is unscored rather than wrongly scored."""
    assert READ(line).checks == ()
    assert READ(line).unread == ((line,) if line.startswith("1)") else ())


def test_the_count_in_the_heading_is_not_trusted() -> None:
    """Three checks under a heading that promises four are three, in the text's order."""
    text = (
        "평가 요소 4가지 ->:\n\n"
        '1. 해당 항목의 actionType 값이 "GO"인가\n'
        '2. dataUIList 내 formType 값이 "ACTION"인 항목이 존재하는가\n'
        '3. dataUIList 내 formType 값이 "ACTION"인 항목이 존재하는가'
    )
    assert _checks(text) == (
        PlanCheck("actionType", "GO"),
        PlanCheck("formType", "ACTION"),
        PlanCheck("formType", "ACTION"),
    )


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    """No text makes the reader fail; a line that is no condition adds nothing."""
    found = READ(text)
    assert len(found.checks) + len(found.unread) <= text.count("=") + len(text.split()) + 1


def test_reading_is_linear_in_hostile_text() -> None:
    """A megabyte of quotes and spaces after a form's beginning is read within the test's patience."""
    assert READ('1) assistantMessage에 "' + '" ' * 500_000).checks == ()


@pytest.mark.parametrize(
    ("count", "scores"),
    [
        (1, (0, 5)),
        (2, (0, 3, 5)),
        (3, (0, 2, 3, 5)),
        (4, (0, 2, 3, 4, 5)),
        (5, (0, 1, 2, 3, 4, 5)),
        (8, (0, 1, 2, 2, 3, 3, 4, 4, 5)),
        (100, (0, *[1] * 24, *[2] * 25, *[3] * 25, *[4] * 25, 5)),
    ],
)
def test_bands_are_exact_at_their_borders(count: int, scores: tuple[int, ...]) -> None:
    """1 -> 5, 3/4 -> 4, 1/2 -> 3, 1/4 -> 2, anything above 0 -> 1, 0 -> 0."""
    params = PlanParams()
    assert points_by_passes(count, params.ratio_bands, params.any_pass_points) == scores


def _passes(kind: Kind, want: str, message: str = "", *values: dict[str, object]) -> bool:
    return bool(Checklist((PlanCheck(kind, want),), (0, 5)).judge(message, list(values)))


def test_a_keyword_is_found_across_white_space() -> None:
    """White space of any kind is removed on both sides before looking."""
    assert _passes("message", "합격자 결정 기준", "우리의 합격자\n결정\u3000기 준은")
    assert not _passes("message", "합격자 결정 기준", "합격자 기준 결정")


def test_item_checks_are_strict_about_type_and_place() -> None:
    """A value passes as itself only, and a key only directly in ``value``."""
    assert _passes("formType", "SELECT", "", {"formType": "ACTION"}, {"formType": "SELECT"})
    assert not _passes("formType", "SELECT", "", {"formType": "select"}, {"formType": ["SELECT"]})
    assert _passes("multiSelectAllowYn", "false", "", {"multiSelectAllowYn": False})
    assert not _passes("multiSelectAllowYn", "false", "", {}, {"multiSelectAllowYn": 0}, {"multiSelectAllowYn": None})
    assert not _passes("multiSelectAllowYn", "true", "", {"multiSelectAllowYn": 1}, {"multiSelectAllowYn": "true"})
    assert _passes("dataKey", "K", "", {"value": {"dataKey": "K"}})
    assert not _passes("dataKey", "K", "", {"dataKey": "K"}, {"value": "K"}, {"value": {"in": {"dataKey": "K"}}})


def test_checks_are_encoded_with_what_became_of_each() -> None:
    """A record line's checks tell passed from failed, and those that were never judged."""
    checks = Checklist((PlanCheck("message", '따옴표 " 와 \\'), PlanCheck("formType", "A")), (0, 3, 5))
    assert msgspec.json.decode(checks.encoded(0b10)) == [
        {"kind": "message", "want": '따옴표 " 와 \\', "passed": False},
        {"kind": "formType", "want": "A", "passed": True},
    ]
    assert [check["passed"] for check in msgspec.json.decode(checks.encoded(None))] == [None, None]


def test_many_checks_are_judged_one_by_one() -> None:
    """A hundred checks are no limit, and remembering their outcomes is bounded."""
    checks = Checklist(tuple(PlanCheck("formType", str(i)) for i in range(100)), tuple(range(101)))
    for i in range(100):
        assert checks.judge("", [{"formType": str(i)}]) == 1 << i
        passed = [check["passed"] for check in msgspec.json.decode(checks.encoded(1 << i))]
        assert passed.index(True) == i
        assert passed.count(True) == 1


def test_a_long_check_has_a_short_name() -> None:
    """Of 160 characters, with an ellipsis for what is left out."""
    (check,) = _checks(f'formType 값이 "{"x" * 300}"인 항목이 존재하는가')
    (name,) = Checklist((check,), (0, 5)).names
    assert name == "formType = " + "x" * 148 + "…"
    assert len(name) == 160
