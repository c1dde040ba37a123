"""The third call: a report that says all is done, and what in its evidence does not carry that."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pydantic import ValidationError

from evalq.evalcore.evaluators.selfcheck.evidence import Evidence
from evalq.evalcore.evaluators.selfcheck.suspicion import REASONS, SuspicionRules, suspicions

RULES = SuspicionRules()
RAN = "$ pytest tests/test_cart.py\ncollected 9 items\n9 passed in 0.31s"
DONE: list[Any] = [{"requirement": "The cart empties", "met": True}]


def suspected(**given: Any) -> list[str]:
    """What a report of a real run is suspected for, with some keys given otherwise."""
    return suspicions(Evidence(**{"testOutput": RAN, "testsPassed": True, "requirementsList": DONE, **given}), RULES)


def test_a_report_of_a_real_run_is_not_suspected() -> None:
    """Requirements met, a run of nine tests quoted."""
    assert suspected() == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"requirementsList": None}, "no requirements"),
        ({"requirementsList": []}, "no requirements"),
        ({"testOutput": None}, "no test output"),
        ({"testOutput": " \n"}, "no test output"),
        ({"testOutput": "All tests are green now."}, "thin test output"),
        ({"testOutput": "Everything is fine: 12 passed"}, "thin test output"),
        ({"testOutput": RAN + "\nFAILED tests/test_cart.py::test_empty"}, "failure in the output"),
        ({"testOutput": RAN + "\n2 failed, 7 passed"}, "failure in the output"),
        ({"testOutput": RAN + "\n0 errors\nprocess ended: exit code 1"}, "failure in the output"),
        ({"testOutput": RAN + "\n오류 2건"}, "failure in the output"),
        ({"testOutput": RAN + "\n10건 실패"}, "failure in the output"),
        ({"testOutput": "$ pytest\ncollected 6 items\n9 passed in 0.3s"}, "impossible counts"),
        ({"testOutput": "$ jest\nTests: 2 failed, 9 passed, 5 total"}, "impossible counts"),
        ({"assumptions": [{"assumption": "the API stays as it is", "verified": False}]}, "open assumption"),
        (
            {"codeChanges": [{"file": "a.py", "diff": "+def pay():\n+    raise NotImplementedError"}]},
            "stub in a change",
        ),
        ({"codeChanges": [{"file": "a.py", "diff": "+def pay():\n+    pass"}]}, "stub in a change"),
        ({"codeChanges": [{"file": "a.py", "diff": " def pay():\n+    pass\n+\n+def owe(): ..."}]}, "stub in a change"),
        ({"evidence": [{"type": "note", "content": "I have not run it, but it is simple."}]}, "says it was not run"),
        ({"evidence": [{"type": "note", "content": "These tests should pass."}]}, "says it was not run"),
        ({"evidence": [{"type": "note", "content": "실행하지 않았지만 통과할 것입니다."}]}, "says it was not run"),
    ],
)
def test_each_reason_is_found(given: dict[str, Any], reason: str) -> None:
    """And it is one of those that are reported."""
    assert reason in suspected(**given)
    assert reason in REASONS


@pytest.mark.parametrize(
    "given",
    [
        {"testOutput": RAN + "\n0 failed, 0 errors, no warnings"},
        {"testOutput": RAN + "\nerrors: 0"},
        {"testOutput": RAN + "\n실패 0, 오류 없음"},
        {"testOutput": RAN + "\n통과 10 실패 0"},
        {"testOutput": RAN + "\n총 20건 실패 없음"},
        {"testOutput": "$ jest\nTests: 1 skipped, 9 passed, 10 total\nTime: 2.1 s"},
        {"testOutput": "$ pytest -k cart: 9 passed in 0.31s"},
        {"codeChanges": [{"file": "a.py", "diff": "-    # TODO\n+    return total"}]},
        {"assumptions": [{"assumption": "the API stays as it is", "verified": True}]},
    ],
)
def test_what_reads_alike_is_not_suspected(given: dict[str, Any]) -> None:
    """Counts of no failure, a stub that was removed, tests that were skipped, one line of a real run."""
    assert suspected(**given) == []


def test_no_phrase_hides_the_one_behind_a_number() -> None:
    """Also where `re` searches, as it does for patterns that no linear search can run."""
    rules = SuspicionRules(no_failure=(*RULES.no_failure, r"(?<!x)\bunused\b"))
    for text, wanted in (("통과 10 실패 0", []), ("10건 실패", ["failure in the output"])):
        given = Evidence(testOutput=f"{RAN}\n{text}", testsPassed=True, requirementsList=DONE)
        assert suspicions(given, rules) == wanted


@pytest.mark.parametrize(
    "given", [{"testsPassed": False}, {"requirementsList": [{"requirement": "Docs", "met": False}]}]
)
def test_who_says_that_it_is_not_done_is_not_suspected(given: dict[str, Any]) -> None:
    """Whatever else is in the report."""
    assert suspected(testOutput="thin", **given) == []


def test_a_large_text_takes_no_time_to_speak_of() -> None:
    """Of ten million characters the beginning and the end are read; the bound leaves room for a busy machine."""
    began = time.process_time()
    assert "failure in the output" in suspected(testOutput="x y z\n" * 1_700_000 + "\n3 failed")
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "text",
    ["1" * 40_000, "a" * 40_000, "\n" * 39_999 + "y", "Tests 1 " * 5_000, "실패" + " " * 39_998, "-" * 40_000],
    ids=lambda text: repr(text[:5]),
)
def test_no_text_takes_time_with_the_square_of_its_length(text: str) -> None:
    """Blank lines, one long word, counts that never end: some took minutes."""
    began = time.process_time()
    suspected(testOutput=text, codeChanges=[{"file": "a", "diff": f"+{text}"}])
    assert time.process_time() - began < 1


def test_counts_of_thousands_of_digits_are_counts() -> None:
    """Python makes no numbers of them."""
    assert "impossible counts" in suspected(testOutput=f"collected 5 items\n{'1' * 5_000} passed")
    assert "impossible counts" not in suspected(testOutput=f"collected {'1' * 5_000} items\n9 passed")


def test_a_list_that_is_empty_finds_nothing() -> None:
    """Without phrases of no failure a failure is one; without machine tokens there is none in any line."""
    evidence = Evidence(testOutput=f"{RAN}\n2 failed", requirementsList=DONE)
    assert "failure in the output" in suspicions(evidence, SuspicionRules(no_failure=()))
    one_line = Evidence(testOutput="$ pytest: 9 passed in 0.31s", requirementsList=DONE)
    assert suspicions(one_line, SuspicionRules(machine=())) == ["thin test output"]


def test_patterns_that_only_pythons_own_engine_has_are_taken() -> None:
    """Such as one that looks ahead: the text is bounded for these."""
    rules = SuspicionRules(no_failure=(r"1 error(?= as expected)",))
    evidence = Evidence(testOutput=f"{RAN}\n1 error as expected", requirementsList=DONE)
    assert suspicions(evidence, rules) == []


def test_the_rules_are_data() -> None:
    """A list of one's own takes the place of the one that is there; a broken pattern is named."""
    rules = SuspicionRules(not_run=(r"\bhonest guess\b",), most_machine_tokens=0)
    evidence = Evidence(testOutput=RAN, requirementsList=DONE, evidence=[{"type": "n", "content": "an honest guess"}])
    assert suspicions(evidence, rules) == ["says it was not run"]
    with pytest.raises(ValidationError, match="is no pattern"):
        SuspicionRules(stub=("(",))


@pytest.mark.parametrize(
    ("said", "impossible"),
    [("collected {} items\n3 passed", False), ("Tests: {} total\n3 passed", False), ("ran 2 tests\n{} passed", True)],
)
def test_a_number_of_thousands_of_digits_is_more_than_any_other(said: str, impossible: bool) -> None:
    """One record brought the run down: Python refuses to read a whole number of more than 4,300 digits."""
    assert ("impossible counts" in suspected(testOutput=said.format("1" * 5000))) == impossible


@pytest.mark.parametrize("line", ["Tests: " * 300 + "1" * 2000, "Tests: " * 5500])
def test_a_line_that_says_tests_many_times_takes_no_time_to_speak_of(line: str) -> None:
    """It took the cube of its length in digits: seconds of four thousand characters."""
    began = time.process_time()
    suspected(testOutput=line)
    assert time.process_time() - began < 1
