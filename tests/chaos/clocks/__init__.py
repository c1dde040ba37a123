"""Wall clocks that can be set, one for each process under test and its children."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

_SOURCE = Path(__file__).with_name("clock.c")


def unavailable() -> str:
    """Why no clock can be set here; empty when one can."""
    return "" if shutil.which("cc") else "setting a process's clock needs a C compiler (Debian: gcc, libc6-dev)"


@dataclass(frozen=True)
class Clock:
    """The wall clock of a process and its children: the host's, and an offset that may change while they run."""

    path: Path

    @property
    def environment(self) -> dict[str, str]:
        """Of the processes that are to have this clock."""
        return {"LD_PRELOAD": _library(), "CHAOS_CLOCK": str(self.path)}

    @property
    def offset(self) -> float:
        """Seconds before the host's clock."""
        return float(struct.unpack("q", self.path.read_bytes())[0] / 1e9)

    def step(self, seconds: float) -> None:
        """Set it forward, or back where ``seconds`` is negative; the processes see it at once."""
        written = struct.pack("q", round((self.offset + seconds) * 1e9))
        with self.path.open("r+b", buffering=0) as file:  # the same inode, which they have mapped
            file.write(written)


class Clocks:
    """Clocks by the name of who has them."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is made, and keeps their offsets."""
        folder.mkdir()
        self._folder = folder

    def of(self, name: str) -> Clock:
        """Made when it is asked for first; whoever is started again under a name finds its clock as it was."""
        path = self._folder / name
        if not path.exists():
            path.write_bytes(struct.pack("q", 0))
        return Clock(path)


@cache
def _library() -> str:
    """The compiled clock, made once a process."""
    made = Path(mkdtemp(prefix="evalq-clock-")) / "clock.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", made, _SOURCE], check=True)
    return str(made)
