"""One budget for a run: for its outputs, and for all that is asked about them, also where that began anew."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from evalq.evalcore.model.calls import Attempt, Output
from evalq.evalcore.model.canonical import Json
from evalq.producer.monitor.progress import Reporter
from evalq.producer.sweep import calls, judge_targets
from evalq.producer.sweep.judge_stage import JudgeSweep, TargetSettings
from evalq.producer.sweep.sweep import Sweep
from tests.unit.producer.test_further import calls_of, sweep, write

__all__ = ["sweep"]  # the fixture

PRICE = 0.5
CHANGED = [("a", 0, "x"), ("a", 1, "changed"), ("b", 0, "x"), ("b", 1, "late")]


class Made:
    """Makes calls as far as the budget goes, in place of a fleet; ``budgets`` are those that it was given."""

    def __init__(self) -> None:
        self.budgets: list[tuple[int, float]] = []
        self.said: list[str] = []

    def __call__(self, each: JudgeSweep, *_: object) -> Made:
        self._each = each
        return self

    def say(self, text: str) -> None:
        self.said.append(text)

    def make(self) -> dict[str, Json]:
        """As `Calling` does."""
        each, live = self._each, self._each.live
        self.budgets.append((live.max_calls, live.max_cost))
        reply(each, live.max_calls - each.recorded.attempts if live.max_calls else None)
        each.spent = each.recorded.count < each.header.total
        facts: dict[str, Json] = {
            "attempts": each.recorded.attempts, "lost": 0, "repaid": 0, "cost": each.recorded.spending.total,
        }  # fmt: skip
        each.note_calls(facts)
        return facts


def reply(each: JudgeSweep, most: int | None = None) -> None:
    """Record a reply to calls that have none, each of which costs."""
    prompts = list(each.prompts())
    for call in [call for call in range(each.header.total) if not each.recorded.has(call)][:most]:
        prompt, repeat = prompts[call % each.header.cases], call // each.header.cases
        message = (call, prompt.case, "", repeat, prompt.digest, each.header.target, "c")
        output = msgspec.Raw(b'{"pass": true, "better": "A"}')
        each.recorded.add([Output(*message, output, attempts=(Attempt(cost=PRICE),))])


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """In the place of what calls."""
    there = Made()
    monkeypatch.setattr(calls, "Calling", there)
    monkeypatch.setattr(judge_targets, "settle_targets", lambda *given: dict.fromkeys(given[-1], TargetSettings("c")))
    return there


def ask(sweep: Sweep, made: Made, max_calls: int = 0, max_cost: float = 0.0, used: tuple[int, float] = (0, 0.0)) -> Any:
    """Ask all that is to be asked; what run.json says of it then."""
    sweep.live = msgspec.structs.replace(sweep.live, max_calls=max_calls, max_cost=max_cost)
    assert sweep.stage is not None
    reporter = Reporter("records", quiet=True, bar=False, json_lines=False)
    reporter.say = made.say  # type: ignore[method-assign]  # heard here
    calls.ask_further(sweep, sweep.stage, cast("Any", (None, None)), reporter, cast("Any", None), used)
    return sweep.folder.facts().get("further")


def test_replies_that_are_taken_over_stay_paid(sweep: Sweep, made: Made) -> None:
    """After a retry gave other outputs: in run.json, in the budgets, and also when it began anew twice."""
    first = {name: facts["attempts"] for name, facts in ask(sweep, made).items()}
    assert first == {"1": 6, "2": 9, "3": 3}
    write(sweep, CHANGED)
    made.budgets.clear()
    message = ask(sweep, made, max_calls=100, max_cost=100.0)
    counts = {name: (facts["attempts"], facts["cost"], facts["repaid"]) for name, facts in message.items()}
    # A third of what was answered about outputs that are no more, and what is asked about the new ones.
    assert counts == {"1": (10, 5.0, 2), "2": (15, 7.5, 3), "3": (5, 2.5, 1)}
    # 18 before; then 4 of the first; then 6 of the second.
    assert made.budgets == [(82, 91.0), (78, 89.0), (72, 86.0)]
    write(sweep, [*CHANGED[:3], ("b", 1, "later")])
    message = ask(sweep, made)
    assert {name: facts["attempts"] for name, facts in message.items()} == {"1": 12, "2": 18, "3": 6}
    assert sum(each.recorded.paid for each in calls_of(sweep).prepare()) == 6


def test_attempts_that_brought_nothing_are_taken_over_as_lost(sweep: Sweep, made: Made) -> None:
    """And what they cost, as the processes told that made them."""
    first = calls_of(sweep).prepare()[0]
    reply(first, 2)
    first.recorded.note_begun(9, {"one": "4 5 2 3.5"}, {"one": 1})
    write(sweep, CHANGED)
    again = calls_of(sweep).prepare()[0]
    assert msgspec.to_builtins(again.before) == {"attempts": 9, "lost": 4, "repaid": 0, "cost": 3.5}


def test_a_judge_that_has_answered_all_lacks_nothing_where_the_budget_is_spent(sweep: Sweep, made: Made) -> None:
    """Nobody is called, and the run is over; where replies are missing it says how many, and is not."""
    assert ask(sweep, made, max_calls=8) == {
        "1": {"attempts": 6, "lost": 0, "repaid": 0, "cost": 3.0},
        "2": {"attempts": 2, "lost": 0, "repaid": 0, "cost": 1.0},
    }
    assert made.said[-1] == "the budget is spent: 'other' is not asked 3 times"
    assert sweep.further_left
    made.said.clear()
    ask(sweep, made, max_calls=5, used=(6, 0.0))
    assert made.said == [
        "the budget is spent: 'grader' is not asked 7 times", "the budget is spent: 'other' is not asked 3 times",
    ]  # fmt: skip
    assert sweep.further_left
    ask(sweep, made)
    made.budgets.clear()
    made.said.clear()
    ask(sweep, made, max_calls=5, used=(6, 0.0))
    assert (made.budgets, made.said, sweep.further_left) == ([], [], False)


def test_a_resumed_judge_knows_what_others_took_before_it_stopped(sweep: Sweep, made: Made) -> None:
    """Whichever is asked first: with a larger budget, all of them together take no more than that."""
    _, second, third = calls_of(sweep).prepare()
    reply(second, 5)
    reply(third, 2)
    ask(sweep, made, max_calls=10)
    assert made.budgets == [(3, 0.0)]
    assert sum(each.recorded.attempts for each in calls_of(sweep).prepare()) == 10
    ask(sweep, made, max_calls=14)
    assert made.budgets[1:] == [(7, 0.0), (6, 0.0)]  # 3 more of the first, and one of the second
    assert sum(each.recorded.attempts for each in calls_of(sweep).prepare()) == 14


def test_what_rounding_leaves_of_a_budget_pays_for_no_judge(sweep: Sweep, made: Made) -> None:
    """Ten calls of .2 cost less than 2 as floats are added."""
    assert ask(sweep, made, max_cost=2.0, used=(10, 1.9999999999999996)) is None
    assert (made.budgets, made.said[0]) == ([], "the budget is spent: 'grader' is not asked 6 times")


def test_a_judge_that_is_not_asked_again_has_failed_as_before(sweep: Sweep, made: Made) -> None:
    """Where a retry finds the budget spent: its failed replies would look as if nobody had asked for them."""
    first = calls_of(sweep).prepare()[0]
    prompt = next(iter(first.prompts()))
    message = (0, prompt.case, "", 0, prompt.digest, first.header.target, "c")
    first.recorded.add([Output(*message, error="timeout: no answer", attempts=(Attempt(kind="timeout"),))])
    first.recorded.drop([0])
    ask(sweep, made, max_calls=1, used=(1, 0.0))
    assert calls_of(sweep).prepare()[0].recorded.failed() == [0]
