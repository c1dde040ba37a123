r"""How the conditions of a checklist are written: the default parts and forms of `PlanParams`, and how they are joined.

``(?&name)`` in a pattern stands for the part of that name. A form matches a whole condition up to what may end one, so
that "is not", "or" and "contains" are never read as "is": such a line stays unread. Spaces and runs of syllables are
matched possessively, which keeps reading linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

__all__ = ["CONNECTOR", "FORMS", "KEY", "NUMBERING", "PARTS", "Kind", "joined"]

Kind = Literal["message", "formType", "multiSelectAllowYn", "actionType", "dataKey", "buttonKey"]
_REFERENCE = re.compile(r"\(\?&(\w+)\)")

NUMBERING = (
    r"\s*+(?:(?:[(?&signs)]|(?&number)|\d+\s*+번\s*+[.:)]|\d\ufe0f?\u20e3"
    r"|[(\[（［【〔]\s*+(?:\d+|[A-Za-z가-하]|[xX✓✔]?)\s*+[)\]）］】〕]|[A-Za-z가-하]\s*+[.)](?=\s)|[ivxIVX]+\s*+[.)](?=\s)"
    r"|(?:조건|체크|항목|요소|기준|[Cc]heck|[Cc]ondition)\s*+\d+\s*+[.:)：]|@check\b\s*+[:：]?)\s*+)*"
)
"""What stands before a condition: numbers, letters, circled numbers, bullets, boxes, ``@check``, also several."""

KEY = re.compile(r"assistantMessage|formType|multiSelectAllowYn|actionType|dataKey|buttonKey|@check", re.IGNORECASE)
"""What a line without a number mentions when it is a condition all the same."""

CONNECTOR = r"(?:[\s?.!。？…*}(?&quotes),;/&，；]|그리고|또한|및|and\b|[(（][^()（）]*[)）])*"
"""What stands between two conditions of one line, or behind the last one: remarks in parentheses, too."""

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
    # A word in an enumeration, a list or an alternative is none: what is asked for is more than it.
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
"""(name, pattern) of what the default forms are made of; one may stand for those above it."""


def _key(name: Kind) -> str:
    """A key in any case, its words also apart: "form type", "form_type"."""
    words = re.sub(r"(?=[A-Z])", " ", name).split()
    return "(?i:" + r"[\s_-]*+".join(words) + ")"


def _forms_of(name: Kind) -> list[tuple[Kind, str]]:
    """A value in quotes; a bare one of ASCII letters; behind a colon or an equals sign one of any letters."""
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
    # A keyword may hold quotes: the first of them behind which the condition goes on ends it.
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
"""(kind, pattern) of every way in which a condition is written, in the order in which they are tried."""


def joined(pattern: str, parts: Mapping[str, str]) -> str:
    """``pattern`` with its parts written out. Raises ValueError for one that is not there, or that holds itself."""
    for _ in range(len(parts) + 1):
        if not (names := {match[1] for match in _REFERENCE.finditer(pattern)}):
            return pattern
        if unknown := sorted(names - parts.keys()):
            raise ValueError(f"(?&{unknown[0]}) names no part; there are: {', '.join(parts)}")
        pattern = _REFERENCE.sub(lambda match: parts[match[1]], pattern)
    raise ValueError(f"(?&{min(names)}) is a part that holds itself")
