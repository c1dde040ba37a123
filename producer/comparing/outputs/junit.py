"""An outcome as JUnit XML: a suite of what was demanded, then one of each run's cases."""

from __future__ import annotations

from collections.abc import Iterator

from evalq.evalcore.compare.run import RunCases
from evalq.producer.comparing.outputs.outcome import Outcome, Point
from evalq.producer.outputs.junit import JunitSuite, State, Testcase, class_of, junit, run_suite

__all__ = ["write_junit"]

_STATES: dict[str, State] = {"broken": "failure", "suspect": "failure", "open": "failure", "error": "error"}


_NOT_NAMED = "not beyond chance: nothing that decides names this case"


def write_junit(outcome: Outcome, name: str) -> bytes:
    """The file. Where the outcome lets the run pass, nothing in it is a failure: what did not hold is skipped."""
    allowed = f"{outcome.word}: it blocks nothing" if outcome.passes else ""
    own = JunitSuite(f"evalq {outcome.what}", class_of("evalq", outcome.what), list(_testcases(outcome)))
    suites = [
        run_suite(run, allowed=allowed, aside=_aside(outcome, run), before=outcome.before(run)) for run in outcome.runs
    ]
    return junit(f"evalq {outcome.what}", [own, *suites])


def _aside(outcome: Outcome, run: RunCases) -> dict[str, str]:
    """The cases that fail nothing: those in quarantine, and those that nothing which blocks names."""
    named = outcome.named(run)
    # Without a baseline nothing says what chance does to a case: each is shown as it went.
    excused = (
        {case: _NOT_NAMED for case in run.cases.ids if case not in named} if run.called in outcome.compared else {}
    )
    return excused | {case: reason for (called, case), reason in outcome.aside.items() if called == run.called}


def _testcases(outcome: Outcome) -> Iterator[Testcase]:
    if outcome.standing != "error":
        veto = all(point.veto for point in outcome.points if point.blocks and point.standing == outcome.standing)
        yield _testcase(Point("decision", outcome.standing, outcome.word, _said(outcome), veto=veto), outcome)
    for point in outcome.points:
        yield _testcase(point, outcome)


def _said(outcome: Outcome) -> str:
    """Which of its points made it so."""
    worst = [point.name for point in outcome.points if point.blocks and point.standing == outcome.standing]
    return f"{outcome.word}: {'; '.join(worst[:5])}" + (f" and {len(worst) - 5} more" if len(worst) > 5 else "")


def _testcase(point: Point, outcome: Outcome) -> Testcase:
    if point.standing == "kept":
        return Testcase(point.name)
    lines = [point.reason, *(["cases: " + ", ".join(point.cases)] if point.cases else [])]
    if not point.blocks:
        lines.append(f"{point.tier}: it blocks nothing")
    elif point.standing == "open":
        lines.append("the answers cannot tell: more repeats or more cases would")
    elif point.standing == "suspect" and not point.veto:
        # Cases that fell say nothing of the mean: whether that fell by more than is allowed stands in its own line.
        lines.append("worse beyond chance; a fall beyond what the policy allows is neither shown nor excluded")
    excused = not point.blocks or outcome.passes
    state = "skipped" if excused else _STATES[point.standing]
    return Testcase(point.name, state, point.word, f"{point.word}: {point.reason}", "\n".join(lines))
