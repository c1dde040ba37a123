"""What calls cost: the price of tokens, and how it is applied to an attempt."""

from __future__ import annotations

from pydantic import Field

from evalq.evalcore.contract.evaluator import Params


class Price(Params):
    """What tokens cost, in any currency."""

    prompt_per_million: float = Field(default=0.0, ge=0, description="Price of a million prompt tokens")
    completion_per_million: float = Field(default=0.0, ge=0, description="Price of a million completion tokens")

    def cost(self, prompt: float, completion: float) -> float:
        """What so many tokens cost."""
        return (prompt * self.prompt_per_million + completion * self.completion_per_million) / 1e6


def cost_of(price: Price | None, prompt: int | None, completion: int | None) -> float | None:
    """What an attempt costs; None if it says no number of tokens, or not of those that have a price."""
    if price is None or (prompt is None and completion is None):
        return None
    if (prompt is None and price.prompt_per_million) or (completion is None and price.completion_per_million):
        return None
    return price.cost(prompt or 0, completion or 0)
