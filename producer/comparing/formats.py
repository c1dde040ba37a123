"""Formats of a decision or a comparison: annotations, badges, Markdown for a page or a comment, JUnit XML."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from html import escape as escape_html
from typing import Literal

import msgspec

from evalq.evalcore.compare.gate import INCOMPLETE
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.views.markdown import escape, plural, table, visible
from evalq.producer.comparing.outcome import DecisionOutcome, OutcomePoint, PointState
from evalq.producer.comparing.samples import folder_of
from evalq.producer.outputs.junit import (
    NO_ANSWER,
    JunitSuite,
    State,
    Testcase,
    class_of,
    failing_cases,
    junit,
    run_suite,
)

_AnnotationKind = Literal["error", "warning", "notice"]
_OF_A_KIND, _ANNOTATION_TEXT, _TITLE = 10, 2_000, 200
_GAP = "\N{ZERO WIDTH SPACE}"


def write_annotations(outcome: DecisionOutcome, name: str) -> bytes:
    """Errors for blocking checks, warnings for open or supporting ones, notices for the rest; none if they hold."""
    lines: list[str] = []
    for kind in ("error", "warning", "notice"):
        points = [point for point in outcome.points if _annotation_kind(point, outcome) == kind]
        # The last line says how many more there are.
        shown = points if len(points) <= _OF_A_KIND else points[: _OF_A_KIND - 1]
        lines += [_line(kind, f"evalq {outcome.what}: {point.word}", _annotation_text(point)) for point in shown]
        if len(points) > len(shown):
            left = f"{len(points) - len(shown):,} more like these; GitHub shows {_OF_A_KIND} of a kind"
            lines.append(_line(kind, f"evalq {outcome.what}", left))
    return "".join(line + "\n" for line in lines).encode()


def _annotation_kind(point: OutcomePoint, outcome: DecisionOutcome) -> _AnnotationKind | None:
    if point.state == "kept":
        return None
    if not point.blocks:
        return "warning" if point.tier == "supporting" else "notice"
    if point.state == "open":
        return "notice" if outcome.passes else "warning"
    return "notice" if outcome.passes else "error"


def _annotation_text(point: OutcomePoint) -> str:
    cases = f"\ncases: {', '.join(point.cases)}" if point.cases else ""
    return f"{point.name}: {point.reason}{cases}"


def _line(kind: str, title: str, text: str) -> str:
    return f"::{kind} title={_property(title[:_TITLE])}::{_data(text)}"


def _data(text: str) -> str:
    """``text`` as data of a workflow command. Older commands begin anywhere in a line, with ##[ or ##vso[."""
    text = visible(text).encode(errors="replace").decode()
    text = text if len(text) <= _ANNOTATION_TEXT else f"{text[:_ANNOTATION_TEXT]}… ({len(text):,} characters)"
    text = text.replace("##", f"#{_GAP}#")
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# An outcome as a badge: data for shields.io's endpoint badge, and an SVG picture.

_COLOURS: dict[PointState, tuple[str, str]] = {
    "kept": ("brightgreen", "#2a7a2f"),
    "broken": ("red", "#b3261e"),
    "suspect": ("orange", "#a34700"),
    "open": ("yellow", "#8a6100"),
    "error": ("lightgrey", "#5c5c5c"),
}
_LABEL = 40
_SIGN, _AROUND = 6.6, 12
"""Pixels: the width of a character, and the padding of a text."""


def write_shield(outcome: DecisionOutcome, name: str) -> bytes:
    """JSON as https://shields.io/endpoint reads it; ``nightly-badge.json`` is labelled nightly."""
    label = _label(name.removesuffix("badge.json"))
    shield = {"schemaVersion": 1, "label": label, "message": outcome.word, "color": _COLOURS[outcome.state][0]}
    return msgspec.json.encode(shield | ({"isError": True} if outcome.state == "error" else {})) + b"\n"


def write_svg(outcome: DecisionOutcome, name: str) -> bytes:
    """A picture without external references; ``nightly.svg`` is labelled nightly."""
    stem = name.removesuffix(".svg")
    label, word = _label(stem.removesuffix("badge")), outcome.word
    left, right = (round(_SIGN * len(text) + _AROUND) for text in (label, word))
    caption, colour = f"{escape_html(label)}: {escape_html(word)}", _COLOURS[outcome.state][1]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{caption}">'
        f'<title>{caption}</title><rect width="{left}" height="20" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        f'<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f"{_svg_text(label, left / 2, left)}{_svg_text(word, left + right / 2, right)}</g></svg>\n"
    ).encode()


def _svg_text(text: str, middle: float, width: int) -> str:
    return f'<text x="{middle:g}" y="14" textLength="{width - _AROUND}">{escape_html(text)}</text>'


def _label(stem: str) -> str:
    text = " ".join(visible(stem).encode(errors="replace").decode().strip("-_. ").split())
    return text[:_LABEL] or "evalq"


# An outcome as Markdown: the summary of a job's step, and the comment in a pull request that a bot updates.

