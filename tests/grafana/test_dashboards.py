"""The committed dashboards ask for what exists, say what they show, and are what the generator makes."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from evalq.evalcore.contract import plugins
from grafana import generate
from grafana.page import DATASOURCE_UID, draw
from grafana.pages import pages
from tests.grafana import checks
from tests.grafana.known import TOP, alerts, exported, known, recordings
from tests.grafana.pages import PAGES
from tests.grafana.promql import metrics, parsed
from tests.grafana.shape import faults

UIDS = sorted(PAGES)

SPARED: dict[str, str] = {}
"""Exported metrics that no page, rule or alert asks for, and why."""


def rule_expressions() -> list[str]:
    """Of recording rules and alerts."""
    return [*recordings().values(), *(rule["expr"] for rule in alerts().values())]


def test_there_is_a_page_for_each_evaluator_and_four_more() -> None:
    """Overview, production traces, fleet and run detail; a new evaluator has its page without more code."""
    own = {f"evalq-{name}" for name in (*plugins.names(), "overview", "traces", "fleet", "run")}
    assert set(PAGES) == own


@pytest.mark.parametrize("uid", UIDS)
def test_every_query_can_be_answered(uid: str) -> None:
    """It parses, its metrics and labels exist, its sides can match, and its variables are offered."""
    assert list(checks.queries(PAGES[uid], known())) == []


@pytest.mark.parametrize("uid", UIDS)
def test_panels_say_what_they_show(uid: str) -> None:
    """Title, description and unit."""
    assert list(checks.told(PAGES[uid])) == []


@pytest.mark.parametrize("uid", UIDS)
def test_nothing_is_good_because_nobody_answers(uid: str) -> None:
    """A number that stands in for a missing one is bad: without evalq's rules there are no alerts either."""
    for panel in checks.panels(PAGES[uid]):
        if any("or vector(0)" in target["expr"] for target in panel.get("targets", ())):
            steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            assert [step["color"] for step in steps if (step["value"] or 0) <= 0][-1] == "red", panel["title"]


@pytest.mark.parametrize("uid", UIDS)
def test_no_panel_lies_on_another(uid: str) -> None:
    """Nor beside the grid."""
    assert list(checks.grid(PAGES[uid])) == []


@pytest.mark.parametrize("uid", UIDS)
def test_links_lead_to_pages_that_exist(uid: str) -> None:
    """From the top, from panels and from series; and every page is linked from every other."""
    assert list(checks.links(PAGES[uid], PAGES)) == []
    assert {link["url"] for link in PAGES[uid]["links"]} == {f"/d/{other}" for other in UIDS if other != uid}


@pytest.mark.parametrize("uid", UIDS)
def test_runs_that_ended_and_alerts_are_marked(uid: str) -> None:
    """The metric's value is the time of the mark, in milliseconds."""
    ended, fired = PAGES[uid]["annotations"]["list"]
    assert ended["useValueForTime"]
    assert "evalq_last_run_timestamp_seconds" in ended["expr"]
    assert ended["expr"].endswith("* 1000")
    assert metrics(parsed(fired["expr"])) == {"ALERTS"}


@pytest.mark.parametrize("uid", UIDS)
def test_every_variable_offers_all(uid: str) -> None:
    """A page shows everything of one ledger before anybody chooses; one variable is the data source."""
    source, ledger, *others = PAGES[uid]["templating"]["list"]
    assert (ledger["name"], ledger.get("multi"), ledger.get("includeAll")) == ("ledger", False, False)
    if uid.removeprefix("evalq-") in (*plugins.names(), "traces"):  # numbers of several suites are true of none
        suite, *others = others
        assert (suite["name"], suite["multi"], suite["includeAll"]) == ("suite", True, False)
    assert (source["type"], source["current"]["value"]) == ("datasource", DATASOURCE_UID)
    assert all(each["includeAll"] and each["allValue"] == ".*" and each["multi"] for each in others)
    assert all(each["current"]["value"] == ["$__all"] for each in others)


ALL_LEDGERS = {"panel 'Ledgers answer'", "panel 'Alerts that fire'", "annotation 'Alerts'", "variable 'ledger'"}


