"""The pieces sample rows are put together from: invented requests to an event planner, and how its agent may answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Case", "Reply", "Topic", "all_cases", "quoted"]

MS, CONVERSATION, SECONDS = "@ms@", "@conversation@", "@seconds@"
"""What stands in a reply's JSON where a row puts its own value."""


class Topic(NamedTuple):
    """Something an event planner can be asked to set."""

    name: str
    keyword: str
    data_key: str
    button_key: str


class Reply(NamedTuple):
    """One way an agent answers, ready for a CSV: the columns `응답` and `오류`, and the Raw JSON in ``pieces``.

    Between the six pieces go milliseconds three times, the conversation, and seconds.
    """

    text: str
    error: str
    pieces: tuple[str, str, str, str, str, str]


class Case(NamedTuple):
    """One request: query, expected result and category, ready for a CSV, and its replies by likelihood (64 of them)."""

    query: str
    expected: str
    category: str
    replies: tuple[Reply, ...]


TOPICS = (
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
REQUESTS = (
    "{}을(를) 바꾸고 싶어",
    "{} 설정 화면 열어 줘",
    "이번 행사만 {} 다르게 해 줘",
    "{} 지금 어떻게 되어 있어?\n바꿀 수도 있어?",
)
CATEGORIES = ("기본 흐름", "되묻기", "예외, 정정", "긴 대화")
HALLS = ("대강당", "소강당", "별관 회의실", "야외 무대", "온라인 중계실")
UPDATE, EXECUTE = "EVENT_PLAN_UPDATE", "EVENT_PLAN_BUTTON"


def quoted(text: str) -> str:
    """``text`` as a quoted CSV field."""
    return '"' + text.replace('"', '""') + '"'


def all_cases() -> list[Case]:
    """Every topic with every request, asked for in one of five ways."""
    cases = []
    for at, topic in enumerate(TOPICS):
        for number, request in enumerate(REQUESTS):
            way = (at + number) % 4 if at + 7 * number != 21 else 4
            cases.append(
                Case(
                    quoted(request.format(topic.name)),
                    quoted(_expected(topic, way)),
                    quoted(CATEGORIES[(at * number) % len(CATEGORIES)]),
                    tuple(_replies(topic, request.format(topic.name), way)),
                )
            )
    return cases


def _expected(topic: Topic, way: int) -> str:
    """An expected result in one of the forms that occur; way 4 asks for nothing that can be checked."""
    mentioned = f'assistantMessage에 "{topic.keyword}"{_and(topic.keyword)} 관련된 내용이 언급되어 있는가'
    form = 'dataUIList 내 formType 값이 "{}"인 항목이 존재하는가'
    switch = "해당 항목의 multiSelectAllowYn 값이 {}인가"
    action = '해당 항목의 actionType 값이 "{}"인가'
    data = f'해당 항목의 value 내 dataKey 값이 "{topic.data_key}"인가'
    button = f'해당 항목의 value 내 buttonKey 값이 "{topic.button_key}"인가'
    forms = (
        ("{}) ", "\n", [mentioned, form.format("SELECT"), switch.format("true")]),
        ("{}) ", "\n", [form.format("ACTION"), action.format(UPDATE), data]),
        ("{}. ", "\n\n", [form.format("ACTION"), action.format(EXECUTE), data, button]),
        ("{}. ", "\n\n", [mentioned, form.format("SELECT"), switch.format("false")]),
        ("{}", "\n", [f"{topic.name}에 대해 친절하게 설명한다"]),
    )
    number, gap, checks = forms[way]
    return "평가 요소 4가지 ->:" + gap + "\n".join(number.format(i) + check for i, check in enumerate(checks, start=1))


def _and(word: str) -> str:
    """The particle after ``word``: 과 behind a final consonant, else 와."""
    return "과" if (ord(word[-1]) - 0xAC00) % 28 else "와"


def _replies(topic: Topic, request: str, way: int) -> Iterator[Reply]:
    """64 replies: mostly sound, some short of what was asked, a few broken."""
    message = (
        f"**{topic.name}**은(는) 행사 단계마다 따로 정할 수 있어요.\n"
        f"아래에서 {topic.keyword} 항목을 확인한 뒤 적용해 주세요. "
        "저장하기 전에 바뀌는 내용을 한 번 더 보여 드릴게요.\n\n"
        "다른 행사에도 같은 설정을 쓰시려면 행사 이름을 알려 주세요. 이어서 준비할게요."
    )
    vague = "요청을 이해하지 못했어요.\n어느 행사의 무엇을 바꿀지 조금 더 알려 주시겠어요?"
    select, other = _select(topic, way != 3), _select(topic, way == 3)
    nested, flat = _action(topic, way, nest=True), _action(topic, way, nest=False)
    sound = [select] if way in (0, 3, 4) else [nested, nested]
    yield from [_reply(message, sound, request)] * 24
    yield from [_reply(message, sound[:1] if way in (0, 3, 4) else [flat], request)] * 9
    yield from [_reply(message, [nested] if way in (0, 3, 4) else [select], request)] * 10
    yield from [_reply(message, [other], request)] * 5
    yield from [_reply(message, [], request)] * 6
    yield from [_reply(vague, [select], request)] * 4
    yield _reply(vague, [], request, error=f'시간 초과: 작업 {topic.data_key}가 30초 안에 끝나지 않음 ("{topic.name}")')
    yield _reply("", [], request, error={"code": 503, "message": "planner unavailable"})
    yield _reply("", [], request)._replace(error=quoted("ConnectionResetError: 연결이 끊어짐"))
    yield _reply("", [], request)
    yield _reply(message, sound, request, seconds_key="elapsed")
    broken = _reply(message, sound, request)
    yield broken._replace(pieces=(*broken.pieces[:5], broken.pieces[5].replace("}", "")))


def _select(topic: Topic, multiple: bool) -> dict[str, Any]:
    options = [
        {"optionId": i, "optionName": f"{hall} {topic.name}", "optionValue": f"{topic.data_key}_{i}"}
        for i, hall in enumerate(HALLS[:4], start=1)
    ]
    value = {"formType": "SELECT", "selectOptionList": options, "multiSelectAllowYn": multiple}
    return {"uiDescription": f"{topic.name} 대상 선택", "uiValue": value}


def _action(topic: Topic, way: int, *, nest: bool) -> dict[str, Any]:
    data = {"dataKey": topic.data_key, "dataValue": {"useYn": True, "hallCount": len(HALLS)}}
    value: dict[str, Any] = {"planId": 4107, "buttonKey": topic.button_key}
    value |= {"nodeDataSet": data} if nest else data
    ui = {
        "formType": "ACTION",
        "message": f"{topic.name} 설정을 바꿉니다.",
        "actionType": EXECUTE if way == 2 else UPDATE,
        "value": value,
        "buttonName": "적용하기",
    }
    return {"uiDescription": f"{topic.name} 바꾸기", "uiValue": ui}


def _reply(
    message: str, items: list[Any], request: str, *, error: Any = "", seconds_key: str = "responseTimeSec"
) -> Reply:
    worker = "EVENT_PLAN_WORKER"
    raw = {
        "assistantMessage": message,
        "dataUIList": items,
        "guideList": [],
        "executionProcesses": [{"messageSummary": worker, "workerType": worker, "ms": MS, "index": 0}],
        "worker": [
            {
                "type": worker,
                "input": {"message": request, "context": {"eventPlanId": 4107}},
                "output": {"workerType": worker, "assistantMessage": message, "dataUIList": items},
                "ms": MS,
            }
        ],
        "workerMsMap": {f"{worker}#0": MS},
        "error": error,
        "conversationId": CONVERSATION,
        seconds_key: SECONDS,
    }
    text = quoted(json.dumps(raw, ensure_ascii=False))
    # Numbers go in without the quotes that the placeholders have.
    for mark in (MS, SECONDS):
        text = text.replace(f'""{mark}""', mark)
    a, b, c, rest = text.split(MS)
    d, rest = rest.split(CONVERSATION)
    e, f = rest.split(SECONDS)
    return Reply(quoted(message), "", (a, b, c, d, e, f))
