"""Targets of kind command: a program a call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from evalq.workers.targets.target import Name, ParameterTarget, Way

__all__ = ["TARGET", "CommandTarget"]

_Argument = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class CommandTarget(ParameterTarget):
    """A program: {prompt, agent, case, repeat}, and messages of a chat, as JSON on its stdin; the answer on stdout."""

    kind: Literal["command"]
    argv: tuple[_Argument, ...] = Field(min_length=1, description="The program and its arguments; no shell reads them")
    env: tuple[Name, ...] = Field(
        default=(), description="Variables it gets besides PATH, HOME, LANG, TMPDIR and the key's; no other"
    )
    max_megabytes: int = Field(default=2048, ge=16, description="Most address space it may take")

    def granted(self) -> tuple[str, ...]:
        """Those in ``env``."""
        return self.env

    def address(self) -> str:
        """The program."""
        return self.argv[0]

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Way:
        """How it is called."""
        from evalq.workers.targets.programs import Command

        return Command(self, folder, environment)


TARGET = CommandTarget
