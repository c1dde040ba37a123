"""The page on adding a kind of target, followed word for word."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.harness import EVALQ, clean_environment

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "how-to" / "add-a-kind-of-target.md"


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's package, installed into a folder `site` of its own so that this environment stays as it is."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "pyproject.toml").write_text(_blocks("toml")[0])
    (folder / "evalq_shop.py").write_text(_blocks("python")[0])
    (folder / "test_shop.py").write_text(_blocks("python")[1])
    (folder / "targets.yaml").write_text(_blocks("yaml")[0])
    assert _blocks("sh")[0].strip() == "pip install ."
    command = [sys.executable, "-m", "pip", "install", "-q", ".", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", "site"], cwd=folder, check=True)
    return folder


def _run(package: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment(PYTHONPATH=f"{package / 'site'}:{TOP}", SHOP_KEY="a-key-of-the-shop")
    return subprocess.run(words, cwd=package, env=environment, capture_output=True, text=True, check=False)


def test_a_targets_file_can_name_the_kind(package: Path) -> None:
    """The page's command lists the target; an unknown key is an error that names those of the kind."""
    words = _blocks("sh")[1].split()
    done = _run(package, *EVALQ, *words[1:])
    assert done.returncode == 0, done.stderr
    assert "http://127.0.0.1:8700/ask north" in done.stdout
    wrong = package / "wrong.yaml"
    wrong.write_text(_blocks("yaml")[0].replace("branch:", "brunch:"))
    done = _run(package, *EVALQ, "targets", "--targets", str(wrong))
    assert done.returncode != 0
    assert "brunch: unknown key (known here: " in done.stderr
    assert "branch: Field required" in done.stderr


def test_it_keeps_the_contract(package: Path) -> None:
    """The page's own test passes."""
    done = _run(package, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


def test_another_version_of_it_is_another_code(package: Path) -> None:
    """Workers with another version of the package get none of the work."""
    code = "from evalq.evalcore.version import code_parts; print(code_parts()['target shop'])"
    done = _run(package, sys.executable, "-c", code)
    assert done.stdout.strip() == "evalq_shop:ShopTarget evalq-shop 1.0", done.stderr
