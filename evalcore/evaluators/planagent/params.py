"""The parameters of a plan agent's scores, with the specification's defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.words import compiled

# The patterns of a checklist's conditions. ``(?&name)`` in a pattern stands for the part of that name. A form matches a
# whole condition up to its end, so that it never reads "is not", "or" and "contains" as "is": such a line stays unread.
# Spaces and runs of syllables are matched possessively, so that reading takes linear time.

Kind = Literal["message", "formType", "multiSelectAllowYn", "actionType", "dataKey", "buttonKey"]
_REFERENCE = re.compile(r"\(\?&(\w+)\)")

NUMBERING = (
    r"\s*+(?:(?:[(?&signs)]|(?&number)|\d+\s*+번\s*+[.:)]|\d\ufe0f?\u20e3"
    r"|[(\[（［【〔]\s*+(?:\d+|[A-Za-z가-하]|[xX✓✔]?)\s*+[)\]）］】〕]|[A-Za-z가-하]\s*+[.)](?=\s)|[ivxIVX]+\s*+[.)](?=\s)"
    r"|(?:조건|체크|항목|요소|기준|[Cc]heck|[Cc]ondition)\s*+\d+\s*+[.:)：]|@check\b\s*+[:：]?)\s*+)*"
)
"""Marks before a condition: numbers, letters, circled numbers, bullets, boxes, ``@check``, or several of them."""

KEY = re.compile(r"assistantMessage|formType|multiSelectAllowYn|actionType|dataKey|buttonKey|@check", re.IGNORECASE)
"""The keys that make a line without a number a condition."""

CONNECTOR = r"(?:[\s?.!。？…*}(?&quotes),;/&，；]|그리고|또한|및|and\b|[(（][^()（）]*[)）])*"
"""Text between two conditions of one line, or after the last one, such as remarks in parentheses."""

PARTS: tuple[tuple[str, str], ...] = (
    ("quotes", "\"“”„‟″＂'‘’‚‛′＇`´「」『』《》〈〉«»‹›"),
    (
        "signs",
        (
            r"\-*+•·‣◦▪▫■□●○◆◇▶▷►☐☑☒✓✔✅※★☆➤➢→⁃∙ㆍ–—−>"
            "\u2460-\u24ff\u2776-\u2793\u3200-\u321e\u3251-\u327b\u32b1-\u32bf"
        ),
    ),
    ("number", r"\d+(?:[-.]\d+)*\s*+[.)．）、](?!\d)"),
    ("q", r"[(?&quotes)]"),
    ("quoted", r"(?&q)+(?P<want>[^(?&quotes)\n]+)(?&q)+"),
    # Not a word of an enumeration, a list or an alternative, which ask for more than one word.
    (
        "word",
        (
            r"(?!(?:in|not|is|or|and|one|any|contains?|equals?|should|must|has|have|exists?)\b)"
            r"(?P<want>[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?+)"
        ),
    ),
    ("letters", r"(?:[^\s,;/(){}<>|!?。？…*\[\](?&quotes).]|\.(?=[^\s.]))++"),
    ("keys", r"(?i:assistantMessage|formType|multiSelectAllowYn|actionType|dataKey|buttonKey)"),
    (
        "next",
        r"(?=[\s(?&quotes)(?&signs)]*+(?:(?&keys)|@check|dataUIList|uiValue|value\b|해당|항목|메[시세]지|응답|답변|message))",
    ),
    (
        "end",
        (
            r"(?=[\s?.!。？…*}(?&quotes)]*+(?:[,;]?\s*+$|[(（#]|그리고|또한|(?:[,;/&，；]++|및|and\b)(?&next)|(?&number)"
            r"|[\u2460-\u24ff\u2776-\u2793]|(?<=\s)(?:(?&keys)|@check)))"
        ),
    ),
    ("colon", r"(?:==?|[:：]|[-=]>|→)"),
    (
        "where",
        (
            r"[\s{((?&quotes)*]*+(?:(?:(?:해당|각|어떤|그)\s*+)?항목\s*+(?:의|에|중|내)?\s*+"
            r"|(?:dataUIList|uiValue|value)(?:\[[*\d]*\])?\s*+(?:내의|내에|안에|안의|에서|에는|내|안|의|에|중|\.)?\s*+)*+"
        ),
    ),
    (
        "is",
        (
            r"[(?&quotes)*]*+\s*+(?:의\s*+)?(?:(?:값|타입|유형)\s*+)?"
            r"(?:(?&colon)|이|가|은|는|을|를|으로|로|is\b|equals\b|(?:should|must)\s+be\b)?\s*+(?&colon)?\s*+"
        ),
    ),
    # Syllables of "is", "is set to", "exists", "must be the same" behind a value. Those that negate, widen or narrow
    # are not among them (않, 없, 아니, 못, 안, 불, 미, 외, 또, 상), nor is 포함, since to contain is not to be.
    (
        "same",
        (
            r"(?!\s*+이하)"
            r"[\s인가이은는을를으로와과의값타입유형설정존재일치동같맞하되된한해됐했어있지나까다됨음임야습니요고도록할될확체크검증여부것]*+"
        ),
    ),
    (
        "thing",
        (
            r"(?:인|의|을|를|가진|으로|로|된|\s)*+(?:항목|요소|UI|컴포넌트|데이터|객체|폼|버튼|것)"
            r"[\s이가은는을를]*+(?:(?:최소|적어도)?\s*+(?:1|한|하나)\s*+개?\s*+이상\s*+)?"
            r"[\s포함표시노출반환생성존재하되된한해됐했어있는은을지나까다가됨음임야습니요고도록할될확인체크검증여부것]*+"
        ),
    ),
    (
        "message",
        r"(?:assistant[\s_-]*[Mm]essage|[Mm]essage|(?:응답\s*+|어시스턴트\s*+)?메[시세]지|답변|응답)[(?&quotes)*]*+\s*+",
    ),
    (
        "in",
        (
            r"(?:(?:내용|본문|텍스트)\s*+)?(?:내에는|내에|안에는|안에|에서는|에서|에는|에도|에|내|안|가|이|은|는)?\s*+"
            r"(?:(?&colon)|contains|includes|mentions|(?:should|must)\s+(?:contain|include|mention))?\s*+"
        ),
    ),
    (
        "about",
        (
            r"\s*+(?:과|와|이|가|은|는|을|를|도|의|에|란|이란|라는|이라는|라고|이라고)?\s*+"
            r"(?:(?:관련된|관련한|관련|관한|관해|관하여|대한|대해|대하여|해당하는)\s*+)?"
            r"(?:(?:내용|문구|단어|키워드|표현|안내|설명|정보|텍스트|문장|말|용어|언급)\s*+(?:이|가|은|는|을|를|도)?\s*+)?"
            r"(?:(?:올바르게|정확히|정확하게|반드시|명확히|명확하게|함께|모두)\s*+)?"
        ),
    ),
    (
        "mentioned",
        (
            r"(?:언급|포함|안내|표시|설명|명시|기재|출력|노출|존재|등장|제시|제공|표기|기술|작성|반영|전달|확인|나오|나와|나타나|들어\s*+있"
            r"|들어가|담겨|담기|적혀|쓰여|알려|말하|보여|보이|다루|있)"
            r"[\s되된돼됐됩하한해했함됨어여있는은을가지인나요까다고야음임며습니도록할될것들주확체크검증여부]*+"
        ),
    ),
)
"""(name, pattern) of the parts of the default forms; a part may use those above it."""


def _key(name: Kind) -> str:
    """A pattern for a key in any case, and for its words apart: "form type", "form_type"."""
    words = re.sub(r"(?=[A-Z])", " ", name).split()
    return "(?i:" + r"[\s_-]*+".join(words) + ")"


def _forms_of(name: Kind) -> list[tuple[Kind, str]]:
    """Forms with a quoted value, with a bare ASCII word, and with any word after a colon or an equals sign."""
    start = rf"(?&where){_key(name)}(?&is)"
    ending = r"(?:(?&thing)|(?&same))(?&end)"
    if name == "multiSelectAllowYn":
        return [(name, rf"{start}(?&q)*+(?P<want>(?i:true|false))(?&q)*+{ending}")]
    return [
        (name, rf"{start}(?&quoted){ending}"),
        (name, rf"{start}(?&word){ending}"),
        (name, rf"(?&where){_key(name)}[(?&quotes)*]*+\s*+(?:값\s*+)?(?&colon)\s*+(?P<want>(?&letters))(?&end)"),
    ]


FORMS: tuple[tuple[Kind, str], ...] = (
    # A keyword may hold quotes: it ends at the first one after which the condition goes on.
    ("message", r"(?&where)(?&message)(?&in)(?&q)(?P<want>.+?)(?&q)(?&about)(?&mentioned)(?&end)"),
    ("message", r"\s*+(?&quoted)(?&about)(?&message)(?&in)(?&about)(?&mentioned)(?&end)"),
    ("message", r"(?&where)(?&message)(?&in)(?&quoted)(?&end)"),
    (
        "message",
        (
            r"(?&where)(?&message)(?:(?&colon)|contains)\s*+(?!.*(?:는가|는지|인가|여부|언급|포함|않|없|아니|아닌|\bnot\b))"
            r"(?P<want>(?&letters)(?:[ \t]++(?&letters))*+)(?&end)"
        ),
    ),
    *_forms_of("formType"),
    *_forms_of("multiSelectAllowYn"),
    *_forms_of("actionType"),
    *_forms_of("dataKey"),
    *_forms_of("buttonKey"),
)
"""(kind, pattern) of every form of a condition, in the order in which they are tried."""


def key_pattern(kind: Kind) -> str:
    """A pattern that matches somewhere in every condition that a form of `FORMS` for ``kind`` reads."""
    return "(?&message)" if kind == "message" else _key(kind)


def _insert_parts(pattern: str, parts: Mapping[str, str]) -> str:
    """``pattern`` with its parts inserted. Raises ValueError for an unknown part, or one that contains itself."""
    for _ in range(len(parts) + 1):
        if not (names := {match[1] for match in _REFERENCE.finditer(pattern)}):
            return pattern
        if unknown := sorted(names - parts.keys()):
            raise ValueError(f"(?&{unknown[0]}) names no part; there are: {', '.join(parts)}")
        pattern = _REFERENCE.sub(lambda match: parts[match[1]], pattern)
    raise ValueError(f"(?&{min(names)}) is a part that contains itself")


KINDS: tuple[Kind, ...] = ("message", "formType", "multiSelectAllowYn", "actionType", "dataKey", "buttonKey")
TOP_SCORE = 5
"""Scores and points run from 0 to this."""

Points = Field(ge=0, le=TOP_SCORE)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return compiled(pattern)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None


class Rules(Params):
    """The readings for the printed table; the report's JSON always has both."""

    speed: Literal["band_of_mean", "mean_of_points"] = "band_of_mean"
    stability: Literal["score_zero", "error_or_empty"] = "score_zero"
    accuracy: Literal["heuristic", "llm_when_present"] = "heuristic"


