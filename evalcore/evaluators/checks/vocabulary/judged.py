"""Checks that a judge decides: a target that is asked about each answer. They read what was recorded of its replies."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from evalq.evalcore.evaluators.checks.answer import LONGEST, Answer, Uncomputable, Unreadable, about, first_votes
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck, Finding, JudgeQuestion, Kind, Made
from evalq.evalcore.evaluators.checks.vocabulary.declaring import told as in_digits
from evalq.evalcore.evaluators.checks.vocabulary.text import Text, quoted
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.naming import shorten
from evalq.evalcore.records.prompts import REPLY, Asked, Task, written

# What a judge of a check is told to do.

_YES_OR_NO = f'{REPLY}"pass": true or false}}'

RUBRIC = Task(
    """You judge an answer that another program gave. Decide whether it meets the requirement, all of it.

The requirement:
{criterion}

What the program was asked:
{input}

Its answer:
{answer}
""",
    _YES_OR_NO,
    ("answer",),
    ("criterion", "input"),
)

FACTUAL = Task(
    """You compare an answer that another program gave with a reference that is known to be right. Decide whether the
answer agrees with it in substance: what it says of the facts in the reference is the same, and nothing in it
contradicts the reference. Its style, its length, and further details that do not contradict the reference do not count.

What the program was asked:
{input}

The reference:
{reference}

The answer:
{answer}
""",
    _YES_OR_NO,
    ("answer",),
    ("reference", "input"),
)

SCORE = Task(
    """You rate an answer that another program gave, on a scale from {from} (the least) to {to} (the most).

What is rated:
{criterion}

What the program was asked:
{input}

Its answer:
{answer}
""",
    REPLY + '"score": a number from {from} to {to}}',
    ("answer",),
    ("criterion", "input", "from", "to"),
)

PREFER = Task(
    """Two programs were asked the same. Decide which of their answers is better: more correct first, then more helpful.
The order in which they stand here says nothing.

What they were asked:
{input}

Answer A:
{first}

Answer B:
{second}
""",
    REPLY + '"better": "A" or "B" or "tie"}',
    ("first", "second"),
    ("input",),
)

SAME = Task(
    """A program was asked the same twice. Decide whether its two answers say the same thing. They do where whoever goes
by the one does, chooses and believes what whoever goes by the other does. Wording, order, length, language and
courtesy do not count. Another name, number, choice, side or day does, and so does a negation.

What it was asked:
{input}

Answer A:
{first}

Answer B:
{second}
""",
    REPLY + '"same": true or false, or null where that cannot be told}',
    ("first", "second"),
    ("input",),
)


_MOST_VOTES = 99
_BETTER = {"A": 0, "B": 1}
"""The order in which the answer stands at that letter."""
_HALF = 0.5
_WINNERS = {1.0: "the answer preferred", 0.0: "the other preferred", _HALF: "a tie"}

Votes = Annotated[int, msgspec.Meta(ge=1, le=_MOST_VOTES, description="how often the judge is asked; an odd number")]
JudgeName = Annotated[str, msgspec.Meta(description="the target that is asked; else that of `--judge`")]
Prompt = Annotated[str, msgspec.Meta(description="the judge's task; it replaces evalq's own words")]


class JudgeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Who judges, and how."""

    judge: JudgeName = ""
    votes: Votes = 1
    prompt: Prompt = ""


