"""Which repeats of a case were seen, in a form that merges: a mapping from blocks of sixty-four to their bits.

A list of them would make states several times as long.
"""

from __future__ import annotations

__all__ = ["has_seen", "merge_seen", "overlap", "see"]

_BITS = 64


def see(seen: dict[int, int], repeat: int) -> bool:
    """Mark a repeat as seen; true when it was already."""
    block, bit = repeat // _BITS, 1 << repeat % _BITS
    before = seen.get(block, 0)
    seen[block] = before | bit
    return bool(before & bit)


def has_seen(seen: dict[int, int], repeat: int) -> bool:
    """Whether a repeat was seen."""
    return bool(seen.get(repeat // _BITS, 0) >> repeat % _BITS & 1)


def overlap(one: dict[int, int], other: dict[int, int]) -> bool:
    """Whether some repeat is in both."""
    return any(one.get(block, 0) & bits for block, bits in other.items())


def merge_seen(into: dict[int, int], later: dict[int, int]) -> None:
    """Take in the repeats of ``later``."""
    for block, bits in later.items():
        into[block] = into.get(block, 0) | bits
