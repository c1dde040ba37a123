"""What a run of a suite asks a target for: how often, in which words, and what may be taken from earlier runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Calls
from evalq.evalcore.errors import UsageError
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.suites.faults import Key, beside, wrong
from evalq.producer.suites.run_model import FileKey, PromptKeys, live_keys
from evalq.producer.sweeps.options import SweepOptions, Wording
from evalq.producer.sweeps.wording import PLACE

__all__ = ["live_options"]


def live_options(
    path: str | Path, key: Key, calls: Calls | None, written: dict[str, Any], base: Path, *, recorded: bool = False
) -> SweepOptions | None:
    """What a run asks a target for, or (``recorded``) about outputs; None where it asks none.

    Raises ConfigError for what goes with a target only.
    """
    given = {name: written[name] for name in live_keys(calls) if name in written}
    if calls is None or (calls.option not in given and not recorded):
        if calls is not None and given:
            raise wrong(path, [((*key, min(given)), f"goes with {calls.option} only")])
        return None
    if "cache" in given:
        given["cache"] = beside(base, given["cache"])
    if "prompt" in given:
        given["wording"] = _wording(path, (*key, "prompt"), given.pop("prompt"))
    if "reuse" in given:
        given["reuse"] = tuple(_reused(path, key, base, name) for name in given["reuse"])
    return SweepOptions(target=given.pop(calls.option, ""), **given)


def _wording(path: str | Path, key: Key, given: str | PromptKeys) -> Wording:
    keys = PromptKeys(template=given) if isinstance(given, str) else given
    template, system = (_text(path, key, each) for each in (keys.template, keys.system))
    if not template and not system:
        raise wrong(path, [(key, "a template or a system prompt is needed")])
    if template and PLACE not in template:
        raise wrong(path, [(key, f"the template has no place for a case's question: {PLACE}")])
    return Wording(template, system)


def _text(path: str | Path, key: Key, given: str | FileKey) -> str:
    """Text, or what is in a file beside the suite file or below it. Raises ConfigError."""
    if isinstance(given, str):
        return given
    folder = Path(path).resolve().parent
    file = (folder / given.file).resolve()
    if not file.is_relative_to(folder):
        raise wrong(path, [((*key, "file"), "must be a file in the suite file's folder, or below it")])
    try:
        return file.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(path, [((*key, "file"), f"{given.file} cannot be read: {error}")]) from None


def _reused(path: str | Path, key: Key, base: Path, name: str) -> str:
    """The folder of a run that a suite names: seen from the file, or by its id. Raises ConfigError."""
    near = Path(beside(base, name))
    try:
        return str(RunFolder.existing(near if near.is_dir() else Path("evalq-runs") / name).path.absolute())
    except UsageError as error:
        raise wrong(path, [((*key, "reuse"), str(error))]) from None