class Part(Params):
    """A part of other patterns, which refer to it by ``(?&name)``."""

    name: str
    pattern: str


class Form(Params):
    """A form of a check of one kind: ``pattern`` matches the text after the number, its group "want" the value."""

    kind: Kind
    pattern: str


class RatioBand(Params):
    """``points`` for a pass ratio of at least ``over``/``under``, compared in integers."""

    over: int = Field(ge=0)
    under: int = Field(ge=1)
    points: int = Points


class SpeedBand(Params):
    """``points`` for up to ``seconds``, inclusive."""

    seconds: float = Field(ge=0, allow_inf_nan=False)
    points: int = Points


class Mask(Params):
    """A part of error texts that varies: matches of ``pattern`` are replaced before counting."""

    pattern: str
    replacement: str

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        return _compiled(pattern).pattern


class Diagnostic(Params):
    """A kind of check is suspect if, of at least ``checks`` checks, a smaller share than ``share`` passes."""

    share: float = Field(default=0.01, ge=0, le=1)
    checks: int = Field(default=20, ge=1)

    def suspects(self, passed: int, judged: int) -> bool:
        """Whether ``passed`` of ``judged`` is too few, computed without rounding."""
        # As a decimal: the double 0.01 is a little more than 1/100, so 1 of 100 would be too few.
        return judged >= self.checks and passed < Fraction(str(self.share)) * judged


