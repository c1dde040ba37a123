"""The head of a sweep in its run folder: what is asked of whom, and what makes it this sweep and no other."""

from __future__ import annotations

import glob
import hashlib
import os.path
import shlex
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator, Request, live_calls
from evalq.evalcore.errors import ConfigError, WireError
from evalq.evalcore.files import read_plain
from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.model.canonical import canonical_json, digest
from evalq.producer.folder.files import DRIVER, FURTHER, HEAD, MANIFEST, OUTPUTS, PROMPTS
from evalq.producer.folder.job import RunOptions, once_run_id
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.sweep.options import SweepOptions
from evalq.workers.ledger.sweep_model import FORM, SETTINGS, TEXT_FORM, SweepHeader


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
    if then not in (None, _expectations(head.request.inputs)):
        raise ConfigError(
            f"{', '.join(head.request.inputs)}: not what it was when the sweep in {folder.path} was begun; put "
            f"that back, or evaluate what was recorded: --outputs {shlex.quote(str(folder.path / OUTPUTS))}"
        )


# All that its report depends on, and its suite; long things by digest.

_SHOWN = 16
"""Letters of a digest: messages show them."""


def sweep_facts(
    evaluator: Evaluator[Any, Any], request: Request, live: SweepOptions, asked: RunOptions, prompts: str
) -> dict[str, str]:
    """What a sweep's header says beside target, code, cases and repeats; ``prompts`` is their digest."""
    facts = {
        "evaluator": f"{evaluator.name} {evaluator.version}",
        "parameters": digest(canonical_json(request.params))[:_SHOWN],
        "options": _options(evaluator, request),
        # No part of any prompt, and the report depends on it.
        "expectations": _expectations(request.inputs),
        "prompts": prompts,
        # As with other runs: one key in two suites is two runs, each with a history of its own.
        "suite": asked.suite,
        "limit": str(asked.limit or ""),
        "chunk size": str(asked.chunk_size or ""),
        "stop": live.stop,
        "max calls": _limit(live.max_calls),
        "max cost": _limit(live.max_cost),
        "extends": live.extends,
        SETTINGS: live.config,
        FORM: TEXT_FORM if live_calls(evaluator).text else "",
    }
    return {name: text for name, text in facts.items() if text}


def _limit(budget: float) -> str:
    """A budget with all of its digits; empty for none."""
    # Six digits where these are all: ids of runs that were begun depend on this text.
    short = f"{budget:g}" if budget else ""
    return repr(budget) if short and float(short) != budget else short


def once_id(once: str, header: SweepHeader) -> str:
    """The same id for the same key and the same sweep."""
    spec = [once, header.target, header.code, header.cases, header.repeats, header.asked]
    return once_run_id(header.asked["evaluator"].partition(" ")[0], canonical_json(spec))


def prompts_digest(prompts: Iterable[Prompt]) -> tuple[int, str]:
    """How many prompts there are, and their digest, with their cases and in order."""
    whole, count = hashlib.sha256(), 0
    for prompt in prompts:
        count += 1
        # In order: which case a call is of follows from its number.
        whole.update(f"{prompt.digest} {prompt.case}\0".encode(errors="surrogatepass"))
    return count, whole.hexdigest()[:_SHOWN]


def _expectations(paths: Iterable[str]) -> str:
    """The digest of what is in files: a golden set with all that it expects, or what is judged. Raises ConfigError."""
    return digest(canonical_json([_content(path) for path in paths]))[:_SHOWN]


def _options(evaluator: Evaluator[Any, Any], request: Request) -> str:
    """Those that were given; a file counts as what is in it."""
    files = {option.name for option in evaluator.command.options if option.kind == "path"}
    given = {}
    for name, value in request.options.items():
        if value not in (None, (), [], ""):
            paths = value if isinstance(value, list | tuple) else [value]
            given[name] = [_content(str(path)) for path in paths] if name in files else value
    return digest(canonical_json(given))[:_SHOWN] if given else ""


def _content(path: str) -> list[list[str]]:
    """[[name, digest]] of a file, or of all those in a folder or of a pattern."""
    found = []
    for file in _files(path):
        try:
            with file.open("rb") as stream:
                # Without its folder: the same files may lie elsewhere on another machine.
                found.append([file.name, hashlib.file_digest(stream, "sha256").hexdigest()])
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from error
    return found


def _files(path: str) -> Iterator[Path]:
    for name in [path] if Path(path).exists() else sorted(glob.glob(path, recursive=True)):
        place = Path(name)
        yield from sorted(file for file in place.rglob("*") if file.is_file()) if place.is_dir() else [place]


# Sweeps in run folders, by their files: whether there is one, and giving it up if others made its calls.


def holds_sweep(folder: RunFolder) -> bool:
    """Whether ``folder`` holds a sweep that can be resumed."""
    return (folder.path / HEAD).is_file()


def in_calls(folder: RunFolder) -> bool:
    """Whether ``folder`` holds a sweep whose calls are not over."""
    return holds_sweep(folder) and not (folder.path / MANIFEST).is_file()


def leave_to_others(folder: RunFolder) -> None:
    """Make no more calls from ``folder``, whose sweep others called to its end.

    What it paid for itself stays in calls.jsonl; outputs of these alone are not what the report was made of.
    """
    remove(folder.path, HEAD, PROMPTS, DRIVER, OUTPUTS, FURTHER)


def remove(folder: Path, *names: str) -> None:
    """Remove files and folders of these names, as far as they are there."""
    for path in (folder / name for name in names):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
