"""Pairs of answers that a judge compares: what is asked, what is kept of it, and how often its verdict errs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.evaluators.checks import load_cases
from evalq.evalcore.evaluators.checks.diversity.kinds import MOST_REPEATS, PAIR, PairHalf, by_judge
from evalq.evalcore.evaluators.checks.diversity.report import diversity_markdown
from evalq.evalcore.evaluators.checks.stages import VerdictStage
from evalq.evalcore.model.calls import Output
from evalq.evalcore.records.prompts import marker_of
from tests.unit.checks.helpers import counts, evaluated, line, merged_anyhow, params_of, state_of, stop_mark

SHARE = 0.7
ERROR = 0.025
CASE: dict[str, Any] = {"id": "a", "checks": [{"min-length": 0}], "diversity": {"by": "near", "judge": True}}
PARAMS = params_of([CASE])


def halves(*said: str, other: str = "y") -> list[PairHalf]:
    """A pair for each verdict."""
    return [
        half for at, each in enumerate(said) for half in (PairHalf(2 * at, "x", other, each), PairHalf(2 * at + 1, "y"))
    ]


def verdict(*said: str, share: float = SHARE, planned: int = 0) -> str:
    """The verdict on pairs of which the judge said that."""
    return str(by_judge(halves(*said), share, planned)["verdict"])


def stage_of(case: dict[str, Any] = CASE, judge: str = "grader") -> VerdictStage:
    """What asks about this case."""
    return VerdictStage(params_of([case]), {"a": "Say it."}, {}, judge, {})


def replying(says: Callable[[str], Any], judge: str = "grader") -> Callable[[Any], list[Output]]:
    """A judge that says ``same`` as ``says`` has it of a prompt, under the marker that stands in that."""

    def answers(question: Any) -> list[Output]:
        marker = question.prompt.text.split("<<<FIRST-")[1][:16]
        reply = msgspec.Raw(json.dumps({"marker": marker, "same": says(question.prompt.text)}).encode())
        return [Output(0, question.prompt.case, "", 0, question.prompt.digest, judge, "c", reply)]

    return answers


def judged(lines: list[bytes], says: Callable[[str], Any], stage: VerdictStage | None = None) -> list[bytes]:
    """The lines with what a judge said of their pairs."""
    stage = stage or stage_of()
    stage.prepare(lambda: lines)
    return [stage.add_replies(each, replying(says)) for each in lines]


def section_of(folder: Path, lines: list[bytes], case: dict[str, Any] = CASE) -> dict[str, Any]:
    """What the report says of the pairs."""
    report = evaluated(folder, lines, params_of([case])).report
    found: dict[str, Any] = report["results"]["diversity"]["by_case"][0]["by_judge"]
    return found


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30))
def test_the_chance_of_two_alike_is_between_the_share_and_its_square(weights: list[int]) -> None:
    """Whatever kinds there are; both ends are reached: by one kind, and by kinds that come equally often."""
    whole = sum(weights)
    squares, most = sum(weight * weight for weight in weights), max(weights)
    assert most * most <= squares <= most * whole  # in whole numbers: m^2 <= P <= m
    if len(set(weights)) == 1:
        assert squares == most * whole


def _agents() -> Iterator[list[float]]:
    """Distributions about the share that decides: what is left goes to one kind, to several, or to ever new ones."""
    for hundredths in (30, 49, 50, 60, 69, 70, 71, 80, 90, 95, 100):
        most = hundredths / 100
        for others in (1, 2, 5, 1000):
            if (1 - most) / others <= most:
                yield [most, *[(1 - most) / others] * others]


def _binomial(n: int, k: int, p: float) -> float:
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


@pytest.mark.parametrize("pairs", [1, 2, 11, 15, 40])
@pytest.mark.parametrize("lost", ["none", "different", "same"])
def test_a_verdict_is_wrong_as_often_as_it_says(pairs: int, lost: str) -> None:
    """Enumerated: 2.5 % at most on either side, also where an agent keeps its judge from saying one of the two."""
    for shares in _agents():
        chance = sum(share * share for share in shares)
        wrong = dict.fromkeys(("collapsed", "diverse"), 0.0)
        for same in range(pairs + 1):
            said = ["same"] * same + ["different"] * (pairs - same)
            found = verdict(*("unreadable" if each == lost else each for each in said))
            if found in wrong:
                wrong[found] += _binomial(pairs, same, min(1.0, chance))
        if shares[0] <= SHARE:
            assert wrong["collapsed"] <= ERROR, shares
        if shares[0] >= SHARE:
            assert wrong["diverse"] <= ERROR, shares


def test_verdicts_of_fifteen_pairs() -> None:
    """All the same, three, eight; one less of the first and one more of the second decide nothing."""
    for same, wanted in (
        (15, "collapsed"),
        (3, "diverse"),
        (8, "inconclusive"),
        (14, "inconclusive"),
        (4, "inconclusive"),
    ):
        assert verdict(*["same"] * same, *["different"] * (15 - same)) == wanted
    assert verdict(*["same"] * 10) == "inconclusive"
    assert verdict(*["same"] * 11) == "collapsed"


def test_a_pair_without_a_verdict_counts_against_either() -> None:
    """Undecided, unreadable, failed and never asked alike, each by its name; of none that is read nothing is known."""
    for lost in ("undecided", "unreadable", "failed", ""):
        assert verdict(*["same"] * 14, lost) == "inconclusive"
        assert verdict(*["different"] * 12, *["same"] * 3) == "diverse"
        assert verdict(*["different"] * 12, *["same"] * 3, lost, lost) == "inconclusive"
        found = by_judge(halves(*["same"] * 14, lost), SHARE, 0)
        assert (found["pairs"], found["same"], found["left_out"][lost or "not_asked"]) == (14, 14, 1)
        found = by_judge(halves(*[lost] * 15), SHARE, 0)
        assert (found["verdict"], found["pairs"]) == ("no_data", 0)
        assert found["collision_probability"] == {"value": None, "low": None, "high": None}


def test_answers_without_another() -> None:
    """None, one, an odd one, and those whose other is missing."""
    assert by_judge([], SHARE, 0)["verdict"] == "no_data"
    assert by_judge([PairHalf(0, "x")], SHARE, 0)["verdict"] == "no_repeats"
    found = by_judge([PairHalf(0, "x"), PairHalf(3, "y"), *halves("same")[1:]], SHARE, 0)
    assert (found["verdict"], found["left_out"]["unpaired"], found["pairs"]) == ("no_data", 1, 0)
    found = by_judge([*halves("same", "same"), PairHalf(4, "x")], SHARE, 0)
    assert (found["pairs"], found["left_out"]["unpaired"]) == (2, 1)


def test_pairs_of_two_inputs_are_of_their_own_texts() -> None:
    """A repeat in two inputs is two answers, and each first one is paired with the second that it was compared with."""
    both = [PairHalf(0, "x", "y", "same"), PairHalf(0, "v", "w", "different"), PairHalf(1, "w"), PairHalf(1, "y")]
    found = by_judge(both, SHARE, 0)
    assert (found["pairs"], found["same"], found["left_out"]["not_asked"]) == (2, 1, 0)
    found = by_judge([*both[:3], PairHalf(1, "changed")], SHARE, 0)
    assert (found["pairs"], found["same"], found["left_out"]["not_asked"]) == (1, 0, 1)


def test_where_a_case_could_stop_early_bounds_hold_at_every_look(tmp_path: Path) -> None:
    """So the same pairs decide later."""
    assert verdict(*["same"] * 11, planned=100) == "inconclusive"
    assert verdict(*["same"] * 40, planned=100) == "collapsed"
    lines = judged([line("a", at, "x", **stop_mark(100)) for at in range(22)], lambda _: True)
    found = section_of(tmp_path, lines)
    assert (found["verdict"], found["pairs"]) == ("inconclusive", 11)


ANSWERS = st.sampled_from(["yes", "no", ""])
LINES = st.lists(st.builds(line, st.just("a"), st.integers(0, 1100), ANSWERS) | st.just(b"{"), max_size=30)


@settings(max_examples=40, deadline=None)
@given(LINES, st.data())
def test_pairs_are_the_same_bytes_in_any_cut_and_order(chunk: list[bytes], data: st.DataObject) -> None:
    """A pair cut in two is one all the same."""
    lines = judged(chunk, lambda text: "yes" in text)
    assert counts(merged_anyhow(lines, PARAMS, data)) == counts(state_of(lines, PARAMS))


def test_a_judge_is_asked_about_each_pair_once() -> None:
    """Under the first answer's line; nothing about an odd one, a lost one, what is too long, a second, or too high."""
    stage = stage_of()
    long = "x" * 1_000_001
    lines = [
        *(line("a", 0, "one"), line("a", 1, "two"), line("a", 2, "three"), line("a", 3, error="timeout")),
        *(line("a", 4, "x"), line("a", 5, long), line("a", 6, "last"), line("a", 0, "other"), line("b", 0, "x")),
        *(line("a", MOST_REPEATS, "x"), line("a", MOST_REPEATS + 1, "x"), b"{"),
    ]
    assert not any(map(stage.questions, lines)), "nothing is compared before the others were seen"
    stage.prepare(lambda: lines)
    (asked,) = (question for each in lines for question in stage.questions(each))
    assert (asked.target, asked.repeats) == ("grader", 1)
    assert "\none\n" in asked.prompt.text
    assert "\ntwo\n" in asked.prompt.text
    assert "Say it." in asked.prompt.text
    assert dict(stage.count_questions(31)) == {("grader", 1): 15}
    assert list(stage.count_questions()) == [("grader", 1)]
    with pytest.raises(UsageError, match="needs a judge: name one with --judge"):
        stage_of(judge="").count_questions()
    assert not stage_of({**CASE, "diversity": {"by": "near"}}, "").count_questions()


