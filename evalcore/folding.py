"""Text made equal where only its writing differs: by Unicode, by case, by white space."""

from __future__ import annotations

import unicodedata

__all__ = ["folded", "is_punctuation"]


def folded(text: str) -> str:
    """NFKC, casefolded, runs of white space as one space, none at either end."""
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    # Casefolding can produce what NFKC would change again, so the text is normalised before and after it.
    text = text.casefold()
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.split())


def is_punctuation(character: str) -> bool:
    """Whether Unicode takes it for punctuation; signs of currency and of arithmetic are none."""
    return unicodedata.category(character).startswith("P")
