"""The hardened set takes whole words in all their forms, and leaves out what is negated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalcore.evaluators import verification
from evalcore.evaluators.verification import VerificationScore, evaluator, score_verification
from evalcore.inline import evaluate_files

LABELLED = Path(verification.__file__).parent / "examples" / "labelled.jsonl"


def _hard(text: str) -> VerificationScore:
    return score_verification(text, patterns="hardened")


@pytest.mark.parametrize("word", ["edited", "edits", "editing", "wrote", "written", "writing", "EDIT", "Writes"])
def test_edits_count_in_every_form(word: str) -> None:
    """An edit without a read costs its share in any inflection; the default set knows only two words."""
    assert _hard(f"I {word} the file.").components.tool_verification == 0.3
    assert _hard(f"I {word} the file, then re-read it.").components.tool_verification == 0.7
    assert _hard(f"I have not {word} the file.").components.tool_verification == 0.7


@pytest.mark.parametrize("text", ["already", "credit", "restart", "Edit를", "unstarted", "bread"])
def test_words_inside_words_do_not_count(text: str) -> None:
    """Neither as edits nor as deployments nor as reads."""
    assert _hard(text).components.tool_verification == 0.7


@pytest.mark.parametrize("word", ["deployed", "deployment", "started", "launching"])
def test_deployments_count_in_every_form(word: str) -> None:
    """And want a health check on the same line, which counts unless it is negated."""
    assert _hard(f"{word} it").components.tool_verification == pytest.approx(0.4)
    assert _hard(f"{word} it; status: running").components.tool_verification == 0.7
    assert _hard(f"{word} it; status: not running").components.tool_verification == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("text", "keywords"),
    [
        ("verified", 1),
        ("unverified", 0),
        ("not verified", 0),
        ("never been verified", 0),
        ("couldn't be verified", 0),
        ("couldn’t be verified", 0),
        ("not verified at first, then verified", 1),
        ("not on this machine, but later verified", 1),
        ("confirmed by the log", 2),
        ("tests showed it, the output shows it", 2),
        ("checkedout", 0),
    ],
)
def test_keywords_are_words_and_not_negated(text: str, keywords: int) -> None:
    """A negation within the three words before takes a keyword away."""
    assert _hard(text).components.tool_verification == pytest.approx(0.7 + 0.15 * keywords)


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("it is unlikely", []),
        ("it is not likely", []),
        ("it is likely", ["likely"]),
        ("it should now work", ["should now work"]),
        ("it should workshop", []),
        ("I think so", ["I think"]),
        ("AI thinks so", []),
        ("it would be fine", ["would be fine"]),
        ("it would be finer", []),
    ],
)
def test_claims_are_words(text: str, claims: list[str]) -> None:
    """Inside other words, or negated, a claim is none."""
    assert _hard(text).unsubstantiated == claims


@pytest.mark.parametrize(
    ("text", "tests", "gates"),
    [
        ("fix. pytest: 3 passed. mypy, ruff, coverage", 1.0, 1.0),
        ("fixed. 3 tests passed with pytest. the workflow flows", 1.0, 0.0),
        ("fixes: did not run pytest, not all tests pass", 0.0, 0.0),
        ("fixed: no coverage, without mypy, never ran ruff", 0.0, 0.0),
        ("fixed: npm run test, all passed. flow check, --cov", 1.0, 0.67),
        ("the prefix is fixated", 1.0, 1.0),
    ],
)
def test_tests_and_gates_are_words_and_not_negated(text: str, tests: float, gates: float) -> None:
    """Commands and tools that were not run do not count, words that merely hold their names neither."""
    components = _hard(text).components
    assert components.test_execution == tests
    assert components.quality_gates == pytest.approx(gates)


def test_agreement_with_the_labels_is_reported_for_both_sets() -> None:
    """Counted here case by case, it is what the report says, under either set as the one in use."""
    cases = [json.loads(line) for line in LABELLED.read_text().splitlines()]
    right, verdicts = {}, []
    for name in ("default", "hardened"):
        passed = [score_verification(case["actual_output"], patterns=name).success for case in cases]
        agreed = sum(verdict is case["compliant"] for verdict, case in zip(passed, cases, strict=True))
        right[name] = {"right": agreed, "share": agreed / len(cases)}
        verdicts.append(passed)
    same = sum(first is second for first, second in zip(*verdicts, strict=True))
    for name in ("default", "hardened"):
        labels = evaluate_files(evaluator, [LABELLED], {"patterns": name}).report["results"]["labels"]
        assert labels == {
            "records": len(cases),
            "patterns": right,
            "agreement": {"same": same, "share": same / len(cases)},
        }
    assert right["hardened"]["right"] > right["default"]["right"]
