"""Recording rules and alerts: they ask for what exists, are tested both ways, and lead to a section that helps."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.grafana import checks
from tests.grafana.known import RULES, TOP, alerts, known, recordings
from tests.grafana.pages import PAGES
from tests.grafana.promql import Faulty, metrics, parsed, result_labels

TESTS = sorted((TOP / "deploy" / "prometheus" / "tests").glob("*.yml"))
RUNBOOKS = (TOP / "docs" / "runbooks.md").read_text(encoding="utf-8")
ALERTS = sorted(alerts())


def _installed(name: str, package: str) -> str:
    """A checker of Debian's ``package``; a skip where there is none, and in CI a failure."""
    found = shutil.which(name)
    if found is None:
        missing = f"{name} is not installed: sh tests/programs.sh (Debian's package {package})"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


@pytest.fixture(scope="session")
def promtool() -> str:
    """Prometheus' own checker."""
    return _installed("promtool", "prometheus")


@pytest.mark.parametrize(("severity", "receiver"), [("critical", "page"), ("warning", "morning"), ("info", "nobody")])
def test_alertmanager_sends_alerts_to_whom_they_concern(severity: str, receiver: str) -> None:
    """Alertmanager's own tool takes the file, and says whom an alert of each severity reaches."""
    amtool, file = _installed("amtool", "prometheus-alertmanager"), TOP / "deploy" / "prometheus" / "alertmanager.yml"
    done = run(amtool, "check-config", file)
    assert done.returncode == 0, done.stdout + done.stderr
    labels = ("alertname=EvalqLedgerDown", "ledger=redis:6379/0", f"severity={severity}")
    done = run(amtool, "config", "routes", "test", f"--config.file={file}", *labels)
    assert done.stdout.split() == [receiver], done.stderr


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """promtool's verdict. Made series are small: what collecting garbage takes is more than there is of it."""
    environment = os.environ | {"GOGC": "400"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_prometheus_takes_the_rules(promtool: str) -> None:
    """All files, and each of them has rules."""
    done = run(promtool, "check", "rules", *RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"SUCCESS: [1-9]\d* rules found", done.stdout)) == len(RULES) >= 4


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_alerts_fire_when_they_should_and_not_otherwise(file: Path, promtool: str) -> None:
    """promtool runs the rules on made series."""
    done = run(promtool, "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


@cache
def asked() -> list[dict[str, Any]]:
    """Each time that promtool's tests ask whether an alert fires."""
    tests = [test for file in TESTS for test in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]]
    return [each for test in tests for each in test.get("alert_rule_test", ())]


def tried(name: str) -> list[bool]:
    """Whether an alert is expected to fire, for each time that promtool's tests ask."""
    return [bool(each["exp_alerts"]) for each in asked() if each["alertname"] == name]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_tested_both_ways(name: str) -> None:
    """Firing at least once, and at least once not."""
    assert set(tried(name)) == {True, False}


WAYS = {
    # Without words, which are made anew each minute, and are what most of a test's time goes into.
    "always": {"expr": "vector(1)", "for": "0m", "annotations": {}},
    "never": {"expr": "vector(1) > 2"},
}


