"""What calls cost together, those included whose answers told no tokens."""

from __future__ import annotations

__all__ = ["Spending"]


class Spending:
    """A sum of costs. An answer of unknown cost counts at the mean of those that are known: left out, a budget of ten
    calls would pay for a hundred where one answer in ten tells its tokens.
    """

    def __init__(self) -> None:
        self._known, self._priced = 0.0, 0
        self.told = self.untold = 0
        """Answers whose cost is known, nothing too, and those whose cost is not."""

    def add(self, cost: float, *, told: bool = False, untold: bool = False) -> None:
        """The known ``cost`` of a call, and whether that of its answer is known, or is not."""
        self._known += cost
        self.told += told
        if untold:
            self.untold += 1
        elif cost:
            self._priced += 1

    @property
    def total(self) -> float:
        """Of all of them; nothing where no cost is known."""
        return self._known + self.untold * self._known / self._priced if self._priced else self._known
