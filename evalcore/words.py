"""Words: folded text, words that exclude one another, and patterns."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock

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
    # Casefolding can produce text that NFKC changes again, so normalise before and after it.
    text = text.casefold()
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.split())


def is_punctuation(character: str) -> bool:
    """Whether it is punctuation by Unicode; signs of currency and arithmetic are not."""
    return unicodedata.category(character).startswith("P")


def words_of(text: str) -> list[str]:
    """Runs of letters and digits of any script, with their marks (UAX 29): \u0915\u0940 is not \u0915.

    If a script has no spaces between words, each character is a word (`UNSPACED`).
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


# Negations, words that exclude one another, and empty words: of English, Korean, German, French and Spanish, and some
# of Japanese and Chinese; all casefolded.

_NEGATIONS = (
    "no non not never without neither nor none nothing nobody nowhere cannot "
    "nicht kein keine keinen keinem keiner keines nie niemals niemand nichts ohne weder "
    "pas jamais aucun aucune sans rien ni nunca jamás sin ningún ninguna ninguno nada nadie tampoco 안 못"
)
NEGATIONS = frozenset(_NEGATIONS.split())
"""Negating words of languages that write them as separate words."""
PREFIXES = ("non", "un", "in", "im", "il", "ir", "dis", "anti")
OPPOSING = (
    ("quanti", "quali"),
    ("hyper", "hypo"),
    ("inter", "intra"),
    ("macro", "micro"),
    ("over", "under"),
    ("pre", "post"),
)
# Korean joins negation to verbs, Japanese and Chinese write no spaces.
_WITHIN = re.compile("않|없|아니|아닙|못하|못합|말아|마세요|지 마|ません|ない|なかった|不|没|無|无")
_GROUPS = tuple(
    frozenset(group.split())
    for group in (
        *("left right", "buy sell hold", "yes no", "true false", "up down", "above below", "more less", "rise fall"),
        *(
            "increase decrease",
            "open closed",
            "accept reject",
            "approve deny",
            "first last",
            "before after",
            "high low",
        ),
        *("always never", "north south east west", "safe dangerous", "better worse", "best worst", "pass fail"),
        *("monday tuesday wednesday thursday friday saturday sunday", "morning afternoon evening", "hot cold"),
        "january february march april may june july august september october november december",
        *("links rechts", "kaufen verkaufen halten", "ja nein", "wahr falsch", "oben unten", "mehr weniger"),
        *("steigen fallen", "steigt fällt", "vor nach", "immer nie", "nord süd ost west", "besser schlechter"),
        "montag dienstag mittwoch donnerstag freitag samstag sonntag",
        *("gauche droite", "acheter vendre conserver", "oui non", "vrai faux", "haut bas", "plus moins"),
        *("avant après", "toujours jamais", "nord sud est ouest", "ouvert fermé", "monter baisser"),
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
        *("izquierda derecha", "comprar vender mantener", "sí no", "verdadero falso", "arriba abajo", "más menos"),
        *("antes después", "siempre nunca", "norte sur este oeste", "abierto cerrado", "subir bajar"),
        "lunes martes miércoles jueves viernes sábado domingo",
        *(
            "왼쪽 오른쪽",
            "좌회전 우회전",
            "매수 매도 보유",
            "참 거짓",
            "맞습니다 틀립니다",
            "상승 하락",
            "증가 감소",
            "찬성 반대",
        ),
        *("승인 거절", "동쪽 서쪽 남쪽 북쪽", "오전 오후", "가능 불가능", "합격 불합격", "성공 실패"),
        "월요일 화요일 수요일 목요일 금요일 토요일 일요일",
        *("左 右", "買 売", "買い 売り", "上 下", "東 西 南 北", "增加 减少", "買入 賣出"),
        "月曜 火曜 水曜 木曜 金曜 土曜 日曜",
    )
)
_OTHERS = {word: group - {word} for group in _GROUPS for word in group}
_SORTED = {word: tuple(sorted(others)) for word, others in _OTHERS.items()}
_PREFIXED = (*PREFIXES, *(prefix for pair in OPPOSING for prefix in pair))
_LEAST = 3
_JOINED = re.compile("|".join(sorted((word for word in _OTHERS if not word[0] < "ᄀ"), key=len, reverse=True)))
"""The words of scripts that join words; evalq searches for them within others."""
_EMPTY = (
    "the a an of course sure certainly definitely absolutely clearly obviously surely indeed well okay ok yes "
    "so then please thanks thank you it's its is are that this these those be would it i think we in short fact "
    "der die das ein eine natürlich klar gerne sicher selbstverständlich ja also bitte danke ist sind es wir doch "
    "le la les l un une bien sûr certainement évidemment oui alors merci c'est est sont en effet voici "
    "el los las uno claro por supuesto ciertamente sí bueno gracias es son se lo "
    "네 예 물론 물론입니다 당연히 당연합니다 확실히 감사합니다 그럼요 음 はい もちろん ええ 好的 当然"
)
EMPTY_WORDS = frozenset(_EMPTY.split())
"""Articles, and words with which any answer may begin or end."""


def denials(text: str, words: list[str]) -> int:
    """How many negations a text with these ``words`` has; which ones does not matter."""
    denied = sum(map(NEGATIONS.__contains__, words))
    if "n't" in text:
        denied += sum(word.endswith("n't") for word in words)
    return denied + (0 if text.isascii() else len(_WITHIN.findall(text)))


def against(word: str) -> tuple[str, ...]:
    """The words that a word excludes: other days of the week, and for a word with an opposing prefix its rest.

    It leaves out all words with a further prefix, and a rest of two or three letters: many words begin with "in" or
    "un" by chance.
    """
    others = _SORTED.get(word, ())
    if not word.startswith(_PREFIXED):
        return others
    bare = (other for other in opposites(word) if len(other) > _LEAST and not other.endswith(word))
    return tuple(dict.fromkeys([*others, *bare]))


def sides(text: str) -> list[str]:
    """The words in ``text`` that exclude others, for scripts that join words."""
    return [] if text.isascii() else _JOINED.findall(text)


@lru_cache(maxsize=65536)
def opposites(word: str) -> tuple[str, ...]:
    """Possible opposites of ``word``; some of them are not words."""
    return tuple(_opposites(word))


def _opposites(word: str) -> Iterator[str]:
    yield from _SORTED.get(word, ())
    # Callers look for whole words: index and image negate only if the text has "dex" or "age", too.
    for prefix in PREFIXES:
        yield prefix + word
        if word.startswith(prefix):
            yield word.removeprefix(prefix)
    for one, other in OPPOSING:
        if word.startswith(one):
            yield other + word.removeprefix(one)
        if word.startswith(other):
            yield one + word.removeprefix(other)


# Patterns compile without Python's warning that a later version may read some of them otherwise, because it names a
# line of evalq, and neither the pattern nor its file.

_LOCK = Lock()
"""Python's warning filters are shared by all threads: without the lock, overlapping blocks would restore wrong ones."""


@contextmanager
def ignore_pattern_warnings() -> Iterator[None]:
    """A block that reads patterns."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """The pattern, with flags of `re`. Raises `re.error`, and what else `re.compile` raises."""
    with ignore_pattern_warnings():
        return re.compile(pattern, flags)