@pytest.mark.parametrize("home", [file for file in RULES if "alert:" in file.read_text()], ids=lambda file: file.stem)
@pytest.mark.parametrize("how", WAYS)
def test_alerts_that_always_or_never_fire_fail_their_tests(how: str, home: Path, tmp_path: Path, promtool: str) -> None:
    """The tests notice either, for each alert of a file: those that expect an alert, or none, do by that alone."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "rules" / "recording.yml").write_text("groups: []\n")  # those alerts ask for nothing that is recorded
    rules = yaml.safe_load(home.read_text(encoding="utf-8"))
    changed = [rule for group in rules["groups"] for rule in group["rules"]]
    for rule in changed:
        rule.update(WAYS[how])
    (tmp_path / "rules" / home.name).write_text(yaml.safe_dump(rules), encoding="utf-8")
    tests = yaml.safe_load((TOP / "deploy" / "prometheus" / "tests" / home.name).read_text(encoding="utf-8"))
    for test in tests["tests"]:
        message = test.get("alert_rule_test", [])
        test["alert_rule_test"] = [each for each in message if bool(each["exp_alerts"]) == (how == "never")]
    tests["tests"] = [test for test in tests["tests"] if test["alert_rule_test"]]
    (tmp_path / "tests" / home.name).write_text(yaml.safe_dump(tests), encoding="utf-8")
    done = run(promtool, "test", "rules", tmp_path / "tests" / home.name)
    failed = set(re.findall(r"alertname: (\w+), time", done.stdout + done.stderr))
    assert failed == {rule["alert"] for rule in changed}


def _of(ledger: str, series: str) -> str:
    """The series of promtool's notation, with a ledger's name among its labels."""
    name, brace, rest = series.partition("{")
    return f'{name}{{ledger="{ledger}"' + (f",{rest}" if brace else "}")


def _going_on(values: str) -> str:
    """The values, the last of them for two days more; one that went stale stays away."""
    last = re.findall(r"-?\d+(?:\.\d+)?|_|stale", re.sub(r"x\d+$", "", values.split()[-1]))[-1]
    return values if last in ("_", "stale") else f"{values} {last}x2880"


def _sick_beside_healthy(tests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each test in which an alert fires, with the series of each one in which it does not as another ledger's."""
    quiet: dict[str, list[dict[str, Any]]] = {}
    for test in tests:
        for each in test.get("alert_rule_test", ()):
            if not each["exp_alerts"]:
                quiet.setdefault(each["alertname"], []).append(test)
    for test in tests:
        for each in test.get("alert_rule_test", ()):
            own = any("ledger=" in one["series"] for one in test["input_series"])
            nothing = not any("evalq" in one["series"] for one in test["input_series"])  # there is no ledger to be sick
            if not each["exp_alerts"] or own or nothing:
                continue
            series = [{"series": _of("sick", one["series"]), "values": one["values"]} for one in test["input_series"]]
            for number, healthy in enumerate(quiet[each["alertname"]]):
                series += [
                    {"series": _of(f"healthy-{number}", one["series"]), "values": _going_on(one["values"])}
                    for one in healthy["input_series"]
                    if "ledger=" not in one["series"]
                ]
            fired = [{**one, "exp_labels": {**one["exp_labels"], "ledger": "sick"}} for one in each["exp_alerts"]]
            for one in fired:
                one.pop("exp_annotations", None)
            yield {"name": test["name"], "interval": test["interval"], "input_series": series} | {
                "alert_rule_test": [{**each, "exp_alerts": fired}]
            }


@pytest.mark.parametrize("file", [file for file in TESTS if file.stem != "recording"], ids=lambda file: file.stem)
def test_a_healthy_ledger_hides_no_sick_one(file: Path, tmp_path: Path, promtool: str) -> None:
    """Each alert fires, for the sick ledger alone, while one Prometheus watches healthy ones beside it."""
    rules = yaml.safe_load(file.read_text(encoding="utf-8"))
    tests = list(_sick_beside_healthy(rules["tests"]))
    for home in RULES:
        # Words say what they say with their tests; here it is about which ledger fires.
        message = yaml.safe_load(home.read_text(encoding="utf-8"))
        for rule in (rule for group in message["groups"] for rule in group["rules"]):
            rule.pop("annotations", None)
        (tmp_path / home.name).write_text(yaml.safe_dump(message), encoding="utf-8")
    rules |= {"rule_files": [str(tmp_path / Path(name).name) for name in rules["rule_files"]], "tests": tests}
    made = tmp_path / "test.yml"
    made.write_text(yaml.safe_dump(rules), encoding="utf-8")
    done = run(promtool, "test", "rules", made)
    # What is quiet in its own test only for a while fires here too, beside the sick one: that hides nothing.
    for fault in re.split(r"\n\s+name: ", done.stdout + done.stderr)[1:]:
        _, _, got = fault.partition("got:")
        assert 'ledger="sick"' in got, fault
    beside = [len({one["series"].split('"')[1] for one in test["input_series"]}) - 1 for test in tests]
    assert all(beside)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_is_wrong_and_what_to_do(name: str) -> None:
    """Severity, summary, description, and a runbook's section with meaning and what to do."""
    rule = alerts()[name]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    message = rule["annotations"]
    assert message["summary"]
    assert message["description"]
    assert message["runbook_url"] == f"docs/runbooks.md#{name.lower()}"
    section = RUNBOOKS.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
    assert "**Means.**" in section
    assert "**Do.**" in section


