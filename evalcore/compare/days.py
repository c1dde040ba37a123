"""The moods of days: by how much unchanged runs differ from each other beyond what their answers' draw explains.

On a bad day all answers of a run are a little worse. Each day's mood is taken for normal around that of its weekday,
with a standard deviation that nobody knows. For the first nine comparisons it is `DAY_SD`; from then on each of
`_DEVIATIONS` counts by how well it explains the changes that were seen (its likelihood), and by `_WEIGHTS`, which lean
to `DAY_SD`: nine days do not show that there are no moods. Changes against all runs before are independent of each
other, as Helmert's contrasts are.
"""

from __future__ import annotations

import math
from datetime import date
from typing import NamedTuple

import msgspec

from evalq.evalcore.compare.surprise import Fall

__all__ = ["DAY_SD", "Days", "Moods"]

DAY_SD = 0.03
"""The standard deviation of a day's mood that is assumed before runs have shown it, as a share of the scale."""
_DEVIATIONS = (0.0, 0.01, 0.02, 0.03, 0.045, 0.07, 0.1)
_WEIGHTS = (0.1, 0.1, 0.1, 0.5, 0.15, 0.04, 0.01)
_SHOWN = 9
"""So many comparisons have to be there before they say anything of days: from the tenth on."""
_LEAST = 0.5
"""A run's deviation by its draw is at least that of half an answer, or runs that all pass would be certain of it."""


class Moods(NamedTuple):
    """What a run's change is to be held against: the ``expected`` change, and the deviations beside its draw."""

    expected: float
    deviations: list[float]
    odds: list[float]


class Days(msgspec.Struct, frozen=True):
    """What the runs of a chain say of days, by one measure.

    ``level`` is the mean of all runs less that of the reference, ``spread`` the sum of the squares of their shares of
    it. ``likelihood`` has the logarithm of that of each of `_DEVIATIONS`, of ``compared`` days. ``weekdays`` has how
    many days there were of each weekday before the newest day, and the sum of their levels; ``today`` the runs of the
    newest day, ``day``, and the sum of theirs.
    """

    level: float = 0.0
    spread: float = 1.0
    compared: int = 0
    likelihood: tuple[float, ...] = (0.0,) * len(_DEVIATIONS)
    weekdays: dict[int, tuple[int, float]] = {}
    day: str = ""
    today: tuple[int, float] = (1, 0.0)

    def moods(self, fall: Fall, day: str) -> Moods:
        """For a run of ``day`` (ISO, empty where nobody knows it), compared with all runs before it."""
        shown = self.compared >= _SHOWN
        deviations, odds = (_DEVIATIONS, self._odds()) if shown else ((DAY_SD,), [1.0])
        expected, spreads = self._of(fall, day, deviations)
        return Moods(expected, [math.sqrt(each) for each in spreads], odds)

    def after(self, fall: Fall, day: str) -> Days:
        """With that run. Of one day the first run alone says how days differ, since they share their mood."""
        share = fall.of_old / (fall.of_new + fall.of_old)
        level = self.level + fall.change
        again = bool(day) and day == self.day
        runs, levels = self.today if again else (0, 0.0)
        return msgspec.structs.replace(
            self,
            level=self.level + share * fall.change,
            spread=(1 - share) ** 2 * self.spread + share**2,
            compared=self.compared + (not again),
            likelihood=self.likelihood if again else self._likelihood(fall, day),
            weekdays=self.weekdays if again else self._weekdays(),
            day=day,
            today=(runs + 1, levels + level),
        )

    def _odds(self) -> list[float]:
        best = max(self.likelihood)
        found = [weight * math.exp(each - best) for weight, each in zip(_WEIGHTS, self.likelihood, strict=True)]
        return [each / sum(found) for each in found]

    def _of(self, fall: Fall, day: str, deviations: tuple[float, ...]) -> tuple[float, list[float]]:
        """The expected change, and the variances beside the draw: by days like this one where there are any."""
        many, levels = self._weekdays().get(_weekday(day), (0, 0.0)) if day and day != self.day else (0, 0.0)
        if day and day == self.day:
            many, levels = self.weekdays.get(_weekday(day), (0, 0.0))
        if not many:
            return 0.0, [each**2 * (1 + self.spread) for each in deviations]
        # The draw of one run, of which those like days are a mean.
        drawn = fall.variance * fall.of_new / (fall.of_new + fall.of_old)
        return levels / many - self.level, [each**2 * (1 + 1 / many) + drawn / many for each in deviations]

    def _likelihood(self, fall: Fall, day: str) -> tuple[float, ...]:
        expected, spreads = self._of(fall, day, _DEVIATIONS)
        # By falls alone: where most cases always pass no day is much better than the others, and bad ones are worse
        # than a deviation of both would say.
        if fall.change >= expected:
            return self.likelihood
        least = (_LEAST * fall.of_new / fall.cases) ** 2
        every = [max(fall.variance, least) + each for each in spreads]
        off = (fall.change - expected) ** 2
        return tuple(
            before - (math.log(each) + off / each) / 2 for before, each in zip(self.likelihood, every, strict=True)
        )

    def _weekdays(self) -> dict[int, tuple[int, float]]:
        """With the newest day, as it is over."""
        if not self.day:
            return self.weekdays
        which, (runs, levels) = _weekday(self.day), self.today
        many, total = self.weekdays.get(which, (0, 0.0))
        return {**self.weekdays, which: (many + 1, total + levels / runs)}


def _weekday(day: str) -> int:
    return date.fromisoformat(day).weekday()
