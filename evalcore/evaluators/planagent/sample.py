"""Sample data of any size: rows like those of a real plan-agent test run, the same for the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from evalq.evalcore.contract.evaluator import Request

# Rows combine invented requests to an event planner with answers of its agent.

_MS, _CONVERSATION, _SECONDS = "@ms@", "@conversation@", "@seconds@"
"""Placeholders in a reply's JSON for the values of a row."""


class Topic(NamedTuple):
    """Something that an event planner can set."""

    name: str
    keyword: str
    data_key: str
    button_key: str


class SampleReply(NamedTuple):
    """One answer of an agent, ready for a CSV: the columns `응답` and `오류`, and the Raw JSON in ``pieces``.

    Rows put milliseconds three times, the conversation, and seconds between the six pieces.
    """

    text: str
    error: str
    pieces: tuple[str, str, str, str, str, str]


class SampleCase(NamedTuple):
    """One request: query, expected result and category, ready for a CSV, and its replies by likelihood (64 of them)."""

    query: str
    expected: str
    category: str
    replies: tuple[SampleReply, ...]


_TOPICS = (
    Topic("좌석 배치", "좌석 배치", "SEATING_LAYOUT", "SEATING_LAYOUT_EDIT"),
    Topic("초대장 문구", "초대장", "INVITATION_TEXT", "INVITATION_PREVIEW"),
    Topic("참가비 환불 기준", "환불 기준", "REFUND_RULE", "REFUND_RULE_EDIT"),
    Topic("주차 구역 배정", "주차 구역", "PARKING_ZONE", "PARKING_ZONE_ASSIGN"),
    Topic("명찰 인쇄 범위", "명찰", "BADGE_PRINT_SCOPE", "BADGE_PRINT_START"),
    Topic("발표 순서", "발표 순서", "TALK_ORDER", "TALK_ORDER_EDIT"),
    Topic("간식 주문 수량", "간식", "SNACK_QUANTITY", "SNACK_ORDER_SEND"),
    Topic("통역 채널", "통역 채널", "INTERPRETER_CHANNEL", "INTERPRETER_CHANNEL_OPEN"),
    Topic("설문 발송 시각", "설문", "SURVEY_TIME", "SURVEY_SEND"),
    Topic("대기자 알림 방식", "대기자 알림", "WAITLIST_NOTICE", "WAITLIST_NOTICE_EDIT"),
)
_REQUESTS = (
    "{}을(를) 바꾸고 싶어",
    "{} 설정 화면 열어 줘",
    "이번 행사만 {} 다르게 해 줘",
    "{} 지금 어떻게 되어 있어?\n바꿀 수도 있어?",
)
_CATEGORIES = ("기본 흐름", "되묻기", "예외, 정정", "긴 대화")
_HALLS = ("대강당", "소강당", "별관 회의실", "야외 무대", "온라인 중계실")
_UPDATE, _EXECUTE = "EVENT_PLAN_UPDATE", "EVENT_PLAN_BUTTON"


def _quoted(text: str) -> str:
    """``text`` as a quoted CSV field."""
    return '"' + text.replace('"', '""') + '"'


def _all_cases() -> list[SampleCase]:
    """Every topic with every request, with one of five forms of expected result."""
    cases = []
    for at, topic in enumerate(_TOPICS):
        for number, request in enumerate(_REQUESTS):
            form = (at + number) % 4 if at + 7 * number != 21 else 4
            cases.append(
                SampleCase(
                    _quoted(request.format(topic.name)),
                    _quoted(_expected(topic, form)),
                    _quoted(_CATEGORIES[(at * number) % len(_CATEGORIES)]),
                    tuple(_replies(topic, request.format(topic.name), form)),
                )
            )
    return cases


def _expected(topic: Topic, form: int) -> str:
    """An expected result in one of five forms; number 4 has nothing that can be checked."""
    mentioned = f'assistantMessage에 "{topic.keyword}"{_and(topic.keyword)} 관련된 내용이 언급되어 있는가'
    form_check = 'dataUIList 내 formType 값이 "{}"인 항목이 존재하는가'
    switch = "해당 항목의 multiSelectAllowYn 값이 {}인가"
    action = '해당 항목의 actionType 값이 "{}"인가'
    data = f'해당 항목의 value 내 dataKey 값이 "{topic.data_key}"인가'
    button = f'해당 항목의 value 내 buttonKey 값이 "{topic.button_key}"인가'
    forms = (
        ("{}) ", "\n", [mentioned, form_check.format("SELECT"), switch.format("true")]),
        ("{}) ", "\n", [form_check.format("ACTION"), action.format(_UPDATE), data]),
        ("{}. ", "\n\n", [form_check.format("ACTION"), action.format(_EXECUTE), data, button]),
        ("{}. ", "\n\n", [mentioned, form_check.format("SELECT"), switch.format("false")]),
        ("{}", "\n", [f"{topic.name}에 대해 친절하게 설명한다"]),
    )
    number, gap, checks = forms[form]
    return "평가 요소 4가지 ->:" + gap + "\n".join(number.format(i) + check for i, check in enumerate(checks, start=1))