DEAD = 'evalq_records_dead_total{evaluator="vs",suite="%s"}'
HOURS = {
    "what came before is not in it": ({DEAD % "nightly": "2x20 5x120 6x60"}, {"nightly": 1}),
    "the first that ever came": ({DEAD % "nightly": "_x170 1x20"}, {"nightly": 1}),
    "the server was emptied, and counts from 0 again": ({DEAD % "nightly": "5x170 0x5 1x15"}, {"nightly": 1}),
    "nobody looked when the hour began": (
        {
            "evalq_workers_alive": "1x100 _x30 1x90",
            DEAD % "old": "2x100 _x30 2x90",
            DEAD % "nightly": "2x100 _x30 2x30 3x60",
        },
        {"nightly": 1},
    ),
}


@pytest.mark.parametrize("why", HOURS)
def test_what_is_counted_in_the_time_shown_came_in_it(why: str, tmp_path: Path, promtool: str) -> None:
    """The fleet's page: neither what is older, nor less because the exporter or the server began anew."""
    series, found = HOURS[why]
    shown = next(panel for panel in checks.panels(PAGES["evalq-fleet"]) if panel["title"] == "Dead letters")
    expr = shown["targets"][0]["expr"].replace("$__range", "1h").replace("$ledger", "a")
    seen = {_of("a", name): values for name, values in ({"evalq_workers_alive": "1x200"} | series).items()}
    # Another ledger, which is well, changes nothing.
    seen |= {_of("b", name): "1x200" for name in ("evalq_workers_alive", *series)}
    samples = [{"labels": f'{{suite="{suite}"}}', "value": value} for suite, value in found.items()]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in seen.items()],
        "promql_expr_test": [{"expr": expr, "eval_time": "180m", "exp_samples": samples}],
    }
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"tests": [test]}), encoding="utf-8")
    done = run(promtool, "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_section_is_about_an_alert() -> None:
    """No runbook outlives its alert."""
    assert sorted(re.findall(r"^### (\w+)$", RUNBOOKS, re.MULTILINE)) == ALERTS


def test_the_page_on_watching_lists_every_alert_as_it_is() -> None:
    """By name and severity, with a link to its section."""
    page = (TOP / "docs" / "monitoring.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\w+)\]\(runbooks\.md#(\w+)\) \| (\w+) \|", page, re.MULTILINE)
    rules = [(name, name.lower(), rule["labels"]["severity"]) for name, rule in alerts().items()]
    assert sorted(listed) == sorted(rules)


def test_runbooks_name_panels_and_pages_as_they_are() -> None:
    """What stands in italics is a title; who is woken up finds it under that name."""
    titles = {panel["title"] for page in PAGES.values() for panel in checks.panels(page)}
    titles |= {page["title"] for page in PAGES.values()}
    text = re.sub(r"\s+", " ", RUNBOOKS.replace("**", ""))
    assert set(re.findall(r"\*([^*]+)\*", text)) <= titles


@pytest.mark.parametrize("name", ALERTS)
def test_an_alerts_expression_and_words_name_what_exists(name: str) -> None:
    """Metrics and labels of the expression, and labels in its summary and description."""
    rule = alerts()[name]
    labels = result_labels(parsed(rule["expr"]), known()) or frozenset()
    message = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", message)) <= labels


def test_recordings_are_used() -> None:
    """Each is asked for by a page, an alert or another."""
    wanted = [expr for page in PAGES.values() for _, expr, _ in checks.expressions(page)]
    wanted += [rule["expr"] for rule in alerts().values()] + list(recordings().values())
    assert set(recordings()) <= set().union(*(metrics(parsed(expr)) for expr in wanted))


def test_an_alert_on_what_does_not_exist_is_noticed() -> None:
    """The checks above can fail."""
    with pytest.raises(Faulty, match="no metric evalq_workers_stack"):
        result_labels(parsed("max(evalq_workers_stack) > 0"), known())
    assert tried("EvalqNothing") == []
