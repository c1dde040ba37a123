"""What pyproject.toml cannot say: which folders make the package, that a wheel is packed from them alone, and its C.

The folders evalcore, workers and producer are installed as packages of evalq. The links of these names in evalq/ serve
a checkout; no build reads them, because an archive of the tree may have text files in their place.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, find_namespace_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

FOLDERS = ("evalcore", "workers", "producer")
NATIVE = Path("evalcore/native")


def _packages() -> list[str]:
    """evalq's own, and each folder's as packages below it."""
    linked = [f"evalq.{folder}" for folder in FOLDERS]
    own = find_namespace_packages(include=["evalq", "evalq.*"], exclude=[*linked, *(f"{name}.*" for name in linked)])
    below = find_namespace_packages(include=[*FOLDERS, *(f"{folder}.*" for folder in FOLDERS)])
    return [name for name in (*own, *(f"evalq.{name}" for name in below)) if "__pycache__" not in name]


class Loud(build_ext):
    """Says what it means that C could not be compiled; setuptools itself only mentions the failure."""

    def run(self) -> None:
        """Build."""
        super().run()
        if any(not Path(self.get_ext_fullpath(each.name)).exists() for each in self.extensions):
            sys.stderr.write(f"{'=' * 100}\n{SLOW}\n{'=' * 100}\n")


SLOW = (
    "evalq: the C of evalcore/native was NOT compiled: everything works, and rows take 7 times and logs 20 times as "
    "long. Install a C compiler (gcc or clang, with libc's headers), then install evalq again. EVALQ_PURE=1 leaves "
    "the C out."
)


class Fresh(build_py):
    """Begins with an empty ``build/lib``: modules that an earlier build left there would be packed, too, and the same
    commit would be other code."""

    def run(self) -> None:
        """Build."""
        if not self.editable_mode and Path(self.build_lib).is_dir():
            shutil.rmtree(self.build_lib)
        super().run()


class Stable(bdist_wheel):
    """One wheel for every Python from 3.11 on: the C keeps to the limited API."""

    def finalize_options(self) -> None:
        """Name it so."""
        super().finalize_options()
        if EXTENSIONS:
            self.py_limited_api = "cp311"


def _digest() -> str:
    """As `evalq.evalcore.native.source_digest` has it: a module of other sources is never used."""
    digest = hashlib.sha256()
    for path in sorted([*NATIVE.glob("*.c"), *NATIVE.glob("*.h")], key=lambda path: path.name):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


# Without it everything works, more slowly: a failed compilation is reported and passed over.
EXTENSIONS = (
    []
    if os.environ.get("EVALQ_PURE")
    else [
        Extension(
            f"evalq.evalcore.native._{name}",
            [str(NATIVE / f"{name}.c")],
            depends=[str(path) for path in sorted(NATIVE.glob("*.h"))],
            define_macros=[("SOURCE", f'"{_digest()}"')],
            py_limited_api=True,
            optional=True,
        )
        for name in ("log", "rows")
    ]
)

setup(
    packages=_packages(),
    package_dir={f"evalq.{folder}": folder for folder in FOLDERS},
    cmdclass={"build_py": Fresh, "build_ext": Loud, "bdist_wheel": Stable},
    ext_modules=EXTENSIONS,
)
