"""One value, one byte string."""

from __future__ import annotations

import hashlib
import json
import math
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evalq.evalcore.model.canonical import as_written, canonical_json, digest

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_values_survive(value: Any) -> None:
    """What comes back is equal, to the last bit of a float."""
    back = json.loads(canonical_json(value))
    assert back == value
    assert canonical_json(back) == canonical_json(value)


@given(VALUES | st.text(st.characters(categories=["Cs", "Lu"])), st.integers(10**15, 10**40))
@example({"\ud800": ["\udc00\ud800", 1e16, 1e-5, -0.0, 10**400]}, 2**64)
def test_what_is_written_is_read_as_python_reads_it(value: Any, large: int) -> None:
    """By a faster decoder; types, order of keys, large numbers and halves of surrogate pairs included."""
    for each in (value, [value, large, -large]):
        assert repr(as_written(each)) == repr(json.loads(canonical_json(each)))


@given(st.dictionaries(st.text(), VALUES, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any], rng: Random) -> None:
    """At any depth keys are sorted."""
    shuffled = dict(rng.sample(list(value.items()), len(value)))
    assert canonical_json([shuffled]) == canonical_json([value])
    assert list(json.loads(canonical_json(value))) == sorted(value)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"b": 1, "a": [1, 2.0, None, True]}, b'{"a":[1,2.0,null,true],"b":1}'),
        ("\u00e9\u20ac", b'"\xc3\xa9\xe2\x82\xac"'),
        (0.1, b"0.1"),
        (1e22, b"1e+22"),
        (5e-324, b"5e-324"),
        ("\ud800", rb'"\ud800"'),
        ("\\\ud800", rb'"\\\ud800"'),
        ("a\nb\x00", rb'"a\nb\u0000"'),
    ],
)
def test_known_values(value: Any, data: bytes) -> None:
    """No spaces, no newline, UTF-8, shortest floats; a lone surrogate stays an escape."""
    assert canonical_json(value) == data
    assert json.loads(data) == value


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [{"x": math.nan}]])
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    """Rather than written as a word that is no JSON."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(value)


@given(st.binary())
def test_a_digest_is_sha256_in_hexadecimal(data: bytes) -> None:
    """Of the bytes as they are."""
    assert digest(data) == hashlib.sha256(data).hexdigest()
