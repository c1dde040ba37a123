"""Who is asked about outputs: judges, and embedders, in one stage behind the calls that gave these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from evalq.evalcore.contract.evaluator import Question, Request, Stage
from evalq.evalcore.errors import UsageError
from evalq.evalcore.evaluators.checks.diversity.stage import EmbedStage
from evalq.evalcore.evaluators.checks.expanding import ExpandedCase
from evalq.evalcore.evaluators.checks.inputs import selected
from evalq.evalcore.evaluators.checks.judging.against import other_answers
from evalq.evalcore.evaluators.checks.judging.stage import JudgeStage
from evalq.evalcore.evaluators.checks.params import ChecksParams
from evalq.evalcore.model.calls import Output
from evalq.evalcore.naming import shorten

__all__ = ["Stages", "asking", "to_ask"]


class Stages:
    """Several stages as one: each asks about the same outputs, and adds what it was answered."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages

    def look(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """All see the lines."""
        for stage in self._stages:
            stage.look(lines)

    def asks(self, repeats: int = 1) -> Mapping[tuple[str, int], int]:
        """Those of all. Raises UsageError."""
        found = Counter[tuple[str, int]]()
        for stage in self._stages:
            found.update(stage.asks(repeats))
        return found

    def questions(self, line: bytes) -> list[Question]:
        """Those of all, one stage's behind the other's."""
        return [question for stage in self._stages for question in stage.questions(line)]

    def joined(self, line: bytes, answers: Callable[[Question], Sequence[Output]]) -> bytes:
        """The line with what each was answered."""
        # Each has the line of the one before it, or it would write over what that one added.
        for stage in self._stages:
            line = stage.joined(line, answers)
        return line

    def recorded(self, line: bytes) -> list[Output]:
        """The answers in ``line`` to what any of them would ask about it now."""
        return [output for stage in self._stages for output in stage.recorded(line)]


def to_ask(asked: Request) -> list[str]:
    """The recorded outputs that are to be asked about: with ``--judge`` or ``--embedder`` those that are named."""
    named = asked.options.get("judge") or asked.options.get("embedder")
    return [str(path) for path in asked.options.get("outputs") or ()] if named else []


def asking(asked: Request) -> Stage | None:
    """What asks about outputs; None where nothing of the cases does. Raises UsageError, ConfigError."""
    _, params, loaded = selected(asked)
    stages: list[Stage | None] = [_judges(asked, params, loaded), _embedders(asked, params)]
    found = [stage for stage in stages if stage is not None]
    return Stages(found) if found else None


def _embedders(asked: Request, params: ChecksParams) -> EmbedStage | None:
    embedder = str(asked.options.get("embedder") or "")
    stage = EmbedStage(params, embedder)
    if stage.asks():
        return stage
    if embedder:
        raise UsageError("--embedder: no case counts its answers by embedding: --diversity embedding does for all")
    return None


def _judges(asked: Request, params: ChecksParams, loaded: Iterable[ExpandedCase]) -> JudgeStage | None:
    judge, inputs = str(asked.options.get("judge") or ""), {}
    for case in loaded:
        if case.input is not None:
            text = case.input if isinstance(case.input, str) else msgspec.json.encode(case.input).decode()
            inputs[case.params["id"]] = text
    defaults = {case.params["id"]: case.judge for case in loaded}
    against = str(asked.options.get("against") or "")
    stage = JudgeStage(params, inputs, defaults, judge, other_answers(against) if against else {})
    asks = stage.asks()
    if against and not stage.comparing:
        raise UsageError("--against: no check of the cases is `prefer: true`, which compares with it")
    if stage.comparing and not against:
        raise UsageError(f"case {shorten(stage.comparing)}: `prefer: true` compares with --against OUTPUTS; give them")
    if not asks:
        # Passed over, a run that no judge saw would look like one that was judged.
        if judge:
            raise UsageError(
                "--judge: no check of the cases asks a judge (there are: rubric, factual, score, prefer), and no case "
                "has `diversity: {judge: true}`"
            )
        return None
    return stage
