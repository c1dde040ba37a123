"""Checks that compare an answer with a text or a number: by edits, words, characters, or value."""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
from rapidfuzz.distance import LCSseq, Levenshtein

from evalq.evalcore.evaluators.checks.answer import Answer, Unfit, plain
from evalq.evalcore.evaluators.checks.vocabulary.declaring import (
    BadCheck,
    Bounds,
    Finding,
    Kind,
    Made,
    NoOptions,
    holds,
    told,
)
from evalq.evalcore.evaluators.checks.vocabulary.text import CaseOptions, Normal, Text, quoted
from evalq.evalcore.naming import shorten
from evalq.evalcore.words import UNSPACED, is_punctuation, marks, words_of

_LONGEST = 200_000
"""Characters of an answer that is measured: edits between longer texts take hours."""
_THRESHOLD = 0.75
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_PART = re.compile(rf"[{UNSPACED}][{marks()}]*|[^{UNSPACED}]+")


class DistanceOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """How many edits are too many."""

    max: Annotated[int, msgspec.Meta(ge=0, description="so many edits, at most")] = 5
    ignore_case: Annotated[bool, msgspec.Meta(description="upper and lower case are one")] = False
    normalize: Normal = "none"


class FormOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In which form texts are compared."""

    normalize: Normal = "none"


def _measured(answer: Answer, measure: Callable[[str], float]) -> Finding:
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

    def run(answer: Answer) -> Finding:
        return _measured(answer, lambda _: Levenshtein.normalized_similarity(answer.plain(fold, form), wanted))

    return Made(quoted(value), run)


def _edit_distance(value: str, options: DistanceOptions) -> Made:
    _require_short(value)
    wanted = plain(value, options.ignore_case, options.normalize)

    def run(answer: Answer) -> Finding:
        # `prose` first, which raises for data: its JSON has edits, too, but is no text to be written anew.
        text = answer.plain(options.ignore_case, options.normalize) if answer.prose else ""
        # A difference in length is as many edits at least: beyond the bound nothing has to be compared.
        if len(text) > _LONGEST and len(text) - len(wanted) <= options.max:
            raise Unfit(f"{len(text)} characters, too long to compare")
        # The bound may be larger than what the library takes; more edits than both have characters there never are.
        edits = Levenshtein.distance(text, wanted, score_cutoff=min(options.max, len(text) + len(wanted)))
        return holds(edits <= options.max, f"{edits if edits <= options.max else f'over {options.max}'} edits: {text}")

    return Made(f"{quoted(value)}, at most {options.max} edits", run)


def token_f1(text: str, wanted: str) -> float:
    """The F1 of their words, as SQuAD has it (Rajpurkar et al. 2016): without case, punctuation and articles.

    Of text that is not ASCII, as MLQA has it (Lewis et al. 2020): without any script's punctuation, and cut by
    character where a script has no spaces.
    """
    one, other = _squad(text), _squad(wanted)
    if not one or not other:
        # As SQuAD's script has it: nothing where nothing is wanted is right.
        return float(one == other)
    shared = sum((Counter(one) & Counter(other)).values())
    return 2 * shared / (len(one) + len(other))


def _squad(text: str) -> list[str]:
    # In the order of SQuAD's own script: articles are looked for once punctuation is gone.
    words = _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()
    if text.isascii():
        return words
    plain = ("".join(each for each in word if not is_punctuation(each)) for word in words)
    # Signs that are no punctuation stay, such as that of a currency.
    return [part for word in plain for part in _PART.findall(word)]


def rouge_l(text: str, wanted: str) -> float:
    """ROUGE-L's F1 (Lin 2004): the longest common subsequence of their words, without case.

    Of ASCII text that of the package rouge-score without stemming; words of other scripts are those of `words_of`.
    """
    one, other = words_of(text.lower()), words_of(wanted.lower())
    # As rouge-score has it: no words have no sequence in common, not even with no words.
    if not one or not other:
        return 0.0
    return 2 * LCSseq.similarity(one, other) / (len(one) + len(other))


def _by(measure: Callable[[str, str], float]) -> Callable[[str, FormOptions], Made]:
    def make(value: str, options: FormOptions) -> Made:
        _require_short(value)
        wanted, form = plain(value, False, options.normalize), options.normalize

        def run(answer: Answer) -> Finding:
            return _measured(answer, lambda text: measure(plain(text, False, form), wanted))

        return Made(quoted(value), run)

    return make


def _chrf(value: str, options: NoOptions) -> Made:
    _require_short(value)
    try:
        # Here and not above: it is an extra, since it brings packages of its own (decision 19).
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise BadCheck("chrf needs the package sacrebleu: pip install 'evalq[chrf]'") from None
    measure: Any = CHRF()

    def run(answer: Answer) -> Finding:
        return _measured(answer, lambda text: measure.sentence_score(text, [value]).score / 100)

    return Made(quoted(value), run)


KINDS = (
    Kind(
        name="edit-similarity",
        summary="How like the answer is to a text: 1 minus the edits between them over the length of the longer.",
        value=Text,
        options=CaseOptions,
        make=_edit_similarity,
        threshold=_THRESHOLD,
        example={"edit-similarity": "The capital is Paris.", "threshold": 0.8},
    ),
    Kind(
        name="edit-distance",
        summary="The answer becomes the text by at most so many edits (insertions, deletions, changes of a character).",
        value=str,
        options=DistanceOptions,
        make=_edit_distance,
        example={"edit-distance": "Paris", "max": 2},
    ),
    Kind(
        name="token-f1",
        summary="The F1 of the words of answer and text, as SQuAD has it: without case, punctuation and articles.",
        value=Text,
        options=FormOptions,
        make=_by(token_f1),
        threshold=_THRESHOLD,
        example={"token-f1": "The capital is Paris.", "threshold": 0.6},
    ),
    Kind(
        name="rouge-l",
        summary="ROUGE-L's F1: the longest common subsequence of their words, without case or stemming.",
        value=Text,
        options=FormOptions,
        make=_by(rouge_l),
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

# One pass, no part of which can be matched in two ways: linear in the text, whatever it is.
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
# The minus sign, the dashes that stand for it, and what East Asian and Arabic keyboards write.
_SIGNS = str.maketrans("\u2212\u2013\u2012\ufe63\uff0d\uff0b\uff0e\u066b\u066c", "-----+..,")
_WHOLE = 10**17
_SWAPPED = str.maketrans(",.", ".,")


class NumberOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Which of an answer's numbers is meant, and how near it has to be."""

    which: Annotated[
        Literal["any", "first", "last", "only"], msgspec.Meta(description="which number of the answer")
    ] = "any"
    tolerance: Annotated[float, msgspec.Meta(ge=0, description="by so much it may differ")] = 0.0
    relative: Annotated[float, msgspec.Meta(ge=0, description="by such a share it may differ")] = 0.0
    decimal_comma: Annotated[bool, msgspec.Meta(description="3,5 is three and a half, and 1.234 a thousand")] = False