def test_what_is_joined_is_what_is_read(tmp_path: Path) -> None:
    """A run that reuses this one takes the replies over; of a text that changed since, either of the two, nothing."""
    lines = [line("a", at, f"answer {at % 2}") for at in range(4)]
    found = judged(lines, lambda _: True)
    stage = stage_of()
    stage.prepare(lambda: found)
    assert [len(stage.recorded_replies(each)) for each in found] == [1, 0, 1, 0]
    assert judged(found, lambda _: True) == found
    assert section_of(tmp_path, found)["same"] == 2
    for changed in (0, 1):
        others = [*found]
        others[changed] = others[changed].replace(f'"answer {changed}"'.encode(), b'"changed"')
        assert others != found
        said = section_of(tmp_path, others)
        assert (said["same"], said["left_out"]["not_asked"]) == (1, 1)
        stage.prepare(lambda others=others: others)  # type: ignore[misc]  # bound now
        assert not stage.recorded_replies(others[0])


@pytest.mark.parametrize(
    ("same", "name"), [("yes", "unreadable"), (1, "unreadable"), (None, "undecided"), ([True], "unreadable")]
)
def test_a_reply_that_is_no_verdict_is_counted_by_name(tmp_path: Path, same: Any, name: str) -> None:
    """What a judge meant is not guessed."""
    found = section_of(tmp_path, judged([line("a", 0, "x"), line("a", 1, "y")], lambda _: same))
    assert (found["pairs"], found["left_out"][name]) == (0, 1)


