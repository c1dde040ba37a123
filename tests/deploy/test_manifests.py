"""The Kubernetes manifests: kustomize builds them, schemas accept them, and every name in them leads somewhere."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import KUBERNETES, Manifest, built, copied, faults, pods, refused
from tests.portions import some

VERSIONS = ("1.31", "1.37")
CUSTOM = ("PrometheusRule", "ScaledObject", "ServiceMonitor")


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """All manifests of the example overlay, which has every component."""
    return built(copied(tmp_path_factory.mktemp("example")) / "example")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_of_its_schema(example: list[Manifest], version: str, tmp_path: Path) -> None:
    """Strictly, for the oldest and the newest Kubernetes that are supported; KEDA's and the operator's kinds too."""
    assert refused(example, version, tmp_path) == ""
    kinds = {manifest["kind"] for manifest in example}
    assert {"StatefulSet", "Deployment", "CronJob", "NetworkPolicy", "PodDisruptionBudget", *CUSTOM} <= kinds


def test_pods_are_restricted_and_names_lead_somewhere(example: list[Manifest]) -> None:
    """No fault in any of five workloads; the namespace enforces the restricted profile."""
    assert faults(example) == []
    assert sorted(owner["metadata"]["name"] for owner, _ in pods(example)) == [
        "calls",
        "exporter",
        "redis",
        "suite",
        "worker",
    ]
    namespace = next(each for each in example if each["kind"] == "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_base_stands_by_itself(tmp_path: Path) -> None:
    """Built without components, it has no kind that a plain cluster does not know."""
    base = built(copied(tmp_path) / "base")
    assert {manifest["apiVersion"].partition("/")[0] for manifest in base} <= {
        "v1",
        "apps",
        "policy",
        "networking.k8s.io",
    }


def test_every_patch_has_something_to_change(example: list[Manifest]) -> None:
    """kustomize says nothing of a patch whose target is not there; this does."""
    found = 0
    for file in KUBERNETES.rglob("kustomization.yaml"):
        for patch in yaml.safe_load(file.read_text()).get("patches", []):
            target = patch["target"]
            if "name" not in target:  # all of a kind: tried below
                continue
            assert any((each["kind"], each["metadata"]["name"]) == (target["kind"], target["name"]) for each in example)
            found += 1
    assert found == 4
    cron = next(each for each in example if each["kind"] == "CronJob")
    assert cron["spec"]["schedule"] == "30 2 * * *"


def test_workers_of_the_version_before_are_all_that_an_upgrade_adds(example: list[Manifest], tmp_path: Path) -> None:
    """One Deployment and its secret, under names of their own: no second server behind the service, no second suite."""
    folder = copied(tmp_path)
    shutil.copytree(folder / "example" / "secrets", folder / "upgrade" / "secrets")
    before = built(folder / "upgrade")
    assert sorted(each["kind"] for each in before) == ["Deployment", "Secret"]
    kept = {(each["kind"], each["metadata"]["name"]) for each in example}
    assert not kept & {(each["kind"], each["metadata"]["name"]) for each in before}
    policies = [each for each in example if each["kind"] in ("NetworkPolicy", "PodDisruptionBudget")]
    assert faults([*before, *policies, *example]) == []
    old, new = (
        next(pod for owner, pod in pods(made) if owner["metadata"]["name"].startswith("worker"))
        for made in (before, example)
    )
    assert new["metadata"]["labels"].items() < old["metadata"]["labels"].items()


def test_a_command_of_a_runbook_has_a_pod(example: list[Manifest], tmp_path: Path) -> None:
    """A Job in which `resume` and its like find the suite's run folders, inputs and settings; it passes every check."""
    folder = copied(tmp_path)
    shutil.copytree(folder / "example" / "secrets", folder / "resume" / "secrets")
    once = built(folder / "resume")
    assert sorted(each["kind"] for each in once) == ["Job", "Secret"]
    assert refused(once, "1.31", tmp_path) == ""
    assert faults([*once, *example]) == []
    suite = next(pod for owner, pod in pods(example) if owner["kind"] == "CronJob")["spec"]
    pod = next(pod for owner, pod in pods(once))["spec"]
    mounts = [
        {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]} for spec in (suite, pod)
    ]
    assert mounts[1] == {name: path for name, path in mounts[0].items() if name != "suite"}
    claims = [{v["persistentVolumeClaim"]["claimName"] for v in s["volumes"] if "persistentVolumeClaim" in v}
              for s in (suite, pod)]  # fmt: skip
    assert claims[0] == claims[1]


def with_components(folder: Path, *names: str) -> list[Manifest]:
    """The example overlay with these components behind its own, and a Secret `alerts`."""
    copy = copied(folder)
    file = copy / "example" / "kustomization.yaml"
    overlay = yaml.safe_load(file.read_text())
    overlay["components"] += [f"../{name}" for name in names]
    addresses = ["url=http://pager.example/hook", "morning-url=http://channel.example/hook"]
    overlay["secretGenerator"].append({"name": "alerts", "literals": addresses})
    file.write_text(yaml.safe_dump(overlay))
    return built(copy / "example")


def test_openshift_may_choose_every_user_id(tmp_path: Path) -> None:
    """With its component no pod asks for a user or group, and all else is as restricted as without."""
    made = with_components(tmp_path, "openshift")
    contexts = [pod["spec"]["securityContext"] for _, pod in pods(made)]
    assert len(contexts) == 5
    restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert all(restricted.items() <= context.items() for context in contexts)
    assert not any({"runAsUser", "runAsGroup", "fsGroup"} & set(context) for context in contexts)
    assert {fault.partition(": ")[2] for fault in faults(made)} == {
        "it may run as root"
    }  # which its own range rules out
    assert refused(made, VERSIONS[-1], tmp_path) == ""