_SUMMARY_BYTES = 1_000_000
"""GitHub drops a summary of more than 1 MiB."""
_COMMENT_BYTES = 60_000
"""GitHub takes comments of up to 65,536 characters."""
_SUMMARY_ROWS, _COMMENT_ROWS, _CELL, _NAMED = 1_000, 20, 200, 20

_LINKED = re.compile(r"\\#(?=\d)|\bGH-(?=\d)|!(?=\d)|^[^\S\n]*(?=/[a-z])", re.MULTILINE)
"""Text that forges would turn into links to other issues, and lines that they would obey: GitLab takes /merge for a
command of the comment's author, in some versions also within a code block whose fence is longer than three signs."""


def write_summary(outcome: DecisionOutcome, name: str) -> bytes:
    """The decision and why, then the failed cases; cut, with a note, to the size that GitHub takes."""
    return _cut_to(outcome, "", _SUMMARY_BYTES, _SUMMARY_ROWS)


def write_comment(outcome: DecisionOutcome, name: str) -> bytes:
    """A shorter summary below an invisible line, by which a bot finds the comment to replace.

    The line holds the file's name, so that several gates can each have a comment, such as ``nightly-comment.md``.
    """
    key = re.sub(r"[^A-Za-z0-9_]+", "-", name.removesuffix("comment.md")).strip("-") or "evalq"
    return _cut_to(outcome, f"<!-- evalq-comment: {key} -->\n", _COMMENT_BYTES, _COMMENT_ROWS)


def _cut_to(outcome: DecisionOutcome, head: str, most: int, rows: int) -> bytes:
    """As many whole lines as fit into ``most`` bytes."""
    lines = _markdown(outcome, rows).splitlines()
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


def _markdown(outcome: DecisionOutcome, rows: int) -> str:
    parts = [
        outcome.text,
        _levels(outcome),
        # Cutting takes whole lines from the end, so what explains the decision comes first.
        *(part for run in outcome.runs for part in _named_cases(outcome, run)),
        *(part for run in outcome.runs for part in _samples(outcome, run)),
        *_more(outcome),
        outcome.demands and f"## What the policy demands\n\n{outcome.demands}",
        outcome.matrix,
        *(part for run in outcome.runs for part in _failed_cases(outcome, run, rows)),
    ]
    parts = [part.strip("\n") for part in parts if part]
    text = visible("\n\n".join(parts)).encode(errors="replace").decode()
    return _LINKED.sub(lambda found: f"{found[0]}\N{ZERO WIDTH SPACE}", text)


def _levels(outcome: DecisionOutcome) -> str:
    """The numbers of the demands, base beside candidate."""
    if not outcome.levels:
        return ""
    head = ("", f"baseline {outcome.baseline}".rstrip(), "candidate", "change (these cases)", "allowed")
    rows: list[tuple[object, ...]] = [
        (metric, each.base, each.cand, each.change and f"{each.change} ({each.low} to {each.high})", each.allowed)
        for metric, each in outcome.levels
    ]
    return table(head, rows)


def _named_cases(outcome: DecisionOutcome, run: RunCases) -> Iterator[str]:
    """The cases that got worse beyond chance."""
    named = outcome.named(run)
    worse = [each for each in outcome.worst_first(run) if each.case in named][:_NAMED]
    if not worse or run.called not in outcome.compared:
        return
    yield f"## {plural(len(named), 'case')} of {escape(run.called)} got worse beyond chance"
    rows: list[tuple[object, ...]] = [
        (each.case[:_CELL], _counts(each.before), _counts((each.passed, each.answers))) for each in worse
    ]
    yield table(("case", "baseline", "candidate"), rows)


def _counts(counts: tuple[int, int] | None) -> str:
    return "no answer" if counts is None or not counts[1] else f"{counts[0]:,} of {counts[1]:,} passed"


def _samples(outcome: DecisionOutcome, run: RunCases) -> Iterator[str]:
    """Two of the cases that got worst, each with an answer of the baseline and one of the candidate."""
    for base, cand in outcome.samples(run):
        yield f"### An answer to {escape(cand.case[:_CELL])}"
        if cand.question:
            yield f"Question:\n\n{_quoted(cand.question)}"
        if base is not None:
            yield f"The baseline answered{'' if base.passed else ' (failed)'}:\n\n{_quoted(base.answer)}"
        why = "" if cand.passed else f" (failed{f': {escape(cand.reason)}' if cand.reason else ''})"
        yield f"The candidate answered{why}:\n\n{_quoted(cand.answer)}"


def _quoted(text: str) -> str:
    """A text of others as code, which nothing in it can end."""
    text = visible(text)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def _more(outcome: DecisionOutcome) -> Iterator[str]:
    """Where the whole report is, and the commands that show more."""
    lines = []
    for run in outcome.runs:
        if (folder := folder_of(run)) is None:
            continue
        here = shlex.quote(str(folder.path))
        lines.append(f"- {escape(run.called)}: report `{folder.path}/report.html`, all answers `evalq view {here}`")
        if run.called in outcome.compared and outcome.baseline:
            lines.append(f"- case by case: `evalq compare {shlex.quote(outcome.baseline)} {here}`")
    if lines and not any("`" in str(run.named) for run in outcome.runs):
        yield "## See more"
        yield "\n".join(lines)


