"""The self check once more, written from the specification's own code, slowly and plainly."""

from __future__ import annotations

import json
from typing import Any

DEFAULT: list[tuple[str, str, str]] = [
    ("should work", "warning", '불확실한 표현 감지: "should work"'),
    ("probably", "warning", '불확실한 표현 감지: "probably"'),
    ("I believe", "warning", '주관적 표현 감지: "I believe"'),
    ("I think", "warning", '주관적 표현 감지: "I think"'),
    ("typically", "warning", '일반화 표현 감지: "typically"'),
    ("usually", "warning", '일반화 표현 감지: "usually"'),
    ("without concrete evidence", "error", "증거 없는 주장 감지"),
]

EXTENDED: list[tuple[str, str, str]] = [
    *DEFAULT,
    ("might be", "warning", '불확실한 표현 감지: "might be"'),
    ("could be", "warning", '불확실한 표현 감지: "could be"'),
    ("perhaps", "warning", '불확실한 표현 감지: "perhaps"'),
    ("assume", "warning", '가정 표현 감지: "assume"'),
    ("TODO|FIXME|HACK", "error", "미완성 마커 감지"),
]


def _ascii_search(pattern: str, text: str) -> tuple[int, int] | None:
    """Case folds on A-Z alone: the first place at which some alternative stands, letter by letter."""
    alternatives = pattern.split("|")
    for at in range(len(text) + 1):
        for wanted in alternatives:
            piece = text[at : at + len(wanted)]
            if len(piece) == len(wanted) and all(map(_same, piece, wanted)):
                return at, at + len(wanted)
    return None


def _same(a: str, b: str) -> bool:
    return a == b or (a.isascii() and b.isascii() and a.lower() == b.lower())


def _stringify(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _questions(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    output = evidence.get("testOutput")
    requirements = evidence.get("requirementsList")
    assumptions = evidence.get("assumptions")
    changes = evidence.get("codeChanges")
    others = evidence.get("evidence")
    tests_pass = output is not None and evidence.get("testsPassed") is True
    requirements_met = bool(requirements) and all(r["met"] for r in requirements or [])
    no_assumptions = True if not assumptions else all(a["verified"] for a in assumptions)
    exists = output is not None or bool(changes) or bool(others)
    files = len(changes) if changes is not None else 0
    shown = f"Tests: {'true' if output else 'false'}, Code: {files} files"
    return [
        {"id": "tests_pass", "passed": tests_pass, "evidence": "No test output" if output is None else output},
        {"id": "requirements_met", "passed": requirements_met, "evidence": _stringify(requirements or [])},
        {"id": "no_assumptions", "passed": no_assumptions, "evidence": _stringify(assumptions or [])},
        {"id": "evidence_exists", "passed": exists, "evidence": shown},
    ]


def check(evidence: dict[str, Any], signals: list[tuple[str, str, str]] = DEFAULT, context: int = 50) -> dict[str, Any]:
    """The result object of the specification for one piece of evidence."""
    parts = [evidence["testOutput"]] if evidence.get("testOutput") else []
    parts += [e["content"] for e in evidence.get("evidence") or []]
    parts += [a["assumption"] for a in evidence.get("assumptions") or []]
    text = "\n".join(parts)
    questions = _questions(evidence)
    found, fatal = [], False
    for pattern, severity, message in signals:
        span = _ascii_search(pattern, text)
        if span is None:
            found.append({"signal": message, "found": False})
        else:
            around = text[max(0, span[0] - context) : min(len(text), span[1] + context)]
            found.append({"signal": message, "found": True, "context": f"...{around}..."})
            fatal = fatal or severity == "error"
    passed = all(q["passed"] for q in questions) and not fatal
    return {"passed": passed, "questions": questions, "dangerSignals": found}
