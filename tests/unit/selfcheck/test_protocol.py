"""The check gives what the specification's own code gives, through every door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import FrozenInstanceError
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.evaluators.selfcheck import (
    DANGER_SIGNALS,
    EXTENDED_DANGER_SIGNALS,
    SELF_CHECK_QUESTIONS,
    DangerSignal,
    Evidence,
    GoalBackwardResult,
    GoalPath,
    SelfCheckParams,
    SelfCheckProtocol,
    SelfCheckQuestion,
    create_default_self_check_protocol,
    create_self_check_protocol,
    evaluator,
)
from evalq.evalcore.records.json_values import RecordFault
from tests.unit.selfcheck import oracle
from tests.unit.selfcheck.strategies import evidence, texts

DONE: dict[str, Any] = {
    "testOutput": "All tests passed",
    "testsPassed": True,
    "requirementsList": [{"requirement": "req1", "met": True}],
    "evidence": [{"type": "test", "content": "passed"}],
}


def _json(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


@settings(max_examples=200, deadline=None)
@given(evidence)
def test_it_is_the_check_of_the_specification(given_: dict[str, Any]) -> None:
    """Verdict, answers with their evidence, signals with their context: all as the oracle says, for both lists."""
    assert create_default_self_check_protocol().check(given_).to_json() == oracle.check(given_)
    extended = create_self_check_protocol(SELF_CHECK_QUESTIONS, EXTENDED_DANGER_SIGNALS)
    assert extended.check(given_).to_json() == oracle.check(given_, oracle.EXTENDED)


@settings(max_examples=100, deadline=None)
@given(evidence)
def test_a_record_gets_the_result_that_the_protocol_gives(given_: dict[str, Any]) -> None:
    """What lands in records.jsonl is the protocol's result object."""
    batch = Batch("f", 1, json.dumps(given_).encode())
    outcome = evaluator.evaluate(batch, SelfCheckParams.model_validate({"signals": "extended"}))
    line = json.loads(outcome.lines[0])
    assert line["result"] == oracle.check(given_, oracle.EXTENDED)
    assert line["status"] == ("passed" if line["result"]["passed"] else "failed")


def test_the_lists_are_those_of_the_specification() -> None:
    """Ids and texts of the questions, and pattern, severity and message of every signal, word for word."""
    assert [(q.id, q.question, q.required) for q in SELF_CHECK_QUESTIONS] == [
        ("tests_pass", "모든 테스트 통과? (실제 출력 필수)", True),
        ("requirements_met", "모든 요구사항 충족? (구체적 목록)", True),
        ("no_assumptions", "검증 없는 가정 없음? (문서 제시)", True),
        ("evidence_exists", "증거 있음? (테스트 결과, 코드 변경, 검증)", True),
    ]
    assert [(s.pattern, s.severity, s.message) for s in DANGER_SIGNALS] == oracle.DEFAULT
    assert [(s.pattern, s.severity, s.message) for s in EXTENDED_DANGER_SIGNALS] == oracle.EXTENDED


@pytest.mark.parametrize(
    ("change", "question"),
    [
        ({"testsPassed": False}, "tests_pass"),
        ({"testOutput": None}, "tests_pass"),
        ({"requirementsList": []}, "requirements_met"),
        (
            {"requirementsList": [{"requirement": "a", "met": True}, {"requirement": "b", "met": False}]},
            "requirements_met",
        ),
        ({"assumptions": [{"assumption": "the API is stable", "verified": False}]}, "no_assumptions"),
    ],
)
def test_one_question_alone_fails_the_check(change: dict[str, Any], question: str) -> None:
    """Each required question has a veto, and only the one concerned says no."""
    result = create_default_self_check_protocol().check({**DONE, **change})
    assert not result.passed
    assert [q.id for q in result.questions if not q.passed] == [question]


def test_no_evidence_at_all_fails_its_question() -> None:
    """Neither output nor code nor anything else."""
    result = create_default_self_check_protocol().check(Evidence())
    assert {q.id: q.passed for q in result.questions} == {
        "tests_pass": False,
        "requirements_met": False,
        "no_assumptions": True,
        "evidence_exists": False,
    }
    assert result.questions[0].evidence == "No test output"
    assert result.questions[3].evidence == "Tests: false, Code: 0 files"