class ScoreOptions(JudgeOptions, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The scale."""

    least: Annotated[float, msgspec.Meta(description="the least of the scale")] = msgspec.field(
        default=1.0, name="from"
    )
    most: Annotated[float, msgspec.Meta(description="the most of the scale")] = msgspec.field(default=5.0, name="to")


class PreferOptions(JudgeOptions, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """What a tie is."""

    tie: Annotated[Literal["fails", "passes"], msgspec.Meta(description="what a tie does")] = "fails"


def _asked(
    name: str, value: Any, options: JudgeOptions, task: Task, texts: Mapping[str, str], read: Callable[[Any], Any]
) -> JudgeQuestion:
    """The question that a check of kind ``name`` asks, ``texts`` being those of its places that it has itself."""
    if options.votes % 2 == 0:
        raise BadCheck("must be odd, so that there is a majority", "votes")
    if options.prompt:
        task = _own(task, options.prompt)
    # Not by who judges, nor how often: replies that are recorded stay of use where only these change.
    told = canonical_json([name, value, options.prompt, sorted(texts.items())])
    two = "second" in task.needs

    def prompt(asked: str | None, answer: str, other: str, order: int) -> Asked:
        filled = dict(texts) if asked is None else {**texts, "input": asked}
        if two:
            pair = (answer, filled.pop("other", other))
            filled |= {"first": pair[order], "second": pair[1 - order]}
        else:
            filled["answer"] = answer
        return written(task, filled)

    key = f"{name}-{hashlib.sha256(told).hexdigest()[:12]}"
    return JudgeQuestion(key, options.judge, options.votes, 2 if two else 1, task.digest, prompt, read)


def _own(task: Task, text: str) -> Task:
    """``task`` in the words of a cases file. Raises BadCheck where the answer has no place in them."""
    for place in task.needs:
        if f"{{{place}}}" not in text:
            known = ", ".join(f"{{{name}}}" for name in (*task.needs, *task.may))
            raise BadCheck(f"needs the place {{{place}}}, where the answer goes (places: {known})", "prompt")
    return task._replace(text=text)


class _Ballot(NamedTuple):
    """The verdicts that can be read, for each order, and the reason that the first of them gave."""

    orders: list[list[Any]]
    reason: str


def _ballot(answer: Answer, asked: JudgeQuestion) -> _Ballot:
    """What was recorded of an answer. Raises Uncomputable where no majority of the votes can be read."""
    if len(answer.text) > LONGEST:
        raise Uncomputable(f"{len(answer.text):,} characters, too long to be judged")
    _refuse_none(answer, asked)
    votes = first_votes(answer.judgements, asked.key, about(answer.text), asked.judge)
    found, reason = [], ""
    for order in range(asked.orders):
        read, why = [], ""
        for number in range(asked.votes):
            vote = votes.get((order, number))
            try:
                if vote is None:
                    raise Unreadable("not asked")
                read.append(vote.read(asked.read))
                reason = reason or vote.reason
            except Unreadable as error:
                why = why or str(error)
        # Of all that were asked: a missing vote could have turned what those that can be read say (decision 22).
        if 2 * len(read) <= asked.votes:
            raise Uncomputable(_lacking(len(read), asked.votes, why))
        found.append(read)
    return _Ballot(found, reason)


def _refuse_none(answer: Answer, asked: JudgeQuestion) -> None:
    """Raise Uncomputable where nothing was judged, or by several judges of whom the check names none."""
    same = [vote for vote in answer.judgements if vote.check == asked.key]
    judges = sorted({vote.judge for vote in same if vote.about == about(answer.text)})
    # Where the check names none there has to be one alone: votes of two judges make no majority.
    if asked.judge in judges or (not asked.judge and len(judges) == 1):
        return
    told = shorten(", ".join(judges))
    if not judges:
        wanted = "--judge, and --against with an answer to this repeat" if asked.against else "--judge"
        raise Uncomputable("what was judged is another answer" if same else f"no judgement of it is recorded: {wanted}")
    if asked.judge:
        raise Uncomputable(f"judged by {told}, and the check names {shorten(asked.judge)}")
    raise Uncomputable(f"judged by several, {told}: let the check name its judge")


def _lacking(read: int, votes: int, why: str) -> str:
    return why if votes == 1 else f"{read} of {votes} votes can be read: {why}"


def _majority(votes: list[bool], of: int) -> tuple[bool, int]:
    """The verdict of more than half of all that were asked, and of how many: what is missing could not turn it."""
    verdict, count = Counter(votes).most_common(1)[0]
    if 2 * count <= of:
        raise Uncomputable(f"no majority: {count} of {of} votes agree, and {of - len(votes)} cannot be read")
    return verdict, count


def _pass_of(reply: dict[str, Any]) -> bool:
    verdict = reply.get("pass")
    # "yes" or 1 is no verdict: to guess what a judge meant would put words into its mouth (decision 22).
    if not isinstance(verdict, bool):
        raise Unreadable('no "pass" that is true or false')
    return verdict


def _passing(name: str, task: Task, place: str) -> Callable[[Any, JudgeOptions], Made]:
    def make(value: Any, options: JudgeOptions) -> Made:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        # A reference of null is a key that nobody filled in; encoded it would be the text "null".
        if not text or value is None:
            raise BadCheck("text is wanted", name)
        asked = _asked(name, value, options, task, {place: text}, _pass_of)

        def run(answer: Answer) -> Finding:
            ballot = _ballot(answer, asked)
            verdict, count = _majority(ballot.orders[0], asked.votes)
            return Finding(float(verdict), _told("pass" if verdict else "no pass", count, asked, ballot))

        return Made(quoted(text), run, asked=asked)

    return make


def _told(verdict: str, count: int, asked: JudgeQuestion, ballot: _Ballot) -> str:
    """The verdict, and the reason that was given for it."""
    votes = f" by {count} of {asked.votes} votes" if asked.votes > 1 else ""
    return f"{verdict}{votes}{f': {ballot.reason}' if ballot.reason else ''}"


def _score(value: str, options: ScoreOptions) -> Made:
    least, most = options.least, options.most
    # Its width, too: beyond all floats every score would be 0 of it.
    if not (math.isfinite(most - least) and least < most):
        raise BadCheck(f"the scale has to rise: from {least:g} to {most:g}", "to")
    lowest, highest = in_digits(least), in_digits(most)

    def read(reply: dict[str, Any]) -> float:
        score = reply.get("score")
        if isinstance(score, bool) or not isinstance(score, int | float) or not least <= score <= most:
            raise Unreadable(f'no "score" from {lowest} to {highest}')
        return float(score)

    def scaled(threshold: float) -> float:
        if not least <= threshold <= most:
            raise BadCheck(f"must be on the scale, from {lowest} to {highest}", "threshold")
        return (threshold - least) / (most - least)

    texts = {"criterion": value, "from": lowest, "to": highest}
    asked = _asked("score", value, options, SCORE, texts, read)

    def run(answer: Answer) -> Finding:
        ballot = _ballot(answer, asked)
        median = statistics.median(ballot.orders[0])
        return Finding(scaled(median), _told(f"{in_digits(median)} of {highest}", len(ballot.orders[0]), asked, ballot))

    return Made(f"{quoted(value)}, from {lowest} to {highest}", run, scaled=scaled, asked=asked)


def _better_of(reply: dict[str, Any]) -> str:
    better = reply.get("better")
    if better not in ("A", "B", "tie"):
        raise Unreadable('no "better" that is "A", "B" or "tie"')
    return str(better)


def _prefer(value: str | bool, options: PreferOptions) -> Made:
    if value is False:
        raise BadCheck("must be a text, or true for the answers of --against", "prefer")
    texts = {"other": value} if isinstance(value, str) else {}
    asked = _asked("prefer", value, options, PREFER, texts, _better_of)._replace(against=not texts)

    def run(answer: Answer) -> Finding:
        ballot = _ballot(answer, asked)
        won = [_winner(votes, asked.votes, order) for order, votes in enumerate(ballot.orders)]
        # A verdict that turns with the order is one on the order.
        if won[0] != won[1]:
            told, score = f"a tie: seen first {_WINNERS[won[0]]}, seen second {_WINNERS[won[1]]}", _HALF
        else:
            told, score = _WINNERS[won[0]], won[0]
        return Finding(score, _told(told, asked.votes, asked, ballot) if asked.votes == 1 else told)

    wanted = f"better than {quoted(value)}" if isinstance(value, str) else "better than the other run's answer"
    return Made(wanted, run, least=_HALF if options.tie == "passes" else 1.0, asked=asked)


def _winner(votes: list[str], of: int, order: int) -> float:
    """1 where the answer won in this order, 0 where the other did; verdicts of which none has a majority are a tie.

    Raises Uncomputable where votes that are missing could have made one of them win.
    """
    letter, most = max(((each, votes.count(each)) for each in _BETTER), key=lambda counted: counted[1])
    if 2 * most > of:
        return float(_BETTER[letter] == order)
    missing = of - len(votes)
    if 2 * (most + missing) > of:
        raise Uncomputable(f"no majority: {most} of {of} votes agree, and {missing} cannot be read")
    return _HALF


KINDS = (
    Kind(
        fallible=True,
        name="rubric",
        summary="A judge finds that the answer meets the requirement, all of it.",
        value=Text,
        options=JudgeOptions,
        make=_passing("rubric", RUBRIC, "criterion"),
        example={"rubric": "Apologises, and says when the parcel comes.", "votes": 3},
    ),
    Kind(
        fallible=True,
        name="factual",
        summary="A judge finds that the answer agrees in substance with the reference.",
        value=Any,
        options=JudgeOptions,
        make=_passing("factual", FACTUAL, "reference"),
        example={"factual": "Parcels within Korea take two days.", "judge": "grader"},
    ),
    Kind(
        fallible=True,
        name="score",
        summary="The score that a judge gives the answer on a scale, `threshold` in its units; of votes the median.",
        value=Text,
        options=ScoreOptions,
        make=_score,
        threshold=_HALF,
        example={"score": "How polite the answer is.", "from": 1, "to": 5, "threshold": 4},
    ),
    Kind(
        fallible=True,
        name="prefer",
        summary="A judge prefers the answer to a text, or (with true) to the one in `--against`. It is asked in both "
        "orders: verdicts that disagree are a tie.",
        value=Text | bool,
        options=PreferOptions,
        make=_prefer,
        example={"prefer": "It will arrive at some point.", "tie": "passes"},
    ),
)
