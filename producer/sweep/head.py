"""The head of a sweep in its run folder: its target, its request, and the facts that identify it."""

from __future__ import annotations

import glob
import hashlib
import os.path
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator, Request, live_calls
from evalq.evalcore.errors import ConfigError, EvalqError, WireError
from evalq.evalcore.files import read_plain
from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.model.canonical import canonical_json, digest
from evalq.producer.folder.files import DRIVER, FURTHER, HEAD, MANIFEST, OUTPUTS, PROMPTS
from evalq.producer.folder.job import RunOptions, once_run_id
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.sweep.options import SweepOptions
from evalq.workers.ledger.sweep_model import FORM, SETTINGS, TEXT_FORM, SweepHeader, differing_settings


class Before(msgspec.Struct, frozen=True):
    """Totals of earlier judge sweeps that this sweep replaced.

    They are the attempts, the attempts whose outcome is unknown (``lost``), the paid outputs that were not reused
    (``repaid``), and the cost.
    """

    attempts: int = 0
    lost: int = 0
    repaid: int = 0
    cost: float = 0.0


class SweepHead(msgspec.Struct, frozen=True):
    """Everything that a sweep was started with; ``cwd`` is the folder to which the request's paths are relative."""

    header: SweepHeader
    live: SweepOptions
    asked: RunOptions
    request: Request
    cwd: str = ""
    before: Before = Before()

    def to_wire(self) -> bytes:
        """The content of the file: JSON, with a newline."""
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
    """Raise ConfigError if the inputs of the sweep are not found from this folder, or have changed."""
    # Before the digests, which cannot distinguish missing files from changed ones.
    away = [path for path in head.request.inputs if path != "-" and not Path(path).exists()]
    if away and head.cwd not in ("", str(Path.cwd())):
        # A run folder from a colleague names a folder of another machine.
        if not os.path.isdir(head.cwd):  # unlike Path.is_dir, it raises nothing for strange text
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


# The facts that a sweep's report depends on, and its suite; long ones as digests.

_SHOWN = 16
"""Characters of a digest; messages show them."""


