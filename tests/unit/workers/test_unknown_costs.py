"""What an attempt cost is known where it told all the tokens that have a price."""

from __future__ import annotations

import pytest

from evalq.evalcore.model.calls import Tokens
from evalq.workers.targets.price import Price, cost_of

BOTH = Price(prompt_per_million=1e6, completion_per_million=2e6)


@pytest.mark.parametrize(
    ("price", "prompt", "completion", "cost"),
    [
        (BOTH, 3, 4, 11.0),
        (BOTH, 3, None, None),
        (BOTH, None, 4, None),
        (BOTH, None, None, None),
        (Price(prompt_per_million=1e6), 3, None, 3.0),
        (Price(completion_per_million=1e6), None, 4, 4.0),
        (Price(), 3, 4, 0.0),
        (None, 3, 4, None),
    ],
)
def test_half_of_the_tokens_are_no_cost(
    price: Price | None, prompt: int | None, completion: int | None, cost: float | None
) -> None:
    """A sum that lacks a part is too low, and a budget that it is held to is none."""
    assert cost_of(price, Tokens(input=prompt, output=completion)) == cost
