"""An outcome as workflow commands of GitHub Actions, a line each, for a step that prints the file.

Escaped as @actions/core does it. GitHub shows ten of a kind for a step, 4,096 characters of each.
"""

from __future__ import annotations

from typing import Literal

from evalq.evalcore.views.markdown import visible
from evalq.producer.comparing.outputs.outcome import Outcome, Point

__all__ = ["write_annotations"]

_Kind = Literal["error", "warning", "notice"]
_OF_A_KIND, _TEXT, _TITLE = 10, 2_000, 200
_GAP = "\N{ZERO WIDTH SPACE}"


def write_annotations(outcome: Outcome, name: str) -> bytes:
    """Errors for what blocks, warnings for what is open or only warns, notices for the rest; nothing for what holds."""
    lines: list[str] = []
    for kind in ("error", "warning", "notice"):
        points = [point for point in outcome.points if _kind(point, outcome) == kind]
        # One less than are shown: the last line says how many more there are.
        shown = points if len(points) <= _OF_A_KIND else points[: _OF_A_KIND - 1]
        lines += [_line(kind, f"evalq {outcome.what}: {point.word}", _told(point)) for point in shown]
        if len(points) > len(shown):
            left = f"{len(points) - len(shown):,} more like these; GitHub shows {_OF_A_KIND} of a kind"
            lines.append(_line(kind, f"evalq {outcome.what}", left))
    return "".join(line + "\n" for line in lines).encode()


def _kind(point: Point, outcome: Outcome) -> _Kind | None:
    if point.standing == "kept":
        return None
    if not point.blocks:
        return "warning" if point.tier == "supporting" else "notice"
    if point.standing == "open":
        return "notice" if outcome.passes else "warning"
    return "notice" if outcome.passes else "error"


def _told(point: Point) -> str:
    cases = f"\ncases: {', '.join(point.cases)}" if point.cases else ""
    return f"{point.name}: {point.reason}{cases}"


def _line(kind: str, title: str, text: str) -> str:
    return f"::{kind} title={_property(title[:_TITLE])}::{_data(text)}"


def _data(text: str) -> str:
    """``text`` as a command's data. The older form of commands begins anywhere in a line, with ##[ or ##vso[."""
    text = visible(text).encode(errors="replace").decode()
    text = text if len(text) <= _TEXT else f"{text[:_TEXT]}… ({len(text):,} characters)"
    text = text.replace("##", f"#{_GAP}#")
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
