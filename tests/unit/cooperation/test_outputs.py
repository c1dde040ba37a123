"""metrics.json, SUMMARY.md, report.json and the Markdown report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract.evaluator import Batch, Request, dead_outcome
from evalq.evalcore.errors import ConfigError, InputError, UsageError
from evalq.evalcore.evaluators.cooperation import MetricsResult, evaluator
from evalq.evalcore.evaluators.cooperation.params import CooperationParams
from evalq.evalcore.evaluators.cooperation.report import pretty_json
from evalq.evalcore.evaluators.cooperation.views import CHARTS, page_summary
from evalq.evalcore.fold import evaluate_files
from tests.unit.cooperation.logs import as_jsonl, run
from tests.unit.cooperation.test_metrics import SAMPLE

(COMMAND,) = evaluator.command.commands


def report(*paths: Path) -> dict[str, Any]:
    """The report on logs."""
    return evaluate_files(evaluator, list(paths)).report


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """An experiment's folder: configuration and metrics.json."""
    (tmp_path / "config.yaml").write_text("experiment: {name: vow, seed: 7, metrics_path: out/metrics.json}\n")
    (export,) = evaluator.views.exports(
        report(SAMPLE), Request([], {}, {"out": str(tmp_path / "out" / "metrics.json")})
    )
    export.path.parent.mkdir()
    export.path.write_text(export.text, encoding="utf-8")
    return tmp_path


def test_metrics_json_is_the_logs_entry(tmp_path: Path) -> None:
    """One log's entry, indented, with the text of any language as it is, and a newline at the end."""
    log = tmp_path / "events.jsonl"
    log.write_bytes(as_jsonl([{"turn": 1, "agent": "다나"}]))
    found = report(log)
    (export,) = evaluator.views.exports(found, Request([str(log)], {}, {"out": "m.json"}))
    assert export.path == Path("m.json")
    assert json.loads(export.text) == found["results"]["logs"]["events.jsonl"]
    assert '  "agents": [\n      "다나"' in export.text
    assert export.text.endswith("}\n")


@pytest.mark.parametrize(("dry_run", "told"), [(True, "yes"), (False, "no"), (None, "not known")])
def test_the_markdown_tells_a_dry_run(tmp_path: Path, dry_run: bool | None, told: str) -> None:
    """Where the log says whether it was one."""
    log = tmp_path / "events.jsonl"
    log.write_bytes(as_jsonl([{"turn": 1, "agent": "a", "dry_run": dry_run}]))
    assert f"| Dry run | {told} |" in evaluator.views.markdown(report(log), {})


def test_nothing_is_exported_unasked_and_many_logs_never(tmp_path: Path) -> None:
    """Without a file's name there is no metrics.json; a file for one log cannot take two."""
    other = tmp_path / "other.jsonl"
    other.write_bytes(SAMPLE.read_bytes())
    both = report(SAMPLE, other)
    assert evaluator.views.exports(both, Request([], {}, {"out": None})) == []
    assert evaluator.views.exports(both, Request([], {}, {})) == []
    with pytest.raises(UsageError, match=r"^m\.json takes the metrics of one log, but there are 2$"):
        evaluator.views.exports(both, Request([], {}, {"out": "m.json"}))