def test_an_empty_output_is_present() -> None:
    """As in the specification: an empty test output counts as one, and reads as none in the evidence line."""
    result = create_default_self_check_protocol().check({**DONE, "testOutput": ""})
    assert result.passed
    assert result.questions[0].evidence == ""
    assert result.questions[3].evidence == "Tests: false, Code: 0 files"


def test_only_the_boolean_true_is_a_pass() -> None:
    """In Python, where nothing checks types, 1 and "true" are no True."""
    for value in (1, "true", [True]):
        result = create_default_self_check_protocol().check(Evidence(testOutput="x", testsPassed=value))  # type: ignore[arg-type]  # on purpose
        assert not result.questions[0].passed


@pytest.mark.parametrize(("severity", "passed"), [("warning", True), ("error", False)])
def test_warnings_never_fail_and_errors_always_do(severity: str, passed: bool) -> None:
    """The severity of a found signal decides."""
    signal = DangerSignal.model_validate({"pattern": "passed", "severity": severity, "message": "m"})
    result = SelfCheckProtocol(SELF_CHECK_QUESTIONS, [signal]).check(DONE)
    assert result.passed is passed
    assert result.dangerSignals[0].found


def test_of_two_signals_with_one_message_the_first_has_the_say() -> None:
    """As the specification's code looks severities up: by message, first come."""
    warning = DangerSignal(pattern="passed", severity="warning", message="m")
    error = DangerSignal(pattern="All", severity="error", message="m")
    assert SelfCheckProtocol(SELF_CHECK_QUESTIONS, [warning, error]).check(DONE).passed
    assert not SelfCheckProtocol(SELF_CHECK_QUESTIONS, [error, warning]).check(DONE).passed
    both = SelfCheckProtocol((), [warning, error]).check({"testOutput": "All"}).dangerSignals
    assert [signal.found for signal in both] == [True, True]
    assert both[0].context == both[1].context == "...All..."


def test_scanning_alone_finds_the_signals_of_the_specifications_example() -> None:
    """Three signals in one sentence, in list order; none in a clean one."""
    scan = create_default_self_check_protocol().scan_for_danger_signals
    found = scan("I think this should work. It will probably be fine.")
    assert [signal.signal for signal in found] == [oracle.DEFAULT[i][2] for i in (0, 1, 3)]
    assert found[0].context == "...I think this should work. It will probably be fine...."
    assert scan("The tests confirm the implementation is correct. All assertions pass.") == []


@given(texts)
@settings(max_examples=50, deadline=None)
def test_scanning_finds_what_a_check_finds(text: str) -> None:
    """The two ways in agree on every text."""
    protocol = create_default_self_check_protocol()
    found = {signal.signal: signal.context for signal in protocol.scan_for_danger_signals(text)}
    checked = protocol.check(Evidence(testOutput=text))
    assert found == {signal.signal: signal.context for signal in checked.dangerSignals if signal.found}


def test_lists_can_be_replaced() -> None:
    """New questions and signals stand in place of the old ones; questions of one's own have no evidence text."""
    protocol = create_self_check_protocol()
    assert protocol.check(Evidence()).passed
    protocol.set_questions([SelfCheckQuestion("short", "Short?", lambda e: len(e.testOutput or "") < 5)])
    protocol.set_danger_signals([DangerSignal(pattern="라고", severity="error", message="인용")])
    result = protocol.check(Evidence(testOutput="끝났다고"))
    assert [(q.id, q.passed, q.evidence) for q in result.questions] == [("short", True, "")]
    assert result.passed
    assert not protocol.check(Evidence(testOutput="했라고")).passed


def test_a_question_that_is_not_required_cannot_fail_the_check() -> None:
    """It is answered, and that is all; unless it says so, a question is required."""
    asked = [SelfCheckQuestion("no", "?", lambda _: False, required=False)]
    result = create_self_check_protocol(asked).check(Evidence())
    assert result.passed
    assert not result.questions[0].passed
    assert not create_self_check_protocol([SelfCheckQuestion("no", "?", lambda _: False)]).check(Evidence()).passed


def test_a_validator_that_raises_or_rambles_is_a_no() -> None:
    """The error is the evidence; so is an answer that is no boolean."""

    def raises(evidence: Evidence) -> bool:
        raise RuntimeError("no access")

    def rambles(evidence: Evidence) -> bool:
        return "yes"  # type: ignore[return-value]  # on purpose

    asked = [SelfCheckQuestion("a", "?", raises), SelfCheckQuestion("b", "?", rambles)]
    answers = create_self_check_protocol(asked).check(Evidence()).questions
    assert [(q.passed, q.evidence) for q in answers] == [
        (False, "RuntimeError: no access"),
        (False, "TypeError: the validator returned str, not a boolean"),
    ]


