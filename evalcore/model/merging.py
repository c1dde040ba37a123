"""What merges: the verbs that every sum of records has, from a chunk's whole state down to one exact sum in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import msgspec

__all__ = ["Merging", "add_counts"]


class Merging(msgspec.Struct):
    """What records add up to, whatever pieces they came in. Every field has a default, and the defaults are nothing.

    Four verbs, the same for all: `zero` is what no records add up to, ``add`` takes in one of what it counts, `merge`
    takes in what the records that follow add up to, and `to_wire` with `from_wire` carries it from process to process.
    ``add`` is left to each, since what they count differs; where adding many at once is cheaper, ``of`` gives what
    they add up to.

    The wire form is the fields as JSON, typed and checked on the way in, so fields are of types that msgspec can name:
    no bare ``object``. Floats that are summed are held as ExactSum, because a naive sum depends on the order.
    """

    @classmethod
    def zero(cls) -> Self:
        """What no records add up to."""
        return cls()

    def merge(self, later: Self) -> None:
        """Take in what the records that follow right behind these add up to, in place.

        Must be associative to the last bit, and ``zero()`` must change nothing on either side. ``later`` is
        not used again by the caller. A state of a million records is merged from small ones many times:
        the cost must depend on the size of ``later``, not on what was gathered before.
        """
        raise NotImplementedError(f"{type(self).__name__} has no merge()")

    def to_wire(self) -> bytes:
        """Canonical JSON of the fields: equal ones are equal bytes."""
        return msgspec.json.encode(self, order="deterministic")

    @classmethod
    def from_wire(cls, data: bytes) -> Self:
        """What is in ``data``. Raises msgspec.ValidationError when it is none of this type."""
        return msgspec.json.decode(data, type=cls)


def add_counts(into: dict[str, int], more: Mapping[str, int]) -> None:
    """Add ``more`` counts to those of the same names."""
    for name, count in more.items():
        into[name] = into.get(name, 0) + count