def _and(word: str) -> str:
    """The particle after ``word``: 과 behind a final consonant, else 와."""
    return "과" if (ord(word[-1]) - 0xAC00) % 28 else "와"


def _replies(topic: Topic, request: str, form: int) -> Iterator[SampleReply]:
    """64 replies: most are good, some miss a check, a few are broken."""
    message = (
        f"**{topic.name}**은(는) 행사 단계마다 따로 정할 수 있어요.\n"
        f"아래에서 {topic.keyword} 항목을 확인한 뒤 적용해 주세요. "
        "저장하기 전에 바뀌는 내용을 한 번 더 보여 드릴게요.\n\n"
        "다른 행사에도 같은 설정을 쓰시려면 행사 이름을 알려 주세요. 이어서 준비할게요."
    )
    vague = "요청을 이해하지 못했어요.\n어느 행사의 무엇을 바꿀지 조금 더 알려 주시겠어요?"
    select, other = _select(topic, form != 3), _select(topic, form == 3)
    nested, flat = _action(topic, form, nest=True), _action(topic, form, nest=False)
    sound = [select] if form in (0, 3, 4) else [nested, nested]
    yield from [_reply(message, sound, request)] * 24
    yield from [_reply(message, sound[:1] if form in (0, 3, 4) else [flat], request)] * 9
    yield from [_reply(message, [nested] if form in (0, 3, 4) else [select], request)] * 10
    yield from [_reply(message, [other], request)] * 5
    yield from [_reply(message, [], request)] * 6
    yield from [_reply(vague, [select], request)] * 4
    yield _reply(vague, [], request, error=f'시간 초과: 작업 {topic.data_key}가 30초 안에 끝나지 않음 ("{topic.name}")')
    yield _reply("", [], request, error={"code": 503, "message": "planner unavailable"})
    yield _reply("", [], request)._replace(error=_quoted("ConnectionResetError: 연결이 끊어짐"))
    yield _reply("", [], request)
    yield _reply(message, sound, request, seconds_key="elapsed")
    broken = _reply(message, sound, request)
    yield broken._replace(pieces=(*broken.pieces[:5], broken.pieces[5].replace("}", "")))


def _select(topic: Topic, multiple: bool) -> dict[str, Any]:
    options = [
        {"optionId": i, "optionName": f"{hall} {topic.name}", "optionValue": f"{topic.data_key}_{i}"}
        for i, hall in enumerate(_HALLS[:4], start=1)
    ]
    value = {"formType": "SELECT", "selectOptionList": options, "multiSelectAllowYn": multiple}
    return {"uiDescription": f"{topic.name} 대상 선택", "uiValue": value}


def _action(topic: Topic, form: int, *, nest: bool) -> dict[str, Any]:
    data = {"dataKey": topic.data_key, "dataValue": {"useYn": True, "hallCount": len(_HALLS)}}
    value: dict[str, Any] = {"planId": 4107, "buttonKey": topic.button_key}
    value |= {"nodeDataSet": data} if nest else data
    ui = {
        "formType": "ACTION",
        "message": f"{topic.name} 설정을 바꿉니다.",
        "actionType": _EXECUTE if form == 2 else _UPDATE,
        "value": value,
        "buttonName": "적용하기",
    }
    return {"uiDescription": f"{topic.name} 바꾸기", "uiValue": ui}


def _reply(
    message: str, items: list[Any], request: str, *, error: Any = "", seconds_key: str = "responseTimeSec"
) -> SampleReply:
    worker = "EVENT_PLAN_WORKER"
    raw = {
        "assistantMessage": message,
        "dataUIList": items,
        "guideList": [],
        "executionProcesses": [{"messageSummary": worker, "workerType": worker, "ms": _MS, "index": 0}],
        "worker": [
            {
                "type": worker,
                "input": {"message": request, "context": {"eventPlanId": 4107}},
                "output": {"workerType": worker, "assistantMessage": message, "dataUIList": items},
                "ms": _MS,
            }
        ],
        "workerMsMap": {f"{worker}#0": _MS},
        "error": error,
        "conversationId": _CONVERSATION,
        seconds_key: _SECONDS,
    }
    text = _quoted(json.dumps(raw, ensure_ascii=False))
    # Numbers go in without the quotes that the placeholders have.
    for mark in (_MS, _SECONDS):
        text = text.replace(f'""{mark}""', mark)
    a, b, c, rest = text.split(_MS)
    d, rest = rest.split(_CONVERSATION)
    e, f = rest.split(_SECONDS)
    return SampleReply(_quoted(message), "", (a, b, c, d, e, f))


