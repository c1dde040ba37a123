"""What makes a sweep this one and no other: all that its report depends on and its suite, long things by digest."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Evaluator, Request
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.model.canonical import canonical_json, digest
from evalq.producer.folder.job import RunOptions, once_run_id
from evalq.producer.sweeps.options import SweepOptions
from evalq.workers.ledger.sweep_model import SETTINGS, SweepHeader

__all__ = ["asked_of", "expectations", "once_id", "prompts_digest"]

_SHOWN = 16
"""Letters of a digest: messages show them."""


def asked_of(
    evaluator: Evaluator[Any, Any], request: Request, live: SweepOptions, asked: RunOptions, prompts: str
) -> dict[str, str]:
    """What a sweep's header says beside target, code, cases and repeats; ``prompts`` is their digest."""
    facts = {
        "evaluator": f"{evaluator.name} {evaluator.version}",
        "parameters": digest(canonical_json(request.params))[:_SHOWN],
        "options": _options(evaluator, request),
        # No part of any prompt, and the report depends on it.
        "expectations": expectations(request.inputs),
        "prompts": prompts,
        # As with other runs: one key in two suites is two runs, each with a history of its own.
        "suite": asked.suite,
        "limit": str(asked.limit or ""),
        "chunk size": str(asked.chunk_size or ""),
        "stop": live.stop,
        "max calls": _told(live.max_calls),
        "max cost": _told(live.max_cost),
        "extends": live.extends,
        SETTINGS: live.config,
    }
    return {name: text for name, text in facts.items() if text}


def _told(budget: float) -> str:
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


def expectations(paths: Iterable[str]) -> str:
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
