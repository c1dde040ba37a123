"""The report as Markdown, in Korean and English: the seed's template, filled from report.json."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from evalq.evalcore.evaluators.planagent.chunk import CELL, CONDITION, LLM_SCORE, QUERY, ROW, TIME
from evalq.evalcore.evaluators.planagent.report import round_order
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import omissions_in
from evalq.evalcore.naming import shorten
from evalq.evalcore.views.markdown import inert, plain_dollars

# The words of the Markdown report, in Korean and English; the Korean ones are the seed's template.


class _MarkdownTexts(NamedTuple):
    """The texts of the report in one language; ``str.format`` fills in the braces."""

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


_KO = _MarkdownTexts(
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
        # The seed has both: its section 2-4 fails a score of 0, its template only an error or an empty answer.
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
    # A failure only in one reading of stability; the other reading fails only rows without judging.
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

_EN = _MarkdownTexts(
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

_TEXTS: Mapping[str, _MarkdownTexts] = {"ko": _KO, "en": _EN}
LANGUAGES = tuple(_TEXTS)
"""Languages of the report, the default first."""


# The report's last section: distributions, failures, patterns and the operating checklist.

# An underscore inside a word means nothing in Markdown, and field names have many.
_SPECIAL = re.compile(r"([\\`*<&\[\]|~]|(?<![^\W_])_|_(?![^\W_]))")
_MOST_DECIMALS = 12
_INVISIBLE = re.compile(r"[\s\x00-\x1f\x7f]+")


def escaped(text: str, blank: str = "") -> str:
    """``text`` of the data as one line in one cell, without meaning in Markdown or HTML."""
    line = _SPECIAL.sub(r"\\\1", inert(_INVISIBLE.sub(" ", text).strip()))
    return plain_dollars(line) or blank


def _notes(
    results: Mapping[str, Json], rounds: Sequence[str], rules: Mapping[str, str], text: _MarkdownTexts
) -> Iterator[str]:
    """The lines below the section's heading; ``rules`` decide which rows are stability failures."""
    yield f"- {text.score_counts}"
    yield from _distribution(results, rounds, "score_counts", text)
    yield f"- {text.speed_counts}"
    yield from _distribution(results, rounds, "speed_counts", text)
    yield f"- {text.failures}"
    yield from _failures(results["failures"], rules["stability"] == "score_zero", text)
    yield f"- {text.insights}"
    yield from _insights(results, text)
    yield from _rates(results, text)
    if results["llm"]["pairs"]:
        yield f"- {text.llm}: {_agreement(results['llm'], text)}"
    yield f"- {text.checklist}"
    yield from (f"  - {line}" for line in _checklist(results["checklist"], text))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table between blank lines; its cells must be escaped."""
    cells = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return ["", *(f"| {' | '.join(row)} |" for row in cells), ""]


def _distribution(results: Mapping[str, Json], rounds: Sequence[str], key: str, text: _MarkdownTexts) -> list[str]:
    points = sorted(results["set"][key])
    parts = [(escaped(name, text.blank), results["rounds"][name][key]) for name in rounds]
    parts.append((text.whole, results["set"][key]))
    return _table([text.round, *points], ([name, *(str(counts[p]) for p in points)] for name, counts in parts))


def _failures(failures: Mapping[str, Json], zeros: bool, text: _MarkdownTexts) -> list[str]:
    """Stability failures by pattern; with ``zeros``, rows without a passed check are failures, too."""
    # Without them, the report would say "none" above failures that its checklist counts.
    without_pass = failures["no_check_passed"] if zeros else 0
    if not failures["rows"] and not without_pass:
        return [f"  - {text.none}"]
    rows = [[text.reasons[reason], str(count)] for reason, count in failures["reasons"].items() if count]
    errors = failures["errors"]
    rows += [[f"{text.reasons['error']}: {escaped(item['name'])}", str(item["rows"])] for item in errors["top"]]
    if errors["other"]:
        rows.append([f"{text.reasons['error']}: {text.other}", str(errors["other"])])
    if without_pass:
        rows.append([text.no_check_passed, str(without_pass)])
    return _table([text.cause, text.amount], rows)


def _insights(results: Mapping[str, Json], text: _MarkdownTexts) -> Iterator[str]:
    for row in results["diagnostics"]:
        finding = text.suspect.format(check=row["check"], of=row["of"], passed=row["passed"])
        path = text.not_found
        if row["found_at"] is not None:
            path = text.found.format(path=escaped(row["found_at"]), count=row["would_pass"])
        yield f"  - {finding} {path}"
    low, slow = results["low_scores"], results["slow"]
    yield "  - " + text.low.format(up_to=low["up_to"], rows=low["rows"], share=_percent(low["share"]))
    yield from _rankings(low, text)
    points = ", ".join(map(str, slow["points"]))
    yield "  - " + text.slow.format(points=points, rows=slow["rows"], share=_percent(slow["share"]))
    yield from _rankings(slow, text)


def _rankings(patterns: Mapping[str, Json], text: _MarkdownTexts) -> Iterator[str]:
    kinds = {"check_sets": text.by_set, "categories": text.by_category, "forms": text.by_form, "missed": text.by_miss}
    for key, label in kinds.items():
        ranking = patterns.get(key)
        if ranking and ranking["top"]:
            parts = [f"{escaped(item['name'], text.blank)} ({item['rows']})" for item in ranking["top"]]
            if ranking["other"]:
                parts.append(f"{text.other} ({ranking['other']})")
            yield f"    - {label}: {', '.join(parts)}"


def _rates(results: Mapping[str, Json], text: _MarkdownTexts) -> Iterator[str]:
    header = [cell.format(up_to=results["low_scores"]["up_to"]) for cell in text.rate_header]
    yield f"- {text.check_rates}"
    yield from _table(
        [header[0], *header[3:]],
        (
            [row["check"], str(row["of"] - row["passed"]), str(row["of"]), _percent(row["failure_rate"])]
            # Without the columns of rows: a kind of check has several checks in a row.
            for row in results["checks"]
        ),
    )
    for title, key in ((text.set_rates, "check_sets"), (text.category_rates, "categories")):
        yield f"- {title}"
        yield from _table(header, (_rate_row(row, text) for row in results[key]))


def _rate_row(row: Mapping[str, Json], text: _MarkdownTexts) -> list[str]:
    counts = [str(row[key]) for key in ("rows", "low", "failed", "of")]
    return [escaped(row["name"], text.blank), *counts, _percent(row["failure_rate"])]


def _agreement(llm: Mapping[str, Json], text: _MarkdownTexts) -> str:
    kappa = llm["weighted_kappa"]
    return text.llm_line.format(
        pairs=llm["pairs"],
        exact=_percent(llm["exact"]),
        within_one=_percent(llm["within_one"]),
        difference=f"{llm['mean_absolute_difference']:.2f}",
        kappa="-" if kappa is None else f"{kappa:.2f}",
    )


def _checklist(items: Sequence[Mapping[str, Json]], text: _MarkdownTexts) -> Iterator[str]:
    for item in items:
        facts = {key: value["count"] if isinstance(value, dict) else value for key, value in item.items()}
        if "limit" in facts:
            facts["share"], facts["limit"] = distinct_percents(facts["share"], facts["limit"])
        mark = "x" if item["status"] == "ok" else " "
        yield f"[{mark}] {text.checklist_items[item['item']].format(**facts)}"


def distinct_percents(share: float | None, limit: float) -> tuple[str, str]:
    """A share and its limit in percent, with enough decimals to show which is larger."""
    if share is None:
        return "-", f"{limit:.1%}"
    for decimals in range(1, _MOST_DECIMALS):
        texts = f"{share:.{decimals}%}", f"{limit:.{decimals}%}"
        if (texts[0] == texts[1]) == (share == limit):
            break
    return texts


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


_EXAMPLES = 3
"""How many examples of left-out data are shown of each kind."""


def markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    """The seed's template once for every input, in Korean unless ``options["lang"]`` is "en"."""
    lang = str(options.get("lang") or LANGUAGES[0])
    files = results_by_file(report)
    pages = []
    for source in report["inputs"]:
        name = source["name"]
        pages.append(_page(name, source["records"], files[name], report["params"], _TEXTS[lang]))
    return "\n".join([*pages, *_left_out_lines(report, _TEXTS[lang])])


