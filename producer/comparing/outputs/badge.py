"""An outcome as a badge: data for shields.io's endpoint badge, and a picture of our own."""

from __future__ import annotations

from html import escape

import msgspec

from evalq.evalcore.views.markdown import visible
from evalq.producer.comparing.outputs.outcome import Outcome, Standing

__all__ = ["write_shield", "write_svg"]

_COLOURS: dict[Standing, tuple[str, str]] = {
    "kept": ("brightgreen", "#2a7a2f"),
    "broken": ("red", "#b3261e"),
    "suspect": ("orange", "#a34700"),
    "open": ("yellow", "#8a6100"),
    "error": ("lightgrey", "#5c5c5c"),
}
_LABEL = 40
_SIGN, _AROUND = 6.6, 12
"""Pixels: of a sign at this size, about, and around a text."""


def write_shield(outcome: Outcome, name: str) -> bytes:
    """JSON as https://shields.io/endpoint reads it; ``nightly-badge.json`` is labelled nightly."""
    label = _label(name.removesuffix("badge.json"))
    shield = {"schemaVersion": 1, "label": label, "message": outcome.word, "color": _COLOURS[outcome.standing][0]}
    return msgspec.json.encode(shield | ({"isError": True} if outcome.standing == "error" else {})) + b"\n"


def write_svg(outcome: Outcome, name: str) -> bytes:
    """A picture that refers to nothing outside of it; ``nightly.svg`` is labelled nightly."""
    stem = name.removesuffix(".svg")
    label, word = _label(stem.removesuffix("badge")), outcome.word
    left, right = (round(_SIGN * len(text) + _AROUND) for text in (label, word))
    said, colour = f"{escape(label)}: {escape(word)}", _COLOURS[outcome.standing][1]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{said}">'
        f'<title>{said}</title><rect width="{left}" height="20" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        f'<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f"{_words(label, left / 2, left)}{_words(word, left + right / 2, right)}</g></svg>\n"
    ).encode()


def _words(text: str, middle: float, width: int) -> str:
    return f'<text x="{middle:g}" y="14" textLength="{width - _AROUND}">{escape(text)}</text>'


def _label(stem: str) -> str:
    text = " ".join(visible(stem).encode(errors="replace").decode().strip("-_. ").split())
    return text[:_LABEL] or "evalq"