def _failed_cases(outcome: DecisionOutcome, run: RunCases, most: int) -> Iterator[str]:
    """The cases that did not pass every time, baseline beside candidate; those that a blocking check names first."""
    named, before = outcome.named(run), outcome.before(run)
    failed = sorted(failing_cases(run), key=lambda case: case.name not in named)
    if not failed:
        return
    every = f"{len(run.cases.ids):,} cases of {escape(run.called)}"
    title = f"## Of {every}, {_not_passed(failed)}"
    if run.called not in outcome.compared:
        yield title
        yield table(("case", "answers"), [(case.name[:_CELL], case.message) for case in failed[:most]]).rstrip("\n")
    else:
        count = sum(case.name in named for case in failed)
        chance = f"; {f'{count:,}' if count else 'none'} of them beyond chance" if _answered(failed) else ""
        yield f"{title}{chance}"
        shown = [
            (case.name[:_CELL], case.message, before.get(case.name, ""), "named" if case.name in named else "")
            for case in failed[:most]
        ]
        yield table(("case", "answers", "baseline", "by the gate"), [*shown]).rstrip("\n")
    if len(failed) > most:
        yield f"{len(failed) - most:,} of them are left out; the run folder has all (cases.json, report.html)."


def _answered(failed: Sequence[Testcase]) -> int:
    return sum(case.kind != NO_ANSWER for case in failed)


def _not_passed(failed: Sequence[Testcase]) -> str:
    """How many cases failed, and how many have no answer, which is no failure."""
    wrong = _answered(failed)
    parts = [f"{wrong:,} did not pass every time"] if wrong else []
    parts += [f"{len(failed) - wrong:,} have no answer"] if wrong < len(failed) else []
    return " and ".join(parts)


# An outcome as JUnit XML: a suite of the checks, then a suite of each run's cases.

_STATES: dict[str, State] = {"broken": "failure", "suspect": "failure", "open": "failure", "error": "error"}


_NOT_NAMED = "not beyond chance: no check that decides names this case"
_UNKNOWN = "nothing is known of it, and no check that decides names this case"


def write_decision_junit(outcome: DecisionOutcome, name: str) -> bytes:
    """The file. If the outcome lets the run pass, it has no failures: checks that do not hold are skipped."""
    allowed = f"{outcome.word}: it blocks nothing" if outcome.passes else ""
    own = JunitSuite(f"evalq {outcome.what}", class_of("evalq", outcome.what), list(_testcases(outcome)))
    suites = [
        run_suite(run, allowed=allowed, excused=_excused(outcome, run), before=outcome.before(run))
        for run in outcome.runs
    ]
    return junit(f"evalq {outcome.what}", [own, *suites])


def _excused(outcome: DecisionOutcome, run: RunCases) -> dict[str, str]:
    """The cases that do not count as failures: those in quarantine, and those that no blocking check names."""
    named = outcome.named(run)
    # Without a baseline evalq cannot judge chance, so no case is excused.
    excused: dict[str, str] = {}
    if run.called in outcome.compared:
        unanswered = {case.name for case in failing_cases(run) if case.kind == NO_ANSWER}
        excused = {case: _UNKNOWN if case in unanswered else _NOT_NAMED for case in run.cases.ids if case not in named}
    return excused | {case: reason for (called, case), reason in outcome.quarantined.items() if called == run.called}


def _testcases(outcome: DecisionOutcome) -> Iterator[Testcase]:
    if outcome.state != "error":
        veto = all(point.veto for point in outcome.points if point.blocks and point.state == outcome.state)
        yield _testcase(
            OutcomePoint("decision", outcome.state, outcome.word, _decision_message(outcome), veto=veto), outcome
        )
    for point in outcome.points:
        yield _testcase(point, outcome)


def _decision_message(outcome: DecisionOutcome) -> str:
    """The points that caused the outcome."""
    worst = [point.name for point in outcome.points if point.blocks and point.state == outcome.state]
    return f"{outcome.word}: {'; '.join(worst[:5])}" + (f" and {len(worst) - 5} more" if len(worst) > 5 else "")


def _testcase(point: OutcomePoint, outcome: DecisionOutcome) -> Testcase:
    if point.state == "kept":
        return Testcase(point.name)
    lines = [point.reason, *(["cases: " + ", ".join(point.cases)] if point.cases else [])]
    if not point.blocks:
        lines.append(f"{point.tier}: it blocks nothing")
    elif point.state == "open" and outcome.decision is not None and outcome.decision.exit_with == INCOMPLETE:
        lines.append("answers are missing: call again, then decide again")
    elif point.state == "open":
        lines.append("the answers cannot tell: more repeats or more cases would")
    elif point.state == "suspect" and not point.veto:
        # A veto is about cases, not about the mean, which has its own line.
        lines.append("worse beyond chance; a drop beyond what the policy allows is neither shown nor excluded")
    excused = not point.blocks or outcome.passes
    state = "skipped" if excused else _STATES[point.state]
    return Testcase(point.name, state, point.word, f"{point.word}: {point.reason}", "\n".join(lines))
