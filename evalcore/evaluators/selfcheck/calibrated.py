"""The calibrated list: (pattern, message). Tuned on half A of examples/labelled.jsonl alone, never on half B."""

from __future__ import annotations

__all__ = ["CALIBRATED"]

CALIBRATED: tuple[tuple[str, str], ...] = (
    (
        (
            r"\b(?:simulated|placeholder|illustrative|mental walk|expected output)\b"
            r"|\bmock(?:ed)? (?:run|result|output|eval)"
        ),
        "stand-in for a result",
    ),
    (
        r"\b(?:don't|do not|didn't|did not|couldn't|could not) (?:have|get) (?:access|credentials)|\bnot attached\b",
        "without access to what was to be tested",
    ),
    (
        (
            r"\b(?:all|full|entire) (?:the )?(?:unit )?tests? (?:are |is |were )?(?:green|passing|passes)\b"
            r"|\beverything (?:is |was |looks )?(?:green|fine|good|passes|works)\b"
            r"|\b(?:verified|validated|tested) (?:on (?:simulator|device|staging|production)|end to end)"
            r"|\b(?:held up well|was a success|in good shape)\b"
        ),
        "blanket claim in place of output",
    ),
    (
        r"\bwill be (?:kicked off|added|done|run|enabled|finished|tested) |\bcan follow\b|\breplace with\b",
        "work put off",
    ),
    (
        r"(?m)^\S{0,40}\s?(?:error|warning): |\bAddressSanitizer\b|\b[1-9]\d* (?:failing|errors?)\b",
        "failure in the output",
    ),
    (r"\bshould work\b|\bI believe\b", "belief in place of a result"),
    # "Without a problem", written with a space or without, and "have finished it".
    (r"문제\s?없이|완성했습니다", "출력 없는 단정"),
)
