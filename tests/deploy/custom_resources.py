"""Run by the environment of tests/programs.sh: are manifests of custom kinds what their schemas say?

    .venv/checkers/bin/python tests/deploy/custom_resources.py

Reads names of files from standard input, and tells of each when it is read: a line for each manifest that its kind's
schema refuses, or that has a key its schema does not know, and then how many were checked. To import the schemas takes
three seconds, so that one process checks many files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from cloudcoil.models.keda.v1alpha1 import ScaledObject
from cloudcoil.models.prometheus_operator.v1 import ServiceMonitor

KINDS: dict[str, Any] = {"ScaledObject": ScaledObject, "ServiceMonitor": ServiceMonitor}


def main() -> None:
    """Check every manifest of each file, until there are no more."""
    for file in sys.stdin:
        checked, faults = 0, []
        for manifest in yaml.safe_load_all(Path(file.strip()).read_text()):
            model = KINDS.get(manifest["kind"])
            if model is not None:
                checked += 1
                faults += [f"{manifest['kind']}: {' '.join(fault.split())}" for fault in _faults(model, manifest)]
        sys.stdout.write("".join(fault + "\n" for fault in faults) + f"{checked} checked\n")
        sys.stdout.flush()


def _faults(model: Any, manifest: dict[str, Any]) -> list[str]:
    try:
        known = model.model_validate(manifest).model_dump(mode="json", by_alias=True, exclude_unset=True)
    except ValueError as error:
        return [str(error)]
    # A key that the model did not know is not in what it gives back.
    return [] if known == manifest else [f"an unknown key: known is {known}"]


if __name__ == "__main__":
    main()
