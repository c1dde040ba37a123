"""Which outputs a run took over from earlier ones."""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = ["Lineage"]


class Lineage(msgspec.Struct, frozen=True):
    """Whose answers a run has besides its own. ``reused`` is {run: outputs taken from it}.

    ``akin`` names all runs that gave any of them, those that gave them to these, too. ``number`` counts the runs before
    it in the longest such line, and ``first`` is the digest of the report that this line began with.
    """

    reused: dict[str, int] = {}
    akin: tuple[str, ...] = ()
    number: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)] = 1
    first: str = ""

    def told(self) -> str:
        """Whose outputs a run has, in words for whoever reads its numbers."""
        given = " and ".join(f"{count:,} outputs of {run}" for run, count in sorted(self.reused.items()))
        return f"it has {given}: no fresh evidence for a gate"