class PlanParams(Params):
    """The specification's section 4 as data."""

    rules: Rules = Rules()
    parts: tuple[Part, ...] = tuple(Part(name=name, pattern=pattern) for name, pattern in PARTS)
    numbering: str = NUMBERING
    """Marks before a condition; a line that begins with one is a condition, even if no form reads it."""
    # In the real file 50 of 54 keywords that end in a vowel have 과 nevertheless: particles decide nothing.
    forms: tuple[Form, ...] = tuple(Form(kind=kind, pattern=pattern) for kind, pattern in FORMS)
    connector: str = CONNECTOR
    ratio_bands: tuple[RatioBand, ...] = (
        RatioBand(over=1, under=1, points=5),
        RatioBand(over=3, under=4, points=4),
        RatioBand(over=1, under=2, points=3),
        RatioBand(over=1, under=4, points=2),
    )
    # The seed's bands begin at 0.01, but its prompt says above 0: 1 of 101 checks earns the point, too.
    any_pass_points: int = Field(default=1, ge=0, le=TOP_SCORE)
    # Each limit belongs to the better band: the seed writes "<=5" and then "5~8".
    speed_bands: tuple[SpeedBand, ...] = (
        SpeedBand(seconds=5, points=5),
        SpeedBand(seconds=8, points=4),
        SpeedBand(seconds=10, points=3),
        SpeedBand(seconds=15, points=2),
        SpeedBand(seconds=20, points=1),
    )
    pass_mark: int = Field(default=3, ge=0, le=TOP_SCORE)
    """Consistency: a score of at least this is a pass."""
    # SPEC, section 4: JSON's null, false and empty containers, as text. 0 is an error, here as in JSON.
    no_error: tuple[str, ...] = ("null", "false", "[]", "{}")
    """Texts of the column `오류` that mean no error (any case), besides white space."""
    error_masks: tuple[Mask, ...] = (
        # Ids first: the mask for numbers would break them.
        Mask(pattern=r"[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|\b[0-9a-fA-F]{16,}\b", replacement="<id>"),
        Mask(pattern=r"\d+", replacement="<n>"),
    )
    diagnostic: Diagnostic = Diagnostic()
    low_score: int = Field(default=2, ge=0, le=TOP_SCORE)
    """Rows of this score or less are searched for patterns."""
    # The seed's checklist names these two ("특히 2~3점"); rows of 0 and 1 are only in the distribution.
    slow_points: tuple[int, ...] = (2, 3)
    """Rows of these speed points are searched for patterns."""
    stability_warning: float = Field(default=0.01, ge=0, le=1)
    """The operating checklist warns from this share of stability failures on."""
    top: int = Field(default=10, ge=1)
    """How many patterns of a kind are shown; the others are counted together."""

    @model_validator(mode="after")
    def _patterns_compile(self) -> Self:
        known = type(self).model_fields
        if all(getattr(self, name) == known[name].default for name in ("parts", "numbering", "connector", "forms")):
            return self  # evalq's own patterns compile, and compiling all takes a fifth of a small run
        for name in ("numbering", "connector"):
            try:
                _compiled(self.insert_parts(getattr(self, name)))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        for at, form in enumerate(self.forms):
            try:
                if "want" not in _compiled(self.insert_parts(form.pattern)).groupindex:
                    raise ValueError("the pattern must have a group named 'want'")
            except ValueError as error:
                raise ValueError(f"forms[{at}].pattern: {error}") from None
        return self

    def insert_parts(self, pattern: str) -> str:
        """``pattern`` with its parts inserted. Raises ValueError."""
        return _insert_parts(pattern, {part.name: part.pattern for part in self.parts})

    @model_validator(mode="after")
    def _bands_in_order(self) -> Self:
        ratios = [Fraction(band.over, band.under) for band in self.ratio_bands]
        seconds = [band.seconds for band in self.speed_bands]
        if ratios != sorted(ratios, reverse=True):
            raise ValueError("ratio_bands must fall: the highest ratio first")
        if seconds != sorted(seconds):
            raise ValueError("speed_bands must rise: the fewest seconds first")
        return self
