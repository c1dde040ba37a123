"""The wheel: the same tree gives the same code, whatever was built in it before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from evalq.evalcore.version import code_version
from tests.deploy.programs import TOP

PARTS = ("evalq", "evalcore", "workers", "producer", "pyproject.toml", "setup.py", "README.md", "LICENSE")


def test_a_wheel_holds_nothing_of_an_earlier_build(tmp_path: Path) -> None:
    """A module that lies in build/ and no longer in the tree is not packed; the wheel's code is the tree's."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for part in PARTS:
        if (TOP / part).is_dir():
            shutil.copytree(TOP / part, tree / part, symlinks=True)
        else:
            shutil.copy(TOP / part, tree / part)
    for folder in ("evalq/evalcore", "evalq/workers/ledger/lua"):
        stale = tree / "build" / "lib" / folder
        stale.mkdir(parents=True)
        (stale / "gone.py").write_text("")
        (stale / "gone.lua").write_text("")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(tree),
    ]
    subprocess.run(build, check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("evalq-*.whl")
    with ZipFile(wheel) as packed:
        assert not [name for name in packed.namelist() if "gone" in name]
        assert {name.partition("/")[0].partition("-")[0] for name in packed.namelist()} == {"evalq"}
        packed.extractall(tmp_path / "installed")
    script = "import evalq.evalcore.version as v; print(v.__file__, v.code_version())"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    told = subprocess.check_output([sys.executable, "-P", "-c", script], env=environment, text=True).split()
    assert told == [str(tmp_path / "installed" / "evalq" / "evalcore" / "version.py"), code_version()]
