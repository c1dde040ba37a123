"""The head of a sweep in its run folder: what is asked of whom, so that it can be resumed, and asked again."""

from __future__ import annotations

import os.path
import shlex
from pathlib import Path

import msgspec

from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import ConfigError, WireError
from evalq.evalcore.files import read_plain
from evalq.producer.folder.files import OUTPUTS
from evalq.producer.folder.job import RunOptions
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.sweeps.identity import expectations
from evalq.producer.sweeps.options import SweepOptions
from evalq.workers.ledger.sweep_model import SweepHeader

__all__ = ["Before", "SweepHead", "read_head", "refuse_changed"]


class Before(msgspec.Struct, frozen=True):
    """What a run did for sweeps whose place another one took: attempts, those of them that came to nothing that
    anybody told, outputs that were not taken over although they were paid for, and what all of it cost.
    """

    attempts: int = 0
    lost: int = 0
    repaid: int = 0
    cost: float = 0.0


class SweepHead(msgspec.Struct, frozen=True):
    """All that a sweep was begun with; ``cwd`` is the folder that the paths of its request are seen from."""

    header: SweepHeader
    live: SweepOptions
    asked: RunOptions
    request: Request
    cwd: str = ""
    before: Before = Before()

    def to_wire(self) -> bytes:
        """What the file holds."""
        return msgspec.json.encode(self, order="sorted", enc_hook=str) + b"\n"

    @classmethod
    def from_wire(cls, data: bytes) -> SweepHead:
        """The head in ``data``. Raises msgspec.DecodeError."""
        return msgspec.json.decode(data, type=cls, dec_hook=lambda _kind, value: Path(value))


def read_head(folder: Path, name: str) -> SweepHead:
    """The head in the file ``name`` of ``folder``. Raises WireError."""
    try:
        return SweepHead.from_wire(read_plain(folder / name))
    except (OSError, msgspec.DecodeError) as error:
        raise WireError(f"{folder / name} is damaged: {error}; start the sweep anew") from error


def refuse_changed(folder: RunFolder, head: SweepHead) -> None:
    """Raise ConfigError where what it was asked about is not to be seen, or is not what it was."""
    # Before the digests, to which files that are not seen from here are changed ones.
    away = [path for path in head.request.inputs if path != "-" and not Path(path).exists()]
    if away and head.cwd not in ("", str(Path.cwd())):
        # A folder that a colleague sent names one of another machine.
        if not os.path.isdir(head.cwd):  # whatever a stranger's file says, this raises nothing
            raise ConfigError(
                f"{away[0]}: not found from this folder, and the sweep was begun in {shlex.quote(head.cwd)}, which is "
                "not seen from here: resume it in a folder that has the file as it was then"
            )
        raise ConfigError(
            f"{away[0]}: not found from this folder: resume the sweep where it was begun: cd {shlex.quote(head.cwd)}"
        )
    then = head.header.asked.get("expectations")
    if then not in (None, expectations(head.request.inputs)):
        raise ConfigError(
            f"{', '.join(head.request.inputs)}: not what it was when the sweep in {folder.path} was begun; put "
            f"that back, or evaluate what was recorded: --outputs {shlex.quote(str(folder.path / OUTPUTS))}"
        )
