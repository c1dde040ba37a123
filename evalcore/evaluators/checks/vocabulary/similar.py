"""Checks that compare an answer with a text or a number: by edits, words, characters, or value."""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from rapidfuzz.distance import LCSseq, Levenshtein

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer, Unfit, plain
from evalq.evalcore.evaluators.checks.vocabulary.declaring import (
    BadCheck,
    Bounds,
    Finding,
    Kind,
    Made,
    NoOptions,
    format_number,
    holds,
)
from evalq.evalcore.evaluators.checks.vocabulary.text import CaseOptions, Normal, Text, quoted
from evalq.evalcore.naming import shorten
from evalq.evalcore.words import UNSPACED, is_punctuation, marks, words_of

_LONGEST = 200_000
"""Characters of an answer: counting edits between longer texts takes hours."""
_THRESHOLD = 0.75
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@cache
def _part() -> re.Pattern[str]:
    # When it is first used: to list the marks of Unicode takes a twentieth of a small run.
    return re.compile(rf"[{UNSPACED}][{marks()}]*|[^{UNSPACED}]+")


class DistanceOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """How many edits pass."""

    max: Annotated[int, msgspec.Meta(ge=0, description="the most edits that pass")] = 5
    ignore_case: Annotated[bool, msgspec.Meta(description="upper and lower case are one")] = False
    normalize: Normal = "none"


class FormOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to compare texts."""

    normalize: Normal = "none"


def _measure(answer: CheckedAnswer, measure: Callable[[str], float]) -> Finding:
    text = answer.prose
    if len(text) > _LONGEST:
        raise Unfit(f"{len(text)} characters, too long to compare")
    score = min(1.0, max(0.0, measure(text)))
    return Finding(score, f"{score:.3f}: {text}")


def _require_short(value: str) -> None:
    if len(value) > _LONGEST:
        raise BadCheck(f"longer than {_LONGEST} characters, too long to compare with")


def _edit_similarity(value: str, options: CaseOptions) -> Made:
    _require_short(value)
    fold, form = options.ignore_case, options.normalize
    wanted = plain(value, fold, form)

    def run(answer: CheckedAnswer) -> Finding:
        return _measure(answer, lambda _: Levenshtein.normalized_similarity(answer.plain(fold, form), wanted))

    return Made(quoted(value), run)


def _edit_distance(value: str, options: DistanceOptions) -> Made:
    _require_short(value)
    wanted = plain(value, options.ignore_case, options.normalize)

    def run(answer: CheckedAnswer) -> Finding:
        # `prose` first, since it raises for data.
        text = answer.plain(options.ignore_case, options.normalize) if answer.prose else ""
        # There are at least as many edits as the lengths differ: above the bound, there is no need to compare.
        if len(text) > _LONGEST and len(text) - len(wanted) <= options.max:
            raise Unfit(f"{len(text)} characters, too long to compare")
        # Capped by the number of characters, since the library does not take all large numbers.
        edits = Levenshtein.distance(text, wanted, score_cutoff=min(options.max, len(text) + len(wanted)))
        return holds(edits <= options.max, f"{edits if edits <= options.max else f'over {options.max}'} edits: {text}")

    return Made(f"{quoted(value)}, at most {options.max} edits", run)


def token_f1(text: str, wanted: str) -> float:
    """The F1 of the words, as in SQuAD (Rajpurkar et al. 2016): without case, punctuation and articles.

    For text that is not ASCII, as in MLQA (Lewis et al. 2020): without the punctuation of any script, and with each
    character as a word in scripts without spaces.
    """
    words, wanted_words = _squad_words(text), _squad_words(wanted)
    if not words or not wanted_words:
        # As in SQuAD's script: no words are right if none are wanted.
        return float(words == wanted_words)
    shared = sum((Counter(words) & Counter(wanted_words)).values())
    return 2 * shared / (len(words) + len(wanted_words))


def _squad_words(text: str) -> list[str]:
    # In the order of SQuAD's script: punctuation goes before articles.
    words = _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()
    if text.isascii():
        return words
    plain = ("".join(each for each in word if not is_punctuation(each)) for word in words)
    # Other signs stay, such as that of a currency.
    return [part for word in plain for part in _part().findall(word)]


def rouge_l(text: str, wanted: str) -> float:
    """ROUGE-L's F1 (Lin 2004): the longest common subsequence of the words, without case.

    For ASCII text it equals that of the package rouge-score without stemming; `words_of` splits other scripts.
    """
    words, wanted_words = words_of(text.lower()), words_of(wanted.lower())
    # As in rouge-score: 0 even if both have no words.
    if not words or not wanted_words:
        return 0.0
    return 2 * LCSseq.similarity(words, wanted_words) / (len(words) + len(wanted_words))


def _make_from_measure(measure: Callable[[str, str], float]) -> Callable[[str, FormOptions], Made]:
    def make(value: str, options: FormOptions) -> Made:
        _require_short(value)
        wanted, form = plain(value, False, options.normalize), options.normalize

        def run(answer: CheckedAnswer) -> Finding:
            return _measure(answer, lambda text: measure(plain(text, False, form), wanted))

        return Made(quoted(value), run)

    return make


def _chrf(value: str, options: NoOptions) -> Made:
    _require_short(value)
    try:
        # Imported here, since it is an optional extra (decision 19).
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise BadCheck("chrf needs the package sacrebleu: pip install 'evalq[chrf]'") from None
    measure: Any = CHRF()

    def run(answer: CheckedAnswer) -> Finding:
        return _measure(answer, lambda text: measure.sentence_score(text, [value]).score / 100)

    return Made(quoted(value), run)


KINDS = (
    Kind(
        name="edit-similarity",
        summary="How similar the answer is to a text: 1 minus the edits between them over the length of the longer.",
        value=Text,
        options=CaseOptions,
        make=_edit_similarity,
        threshold=_THRESHOLD,
        example={"edit-similarity": "The capital is Paris.", "threshold": 0.8},
    ),
    Kind(
        name="edit-distance",
        summary="At most `max` edits turn the answer into the text (insertions, deletions, changes of a character).",
        value=str,
        options=DistanceOptions,
        make=_edit_distance,
        example={"edit-distance": "Paris", "max": 2},
    ),
    Kind(
        name="token-f1",
        summary="The F1 of the words of answer and text, as in SQuAD: without case, punctuation and articles.",
        value=Text,
        options=FormOptions,
        make=_make_from_measure(token_f1),
        threshold=_THRESHOLD,
        example={"token-f1": "The capital is Paris.", "threshold": 0.6},
    ),
    Kind(
        name="rouge-l",
        summary="ROUGE-L's F1: the longest common subsequence of their words, without case or stemming.",
        value=Text,
        options=FormOptions,
        make=_make_from_measure(rouge_l),
        threshold=_THRESHOLD,
        example={"rouge-l": "The capital is Paris.", "threshold": 0.6},
    ),
    Kind(
        name="chrf",
        summary="chrF of sacrebleu, as a share: the F2 of their character n-grams.",
        value=Text,
        make=_chrf,
        threshold=_THRESHOLD,
        needs="chrf",
        example={"chrf": "The capital is Paris.", "threshold": 0.5},
    ),
)


# Checks of the numbers in a text.

# No part of this pattern can match in two ways, so that it takes linear time.
# A sign after a digit, a letter or a bracket is a dash or an operator: 3-5 has no -5 in it. Narrow and fixed spaces and
# apostrophes stand between groups of three, and are no part of a number elsewhere.
_TOKEN = re.compile(
    r"(?:(?<![\w)])[-+])?"
    r"(?:\d{1,3}(?P<apart>[\u00a0\u2007\u2009\u202f'\u2019])\d{3}(?:(?P=apart)\d{3})*+(?!\d)(?:\.\d+)?"
    r"|\d+(?:,\d+)*(?:\.\d+)?|(?<![\w.])\.\d+)(?:[eE][-+]?\d{1,4}(?!\d))?",
    re.ASCII,
)
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+", re.ASCII)
_APART = re.compile("[\u00a0\u2007\u2009\u202f'\u2019]")
_OTHER_DIGIT = re.compile(r"[^\x00-\x7f]")
_WIDE_COMMA = re.compile(r"(?<=\d)\uff0c(?=\d{3}(?!\d))")
# The minus sign, dashes instead of it, and the signs of East Asian and Arabic keyboards.
_SIGNS = str.maketrans("\u2212\u2013\u2012\ufe63\uff0d\uff0b\uff0e\u066b\u066c", "-----+..,")
_WHOLE = 10**17
_SWAPPED = str.maketrans(",.", ".,")


class NumberOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Which number of the answer to compare, and how near it has to be."""

    which: Annotated[
        Literal["any", "first", "last", "only"], msgspec.Meta(description="which number of the answer")
    ] = "any"
    tolerance: Annotated[float, msgspec.Meta(ge=0, description="how much it may differ")] = 0.0
    relative: Annotated[float, msgspec.Meta(ge=0, description="the share by which it may differ")] = 0.0
    decimal_comma: Annotated[bool, msgspec.Meta(description="3,5 is three and a half, and 1.234 a thousand")] = False