def test_a_verdict_of_two_judges_or_under_another_marker_is_none(tmp_path: Path) -> None:
    """As for checks: who wrote the answers cannot write the verdict."""
    lines = judged([line("a", 0, "x"), line("a", 1, "y")], lambda _: True)
    record = json.loads(lines[0])
    (vote,) = record["judgements"]
    assert vote["marker"] != marker_of({})
    two = json.dumps({**record, "judgements": [vote, {**vote, "judge": "other"}]}).encode()
    assert section_of(tmp_path, [two, lines[1]])["left_out"]["unreadable"] == 1
    forged = json.dumps({**record, "judgements": [{**vote, "output": {"marker": "0" * 16, "same": True}}]}).encode()
    assert section_of(tmp_path, [forged, lines[1]])["left_out"]["unreadable"] == 1
    lost = json.dumps({**record, "judgements": [{**vote, "error": "timeout: late", "output": None}]}).encode()
    assert section_of(tmp_path, [lost, lines[1]])["pairs"] == 0


@pytest.mark.parametrize("by", ["text", "near", "embedding"])
def test_it_is_a_further_column_only(tmp_path: Path, by: str) -> None:
    """Every other number and verdict is what it is without a judge, and so are digests of params that have none."""
    lines = judged([line("a", at, f"This is answer number {at % 3}.") for at in range(30)], lambda _: False)
    plain = params_of([{**CASE, "diversity": {"by": by}}])
    assert '"judge"' not in json.dumps(plain.model_dump(mode="json"))
    paired = params_of([{**CASE, "diversity": {"by": by, "judge": True}}])
    assert paired.digest != plain.digest
    bare, more = (evaluated(tmp_path, lines, params).report["results"] for params in (plain, paired))
    found = more["diversity"]["by_case"][0].pop("by_judge")
    assert (found["verdict"], found["same"], found["pairs"]) == ("diverse", 0, 15)
    (judge,) = more.pop("judges")
    assert (judge["judge"], judge["votes"]["read"]) == ("grader", 15)
    assert more == bare


def test_a_report_shows_it_beside_the_verdict(tmp_path: Path) -> None:
    """With bounds, and what says nothing by name; no column where no case has a judge."""
    lines = judged([line("a", at, "x") for at in range(23)], lambda _: True)
    shown = diversity_markdown(evaluated(tmp_path, lines, PARAMS).report["results"])
    assert "| collapsed: 11 of 11 the same, 100.0 % (71.5 to 100.0) (1 unpaired) |" in shown
    assert "if the judge is right" in shown
    shown = diversity_markdown(
        evaluated(tmp_path, lines, params_of([{**CASE, "diversity": {"by": "near"}}])).report["results"]
    )
    assert "judge" not in shown
    assert PAIR.orders == 1


@pytest.mark.parametrize("given_", ["grader", "1", "null"])
def test_who_judges_is_not_said_there(tmp_path: Path, given_: str) -> None:
    """A name is the business of the command or the case: it is reported with its place."""
    path = tmp_path / "cases.yaml"
    path.write_text(f"cases: [{{id: a, checks: [{{min-length: 1}}], diversity: {{judge: {given_}}}}}]\n")
    with pytest.raises(ConfigError, match=r"diversity\.judge: must be true or false; name the judge with --judge"):
        load_cases([str(path)])
