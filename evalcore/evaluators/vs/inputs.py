"""Turn golden set and registry into params, and cases into prompts; stop decided cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.contract.params import validate
from evalq.evalcore.contract.repeats import CaseSoFar, StoppingByCase
from evalq.evalcore.errors import UsageError
from evalq.evalcore.evaluators.vs.collapse import normalize
from evalq.evalcore.evaluators.vs.golden import load_golden, load_inputs
from evalq.evalcore.evaluators.vs.params import VsParams, load_agents
from evalq.evalcore.evaluators.vs.score import OutputTest, judge_for
from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.records.foreign import refuse_foreign
from evalq.evalcore.records.inputs import require_distinct
from evalq.evalcore.records.json_values import Malformed, decode
from evalq.evalcore.records.layouts import Kind
from evalq.evalcore.statistics.mode_share import stopping_rule

_USE = "evalq vs GOLDEN --outputs FILE.jsonl|FOLDER | --target NAME --repeat N"


def complete_request(request: Request) -> Request:
    """``request`` with the golden set in params and the recorded outputs as inputs. Raises UsageError, ConfigError."""
    options = request.options
    outputs = [str(path) for path in options.get("outputs") or ()]
    if not outputs and request.params.get("cases"):
        return request  # params have the golden set already, and the inputs are recorded outputs
    if not outputs:
        raise UsageError(f"vs needs recorded outputs or a target: {_USE}")
    require_distinct(outputs)
    params, whole = _selected_cases(request)
    ids = [case["id"] for case in params["cases"]]
    refuse_foreign(outputs, options.get("map"), FIELDS, (".json",), set(ids).__contains__, ids[:3])
    return Request(outputs, params, options, _prompts(request.inputs[0], whole))


FIELDS: dict[str, Kind] = {
    "case": "text",
    "repeat": "whole",
    "output": "json",
    "error": "text",
    "attempts": "json",
    "stop": "json",
}
"""The keys of a line of recorded outputs."""


def prompts(request: Request) -> Iterator[Prompt]:
    """A prompt for each selected case of the golden set: its input, as text. Raises UsageError, ConfigError."""
    if request.options.get("outputs"):
        raise UsageError("evalq evaluates --outputs, or calls a --target: give only one of them")
    if request.options.get("map"):
        raise UsageError("--map is about recorded outputs: give --outputs FILE")
    yield from _prompts(request.inputs[0], _selected_cases(request)[1])


def _prompts(golden: str, params: VsParams) -> Iterator[Prompt]:
    cases = params.selected()
    texts = load_inputs(golden, {case.id for case in cases})
    for case in cases:
        yield Prompt(case.id, case.agent, texts[case.id])


def evaluation_request(request: Request, outputs: Path, folder: Path) -> Request:
    """The request to evaluate the recorded answers, like that of ``--outputs``; writes nothing into ``folder``."""
    return Request(request.inputs, request.params, {**request.options, "outputs": (str(outputs),), "map": ()})


def stopping(request: Request) -> StoppingByCase:
    """Decides which cases of the golden set are decided. Raises UsageError, ConfigError."""
    return stopping_for(_selected_cases(request)[1])


def _selected_cases(request: Request) -> tuple[dict[str, Any], VsParams]:
    """Params with the golden set, plain and validated. Raises UsageError, ConfigError."""
    options = request.options
    if len(request.inputs) != 1:
        raise UsageError(f"vs takes one golden set, not {len(request.inputs)} files: {_USE}")
    if options.get("all") and (options.get("agent") or options.get("level")):
        raise UsageError("--all cannot be used with --agent or --level")
    params = dict(request.params)
    if options.get("registry"):
        params["agents"] = load_agents(options["registry"])
    # Without the selection: only the golden set shows whether it fits, and reading that needs agents and levels.
    base = validate(VsParams, {key: value for key, value in params.items() if key not in ("agent", "level")}, "params")
    params["agents"] = [agent.model_dump() for agent in base.agents]
    params["cases"] = load_golden(request.inputs[0], base.agents, base.levels)
    params["agent"] = _find_agent(options.get("agent") or params.get("agent") or "", base)
    params["level"] = options.get("level") or params.get("level") or ""
    whole = validate(VsParams, params, str(request.inputs[0]))
    if not whole.selected():
        raise UsageError(f"{request.inputs[0]} has no case of --agent {params['agent']!r} --level {params['level']!r}")
    return params, whole


def _find_agent(name: str, params: VsParams) -> str:
    """The id of the agent with this id, or with this number before its first dash."""
    ids = [agent.id for agent in params.agents]
    matching = [known for known in ids if name in (known, known.split("-")[0])]
    if name and not matching:
        raise UsageError(f"no agent {name!r}; there are: {', '.join(ids)}")
    return matching[0] if matching else ""


def output_line(name: str, data: bytes) -> bytes:
    """The content of the file ``name``, unchanged, as one line ``{"named", "output"}``.

    A file holds an object with ``case`` and ``output``, or only the output. Then its name is ``CASE.REPEAT.json``,
    ``CASE#REPEAT.json``, or ``CASE.json`` for repeat 0; `OutputJudge`, which knows the cases, reads the name. A file
    that is not JSON becomes a line with an ``error``.
    """
    head = msgspec.json.encode({"named": name.removesuffix(".json")})
    try:
        content = decode(data)
    except Malformed as error:
        return head[:-1] + b',"error":' + msgspec.json.encode(str(error)) + b"}"
    # Reformatted without decoding, so that numbers, escapes and repeated keys stay as the agent wrote them.
    compact = msgspec.json.format(data, indent=-1)
    if isinstance(content, dict) and "case" in content and ("output" in content or "error" in content):
        return compact
    return head[:-1] + b',"output":' + compact + b"}"


def stopping_for(params: VsParams) -> StoppingByCase:
    """Decides each case by the share of its most common recommendation, as its outputs arrive.

    It judges lines as the report does, so a report of the same lines has the same verdict. The chance that a case is
    ever decided wrongly is at most ALPHA, however often it is checked.
    """
    judge = judge_for(params)

    def tested(line: bytes) -> OutputTest | None:
        test = judge.test(line)
        # Errors do not count here either.
        return None if test.plan is None or test.repeat is None or test.scores is None else test

    return StoppingByCase(tested, lambda: _OptionCounts(params.collapse.collapse_share))


class _OptionCounts(CaseSoFar):
    """Counts the options of a case, and the largest of these counts."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share
        self._options: Counter[str] = Counter()
        self._runs = self._mode = 0

    def count(self, test: OutputTest) -> None:
        # A run without an option counts in no share.
        if test.option is None:
            return
        # Normalised, as in the report's verdict. Otherwise it could stop a case that the report calls undecided.
        kind = normalize(test.option)
        self._options[kind] += 1
        self._runs += 1
        self._mode = max(self._mode, self._options[kind])
        self.decided = stopping_rule(self.planned).decided(self._mode, self._runs, self._share)
