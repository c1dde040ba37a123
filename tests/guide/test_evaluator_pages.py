"""Each evaluator's page: what it shows runs, as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract import plugins
from tests.integration import preloaded
from tests.integration.harness import clean_environment

FOLDER = Path(__file__).parents[2] / "docs" / "reference" / "evaluators"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md"))
_BLOCK = re.compile(r"^```(sh|text|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_every_evaluator_that_comes_along_has_a_page() -> None:
    """One page a registered evaluator, those of the tests aside."""
    assert plugins.built_in() == PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_example_runs_and_shows_what_the_page_says(name: str, tmp_path: Path) -> None:
    """The page's commands end with 0 and print each line of its sample, then its Python runs in the same folder."""
    page = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    example = dict(_BLOCK.findall(page.partition("\n## Example\n")[2]))
    assert set(example) == {"sh", "text", "python"}
    environment = clean_environment()
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", example["sh"]], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for line in example["text"].splitlines():
        assert line in done.stdout
    for block in [body for kind, body in _BLOCK.findall(page) if kind == "python"]:
        with _python(block, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as ran:
            said = ran.communicate()[1]
        assert ran.returncode == 0, said


def _python(code: str, *, env: dict[str, str], **how: Any) -> subprocess.Popen[Any]:
    """Python with a page's code; it need not import evalq first."""
    if preloaded.startable(env, ""):
        return preloaded.Preloaded("command", [code], module="tests.guide.block", env=env, **how)
    return subprocess.Popen([sys.executable, "-c", code], env=env, **how)
