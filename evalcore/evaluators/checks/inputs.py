"""Requests: cases files become params and prompts, recorded outputs become inputs, and decided cases stop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.contract.params import validate
from evalq.evalcore.contract.repeats import CaseSoFar, StoppingByCase
from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.evaluators.checks.cases import ExpandedCase, load_cases, load_labels
from evalq.evalcore.evaluators.checks.diversity.kinds import MOST_REPEATS
from evalq.evalcore.evaluators.checks.diversity.near import NearKinds
from evalq.evalcore.evaluators.checks.diversity.report import without_doubt
from evalq.evalcore.evaluators.checks.params import ChecksParams, Diversity, diversity_of, thresholds_of
from evalq.evalcore.evaluators.checks.report import Demand
from evalq.evalcore.evaluators.checks.score import ScoredOutput, scorer_for
from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.naming import shorten
from evalq.evalcore.records.inputs import require_distinct
from evalq.evalcore.records.json_values import Malformed, decode
from evalq.evalcore.statistics.diversity import share_rule

# Which cases of a sweep are decided, as its outputs arrive: what `--stop when-decided` asks before each further
# call.
# It judges lines as the report does, so what it says of the lines it was fed is the verdict of their report.


class _CaseProgress(CaseSoFar):
    """How many outputs had a verdict, how many of them passed, and how many were of which kind."""

    def __init__(self, params: ChecksParams) -> None:
        super().__init__()
        self._params = params
        self._passed = self._answers = 0
        self._kinds: NearKinds | None = None

    def count(self, test: ScoredOutput) -> None:
        if test.plan is None:
            return
        self._answers += 1
        self._passed += test.status == "passed"
        case = test.plan.case
        demands = [
            Demand(case.id, each, self._passed, self._answers, self.planned)
            for each in thresholds_of(case, self._params)
        ]
        settled = [demand.verdict in ("holds", "fails") for demand in demands]
        if test.plan.diversity is not None:
            settled.append(self._one_kind(test, test.plan.diversity))
        self.decided = bool(settled) and all(settled)

    def _one_kind(self, test: ScoredOutput, how: Diversity) -> bool:
        """Whether it is known that the answers collapsed, or did not."""
        kinds = self._kinds = self._kinds or NearKinds(how.similarity)
        if test.mark.text and test.repeat is not None and test.repeat < MOST_REPEATS:
            kinds.add(test.mark.text, test.mark.likeness)
        if kinds.answers < 2:
            return False  # a single answer repeats nothing
        said = share_rule(self.planned).verdict(kinds.mode, kinds.answers, how.collapse_share)
        # Another answer may join kinds that were two, so that nearness alone never shows an end of diversity.
        if how.by == "near":
            return said == "collapsed" and without_doubt(said, kinds, share_rule(self.planned), how)
        return said in ("collapsed", "diverse")


def stopping_for(params: ChecksParams) -> StoppingByCase:
    """Decides each case when each of its thresholds holds or fails, and its answers are collapsed or diverse.

    The chance that either verdict of one of them is ever wrong is ALPHA at most, however often one asks.
    """
    judge = scorer_for(params)

    def judged(line: bytes) -> ScoredOutput | None:
        test = judge.test(line)
        return None if test.plan is None or test.repeat is None or test.score is None else test

    return StoppingByCase(judged, lambda: _CaseProgress(params))


_USE = "evalq checks CASES... --outputs FILE.jsonl|FOLDER | --target NAME --repeat N"
# These endings alone: v1.5 may be a case's whole name.
_ENDING = re.compile(r"\.(?:json|txt|md)\Z")


def complete(asked: Request) -> Request:
    """``asked`` with its cases in params and its recorded outputs as inputs. Raises UsageError, ConfigError."""
    outputs = [str(path) for path in asked.options.get("outputs") or ()]
    for name in ("judge", "embedder"):
        if asked.options.get(name):
            raise UsageError(f"--{name} asks a target, which takes a sweep: from Python it is evalq.sweep")
    if asked.options.get("against"):
        raise UsageError(
            "--against is compared with by a judge, and none is asked: add --judge NAME; or omit it, and judgements "
            "that are recorded count as they are"
        )
    if not outputs and asked.params.get("cases"):
        return asked  # params that hold the cases already: the inputs are recorded outputs
    if not outputs:
        raise UsageError(f"checks needs recorded outputs or a target: {_USE}")
    require_distinct(outputs)
    params, _ = _with_cases(asked)
    if labels := asked.options.get("labels"):
        # One label would count for two outputs of which a person saw one.
        if len(outputs) > 1:
            raise UsageError("--labels names outputs by case and repeat, which several --outputs may have: give one")
        params["labels"] = load_labels(str(labels))
    return Request(inputs=outputs, params=params, options=asked.options)


def prompts(asked: Request) -> Iterator[Prompt]:
    """A prompt for each selected case: its input as text, a chat as messages, too. Raises UsageError, ConfigError."""
    if asked.options.get("outputs"):
        raise UsageError("--outputs are evaluated, a --target is called: give one of them")
    if asked.options.get("labels"):
        raise UsageError("--labels are of recorded --outputs: nobody has seen yet what a --target will answer")
    _, params, loaded = selected(asked)
    inputs = {case.params["id"]: case for case in loaded}
    chosen = [inputs[case.id] for case in params.selected()]
    if lacking := [case.params["id"] for case in chosen if case.input in (None, "")]:
        more = f" and {len(lacking) - 10} more" if len(lacking) > 10 else ""
        raise ConfigError(f"cases without an input cannot be called: {', '.join(lacking[:10])}{more}")
    for case in chosen:
        asks = case.input if isinstance(case.input, str) else msgspec.json.encode(case.input).decode()
        messages = tuple(case.input) if isinstance(case.input, list) else ()
        yield Prompt(case.params["id"], "", asks, messages)


def answered(asked: Request, outputs: Path, folder: Path) -> Request:
    """The request that ``--outputs`` would make of the recorded answers; nothing is written into ``folder``."""
    # Whom the sweep asked has answered: what they said is in the lines, and evaluating asks nobody.
    options = {**asked.options, "outputs": (str(outputs),), **dict.fromkeys(("judge", "against", "embedder"))}
    return Request(asked.inputs, asked.params, options)


def stopping(asked: Request) -> StoppingByCase | None:
    """What says which cases are decided; None where none has a threshold, nor its answers counted by kind.

    Raises UsageError, ConfigError.
    """
    params = selected(asked)[1]
    judge = scorer_for(params)
    wanted = [case for case in params.selected() if thresholds_of(case, params) or diversity_of(case, params)]
    for case in wanted:
        plan = judge.plan(case.id)
        if plan is not None and any(check.weight and any(check.judge_questions()) for check in plan.checks):
            raise UsageError(
                f"--stop when-decided: a judge decides case {shorten(case.id)}, and is asked once all calls are made; "
                "omit it, or give checks of judges the weight 0"
            )
        if plan is not None and plan.diversity is not None and plan.diversity.by == "embedding":
            raise UsageError(
                f"--stop when-decided: kinds of answers to case {shorten(case.id)} are told by an embedder, which is "
                "asked once all calls are made; omit it, or count them by text or near"
            )
    return stopping_for(params) if wanted else None


def selected(asked: Request) -> tuple[dict[str, Any], ChecksParams, list[ExpandedCase]]:
    """Params with the cases, plain and validated, and the cases with their inputs. Raises UsageError, ConfigError."""
    params, loaded = _with_cases(asked)
    return params, validate(ChecksParams, params, "params"), loaded


def _with_cases(asked: Request) -> tuple[dict[str, Any], list[ExpandedCase]]:
    """Params with the cases, plain, and the cases with their inputs. Raises UsageError, ConfigError."""
    if not asked.inputs:
        raise UsageError(f"checks needs a cases file: {_USE}")
    loaded = load_cases(asked.inputs)
    # Without the cases, which were held to more than that as they were read, and may be a million.
    tag = validate(ChecksParams, {**asked.params, "cases": []}, "params").tag
    if tag and not any(tag in case.params["tags"] for case in loaded):
        raise UsageError(f"no case has the tag {tag!r}")
    return {**asked.params, "cases": [case.params for case in loaded]}, loaded


def output_line(name: str, data: bytes) -> bytes:
    """The content of the file ``name`` as one line ``{"named", "output"}``.

    A .json file holds an object with ``case`` and ``output``, or the output alone; a text file the output. Which case
    and repeat the name means is found by who knows the cases. One that cannot be read becomes a line with an ``error``.
    """
    head = msgspec.json.encode({"named": _ENDING.sub("", name)})
    try:
        if not name.endswith(".json"):
            return head[:-1] + b',"output":' + msgspec.json.encode(data.decode()) + b"}"
        content = decode(data)
    except (Malformed, UnicodeDecodeError) as error:
        return head[:-1] + b',"error":' + msgspec.json.encode(str(error)) + b"}"
    # Reformatted without decoding: numbers, escapes and repeated keys stay as the agent wrote them.
    compact = msgspec.json.format(data, indent=-1)
    if isinstance(content, dict) and "case" in content and ("output" in content or "error" in content):
        return compact
    return head[:-1] + b',"output":' + compact + b"}"
