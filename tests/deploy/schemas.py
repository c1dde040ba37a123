"""Run by the environment of tests/programs.sh: are manifests what their schemas say, custom kinds too?

    .venv/checkers/bin/python tests/deploy/schemas.py

Reads a version of Kubernetes and the name of a file from each line of standard input, and tells of it when it is read:
what kubernetes-validate says where it refuses the file, a line for each manifest of a custom kind that its schema
refuses, or that has a key its schema does not know, and then how many of those were checked. To import and read the
schemas takes three seconds, so that one process checks many files.
"""

from __future__ import annotations

import contextlib
import io
import sys
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from cloudcoil.models.keda.v1alpha1 import ScaledObject
from cloudcoil.models.prometheus_operator.v1 import PrometheusRule, ServiceMonitor
from cloudcoil.models.prometheus_operator.v1alpha1 import AlertmanagerConfig
from kubernetes_validate import utils

KINDS: dict[str, Any] = {
    "AlertmanagerConfig": AlertmanagerConfig,
    "PrometheusRule": PrometheusRule,
    "ScaledObject": ScaledObject,
    "ServiceMonitor": ServiceMonitor,
}


def main() -> None:
    """Check every manifest of each file, until there are no more."""
    utils.schema_contents = cache(utils.schema_contents)  # else it reads all of them again for every manifest
    for line in sys.stdin:
        version, _, file = line.strip().partition(" ")
        checked, faults = 0, _refused(file, version)
        for manifest in yaml.safe_load_all(Path(file).read_text()):
            model = KINDS.get(manifest["kind"])
            if model is not None:
                checked += 1
                faults += [f"{manifest['kind']}: {' '.join(fault.split())}" for fault in _faults(model, manifest)]
        sys.stdout.write("".join(fault + "\n" for fault in faults) + f"{checked} checked\n")
        sys.stdout.flush()


def _refused(file: str, version: str) -> list[str]:
    """What `kubernetes-validate --strict --quiet` prints, where it does not end with 0."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = utils.validate_file(file, version, strict=True, quiet=True, no_warn=False)
    return said.getvalue().splitlines() or [f"{file}: {code}"] if code else []


def _faults(model: Any, manifest: dict[str, Any]) -> list[str]:
    try:
        known = model.model_validate(manifest).model_dump(mode="json", by_alias=True, exclude_unset=True)
    except ValueError as error:
        return [str(error)]
    # A key that the model did not know is not in what it gives back.
    return [] if known == manifest else [f"an unknown key: known is {known}"]


if __name__ == "__main__":
    main()
