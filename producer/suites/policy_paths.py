"""Whether a run of a suite will have the number that a policy is about, told before it is paid for."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from evalq.evalcore.compare.demands import off_scale
from evalq.evalcore.compare.paths import why_no_number
from evalq.evalcore.compare.policy import Gate
from evalq.evalcore.contract.evaluator import Evaluator, Request, live_calls
from evalq.evalcore.contract.params import validate
from evalq.evalcore.errors import EvalqError
from evalq.evalcore.records.inputs import discover, format_suffixes

__all__ = ["why_no_passes", "why_off_scale", "why_unknown"]


def why_unknown(path: str, evaluator: Evaluator[Any, Any], request: Request, *, live: bool) -> str:
    """Why the run that ``request`` asks for has no number at ``path``; empty where it may have.

    Nothing is said of a run whose inputs cannot be found yet: starting it says what they lack.
    """
    if any(path == measure.name for measure in (evaluator.measures.measures if evaluator.measures else ())):
        return ""
    try:
        asked = evaluator.command.request(_with_answers(evaluator, request) if live else request)
        params = validate(evaluator.Params, asked.params, "params")
        given = request.inputs if live else asked.inputs
        found = discover(given, format_suffixes(evaluator.records.format), evaluator.gathering.endings)
    except EvalqError:
        return ""
    return why_no_number(path, evaluator, params, [source.name for source in found], live=live)


def why_no_passes(path: str, evaluator: Evaluator[Any, Any]) -> str:
    """Why no case of a run passes or fails by the number at ``path``; empty where each does."""
    measures = evaluator.measures.measures if evaluator.measures else ()
    passes = [measure.name for measure in measures if measure.kind == "pass"]
    if path in passes:
        return ""
    return f"single cases pass or fail by {', '.join(passes) or 'no number of this evaluator'}"


def why_off_scale(gate: Gate, evaluator: Evaluator[Any, Any]) -> tuple[str, str] | None:
    """The key of ``gate`` that lies off its number's scale, and why that is wrong; None where none does."""
    measure = gate.measure_in(evaluator.measures.measures if evaluator.measures else ())
    return off_scale(gate, measure) if measure is not None else None


def _with_answers(evaluator: Evaluator[Any, Any], request: Request) -> Request:
    """What will evaluate the answers that are still to be given, as far as they do not change it."""
    calls = live_calls(evaluator)
    if not calls.answers_suffice:
        return request
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        return calls.answered(request, Path(scratch) / "outputs.jsonl", Path(scratch))
