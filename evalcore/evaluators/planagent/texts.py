"""The words of the Markdown report, in Korean and English; the Korean ones are the seed's template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from evalq.evalcore.evaluators.planagent.gaps import CELL, CONDITION, LLM_SCORE, QUERY, ROW, TIME

__all__ = ["LANGUAGES", "TEXTS", "Texts"]


class Texts(NamedTuple):
    """Everything the report says in one language; braces are filled in by ``str.format``."""

    title: str
    data: str
    items: str
    unscored: str
    unread: str
    runs: str
    basis: str
    intent_basis: str
    consistency_basis: str
    stability_basis: Mapping[str, str]
    speed_basis: Mapping[str, str]
    llm_basis: str
    metrics: str
    intent: str
    accuracy: str
    consistency: str
    no_pairs: str
    speed: str
    stability: str
    whole: str
    second: str
    notes: str
    score_counts: str
    speed_counts: str
    failures: str
    reasons: Mapping[str, str]
    no_check_passed: str
    insights: str
    suspect: str
    found: str
    not_found: str
    low: str
    slow: str
    by_set: str
    by_category: str
    by_form: str
    by_miss: str
    check_rates: str
    set_rates: str
    category_rates: str
    rate_header: tuple[str, ...]
    llm: str
    llm_line: str
    checklist: str
    checklist_items: Mapping[str, str]
    round: str
    cause: str
    amount: str
    other: str
    none: str
    blank: str
    left_out: str
    left_out_kinds: Mapping[str, str]
    where: str


_KO = Texts(
    title="실행 에이전트 스코어링 리포트",
    data="데이터",
    items="총 항목",
    unscored="체크 항목을 읽을 수 없어 제외: {count}",
    unread="읽지 못한 조건: {conditions}개 ({rows}행)",
    runs="실행",
    basis="산출 기준",
    # Words of the seed's template: F and R are columns of the result sheet, 기대결과 and Raw JSON.
    intent_basis="의도/정확성: F 기대조건 + R 체크패스율 0~5 매핑",
    consistency_basis="일관성: same-pass/fail({mark}점이상/미만) 기준",
    stability_basis={
        # The seed says both: its section 2-4 fails a score of 0, its template only an error or an empty answer.
        "score_zero": "안정성: 문항 점수 0이면 0점, 그 외 5점",
        "error_or_empty": "안정성: error/empty 0점",
    },
    speed_basis={
        "band_of_mean": "속도: 단일 루브릭(responseTimeSec), 평균 초의 구간 점수",
        "mean_of_points": "속도: 단일 루브릭(responseTimeSec), 행별 점수의 평균",
    },
    llm_basis="정확성: LLM 점수가 있는 행은 LLM 점수",
    metrics="지표별 점수",
    intent="의도 충족",
    accuracy="정확성",
    consistency="일관성",
    no_pairs="두 회차의 점수가 있는 Query ID가 없음, 제외된 Query ID: {count}",
    speed="응답 속도 (단일)",
    stability="안정성",
    whole="세트",
    second="초",
    notes="분포/첨언",
    score_counts="0~5 점수 분포",
    speed_counts="속도 분포",
    failures="안정성 실패(에러) 패턴",
    reasons={"error": "오류", "unparsable": "Raw JSON 파싱 실패", "empty": "메시지와 목록이 모두 비어 있음"},
    # A failure only where stability is read as specified; the other reading fails rows that were never judged.
    no_check_passed="통과한 체크 없음 (0점)",
    insights="정성 인사이트 Top 패턴",
    suspect="{check} 체크는 {of}건 중 {passed}건만 통과했다.",
    found="기대한 값은 {path} 에 있으며, 그 위치를 인정하면 {count}건이 통과한다.",
    not_found="기대한 값은 dataUIList 안의 다른 위치에서도 발견되지 않았다.",
    low="0~{up_to}점: {rows}행 ({share})",
    slow="속도 {points}점: {rows}행 ({share})",
    by_set="체크 구성",
    by_category="카테고리",
    by_form="요청 -> 응답 formType",
    by_miss="실패한 체크",
    check_rates="체크 종류별 실패율",
    set_rates="체크 구성별 실패율",
    category_rates="카테고리별 실패율",
    rate_header=("", "행", "0~{up_to}점 행", "실패한 체크", "체크", "실패율"),
    llm="LLM 점수와의 일치",
    llm_line="{pairs}행: 일치 {exact}, 1점 이내 {within_one}, 평균 절대 차 {difference}, 가중 카파 {kappa}",
    checklist="운영 체크리스트",
    checklist_items={
        "mapping": "Query ID-방/반복 매핑: Query ID {queries}개, 회차 {rounds}개, "
        "회차가 빠진 Query ID {incomplete}개, 중복된 Query ID {repeated}개",
        "heuristic": "F+R 휴리스틱 적용: {rows}행, LLM 점수 {with_llm_score}행, "
        "읽을 수 없는 LLM 점수 {unreadable_llm_scores}행, 읽지 못한 조건 {unread_conditions}개, "
        "점수가 없는 행 {unscored}행",
        "low_scores": "낮은 점수 구간: {of}행 중 {rows}행, 오탐이 의심되는 체크 종류 {suspect_checks}개",
        "speed": "느린 구간: {of}행 중 {rows}행, 응답 시간이 없는 행 {without_seconds}행",
        "stability": "안정성 실패: {of}행 중 {failures}행 ({share}), {limit} 이상이면 점검",
    },
    round="회차",
    cause="패턴",
    amount="건수",
    other="기타",
    none="없음",
    blank="(빈 값)",
    left_out="집계에서 제외된 것",
    left_out_kinds={
        CONDITION: "조건 {count}개: 읽을 수 있는 형식이 아니어서 비율에 포함되지 않음",
        ROW: "행 {count}개: 기대결과에서 읽을 수 있는 체크 항목이 없어 점수가 없음",
        TIME: "응답 시간 {count}개: responseTimeSec가 없거나 초 단위 숫자가 아님",
        LLM_SCORE: "LLM 점수 {count}개: 0~5의 숫자가 아님",
        CELL: "셀 {count}개: 32,767자로 스프레드시트에서 잘린 것으로 보이며, 남은 부분만 평가함",
        QUERY: "Query ID {count}개: 점수가 있는 회차가 두 개 미만이거나 회차가 중복되어 일관성에서 제외",
    },
    where="예",
)

_EN = Texts(
    title="Plan agent scoring report",
    data="Data",
    items="Items",
    unscored="left out, no check could be read: {count}",
    unread="conditions that no form reads: {conditions} in {rows} rows",
    runs="Runs",
    basis="How it is computed",
    intent_basis="Intent/accuracy: share of expected conditions met by the raw answer, mapped to 0-5",
    consistency_basis="Consistency: same side of the pass mark ({mark} or more) in every round",
    stability_basis={
        "score_zero": "Stability: 0 for a row score of 0, otherwise 5",
        "error_or_empty": "Stability: 0 for an error or an empty answer",
    },
    speed_basis={
        "band_of_mean": "Speed: one rubric (responseTimeSec), the band of the mean seconds",
        "mean_of_points": "Speed: one rubric (responseTimeSec), the mean of the rows' points",
    },
    llm_basis="Accuracy: the LLM's score in rows that have one",
    metrics="Scores",
    intent="Intent",
    accuracy="Accuracy",
    consistency="Consistency",
    no_pairs="no Query ID has scored rows in two rounds; left out: {count}",
    speed="Response time (single)",
    stability="Stability",
    whole="set",
    second="s",
    notes="Distributions and notes",
    score_counts="Scores 0-5",
    speed_counts="Speed points",
    failures="Stability failures (errors)",
    reasons={"error": "error", "unparsable": "Raw JSON unparsable", "empty": "message and list both empty"},
    no_check_passed="no check passed (0 points)",
    insights="Top patterns",
    suspect="Of {of} {check} checks only {passed} passed.",
    found="The wanted values stand at {path}; counted there, {count} would pass.",
    not_found="The wanted values stand nowhere else in dataUIList either.",
    low="0 to {up_to} points: {rows} rows ({share})",
    slow="Speed points {points}: {rows} rows ({share})",
    by_set="check set",
    by_category="category",
    by_form="form type asked -> answered",
    by_miss="failed check",
    check_rates="Failure rate by kind of check",
    set_rates="Failure rate by check set",
    category_rates="Failure rate by category",
    rate_header=("", "rows", "rows of 0-{up_to}", "failed checks", "checks", "failure rate"),
    llm="Agreement with the LLM's scores",
    llm_line="{pairs} rows: exact {exact}, within one {within_one}, mean absolute difference {difference}, "
    "weighted kappa {kappa}",
    checklist="Operating checklist",
    checklist_items={
        "mapping": "Query IDs to rounds: {queries} Query IDs, {rounds} rounds, "
        "{incomplete} Query IDs lack a round, {repeated} are repeated",
        "heuristic": "Heuristic used for {rows} rows, an LLM score present in {with_llm_score}, "
        "unreadable in {unreadable_llm_scores}; {unread_conditions} conditions that no form reads, "
        "{unscored} rows without a score",
        "low_scores": "Low scores: {rows} of {of} rows, {suspect_checks} suspect kinds of check",
        "speed": "Slow answers: {rows} of {of} rows, {without_seconds} rows without seconds",
        "stability": "Stability failures: {failures} of {of} rows ({share}); look into it from {limit} on",
    },
    round="round",
    cause="pattern",
    amount="count",
    other="other",
    none="none",
    blank="(blank)",
    left_out="Left out of the numbers",
    left_out_kinds={
        CONDITION: "{count} conditions: no form reads them, and they are no part of the ratio",
        ROW: "{count} rows: no check can be read from 기대결과, and they have no score",
        TIME: "{count} times: responseTimeSec is missing or no number of seconds",
        LLM_SCORE: "{count} LLM scores: no number from 0 to 5",
        CELL: "{count} cells: 32,767 characters, where a spreadsheet cuts; what is left of them is judged",
        QUERY: "{count} Query IDs: fewer than two rounds with a score, or a round twice; not in the consistency",
    },
    where="for example",
)

TEXTS: Mapping[str, Texts] = {"ko": _KO, "en": _EN}
LANGUAGES = tuple(TEXTS)
"""Languages of the report, the default first."""
