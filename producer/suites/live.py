"""What a run of a suite asks a target for: how often, in which words, and what may be taken from earlier runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Calls
from evalq.evalcore.errors import UsageError
from evalq.evalcore.files import open_input
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.producer.folder.files import RUNS
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.suites.faults import At, beside
from evalq.producer.suites.run_model import FileKey, PromptKeys, live_keys
from evalq.producer.sweep.options import PLACE, SweepOptions, Wording

__all__ = ["live_options"]


def live_options(
    at: At, calls: Calls | None, written: dict[str, Any], base: Path, *, recorded: bool = False
) -> SweepOptions | None:
    """What a run asks a target for, or (``recorded``) about outputs; None where it asks none.

    Raises ConfigError for what goes with a target only.
    """
    given = {name: written[name] for name in live_keys(calls) if name in written}
    if calls is None or (calls.option not in given and not recorded):
        if calls is not None and given:
            raise at.wrong((min(given),), f"goes with {calls.option} only")
        return None
    if "cache" in given:
        given["cache"] = beside(base, given["cache"])
    if "prompt" in given:
        given["wording"] = _wording(at, given.pop("prompt"))
    if "reuse" in given:
        given["reuse"] = tuple(_reused(at, base, name) for name in given["reuse"])
    return SweepOptions(target=given.pop(calls.option, ""), **given)


def _wording(at: At, given: PromptKeys) -> Wording:
    template, system = (_text(at, name, getattr(given, name)) for name in ("template", "system"))
    if not template and not system:
        raise at.wrong(("prompt",), "a template or a system prompt is needed")
    if template and PLACE not in template:
        raise at.wrong(("prompt",), f"the template has no place for a case's question: {PLACE}")
    return Wording(template, system)


def _text(at: At, name: str, given: str | FileKey) -> str:
    """Text, or what is in a file beside the suite file or below it. Raises ConfigError."""
    if isinstance(given, str):
        return given
    folder, place = Path(at.path).resolve().parent, ("prompt", name, "file")
    try:
        file = (folder / given.file).resolve()
        if not allows(Writer.SUITE, Thing.PATH, file, (folder,)):
            raise at.wrong(place, "must be a file in the suite file's folder, or below it")
        with open_input(file) as stream:
            return stream.read().decode().removesuffix("\n")
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a name that has a zero byte
        raise at.wrong(place, f"{given.file} cannot be read: {error}") from None


def _reused(at: At, base: Path, name: str) -> str:
    """The folder of a run that a suite names: seen from the file, or by its id. Raises ConfigError."""
    near = Path(beside(base, name))
    try:
        return str(RunFolder.existing(near if near.is_dir() else RUNS / name).path.absolute())
    except UsageError as error:
        raise at.wrong(("reuse",), str(error)) from None
