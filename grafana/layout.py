"""Where panels stand: in lines of 24 columns, under the titles of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from grafana.view import View

COLUMNS = 24
_TITLE_HEIGHT = 1
_MOST = 6


class Row(msgspec.Struct, frozen=True):
    """A titled group of panels."""

    title: str
    views: tuple[View, ...]


class Cell(msgspec.Struct, frozen=True):
    """Where a panel, or (``view`` None) a row's title stands."""

    x: int
    y: int
    w: int
    h: int
    title: str
    view: View | None = None


def place(rows: Iterable[Row]) -> Iterator[Cell]:
    """Every panel's place: lines are filled to the right edge, and their panels are of one height."""
    y = 0
    for row in rows:
        yield Cell(0, y, COLUMNS, _TITLE_HEIGHT, row.title)
        y += _TITLE_HEIGHT
        for line in _lines(row.views):
            height, x = max(view.height for view in line), 0
            for view, width in zip(line, _filled([view.width for view in line]), strict=True):
                yield Cell(x, y, width, height, view.title, view)
                x += width
            y += height


def even(views: Sequence[View]) -> tuple[View, ...]:
    """The panels with widths that share lines evenly, no more than six on one."""
    lines = -(-len(views) // _MOST)
    most = -(-len(views) // lines) if lines else 1
    widths = [width for at in range(0, len(views), most) for width in _filled([1] * len(views[at : at + most]))]
    return tuple(msgspec.structs.replace(view, width=width) for view, width in zip(views, widths, strict=True))


def _lines(views: Iterable[View]) -> Iterator[list[View]]:
    line: list[View] = []
    for view in views:
        if line and sum(each.width for each in line) + view.width > COLUMNS:
            yield line
            line = []
        line.append(view)
    if line:
        yield line


def _filled(widths: list[int]) -> list[int]:
    """The widths stretched in proportion until they fill the line."""
    total, ends, taken = sum(widths), [], 0
    for width in widths:
        taken += width
        # The ends are rounded, not the widths, so that a line always fills its 24 columns.
        ends.append(round(taken * COLUMNS / total))
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
