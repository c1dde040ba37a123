"""The hardened set takes whole words in all their forms, and leaves out what is negated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalq.evalcore.evaluators import verification
from evalq.evalcore.evaluators.verification import VerificationScore, evaluator, score_verification
from evalq.evalcore.fold import evaluate_files

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


@pytest.mark.parametrize("word", ["read", "reads", "reading", "re-read", "reread"])
def test_reads_count_in_every_form(word: str) -> None:
    """Even lines further down."""
    assert _hard(f"Edited it,\nthen\n{word} it.").components.tool_verification == 0.7
    assert _hard(f"Edited it,\nthen\nnever {word} it.").components.tool_verification == 0.3


@pytest.mark.parametrize(
    "words",
    [
        "health: running",
        "status is healthy",
        "verify the endpoint",
        "verifies endpoints",
        "verifying the check",
        "check: running",
        "checks: healthy",
        "checked the endpoint",
        "checking: it is running",
        "status checked",
        "health checks",
    ],
)
def test_health_checks_count_in_every_form(words: str) -> None:
    """Something that is looked at, and that it is well, on one line."""
    assert _hard(f"deploy; {words}").components.tool_verification in (0.7, 0.85)
    assert _hard(f"deploy; {words.replace(' ', chr(10))}").components.tool_verification in (0.4, 0.55)


@pytest.mark.parametrize("text", ["see line 3", "lines 3 to 5", "Lines  12"])
def test_a_line_reference_is_evidence(text: str) -> None:
    """Of one line or of several, as a word of its own."""
    assert _hard(text).components.assertion_evidence == 0.5
    assert _hard(text.replace("ine", "iner")).components.assertion_evidence == 0.25


@pytest.mark.parametrize("word", ["verified", "confirmed", "validated", "checked"])
def test_each_keyword_counts(word: str) -> None:
    """Once, however often it is there."""
    assert _hard(f"{word}, {word}").components.tool_verification == pytest.approx(0.85)


@pytest.mark.parametrize("words", ["testing showed", "test shows", "tests show", "output shows", "outputs showed"])
def test_each_keyword_of_two_words_counts(words: str) -> None:
    """With a gap between them that is not too long."""
    assert _hard(words).components.tool_verification == pytest.approx(0.85)
    assert _hard(words.replace(" ", " \n  ")).components.tool_verification == pytest.approx(0.85)
    assert _hard(words.replace(" ", " " * 5)).components.tool_verification == pytest.approx(0.7)


@pytest.mark.parametrize(
    "claim",
    [
        *(f"{verb} {often}work" for verb in ("would", "could", "ought to") for often in ("", "now ", "just ")),
        *("should work", "should now work", "probably", "likely", "seems to", "seem to"),
        *("I believe", "I think", "I assume"),
        *(f"{verb} be {how}" for verb in ("should", "would", "could") for how in ("correct", "working", "fine")),
    ],
)
def test_each_claim_is_one(claim: str) -> None:
    """It is quoted as it is written."""
    assert _hard(f"That {claim}, mostly.").unsubstantiated == [claim]
    assert _hard(f"That x{claim}, mostly.").unsubstantiated == []


@pytest.mark.parametrize(
    "change",
    [
        *("edits", "implement", "implements", "implemented", "implementing", "implementation"),
        *("fix", "fixes", "fixed", "fixing", "refactor", "refactors", "refactored", "refactoring"),
    ],
)
def test_a_change_asks_for_tests_in_every_form(change: str) -> None:
    """As a word of its own, and not where there was none."""
    assert _hard(f"{change} it").components.test_execution == 0.0
    assert _hard(f"no {change}, x{change}").components.test_execution == 1.0


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("pytest", "1 passed"),
        ("npm test", "12 tests failed"),
        ("npm run test", "all passed"),
        ("cargo test", "all tests passed"),
        ("go test", "all tests pass"),
        ("mvn test", "all pass"),
    ],
)
def test_a_test_run_is_a_command_and_its_result(command: str, result: str) -> None:
    """Half of it each, in any of their forms."""
    assert _hard(f"fix: {command}").components.test_execution == 0.5
    assert _hard(f"fix: {result}").components.test_execution == 0.5
    assert _hard(f"fix: not {command}, {result}").components.test_execution == 0.5


@pytest.mark.parametrize("types", ["mypy", "pyright", "tsc", "flow check"])
@pytest.mark.parametrize("lint", ["ruff", "eslint", "pylint", "flake8"])
@pytest.mark.parametrize("coverage", ["coverage", "--cov"])
def test_a_change_asks_for_gates(types: str, lint: str, coverage: str) -> None:
    """Each gives its share, and is named where it is missing or was not run."""
    assert _hard(f"fix: {types}").components.quality_gates == 0.33
    assert _hard(f"fix: {lint}").components.quality_gates == 0.33
    assert _hard(f"fix: {coverage}").components.quality_gates == 0.34
    assert _hard("fix").reason.endswith("quality gates 0.00: no type check, no lint, no coverage")
    assert _hard(f"fix: not {types}, not {lint}").components.quality_gates == 0.0


@pytest.mark.parametrize(
    "negation",
    ["not", "never", "no", "without", "cannot", "unable to", "wasn't", "wasn’t"],
)
def test_each_negation_reaches_over_two_words(negation: str) -> None:
    """And not over three."""
    for between in ("", "yet ", "yet been "):
        assert _hard(f"{negation} {between}validated").components.tool_verification == pytest.approx(0.7)
    assert _hard(f"{negation} yet been fully validated").components.tool_verification == pytest.approx(0.85)


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
        counts = labels.pop("by_score")["counts"]
        assert labels == {
            "records": len(cases),
            "patterns": right,
            "agreement": {"same": same, "share": same / len(cases)},
        }
        assert counts["true_positives"] + counts["true_negatives"] == right[name]["right"]
    assert right["hardened"]["right"] > right["default"]["right"]