def results_by_file(report: Mapping[str, Json]) -> dict[str, Json]:
    """The results of each input by name."""
    results = report["results"]
    return dict(results["files"]) if "files" in results else {report["inputs"][0]["name"]: results}


def _left_out_lines(report: Mapping[str, Json], text: _MarkdownTexts) -> list[str]:
    """The data that all inputs leave out, with the first examples; no lines if there is none."""
    lines = []
    for each in omissions_in(report):
        examples = "; ".join(escaped(f"{one.where}: {shorten(one.text, 80)}") for one in each.examples[:_EXAMPLES])
        template = text.left_out_kinds.get(each.what)
        summary = template.format(count=f"{each.count:,}") if template else escaped(each.sentence(0))
        lines.append(f"- {summary}" + (f" ({text.where}: {examples})" if examples else ""))
    return [f"## {text.left_out}", *lines, ""] if lines else []


def _page(
    name: str, records: int, results: Mapping[str, Json], params: Mapping[str, Json], text: _MarkdownTexts
) -> str:
    rules = params["rules"]
    rounds = sorted(results["rounds"], key=round_order)
    unscored = results["set"]["unscored"]
    gaps = [text.unscored.format(count=unscored)] if unscored else []
    gaps += [text.unread.format_map(results["unread"])] if results["unread"]["conditions"] else []
    left_out = f" ({'; '.join(gaps)})" if gaps else ""
    lines = [
        f"# {text.title}",
        f"- {text.data}: {escaped(name)}",
        f"- {text.items}: {records}{left_out}",
        f"- {text.runs}: {', '.join(escaped(round_, text.blank) for round_ in rounds)}",
        "",
        f"## {text.basis}",
        *(f"- {line}" for line in _basis(params, text)),
        "",
        f"## {text.metrics}",
        *(f"{number}) {line}" for number, line in enumerate(_metrics(results, rounds, rules, text), start=1)),
        "",
        f"## {text.notes}",
        *_notes(results, rounds, rules, text),
    ]
    return "\n".join(lines) + "\n"


