"""What a user asks of a live sweep, apart from the evaluator's own request."""

from __future__ import annotations

from math import isfinite

import msgspec

from evalq.evalcore.errors import UsageError

__all__ = ["SweepOptions", "Wording"]


class Wording(msgspec.Struct, frozen=True):
    """The words around each case's question, which stands at ``{input}`` of ``template`` (the question alone where that
    is empty), and the ``system`` prompt before it, in place of one that a chat has.
    """

    template: str = ""
    system: str = ""


class SweepOptions(msgspec.Struct, frozen=True):
    """What a user asks of a live sweep; budgets of 0 are none.

    ``reuse`` names folders of runs whose outputs are taken where they are of the same case, prompt, repeat and
    settings of the target. A sweep that ``extends`` a run takes all that this one recorded, failures too, and calls
    only a target whose settings have the digest ``config`` that they had then.
    """

    target: str
    repeat: int = 1
    stop: str = ""
    max_calls: int = 0
    max_cost: float = 0.0
    cache: str = ""
    reuse: tuple[str, ...] = ()
    extends: str = ""
    config: str = ""
    wording: Wording | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for a budget that nothing would ever reach, or that is spent before it begins."""
        for name, budget in (("max_calls", self.max_calls), ("max_cost", self.max_cost)):
            if not (isfinite(budget) and budget >= 0):
                raise UsageError(f"{name}={budget}: not a budget; give a number above 0, or 0 for none")

    @property
    def larger(self) -> str:
        """The option that a command has to name to give it a larger budget."""
        return "--max-calls N" if self.max_calls else "--max-cost X"

    def asking(self, target: str, repeat: int) -> SweepOptions:
        """To ask ``target`` so often by the same stop rule, in the same words, and to take nothing from anywhere."""
        return SweepOptions(target, repeat, self.stop, wording=self.wording)
