"""What the page of a checks run begins with and draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from evalq.evalcore.evaluators.checks.diversity.markdown import by_a_judge, chained
from evalq.evalcore.evaluators.checks.labelling.shown import LABEL_CHARTS, on_trust_line
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.charts import Chart, Mark, State, Summary, Tile, number, of_answered

__all__ = ["CHARTS", "opening"]

_REACHED: Mapping[str, tuple[str, State]] = {
    "holds": ("reached", "good"),
    "fails": ("not reached", "bad"),
    "inconclusive": ("cannot tell yet", "doubtful"),
    "advisory": ("advisory", "none"),
}
_VERDICTS: Mapping[str, State] = {"holds": "good", "fails": "bad", "inconclusive": "doubtful"}
_NOWHERE: Mapping[str, tuple[str, State]] = {
    "holds": ("nowhere", "good"),
    "fails": ("found", "bad"),
    "inconclusive": ("undecided", "doubtful"),
}
_KINDS: Mapping[str, State] = {"collapsed": "bad", "inconclusive": "doubtful", "diverse": "good"}


def opening(report: Mapping[str, Json]) -> Summary:
    """How many outputs passed, and whether cases reach their thresholds."""
    results = report["results"]
    outputs, decided, cases = results["outputs"], results["thresholds"], results["cases"]
    told, state = _REACHED.get(decided["verdict"], ("none set", "none"))
    judged = outputs["passed"] + outputs["failed"]
    every = judged + outputs["errors"]
    over = of_answered((judged, every, "outputs with a verdict"), (cases["answered"], cases["total"], "cases answered"))
    noted = "; ".join(filter(None, (_interval(results["pass_rate_interval"]), over)))
    # Of all outputs: where three of four have no verdict, one that passes is no whole.
    return Summary(
        f"{outputs['passed']:,} of {every:,} outputs passed",
        _sentence(results),
        state if decided["total"] else "none",
        tiles=(
            Tile("Pass rate", number(results["pass_rate"], "share"), noted, "doubtful" if over else "none"),
            *_people(results),
            Tile("Score", number(results["score"], "points"), "mean over cases"),
            Tile("Failed", number(outputs["failed"], "count")),
            Tile("No verdict", number(outputs["errors"], "count"), state="doubtful" if outputs["errors"] else "none"),
            Tile(
                "Cases answered",
                f"{cases['answered']:,} of {cases['total']:,}",
                state="doubtful" if cases["answered"] < cases["total"] else "none",
            ),
            Tile("Thresholds", told, f"{decided['holds']:,} of {decided['total']:,} hold", state),
            *_collapse(results),
            Tile("Median latency", number(results["latency_seconds"]["p50"], "seconds")),
            Tile("Cost", number(results["cost"]["total"], "number")),
        ),
    )


def _people(results: Mapping[str, Json]) -> Iterator[Tile]:
    """What checks say that no judge decides, and what people would say of those that one does."""
    if "plain" not in results:
        return
    plain, found = results["plain"], results["labels"]["outputs"]["corrected"]
    yield Tile("By plain checks", number(plain["pass_rate"], "share"), _interval(plain))
    if found["value"] is not None:
        yield Tile("By people's labels", number(found["value"], "share"), _interval(found))


def _collapse(results: Mapping[str, Json]) -> Iterator[Tile]:
    """What is known of collapse, where answers are counted by kind."""
    if "diversity" in results:
        found = results["diversity"]
        told, state = _NOWHERE.get(found["verdict"], ("not known", "none"))
        noted = f"{found['verdicts']['collapsed']:,} of {found['cases']:,} cases, each by itself"
        yield Tile("Collapse", told, noted, state)
        yield Tile("Kinds of answers", number(found["effective_modes"], "number"), "effective, mean over cases")


def _sentence(results: Mapping[str, Json]) -> str:
    errors, missing = results["outputs"]["errors"], results["cases"]["unrecorded"]
    parts = [f"{errors:,} outputs have no verdict."] if errors else []
    parts += [f"{missing:,} cases have no output."] if missing else []
    parts += [told] if (told := on_trust_line(results)) else []
    return " ".join(parts)


def _interval(bounds: Mapping[str, float | None]) -> str:
    if bounds["low"] is None or bounds["high"] is None:
        return ""
    return f"{100 * bounds['low']:.1f} to {100 * bounds['high']:.1f} %, 95 % interval"


def _lowest_first(marks: Iterable[Mark]) -> list[Mark]:
    return sorted(marks, key=lambda mark: (mark.value is not None, mark.value or 0.0, mark.label))


def _of(entries: Sequence[Mapping[str, Json]], key: str) -> list[Mark]:
    """The pass rates of entries with bounds of their own."""
    return _lowest_first(
        Mark(entry[key], entry["pass_rate"], entry["low"], entry["high"], note=_note(entry["outputs"]))
        for entry in entries
        if entry["pass_rate"] is not None
    )


def _note(outputs: Mapping[str, int]) -> str:
    judged = outputs["passed"] + outputs["failed"]
    known = f"{outputs['passed']:,} of {judged:,}" if judged else ""
    lacking = f"{outputs['errors']:,} without a verdict" if outputs["errors"] else ""
    return ", ".join(filter(None, (known, lacking))) or "no output"


def _cases(report: Mapping[str, Json]) -> list[Mark]:
    def marks() -> Iterator[Mark]:
        for entry in report["results"]["by_case"]:
            rate = entry["pass_rate"]
            if rate["value"] is not None:
                states = [_VERDICTS.get(each["verdict"], "none") for each in entry["thresholds"]]
                state: State = next((s for s in ("bad", "doubtful", "good") if s in states), "none")
                yield Mark(entry["case"], rate["value"], rate["low"], rate["high"], state, note=_note(entry["outputs"]))
            else:
                yield Mark(entry["case"], None, state="doubtful", note=_note(entry["outputs"]))

    return _lowest_first(marks())


def _shares(report: Mapping[str, Json]) -> Iterator[Mark]:
    """The cases nearest to collapse first; a single answer has no share to speak of."""
    known = [entry for entry in report["results"].get("diversity", {}).get("by_case", ()) if entry["answers"] > 1]
    for entry in sorted(known, key=lambda entry: (-entry["mode_share"]["value"], entry["case"])):
        share, said = entry["mode_share"], entry["verdict"]
        kinds = f"{entry['effective_modes']['q1']:.1f} effective kinds"
        note = f"{said}{chained(entry)}; {kinds}; collapsed above {entry['collapse_share']:g}"
        judged = by_a_judge(entry)
        note += f"; of pairs, a judge: {judged}" if judged else ""
        yield Mark(entry["case"], share["value"], share["low"], share["high"], _KINDS.get(said, "none"), note=note)


def _passes(key: str) -> Chart:
    name = "pass@k" if key == "pass_at" else "pass^k"
    said = "one of k answers, at least, passes" if key == "pass_at" else "all of k answers pass"

    def marks(report: Mapping[str, Json]) -> Iterator[Mark]:
        for entry in report["results"][key]:
            if entry["value"] is not None:
                label, note = name.replace("k", str(entry["k"])), f"{entry['cases']:,} cases"
                yield Mark(label, entry["value"], entry["low"], entry["high"], note=note)

    caption = f"The chance that {said}, mean over cases with so many answers, with 95 % intervals."
    return Chart(name, caption, "dots", "share", marks, "Of", (0.0, 1.0))


_RATE = "with 95 % intervals, cases being clusters of their answers. The lowest come first."

CHARTS = (
    Chart(
        "Pass rate by case",
        "Outputs that passed, with exact 95 % intervals. The lowest come first.",
        "dots",
        "share",
        _cases,
        "Case",
        (0.0, 1.0),
    ),
    Chart(
        "Pass rate by tag",
        f"Mean over the cases of a tag, {_RATE}",
        "dots",
        "share",
        lambda report: _of(report["results"]["by_tag"], "tag"),
        "Tag",
        (0.0, 1.0),
    ),
    Chart(
        "Pass rate by check",
        f"Outputs that passed a check, mean over its cases, {_RATE}",
        "dots",
        "share",
        lambda report: _of(report["results"]["by_check"], "check"),
        "Check",
        (0.0, 1.0),
    ),
    Chart(
        "Share of the commonest kind of answer",
        "How often a case was answered by its commonest kind of answer, with 95 % intervals. A case is collapsed whose "
        "interval lies above its limit, diverse below it; across it, more answers are needed.",
        "dots",
        "share",
        _shares,
        "Case",
        (0.0, 1.0),
    ),
    *LABEL_CHARTS,
    _passes("pass_at"),
    _passes("pass_hat"),
)
