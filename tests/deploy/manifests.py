"""The Kubernetes manifests as kustomize builds them, and what each of them has to have."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.programs import TOP, program, run

KUBERNETES = TOP / "deploy" / "kubernetes"
Manifest = dict[str, Any]
_KEPT = ("Deployment", "StatefulSet")


def copied(folder: Path) -> Path:
    """A copy of deploy/ with secrets made for the example overlay; returns the copy's `kubernetes`."""
    parts = ("kubernetes", "redis", "secrets.sh")
    for part in parts:
        source, target = TOP / "deploy" / part, folder / "deploy" / part
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("secrets"))
        else:
            shutil.copy(source, target)
    made = run("sh", folder / "deploy" / "secrets.sh", folder / "deploy" / "kubernetes" / "example" / "secrets")
    assert made.returncode == 0, made.stderr
    return folder / "deploy" / "kubernetes"


def built(folder: Path) -> list[Manifest]:
    """What `kubectl kustomize` makes of a folder. Raises ValueError with its complaint."""
    done = run(program("kubectl"), "kustomize", folder)
    if done.returncode != 0 or done.stderr:
        raise ValueError(done.stderr)
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def refused(manifests: list[Manifest], version: str, folder: Path) -> str:
    """What the schemas of a Kubernetes version, and those of custom kinds, say against manifests; empty: nothing."""
    file = folder / "manifests.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    checker = _checker()
    assert checker.stdin is not None
    assert checker.stdout is not None
    checker.stdin.write(f"{version} {file}\n")
    checker.stdin.flush()
    said = ""
    for line in checker.stdout:
        if re.fullmatch(r"\d+ checked\n", line):
            return said
        said += line
    raise AssertionError("schemas.py has ended")


@cache
def _checker() -> subprocess.Popen[str]:
    """It ends with this process, when its standard input does."""
    python = Path(program("kubernetes-validate")).with_name("python")
    words = [python, TOP / "tests" / "deploy" / "schemas.py"]
    return subprocess.Popen(words, cwd=TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def pods(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Mapping[str, Any]]]:
    """Each workload with the template of its pods."""
    for manifest in manifests:
        spec = manifest.get("spec", {})
        job = spec.get("jobTemplate", {}).get("spec", {})
        template = job.get("template") or spec.get("template")
        if template:
            yield manifest, template


def faults(manifests: list[Manifest]) -> list[str]:
    """What is open, unbounded, unwatched, or names something that is not there."""
    found = [f"{_name(owner)}: {fault}" for owner, pod in pods(manifests) for fault in _of_pod(owner, pod, manifests)]
    return found + [f"{_name(each)}: {fault}" for each in manifests for fault in _of_other(each, manifests)]


def _of_pod(owner: Manifest, pod: Mapping[str, Any], manifests: list[Manifest]) -> Iterator[str]:
    spec = pod["spec"]
    context = spec.get("securityContext", {})
    if not context.get("runAsNonRoot") or context.get("runAsUser", 0) < 1:
        yield "it may run as root"
    if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "it has no seccomp profile"
    if spec.get("automountServiceAccountToken") is not False:
        yield "it gets a token of the cluster"
    if spec.get("enableServiceLinks") is not False:
        yield "names of services become its settings"
    for container in spec["containers"]:
        yield from _of_container(container, owner["kind"] in _KEPT)
        settings = {each["name"]: each.get("value") for each in container.get("env", [])}
        soft = float(settings.get("EVALQ_SOFT_SHUTDOWN_SECONDS") or 0)
        if spec.get("terminationGracePeriodSeconds", 0) < soft + 10:
            yield f"it is killed before its soft shutdown of {soft:.0f} s is over"
        mounted = {volume["name"] for volume in spec.get("volumes", [])}
        mounted |= {claim["metadata"]["name"] for claim in owner["spec"].get("volumeClaimTemplates", [])}
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in mounted:
                yield f"volume {mount['name']} is not there"
    for kind, name in _referred(spec):
        if not any(each["kind"] == kind and _name(each) == name for each in manifests):
            yield f"{kind} {name} is not there"


def _of_container(container: Manifest, kept: bool) -> Iterator[str]:
    context = container.get("securityContext", {})
    if context.get("allowPrivilegeEscalation") is not False or context.get("capabilities") != {"drop": ["ALL"]}:
        yield "it keeps privileges"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "its root file system can be written to"
    resources = container.get("resources", {})
    if "memory" not in resources.get("limits", {}) or not {"cpu", "memory"} <= set(resources.get("requests", {})):
        yield "its resources have no bound"
    if kept and not {"readinessProbe", "livenessProbe"} <= set(container):
        yield "nothing probes it"
    if not re.search(r":[\w.-]+$", container["image"]) or container["image"].endswith(":latest"):
        yield "its image has no version"
    names = {port["name"] for port in container.get("ports", [])}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        for how in ("httpGet", "tcpSocket"):
            port = container.get(probe, {}).get(how, {}).get("port")
            if port is not None and port not in names:
                yield f"its {probe} asks port {port}, which is not there"


def _referred(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for volume in spec.get("volumes", []):
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"]
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
    for container in spec["containers"]:
        for source in container.get("envFrom", []):
            if not source.get("secretRef", {}).get("optional"):
                yield "Secret", source["secretRef"]["name"]


def _of_other(manifest: Manifest, manifests: list[Manifest]) -> Iterator[str]:
    labels = [pod["metadata"]["labels"] for _, pod in pods(manifests)]
    spec = manifest.get("spec", {})
    selector = {
        "Service": {"matchLabels": spec.get("selector")},
        "PodDisruptionBudget": spec.get("selector"),
        "NetworkPolicy": spec.get("podSelector"),
    }.get(manifest["kind"])
    if selector is not None and not any(_selects(selector, each) for each in labels):
        yield "it selects no pod"
    peers = [peer for rule in spec.get("ingress", []) for peer in rule.get("from", [])]
    peers += [peer for rule in spec.get("egress", []) for peer in rule.get("to", [])]
    for value in [
        value for each in [selector, *(peer.get("podSelector") for peer in peers)] for value in _values(each)
    ]:
        if not any(value in label.values() for label in labels):
            yield f"it selects {value}, which is not there"
    if manifest["kind"] == "ScaledObject":
        target = [
            each for each in manifests if each["kind"] == "Deployment" and _name(each) == spec["scaleTargetRef"]["name"]
        ]
        if not target or "replicas" in target[0]["spec"]:
            yield "what it scales is not there, or says its own number"
    if manifest["kind"] == "ServiceMonitor":
        services = [each for each in manifests if each["kind"] == "Service"]
        watched = [each for each in services if _selects(spec["selector"], each["metadata"].get("labels", {}))]
        ports = {port["name"] for each in watched for port in each["spec"]["ports"]}
        if not {endpoint["port"] for endpoint in spec["endpoints"]} <= ports:
            yield "it watches a port that no service has"


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    exact = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return exact and all(labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions") or [])


def _values(selector: Mapping[str, Any] | None) -> list[str]:
    exact = [*(selector or {}).get("matchLabels", {}).values()]
    return exact + [value for each in (selector or {}).get("matchExpressions", []) for value in each["values"]]


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])
