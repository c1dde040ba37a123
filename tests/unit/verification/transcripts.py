"""Transcripts made up by hypothesis from the vocabulary of the score, and from what misleads engines about it."""

from __future__ import annotations

from hypothesis import strategies as st

_WORDS = [
    *("Edit", "EDIT", "edited", "Write", "write", "rewrite", "Read", "already", "Edit를", "를Edit", "Edit_", "éEdit"),
    *(
        "deploy",
        "deploys",
        "start",
        "Start",
        "launch",
        "health",
        "status",
        "verify",
        "check",
        "endpoint",
        "healthy",
        "running",
    ),
    *(
        "verified",
        "unverified",
        "confirmed by",
        "confirmed",
        "validated",
        "chec\u212aed",
        "testing showed",
        "output shows",
    ),
    *("line 12", "line\u30003", "line ٣", "lıne 4", "```", "```py\nx\n```", "```\n\n```", " ```"),
    *(
        "output: `a`",
        "Result:\n'b\"",
        'response:  "',
        "should work",
        "would\nwork",
        "could",
        "probably",
        "unlikely",
        "seems to",
    ),
    *(
        "I believe",
        "i \x1c think",
        "I assume",
        "should be  fine",
        "could be working",
        "implement",
        "fix",
        "refactor",
        "fixes",
    ),
    *(
        "pytest",
        "npm test",
        "3 passed",
        "2\nfailed",
        "٣ passed",
        "all tests pass",
        "mypy",
        "flow",
        "ruff",
        "--cov",
        "coverage",
    ),
]
_GLUE = ["", " ", " ", "\n", ".", "를", "_", "ſ", "\u2003", "`", '"', "😀", "ı", "İ"]

_word = st.sampled_from(_WORDS) | st.text(max_size=3)
transcripts = st.lists(st.builds(str.__add__, _word, st.sampled_from(_GLUE)), max_size=25).map("".join)