def test_cooperation_report_writes_both_files_beside_the_metrics(experiment: Path) -> None:
    """SUMMARY.md has every metric; report.json has the metrics, a row an agent, and the experiment."""
    said = COMMAND.call({"config": str(experiment / "config.yaml"), "metrics": None, "summary": None, "report": None})
    out = experiment / "out"
    assert sorted(path.name for path in out.iterdir()) == ["SUMMARY.md", "metrics.json", "report.json"]
    assert said == f"wrote {out / 'SUMMARY.md'} and {out / 'report.json'} from {out / 'metrics.json'}"
    summary = (out / "SUMMARY.md").read_text(encoding="utf-8")
    assert summary.startswith("# Cooperation metrics: vow\n")
    assert "| Cooperation rate | 0.4375 |" in summary
    assert "| Average recovery time (turns) | 2.0000 |" in summary
    assert "| mina | 5 | 31.2% | 8.0 | 54.2% |" in summary
    tables = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert tables["experiment"] == {"name": "vow", "seed": 7, "dry_run": True}
    assert tables["metrics"]["average_contribution"] == 2.95
    assert [row["agent"] for row in tables["agents"]] == ["joon", "mina", "sora"]
    assert tables["agents"][2]["contribution"] == 2.75
    assert tables["agents"][1]["messages"] == 5
    columns = {"agent", "messages", "message_share", "contribution", "contribution_share"}
    assert all(set(row) == columns for row in tables["agents"])
    assert sum(row["message_share"] for row in tables["agents"]) == pytest.approx(1)
    assert tables["metadata"]["total_turns"] == 6


def test_cooperation_report_takes_other_paths_from_options_and_configuration(experiment: Path) -> None:
    """An option comes before the configuration, and that before the folder of metrics.json."""
    config = experiment / "config.yaml"
    config.write_text("experiment: {metrics_path: none.json, summary_path: doc/S.md, report_path: doc/r.json}\n")
    second = experiment / "new" / "and" / "deep" / "r2.json"
    COMMAND.call({"config": str(config), "metrics": str(experiment / "out/metrics.json"), "report": str(second)})
    assert (experiment / "doc/S.md").read_text(encoding="utf-8").startswith("# Cooperation metrics: out\n")
    assert second.exists()
    assert not (experiment / "doc/r.json").exists()


def test_cooperation_report_without_metrics_says_what_to_run(experiment: Path) -> None:
    """Missing metrics name the command that makes them; damaged ones the file; no configuration is a usage error."""
    config = str(experiment / "config.yaml")
    metrics = experiment / "out" / "metrics.json"
    for text, part in (("{", "not a metrics.json"), ("{}", "cooperation_rate"), ('{"cooperation_rate": "x"}', "float")):
        metrics.write_text(text)
        with pytest.raises(InputError, match=part):
            COMMAND.call({"config": config})
    metrics.unlink()
    with pytest.raises(
        InputError, match=rf"(?s)^no metrics to report on.*run `evalq cooperation --config {config}` first"
    ):
        COMMAND.call({"config": config})
    with pytest.raises(UsageError, match="--config"):
        COMMAND.call({})
    with pytest.raises(ConfigError, match="cannot be read"):
        COMMAND.call({"config": "nowhere.yaml"})


def test_the_markdown_report_has_a_section_a_log(tmp_path: Path) -> None:
    """Tables by log, readable when names hold bars, and words where there is no number."""
    other = tmp_path / "other.jsonl"
    other.write_bytes(as_jsonl([{"turn": 2, "agent": "a|b\n<c"}, {"turn": 1, "agent": "d"}]))
    text = evaluator.views.markdown(report(SAMPLE, other), {})
    first, _, rest = text.partition("\n")
    assert first.startswith("# Cooperation metrics: no decision in other.jsonl is a word of the rules")
    assert rest.startswith("\n## events.sample.jsonl\n")
    assert "## other.jsonl\n" in text
    assert "| Average recovery time (turns) | no recovery |" in text
    assert "| Rows | sorted by turn first |" in text
    assert "| a\\|b &lt;c | 1 | 50.0% | 0.0 | 0.0% |" in text
    assert text.endswith("|\n")


def test_the_page_of_several_logs_begins_with_all_their_events(tmp_path: Path) -> None:
    """And each log has its mark on every chart of what it has."""
    logs = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, turns in zip(logs, (3, 4), strict=True):
        path.write_bytes(as_jsonl([{"turn": turn, "agent": "x"} for turn in range(turns)]))
    found = report(*logs)
    assert page_summary(found).headline == "2 logs of 7 events"
    assert not page_summary(found).tiles
    labels = {mark.label.partition(" · ")[0] for chart in CHARTS for mark in chart.marks(found)}
    assert labels == {"a.jsonl", "b.jsonl"}


