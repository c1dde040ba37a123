"""Numbers as text, in the units that the pages use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_STEPS = ((86400, "d"), (3600, "h"), (60, "min"))
_COLOURS = {"green": "#3b8f4a", "orange": "#d9822b", "red": "#c4342d", "blue": "#2f6fb7", "text": "#333333"}


def text(value: float | None, defaults: Mapping[str, Any], now: float = 0.0) -> str:
    """A value as a panel with these field defaults shows it; ``now`` is for times that are shown as an age."""
    for mapping in defaults.get("mappings", ()):
        if mapping["type"] == "special" and (value is None or math.isnan(value)):
            return str(mapping["options"]["result"]["text"])
        if mapping["type"] == "value" and value is not None and f"{value:g}" in mapping["options"]:
            return str(mapping["options"][f"{value:g}"]["text"])
    if value is None or math.isnan(value):
        return str(defaults.get("noValue", "-"))
    return _with_unit(value, defaults.get("unit", ""), defaults.get("decimals"), now)


def _with_unit(value: float, unit: str, digits: int | None, now: float) -> str:
    if unit == "percentunit":
        return f"{value * 100:.{1 if digits is None else digits}f}%"
    if unit == "s":
        return _seconds(value)
    if unit == "bytes":
        return f"{value / 2**20:.1f} MiB"
    if unit == "dateTimeFromNow":
        return f"{_seconds(now - value / 1000)} ago"
    tail = f" {unit.removeprefix('suffix:')}" if unit.startswith("suffix:") else ""
    comma = "," if unit == "locale" else ""
    return f"{value:{comma}.{1 if digits is None else digits}f}{tail}"


def _seconds(value: float) -> str:
    for size, name in _STEPS:
        if value >= size:
            return f"{value / size:.1f} {name}"
    return f"{value:.1f} s" if value >= 1 or value == 0 else f"{value * 1000:.3g} ms"


def colour(value: float | None, defaults: Mapping[str, Any]) -> str:
    """The colour of a value by the panel's thresholds, or its one colour."""
    mode = defaults.get("color", {})
    if mode.get("mode") == "fixed" or "thresholds" not in defaults:
        return _COLOURS[mode.get("fixedColor", "text")]
    if value is None or math.isnan(value):
        return _COLOURS["text"]
    steps = defaults["thresholds"]["steps"]
    return _COLOURS[[step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]]


def named(name: str) -> str:
    """A colour by its name in Grafana."""
    return _COLOURS[name]
