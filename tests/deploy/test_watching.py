"""What Prometheus and Grafana are configured with: promtool accepts it, and what it names is given by the stack."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.composed import composed
from tests.deploy.programs import TOP, program, run

PROMETHEUS = TOP / "deploy" / "prometheus" / "prometheus.yml"
PROVISIONING = TOP / "grafana" / "provisioning"


def test_promtool_accepts_the_configuration() -> None:
    """With the rules beside it."""
    done = run(program("promtool"), "check", "config", PROMETHEUS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("scrape_interval: 10s", "scrape_interval: often"),
        ("job_name:", "jobname:"),
        ("targets: [exporter:9808]", "targets: exporter:9808"),
        ("rules/*.yml", "rules/none.yml"),
    ],
)
def test_promtool_finds_what_is_broken(good: str, bad: str, tmp_path: Path) -> None:
    """One mistake in a copy is refused."""
    text = PROMETHEUS.read_text()
    assert good in text
    (tmp_path / "prometheus.yml").write_text(text.replace(good, bad, 1))
    assert run(program("promtool"), "check", "config", tmp_path / "prometheus.yml").returncode != 0


def test_prometheus_scrapes_services_and_ports_that_the_stack_has() -> None:
    """The exporter by its name and the port of its command."""
    services = composed()["services"]
    jobs = {job["job_name"]: job for job in yaml.safe_load(PROMETHEUS.read_text())["scrape_configs"]}
    name, _, port = jobs["evalq"]["static_configs"][0]["targets"][0].partition(":")
    assert port == services[name]["command"][services[name]["command"].index("--port") + 1]
    assert set(services[name]["networks"]) & set(services["prometheus"]["networks"])


def test_grafana_is_given_what_its_provisioning_names() -> None:
    """Each variable in the files is set, and each folder that one names is mounted."""
    grafana = composed()["services"]["grafana"]
    files = list(PROVISIONING.rglob("*.yaml"))
    named = {name for file in files for name in re.findall(r"\$(\w+)", file.read_text())}
    assert len(files) >= 2
    assert named == {"EVALQ_PROMETHEUS", "EVALQ_DASHBOARDS"}
    assert named <= set(grafana["environment"])
    sources = [each for file in files for each in yaml.safe_load(file.read_text()).get("datasources", [])]
    assert [each["uid"] for each in sources if each["isDefault"]] == ["evalq-prometheus"]
    mounts = {mount["target"] for mount in grafana["volumes"]}
    assert {grafana["environment"][name] for name in ("EVALQ_DASHBOARDS", "GF_PATHS_PROVISIONING")} <= mounts
    host = grafana["environment"]["EVALQ_PROMETHEUS"].removeprefix("http://").partition(":")[0]
    assert set(composed()["services"][host]["networks"]) & set(grafana["networks"])
