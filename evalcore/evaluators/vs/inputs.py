"""Requests: the golden set and the registry become params, cases become prompts, and decided cases stop."""

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
from evalq.evalcore.records.inputs import require_distinct
from evalq.evalcore.records.json_values import Malformed, decode
from evalq.evalcore.statistics.mode_share import stopping_rule

_USE = "evalq vs GOLDEN --outputs FILE.jsonl|FOLDER | --target NAME --repeat N"


def complete(asked: Request) -> Request:
    """``asked`` with its golden set in params and its recorded outputs as inputs. Raises UsageError, ConfigError."""
    options = asked.options
    outputs = [str(path) for path in options.get("outputs") or ()]
    if not outputs and asked.params.get("cases"):
        return asked  # params that hold a golden set already: the inputs are recorded outputs
    if not outputs:
        raise UsageError(f"vs needs recorded outputs or a target: {_USE}")
    require_distinct(outputs)
    return Request(inputs=outputs, params=_selected(asked)[0], options=options)


def prompts(asked: Request) -> Iterator[Prompt]:
    """A prompt for each selected case of the golden set: its input, as text. Raises UsageError, ConfigError."""
    if asked.options.get("outputs"):
        raise UsageError("--outputs are evaluated, a --target is called: give one of them")
    params = _selected(asked)[1]
    cases = params.selected()
    texts = load_inputs(asked.inputs[0], {case.id for case in cases})
    for case in cases:
        yield Prompt(case.id, case.agent, texts[case.id])


def answered(asked: Request, outputs: Path, folder: Path) -> Request:
    """The request that ``--outputs`` would make of the recorded answers; nothing is written into ``folder``."""
    return Request(asked.inputs, asked.params, {**asked.options, "outputs": (str(outputs),)})


def stopping(asked: Request) -> StoppingByCase:
    """The rule for which cases of the golden set are decided. Raises UsageError, ConfigError."""
    return stopping_for(_selected(asked)[1])


def _selected(asked: Request) -> tuple[dict[str, Any], VsParams]:
    """Params with the golden set, plain and validated. Raises UsageError, ConfigError."""
    options = asked.options
    if len(asked.inputs) != 1:
        raise UsageError(f"vs takes one golden set, not {len(asked.inputs)} files: {_USE}")
    if options.get("all") and (options.get("agent") or options.get("level")):
        raise UsageError("--all goes with neither --agent nor --level")
    params = dict(asked.params)
    if options.get("registry"):
        params["agents"] = load_agents(options["registry"])
    # Without the selection: only the golden set shows whether it fits, and reading that needs agents and levels.
    base = validate(VsParams, {key: value for key, value in params.items() if key not in ("agent", "level")}, "params")
    params["agents"] = [agent.model_dump() for agent in base.agents]
    params["cases"] = load_golden(asked.inputs[0], base.agents, base.levels)
    params["agent"] = _agent(options.get("agent") or params.get("agent") or "", base)
    params["level"] = options.get("level") or params.get("level") or ""
    whole = validate(VsParams, params, str(asked.inputs[0]))
    if not whole.selected():
        raise UsageError(f"{asked.inputs[0]} holds no case of --agent {params['agent']!r} --level {params['level']!r}")
    return params, whole


def _agent(asked: str, params: VsParams) -> str:
    """The id of the agent that ``asked`` names: by its id, or by the number before its first dash."""
    ids = [agent.id for agent in params.agents]
    fitting = [known for known in ids if asked in (known, known.split("-")[0])]
    if asked and not fitting:
        raise UsageError(f"no agent {asked!r}; there are: {', '.join(ids)}")
    return fitting[0] if fitting else ""


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
    ever decided wrongly is at most ALPHA, however often it is asked about.
    """
    judge = judge_for(params)

    def judged(line: bytes) -> OutputTest | None:
        test = judge.test(line)
        # An error in the report is no answer here, either.
        return None if test.plan is None or test.repeat is None or test.scores is None else test

    return StoppingByCase(judged, lambda: _CaseSoFar(params.collapse.collapse_share))


class _CaseSoFar(CaseSoFar):
    """How often each option of a case came, and the largest of these counts."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share
        self._options: Counter[str] = Counter()
        self._runs = self._mode = 0

    def count(self, test: OutputTest) -> None:
        # A run without an option is in no share, so it does not help to decide.
        if test.option is None:
            return
        # Normalised, as in the report's verdict. Otherwise it could stop a case that the report calls undecided.
        kind = normalize(test.option)
        self._options[kind] += 1
        self._runs += 1
        self._mode = max(self._mode, self._options[kind])
        self.decided = stopping_rule(self.planned).decided(self._mode, self._runs, self._share)
