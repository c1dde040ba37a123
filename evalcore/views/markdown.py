"""Markdown of reports: escaping, tables, faults and failed records, and the report of an evaluator without its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from evalq.evalcore.errors import SHOWN_FAULTS
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.manifest import location
from evalq.evalcore.model.state import Faults, omissions_in
from evalq.evalcore.naming import shorten

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
_LIVE = re.compile(r"(?<=@)(?=\w)|(?<=:)(?=//)|(?<=\bwww)(?=\.)", re.IGNORECASE)
"""Positions where a mention, an address or a link without markup would take effect in spite of escaping."""
LEFT_OUT = "Left out of the numbers"
"""A report's heading for things that no number counts."""
NONE = "N/A"
"""The text of a cell without a value."""
_EXAMPLES = 3
_GAP = "\N{ZERO WIDTH SPACE}"
_DOLLAR = r"<span>\$</span>"
"""A dollar sign that begins no formula in forges and notebooks. Some look for formulas in the source, where the
backslash counts; others in the page, where it is gone, but there no formula spans two elements."""
_PATH = re.compile(re.escape(_DOLLAR) + r"(?=[.:]|\\\[)")
"""The root of a JSON path at the beginning of a fault: it is alone in its cell, so the backslash is enough."""


def visible(text: str) -> str:
    """``text`` without control characters that a terminal or an editor would obey: escapes, returns, reversed text."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)


_COMMAND = re.compile(r"^[^\S\n]*(?=::)|#(?=#(?:\[|vso\[))", re.MULTILINE)
"""Where a build service would obey what is printed: ::error:: begins a line, and ##[ or ##vso[ is anywhere in one."""


def printed(text: object) -> str:
    """``text`` for a terminal: `visible`, and no line of a build's log is a command to the build service."""
    return _COMMAND.sub(lambda found: f"{found[0]}{_GAP}", visible(str(text)))


def printed_line(text: object) -> str:
    """``text`` as one line of `printed`: a line break of the data's own cannot begin a line that looks like evalq's."""
    return printed(" ".join(str(text).splitlines()))


_BLOCK = 4_000


def printed_block(text: str) -> str:
    """``text`` of several lines, such as a traceback, as `printed`: cut in the middle, its later lines indented.

    A line of data, which an error's text may hold, cannot look like a line of the log then.
    """
    if len(text) > _BLOCK:
        half = _BLOCK // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half:,} characters are left out ...\n{text[-half:]}"
    return printed("\n  ".join(text.splitlines()))


def inert(text: str) -> str:
    """``text`` with a space of no width in each mention (@everyone) and bare address, so that they have no effect.

    Forges and chats look for them in the shown text, where backslashes are gone.
    """
    return _LIVE.sub(_GAP, text)


