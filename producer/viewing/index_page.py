"""The page of all runs, with search, filters, and a choice of two runs to compare."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from evalq.evalcore.views.charts import State
from evalq.producer.folder.files import RUNS
from evalq.producer.monitor.fleet import format_duration
from evalq.producer.page.render import Html, element, joined
from evalq.producer.viewing.catalogue import KnownRun, RunProgress
from evalq.producer.viewing.frame import PageAnswer, document, link, table
from evalq.producer.viewing.viewer import Query, Viewer, query_number, query_value

_RUNS = 50
_LOOKS: dict[str, State] = {"failed": "bad", "stopped": "bad", "spent": "doubtful", "gone": "doubtful"}


def index_page(viewer: Viewer, query: Query) -> PageAnswer:
    """The runs that match the query, the latest begun first."""
    runs = viewer.catalogue.runs()
    found = [known for known in runs if _wanted(known, query)]
    at = min(query_number(query, "at"), max(0, len(found) - 1))
    shown = [_with_ledger_facts(viewer, known) for known in found[at : at + _RUNS]]
    count_text = f"{len(runs):,} run{'' if len(runs) == 1 else 's'}"
    count_text = count_text if len(found) == len(runs) else f"{len(found):,} of {count_text}"
    header = element("header", element("h1", "Runs"), element("p", f"{count_text}, the latest first.", class_="lede"))
    trouble = viewer.ledger.trouble
    main = joined(
        element("div", element("p", trouble), class_="notice", role="note") if trouble else None,
        _form(runs, query),
        _table(viewer, shown) if shown else element("p", _NONE if not runs else "No run matches."),
        _turning(
            at, _RUNS, len(found), lambda to: link(at=to, **{name: query_value(query, name) for name in _FILTERS})
        ),
    )
    return document("Runs", header, main, here="/", head=_refreshing(viewer, shown))


_NONE = "There is no run in ./evalq-runs yet. Make some with evalq demo, or show other folders with evalq view FOLDER."
_FILTERS = ("q", "evaluator", "suite", "state")


def _wanted(known: KnownRun, query: Query) -> bool:
    if any((given := query_value(query, name)) and getattr(known, name) != given for name in _FILTERS[1:]):
        return False
    tags = (f"{key}={value}" for key, value in known.tags.items())
    path = str(known.folder.path) if known.folder else ""
    words = "\n".join((known.run, known.evaluator, known.suite, known.target, known.state, path, *tags)).lower()
    return all(word in words for word in query_value(query, "q").lower().split())


def _with_ledger_facts(viewer: Viewer, known: KnownRun) -> KnownRun:
    """A run that is only in the ledger, with the ledger's facts."""
    if known.folder is not None or (facts := viewer.ledger.facts(known.run)) is None:
        return known
    evaluator, suite, target, state = facts
    return replace(known, evaluator=evaluator, suite=suite, target=target, state=state)


def _form(runs: Iterable[KnownRun], query: Query) -> Html:
    search = element("input", type="search", name="q", value=query_value(query, "q"), autocomplete="off")
    picks = [_pick(name, sorted({getattr(known, name) for known in runs} - {""}), query) for name in _FILTERS[1:]]
    return element(
        "form", element("label", "Search", search, class_="wide"), *picks, element("button", "Show"),
        method="get", action=link(""), class_="asking", role="search",
    )  # fmt: skip


def _pick(name: str, values: list[str], query: Query) -> Html | None:
    chosen = query_value(query, name)
    if len(values) < 2 and not chosen:
        return None
    options = [element("option", "All", value="")]
    options += [
        element("option", value, value=value, selected=value == chosen)
        for value in dict.fromkeys([*values, chosen])
        if value
    ]
    return element("label", name.capitalize(), element("select", *options, name=name))


def _table(viewer: Viewer, shown: list[KnownRun]) -> Html:
    titles = ("Run", "Result", "State", "Evaluator, suite", "Cost, time", "Begun", "Base", "Other")
    found = table("Runs", titles, [_row(viewer, known) for known in shown], look="runs")
    button = element("p", element("button", "Compare the two that are picked", class_="button"))
    return element("form", found, button if len(shown) > 1 else None, method="get", action=link("compare"))


