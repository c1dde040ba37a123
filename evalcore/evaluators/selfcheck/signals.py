"""Danger signals: what in a report makes a claim doubtful. Lists as data, and the search for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, field_validator

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.evaluators.selfcheck.calibrated import CALIBRATED
from evalq.evalcore.scan import Pattern, Scanner, require_searchable

__all__ = [
    "CALIBRATED_DANGER_SIGNALS",
    "DANGER_SIGNALS",
    "EXTENDED_DANGER_SIGNALS",
    "SIGNAL_LISTS",
    "DangerSignal",
    "FoundSignal",
    "SignalScan",
    "search_pattern",
]

CONTEXT = 50
"""Characters shown on each side of a signal."""


def search_pattern(source: str, *, ignore_case: bool = True) -> Pattern:
    """How this evaluator reads a pattern: as Python's `re` on str, but A-Z are the only letters that fold."""
    return Pattern(source, ignore_case, "ascii")


class DangerSignal(Params):
    """A regular expression, and what its first match in a text means: an error fails the check, a warning never."""

    pattern: str = Field(min_length=1)
    severity: Literal["warning", "error"]
    message: str
    ignore_case: bool = True

    @field_validator("pattern")
    @classmethod
    def _searchable(cls, pattern: str) -> str:
        # Case makes no difference to what is refused.
        require_searchable(search_pattern(pattern))
        return pattern


def _unsure(kind: str, words: str) -> DangerSignal:
    # SPEC, section 3: as written, without word boundaries, so that "improbably" is a match.
    return DangerSignal(pattern=words, severity="warning", message=f'{kind} 표현 감지: "{words}"')


# Messages are the seed's, word for word: results name signals by them.
DANGER_SIGNALS: tuple[DangerSignal, ...] = (
    _unsure("불확실한", "should work"),
    _unsure("불확실한", "probably"),
    _unsure("주관적", "I believe"),
    _unsure("주관적", "I think"),
    _unsure("일반화", "typically"),
    _unsure("일반화", "usually"),
    DangerSignal(pattern="without concrete evidence", severity="error", message="증거 없는 주장 감지"),
)
"""The seven of the specification."""

EXTENDED_DANGER_SIGNALS: tuple[DangerSignal, ...] = (
    *DANGER_SIGNALS,
    _unsure("불확실한", "might be"),
    _unsure("불확실한", "could be"),
    _unsure("불확실한", "perhaps"),
    _unsure("가정", "assume"),
    DangerSignal(pattern="TODO|FIXME|HACK", severity="error", message="미완성 마커 감지"),
)
"""The seven and the specification's five further ones."""

# Errors, since a warning never fails a check (SPEC, section 3).
CALIBRATED_DANGER_SIGNALS: tuple[DangerSignal, ...] = tuple(
    DangerSignal(pattern=pattern, severity="error", message=message) for pattern, message in CALIBRATED
)
"""evalq's own list, tuned on one half of its labelled set (docs/reference/selfcheck-effectiveness.md)."""

SIGNAL_LISTS: dict[str, tuple[DangerSignal, ...]] = {
    "default": DANGER_SIGNALS,
    "extended": EXTENDED_DANGER_SIGNALS,
    "calibrated": CALIBRATED_DANGER_SIGNALS,
}


@dataclass(slots=True)
class FoundSignal:
    """A signal's message, and the text around its first match."""

    signal: str
    context: str


class SignalScan:
    """Looks for ``signals``, showing ``context`` characters on each side."""

    def __init__(self, signals: Sequence[DangerSignal], context: int = CONTEXT) -> None:
        self.signals = tuple(signals)
        self._context = context
        self._scanner = Scanner([search_pattern(s.pattern, ignore_case=s.ignore_case) for s in self.signals])

    def __call__(self, text: str) -> list[FoundSignal]:
        """The signals found in ``text``, in list order."""
        found = []
        for signal, span in zip(self.signals, self._scanner.firsts(text), strict=True):
            if span:
                around = text[max(0, span[0] - self._context) : span[1] + self._context]
                # Dots on both sides, as the seed's code has them, also where the text ends.
                found.append(FoundSignal(signal.message, f"...{around}..."))
        return found
