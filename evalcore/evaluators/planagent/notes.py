"""The Markdown report's last section: distributions, failures, patterns and the operating checklist."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from evalq.evalcore.evaluators.planagent.texts import Texts
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.markdown import inert, plain_dollars

__all__ = ["distinct_percents", "escaped", "notes"]

# An underscore within a word is none of Markdown's signs, and names of fields have many.
_SPECIAL = re.compile(r"([\\`*<&\[\]|~]|(?<![^\W_])_|_(?![^\W_]))")
_MOST_DECIMALS = 12
_UNPRINTED = re.compile(r"[\s\x00-\x1f\x7f]+")


def escaped(text: str, blank: str = "") -> str:
    """``text`` from the data so that it stays one line and one cell, and means nothing to Markdown or HTML."""
    line = _SPECIAL.sub(r"\\\1", inert(_UNPRINTED.sub(" ", text).strip()))
    return plain_dollars(line) or blank


def notes(results: Mapping[str, Json], rounds: Sequence[str], rules: Mapping[str, str], text: Texts) -> Iterator[str]:
    """The lines below the section's heading; ``rules`` say which rows are stability failures."""
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
    """A Markdown table between blank lines; its cells are escaped already."""
    cells = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return ["", *(f"| {' | '.join(row)} |" for row in cells), ""]


def _distribution(results: Mapping[str, Json], rounds: Sequence[str], key: str, text: Texts) -> list[str]:
    points = sorted(results["set"][key])
    parts = [(escaped(name, text.blank), results["rounds"][name][key]) for name in rounds]
    parts.append((text.whole, results["set"][key]))
    return _table([text.round, *points], ([name, *(str(counts[p]) for p in points)] for name, counts in parts))


def _failures(failures: Mapping[str, Json], zeros: bool, text: Texts) -> list[str]:
    """Stability failures by pattern; with ``zeros``, rows that are 0 because no check passed are some of them."""
    # Else the report says "none" above failures that its own checklist counts.
    unpassed = failures["no_check_passed"] if zeros else 0
    if not failures["rows"] and not unpassed:
        return [f"  - {text.none}"]
    rows = [[text.reasons[reason], str(count)] for reason, count in failures["reasons"].items() if count]
    errors = failures["errors"]
    rows += [[f"{text.reasons['error']}: {escaped(item['name'])}", str(item["rows"])] for item in errors["top"]]
    if errors["other"]:
        rows.append([f"{text.reasons['error']}: {text.other}", str(errors["other"])])
    if unpassed:
        rows.append([text.no_check_passed, str(unpassed)])
    return _table([text.cause, text.amount], rows)


def _insights(results: Mapping[str, Json], text: Texts) -> Iterator[str]:
    for row in results["diagnostics"]:
        what = text.suspect.format(check=row["check"], of=row["of"], passed=row["passed"])
        where = text.not_found
        if row["found_at"] is not None:
            where = text.found.format(path=escaped(row["found_at"]), count=row["would_pass"])
        yield f"  - {what} {where}"
    low, slow = results["low_scores"], results["slow"]
    yield "  - " + text.low.format(up_to=low["up_to"], rows=low["rows"], share=_percent(low["share"]))
    yield from _rankings(low, text)
    points = ", ".join(map(str, slow["points"]))
    yield "  - " + text.slow.format(points=points, rows=slow["rows"], share=_percent(slow["share"]))
    yield from _rankings(slow, text)


def _rankings(patterns: Mapping[str, Json], text: Texts) -> Iterator[str]:
    kinds = {"check_sets": text.by_set, "categories": text.by_category, "forms": text.by_form, "missed": text.by_miss}
    for key, label in kinds.items():
        ranking = patterns.get(key)
        if ranking and ranking["top"]:
            parts = [f"{escaped(item['name'], text.blank)} ({item['rows']})" for item in ranking["top"]]
            if ranking["other"]:
                parts.append(f"{text.other} ({ranking['other']})")
            yield f"    - {label}: {', '.join(parts)}"


def _rates(results: Mapping[str, Json], text: Texts) -> Iterator[str]:
    header = [cell.format(up_to=results["low_scores"]["up_to"]) for cell in text.rate_header]
    yield f"- {text.check_rates}"
    yield from _table(
        [header[0], *header[3:]],
        (
            [row["check"], str(row["of"] - row["passed"]), str(row["of"]), _percent(row["failure_rate"])]
            # `rate_header` less its columns of rows: a kind of check has several checks a row.
            for row in results["checks"]
        ),
    )
    for title, key in ((text.set_rates, "check_sets"), (text.category_rates, "categories")):
        yield f"- {title}"
        yield from _table(header, (_rate_row(row, text) for row in results[key]))


def _rate_row(row: Mapping[str, Json], text: Texts) -> list[str]:
    counts = [str(row[key]) for key in ("rows", "low", "failed", "of")]
    return [escaped(row["name"], text.blank), *counts, _percent(row["failure_rate"])]


def _agreement(llm: Mapping[str, Json], text: Texts) -> str:
    kappa = llm["weighted_kappa"]
    return text.llm_line.format(
        pairs=llm["pairs"],
        exact=_percent(llm["exact"]),
        within_one=_percent(llm["within_one"]),
        difference=f"{llm['mean_absolute_difference']:.2f}",
        kappa="-" if kappa is None else f"{kappa:.2f}",
    )


def _checklist(items: Sequence[Mapping[str, Json]], text: Texts) -> Iterator[str]:
    for item in items:
        facts = {key: value["count"] if isinstance(value, dict) else value for key, value in item.items()}
        if "limit" in facts:
            facts["share"], facts["limit"] = distinct_percents(facts["share"], facts["limit"])
        mark = "x" if item["status"] == "ok" else " "
        yield f"[{mark}] {text.checklist_items[item['item']].format(**facts)}"


def distinct_percents(share: float | None, limit: float) -> tuple[str, str]:
    """A share and its limit in percent, with as many decimals as show on which side of the limit the share lies."""
    if share is None:
        return "-", f"{limit:.1%}"
    for decimals in range(1, _MOST_DECIMALS):
        texts = f"{share:.{decimals}%}", f"{limit:.{decimals}%}"
        if (texts[0] == texts[1]) == (share == limit):
            break
    return texts


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
