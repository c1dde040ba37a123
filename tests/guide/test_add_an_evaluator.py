"""The page on adding an evaluator, followed word for word."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.harness import EVALQ, clean_environment

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-an-evaluator.md"


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's package, installed into a folder `site` of its own so that this environment stays as it is."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "pyproject.toml").write_text(_blocks("toml")[0])
    (folder / "evalq_lengths.py").write_text(_blocks("python")[0])
    (folder / "answers.jsonl").write_text(_blocks("json")[0])
    (folder / "test_lengths.py").write_text(_blocks("python")[1])
    assert _blocks("sh")[0].strip() == "pip install ."
    command = [sys.executable, "-m", "pip", "install", "-q", ".", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", "site"], cwd=folder, check=True)
    return folder


def _shell(package: Path, *words: str) -> subprocess.CompletedProcess[str]:
    top = Path(__file__).parents[2]
    environment = clean_environment(PYTHONPATH=f"{package / 'site'}:{top}")
    return subprocess.run(words, cwd=package, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def furnished(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with what the page's last part adds: its imports on top, its values behind the state."""
    folder = tmp_path_factory.mktemp("furnished") / "package"
    shutil.copytree(package, folder)
    imports, _, values = _blocks("python")[2].partition("\n\n")
    for module in (folder / "evalq_lengths.py", folder / "site" / "evalq_lengths.py"):  # `python -m` sees the first
        lines = module.read_text().replace("import msgspec\n", f"import msgspec\n\n{imports}\n", 1)
        lines = lines.replace("    State = Lengths\n", f"    State = Lengths\n{values}", 1)
        lines = lines.replace("class LengthEvaluator", f"{_blocks('python')[3]}\n\nclass LengthEvaluator", 1)
        module.write_text(lines.replace("Views(\n", "Views(summary=page_summary, charts=charts, rows=rows,\n", 1))
    return folder


@pytest.mark.parametrize("how", [("--inline",), ("--workers", "2", "--chunk-size", "1")])
def test_the_sixth_evaluation_has_its_command(package: Path, tmp_path: Path, how: tuple[str, ...]) -> None:
    """The page's own command, inline and through real workers, gives the numbers of its three lines."""
    words = _blocks("sh")[1].split()
    assert words[0] == "evalq"
    done = _shell(package, *EVALQ, *words[1:], *how, "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["results"] == {"answers": 2, "mean_characters": (4 + 39) / 2, "too_long": 0}
    assert report["records"] == {"total": 3, "scored": 2, "unscored": 0, "errors": 1, "dead": 0}
    assert report["faults"][0]["where"] == "answers.jsonl:3"


def test_it_is_listed_with_the_others(package: Path) -> None:
    """`evalq --help` shows it under its docstring's first line."""
    shown = _shell(package, *EVALQ, "--help").stdout
    assert re.search(r"lengths +How long answers are, and how many are too long\.", shown)


def test_it_keeps_the_contract(package: Path) -> None:
    """The page's own test passes."""
    done = _shell(package, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_lengths.py")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_what_is_added_to_it_is_there(furnished: Path, tmp_path: Path) -> None:
    """Its option is its command's, and its metrics and panels keep the contract, too."""
    done = _shell(furnished, *EVALQ, *_blocks("sh")[2].split()[1:], "--inline", "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"]["too_long"] == 1
    assert "--most INTEGER" in _shell(furnished, *EVALQ, "lengths", "--help").stdout
    page = (tmp_path / "run" / "report.html").read_text()
    assert '<h1 class="none">1 of 2 answers are too long</h1>' in page
    assert "at most 20" in page
    tested = _shell(furnished, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_lengths.py")
    assert tested.returncode == 0, tested.stdout
