"""What calls cost: the price of tokens, and how it is applied to an attempt."""

from __future__ import annotations

from pydantic import Field

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.model.calls import Tokens
from evalq.workers.targets.answers import Answered, Failure


class Price(Params):
    """What calls and their tokens cost, in any currency; a part without a price of its own has that of its whole."""

    prompt_per_million: float = Field(default=0.0, ge=0, description="Price of a million prompt tokens")
    completion_per_million: float = Field(default=0.0, ge=0, description="Price of a million completion tokens")
    cached_per_million: float | None = Field(
        default=None, ge=0, description="Price of a million prompt tokens read from a cache; by default as the others"
    )
    cache_write_per_million: float | None = Field(
        default=None, ge=0, description="Price of a million prompt tokens written to a cache for 5 minutes"
    )
    cache_write_1h_per_million: float | None = Field(
        default=None, ge=0, description="Price of a million prompt tokens written to a cache for an hour"
    )
    reasoning_per_million: float | None = Field(
        default=None, ge=0, description="Price of a million reasoning tokens; by default as other completion tokens"
    )
    per_call: float = Field(default=0.0, ge=0, description="Price of a call, beside its tokens")

    def cost(
        self,
        prompt: float,
        completion: float,
        *,
        cached: float = 0,
        cache_write: float = 0,
        cache_write_1h: float = 0,
        reasoning: float = 0,
    ) -> float:
        """What a call with so many tokens costs; the parts are counted in ``prompt`` and ``completion``, too."""
        of_prompt, of_completion = self.prompt_per_million, self.completion_per_million
        parts = (
            (max(0, prompt - cached - cache_write - cache_write_1h), of_prompt),
            (cached, _or(self.cached_per_million, of_prompt)),
            (cache_write, _or(self.cache_write_per_million, of_prompt)),
            (cache_write_1h, _or(self.cache_write_1h_per_million, _or(self.cache_write_per_million, of_prompt))),
            (max(0, completion - reasoning), of_completion),
            (reasoning, _or(self.reasoning_per_million, of_completion)),
        )
        return self.per_call + sum(count * price for count, price in parts) / 1e6

    @property
    def of_tokens(self) -> bool:
        """Whether any token has a price."""
        return bool(self.prompt_per_million or self.completion_per_million)


def cost_of(price: Price | None, tokens: Tokens) -> float | None:
    """What an attempt costs; None if it says no number of tokens, or not of those that have a price."""
    if price is None:
        return None
    if tokens.input is None and tokens.output is None:
        return price.per_call if price.per_call and not price.of_tokens else None
    if (tokens.input is None and price.prompt_per_million) or (tokens.output is None and price.completion_per_million):
        return None
    return price.cost(
        tokens.input or 0,
        tokens.output or 0,
        cached=tokens.cached_input or 0,
        cache_write=tokens.cache_write or 0,
        cache_write_1h=tokens.cache_write_1h or 0,
        reasoning=tokens.reasoning or 0,
    )


def attempt_cost(price: Price | None, result: Answered | Failure) -> float | None:
    """What an attempt costs: as the target itself says, or else by the price."""
    return result.cost if result.cost is not None else cost_of(price, result.usage)


def _or(price: float | None, otherwise: float) -> float:
    return otherwise if price is None else price
