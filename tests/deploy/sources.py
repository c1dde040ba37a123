"""Install evalq from six kinds of source with several Pythons, and hold what each evaluates against the others.

    python -m tests.deploy.sources /usr/bin/python3.11 /usr/bin/python3.13

Takes about a minute for each source: for a release, not for each change. pip builds each as a user would have it built,
from what is committed, and once without a compiler. Dependencies come from requirements-run.lock.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).parents[2]
CHECK = Path(__file__).with_name("installed.py")
BUILD = "import sys; from setuptools.build_meta import build_{0}; print(build_{0}(sys.argv[1]))"


def _run(*command: str | Path, cwd: Path = TOP, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Sources:
    """Each kind of source of the committed tree, made in ``folder`` with ``python``, which has setuptools."""

    def __init__(self, folder: Path, python: Path) -> None:
        self._folder, self._python = folder, python
        self.clone = folder / "clone"
        _run("git", "clone", "--quiet", TOP, self.clone)

    def built(self, kind: str) -> list[str]:
        """A wheel or an sdist."""
        name = _run(self._python, "-c", BUILD.format(kind), self._folder, cwd=self.clone).splitlines()[-1]
        return [str(self._folder / name)]

    def archive(self) -> list[str]:
        """A zip, in which links are text files."""
        path = self._folder / "evalq.zip"
        _run("git", "archive", "--prefix=evalq/", "-o", path, "HEAD", cwd=self.clone)
        return [str(path)]

    def kinds(self) -> dict[str, Callable[[], list[str]]]:
        """What pip is given for each."""
        return {
            "wheel": lambda: self.built("wheel"),
            "sdist": lambda: self.built("sdist"),
            "folder of a clone": lambda: [str(self.clone)],
            "editable": lambda: ["--editable", str(self.clone)],
            "git URL": lambda: [f"git+file://{self.clone}"],
            "zip": self.archive,
        }


def main(pythons: list[str]) -> None:
    """Print a line for each Python and source. Exits 1 at the first that does not work."""
    for python in pythons:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            _run(python, "-m", "venv", folder / "venv")
            own = folder / "venv" / "bin" / "python"
            pip = (own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            _run(*pip, "--require-hashes", "-r", TOP / "requirements-run.lock")
            sources = Sources(folder, own)
            for kind, given in sources.kinds().items():
                _report(kind, own, [*pip, "--no-deps", "--force-reinstall", *given()])
            _report("zip, no compiler", own, [*pip, "--no-deps", "--force-reinstall", *sources.archive()], CC="false")


def _report(kind: str, python: Path, install: list[str | Path], **environment: str) -> None:
    _run(*install, cwd=python.parent, **environment)
    sys.stdout.write(f"{kind}: {_run(python, CHECK, cwd=python.parent).strip()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:] or [sys.executable])
