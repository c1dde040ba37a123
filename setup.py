"""What pyproject.toml cannot say: a wheel is packed from this tree alone, and its C is compiled where that can be."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

NATIVE = Path("evalcore/native")


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


# Without it everything works, more slowly: a failed compilation is told and passed over.
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

setup(cmdclass={"build_py": Fresh, "bdist_wheel": Stable}, ext_modules=EXTENSIONS)
