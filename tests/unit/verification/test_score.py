"""Every component, score, reason and band, against the specification read with Python's `re`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from pydantic import ValidationError

from evalq.evalcore.evaluators.verification import Patterns, VerificationParams, score_verification
from evalq.evalcore.evaluators.verification.patterns import DEFAULT
from evalq.evalcore.evaluators.verification.score import COMPONENTS, scorer
from tests.unit.verification import oracle
from tests.unit.verification.transcripts import transcripts

PERFECT = (
    "Edit a.py, Read a.py: line 3 is new.\n```py\nx = 1\n```\nOutput: `ok`\n"
    "pytest: 3 passed; mypy, ruff, coverage. Verified, confirmed."
)


@settings(max_examples=300, deadline=None)
@given(transcripts)
@example("Edit를 Edit")
@example("Edit Read Edit Read Write start check check running\nstatus\nrunning start")
@example("Edit Read rewrite Read start health check status check")
@example("İedit ıI thinK ſhould work lıne 3 output shoWs")
def test_it_is_the_score_of_the_specification(text: str) -> None:
    """All four components and the score to 12 decimals, plain and strict, and the claims that were found."""
    expected = oracle.components(text)
    for strict in (False, True):
        result = score_verification(text, strict=strict)
        got = {name: getattr(result.components, name) for name in COMPONENTS}
        assert got == {name: round(value, 12) for name, value in expected.items()}
        assert result.score == oracle.score(text, strict)
        assert result.success is (result.score >= (1.0 if strict else 0.9))
        assert bool(result.unsubstantiated) is any(oracle._has(claim, text) for claim in oracle.CLAIMS)
        assert ("STRICT MODE FAILURE" in result.reason) is (strict and bool(result.unsubstantiated))


@settings(max_examples=150, deadline=None)
@given(transcripts)
def test_the_reason_names_exactly_what_fell_short(text: str) -> None:
    """Each part is there when its component is below its limit, and joined by semicolons in a fixed order."""
    parts = {name: round(value, 12) for name, value in oracle.components(text).items()}
    claims = any(oracle._has(claim, text) for claim in oracle.CLAIMS)
    expected = [
        ("tool verification ", parts["tool_verification"] < 0.9),
        ("assertion evidence ", parts["assertion_evidence"] < 0.9),
        ("unsubstantiated claims: ", claims),
        ("test execution ", parts["test_execution"] < 0.9),
        ("quality gates ", parts["quality_gates"] < 0.5),
    ]
    reason = score_verification(text).reason
    at = 0
    for start, is_short in expected:
        if is_short:
            found = reason.find(start, at)
            assert found >= at
            at = found + len(start)
    if not any(is_short for _, is_short in expected):
        assert reason == "all verification requirements met"


def test_everything_shown_is_a_perfect_score() -> None:
    """Four components of 1 add up to 1, so the strict threshold can be reached."""
    for strict in (False, True):
        result = score_verification(PERFECT, strict=strict)
        assert (result.score, result.success, result.band) == (1.0, True, "perfect")
        assert result.reason == "all verification requirements met"
        assert result.unsubstantiated == []


def test_reading_only_needs_no_tests_and_no_gates() -> None:
    """Without edits, deployments and code changes those parts are not asked for."""
    parts = score_verification("The value is 3.").components
    assert (parts.tool_verification, parts.test_execution, parts.quality_gates) == (0.7, 1.0, 1.0)


def test_a_claim_is_quoted_and_fatal_only_when_strict() -> None:
    """Each claim once, the first match of each pattern, cut to a length that can be shown."""
    text = PERFECT + " I think it should work. I think so. It probably" + " " * 200 + "would" + " " * 200 + "work."
    result = score_verification(text)
    assert result.unsubstantiated == ["should work", "probably", "I think"]
    assert result.score == pytest.approx(0.925)
    assert result.reason == (
        "assertion evidence 0.75: unsubstantiated claims; unsubstantiated claims: 'should work', 'probably', 'I think'"
    )
    strict = score_verification(text, strict=True)
    assert (strict.score, strict.success, strict.band) == (0.0, False, "poor")
    assert "; STRICT MODE FAILURE: unsubstantiated claims: 'should work'" in strict.reason
    long = score_verification("should" + " " * 500 + "work")
    assert long.unsubstantiated == ["should" + " " * 74]


def test_the_reason_tells_what_is_missing() -> None:
    """Numbers of edits, deployments and keywords, and the names of the evidence and of the checks."""
    assert score_verification("Edit a. Write b. deploy c. deploy d. Read. verified").reason == (
        "tool verification 0.35: "
        "1 of 2 edits read back, 0 health checks for 2 deployments, 1 of 2 verification keywords; "
        "assertion evidence 0.25: no line reference, no code fence, no quoted output; "
        "test execution 0.00: no test command, no test result; quality gates 0.00: no type check, no lint, no coverage"
    )


@pytest.mark.parametrize(
    ("text", "band"),
    [
        ("no change at line 3. checked, verified. output: 'a'", "perfect"),
        ("no change at line 3. checked, verified.", "perfect"),
        ("no change at line 3. checked. output: 'a'", "perfect"),
        ("no change at line 3. checked.", "good"),
        ("no change. checked, verified.", "good"),
        ("no change at line 3.", "moderate"),
        ("no change.", "moderate"),
        ("no change, probably.", "poor"),
    ],
)
def test_a_score_has_its_band(text: str, band: str) -> None:
    """From .85 perfect, from .75 good, from .65 moderate, below that poor."""
    result = score_verification(text)
    limits = {"perfect": 0.85, "good": 0.75, "moderate": 0.65, "poor": 0.0}
    assert result.band == band
    assert result.score >= limits[band]
    assert all(result.score < limit for name, limit in limits.items() if limit > limits[band] and name != band)


def test_a_threshold_is_reached_from_below_and_not_passed_over() -> None:
    """Success is a score of at least the threshold."""
    score = score_verification("no change.").score
    assert score_verification("no change.", threshold=score).success
    assert not score_verification("no change.", threshold=score + 1e-9).success
    assert score_verification("no change.", threshold=0).success


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("Edit. verified, checked.", "tool verification 0.60: 0 of 1 edits read back;"),
        ("deploy. verified, checked.", "tool verification 0.70: 0 health checks for 1 deployments;"),
        ("Edit, Read. deploy, status running.", "tool verification 0.70: 0 of 2 verification keywords;"),
    ],
)
def test_only_what_fell_short_is_reported(text: str, short: str) -> None:
    """Of the three parts of tool verification, those that are whole are not mentioned."""
    assert score_verification(text).reason.startswith(short)


def test_a_component_at_its_limit_is_not_short() -> None:
    """Two health checks for three deployments make .9, which floats would miss by a hair."""
    result = score_verification("deploy, start, launch. verified\nstatus: checked, running\nstatus: running")
    assert result.components.tool_verification == 0.9
    assert "tool verification" not in result.reason


def test_an_unknown_pattern_set_is_an_error() -> None:
    """It says which there are."""
    with pytest.raises(ValidationError, match="no such name \\(there are: default, hardened"):
        score_verification("x", patterns="soft")


def test_patterns_weights_and_limits_are_data() -> None:
    """Another set, other weights and other bands change the score as they say."""
    own: dict[str, Any] = DEFAULT.model_dump(mode="json")
    own["keywords"] = ["확인"]
    own["evidence"] = own["evidence"][:1]
    patterns = Patterns.model_validate(own)
    assert score_verification("확인했습니다. line 3", patterns=patterns).components.tool_verification == 0.85
    assert score_verification("확인했습니다. line 3", patterns=patterns).components.assertion_evidence == 1.0
    scoring = {
        "weights": {"tool": 0, "evidence": 1, "tests": 0, "gates": 0},
        "keywords_needed": 1,
        "bands": {"perfect": 0.2, "good": 0.1, "moderate": 0.05},
        "shortfalls": {"evidence": 0.1},
    }
    params = VerificationParams.model_validate({"patterns": own, "scoring": scoring})
    result = scorer(params.patterns, params.scoring).score("확인 probably", params.passing)
    assert (result.score, result.band, result.components.tool_verification) == (0.0, "poor", 1.0)
    assert scorer(DEFAULT, params.scoring).score("I think. line 3", 0.9).score == 0.25
    assert "assertion evidence" in result.reason


@pytest.mark.parametrize("bands", [{"perfect": 0.7}, {"good": 0.9}, {"moderate": 0.8}])
def test_a_band_above_a_better_one_is_refused(bands: dict[str, float]) -> None:
    """It would hide that one, or never be reached."""
    with pytest.raises(ValidationError, match="must not rise from perfect to good to moderate"):
        VerificationParams.model_validate({"scoring": {"bands": bands}})


@pytest.mark.parametrize("same", [{"perfect": 0.75}, {"moderate": 0.75}, {"perfect": 0.75, "moderate": 0.75}])
def test_bands_may_begin_at_the_same_score(same: dict[str, float]) -> None:
    """The better one then has all of them, and the other none."""
    params = VerificationParams.model_validate({"scoring": {"bands": same}})
    result = scorer(DEFAULT, params.scoring).score("no change at line 3. checked.", params.passing)
    assert 0.75 <= result.score < 0.85
    assert result.band == ("perfect" if "perfect" in same else "good")


@pytest.mark.parametrize(
    "text",
    [
        "Edit " * 200_000,
        "Edit Read " * 50_000,
        "check status " * 50_000 + "\n",
        "```\n" * 100_000,
        "output: `" * 50_000,
    ],
    ids=["edits", "reads", "health", "fences", "outputs"],
)
def test_long_texts_that_repeat_themselves_get_their_score(text: str) -> None:
    """What would take a backtracking engine hours is the score it would give on the shorter text of the same kind."""
    short = text[: len(text) // 1000]
    for patterns in ("default", "hardened"):
        long = score_verification(text, patterns=patterns).components
        brief = score_verification(short, patterns=patterns).components
        assert long.assertion_evidence == brief.assertion_evidence
        assert long.tool_verification == pytest.approx(brief.tool_verification, abs=0.02)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("all verified by hand", 1),
        ("all VERIFIED, ok+", 2),
        ("OK+", 1),
        ("Proof and İ", 1),
        ("PROOF확인, verİfied", 2),
        ("proof, PROOF and Proof", 0),
        ("i", 0),
        ("nothing", 0),
    ],
)
def test_keywords_are_looked_for_in_the_lower_cased_text(text: str, found: int) -> None:
    """Plain ones are no patterns, one in capitals is never in such a text, and one beyond ASCII may be."""
    own = DEFAULT.model_copy(update={"keywords": ("verified", "ok+", "확인", "Proof", "i\u0307")})
    lowered = sum(keyword in text.lower() for keyword in own.keywords)
    assert lowered == found
    scored = scorer(own, VerificationParams().scoring).score(text, 0.9)
    assert scored.components.tool_verification == pytest.approx(0.7 + 0.15 * min(2, found))


def test_a_score_is_the_callers_own() -> None:
    """Changing one does not show in that of another text with the same patterns."""
    first = score_verification("Nothing here.")
    first.components.tool_verification = 7
    first.unsubstantiated.append("x")
    again = score_verification("Nothing there either.")
    assert again == score_verification("Nothing 확인.")
    assert (again.components.tool_verification, again.unsubstantiated) == (0.7, [])


def test_texts_with_the_same_patterns_are_distinguished_where_something_is_counted_or_quoted() -> None:
    """What is kept for texts that read alike never answers for another number of edits, or another claim."""
    for text in ("Edit", "Edit Edit", "Edit Edit Read", "it is likely", "it is probably", "Edit Read", "all checked"):
        for strict in (True, False):
            assert score_verification(text, strict=strict) == score_verification(text + " 확인", strict=strict)


@pytest.mark.parametrize("change", ["Edit Read", "implement"])
def test_a_pattern_too_long_for_the_common_automaton_is_looked_for_by_itself(change: str) -> None:
    """Texts with all the same other patterns are distinguished by it, whether or not some of those are counted."""
    own: dict[str, Any] = DEFAULT.model_dump(mode="json")
    own["gates"] = [{**own["gates"][0], "pattern": "(?:ab|ba){90}"}]
    scoring = scorer(Patterns.model_validate(own), VerificationParams().scoring)
    found = [scoring.score(f"{change} {'ab' * times}.", 0.9).components.quality_gates for times in (0, 90, 89, 91)]
    assert found == [0.0, 0.33, 0.0, 0.33]
