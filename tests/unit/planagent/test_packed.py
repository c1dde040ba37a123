"""Packed rows: taken apart as they were put together, whatever their rounds are called."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from evalq.evalcore.evaluators.planagent.queries import (
    UNSCORED,
    no_round_twice,
    pack_line,
    pack_rest,
    pack_row,
    rests,
    split,
    unpack_rows,
)

_NAMES = st.text(st.sampled_from("1a\0\x08 é"), max_size=18) | st.sampled_from(["1", "2", "a" * 8, "a" * 9, "a" * 300])
_ROWS = st.lists(st.tuples(_NAMES, st.integers(0, 5) | st.just(UNSCORED), st.integers(0, (1 << 40) - 1)), max_size=12)


@given(_ROWS)
@example([("a" * 9, 5, 1), ("1", 5, 2)])
@example([("1", 5, 0x0808080808), ("a" * 256, 5, 2)])
@example([("a", 1, 1), ("a\0", 1, 2)])
def test_rows_come_apart_as_they_were_put_together(rows: list[tuple[str, int, int]]) -> None:
    """Rows of short names, which are all as long, and of longer ones among them: the same rows, parts and repeats."""
    packed = b"".join(pack_row(*row) for row in rows)
    assert list(unpack_rows(packed)) == rows
    assert split(packed) == [pack_line(line) + pack_rest(name, score) for name, score, line in rows]
    assert rests(packed) == [pack_rest(name, score) for name, score, _ in rows]
    names = [name for name, _, _ in rows]
    if all(len(name.encode()) <= 8 for name in names):
        assert no_round_twice(packed) == (len(set(names)) == len(names))
    else:
        assert not no_round_twice(packed), "only their names can tell"