def _row(viewer: Viewer, known: KnownRun) -> Html:
    going = known.state not in ("done", "cancelled", "") or known.folder is None
    progress = viewer.standings.of(known) if going else RunProgress(known.state)
    summary = viewer.head(known)
    result = None
    if summary is not None:
        interval = element("small", known.interval) if known.interval else None
        result = joined(element("span", summary.headline, class_=f"status {summary.state}"), interval)
    return element(
        "tr",
        run_cell(known),
        element("td", result or known.trouble or "–", class_="result", dir="auto"),
        _state_cell(known, progress),
        element("td", known.evaluator or "–", element("small", known.suite, dir="auto"), dir="auto"),
        element("td", *_cost_and_time(known), class_="when"),
        element("td", when(known.started), class_="when"),
        *(element("td", _radio(name, what, known), class_="pick") for name, what in _PICKS),
    )


def _cost_and_time(known: KnownRun) -> tuple[str | Html, ...]:
    duration = "–" if known.duration is None else format_duration(known.duration)
    return f"{known.cost:.4g}" if known.cost else "–", element("small", duration)


_PICKS = (("base", "as base"), ("cand", "to compare with it"))


def _radio(name: str, what: str, known: KnownRun) -> Html:
    return element("input", type="radio", name=name, value=known.key, aria_label=f"{run_name(known)} {what}")


def run_cell(known: KnownRun) -> Html:
    """The head of a row: the run's name, leading to its page, and what distinguishes it."""
    name = run_name(known)
    notes = [known.target, *(f"{key}={value}" for key, value in known.tags.items())]
    notes += [known.run] if name != known.run else []
    small = element("small", " · ".join(filter(None, notes)), dir="auto") if any(notes) else None
    return element("th", element("a", name, href=link("run", known.key), dir="auto"), small, scope="row")


def run_name(known: KnownRun) -> str:
    """What its user calls a run: the name of its folder in evalq-runs, the path of another folder, or its id."""
    if known.folder is None:
        return known.run
    path = known.folder.path.absolute()
    path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return path.name if path.parent in (RUNS, Path()) else str(path)


def run_title(known: KnownRun) -> str:
    """A run as titles name it: its name, its target, the prompt around its questions, and when it began."""
    prompt, began = known.tags.get("prompt", ""), known.started[:16].replace("T", " ")
    return " · ".join(filter(None, (run_name(known), known.target, prompt and f"prompt {prompt}", began)))


def _state_cell(known: KnownRun, progress: RunProgress) -> Html:
    """A run's state, and its progress while it goes."""
    word = element("span", progress.state or "unreadable", class_=f"status {state_style(progress.state)}")
    if not progress.going:
        idle = "no process drives it" if progress.state in ("open", "calling", "called", "retrying") else None
        return element("td", word, element("small", idle) if idle else None)
    count_text = element("span", progress.line, data_said="line", class_="said")
    return element("td", word, count_text, data_run=known.key)


def state_style(state: str) -> State:
    """The style of a state."""
    return _LOOKS.get(state, "none")


def when(started: str) -> str:
    """A time without seconds."""
    return started[:16].replace("T", " ") or "–"


def _turning(at: int, step: int, total: int, to: object) -> Html | None:
    """Links to the pages before and after."""
    address = to if callable(to) else str
    links = []
    if at > 0:
        links.append(element("a", "← Earlier in this list", href=address(max(0, at - step)), rel="prev"))
    if at + step < total:
        links.append(element("a", "Further down →", href=address(at + step), rel="next"))
    if not links:
        return None
    last = min(at + step, total)
    return element("p", f"{at + 1:,} to {last:,} of {total:,}", *links, class_="turn")


def _refreshing(viewer: Viewer, shown: list[KnownRun]) -> Html | None:
    if not any(known.state in ("open", "calling", "retrying") for known in shown):
        return None
    return element("noscript", element("meta", http_equiv="refresh", content="15"))
