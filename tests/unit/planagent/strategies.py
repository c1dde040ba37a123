"""Rows that hit every rule often: few distinct values, so that checks pass, fail, repeat and clash."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.unit.planagent.helpers import COLUMNS, Row

TEXTS = st.sampled_from(["SELECT", "ACTION", "GO", "KEY", "합격 기준", "가 나", "x"])

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 30) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.just("dataKey"), inner, max_size=3),
    max_leaves=6,
)

_forms = st.one_of(
    TEXTS.map('assistantMessage에 "{}"과 관련된 내용이 언급되어 있는가'.format),
    TEXTS.map('assistantMessage에 "{}"와 관련된 내용이 언급되어 있는가'.format),
    TEXTS.map('dataUIList 내 formType 값이 "{}"인 항목이 존재하는가'.format),
    st.sampled_from(["true", "false", "True", "FALSE"]).map("해당 항목의 multiSelectAllowYn 값이 {}인가".format),
    TEXTS.map('해당 항목의 actionType 값이 "{}"인가'.format),
    TEXTS.map('해당 항목의 value 내 dataKey 값이 "{}"인가'.format),
    TEXTS.map('해당 항목의 value 내 buttonKey 값이 "{}"인가'.format),
    st.sampled_from(["친절하게 답하는가", ""]),
)


def _expected(number: str, lines: list[str], gap: str) -> str:
    """A header and up to five numbered lines."""
    return "평가 요소 9가지 ->:" + gap + "\n".join(number.format(i) + line for i, line in enumerate(lines, start=1))


expected_results = st.builds(
    _expected,
    st.sampled_from(["{}) ", "{}. ", " {}) ", "{}.  "]),
    st.lists(_forms, max_size=5),
    st.sampled_from(["\n", "\n\n"]),
)


_values = st.fixed_dictionaries(
    {},
    optional={
        "formType": TEXTS | json_values,
        "multiSelectAllowYn": st.booleans() | json_values,
        "actionType": TEXTS | json_values,
        "value": json_values
        | st.fixed_dictionaries({}, optional={"dataKey": TEXTS | json_values, "buttonKey": TEXTS, "deep": json_values}),
    },
)
_items = st.lists(st.fixed_dictionaries({"uiValue": _values | json_values}) | json_values, max_size=3)
_errors = st.sampled_from(["", "  ", None, False, [], {}, 0, True, "time out 12", {"code": 1}, [None]])
_seconds = st.sampled_from([0, 5, 5.0, 5.01, 8, 10, 15, 20, 20.5, -1, True, None, "7", [1]]) | st.floats(
    0, 40, allow_nan=False
)

answers: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "assistantMessage": st.lists(TEXTS, max_size=3).map(" ".join) | json_values,
        "dataUIList": _items | _items | json_values,
        "responseTimeSec": _seconds,
        "error": st.just("") | _errors,
        "worker": json_values,
    },
)

raw_texts = st.one_of(
    st.builds(json.dumps, answers, ensure_ascii=st.booleans()),
    st.builds(json.dumps, answers, ensure_ascii=st.booleans()),
    st.builds(json.dumps, json_values),
    st.sampled_from(["", "{", '{"error": ""', "not json", "null", '{"dataUIList": [}'])
    | st.builds(json.dumps, answers).map(lambda text: text[:-1]),
)


_given = st.fixed_dictionaries(
    {
        "Query ID": st.sampled_from(["q1", "q2", "q3", "질문 4"]),
        "방/반복": st.sampled_from(["1/1", "2/1", "10/1"]),
        "기대결과": expected_results,
        "카테고리": st.sampled_from(["", "a", "b|c"]),
        "오류": st.sampled_from(["", "", "", " ", "null", "{}", "실패", "0"]),
        "LLM 점수": st.sampled_from(["", "", "3", "4.5", "9", "?"]),
        "Raw JSON": raw_texts,
    }
)
csv_rows: st.SearchStrategy[Row] = _given.map(lambda given: dict.fromkeys(COLUMNS, "") | given)
"""One row of few Query IDs and rounds."""
