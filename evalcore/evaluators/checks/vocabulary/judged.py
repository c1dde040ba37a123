"""Checks that a judge decides, a target that evalq calls for each answer. They read its recorded replies."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from evalq.evalcore.evaluators.checks.answer import (
    LONGEST,
    CheckedAnswer,
    Uncomputable,
    Unreadable,
    first_votes,
    text_digest,
)
from evalq.evalcore.evaluators.checks.vocabulary.declaring import (
    BadCheck,
    Finding,
    JudgeQuestion,
    Kind,
    Made,
    format_number,
)
from evalq.evalcore.evaluators.checks.vocabulary.text import Text, quoted
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.naming import shorten
from evalq.evalcore.records.prompts import REPLY, Asked, Task, marker_of, written

# The judges' tasks. Recorded judgements hold digests of these texts.

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

_WHOLE = """You judge a conversation between a user and another program, which may call tools. Decide whether what the
program said and did meets the requirement, all of it.

The requirement:
{criterion}

The conversation, a message in each line of JSON, the oldest first:
{conversation}
"""
_WHOLE_SCORE = """You rate what a program said and did in a conversation with a user. The scale is from {from} (the
least) to {to} (the most). The program may call tools.

What is rated:
{criterion}

The conversation, a message in each line of JSON, the oldest first:
{conversation}
"""
CONVERSATIONS = {
    "rubric": RUBRIC._replace(text=_WHOLE, needs=("conversation",)),
    "score": SCORE._replace(text=_WHOLE_SCORE, needs=("conversation",)),
}
"""The tasks about whole conversations."""

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
"""The order that puts the answer at that letter."""
_HALF = 0.5
_WINNERS = {1.0: "the answer preferred", 0.0: "the other preferred", _HALF: "a tie"}

Votes = Annotated[int, msgspec.Meta(ge=1, le=_MOST_VOTES, description="how often evalq asks the judge; an odd number")]
JudgeName = Annotated[str, msgspec.Meta(description="the target that judges; by default that of `--judge`")]
Prompt = Annotated[str, msgspec.Meta(description="the judge's task, instead of evalq's text")]


class JudgeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The options of checks that a judge decides."""

    judge: JudgeName = ""
    votes: Votes = 1
    prompt: Prompt = ""


