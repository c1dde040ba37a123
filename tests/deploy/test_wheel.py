"""The wheel: the same tree gives the same code, whatever was built in it before; and what installing it changes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

import pytest

from evalq.evalcore.version import code_version
from tests.deploy.programs import TOP
from tests.portions import some

PARTS = ("evalq", "evalcore", "workers", "producer", "pyproject.toml", "setup.py", "README.md", "LICENSE")


def _wheel(source: Path, folder: Path) -> Path:
    """The wheel of ``source``, built into ``folder``."""
    folder.mkdir(exist_ok=True)
    # What pip asks for, too, in processes before and behind it.
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    quickly = os.environ | {"CFLAGS": "-O0"}
    subprocess.run([sys.executable, "-c", build, str(folder)], check=True, cwd=source, env=quickly)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _tree(folder: Path) -> Path:
    """A copy of what a wheel is made of."""
    folder.mkdir()
    for part in PARTS:
        if (TOP / part).is_dir():
            # Whoever imports from the tree meanwhile writes there, under a name that is gone a moment later.
            shutil.copytree(TOP / part, folder / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(TOP / part, folder / part)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """evalq's, built in a tree in which modules of an earlier build lie that are no longer in the tree."""
    folder = tmp_path_factory.mktemp("built")
    tree = _tree(folder / "tree")
    for part in ("evalq/evalcore", "evalq/workers/ledger/lua"):
        stale = tree / "build" / "lib" / part
        stale.mkdir(parents=True)
        (stale / "gone.py").write_text("")
        (stale / "gone.lua").write_text("")
    return _wheel(tree, folder / "wheel")


def test_a_wheel_holds_nothing_of_an_earlier_build(wheel: Path, tmp_path: Path) -> None:
    """A module that lies in build/ and no longer in the tree is not packed; the wheel's code is the tree's."""
    with ZipFile(wheel) as packed:
        assert not [name for name in packed.namelist() if "gone" in name]
        assert {name.partition("/")[0].partition("-")[0] for name in packed.namelist()} == {"evalq"}
        packed.extractall(tmp_path / "installed")
    script = "import evalq.evalcore.version as v; print(v.__file__, v.code_version())"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    printed = subprocess.check_output([sys.executable, "-P", "-c", script], env=environment, text=True).split()
    assert printed == [str(tmp_path / "installed" / "evalq" / "evalcore" / "version.py"), code_version()]


def _packed(wheel: Path) -> dict[str, str]:
    """{file: digest} of a wheel, without what it says of itself."""
    with ZipFile(wheel) as packed:
        names = [name for name in packed.namelist() if ".dist-info/" not in name]
        return {name: hashlib.sha256(packed.read(name)).hexdigest() for name in names}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same tree as a git repository with one commit."""
    tree = _tree(tmp_path_factory.mktemp("repository") / "tree")
    shutil.copy(TOP / ".gitignore", tree)
    for command in ("init -q", "add -A", "-c user.name=n -c user.email=e@localhost commit -q -m tree"):
        subprocess.run(["git", *command.split()], check=True, cwd=tree)
    return tree


def _archive(repository: Path, path: Path) -> str:
    subprocess.run(["git", "archive", "--prefix=evalq/", "-o", path, "HEAD"], check=True, cwd=repository)
    return str(path)


SOURCES = {
    "a git URL": lambda repository, folder: f"git+file://{repository}",
    # pip writes each link of a zip as a text file that names where it leads.
    "a zip": lambda repository, folder: _archive(repository, folder / "evalq.zip"),
    "a tar.gz": lambda repository, folder: _archive(repository, folder / "evalq.tar.gz"),
}


@pytest.mark.parametrize("source", some(list(SOURCES), of=3))
def test_each_source_gives_the_same_wheel(source: str, wheel: Path, repository: Path, tmp_path: Path) -> None:
    """Built by pip as a user does it: the same files, with the C compiled, as from a checkout."""
    given = SOURCES[source](repository, tmp_path)
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path / "made"))
    command = [sys.executable, "-m", "pip", "wheel", *options, given]
    subprocess.run(command, check=True, cwd=tmp_path, env=os.environ | {"CFLAGS": "-O0"})
    (made,) = (tmp_path / "made").iterdir()
    assert _packed(made) == _packed(wheel)
    assert [name for name in _packed(made) if re.fullmatch(r"evalq/evalcore/native/_(rows|log)\..*(so|pyd)", name)]


def test_an_sdist_gives_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """With the C in it: what is built of the sdist is what is built of the checkout."""
    build = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], check=True, cwd=_tree(tmp_path / "tree"))
    (sdist,) = tmp_path.glob("*.tar.gz")
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xzf", sdist, "-C", tmp_path / "unpacked"], check=True)
    (source,) = (tmp_path / "unpacked").iterdir()
    assert _packed(_wheel(source, tmp_path / "wheel")) == _packed(wheel)


def test_without_a_compiler_it_is_built_and_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python reads the rows then; the build says so, `evalq doctor` does, and each evaluation."""
    monkeypatch.setenv("CC", "false")
    made = _wheel(_tree(tmp_path / "tree"), tmp_path)
    assert "was NOT compiled" in capfd.readouterr().err
    with ZipFile(made) as packed:
        assert not [name for name in packed.namelist() if name.endswith(".so")]
        packed.extractall(tmp_path / "installed")
    script = "from evalq.evalcore import native; print(native.compiled(), native.way())"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    printed = subprocess.check_output([sys.executable, "-P", "-c", script], env=environment, text=True)
    assert printed.startswith("None Python alone")
    (tmp_path / "log.jsonl").write_text('{"turn": 1, "agent": "a", "decision": "share", "message": ""}\n')
    command = ("-P", "-c", "from evalq.producer.entry import main; main()", "cooperation", "log.jsonl", "--inline")
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "7 times and logs 20 times as long" in " ".join(done.stderr.split())
    assert done.returncode == 0


