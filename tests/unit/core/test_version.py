"""The code version stands for everything that an answer or the ledger depends on."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest

import evalq.evalcore.version
from evalq.evalcore.version import COMPUTING, code_parts, code_version, differences

TOP = Path(__file__).parents[3]
NOT_COMPUTING = {
    "pydantic": "checks parameters and configurations, for the producer; a worker gets what it let through",
    "pydantic-core": "words what is wrong with parameters, as pydantic does",
    "pyyaml": "reads golden sets and configurations, for the producer; parameters go on as JSON",
    "blake3": "gives digests, which each version computes alike",
    "zstandard": "gives back bytes whose digest is known",
    "pyarrow": "reads recorded outputs, for the producer; workers get the lines that it writes",
    "protobuf": "reads traces, for the producer; workers get the lines that it writes",
    "opentelemetry-proto": "says what the bytes of traces mean, for the producer",
    "deepeval": "an evaluation of ours as a metric of theirs: no run uses it",
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole package, elsewhere."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(TOP / "evalq", folder / "evalq", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "evalq"


def _version_of(folder: Path) -> str:
    command = [sys.executable, "-c", "from evalq.evalcore.version import code_version; print(code_version())"]
    environment = {**os.environ, "PYTHONPATH": str(folder.parent)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_copy_is_the_same_version(copy: Path) -> None:
    """Where the code lies does not matter."""
    assert _version_of(copy) == code_version()


@pytest.mark.parametrize(
    "name",
    [
        "evalcore/statistics/exact.py",
        "evalcore/evaluators/vs/agents.yaml",
        "workers/ledger/lua/runs/commit.lua",
        "workers/pool/chunk_runner.py",
    ],
)
def test_any_change_is_another_version(copy: Path, name: str) -> None:
    """Code, data that answers depend on, and the ledger's scripts."""
    before = (copy / name).read_bytes()
    (copy / name).write_bytes(before + b"\n")
    try:
        assert _version_of(copy) != code_version()
    finally:
        (copy / name).write_bytes(before)


UPGRADED = """
import sys
from pathlib import Path
from evalq.evalcore.version import code_now, code_version
began = code_version()
for path, text in zip(sys.argv[1::2], sys.argv[2::2]):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as out:
        out.write(text)
    print(code_version() == began, code_now() == began)
"""


def test_a_process_knows_that_its_files_were_changed_under_it(copy: Path) -> None:
    """Its own code and a plug-in that comes are another code from then on; what is no code is none."""
    info = copy.parent / "plug-1.dist-info"
    given = [copy / "README.txt", "no code", info / "METADATA", "Name: plug\nVersion: 1\n"]
    given += [info / "entry_points.txt", "[evalq.evaluators]\nplug = plug:evaluator\n"]
    script = [sys.executable, "-c", UPGRADED, *map(str, given)]
    environment = {**os.environ, "PYTHONPATH": str(copy.parent)}
    try:
        message = subprocess.check_output(script, cwd=copy, env=environment, text=True).splitlines()
    finally:
        shutil.rmtree(info)
    assert message == ["True True", "True True", "True False"]
    before = (copy / "evalcore" / "statistics" / "exact.py").read_bytes()
    changed = [*script[:3], str(copy / "evalcore" / "statistics" / "exact.py"), "# new"]
    try:
        assert subprocess.check_output(changed, cwd=copy, env=environment, text=True) == "True False\n"
    finally:
        (copy / "evalcore" / "statistics" / "exact.py").write_bytes(before)


def test_a_folder_that_cannot_be_listed_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest would be another code, and not half of this one."""
    monkeypatch.setattr(evalq.evalcore.version, "_PACKAGES", ("evalcore", "gone"))
    with pytest.raises(FileNotFoundError, match="gone"):
        evalq.evalcore.version.code_now()


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The code version is computed anew in the test, and again after it."""
    for function in (code_parts, code_version):
        function.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    for function in (code_parts, code_version):
        function.cache_clear()


@pytest.mark.parametrize("package", COMPUTING)
def test_another_version_of_a_package_that_computes_is_another_code(fresh: pytest.MonkeyPatch, package: str) -> None:
    """Its answers could differ: so could a report that is folded from both."""
    before, parts, real = code_version(), code_parts(), version
    assert parts[package] == real(package)
    code_parts.cache_clear()
    code_version.cache_clear()
    fresh.setattr(evalq.evalcore.version, "version", lambda name: "99.1" if name == package else real(name))
    assert code_version() != before
    assert differences(code_parts(), parts) == [f"{package} 99.1 (here {parts[package]})"]


def test_other_unicode_data_is_another_code(fresh: pytest.MonkeyPatch) -> None:
    """U+1E030 is a letter for Python 3.12, and nothing for 3.11: what the words of a text are depends on it."""
    before = code_version()
    code_parts.cache_clear()
    code_version.cache_clear()
    fresh.setattr("unicodedata.unidata_version", "1.1.5")
    assert code_version() != before


def test_every_package_that_evalcore_imports_is_weighed() -> None:
    """A new one goes with those that compute, or with the others and the reason why no answer depends on it."""
    imported = {
        name.partition(".")[0]
        for path in (TOP / "evalcore").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    foreign = imported - set(sys.stdlib_module_names) - {"evalq"}
    known, listed = packages_distributions(), {*COMPUTING, *NOT_COMPUTING}
    # Several packages may share a name, such as opentelemetry: one of them is meant.
    names = {name: [canonicalize(each) for each in known.get(name, [name])] for name in foreign}
    found = {next((each for each in several if each in listed), several[0]) for several in names.values()}
    assert found == {*COMPUTING, *NOT_COMPUTING} - ({"deepeval"} - found)


def canonicalize(name: str) -> str:
    """A package's name as it is written in lists of them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_what_differs_is_reported_by_folder_and_package() -> None:
    """Of folders only the name is reported, since a digest says nothing; of packages both versions."""
    ours = {"evalcore": "a1", "evalcore.evaluators.vs": "b1", "numpy": "2.1"}
    theirs = {"evalcore": "a1", "evalcore.evaluators.vs": "b2", "numpy": "2.2", "evaluator x": "m:e x 1"}
    assert differences(theirs, ours) == [
        "evalcore.evaluators.vs",
        "evaluator x m:e x 1 (here none)",
        "numpy 2.2 (here 2.1)",
    ]


def test_the_command_names_its_code() -> None:
    """`evalq --version` shows what a runbook compares with a queue's name."""
    message = subprocess.check_output([sys.executable, "-m", "evalq.producer.cli", "--version"], text=True)
    assert message == f"evalq {evalq.evalcore.version.__version__} (code {code_version()})\n"
