"""What an attempt cost is known where it told all the tokens that have a price."""

from __future__ import annotations

import pytest

from evalq.evalcore.model.calls import Attempt, Output, Tokens
from evalq.workers.ledger.sweep_model import EndedAttempts, ProcessTally
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


CACHED = Price(
    prompt_per_million=10e6, completion_per_million=20e6, cached_per_million=1e6, cache_write_per_million=12e6,
    reasoning_per_million=30e6, per_call=0.5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "cost"),
    [
        (Tokens(input=10, output=5), 0.5 + 100 + 100),
        (Tokens(input=10, cached_input=4, output=5), 0.5 + 60 + 4 + 100),
        (Tokens(input=10, cached_input=4, cache_write=2, output=5), 0.5 + 40 + 4 + 24 + 100),
        (Tokens(input=10, cache_write_1h=2, output=5), 0.5 + 80 + 24 + 100),
        (Tokens(input=10, output=5, reasoning=5), 0.5 + 100 + 150),
        (Tokens(output=5), None),
    ],
)
def test_each_part_has_its_price(tokens: Tokens, cost: float | None) -> None:
    """A cached prompt billed in full would end a budget of 100 calls after 19."""
    found = cost_of(CACHED, tokens)
    assert found == (None if cost is None else pytest.approx(cost))


@pytest.mark.parametrize(
    ("costs", "likely", "unpriced"),
    [
        ((1.0, 2.0), 3.0, False),
        ((1.0, None, 3.0), 6.0, False),
        ((None, None), 0.0, True),
        ((), 0.0, False),
    ],
)
def test_calls_of_a_conversation_without_a_cost_count_at_the_mean(
    costs: tuple[float | None, ...], likely: float, unpriced: bool
) -> None:
    """As if they cost nothing, a budget would pay for many more; a call that failed may cost nothing."""
    attempts = (Attempt(kind="server"), *(Attempt(cost=cost) for cost in costs))
    output = Output(call=0, case="c", agent="", repeat=0, prompt="", target="t", config="", attempts=attempts)
    assert (output.likely_cost, output.unpriced) == (likely, unpriced)
    tally = ProcessTally()
    tally.count({0: EndedAttempts.of(output)})
    assert tally.sums() == f"1 {len(attempts)} 1 {likely!r}"


def test_a_call_may_cost_without_tokens() -> None:
    """And what has no price of its own costs as its whole."""
    assert cost_of(Price(per_call=0.25), Tokens()) == 0.25
    plain = Price(prompt_per_million=1e6, completion_per_million=2e6)
    parts = Tokens(input=10, cached_input=4, cache_write=2, cache_write_1h=1, output=5, reasoning=2)
    assert cost_of(plain, parts) == pytest.approx(20.0)
