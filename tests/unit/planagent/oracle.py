"""The seed's scoring rules computed the slow and obvious way, to compare the evaluator with.

Written from the seed's text and the specification's section 4; shares no code with the evaluator.
"""

from __future__ import annotations

import csv
import io
import json
import re
from fractions import Fraction
from typing import Any

Scored = dict[str, Any]

LINE = re.compile(r"^\s*[0-9]+[.)]\s*(.*)$")


def checks_of(expected: str) -> list[tuple[str, str]]:
    """The checks of an expected result, by the wording of each numbered line."""
    found = []
    for line in expected.split("\n"):
        numbered = LINE.match(line)
        if not numbered:
            continue
        body = numbered.group(1)
        quotes = [i for i, letter in enumerate(body) if letter == '"']
        value = body[quotes[0] + 1 : quotes[-1]] if len(quotes) >= 2 else ""
        if body.startswith("assistantMessage") and "언급되어 있는가" in body:
            found.append(("message", value))
        elif "multiSelectAllowYn 값이" in body:
            found.append(("multiSelectAllowYn", "true" if "true" in body.lower() else "false"))
        else:
            kinds = ("formType", "actionType", "dataKey", "buttonKey")
            found.extend((kind, value) for kind in kinds if f"{kind} 값이" in body)
    return found


def passes(kind: str, want: str, raw: dict[str, Any]) -> bool:
    """One check against one answer."""
    if kind == "message":
        said = raw.get("assistantMessage")
        return isinstance(said, str) and re.sub(r"\s", "", want) in re.sub(r"\s", "", said)
    items = raw.get("dataUIList")
    for item in items if isinstance(items, list) else []:
        ui = item.get("uiValue") if isinstance(item, dict) else None
        if not isinstance(ui, dict):
            continue
        holder = ui.get("value") if kind in ("dataKey", "buttonKey") else ui
        if not isinstance(holder, dict) or kind not in holder:
            continue
        value = holder[kind]
        if kind == "multiSelectAllowYn":
            if isinstance(value, bool) and value == (want == "true"):
                return True
        elif isinstance(value, str) and value == want:
            return True
    return False


def has_error(column: str, raw: dict[str, Any] | None) -> bool:
    """Whether the row or its answer reports an error."""
    if column.strip() not in ("", "null", "false", "[]", "{}"):
        return True
    if raw is None or "error" not in raw:
        return False
    error = raw["error"]
    if isinstance(error, str):
        return error.strip() != ""
    return not (error is None or error is False or error == [] or error == {})


def score_row(row: dict[str, str]) -> Scored:
    """Score, reading of stability, seconds and checks of one row."""
    checks = checks_of(row["기대결과"])
    try:
        raw = json.loads(row["Raw JSON"])
    except ValueError:
        raw = None
    if not isinstance(raw, dict):
        raw = None
    seconds = raw.get("responseTimeSec") if raw else None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
        seconds = None
    result: Scored = {"seconds": seconds, "score": None, "forced": False, "passed": None}
    if not checks:
        return result
    said = raw.get("assistantMessage") if raw else None
    items = raw.get("dataUIList") if raw else None
    nothing = not (isinstance(said, str) and said.strip()) and not (isinstance(items, list) and items)
    if has_error(row["오류"], raw) or raw is None or nothing:
        return result | {"score": 0, "forced": True}
    passed = [passes(kind, want, raw) for kind, want in checks]
    return result | {"score": score_of(Fraction(sum(passed), len(passed))), "passed": passed}


def score_of(ratio: Fraction) -> int:
    """Section 2-3's table."""
    if ratio == 1:
        return 5
    if ratio >= Fraction("0.75"):
        return 4
    if ratio >= Fraction("0.5"):
        return 3
    if ratio >= Fraction("0.25"):
        return 2
    return 1 if ratio > 0 else 0


def points_of(seconds: float) -> int:
    """Section 2-6's rubric."""
    for limit, points in ((5, 5), (8, 4), (10, 3), (15, 2), (20, 1)):
        if seconds <= limit:
            return points
    return 0


def mean(values: list[Any]) -> Fraction | None:
    """The exact mean, None of nothing."""
    return sum(map(Fraction, values), Fraction(0)) / len(values) if values else None


def report_of(text: str) -> dict[str, Any]:
    """Rounds, set and consistency of a CSV."""
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
    scored = [(row, score_row(row)) for row in rows]
    rounds = {}
    for name in sorted({row["방/반복"] for row in rows}):
        mine = [result for row, result in scored if row["방/반복"] == name]
        rounds[name] = round_of(mine)
    whole: dict[str, Any] = {
        key: mean([part[key] for part in rounds.values() if part[key] is not None])
        for key in ("intent", "score_zero", "error_or_empty", "mean_seconds", "mean_points")
    }
    average = whole["mean_seconds"]
    whole["points_of_mean"] = None if average is None else points_of(round(float(average), 12))
    return {"rows": [result for _, result in scored], "rounds": rounds, "set": whole, "consistency": agreement(scored)}


def round_of(results: list[Scored]) -> dict[str, Any]:
    """One round's numbers."""
    counted = [result for result in results if result["score"] is not None]
    timed = [result["seconds"] for result in counted if result["seconds"] is not None]
    average = mean(timed)
    return {
        "records": len(results),
        "intent": mean([result["score"] for result in counted]),
        "score_zero": mean([0 if result["score"] == 0 else 5 for result in counted]),
        "error_or_empty": mean([0 if result["forced"] else 5 for result in counted]),
        "mean_seconds": average,
        "points_of_mean": None if average is None else points_of(round(float(average), 12)),
        "mean_points": mean([points_of(seconds) for seconds in timed]),
        "score_counts": {str(i): sum(result["score"] == i for result in counted) for i in range(6)},
        "speed_counts": {str(i): sum(points_of(seconds) == i for seconds in timed) for i in range(6)},
    }


def agreement(scored: list[tuple[dict[str, str], Scored]]) -> dict[str, Any]:
    """Section 2-5 over the rounds present; a Query ID with a repeated round or fewer than two scores is left out."""
    both_pass = both_fail = queries = 0
    for query in {row["Query ID"] for row, _ in scored}:
        mine = [(row["방/반복"], result["score"]) for row, result in scored if row["Query ID"] == query]
        scores = [score for _, score in mine if score is not None]
        if len({name for name, _ in mine}) < len(mine) or len(scores) < 2:
            continue
        queries += 1
        both_pass += all(score >= 3 for score in scores)
        both_fail += all(score <= 2 for score in scores)
    score = Fraction(5 * (both_pass + both_fail), queries) if queries else None
    return {"score": score, "both_pass": both_pass, "both_fail": both_fail, "queries": queries}
