"""Vectors that stand for texts, kept as whole numbers: the same bytes on any machine, compared without rounding."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence
from operator import mul
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MOST_DIMENSIONS", "cosine", "joined", "packed"]

MOST_DIMENSIONS = 16_384
_LARGEST = 127
_MOST = sys.float_info.max
"""Compared with it: a whole number that is larger, as JSON may have, cannot be asked whether it is finite."""
_FEW = 64
_ROUNDING = 1e-12
"""More than root and quotient may be off, so that a vector is always as alike to itself as can be."""


def packed(values: Sequence[float]) -> bytes:
    """A vector as a signed byte for each component, in proportion to the largest: cosines change by some 0.002.

    Raises ValueError for one that is empty, too long, zero, or has what is no finite number.
    """
    if not 0 < len(values) <= MOST_DIMENSIONS:
        raise ValueError(f"{len(values)} numbers where 1 to {MOST_DIMENSIONS} are wanted")
    if not all(type(value) in (int, float) and -_MOST <= value <= _MOST for value in values):
        raise ValueError("something in it is no finite number")
    largest = max(map(abs, values))
    if not largest:
        raise ValueError("all of its numbers are 0")
    # Divided first: a product of large numbers would be infinite.
    return struct.pack(f"{len(values)}b", *(round(value / largest * _LARGEST) for value in values))


def cosine(one: bytes, other: bytes) -> float:
    """Of the angle between two packed vectors of one length; 0 of different lengths."""
    if len(one) != len(other):
        return 0.0
    mine, its = (struct.unpack(f"{len(each)}b", each) for each in (one, other))
    dot, square, its_square = (sum(map(mul, a, b)) for a, b in ((mine, its), (mine, mine), (its, its)))
    return float(dot / math.sqrt(square * its_square))


def joined(vectors: Sequence[bytes], alike: float) -> list[int]:
    """For each packed vector the first of those that it is joined to by steps between vectors with a cosine of
    ``alike`` at least; all have one length.

    Products of signed bytes add up to whole numbers that a double holds exactly, in whatever order a machine adds them;
    root and quotient are then rounded as IEEE 754 says. So no library decides.
    """
    import numpy as np

    many = len(vectors)
    if not many:
        return []
    # Whole numbers take no threads of a library, which cost more than a few products; of many, they are too slow.
    kind = np.int32 if many <= _FEW else np.float64
    whole: NDArray[Any] = np.frombuffer(b"".join(vectors), np.int8).reshape(many, -1).astype(kind)
    products = (whole @ whole.T).astype(np.float64)
    lengths = np.sqrt(products.diagonal())
    near = products / (lengths[:, None] * lengths) >= alike - _ROUNDING
    first = np.full(many, -1)
    for start in range(many):
        waiting = [start] if first[start] < 0 else []
        while waiting:
            first[waiting] = start
            waiting = np.flatnonzero(near[waiting].any(axis=0) & (first < 0)).tolist()
    found: list[int] = first.tolist()
    return found