def test_agents_are_drawn_with_their_shares_where_there_is_anything_to_share(tmp_path: Path) -> None:
    """Of three events one is a's and two are b's; nobody contributed, so that there is no share."""
    log = tmp_path / "a.jsonl"
    log.write_bytes(as_jsonl([{"turn": turn, "agent": agent} for turn, agent in enumerate("abb")]))
    found = report(log)
    drawn = {chart.title: [(mark.label, mark.value, mark.note) for mark in chart.marks(found)] for chart in CHARTS}
    assert drawn["Messages by agent"] == [("b", 2, "66.7 %"), ("a", 1, "33.3 %")]
    assert drawn["Contributions by agent"] == [("a", 0.0, ""), ("b", 0.0, "")]


def test_the_page_of_one_log_begins_with_its_measures(tmp_path: Path) -> None:
    """An agent that betrays in turn 1 and cooperates again in turn 4 recovers in 3; skipped lines raise a doubt."""
    log = tmp_path / "a.jsonl"
    decisions = {0: "cooperate", 1: "betray", 4: "cooperate"}
    events = as_jsonl([{"turn": turn, "agent": "x", "decision": decision} for turn, decision in decisions.items()])
    found = {}
    for skipped in (b"", b"not an event\n"):
        log.write_bytes(events + skipped)
        summary = page_summary(evaluate_files(evaluator, [log], {"skip_bad_lines": bool(skipped)}).report)
        assert summary.headline == "66.7 % of 3 events are cooperative"
        found[skipped] = {tile.label: (tile.value, tile.note, tile.state) for tile in summary.tiles}
    assert found[b""] == {
        "Cooperation rate": ("66.7 %", "", "none"),
        "Average contribution": ("0", "a drop", "none"),
        "Average recovery": ("3.00", "turns", "none"),
        "Gini coefficient": ("0", "0 is equal", "none"),
        "Dialogue entropy": ("0 bits", "", "none"),
        "Lines skipped": ("0", "", "none"),
    }
    assert found[b"not an event\n"] == found[b""] | {"Lines skipped": ("1", "", "doubtful")}
    log.write_bytes(as_jsonl([{"turn": 0, "agent": "x", "decision": "cooperate"}]))
    values = {tile.label: tile.value for tile in page_summary(report(log)).tiles}
    assert values["Average recovery"] == "none"


@pytest.mark.parametrize("skip", [True, False])
def test_a_line_that_kills_is_a_bad_line(skip: bool) -> None:
    """Listed where bad lines are skipped, else fatal; and its events are missing."""
    params = CooperationParams(skip_bad_lines=skip)
    batch = Batch("a.jsonl", 7, b'{"turn": 1, "agent": "x"}\n')
    found = dead_outcome(evaluator, batch, params, "killed 3 times")
    listed = found.tally.listed if skip else found.tally.fatal
    assert listed.first == [(7, "dead: killed 3 times")]
    assert found.tally.listed.total + found.tally.fatal.total == 1
    assert found.state.missing == [7]


def test_a_metrics_result_reads_back_from_its_own_dict() -> None:
    """to_dict holds every field by its name."""
    (line,) = run(SAMPLE.read_bytes()).records()
    fields = {key: line[key] for key in MetricsResult.__dataclass_fields__}
    assert MetricsResult(**fields).to_dict() == fields


def test_pretty_json_keeps_what_utf_8_cannot_carry_escaped() -> None:
    """One form: sorted, indented, letters as they are, and half a pair of surrogates as its escape."""
    assert pretty_json({"b": "말", "a": "\ud800"}) == '{\n  "a": "\\ud800",\n  "b": "말"\n}\n'