def sweep_facts(
    evaluator: Evaluator[Any, Any], request: Request, live: SweepOptions, asked: RunOptions, prompts: str
) -> dict[str, str]:
    """The facts in a sweep's header besides target, code, cases and repeats; ``prompts`` is the prompts' digest."""
    facts = {
        "evaluator": f"{evaluator.name} {evaluator.version}",
        "parameters": digest(canonical_json(request.params))[:_SHOWN],
        "options": _options(evaluator, request),
        # The report depends on them, although no prompt contains them.
        "expectations": _expectations(request.inputs),
        "prompts": prompts,
        # As for other runs: one key in two suites gives two runs, each with its own history.
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
    """A budget with all its digits; "" without one."""
    # The short form if it is exact: ids of existing runs depend on this text.
    short = f"{budget:g}" if budget else ""
    return repr(budget) if short and float(short) != budget else short


def once_id(once: str, header: SweepHeader) -> str:
    """The run id for a key and a sweep: equal for equal ones."""
    spec = [once, header.target, header.code, header.cases, header.repeats, header.asked]
    return once_run_id(header.asked["evaluator"].partition(" ")[0], canonical_json(spec))


def prompts_digest(prompts: Iterable[Prompt]) -> tuple[int, str, bool]:
    """(number of prompts, digest of the prompts and their cases in order, whether any has a simulated user)."""
    whole, count, users = hashlib.sha256(), 0, False
    for prompt in prompts:
        count += 1
        users = users or prompt.user is not None
        # The order matters: a call's number determines its case.
        whole.update(f"{prompt.digest} {prompt.case}\0".encode(errors="surrogatepass"))
    return count, whole.hexdigest()[:_SHOWN], users


def _expectations(paths: Iterable[str]) -> str:
    """The digest of the input files' content: a golden set, or recorded outputs to judge. Raises ConfigError."""
    return digest(canonical_json([_content(path) for path in paths]))[:_SHOWN]


def _options(evaluator: Evaluator[Any, Any], request: Request) -> str:
    """The digest of the given options, files by their content; "" without any."""
    files = {option.name for option in evaluator.command.options if option.kind == "path"}
    given = {}
    for name, value in request.options.items():
        if value not in (None, (), [], ""):
            paths = value if isinstance(value, list | tuple) else [value]
            given[name] = [_content(str(path)) for path in paths] if name in files else value
    return digest(canonical_json(given))[:_SHOWN] if given else ""


def _content(path: str) -> list[list[str]]:
    """[[name, digest]] of a file, or of all files in a folder or matching a pattern. Raises ConfigError."""
    found = []
    for file in _files(path):
        try:
            with file.open("rb") as stream:
                # Without the folder, because another machine may have the same files elsewhere.
                found.append([file.name, hashlib.file_digest(stream, "sha256").hexdigest()])
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from error
    return found


def _files(path: str) -> Iterator[Path]:
    for name in [path] if Path(path).exists() else sorted(glob.glob(path, recursive=True)):
        place = Path(name)
        yield from sorted(file for file in place.rglob("*") if file.is_file()) if place.is_dir() else [place]


# The files of a sweep in a run folder: check whether they exist, and remove them if another producer made the calls.


def holds_sweep(folder: RunFolder) -> bool:
    """Whether ``folder`` holds a sweep that can be resumed."""
    return (folder.path / HEAD).is_file()


def in_calls(folder: RunFolder) -> bool:
    """Whether ``folder`` holds a sweep whose calls are not over."""
    return holds_sweep(folder) and not (folder.path / MANIFEST).is_file()


def leave_to_others(folder: RunFolder) -> None:
    """Remove the sweep from ``folder``, because another producer finished its calls.

    Its own paid outputs stay in calls.jsonl. outputs.jsonl goes, because the report is not made of these alone.
    """
    remove(folder.path, HEAD, PROMPTS, DRIVER, OUTPUTS, FURTHER)


def remove(folder: Path, *names: str) -> None:
    """Remove the files and folders with these names, if they exist."""
    for path in (folder / name for name in names):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


# Messages about a target that its sweeps share, whoever makes their calls.

_START = "start one: evalq worker --calls N --targets FILE; or call from here: --calls N --targets FILE"
_WARNINGS = {
    "nobody": "no process calls {target!r} yet (" + _START + ")",
    "differ": "warning: the fleet's targets files differ in {target!r}; its outputs are of several settings",
    "changed": "warning: {target!r} has other settings than before; its outputs are of several settings",
    "untold": "warning: {target!r} reports no tokens for some answers; --max-cost takes the mean cost",
    "elsewhere": "warning: another producer drove this sweep; what only its folder has is called again",
    "again": "{target!r} is called again",
}


def warning_text(name: str, target: str) -> str:
    """The message called ``name`` about ``target``."""
    return _WARNINGS[name].format(target=target)


def settings_of_run(folder: str) -> dict[str, str]:
    """The settings of the target of a run, as `shown_settings` has them; empty if its folder does not say them."""
    try:
        found = RunFolder(Path(folder)).facts().get(SETTINGS)
    except EvalqError:
        return {}
    return {name: str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def changed_settings(
    header: SweepHeader, configs: Iterable[str], then: Mapping[str, str], now: Mapping[str, str]
) -> str:
    """Why no process may call a target that has the settings ``configs`` now.

    ``then`` and ``now`` are its `shown_settings`; empty where they are not known.
    """
    digests = f"digest {header.asked[SETTINGS]} then, {', '.join(sorted(configs))} now"
    before = header.asked.get("extends", header.run)
    return (
        f"target {header.target!r} has other settings than when {before} was asked "
        f"({differing_settings(then, now) or digests}), and answers of two settings are never one run: put them back, "
        "or start a new sweep"
    )