def escape(text: object) -> str:
    """``text`` as one table cell or line of prose: no markup, HTML or line break of the data's own takes effect."""
    flat = inert(" ".join(str(text).split()))
    # Replace the backslash first: otherwise it would escape the backslashes added for the other signs.
    for sign in "\\`*_[]|#~":
        flat = flat.replace(sign, "\\" + sign)
    return plain_dollars(flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def plural(count: int, one: str, many: str = "") -> str:
    """A count of things: "1 case", "2,000 cases"; ``many`` is the plural if it is not ``one`` with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def plain_dollars(text: str) -> str:
    """``text``, which is escaped otherwise, with dollar signs that begin no formulas."""
    plain = text.replace("$", _DOLLAR)
    return "\\$" + plain[len(_DOLLAR) :] if _PATH.match(plain) else plain


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    """A Markdown table; cells are escaped."""
    lines = [head, *rows]
    cells = [[escape(cell) for cell in line] for line in lines]
    cells.insert(1, ["---"] * len(head))
    return "\n".join("| " + " | ".join(line) + " |" for line in cells) + "\n"


def percent(share: float | None, missing: str = "-") -> str:
    """A share with one decimal; ``missing`` without a share."""
    return missing if share is None else f"{100 * share:.1f} %"


def percent_between(value: float | None, low: float | None, high: float | None) -> str:
    """A share with one decimal, and its interval if there is one; `NONE` without a value."""
    shown = percent(value, NONE)
    return shown if value is None or low is None or high is None else f"{shown} ({100 * low:.1f} to {100 * high:.1f})"


def decimals(value: float | None, digits: int = 3, missing: str = NONE) -> str:
    """A number with so many decimals; ``missing`` without a value."""
    return missing if value is None else f"{value:.{digits}f}"


def left_out(report: Mapping[str, Json]) -> str:
    """The things that the report's numbers leave out: each kind with count and examples; empty without any."""
    rows: list[tuple[object, ...]] = [
        (
            each.what,
            f"{each.count:,}",
            f"{each.why}; counted instead: {each.instead}" if each.instead else each.why,
            "; ".join(f"{one.where}: {shorten(one.text, 80)}" for one in each.examples[:_EXAMPLES]),
        )
        for each in omissions_in(report)
    ]
    return f"## {LEFT_OUT}\n\n" + table(("What", "Count", "Why", "For example"), rows) if rows else ""


def input_faults(report: Mapping[str, Json]) -> str:
    """The things that the report leaves out, then the first faults of its input; empty without any."""
    return "\n".join(filter(None, (left_out(report), _faults(report))))


def _faults(report: Mapping[str, Json]) -> str:
    faults = report["faults"]
    if not faults:
        return ""
    shown = faults[:SHOWN_FAULTS]
    rows: list[tuple[object, ...]] = [(fault["where"], shorten(fault["reason"], 200)) for fault in shown]
    if len(faults) > len(shown):
        rows.append(("", f"and {len(faults) - len(shown)} more in report.json"))
    return "## Faults in the input\n\n" + table(("Where", "Why"), rows)


def fault_table(report: Mapping[str, Json], title: str) -> str:
    """All faults that report.json lists, under ``title``; empty without any."""
    rows: list[tuple[object, ...]] = [(fault["where"], fault["reason"]) for fault in report["faults"]]
    return f"## {title}\n\n" + table(("where", "reason"), rows) if rows else ""


def generic(report: Mapping[str, Json]) -> str:
    """A title, the counts of records, and every number of ``results`` under its key path."""
    records = report["records"]
    counts = ", ".join(f"{records[key]} {key}" for key in ("scored", "unscored", "errors", "dead"))
    names = ", ".join(escape(source["name"]) for source in report["inputs"])
    rows: list[tuple[object, ...]] = list(_leaves(report["results"]))
    parts = [f"# {escape(report['evaluator'])}\n", f"{names}: {records['total']} records ({counts})\n"]
    parts.append(table(("result", "value"), rows))
    parts += [left_out(report), fault_table(report, "Faults")]
    return "\n".join(filter(None, parts))


def _leaves(value: Json, path: str = "") -> Iterator[tuple[object, ...]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{index}]")
    else:
        yield path, _shown(value)


def _shown(value: Json) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return "-" if value is None or value in ({}, []) else str(value)


# Records that did not pass, with their reasons.

_SHOWN_FAILURES = 20
_MAX_REASON = 200


def failed_section(inputs: Iterable[tuple[str, Faults]]) -> dict[str, Json]:
    """``total``, and the first of each input as {"record", "reason"}; ``inputs`` are pairs of name and failed lines."""
    pairs = list(inputs)
    return {
        "total": sum(failed.total for _, failed in pairs),
        "listed": [
            {"record": location(name, line), "reason": reason}
            for name, failed in pairs
            for line, reason in failed.first
        ],
    }


def failed_table(section: Mapping[str, Json]) -> list[str]:
    """The parts of a page about ``failed_section``; none if every record passed."""
    if not section["total"]:
        return []
    rows: list[tuple[object, ...]] = [
        (
            item["record"],
            item["reason"] if len(item["reason"]) <= _MAX_REASON else item["reason"][: _MAX_REASON - 1] + "…",
        )
        for item in section["listed"][:_SHOWN_FAILURES]
    ]
    if section["total"] > len(rows):
        rows.append(("", f"and {section['total'] - len(rows)} more in records.jsonl"))
    return ["## Failed records\n", table(("record", "reason"), rows)]
