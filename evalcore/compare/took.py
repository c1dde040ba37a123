"""What answers took, by number (seconds, cost, tokens): a sketch of all of them, and sums by case."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence

import msgspec

from evalq.evalcore.statistics.quantiles import Quantiles

__all__ = ["Taking", "Took"]

_FLUSHED = 1 << 14
_SEEN = 0
"""The place of how many answers came; behind it count, sum, squares, and the same two of logarithms."""
_LEAST = 1e-9
"""What is smaller counts as this where logarithms are taken: 0 has none."""


class Took(msgspec.Struct):
    """One number over a run's answers: ``sketch`` of all, and sums by case, in the order of ``ids``.

    ``count`` answers of a case have it, and ``missing`` more have not. ``total`` and ``squares`` are sums of the number
    and of its square, ``logs`` and ``log_squares`` those of its logarithm.
    """

    sketch: Quantiles = msgspec.field(default_factory=Quantiles)
    ids: list[str] = []
    count: list[int] = []
    missing: list[int] = []
    total: list[float] = []
    squares: list[float] = []
    logs: list[float] = []
    log_squares: list[float] = []

    @property
    def lacking(self) -> int:
        """How many answers do not have the number."""
        return sum(self.missing)


class Taking:
    """Adds up numbers of answers; memory grows with the cases, not with the answers."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._cases: dict[str, list[list[float]]] = {}
        self._values = [array("d") for _ in names]
        self._sketches = [Quantiles() for _ in names]

    def add(self, case: str, values: Sequence[float | None]) -> None:
        """Count an answer to ``case``: a value for each name, or None where it lacks it."""
        sums = self._cases.get(case)
        if sums is None:
            sums = self._cases[case] = [[0, 0, 0.0, 0.0, 0.0, 0.0] for _ in self._names]
        for at, (own, value) in enumerate(zip(sums, values, strict=True)):
            own[_SEEN] += 1
            if value is None or not 0.0 <= value < math.inf:
                continue
            log = math.log(max(value, _LEAST))
            for place, more in enumerate((1, value, value * value, log, log * log), start=1):
                own[place] += more
            self._values[at].append(value)
            if len(self._values[at]) >= _FLUSHED:
                self._flush(at)

    def found(self, missing: Mapping[str, int]) -> dict[str, Took]:
        """What was added, by name, where ``missing`` has how many answers a case lacks besides.

        Without a number that no answer has.
        """
        ids, made = sorted(self._cases.keys() | missing.keys()), {}
        nothing = [0, 0, 0.0, 0.0, 0.0, 0.0]
        for at, name in enumerate(self._names):
            self._flush(at)
            if not self._sketches[at].count:
                continue
            rows = [self._cases[case][at] if case in self._cases else nothing for case in ids]
            made[name] = Took(
                self._sketches[at],
                ids,
                [int(row[1]) for row in rows],
                [int(row[_SEEN] - row[1]) + missing.get(case, 0) for case, row in zip(ids, rows, strict=True)],
                *([row[place] for row in rows] for place in range(2, 6)),
            )
        return made

    def _flush(self, at: int) -> None:
        self._sketches[at].merge(Quantiles.of(self._values[at]))
        del self._values[at][:]