class WholeOptions(JudgeOptions, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """What the judge gets."""

    of: Annotated[
        Literal["answer", "conversation"],
        msgspec.Meta(description="what the judge gets: the answer, or all messages with tool calls and results"),
    ] = "answer"


class ScoreOptions(WholeOptions, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The options of a score."""

    least: Annotated[float, msgspec.Meta(description="the least of the scale")] = msgspec.field(
        default=1.0, name="from"
    )
    most: Annotated[float, msgspec.Meta(description="the most of the scale")] = msgspec.field(default=5.0, name="to")


class PreferOptions(JudgeOptions, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The options of a preference."""

    tie: Annotated[Literal["fails", "passes"], msgspec.Meta(description="what a tie does")] = "fails"


def _question_of(
    name: str, value: Any, options: JudgeOptions, task: Task, texts: Mapping[str, str], read: Callable[[Any], Any]
) -> JudgeQuestion:
    """The question of a check of kind ``name``; ``texts`` fill the slots that do not depend on the answer."""
    if options.votes % 2 == 0:
        raise BadCheck("must be odd, so that there is a majority", "votes")
    if getattr(options, "of", "answer") == "conversation":
        task = CONVERSATIONS[name]
    if options.prompt:
        task = _custom_task(task, options.prompt)
    # Without the judge and the number of votes: recorded replies stay valid if only these change.
    content = [name, value, options.prompt, sorted(texts.items())]
    of: Literal["answer", "conversation"] = getattr(options, "of", "answer")
    key_content = canonical_json(content if of == "answer" else [*content, of])
    compares = "second" in task.needs

    def prompt(program_input: str | None, answer: str, other: str, order: int) -> Asked:
        filled = dict(texts) if program_input is None else {**texts, "input": program_input}
        if compares:
            pair = (answer, filled.pop("other", other))
            filled |= {"first": pair[order], "second": pair[1 - order]}
        else:
            filled[of] = answer
        return written(task, filled)

    key = f"{name}-{hashlib.sha256(key_content).hexdigest()[:12]}"
    orders = 2 if compares else 1
    return JudgeQuestion(key, options.judge, options.votes, orders, task.digest, prompt, read, of=of)


def _custom_task(task: Task, text: str) -> Task:
    """``task`` with the text of a cases file. Raises BadCheck if the text lacks a placeholder for the answer."""
    for slot in task.needs:
        if f"{{{slot}}}" not in text:
            known = ", ".join(f"{{{name}}}" for name in (*task.needs, *task.may))
            raise BadCheck(f"needs the placeholder {{{slot}}} for the answer (placeholders: {known})", "prompt")
    return task._replace(text=text)


class _Ballot(NamedTuple):
    """The readable verdicts for each order, and the first reason given."""

    orders: list[list[Any]]
    reason: str


def _read_ballot(answer: CheckedAnswer, question: JudgeQuestion) -> _Ballot:
    """The recorded verdicts on an answer.

    Raises Uncomputable if no majority of the votes is readable, and Unfit for an answer without a text.
    """
    if len(answer.said) > LONGEST:
        raise Uncomputable(f"{len(answer.text):,} characters, too long to be judged")
    _require_one_judge(answer, question)
    votes = first_votes(answer.judgements, question.key, text_digest(answer.text), question.judge)
    orders, reason = [], ""
    for order in range(question.orders):
        verdicts, why = [], ""
        for number in range(question.votes):
            vote = votes.get((order, number))
            try:
                if vote is None:
                    raise Unreadable("not asked")
                verdicts.append(vote.read(question.read))
                reason = reason or vote.reason
            except Unreadable as error:
                why = why or str(error)
        # More than half of all votes: a missing vote could have changed the majority (decision 22).
        if 2 * len(verdicts) <= question.votes:
            raise Uncomputable(_why_no_majority(len(verdicts), question.votes, why))
        orders.append(verdicts)
    return _Ballot(orders, reason)


def _require_one_judge(answer: CheckedAnswer, question: JudgeQuestion) -> None:
    """Raise Uncomputable if nobody judged the answer, or several judges did and the check names none."""
    same = [vote for vote in answer.judgements if vote.check == question.key]
    judges = sorted({vote.judge for vote in same if vote.about == text_digest(answer.text)})
    # Without a name there must be one judge: votes of two judges make no majority.
    if question.judge in judges or (not question.judge and len(judges) == 1):
        return
    judge_names = shorten(", ".join(judges))
    if not judges:
        if question.of == "record":
            raise Uncomputable(f"{shorten(question.judge)} was not asked about it: --judge {shorten(question.judge)}")
        wanted = "--judge, and --against with an answer to this repeat" if question.against else "--judge"
        raise Uncomputable("what was judged is another answer" if same else f"no judgement of it is recorded: {wanted}")
    if question.judge:
        raise Uncomputable(f"judged by {judge_names}, and the check names {shorten(question.judge)}")
    raise Uncomputable(f"judged by several, {judge_names}: let the check name its judge")


def _why_no_majority(read: int, votes: int, why: str) -> str:
    return why if votes == 1 else f"{read} of {votes} votes can be read: {why}"


def _majority(votes: list[bool], of: int) -> tuple[bool, int]:
    """The verdict of more than half of ``of`` votes, and its count: missing votes could not change it."""
    verdict, count = Counter(votes).most_common(1)[0]
    if 2 * count <= of:
        raise Uncomputable(f"no majority: {count} of {of} votes agree, and {of - len(votes)} cannot be read")
    return verdict, count


def _pass_of(reply: dict[str, Any]) -> bool:
    verdict = reply.get("pass")
    # "yes" or 1 is not a verdict: evalq does not guess what a judge meant (decision 22).
    if not isinstance(verdict, bool):
        raise Unreadable('no "pass" that is true or false')
    return verdict


def _passing(name: str, task: Task, slot: str) -> Callable[[Any, JudgeOptions], Made]:
    def make(value: Any, options: JudgeOptions) -> Made:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        # A reference of null is an empty key; its JSON would be the text "null".
        if not text or value is None:
            raise BadCheck("text is wanted", name)
        question = _question_of(name, value, options, task, {slot: text}, _pass_of)

        def run(answer: CheckedAnswer) -> Finding:
            ballot = _read_ballot(answer, question)
            verdict, count = _majority(ballot.orders[0], question.votes)
            return Finding(float(verdict), _describe("pass" if verdict else "no pass", count, question, ballot))

        return Made(quoted(text), run, question=question)

    return make


def _describe(verdict: str, count: int, question: JudgeQuestion, ballot: _Ballot) -> str:
    """The verdict with its reason."""
    votes = f" by {count} of {question.votes} votes" if question.votes > 1 else ""
    return f"{verdict}{votes}{f': {ballot.reason}' if ballot.reason else ''}"


def _score(value: str, options: ScoreOptions) -> Made:
    least, most = options.least, options.most
    # The width must be finite, too, or every score would be 0 of it.
    if not (math.isfinite(most - least) and least < most):
        raise BadCheck(f"the scale must rise by a finite width: from {least:g} to {most:g}", "to")
    lowest, highest = format_number(least), format_number(most)

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
    question = _question_of("score", value, options, SCORE, texts, read)

    def run(answer: CheckedAnswer) -> Finding:
        ballot = _read_ballot(answer, question)
        median = statistics.median(ballot.orders[0])
        return Finding(
            scaled(median), _describe(f"{format_number(median)} of {highest}", len(ballot.orders[0]), question, ballot)
        )

    return Made(f"{quoted(value)}, from {lowest} to {highest}", run, scaled=scaled, question=question)


def _better_of(reply: dict[str, Any]) -> str:
    better = reply.get("better")
    if better not in ("A", "B", "tie"):
        raise Unreadable('no "better" that is "A", "B" or "tie"')
    return str(better)


def _prefer(value: str | bool, options: PreferOptions) -> Made:
    if value is False:
        raise BadCheck("must be a text, or true for the answers of --against", "prefer")
    texts = {"other": value} if isinstance(value, str) else {}
    question = _question_of("prefer", value, options, PREFER, texts, _better_of)._replace(against=not texts)

    def run(answer: CheckedAnswer) -> Finding:
        ballot = _read_ballot(answer, question)
        won = [_winner(votes, question.votes, order) for order, votes in enumerate(ballot.orders)]
        # A verdict that changes with the order is about the order.
        if won[0] != won[1]:
            verdict, score = f"a tie: seen first {_WINNERS[won[0]]}, seen second {_WINNERS[won[1]]}", _HALF
        else:
            verdict, score = _WINNERS[won[0]], won[0]
        return Finding(score, _describe(verdict, question.votes, question, ballot) if question.votes == 1 else verdict)

    wanted = f"better than {quoted(value)}" if isinstance(value, str) else "better than the other run's answer"
    return Made(wanted, run, least=_HALF if options.tie == "passes" else 1.0, question=question)


def _winner(votes: list[str], of: int, order: int) -> float:
    """1 if the answer won in this order, 0 if the other did; a tie if neither has a majority.

    Raises Uncomputable if missing votes could have given one of them a majority.
    """
    letter, most = max(((each, votes.count(each)) for each in _BETTER), key=lambda counted: counted[1])
    if 2 * most > of:
        return float(_BETTER[letter] == order)
    missing = of - len(votes)
    if 2 * (most + missing) > of:
        raise Uncomputable(f"no majority: {most} of {of} votes agree, and {missing} cannot be read")
    return _HALF


# The state that an agent leaves, which a program of the team looks at: a target by its name, as a judge is.

TargetName = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_STATE = "a program gets the record and looks at what is left; its reply has pass and reason"


class StateOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """What the program gets beside the record."""

    expect: Annotated[Any, msgspec.Meta(description="what it is to find, as it understands it")] = msgspec.UNSET


def _state(value: str, options: StateOptions) -> Made:
    given = {} if options.expect is msgspec.UNSET else {"expect": options.expect}
    key = hashlib.sha256(canonical_json([value, given])).hexdigest()[:12]

    def prompt(program_input: str | None, record: str, other: str, order: int) -> Asked:
        asked = {} if program_input is None else {"input": program_input}
        whole = {**given, **asked, "record": msgspec.Raw(record.encode())}
        text = msgspec.json.encode(whole).decode()
        marker = marker_of({"whole": text})
        return Asked(f'{{"marker": "{marker}", {text[1:]}', marker)

    digest = hashlib.sha256(_STATE.encode()).hexdigest()[:16]
    question = JudgeQuestion(f"state-{key}", value, 1, 1, digest, prompt, _pass_of, of="record")

    def run(answer: CheckedAnswer) -> Finding:
        ballot = _read_ballot(answer, question)
        verdict, count = _majority(ballot.orders[0], 1)
        return Finding(float(verdict), _describe("as wanted" if verdict else "not as wanted", count, question, ballot))

    wanted = "" if options.expect is msgspec.UNSET else f": {msgspec.json.encode(options.expect).decode()}"
    return Made(f"{value} finds what is left as wanted{wanted}", run, question=question)


KINDS = (
    Kind(
        fallible=True,
        name="rubric",
        summary="A judge finds that the answer meets the requirement, all of it.",
        value=Text,
        options=WholeOptions,
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
        summary="A judge scores the answer on a scale, with `threshold` in its units. The median vote counts.",
        value=Text,
        options=ScoreOptions,
        make=_score,
        threshold=_HALF,
        example={"score": "How polite the answer is.", "from": 1, "to": 5, "threshold": 4},
    ),
    Kind(
        fallible=True,
        name="prefer",
        summary="A judge prefers the answer to a text, or (with true) to the one in `--against`. evalq asks in "
        "both orders: verdicts that disagree are a tie.",
        value=Text | bool,
        options=PreferOptions,
        make=_prefer,
        example={"prefer": "It will arrive at some point.", "tie": "passes"},
    ),
    Kind(
        name="state",
        summary="A program of yours, a target by its name, finds what the agent left (a database, files) as wanted.",
        value=TargetName,
        options=StateOptions,
        make=_state,
        example={"state": "shop-database", "expect": {"orders": 1}},
    ),
)