def _basis(params: Mapping[str, Json], text: _MarkdownTexts) -> list[str]:
    rules = params["rules"]
    llm = [text.llm_basis] if rules["accuracy"] == "llm_when_present" else []
    return [
        text.intent_basis,
        *llm,
        text.stability_basis[rules["stability"]],
        text.consistency_basis.format(mark=params["pass_mark"]),
        text.speed_basis[rules["speed"]],
    ]


def _metrics(
    results: Mapping[str, Json], rounds: list[str], rules: Mapping[str, str], text: _MarkdownTexts
) -> list[str]:
    parts = [(escaped(name, text.blank), results["rounds"][name]) for name in rounds] + [(text.whole, results["set"])]

    def row(key: str) -> str:
        return ", ".join(f"{name}: {_number(part[key])}" for name, part in parts)

    speed = ", ".join(f"{name}: {_speed(part['speed'], rules, text)}" for name, part in parts)
    return [
        f"{text.intent} — {row('intent')}",
        f"{text.accuracy} — {row('accuracy')}",
        f"{text.consistency} — {_consistency_line(results['consistency'], text)}",
        f"{text.speed} — {speed}",
        f"{text.stability} — {_number(results['set']['stability'][rules['stability']])}",
    ]


def _consistency_line(consistency: Mapping[str, Json], text: _MarkdownTexts) -> str:
    score, left_out = consistency["score"], consistency["excluded"]["fewer_than_two_rounds"]["count"]
    return f"- ({text.no_pairs.format(count=left_out)})" if score is None else _number(score)


def _speed(speed: Mapping[str, Json], rules: Mapping[str, str], text: _MarkdownTexts) -> str:
    if speed["mean_seconds"] is None:
        return "-"
    points = _number(speed["mean_points"]) if rules["speed"] == "mean_of_points" else str(speed["points_of_mean"])
    return f"{_number(speed['mean_seconds'])}{text.second} / {points}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