@pytest.mark.parametrize("goal", [True, False])
@pytest.mark.parametrize("tests", [True, False])
def test_the_goal_is_part_of_the_verdict(goal: bool, tests: bool) -> None:
    """Both have to hold, and the details say which did, as in the specification's example."""
    given_ = {**DONE, "testsPassed": tests, "goalVerification": {"passed": goal, "paths": []}}
    result = create_default_self_check_protocol().check(given_)
    assert result.passed is (goal and tests)
    assert result.details == f"SelfCheck: {str(tests).lower()}, GoalBackward: {str(goal).lower()}"
    assert _json(result.to_json())["goalVerification"] == {"passed": goal, "paths": []}


def test_a_goal_is_not_reached_when_one_of_its_paths_says_so() -> None:
    """A stored "passed" does not outweigh the paths stored with it."""
    goal = GoalBackwardResult(True, [GoalPath("a", True, True), GoalPath("b", True, False)])
    assert not create_self_check_protocol().check(Evidence(goalVerification=goal)).passed


def test_a_verified_goal_may_come_without_paths() -> None:
    """It then is what it says; and what was found stays as it was found."""
    goal = GoalBackwardResult(True)
    assert (goal.paths, goal.reached, GoalBackwardResult(False).reached) == ([], True, False)
    with pytest.raises(FrozenInstanceError):
        goal.passed = False  # type: ignore[misc]  # that is the point
    with pytest.raises(FrozenInstanceError):
        GoalPath("a", True).exists = False  # type: ignore[misc]  # here too


def test_without_a_goal_nothing_is_said_of_it() -> None:
    """No key, no details."""
    result = create_default_self_check_protocol().check(DONE)
    assert result.details is None
    assert "goalVerification" not in result.to_json()


def test_a_mapping_of_a_wrong_shape_is_refused_with_its_path() -> None:
    """The protocol reads plain JSON as strictly as the evaluator does."""
    with pytest.raises(RecordFault, match=r"^\$\.evidence\[0\]\.content: missing$"):
        create_default_self_check_protocol().check({"evidence": [{"type": "log"}]})


def test_evidence_in_json_text_is_compact_and_not_escaped() -> None:
    """As JSON.stringify writes it, with whatever further keys an item has."""
    items = [{"requirement": '로그인 "ok"\n', "met": True, "ref": [1, {"a": None}]}]
    answers = create_default_self_check_protocol().check({**DONE, "requirementsList": items}).questions
    assert answers[1].evidence == '[{"requirement":"로그인 \\"ok\\"\\n","met":true,"ref":[1,{"a":null}]}]'


async def _at_once(answer: bool) -> bool:
    return answer


async def _later(answer: bool) -> bool:
    await asyncio.sleep(0)
    return answer


async def _broken(_: Evidence) -> bool:
    raise ValueError("no network")


def _asking(answer: Callable[[bool], Awaitable[bool]]) -> SelfCheckProtocol:
    return create_self_check_protocol(
        [
            SelfCheckQuestion("yes", "?", lambda _: answer(True)),
            SelfCheckQuestion("no", "?", lambda _: answer(False), required=False),
            SelfCheckQuestion("broken", "?", _broken, required=False),
            SelfCheckQuestion("plain", "?", lambda _: True),
        ]
    )


def test_asynchronous_validators_are_awaited() -> None:
    """As the specification's promises are: the answer counts, and what is raised is a no with its reason."""
    expected = [("yes", True, ""), ("no", False, ""), ("broken", False, "ValueError: no network"), ("plain", True, "")]
    awaited = [asyncio.run(_asking(answer).acheck({})) for answer in (_at_once, _later)]
    for result in (_asking(_at_once).check({}), *awaited):
        assert [(answer.id, answer.passed, answer.evidence) for answer in result.questions] == expected
        assert result.passed


def test_check_says_what_to_call_where_it_cannot_wait() -> None:
    """A validator that waits for something is not passed in silence: the evidence says to await acheck()."""
    answer = _asking(_later).check({}).questions[0]
    assert not answer.passed
    assert "await acheck() instead of check()" in str(answer.evidence)
