"""Run by the environment of tests/programs.sh: are manifests of custom kinds what their schemas say?

    .venv/checkers/bin/python tests/deploy/custom_resources.py MANIFESTS.yaml

Exits 1 with a line for each manifest that its kind's schema refuses, or that has a key its schema does not know.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from cloudcoil.models.keda.v1alpha1 import ScaledObject
from cloudcoil.models.prometheus_operator.v1 import ServiceMonitor

KINDS: dict[str, Any] = {"ScaledObject": ScaledObject, "ServiceMonitor": ServiceMonitor}


def main(file: str) -> int:
    """Check every manifest in a file; returns an exit code."""
    checked, faults = 0, []
    for manifest in yaml.safe_load_all(Path(file).read_text()):
        model = KINDS.get(manifest["kind"])
        if model is not None:
            checked += 1
            faults += [f"{manifest['kind']}: {fault}" for fault in _faults(model, manifest)]
    sys.stdout.write("".join(fault + "\n" for fault in faults) + f"{checked} checked\n")
    return 1 if faults else 0


def _faults(model: Any, manifest: dict[str, Any]) -> list[str]:
    try:
        known = model.model_validate(manifest).model_dump(mode="json", by_alias=True, exclude_unset=True)
    except ValueError as error:
        return [str(error)]
    # A key that the model did not know is not in what it gives back.
    return [] if known == manifest else [f"an unknown key: known is {known}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