def numbers_in(text: str, *, decimal_comma: bool = False) -> Iterator[Decimal]:
    """The numbers in a text, in decimal digits of any script, without those that are not finite floats.

    Commas, apostrophes or no-break spaces may separate groups of three digits; with ``decimal_comma``, a comma begins
    the fraction, and points separate groups.
    """
    text = _ascii_numbers(text)
    if decimal_comma:
        text = text.translate(_SWAPPED)
    for match in _TOKEN.finditer(text):
        token = _APART.sub("", match[0]) if match["apart"] else match[0]
        sign, digits = (token[0], token[1:]) if token[0] in "-+" else ("", token)
        whole = digits.partition(".")[0].partition("e")[0].partition("E")[0]
        # "1,234" is one number, "1,2" are two.
        parts = [digits.replace(",", "")] if "," not in whole or _GROUPED.fullmatch(whole) else digits.split(",")
        for index, part in enumerate(filter(None, parts)):
            written = sign + part if index == 0 else part
            if math.isfinite(float(written)):
                yield Decimal(written)


def _ascii_numbers(text: str) -> str:
    """The text with ASCII digits and signs instead of those of other scripts."""
    if text.isascii():
        return text
    text = _OTHER_DIGIT.sub(lambda match: str(unicodedata.decimal(match[0], match[0])), text)
    return _WIDE_COMMA.sub(",", text.translate(_SIGNS))


def _parse_wanted(value: int | float | str, decimal_comma: bool) -> int | float:
    """The number wanted, which spreadsheets give as a text. Raises BadCheck."""
    if not isinstance(value, str):
        return value
    text = _ascii_numbers(value.strip())
    numbers = list(numbers_in(text, decimal_comma=decimal_comma))
    if len(numbers) != 1 or not _TOKEN.fullmatch(text.translate(_SWAPPED) if decimal_comma else text):
        raise BadCheck(f"expected a number, got {shorten(value)!r}")
    return (
        int(numbers[0])
        if numbers[0] == numbers[0].to_integral_value() and abs(numbers[0]) < _WHOLE
        else float(numbers[0])
    )


def _number(written: int | float | str, options: NumberOptions) -> Made:
    value = _parse_wanted(written, options.decimal_comma)
    bounds = Bounds(value, options.tolerance, options.relative)
    about = "about " if options.tolerance or options.relative else ""
    which = {"any": "a number", "first": "the first number", "last": "the last number", "only": "the only number"}

    def run(answer: CheckedAnswer) -> Finding:
        numbers = list(numbers_in(answer.said, decimal_comma=options.decimal_comma))
        if options.which == "any":
            return holds(any(each in bounds for each in numbers), _list_numbers(numbers) or f"no number: {answer.text}")
        # Unlike "any": without numbers, nothing is true of the first or last one (docs/decisions/0019).
        if not numbers:
            raise Unfit(f"no number: {answer.text}")
        if options.which == "only" and len(numbers) > 1:
            raise Unfit(f"{len(numbers)} numbers: {_list_numbers(numbers)}")
        number = numbers[-1 if options.which == "last" else 0]
        return holds(number in bounds, format_number(number))

    return Made(f"{which[options.which]} {about}{format_number(value)}", run)


def _list_numbers(numbers: list[Decimal]) -> str:
    return ", ".join(map(format_number, numbers[:10])) + (", ..." if len(numbers) > 10 else "")


NUMBER_KINDS = (
    Kind(
        name="number",
        summary="A number in the answer is this one, in decimals: any of them, the first, the last, or the only one.",
        value=int | float | str,
        options=NumberOptions,
        make=_number,
        example={"number": 42, "which": "last", "tolerance": 0.5},
    ),
)
