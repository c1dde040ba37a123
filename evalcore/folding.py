"""Text made equal where only its writing differs: by Unicode, by case, by white space; and its words."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

__all__ = ["UNSPACED", "folded", "is_punctuation", "marks", "words_of"]

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Scripts that write no space between words, as a class of a pattern: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""
_ASCII_WORD = re.compile(r"[^\W_]+", re.ASCII)
_JOINERS = "\u200c\u200d"


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


def words_of(text: str) -> list[str]:
    """Runs of letters and digits of any script, with the marks that belong to them (UAX 29): \u0915\u0940 is no \u0915.

    Where a script has no spaces between words, each character is one (`UNSPACED`).
    """
    return (_ASCII_WORD if text.isascii() else _words()).findall(text)


@lru_cache(maxsize=1)
def _words() -> re.Pattern[str]:
    return re.compile(
        rf"(?=[^\W_])[{UNSPACED}][{marks()}{_JOINERS}]*|(?:(?![{UNSPACED}])[^\W_][{marks()}{_JOINERS}]*)+"
    )


@lru_cache(maxsize=1)
def marks() -> str:
    """All combining marks of Unicode, as a class of a pattern."""
    runs: list[list[int]] = []
    for code in (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0)):
        if unicodedata.category(chr(code)).startswith("M"):
            if runs and runs[-1][1] == code - 1:
                runs[-1][1] = code
            else:
                runs.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in runs)
