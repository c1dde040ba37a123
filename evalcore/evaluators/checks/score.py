"""Judging one line of recorded outputs: which case it is of, what its checks found, whether it passes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.answer import Answer, Usage
from evalq.evalcore.evaluators.checks.compiling import Check, Verdict, compile_check, weighted
from evalq.evalcore.evaluators.checks.diversity.texts import kind_of_text, normal
from evalq.evalcore.evaluators.checks.params import Case, ChecksParams, Diversity, diversity_of
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.naming import found, kind_of, shorten
from evalq.evalcore.records.decoding import Malformed, decode, repeated_keys
from evalq.evalcore.records.stop_note import stop_of

__all__ = ["Judge", "Judgement", "Plan", "judge_for"]

_MOST_REPEATS = 2**53
_KEYS = frozenset(
    (
        *("case", "repeat", "output", "error", "text", "tool_calls", "attempts", "stop", "stop.rule", "stop.of"),
        *("latency_seconds", "cost", "prompt_tokens", "completion_tokens"),
    )
)
_TOKENS = ("prompt_tokens", "completion_tokens")


class Plan(msgspec.Struct, frozen=True):
    """A case made ready: its place among the cases, whether the selection leaves it out, and how kinds are counted."""

    index: int
    case: Case
    checks: tuple[Check, ...]
    skipped: bool
    diversity: Diversity | None = None


class Judgement(msgspec.Struct, frozen=True):
    """One line judged. ``status`` is passed, failed, error or skipped; ``plan`` is None when its case is not known.

    ``score`` is there for passed and failed ones; ``checks`` wherever there was an answer. ``planned`` is how many
    calls its case was to get where it could stop early, else 0. ``kind`` is what its answer counts as, where answers
    are counted by kind and this one has a verdict.
    """

    status: str
    reason: str = ""
    plan: Plan | None = None
    repeat: int | None = None
    score: float | None = None
    checks: tuple[Verdict, ...] = ()
    usage: Usage = Usage()
    text: str = ""
    planned: int = 0
    kind: bytes = b""


class _Misplaced(ValueError):
    """A key of the line holds what it cannot hold."""


class Judge:
    """Judges lines by one set of params; made once by `judge_for`, and the same for any line in any order."""

    def __init__(self, params: ChecksParams) -> None:
        self._cases = {case.id: (index, case) for index, case in enumerate(params.cases)}
        self._tag = params.tag
        self._params = params
        self._plans: dict[str, Plan] = {}
        self._compiled: dict[bytes, Check] = {}

    def plan(self, case: str) -> Plan | None:
        """The case of that id made ready, when it is first asked for; None where there is none."""
        known = self._plans.get(case)
        if known is None and case in self._cases:
            index, given = self._cases[case]
            skipped = bool(self._tag) and self._tag not in given.tags
            checks = () if skipped else tuple(self._check(written, given) for written in given.checks)
            known = self._plans[case] = Plan(index, given, checks, skipped, diversity_of(given, self._params))
        return known

    def _check(self, written: Mapping[str, Any], case: Case) -> Check:
        # Templates give many cases the same check, and a pattern takes long to compile.
        key = canonical_json(dict(written))
        if key not in self._compiled:
            try:
                # As it is written there: the order of keys shows in messages, and differs by the way params came.
                self._compiled[key] = compile_check(msgspec.json.decode(key))
            except BadCheck as error:
                where = f".{error.path}" if error.path else ""
                raise ConfigError(f"case {case.id}: {key.decode()}{where}: {error}") from None
        return self._compiled[key]

    def test(self, data: bytes) -> Judgement:
        """The judgement of one line, whatever its bytes are."""
        try:
            record = decode(data)
        except Malformed as error:
            return Judgement("error", str(error))
        if not isinstance(record, dict):
            return Judgement("error", f"the line is {kind_of(record)}, not an object with case, repeat and output")
        plan, repeat, problem = self._addressed(record)
        # Before any other fault: what the selection leaves out is not judged.
        if plan is not None and plan.skipped:
            return Judgement("skipped", plan=plan, repeat=repeat)
        # Decoders differ in which of two values they keep, so what is given twice says nothing.
        unclear = [path for path in repeated_keys(data, record) if path in _KEYS]
        if unclear and not problem:
            problem = f"{unclear[0]}: the key is given more than once"
        planned, misplanned = stop_of(record)
        problem = problem or misplanned
        if plan is None or problem:
            return Judgement("error", problem, plan, repeat)
        try:
            return self._judged(record, plan, repeat, planned)
        except _Misplaced as error:
            return Judgement("error", str(error), plan, repeat, planned=planned)

    def case(self, data: bytes) -> str:
        """The case that the judgement of a line will be about; empty where it is about none."""
        try:
            record = decode(data)
        except Malformed:
            return ""
        plan = self._addressed(record)[0] if isinstance(record, dict) else None
        return plan.case.id if plan is not None and not plan.skipped else ""

    def _addressed(self, record: dict[str, Any]) -> tuple[Plan | None, int | None, str]:
        """Which case and repeat a line is of, and what is wrong with the address."""
        case, repeat = record.get("case"), record.get("repeat", 0)
        whole = type(repeat) is int and 0 <= repeat < _MOST_REPEATS
        if not isinstance(case, str):
            return None, None, f"case: {found(record, 'case')} where the id of a case is wanted"
        plan = self.plan(case)
        if plan is None:
            return None, repeat if whole else None, f"case: {shorten(case)!r} is none of the cases"
        if not whole:
            return plan, None, f"repeat: {found(record, 'repeat')} where a whole number from 0 is wanted"
        return plan, repeat, ""

    def _judged(self, record: dict[str, Any], plan: Plan, repeat: int | None, planned: int) -> Judgement:
        usage = _usage(record)
        if "error" in record or "output" not in record:
            return Judgement("error", _no_output(record), plan, repeat, usage=usage, planned=planned)
        text = record.get("text")
        if text is not None and not isinstance(text, str):
            raise _Misplaced(f"text: {kind_of(text)} where a string is wanted")
        answer = Answer(record["output"], text, usage, record.get("tool_calls"))
        verdicts = tuple(check.judge(answer) for check in plan.checks)
        wrong = next((each for each in verdicts if each.passed is None and each.weight), None)
        if wrong is not None:
            status, score, reason = "error", None, f"{wrong.name}: {wrong.error}"
        else:
            status, score, reason = _passed(verdicts, plan.case.thresholds.score)
        counted = plan.diversity is not None and score is not None
        kind = kind_of_text(normal(answer.text)) if counted else b""
        return Judgement(status, reason, plan, repeat, score, verdicts, usage, answer.text, planned, kind)


def _passed(verdicts: tuple[Verdict, ...], least: float | None) -> tuple[str, float, str]:
    """(passed or failed, score, why it failed) where all checks that count were computed."""
    counted = [verdict for verdict in verdicts if verdict.passed is not None]
    score = weighted(counted)
    failed = [verdict for verdict in counted if not verdict.passed and verdict.weight]
    if least is None:
        fine, why = not failed, ""
    else:
        # As decimals: a mean of .1 and .2 must not miss .15 by the last bit.
        fine, why = round(score, 12) >= round(least, 12), f"score {score:.3g} below {least:g}; "
    if fine:
        return "passed", score, ""
    first = failed[0] if failed else None
    reason = f"{first.name}: wanted {first.wanted}, found {first.found}" if first else ""
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    return "failed", score, f"{why}{reason}{more}"


def _no_output(record: dict[str, Any]) -> str:
    """Why a line has no output; a recorder may have left its reason under ``error``."""
    if isinstance(record.get("error"), str):
        return f"no output: {shorten(record['error'], 200)}"
    return "output: missing" if "error" not in record else f"error: {kind_of(record['error'])} where a string is wanted"


def _usage(record: dict[str, Any]) -> Usage:
    """What the line says that its output took: by its own keys, else by its attempts. Raises _Misplaced."""
    cost, latency = (_amount(record, key, "") for key in ("cost", "latency_seconds"))
    prompt, completion = (_count(record, key, "") for key in _TOKENS)
    attempts = record.get("attempts")
    if not attempts:
        return Usage(latency, cost, prompt, completion)
    if not isinstance(attempts, list):
        raise _Misplaced(f"attempts: {kind_of(attempts)} where a list is wanted")
    costs, prompts, completions = [], [], []
    last: float | None = None
    for index, attempt in enumerate(attempts):
        where = f"attempts[{index}]"
        if not isinstance(attempt, dict):
            raise _Misplaced(f"{where}: {kind_of(attempt)} where an object is wanted")
        last = _amount(attempt, "latency_seconds", f"{where}.")
        costs.append(_amount(attempt, "cost", f"{where}."))
        prompts.append(_count(attempt, "prompt_tokens", f"{where}."))
        completions.append(_count(attempt, "completion_tokens", f"{where}."))
    return Usage(
        latency if latency is not None else last,
        cost if cost is not None else _sum(costs),
        prompt if prompt is not None else _sum(prompts),
        completion if completion is not None else _sum(completions),
    )


def _sum(values: list[Any]) -> Any:
    """Of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _amount(holder: dict[str, Any], key: str, where: str) -> float | None:
    value = holder.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < 1e15 or not math.isfinite(value):
        raise _Misplaced(f"{where}{key}: {found(holder, key)} where a number from 0 is wanted")
    return float(value)


def _count(holder: dict[str, Any], key: str, where: str) -> int | None:
    value = holder.get(key)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 1e15:
        raise _Misplaced(f"{where}{key}: {found(holder, key)} where a whole number from 0 is wanted")
    return value


@lru_cache(maxsize=16)
def judge_for(params: ChecksParams) -> Judge:
    """The judge of ``params``, kept for the next chunk."""
    return Judge(params)
