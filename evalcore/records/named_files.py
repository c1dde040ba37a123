"""What the name of a file says that holds one output: its case, and which repeat of it."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["case_of_name", "readings"]

# Fifteen digits at most, so that every repeat is below 2^53, where a record's own has to be.
_NUMBERED = re.compile(r"(?P<case>.+)[.#](?P<repeat>[0-9]{1,15})", re.DOTALL)


def readings(name: str) -> list[tuple[str, int]]:
    """The (case, repeat) that a name without its ending may mean, the likelier first.

    ``v1.5`` is an id as good as any other, so it is that case; failing that, repeat 5 of ``v1``.
    """
    match = _NUMBERED.fullmatch(name)
    return [(name, 0), *([(match["case"], int(match["repeat"]))] if match else [])]


def case_of_name(name: str, known: Callable[[str], bool]) -> tuple[str, int] | None:
    """The first reading whose case is ``known``; None where none is."""
    return next((reading for reading in readings(name) if known(reading[0])), None)
