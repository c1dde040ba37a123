"""What people read of a run with everything in it (Markdown, the page, its charts and rows) is what the report says."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.evaluators.checks.labels import notices, on_trust_line
from evalq.evalcore.evaluators.checks.views import VIEWS, markdown, page_summary
from evalq.evalcore.views.charts import Evidence, Mark
from evalq.producer.outputs.final import interval_of
from tests.unit.checks.helpers import evaluated, line, params_of, stop_mark
from tests.unit.checks.labelled import CASES as JUDGED
from tests.unit.checks.labelled import judged_line

PLAIN: dict[str, Any] = {
    "id": "plain",
    "checks": [
        {"contains": "yes", "name": "agrees"},
        {"any": [{"contains": "no"}, {"regex": "^y"}], "weight": 0},
        {"max-latency": 1, "weight": 0},
    ],
    "tags": ["rest"],
    "thresholds": {"rates": [{"number": "pass-rate", "least": 0.5}]},
    "diversity": {"by": "text"},
}
CASES = [{**case, "tags": ["judged"]} for case in JUDGED if case["id"] != "plain"] + [PLAIN]


def _lines() -> Iterator[bytes]:
    for repeat in range(12):
        for at, case in enumerate(CASES[:5]):
            labels = {"polite": repeat % 3 != 0} if repeat < 7 else None
            made = json.loads(judged_line(case["id"], repeat, (repeat + at) % 4 != 0, labels=labels))
            attempt = {"cost": 0.25, "latency_seconds": 1.5, "prompt_tokens": 3, "completion_tokens": 4}
            made["judgements"][0] |= {"config": f"c{at}", "attempts": [attempt]}
            yield json.dumps(made).encode()
        used = {"cost": 0.5 + repeat, "first_token_seconds": 0.25 * (repeat + 1)}
        yield line("plain", repeat, "yes" if repeat % 5 else "no", **used, **stop_mark(40))
    yield b'{"case":"plain","repeat":90,"error":"lost"}'
    yield judged_line("m0", 91, True, labels={"nobody": True})


class Whole:
    """The run: its report, its lines, its Markdown."""

    def __init__(self, folder: Path) -> None:
        run = evaluated(folder, list(_lines()), params_of(CASES))
        self.report: dict[str, Any] = run.report
        self.results: dict[str, Any] = run.report["results"]
        self.records = [msgspec.json.encode(record) for record in run.records()]
        self.text = markdown(self.report, {})

    def table(self, title: str, which: int = 0) -> list[dict[str, str]]:
        """A table of the Markdown, as rows by their heads."""
        return tables(self.text, title)[which]


def tables(text: str, title: str) -> list[list[dict[str, str]]]:
    """The tables under a title."""
    part = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    found = []
    for block in re.findall(r"(?:^\|.*\|\n?)+", part, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in row.strip("|").split("|")] for row in block.strip().split("\n"))
        found.append([dict(zip(head, row, strict=True)) for row in rows])
    return found


def figures(cell: str) -> list[float]:
    """The numbers of a cell."""
    return [float(each) for each in re.findall(r"-?\d+(?:\.\d+)?", cell)]


def percent(value: float, low: float, high: float) -> Any:
    """How a share and its interval are shown, to a tenth."""
    return pytest.approx([100 * value, 100 * low, 100 * high], abs=0.0501)


def of(entry: dict[str, Any]) -> Any:
    """The same of an entry of the report."""
    return percent(entry["value"], entry["low"], entry["high"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Made once: nobody changes it."""
    return Whole(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(("title", "key", "list_of"), [("By tag", "Tag", "by_tag"), ("By check", "Check", "by_check")])
def test_rates_are_those_of_the_report(whole: Whole, title: str, key: str, list_of: str) -> None:
    """A row each, with its outputs; and a mark on the page."""
    entries = {entry[key.lower()]: entry for entry in whole.results[list_of]}
    rows = whole.table(title)
    assert {row[key] for row in rows} == set(entries)
    for row in rows:
        entry = entries[row[key]]
        known = entry["pass_rate"] is not None
        wanted = percent(entry["pass_rate"], entry["low"], entry["high"]) if known else []
        assert figures(row["Pass rate (95 %)"].replace("N/A", "")) == wanted
        counted = tuple(int(row[each]) for each in ("Passed", "Failed", "Errors"))
        assert counted == tuple(entry["outputs"][each] for each in ("passed", "failed", "errors"))
    marks = chart(f"Pass rate by {key.lower()}", whole.report)
    assert {mark.label: (mark.value, mark.low, mark.high) for mark in marks} == {
        name: (entry["pass_rate"], entry["low"], entry["high"])
        for name, entry in entries.items()
        if entry["pass_rate"] is not None
    }


def chart(title: str, report: dict[str, Any]) -> list[Mark]:
    """The marks of the chart with that title."""
    (drawn,) = (each for each in VIEWS.charts if each.title == title)
    return list(drawn.marks(report))


def test_cases_come_with_the_lowest_rate_first(whole: Whole) -> None:
    """With score, thresholds and errors; one without a verdict comes last."""
    rows = whole.table("By case")
    entries = {entry["case"]: entry for entry in whole.results["by_case"]}
    values = [entries[row["Case"]]["pass_rate"]["value"] for row in rows]
    assert values[-1] is None
    assert values[:-1] == sorted(values[:-1])
    for row in rows[:-1]:
        entry = entries[row["Case"]]
        assert figures(row["Pass rate (95 %)"]) == of(entry["pass_rate"])
        assert float(row["Score"]) == pytest.approx(entry["score"], abs=0.00051)
        passed, failed = entry["outputs"]["passed"], entry["outputs"]["failed"]
        assert (row["Passed"], int(row["Errors"])) == (f"{passed} of {passed + failed}", entry["outputs"]["errors"])
    (plain,) = (row for row in rows if row["Case"] == "plain")
    assert plain["Thresholds"] == "pass-rate 0.5: inconclusive"
    marks = {mark.label: mark for mark in chart("Pass rate by case", whole.report)}
    assert marks["plain"].state == "doubtful"
    assert marks["m0"].state == "none"
    assert marks["m0"].note == "10 of 13"


def test_judges_are_shown_with_what_they_took(whole: Whole) -> None:
    """Votes, cost, seconds; of digests three, and how many more there are."""
    (row,) = whole.table("Judges")
    assert [int(row[each]) for each in ("Asked", "Read", "Unreadable", "Failed")] == [61, 61, 0, 0]
    assert (row["Judge"], row["Settings"]) == ("grader", "c0, c0ffee, c1 and 3 more")
    assert (figures(row["Cost"]), figures(row["Median"])) == ([15.0], [1.5])
    for configs, wanted in ((["a", "b", "c"], "a, b, c"), (["a", "b", "c", "d"], "a, b, c and 1 more")):
        other = copy.deepcopy(whole.report)
        other["results"]["judges"][0]["configs"] = configs
        assert tables(markdown(other, {}), "Judges")[0][0]["Settings"] == wanted


def test_labels_are_shown_with_what_people_would_say(whole: Whole) -> None:
    """The same numbers in Markdown and on the page's charts, and how many labels stand behind them."""
    (row,) = whole.table("Verdicts and people")
    (entry,) = whole.results["labels"]["checks"]
    assert (row["Check"], int(row["Labels"])) == ("polite", entry["labels"])
    wanted = {
        "Agrees (95 %)": "agreement",
        "Passes wrongly": "false_pass",
        "Fails wrongly": "false_fail",
        "Corrected (95 %)": "corrected",
    }
    for head, key in wanted.items():
        assert figures(row[head]) == of(entry[key])
    kappa = entry["kappa"]
    assert re.fullmatch(r"\S+ \(\S+ to \S+\)", row["Kappa"])
    assert figures(row["Kappa"]) == pytest.approx([kappa["value"], kappa["low"], kappa["high"]], abs=0.00501)
    assert figures(row["Judged"]) == [pytest.approx(100 * entry["judged_rate"], abs=0.0501)]
    for title, key, noted in (
        ("Agreement with people", "agreement", f"{entry['labels']} labels"),
        ("Pass rate by labels", "corrected", f"{100 * entry['judged_rate']:.1f} % by its verdicts"),
    ):
        (mark,) = chart(title, whole.report)
        found = entry[key]
        assert (mark.label, mark.value, mark.low, mark.high) == ("polite", found["value"], found["low"], found["high"])
        assert mark.note == noted
    assert "- line 74: m0 has no check called" in whole.text
    assert "Labels of no output with a verdict, 1:" in whole.text
    assert notices(whole.report)[0].startswith("1 label without an output that has a verdict")


def test_whole_outputs_are_shown_where_several_checks_are_judged(whole: Whole) -> None:
    """Of a single check they would say the same again."""
    more = copy.deepcopy(whole.report)
    labels = more["results"]["labels"]
    labels["checks"].append({**labels["checks"][0], "check": "brief"})
    rows = tables(markdown(more, {}), "Verdicts and people")[0]
    assert [row["Check"] for row in rows] == ["polite", "brief", "whole outputs"]
    assert figures(rows[2]["Corrected (95 %)"]) == of(labels["outputs"]["corrected"])


@pytest.mark.parametrize(("many", "named", "more"), [(1, 1, ""), (10, 10, ""), (12, 10, " and 2 more")])
def test_checks_on_trust_are_named(many: int, named: int, more: str) -> None:
    """Ten, and how many more; those that decide nothing and those that labels bear out are none of them."""
    entries = [{"check": f"c{at:02}", "decides": True, "trusted": False} for at in range(many)]
    entries += [{"check": "shown", "decides": False, "trusted": False}]
    entries += [{"check": "known", "decides": True, "trusted": True}]
    said = on_trust_line({"labels": {"checks": entries}})
    assert re.findall(r"c\d\d", said) == [f"c{at:02}" for at in range(named)]
    assert f"c{named - 1:02}{more}" in said
    assert ("more" in said) is (many > 10)
    assert "shown" not in said
    assert "known" not in said


def test_stopping_is_shown_with_the_calls_it_saved(whole: Whole) -> None:
    """Decided, undecided, planned, made and saved."""
    (said,) = (part for part in whole.text.split("\n\n") if part.startswith("Stopping "))
    stopping = whole.results["stopping"]
    assert said.startswith("Stopping when-decided: 0 of 1 cases with thresholds decided, 1 undecided; ")
    assert f"{stopping['calls_made']} of 40 calls made, {stopping['calls_saved']} saved" in said
    assert "an error of at most 2.5% on either side" in said


def test_the_head_has_what_decides(whole: Whole) -> None:
    """The pass rate, by plain checks too, pass@k and pass^k, thresholds, outputs and cases."""
    results = whole.results
    bounds = results["pass_rate_interval"]
    head = whole.text.split("\n\n")
    outputs, cases = results["outputs"], results["cases"]
    whole_of = [cases["answered"], cases["total"]]
    rate = figures(head[1])
    assert rate[:3] == percent(results["pass_rate"], bounds["low"], bounds["high"])
    assert rate[3:] == whole_of
    plain = results["plain"]
    assert head[2].startswith("By checks that no judge decides: ")
    assert figures(head[2]) == percent(plain["pass_rate"], plain["low"], plain["high"])
    assert figures(head[3]) == [
        *(outputs["passed"], outputs["passed"] + outputs["failed"], outputs["errors"]),
        *(cases["answered"], cases["total"]),
    ]
    known = [entry for key in ("pass_at", "pass_hat") for entry in results[key] if entry["k"] > 1]
    wanted = head[4].split("; ")
    assert [figures(each)[0] for each in wanted] == [entry["k"] for entry in known]
    assert [figures(each)[1:] for each in wanted] == [of(entry) for entry in known]
    assert [each.partition(" ")[0] for each in wanted] == ["pass@3", "pass@5", "pass^3", "pass^5"]
    for key, title in (("pass_at", "pass@k"), ("pass_hat", "pass^k")):
        marks = chart(title, whole.report)
        assert [(mark.value, mark.low, mark.high) for mark in marks] == [
            (entry["value"], entry["low"], entry["high"]) for entry in results[key]
        ]
        assert [mark.label for mark in marks] == [title.replace("k", str(entry["k"])) for entry in results[key]]


def test_the_page_opens_with_the_same_numbers(whole: Whole) -> None:
    """Tiles and a sentence on what lacks."""
    summary = page_summary(whole.report)
    tiles = {tile.label: tile for tile in summary.tiles}
    results = whole.results
    outputs = results["outputs"]
    judged = outputs["passed"] + outputs["failed"]
    assert summary.headline == f"{outputs['passed']} of {judged} judged outputs passed; 1 without a verdict (errors)"
    assert summary.sentence == (
        "1 case without an output. "
        "People's labels do not bear out the verdicts of polite yet: what rests on these is advisory."
    )
    for label, bounds in (
        ("Pass rate", results["pass_rate_interval"]),
        ("By plain checks", results["plain"]),
        ("By people's labels", results["labels"]["outputs"]["corrected"]),
    ):
        assert figures(tiles[label].note)[:2] == pytest.approx([100 * bounds["low"], 100 * bounds["high"]], abs=0.0501)
    assert (tiles["Thresholds"].value, tiles["Thresholds"].note) == ("cannot tell yet", "0 of 1 hold")
    assert summary.state == tiles["Thresholds"].state == "doubtful"
    assert tiles["No verdict"].state == "doubtful"
    assert (tiles["Collapse"].value, tiles["Collapse"].note) == ("undecided", "0 of 1 cases, each by itself")


def test_errors_alone_are_no_rate(tmp_path: Path) -> None:
    """Every call failed: neither the headline nor the report has a number that looks like 0 % or 100 %."""
    report = evaluated(tmp_path, [line(case, 0, error="no") for case in "abc"]).report
    summary, without = page_summary(report), "0 of 0 judged outputs passed; 3 without a verdict (errors)"
    assert (summary.headline, summary.state, interval_of(summary)) == (without, "doubtful", None)
    assert {tile.value for tile in summary.tiles if tile.label in ("Pass rate", "Score")} == {"–"}
    text = plugins.get("checks").views.markdown(report, {})
    assert f"{without}; 0 of 3 cases answered" in text
    assert "%" not in text.partition("## By case")[2].partition("## Faults")[0].replace("95 %", "")


@pytest.mark.parametrize("more", [[], [line("b", 0, error="no"), line("c", 0, error="no")], [line("a", 1, error="no")]])
def test_one_answer_of_many_is_no_whole(more: list[bytes], tmp_path: Path) -> None:
    """Whether nothing was recorded, or there is no verdict: in the headline, a tile, a chart and a sentence."""
    report = evaluated(tmp_path, [line("a", 0), *more]).report
    summary = page_summary(report)
    tiles = {tile.label: tile for tile in summary.tiles}
    without = f"; {len(more)} without a verdict (errors)"
    assert summary.headline == (f"1 of 1 judged outputs passed{without}" if more else "1 of 1 outputs passed")
    assert (tiles["Pass rate"].value, tiles["Pass rate"].state) == ("100.0 %", "doubtful")
    assert "the 1 of 3 cases answered" in tiles["Pass rate"].note
    assert tiles["Cases answered"].state == "doubtful"
    marks = {mark.label: mark for mark in chart("Pass rate by case", report)}
    assert {case: mark.value for case, mark in marks.items()} == {"a": 1.0, "b": None, "c": None}
    if more:
        assert f"the 1 of {1 + len(more)} outputs with a verdict" in tiles["Pass rate"].note
        assert "1 without a verdict" in marks["a" if len(more) == 1 else "b"].note
    assert marks["c"].note == ("1 without a verdict" if len(more) == 2 else "no output")
    text = plugins.get("checks").views.markdown(report, {})
    lacking = ", without the outputs that have no verdict" if more else ""
    assert f"mean over the 1 of 3 cases that were answered{lacking}" in text


@pytest.mark.parametrize(
    ("verdict", "state", "reached", "collapse"),
    [
        ("holds", "good", "reached", "nowhere"),
        ("fails", "bad", "not reached", "found"),
        ("inconclusive", "doubtful", "cannot tell yet", "undecided"),
    ],
)
def test_the_page_opens_with_the_verdicts(whole: Whole, verdict: str, state: str, reached: str, collapse: str) -> None:
    """In a word and a colour: whether thresholds are reached, which is the run's own state, and what collapsed."""
    other = copy.deepcopy(whole.report)
    other["results"]["thresholds"]["verdict"] = other["results"]["diversity"]["verdict"] = verdict
    summary = page_summary(other)
    tiles = {tile.label: (tile.value, tile.state) for tile in summary.tiles}
    assert tiles["Thresholds"] == (reached, state)
    assert tiles["Collapse"] == (collapse, state)
    assert summary.state == state


def test_diversity_is_shown_case_by_case_and_by_tag(whole: Whole) -> None:
    """How a case is counted, its commonest kind, what it would take; and a mark on the page."""
    (row,), (tag,) = tables(whole.text, "Diversity")
    (entry,) = whole.results["diversity"]["by_case"]
    assert (row["Case"], row["By"], row["Verdict"], row["Answers"]) == ("plain", "text", "inconclusive", "12")
    assert figures(row["Commonest kind (95 %)"]) == of(entry["mode_share"])
    assert row["Texts → kinds"] == "2 → 2"
    assert figures(row["Answers to decide"]) == [entry["runs_to_decide"]]
    assert float(row["Effective kinds"]) == pytest.approx(entry["effective_modes"]["q1"], abs=0.00051)
    assert (tag["Tag"], tag["Cases"], tag["Collapsed"], tag["Effective kinds"]) == ("rest", "1", "0", "1.755")
    (mark,) = chart("Share of the commonest kind of answer", whole.report)
    share = entry["mode_share"]
    assert (mark.value, mark.low, mark.high, mark.state) == (share["value"], share["low"], share["high"], "doubtful")
    assert mark.note == f"inconclusive; 1.8 effective kinds; collapsed above {entry['collapse_share']:g}"


def test_long_lists_end_with_how_many_more_there_are(whole: Whole) -> None:
    """Cases, failures, faults and cases that do not reach their thresholds, as one file of them all would."""
    more = copy.deepcopy(whole.report)
    results = more["results"]
    results["by_case"] = [{**results["by_case"][0], "case": f"case {at}"} for at in range(51)]
    results["failures"] = [{**results["failures"][0], "line": at} for at in range(25)]
    results["outputs"]["failed"] = 30
    more["faults"] = [{"where": f"f:{at}", "reason": "odd"} for at in range(22)]
    results["thresholds"]["failed"] = [f"bad{at}" for at in range(12)]
    results["diversity"]["by_case"] *= 51
    results["diversity"]["collapsed"] = [{"case": f"mode{at}"} for at in range(12)]
    text = markdown(more, {})
    assert len(tables(text, "The 50 cases with the lowest pass rates")[0]) == 50
    failures = tables(text, "Outputs that failed")[0]
    assert (len(failures), failures[-1]["Why"]) == (21, "and 10 more in records.jsonl")
    faults = tables(text, "Faults in the input")[0]
    assert (len(faults), faults[-1]["Why"]) == (21, "and 2 more in report.json")
    assert re.findall(r"bad\d+", text) == [f"bad{at}" for at in range(10)]
    assert "The 50 cases nearest to collapse:" in text
    assert len(tables(text, "Diversity")[0]) == 50
    assert re.findall(r"mode\d+", text) == [f"mode{at}" for at in range(10)]
    results["by_case"] = results["by_case"][:50]
    more["faults"], results["outputs"]["failed"] = more["faults"][:20], 20
    exact = markdown(more, {})
    assert "## By case" in exact
    assert " more in " not in exact


def test_a_row_shows_what_fell_short_before_what_was_met(whole: Whole) -> None:
    """Each check with what it wanted, its parts under its name, and what people said."""
    see = VIEWS.rows.reader(whole.report)

    def evidence(identity: str) -> tuple[str, list[Evidence]]:
        for record in whole.records:
            row = see(msgspec.json.decode(record, type=VIEWS.rows.line))
            if row is not None and row.id == identity:
                return row.state, list(row.evidence())
        raise AssertionError(identity)

    state, found = evidence("plain#5")
    assert state == "bad"
    assert [(each.what, each.fine) for each in found] == [
        ("agrees", False),
        ("any › regex", False),
        ("max-latency", False),
        ("any", True),
        ("any › contains", True),
    ]
    assert (found[0].expected, found[0].came) == ('"yes"', "no")
    assert found[2].came == "the record has no latency_seconds"
    state, found = evidence("m1#0")
    assert state == "good"
    assert [(each.what, each.came, each.fine) for each in found if each.expected == "a label"] == [
        ("polite › people", "people say that it fails", False)
    ]
    assert "people say that it passes" in {each.came for each in evidence("m1#1")[1]}
    state, found = evidence("plain#90")
    assert (state, [(each.what, each.came) for each in found]) == ("bad", [("output", "no output: lost")])


def test_a_record_that_killed_its_worker_has_a_row_too(whole: Whole) -> None:
    """Its line says nothing of checks."""
    row = VIEWS.rows.reader(whole.report)(
        msgspec.json.decode(b'{"record":"f:1","status":"dead","reason":"lost"}', type=VIEWS.rows.line)
    )
    assert row is not None
    assert (row.state, row.cells) == ("bad", (None, None, None))
    assert row.evidence() == (Evidence("output", "an answer", "lost"),)


def test_the_time_to_the_first_token_has_a_row_where_it_is_known(whole: Whole, tmp_path: Path) -> None:
    """Quantiles of the answers that have one, in the report, its table and each record; nothing without any."""
    entry = whole.results["first_token_seconds"]
    assert (entry["count"], entry["max"]) == (12, 3.0)
    assert 1.4 < entry["p50"] < 1.8
    (row,) = (row for row in whole.table("What outputs took") if row[""] == "Seconds to the first token")
    assert (row["Outputs"], row["Most"]) == ("12", "3")
    (tile,) = (tile for tile in page_summary(whole.report).tiles if tile.label == "Median latency")
    assert tile.note.startswith("first token after 1.")
    records = [json.loads(record) for record in whole.records]
    assert sum("first_token_seconds" in record.get("took", {}) for record in records) == 12
    bare = evaluated(tmp_path, [line("c", 0)], params_of([{"id": "c", "checks": [{"contains": "yes"}]}])).report
    assert "first_token_seconds" not in bare["results"]
    assert "first token" not in markdown(bare, {})


def test_what_only_some_runs_have_can_be_demanded_of_any(whole: Whole, tmp_path: Path) -> None:
    """A policy may be about labels, judges, stopping or diversity before there is a run that has them."""
    bare = evaluated(tmp_path, [line("c", 0)], params_of([{"id": "c", "checks": [{"contains": "yes"}]}])).report
    only = set(whole.results) - set(bare["results"])
    assert only == set(plugins.get("checks").views.at_times)


def test_an_empty_text_is_left_out_of_a_record(whole: Whole) -> None:
    """What a check found, its error, its parts: a line has those that say something."""
    said = [check for record in map(json.loads, whole.records) for check in record["checks"]]
    assert any("error" in check for check in said)
    assert any("checks" in check for check in said)
    for check in said:
        assert "" not in check.values()
        assert check.get("checks") != []
        assert ("error" in check) is (check["passed"] is None)
        assert check.get("weight") != 1.0
