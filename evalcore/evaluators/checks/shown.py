"""Numbers of the report as Markdown has them."""

from __future__ import annotations

__all__ = ["NONE", "number", "share"]

NONE = "N/A"


def share(value: float | None, low: float | None, high: float | None) -> str:
    """Per cent, with the interval where there is one."""
    if value is None:
        return NONE
    shown = f"{100 * value:.1f} %"
    return shown if low is None or high is None else f"{shown} ({100 * low:.1f} to {100 * high:.1f})"


def number(value: float | None) -> str:
    """Three digits behind the point."""
    return NONE if value is None else f"{value:.3f}"
