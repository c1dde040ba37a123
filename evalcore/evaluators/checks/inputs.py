"""From what was asked for to what is evaluated: cases files become params, recorded outputs the inputs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.contract.params import validate
from evalq.evalcore.contract.stopping import StoppingByCase
from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.evaluators.checks.expanding import Loaded, load_cases
from evalq.evalcore.evaluators.checks.judging.stage import JudgeStage
from evalq.evalcore.evaluators.checks.labelling.reading import load_labels
from evalq.evalcore.evaluators.checks.params import ChecksParams, diversity_of, thresholds_of
from evalq.evalcore.evaluators.checks.stopping import stopping_for
from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.records.decoding import Malformed, decode

__all__ = ["answered", "asks_recorded", "complete", "judging", "output_line", "prompts", "stopping"]

_USE = "evalq checks CASES... --outputs FILE.jsonl|FOLDER | --target NAME --repeat N"
_ENDING = re.compile(r"\.(?:json|txt|md)\Z")


def complete(asked: Request) -> Request:
    """``asked`` with its cases in params and its recorded outputs as inputs. Raises UsageError, ConfigError."""
    outputs = [str(path) for path in asked.options.get("outputs") or ()]
    if not outputs and asked.params.get("cases"):
        return asked  # params that hold the cases already: the inputs are recorded outputs
    if not outputs:
        raise UsageError(f"checks needs recorded outputs or a target: {_USE}")
    if len({os.path.realpath(path) for path in outputs}) < len(outputs):
        # Several inputs count as one, so that every answer would be two.
        raise UsageError("--outputs names the same file twice: its answers would count twice")
    params, _, _ = _selected(asked)
    if labels := asked.options.get("labels"):
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
    _, params, loaded = _selected(asked)
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
    return Request(asked.inputs, asked.params, {**asked.options, "outputs": (str(outputs),)})


def stopping(asked: Request) -> StoppingByCase | None:
    """What says which cases are decided; None where none has a threshold, nor its answers counted by kind.

    Raises UsageError, ConfigError.
    """
    params = _selected(asked)[1]
    wanted = any(thresholds_of(case, params) or diversity_of(case, params) for case in params.selected())
    return stopping_for(params) if wanted else None


def asks_recorded(asked: Request) -> bool:
    """Whether judges are to be asked about recorded outputs."""
    return bool(asked.options.get("judge") and asked.options.get("outputs"))


def judging(asked: Request) -> JudgeStage | None:
    """What asks judges about outputs; None where no check of the cases does. Raises UsageError, ConfigError."""
    _, params, loaded = _selected(asked)
    judge, inputs = str(asked.options.get("judge") or ""), {}
    for case in loaded:
        if case.input is not None:
            text = case.input if isinstance(case.input, str) else msgspec.json.encode(case.input).decode()
            inputs[case.params["id"]] = text
    defaults = {case.params["id"]: case.judge for case in loaded}
    stage = JudgeStage(params, inputs, defaults, judge, {})
    asked_of = [stage.targets(case.id) for case in params.selected()]  # raises for one without a judge
    if not any(asked_of):
        if judge:
            raise UsageError("--judge: no check of the cases asks a judge (there are: rubric, factual, score, prefer)")
        return None
    return stage


def _selected(asked: Request) -> tuple[dict[str, Any], ChecksParams, list[Loaded]]:
    """Params with the cases, plain and validated, and the cases with their inputs. Raises UsageError, ConfigError."""
    if not asked.inputs:
        raise UsageError(f"checks needs a cases file: {_USE}")
    loaded = load_cases(asked.inputs)
    params = {**asked.params, "cases": [case.params for case in loaded]}
    whole = validate(ChecksParams, params, "params")
    if not whole.selected():
        raise UsageError(f"no case has the tag {whole.tag!r}")
    return params, whole, loaded


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