def test_critical_alerts_page_somebody(tmp_path: Path) -> None:
    """The operator's route has a receiver with an address for each severity that has to reach people."""
    made = with_components(tmp_path, "alerting")
    assert refused(made, VERSIONS[-1], tmp_path) == ""
    spec = next(each for each in made if each["kind"] == "AlertmanagerConfig")["spec"]
    ways = {each["name"]: each.get("webhookConfigs", []) for each in spec["receivers"]}
    reached = {route["matchers"][0]["value"]: ways[route["receiver"]] for route in spec["route"]["routes"]}
    assert set(reached) == {"critical", "warning"}
    secret = next(each for each in made if each["metadata"]["name"].startswith("alerts") and each["kind"] == "Secret")
    assert all(hook["urlSecret"]["key"] in secret["data"] for hooks in reached.values() for hook in hooks)
    assert all(reached.values())


def test_a_pod_that_its_node_gave_up_is_no_failure(example: list[Manifest]) -> None:
    """The first rule of the job's policy: what its node ended with whatever code is tried again."""
    cron = next(each for each in example if each["kind"] == "CronJob")
    rules = cron["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    assert [rule["action"] for rule in rules] == ["Ignore", "FailJob"]
    assert rules[0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]


def test_name_servers_of_all_kinds_are_reached(example: list[Manifest]) -> None:
    """That of the cluster, NodeLocal DNSCache on its address of the node, and OpenShift's on its own port."""
    closed = next(each for each in example if each["metadata"]["name"] == "closed")["spec"]["egress"]
    to = [(peer, {port["port"] for port in rule["ports"]}) for rule in closed for peer in rule["to"]]

    def named(name: str) -> dict[str, Any]:
        return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}

    assert (named("kube-system"), {53}) in to
    assert ({"ipBlock": {"cidr": "169.254.20.10/32"}}, {53}) in to
    assert (named("openshift-dns"), {5353}) in to


def test_a_fleet_is_scaled_for_its_own_work(example: list[Manifest]) -> None:
    """KEDA asks for the series of the ledger by the name that its exporter has."""
    spec = next(each for each in example if each["kind"] == "ScaledObject")["spec"]
    query = spec["triggers"][0]["metadata"]["query"]
    exporter = next(pod for owner, pod in pods(example) if owner["metadata"]["name"] == "exporter")
    settings = {each["name"]: each.get("value") for each in exporter["spec"]["containers"][0]["env"]}
    name = settings["EVALQ_LEDGER_NAME"].replace("$(NAMESPACE)", "evalq")
    assert query.count("evalq_") == query.count(f'{{ledger="{name}"') == 3


def test_work_that_is_not_known_is_not_none(example: list[Manifest]) -> None:
    """An exporter or a ledger that is away gives no number: KEDA is to fall back then, and not to take it for 0."""
    spec = next(each for each in example if each["kind"] == "ScaledObject")["spec"]
    assert [each["metadata"]["ignoreNullValues"] for each in spec["triggers"]] == ["false"]
    assert spec["fallback"]["replicas"] >= 2


@pytest.mark.parametrize(
    ("file", "good", "bad"),
    some(
        [
            ("base/kustomization.yaml", "  - ../worker\n", "  - ../worked\n"),
            ("worker/worker.yaml", "readinessProbe:", "readynessProbe:"),
            ("worker/worker.yaml", "maxUnavailable: 25%\n", "maxUnavailable: [1]\n"),
            ("worker/worker.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
            ("worker/worker.yaml", "runAsNonRoot: true", "runAsNonRoot: false"),
            ("worker/worker.yaml", "enableServiceLinks: false", "enableServiceLinks: true"),
            ("worker/worker.yaml", "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 10"),
            ("worker/worker.yaml", "secretName: worker", "secretName: workers"),
            ("worker/worker.yaml", "limits: {memory: 2Gi}", "limits: {}"),
            ("base/exporter.yaml", "path: /readyz, port: metrics", "path: /readyz, port: 80"),
            ("base/network.yaml", "component: exporter}", "component: exporters}"),
            ("base/network.yaml", "values: [worker, calls", "values: [workers, calls"),
            ("base/redis.yaml", "- {name: data, mountPath", "- {name: date, mountPath"),
            ("suite/suite.yaml", "startingDeadlineSeconds: 3600", "startingDeadlineSeconds: soon"),
            ("suite/suite.yaml", "claimName: data", "claimName: date"),
            ("keda/scaling.yaml", "name: worker}", "name: workers}"),
            ("keda/scaling.yaml", "pollingInterval:", "pollInterval:"),
            ("keda/kustomization.yaml", "op: remove", "op: drop"),
            ("prometheus-operator/monitor.yaml", "port: metrics", "port: metric"),
            ("prometheus-operator/monitor.yaml", "scrapeTimeout", "timeout"),
            ("example/kustomization.yaml", "newTag: 0.1.0", "newTag: latest"),
            ("example/kustomization.yaml", "secrets/users.acl", "secrets/user.acl"),
            ("example/kustomization.yaml", "path: /spec/schedule", "path: /spec/plan/at"),
        ],
        of=3,
    ),
)
def test_what_is_broken_is_found(file: str, good: str, bad: str, tmp_path: Path) -> None:
    """One mistake in a copy: kustomize refuses it, or a schema, or the rules find it."""
    folder = copied(tmp_path)
    text = (folder / file).read_text()
    assert good in text
    (folder / file).write_text(text.replace(good, bad, 1))
    try:
        manifests = built(folder / "example")
    except ValueError:
        return
    assert faults(manifests) or refused(manifests, VERSIONS[-1], tmp_path)