_BOM = "\ufeff"
_HEADER = (
    "Run ID,Item ID,Ordinal,Query ID,질의,기대결과,카테고리,방/반복,실행시각,응답,오류,"
    "LLM 상태,LLM 모델,LLM 점수,LLM 코멘트,Raw JSON\n"
)
_BLOCK_ROWS = 16
_MASK = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15


def write_sample(folder: Path, records: int, seed: int) -> Request:
    """One file of made-up rows: ten rounds of each Query ID in a large one, two in a small one."""
    path = folder / "plan_agent_sample.csv"
    rounds = [f"{number}/1" for number in range(1, 11 if records >= 100_000 else 3)]
    with path.open("w", encoding="utf-8", newline="") as stream:
        write_rows(stream, records, seed, rounds=rounds)
    return Request([str(path)], {}, {})


def write_rows(
    stream: TextIO, rows: int, seed: int, queries: int | None = None, rounds: Sequence[str] = ("1/1", "2/1")
) -> None:
    """Write ``rows`` rows of about 3 KB to ``stream`` (opened as UTF-8 with newline=""), with a BOM and a header.

    Round by round, every Query ID once; ``queries`` is their number (by default as many as fill the rounds). Some rows
    have errors, empty or broken answers, no seconds, no checks, or an LLM score.

    Raises ValueError when ``rows`` exceeds queries x rounds, which would repeat a (Query ID, round).
    """
    queries = -(-rows // len(rounds)) if queries is None else queries
    if rows > queries * len(rounds):
        raise ValueError(f"{rows} rows are more than {queries} queries x {len(rounds)} rounds")
    stream.write(_BOM + _HEADER)
    block: list[str] = []
    for row in _rows(rows, seed, queries, rounds):
        block.append(row)
        if len(block) == _BLOCK_ROWS:
            stream.write("".join(block))
            block.clear()
    stream.write("".join(block))


def _rows(rows: int, seed: int, queries: int, rounds: Sequence[str]) -> Iterator[str]:
    rng = random.Random(seed)  # noqa: S311  # sample data, not secrets
    cases, times, scores = _all_cases(), _times(rng), _llm_columns(rng)
    run = f"{rng.getrandbits(32):08x}-plan-sample"
    bits, offset, named = rng.getrandbits, rng.getrandbits(64), [_quoted(name) for name in rounds]
    for i in range(rows):
        number = i % queries
        mixed = (number * _SPREAD + offset) & _MASK
        query = f"{mixed >> 32:08x}-{mixed >> 16 & 0xFFFF:04x}-4{mixed & 0xFFF:03x}-a000-{number:012x}"
        case = cases[(mixed >> 7) % len(cases)]
        text, error, (a, b, c, d, e, f) = case.replies[bits(6)]
        ms, seconds = times[bits(12)]
        at = f"2026-03-{1 + i // 86400 % 28:02d}T{i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}"
        yield (
            f"{run},item-{i + 1:09d},{i + 1},{query},{case.query},{case.expected},{case.category},"
            f"{named[i // queries]},{at},{text},{error},{scores[bits(8)]},"
            f"{a}{ms}{b}{ms}{c}{ms}{d}conv-{mixed ^ i:016x}{e}{seconds}{f}\n"
        )


def _times(rng: random.Random) -> list[tuple[str, str]]:
    """4,096 response times as (milliseconds, seconds), mostly 5 to 15 s with a long tail."""
    drawn = [rng.lognormvariate(2.2, 0.3) for _ in range(4096)]
    return [(f"{seconds * 1000:.6f}", f"{seconds:.4f}") for seconds in drawn]


def _llm_columns(rng: random.Random) -> list[str]:
    """256 times the columns from `LLM 상태` to `LLM 코멘트`, most of them empty."""
    scored = [f"DONE,judge,{rng.randint(0, 5)},{_quoted('요청과 답이 맞는지 보았음, 근거는 있음')}" for _ in range(31)]
    return [*scored, f"FAILED,judge,n/a,{_quoted('채점 실패')}", *[",,,"] * 224]
