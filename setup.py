"""What pyproject.toml cannot say: a wheel is packed from this tree alone."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class Fresh(build_py):
    """Begins with an empty ``build/lib``: modules that an earlier build left there would be packed, too, and the same
    commit would be other code."""

    def run(self) -> None:
        """Build."""
        if not self.editable_mode and Path(self.build_lib).is_dir():
            shutil.rmtree(self.build_lib)
        super().run()


setup(cmdclass={"build_py": Fresh})