def numbers_in(text: str, *, decimal_comma: bool = False) -> Iterator[Decimal]:
    """The numbers that a text has, in decimal digits of any script; what is no finite float is left out.

    Groups of three may be set off by commas, apostrophes, or spaces that do not break; with ``decimal_comma`` a comma
    begins the fraction, and points set groups off.
    """
    text = _plain(text)
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


def _plain(text: str) -> str:
    """A text with ASCII digits and signs in place of those of other scripts."""
    if text.isascii():
        return text
    text = _OTHER_DIGIT.sub(lambda found: str(unicodedata.decimal(found[0], found[0])), text)
    return _WIDE_COMMA.sub(",", text.translate(_SIGNS))


def _wanted(value: int | float | str, decimal_comma: bool) -> int | float:
    """The number that is wanted, which spreadsheets give as a text. Raises BadCheck."""
    if not isinstance(value, str):
        return value
    text = _plain(value.strip())
    found = list(numbers_in(text, decimal_comma=decimal_comma))
    if len(found) != 1 or not _TOKEN.fullmatch(text.translate(_SWAPPED) if decimal_comma else text):
        raise BadCheck(f"expected a number, got {shorten(value)!r}")
    return int(found[0]) if found[0] == found[0].to_integral_value() and abs(found[0]) < _WHOLE else float(found[0])


def _number(given: int | float | str, options: NumberOptions) -> Made:
    value = _wanted(given, options.decimal_comma)
    within = Bounds(value, options.tolerance, options.relative)
    about = "about " if options.tolerance or options.relative else ""
    which = {"any": "a number", "first": "the first number", "last": "the last number", "only": "the only number"}

    def run(answer: Answer) -> Finding:
        found = list(numbers_in(answer.text, decimal_comma=options.decimal_comma))
        if options.which == "any":
            return holds(any(each in within for each in found), _shown(found) or f"no number: {answer.text}")
        # Unlike for any of them: of a first or a last number, where there is none, nothing is true
        # (docs/decisions/0019).
        if not found:
            raise Unfit(f"no number: {answer.text}")
        if options.which == "only" and len(found) > 1:
            raise Unfit(f"{len(found)} numbers: {_shown(found)}")
        meant = found[-1 if options.which == "last" else 0]
        return holds(meant in within, told(meant))

    return Made(f"{which[options.which]} {about}{told(value)}", run)


def _shown(found: list[Decimal]) -> str:
    return ", ".join(map(told, found[:10])) + (", ..." if len(found) > 10 else "")


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
