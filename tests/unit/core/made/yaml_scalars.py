"""Fill yaml_scalars.json anew: what js-yaml 5 (core schema) and ruamel.yaml (1.2) read where ``k: SCALAR`` is written.

The scalars are those of the table; to try another one, add a row with it.

Usage: python yaml_scalars.py FOLDER, whose node_modules has js-yaml 5, with a Python that has ruamel.yaml.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main(folder: str) -> None:
    """Write the table."""
    from importlib.metadata import version

    from ruamel.yaml import YAML  # type: ignore[import-not-found]  # of the Python that makes the table

    def second(text: str) -> tuple[str, str]:
        reader: Any = YAML(typ="safe", pure=True)
        reader.version = (1, 2)
        try:
            value = reader.load(f"k: {text}\n")["k"]
        except Exception:  # anything at all is a refusal
            return "error", ""
        return shown(value)

    here = Path(__file__).parent
    table = here / "yaml_scalars.json"
    scalars = [row[0] for row in json.loads(table.read_text())["scalars"]]
    run = subprocess.run(
        ["node", here / "yaml_scalars.mjs"],
        input=json.dumps(scalars),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(run.stdout)
    rows = [[text, js, second(text)] for text, js in zip(scalars, said["said"], strict=True)]
    head = {"js-yaml": said["version"], "ruamel.yaml": version("ruamel.yaml")}
    lines = ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
    text = f'{{"versions": {json.dumps(head)}, "scalars": [\n{lines}\n]}}\n'
    table.write_text(text)


def shown(value: object) -> tuple[str, str]:
    """(kind, text) as the other program gives it."""
    if value is None:
        return "null", ""
    if isinstance(value, bool):
        return "boolean", str(value).lower()
    if isinstance(value, int | float):
        return "number", repr(float(value))
    return ("string" if isinstance(value, str) else type(value).__name__), str(value)


def same(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two programs read the same."""
    if one[0] != other[0]:
        return False
    if one[0] != "number":
        return one[1] == other[1]
    left, right = float(one[1].replace("Infinity", "inf")), float(other[1])
    return left == right or (left != left and right != right)


if __name__ == "__main__":
    main(sys.argv[1])