@pytest.mark.parametrize("uid", PAGES)
def test_panels_show_one_ledger(uid: str) -> None:
    """Each series that a page asks for is held to the chosen ledger, but for what says which ledgers there are."""
    for where, expr, _ in checks.expressions(PAGES[uid]):
        asked = len(re.findall(r"\bevalq(?:_|:\w+:)\w+", expr))
        held = len(re.findall(r"\bevalq(?:_|:\w+:)\w+\{ledger=\"\$ledger\"", expr))
        assert (asked > held) == (where in ALL_LEDGERS and bool(asked)), (where, expr)
        assert held in (0, asked)


def test_every_metric_is_shown_somewhere_or_spared() -> None:
    """What is exported is looked at; what is not has a reason."""
    asked = [expr for page in PAGES.values() for _, expr, _ in checks.expressions(page)] + rule_expressions()
    used = set().union(*(metrics(parsed(expr)) for expr in asked))
    assert list(checks.unused(exported(), used, SPARED)) == []


def test_the_generator_reports_when_a_file_differs() -> None:
    """--check passes on the committed files; the test below is its failing half."""
    done = subprocess.run([sys.executable, "grafana/generate.py", "--check"], cwd=TOP, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("change", ["edited", "missing", "foreign"])
def test_a_file_that_is_not_the_generators_fails_the_check(
    change: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed byte, a missing file, and a file that nobody makes."""
    monkeypatch.setattr(generate, "DASHBOARDS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["generate.py"])
    assert generate.main() == 0
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    assert generate.main() == 0
    victim = tmp_path / ("foreign.json" if change == "foreign" else "vs.json")
    if change == "missing":
        victim.unlink()
    else:
        victim.write_text("{}\n", encoding="utf-8")
    assert generate.main() == 1
    assert victim.name in capsys.readouterr().err


def decoded(page: dict[str, Any]) -> Any:
    """A page read into the SDK's models and written again. Reading puts links and marks into a menu: not so here."""
    register_default_plugins()

    def visible(part: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in part.items() if (key, value) != ("placement", "inControlsMenu")}

    written = JSONEncoder().encode(Dashboard.from_json(copy.deepcopy(page)))
    return json.loads(written, object_hook=visible)


@pytest.mark.parametrize("uid", UIDS)
def test_the_sdks_schema_knows_everything_that_a_page_says(uid: str) -> None:
    """Read into its models and written again, nothing is lost: no key is misspelled or at the wrong place."""
    assert decoded(PAGES[uid]) == PAGES[uid]


def test_a_key_that_the_schema_does_not_know_is_noticed() -> None:
    """The test above can fail: in the page, in a panel's options, in its field options, in a query."""
    places: tuple[Callable[[Any], Any], ...] = (
        lambda page: page,
        lambda page: page["panels"][1]["options"],
        lambda page: page["panels"][1]["fieldConfig"]["defaults"],
        lambda page: page["panels"][1]["targets"][0],
    )
    for place in places:
        broken = copy.deepcopy(PAGES["evalq-fleet"])
        place(broken)["colour"] = "red"
        assert decoded(broken) != broken


def test_values_are_of_the_types_that_the_schema_declares() -> None:
    """All the way down from each page; and a number in place of a text is noticed."""
    made = pages()
    for page in made:
        found = list(faults(draw(page, made)))
        assert [each for each in found if "placement: None" not in each] == []  # see grafana.draw.Link
    broken = draw(made[0], made)
    assert broken.panels is not None
    broken.panels[1].title = 3  # type: ignore[assignment]  # what is to be noticed
    assert "dashboard.panels[1].title: 3 is no typing.Optional[str]" in faults(broken)


def test_provisioning_names_the_data_source_that_pages_choose() -> None:
    """Its uid, its type, and the folder that compose mounts."""
    folder = TOP / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "evalq.yaml").read_text(encoding="utf-8"))["datasources"]
    assert (source["uid"], source["type"]) == (DATASOURCE_UID, "prometheus")
    (provider,) = yaml.safe_load((folder / "dashboards" / "evalq.yaml").read_text(encoding="utf-8"))["providers"]
    assert provider["type"] == "file"
    assert provider["options"]["path"] == "$EVALQ_DASHBOARDS"
