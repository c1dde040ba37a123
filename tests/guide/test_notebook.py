"""The notebooks: each runs from its first cell to its last in a process of its own, and shows what its text says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.harness import clean_environment

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

_RUN = """
import ast, json, sys

shown, here = {}, {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] != "code":
        continue
    tree = ast.parse("".join(cell["source"]), cell["id"])
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, cell["id"], "exec"), here)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), cell["id"], "eval"), here)
        page = getattr(value, "_repr_html_", None)
        shown[cell["id"]] = {"text": repr(value), "html": page() if page else None}
print(json.dumps(shown))
"""
"""Cells in order in one namespace, the value of a last expression shown by its page: as a kernel does it."""


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(notebook: Path) -> None:
    """In the form of nbformat 4.5, so that a change of it is a change of its text."""
    read = json.loads(notebook.read_text(encoding="utf-8"))
    assert (read["nbformat"], read["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in read["cells"]}) == len(read["cells"])
    for cell in read["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == ([], None)


def test_two_runs_are_compared_as_the_notebook_says(tmp_path: Path) -> None:
    """The three cases that it breaks are found, and the gate says SUSPECT: worse, and perhaps within the margin."""
    command = [sys.executable, "-c", _RUN, str(FOLDER / "compare-two-runs.ipynb")]
    ran = subprocess.run(command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    shown = json.loads(ran.stdout)
    assert "<b>worse</b>" in shown["compare"]["html"]
    assert shown["named"]["text"] == "['case-11', 'case-03', 'case-20']"
    assert "case-03" in shown["flips"]["html"]
    assert "SUSPECT" in shown["gate"]["html"]
    assert shown["end"]["text"] == "('SUSPECT', 4)"
