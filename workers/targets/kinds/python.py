"""Targets of kind python: a function in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from evalq.workers.targets.target import ParameterTarget, Way

__all__ = ["TARGET", "PythonTarget"]


class PythonTarget(ParameterTarget):
    """A function, sync or async, of {prompt, agent, case, repeat}, and messages of a chat; it returns text or data."""

    times_itself: ClassVar[bool] = True
    """Its process may have to be started first."""

    kind: Literal["python"]
    function: str = Field(
        pattern=r"^[\w.]+:[\w.]+$",
        description="module:function; the module is in the targets file's folder, or installed",
    )
    max_megabytes: int = Field(default=4096, ge=64, description="Most memory its process may take")

    def address(self) -> str:
        """The function."""
        return self.function

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Way:
        """How it is called."""
        from evalq.workers.targets.functions import Function

        return Function(self, folder, environment)


TARGET = PythonTarget
