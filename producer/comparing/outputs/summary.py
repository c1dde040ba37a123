"""An outcome as Markdown: the summary of a job's step, and a pull request's one comment that a bot keeps current."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.views.markdown import escape, table, visible
from evalq.producer.comparing.outputs.outcome import Outcome
from evalq.producer.outputs.junit import failing_cases

__all__ = ["write_comment", "write_summary"]

_SUMMARY_BYTES = 1_000_000
"""GitHub takes 1 MiB from a step, and nothing at all of more."""
_COMMENT_BYTES = 60_000
"""Of a comment GitHub takes 65,536 characters."""
_SUMMARY_ROWS, _COMMENT_ROWS, _CELL = 1_000, 20, 200

_NOTE = re.compile(r"\\#(?=\d)|\bGH-(?=\d)|!(?=\d)")
"""What forges would make a link to another of their pages, and there a link back."""


def write_summary(outcome: Outcome, name: str) -> bytes:
    """What was decided and why, then the cases that failed; cut, and saying so, where GitHub would take none of it."""
    return _fitted(outcome, "", _SUMMARY_BYTES, _SUMMARY_ROWS)


def write_comment(outcome: Outcome, name: str) -> bytes:
    """The same, shorter, below a line that pages do not show, by which a bot finds the comment to replace.

    The line holds the file's name, so that several gates have a comment each: ``comment.md`` is evalq's,
    ``nightly-comment.md`` nightly's.
    """
    key = re.sub(r"[^A-Za-z0-9_]+", "-", name.removesuffix("comment.md")).strip("-") or "evalq"
    return _fitted(outcome, f"<!-- evalq-comment: {key} -->\n", _COMMENT_BYTES, _COMMENT_ROWS)


def _fitted(outcome: Outcome, head: str, most: int, rows: int) -> bytes:
    """Whole lines up to ``most`` bytes."""
    lines = _text(outcome, rows).splitlines()
    sizes = [len(line.encode()) + 1 for line in lines]
    room = most - len(head.encode()) - 200
    kept = 0
    while kept < len(lines) and room >= sizes[kept]:
        room -= sizes[kept]
        kept += 1
    left = len(lines) - kept
    if left:
        lines = [
            *lines[:kept],
            "",
            f"{left:,} of {len(lines):,} lines are left out: this page has room for {most:,} bytes.",
        ]
    return (head + "\n".join(lines) + "\n").encode()


def _text(outcome: Outcome, rows: int) -> str:
    whole = [text.rstrip("\n") for text in (outcome.text, outcome.matrix) if text]
    parts = [*whole, *(part for run in outcome.runs for part in _failed(outcome, run, rows))]
    text = visible("\n\n".join(parts)).encode(errors="replace").decode()
    return _NOTE.sub(lambda found: f"{found[0]}\N{ZERO WIDTH SPACE}", text)


def _failed(outcome: Outcome, run: RunCases, most: int) -> Iterator[str]:
    """The cases that did not pass every time, base beside candidate; those first that something which blocks names."""
    named, before = outcome.named(run), outcome.before(run)
    failed = sorted(failing_cases(run), key=lambda case: case.name not in named)
    if not failed:
        return
    every = f"{len(run.cases.ids):,} cases of {escape(run.called)}"
    title = f"## {len(failed):,} of {every} did not pass every time"
    if run.called not in outcome.compared:
        yield title
        yield table(("case", "answers"), [(case.name[:_CELL], case.message) for case in failed[:most]]).rstrip("\n")
    else:
        count = sum(case.name in named for case in failed)
        yield f"{title}; {f'{count:,}' if count else 'none'} of them beyond chance"
        shown = [
            (case.name[:_CELL], case.message, before.get(case.name, ""), "named" if case.name in named else "")
            for case in failed[:most]
        ]
        yield table(("case", "answers", "baseline", "by the gate"), [*shown]).rstrip("\n")
    if len(failed) > most:
        yield f"{len(failed) - most:,} of them are left out; the run folder has all (cases.json, report.html)."
