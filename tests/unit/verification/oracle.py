"""The score once more, straight from the specification with Python's `re`, slowly and plainly."""

from __future__ import annotations

import re

I, S = re.IGNORECASE, re.DOTALL  # noqa: E741 - the specification's names

KEYWORDS = ["verified", "confirmed", "validated", "checked", "testing showed", "output shows", "confirmed by"]
CLAIMS = [
    r"(?:should|would|could)\s+work",
    r"(?:probably|likely|seems to)",
    r"I\s+(?:believe|think|assume)",
    r"(?:should be|would be|could be)\s+(?:correct|working|fine)",
]


def _count(pattern: str, text: str, flags: int = I) -> int:
    return len(list(re.finditer(pattern, text, flags)))


def _has(pattern: str, text: str, flags: int = I) -> bool:
    return re.search(pattern, text, flags) is not None


def components(text: str) -> dict[str, float]:
    """The four components."""
    edits = _count(r"\b(?:Edit|Write)\b", text)
    reads = _count(r"(?:Edit|Write).*?Read", text, I | S)
    deploys = _count(r"\b(?:deploy|start|launch)\b", text)
    health = _count(r"(?:health|status|verify|check).*?(?:check|endpoint|healthy|running)", text)
    keywords = len([keyword for keyword in KEYWORDS if keyword in text.lower()])
    tool = 0.4 * (1 if edits == 0 else min(1, reads / edits))
    tool += 0.3 * (1 if deploys == 0 else min(1, health / deploys))
    tool += 0.3 * min(1, keywords / 2)

    evidence = 0.25 * _has(r"line\s+\d+", text)
    evidence += 0.25 * _has(r"```\w*\n.*?\n```", text, S)
    evidence += 0.25 * _has(r"""(?:output|result|response):\s*[`"'].*?[`"']""", text)
    evidence += 0.25 * (not any(_has(claim, text) for claim in CLAIMS))

    tests = gates = 1.0
    if _has(r"\b(?:Edit|Write|implement|fix|refactor)\b", text):
        tests = 0.5 * _has(r"pytest|npm test|cargo test|go test|mvn test", text)
        tests += 0.5 * _has(r"\d+\s+passed|\d+\s+failed|all tests pass", text)
        gates = 0.33 * _has(r"mypy|pyright|tsc|flow", text)
        gates += 0.33 * _has(r"ruff|eslint|pylint|flake8", text)
        gates += 0.34 * _has(r"coverage|--cov", text)
    return {
        "tool_verification": tool,
        "assertion_evidence": evidence,
        "test_execution": tests,
        "quality_gates": gates,
    }


def score(text: str, strict: bool = False) -> float:
    """The weighted score; strict, 0 for any unsubstantiated claim."""
    if strict and any(_has(claim, text) for claim in CLAIMS):
        return 0.0
    parts = components(text)
    total = 0.4 * parts["tool_verification"] + 0.3 * parts["assertion_evidence"]
    return round(total + 0.2 * parts["test_execution"] + 0.1 * parts["quality_gates"], 12)
