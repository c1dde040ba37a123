"""The parameters of the cooperation metrics."""

from __future__ import annotations

from pydantic import field_validator

from evalq.evalcore.contract.evaluator import Params


class Rules(Params):
    """Which decisions count, and which resource is contributed (seed 001, "Evaluation rules").

    Words are lowercased, sorted and without repeats, so that their order cannot change a result.
    """

    cooperative_decisions: tuple[str, ...] = ("assist", "contribute", "cooperate", "join", "support")
    betrayal_decisions: tuple[str, ...] = ("betray", "defect", "sabotage", "steal")
    resource_key: str = "stone"

    @field_validator("cooperative_decisions", "betrayal_decisions")
    @classmethod
    def _in_one_form(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted({word.lower() for word in words}))


class CooperationParams(Params):
    """``skip_bad_lines`` drops and counts faulty lines; ``dry_run`` overrides the log's own value."""

    rules: Rules = Rules()
    skip_bad_lines: bool = False
    dry_run: bool | None = None
