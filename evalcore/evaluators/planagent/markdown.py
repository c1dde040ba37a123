"""The report as Markdown: the seed's template, filled from report.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalq.evalcore.evaluators.planagent.notes import escaped, notes
from evalq.evalcore.evaluators.planagent.section import round_order
from evalq.evalcore.evaluators.planagent.texts import LANGUAGES, TEXTS, Texts
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import omissions_in
from evalq.evalcore.naming import shorten

__all__ = ["LANGUAGES", "markdown"]

EXAMPLES = 3
"""Places of what was left out that are shown of each kind."""


def markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    """The seed's template once for every input, in Korean unless ``options["lang"]`` is "en"."""
    lang = str(options.get("lang") or LANGUAGES[0])
    results = report["results"]
    files = results.get("files") or {report["inputs"][0]["name"]: results}
    pages = []
    for given in report["inputs"]:
        name = given["name"]
        pages.append(_page(name, given["records"], files[name], report["params"], TEXTS[lang]))
    return "\n".join([*pages, *_left_out(report, TEXTS[lang])])


def _left_out(report: Mapping[str, Json], text: Texts) -> list[str]:
    """What the numbers of all inputs leave out, with the first places; nothing without any."""
    lines = []
    for each in omissions_in(report):
        places = "; ".join(escaped(f"{one.where}: {shorten(one.text, 80)}") for one in each.examples[:EXAMPLES])
        known = text.left_out_kinds.get(each.what)
        said = known.format(count=f"{each.count:,}") if known else escaped(each.sentence(0))
        lines.append(f"- {said}" + (f" ({text.where}: {places})" if places else ""))
    return [f"## {text.left_out}", *lines, ""] if lines else []


def _page(name: str, records: int, results: Mapping[str, Json], params: Mapping[str, Json], text: Texts) -> str:
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
        *notes(results, rounds, rules, text),
    ]
    return "\n".join(lines) + "\n"


def _basis(params: Mapping[str, Json], text: Texts) -> list[str]:
    rules = params["rules"]
    llm = [text.llm_basis] if rules["accuracy"] == "llm_when_present" else []
    return [
        text.intent_basis,
        *llm,
        text.stability_basis[rules["stability"]],
        text.consistency_basis.format(mark=params["pass_mark"]),
        text.speed_basis[rules["speed"]],
    ]


def _metrics(results: Mapping[str, Json], rounds: list[str], rules: Mapping[str, str], text: Texts) -> list[str]:
    parts = [(escaped(name, text.blank), results["rounds"][name]) for name in rounds] + [(text.whole, results["set"])]

    def row(key: str) -> str:
        return ", ".join(f"{name}: {_number(part[key])}" for name, part in parts)

    speed = ", ".join(f"{name}: {_speed(part['speed'], rules, text)}" for name, part in parts)
    return [
        f"{text.intent} — {row('intent')}",
        f"{text.accuracy} — {row('accuracy')}",
        f"{text.consistency} — {_consistency(results['consistency'], text)}",
        f"{text.speed} — {speed}",
        f"{text.stability} — {_number(results['set']['stability'][rules['stability']])}",
    ]


def _consistency(found: Mapping[str, Json], text: Texts) -> str:
    left_out = found["excluded"]["fewer_than_two_rounds"]["count"]
    return f"- ({text.no_pairs.format(count=left_out)})" if found["score"] is None else _number(found["score"])


def _speed(speed: Mapping[str, Json], rules: Mapping[str, str], text: Texts) -> str:
    if speed["mean_seconds"] is None:
        return "-"
    points = _number(speed["mean_points"]) if rules["speed"] == "mean_of_points" else str(speed["points_of_mean"])
    return f"{_number(speed['mean_seconds'])}{text.second} / {points}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
