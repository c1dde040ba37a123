"""Diversity as Markdown: what is known of collapse, and the cases nearest to it."""

from __future__ import annotations

from collections.abc import Mapping

from evalq.evalcore.evaluators.checks.shown import NONE, number, share
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.naming import shorten
from evalq.evalcore.views.markdown import escape, table

__all__ = ["by_a_judge", "chained", "diversity_markdown"]

_CASES = 50
_NAMED = 10
_COLUMNS = (
    "Case",
    "By",
    "Verdict",
    "Commonest kind (95 %)",
    "Answers",
    "Texts → kinds",
    "Effective kinds",
    "Answers to decide",
)
_JUDGED = (
    "Of pairs, a judge: the share of pairs of answers that say the same. Collapsed where it surely is over "
    "collapse_share, diverse where it surely is under its square; each by itself is wrong in 2.5 % at most, if the "
    "judge is right. Pairs without a verdict count against either."
)


def diversity_markdown(results: Mapping[str, Json]) -> str:
    """Kinds of answers, and whether they collapsed; nothing where they are not counted."""
    found = results.get("diversity")
    if found is None:
        return ""
    entries = sorted(found["by_case"], key=_nearest)
    judged = any("by_judge" in entry for entry in entries)
    # A further column, only where a judge was to compare answers.
    columns, more_cells = ((*_COLUMNS, "Of pairs, a judge"), _judged) if judged else (_COLUMNS, _nothing)
    more = f"The {_CASES} cases nearest to collapse:" if len(entries) > _CASES else ""
    parts = [
        "## Diversity",
        *_said(found),
        more,
        table(columns, [(*_row(entry), *more_cells(entry)) for entry in entries[:_CASES]]),
        _JUDGED if judged else "",
        _tags(found),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part)


def _judged(entry: Mapping[str, Json]) -> tuple[str]:
    return (by_a_judge(entry) or NONE,)


def _nothing(entry: Mapping[str, Json]) -> tuple[()]:
    return ()


def by_a_judge(entry: Mapping[str, Json]) -> str:
    """What a judge of pairs came to, with the pairs that say nothing by name; empty where none was to be asked."""
    told = entry.get("by_judge")
    if told is None:
        return ""
    chance = told["collision_probability"]
    said = f"{told['verdict'].replace('_', ' ')}: {told['same']} of {told['pairs']} the same"
    bounds = f", {share(chance['value'], chance['low'], chance['high'])}" if told["pairs"] else ""
    lost = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in told["left_out"].items() if count)
    return said + bounds + (f" ({lost})" if lost else "")


def _said(found: Mapping[str, Json]) -> tuple[str, str]:
    counted = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in found["verdicts"].items() if count)
    named = ", ".join(escape(shorten(item["case"])) for item in found["collapsed"][:_NAMED])
    verdict = found["verdict"].replace("_", " ") + (f" ({named})" if named else "")
    error = f"family-wise error at most {found['alpha']:.1%} ({found['correction']})"
    ways = " or ".join(sorted({entry["by"] for entry in found["by_case"]}))
    error += f", if answers alike by {ways} are one"
    agreement = found["collision_probability"]
    alike = share(agreement["value"], agreement["low"], agreement["high"])
    kinds = f"effective kinds: {number(found['effective_modes'])}; means over cases with repeats"
    return (
        f"Collapse nowhere: {verdict}, over {found['cases']} cases, {error}. Each by itself: {counted}",
        f"Two answers to a case are of one kind: {alike}; {kinds}",
    )


def _tags(found: Mapping[str, Json]) -> str:
    rows: list[tuple[object, ...]] = [
        (shorten(each["tag"]), each["cases"], each["verdicts"]["collapsed"], number(each["effective_modes"]))
        for each in found["by_tag"][:_CASES]
    ]
    return table(("Tag", "Cases", "Collapsed", "Effective kinds"), rows) if rows else ""


def _nearest(entry: Mapping[str, Json]) -> tuple[float, str]:
    return -(entry["mode_share"]["value"] or 0.0), entry["case"]


def chained(entry: Mapping[str, Json]) -> str:
    """Says so where the commonest kind has texts not half as alike as near ones are: steps led from one to another."""
    least = entry.get("least_alike")
    return f" (a chain: {least:.2f} alike at its ends)" if least is not None and least < entry["similarity"] / 2 else ""


def _row(entry: Mapping[str, Json]) -> tuple[object, ...]:
    said, distinct, more = entry["mode_share"], entry["distinct"], entry["runs_to_decide"]
    return (
        shorten(entry["case"]),
        f"{entry['by']} {entry['similarity']:g}" if "similarity" in entry else entry["by"],
        entry["verdict"].replace("_", " ") + chained(entry),
        share(said["value"], said["low"], said["high"]),
        entry["answers"],
        f"{distinct['text']} → {distinct['kinds']}",
        number(entry["effective_modes"]["q1"]),
        NONE if more is None else more,
    )