class Environment:
    """A new virtual environment; what evalq needs is lent to it by this one."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        self.site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))

    def pip(self, *words: str | Path) -> None:
        """Run pip for this environment, without an index."""
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, *map(str, words)], check=True)

    def run(self, *command: str | Path) -> str:
        """What a program of this environment prints."""
        environment = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib")}
        return subprocess.check_output([*map(str, command)], env=environment, text=True, cwd=self.site)

    def files(self) -> set[str]:
        """Everything that is installed, compiled modules aside."""
        found = (path for path in self.site.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {path.relative_to(self.site).as_posix() for path in found}


OTHER = {
    "pyproject.toml": """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "somebody"
version = "1"

[tool.setuptools]
packages = ["workers", "producer"]
""",
    "workers/__init__.py": "OWNER = 'somebody'",
    "workers/settings.py": "OWNER = 'somebody'",
    "producer/__init__.py": "OWNER = 'somebody'",
    "producer/cli.py": "OWNER = 'somebody'",
}
BOTH = """
import workers.settings, producer.cli
import evalq, evalq.workers.settings, evalq.producer.cli
print(workers.settings.OWNER, producer.cli.OWNER, evalq.workers.settings.Settings.__name__, evalq.evaluate.__name__)
print(evalq.__file__)
"""


def test_one_name_is_installed_and_nothing_of_another_distribution_is_touched(wheel: Path, tmp_path: Path) -> None:
    """Beside one that owns `workers` and `producer` both work, and each is uninstalled without a loss for the other."""
    for name, text in OTHER.items():
        (tmp_path / "somebody" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "somebody" / name).write_text(text)
    other = _wheel(tmp_path / "somebody", tmp_path / "theirs")
    environment = Environment(tmp_path / "venv")
    empty = environment.files()

    environment.pip("install", "--no-deps", "--no-index", "--no-compile", wheel)
    evalq_alone = environment.files()
    assert {name.partition("/")[0] for name in evalq_alone - empty} == {"evalq", f"evalq-{version('evalq')}.dist-info"}

    environment.pip("install", "--no-deps", "--no-index", other)
    both = environment.files()
    printed = environment.run(environment.python, "-P", "-c", BOTH).split()
    assert printed == ["somebody", "somebody", "Settings", "evaluate", str(environment.site / "evalq" / "__init__.py")]
    assert "evalq" in environment.run(environment.python.parent / "evalq", "--version")

    environment.pip("uninstall", "-y", "evalq")
    assert environment.files() == both - (evalq_alone - empty)
    script = "import workers.settings, producer.cli; print(workers.settings.OWNER, producer.cli.OWNER)"
    assert environment.run(environment.python, "-P", "-c", script).split() == ["somebody", "somebody"]

    environment.pip("install", "--no-deps", "--no-index", "--no-compile", wheel)
    environment.pip("uninstall", "-y", "somebody")
    assert environment.files() == evalq_alone
    assert "evalq" in environment.run(environment.python.parent / "evalq", "--version")
    environment.pip("uninstall", "-y", "evalq")
    assert environment.files() == empty
