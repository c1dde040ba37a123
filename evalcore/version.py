"""Which code this is: answers of different code are never mixed."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from evalq.evalcore.contract.plugins import CHECKS, cached_until_named, entries, plug_ins, registered_now
from evalq.evalcore.model.canonical import canonical_json

__version__ = version("evalq")

COMPUTING = ("google-re2", "jsonschema", "msgspec", "numpy", "rapidfuzz", "referencing", "sacrebleu")
"""The packages whose own version an answer can depend on: matching, reading and writing numbers, distances.

The others that evalcore imports only check what a producer was given (pydantic and its core, pyyaml), give back bytes
that are compared by digest (zstandard), or give digests that are the same in all versions (blake3).
"""
_PACKAGES = ("evalcore", "workers")
# Texts and tables, too: an answer depends on the prompts of judges and on word lists as much as on code.
_KINDS = (".py", ".c", ".h", ".lua", ".yaml", ".json", ".md")
_DIGITS = 12


@cached_until_named
def code_version() -> str:
    """Twelve hexadecimal digits over all of `code_parts`.

    Part of every queue's name: a worker of other code never sees the message.
    """
    return _digest(code_parts())


def code_now() -> str:
    """The code version of a process that begins now: another than `code_version` after an upgrade in place.

    What this process has imported before is of that one, what it imports from now on is of this one.
    """
    return _digest(_parts(*registered_now()))


def _digest(parts: Mapping[str, str]) -> str:
    return hashlib.sha256(canonical_json(parts)).hexdigest()[:_DIGITS]


@cached_until_named
def code_parts() -> Mapping[str, str]:
    """{part: its version} of what answers and the ledger's scripts depend on.

    Parts are the folders of this code, each with a digest of its files; Python's Unicode data; the packages that
    compute; the packages of plug-ins; and the sources of checks that no package brings.
    """
    return _parts(entries().values(), plug_ins(CHECKS))


def _parts(evaluators: Iterable[EntryPoint], checks: Iterable[EntryPoint]) -> dict[str, str]:
    parts = {name: digest.hexdigest()[:_DIGITS] for name, digest in _folders().items()}
    parts["Unicode (of Python)"] = unicodedata.unidata_version
    parts |= {name: _installed(name) for name in COMPUTING}
    for point in evaluators:
        dist = point.dist
        if dist is not None and dist.name != "evalq":
            parts[f"evaluator {point.name}"] = f"{point.value} {dist.name} {dist.version}"
    for point in checks:
        of = _source_digest(point.module) if point.dist is None else f"{point.dist.name} {point.dist.version}"
        parts[f"check {point.name}"] = f"{point.value} {of}"
    return parts


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """What differs between two codes' parts, in words: "<part> <theirs> (here <ours>)", digests left out."""
    told = []
    for name in sorted({*theirs, *ours}):
        one, other = theirs.get(name, "none"), ours.get(name, "none")
        if one != other:
            plain = name.partition(".")[0] in _PACKAGES and "none" not in (one, other)
            told.append(name if plain else f"{name} {one} (here {other})")
    return told


def _folders() -> dict[str, hashlib._Hash]:
    """A digest for each folder of the packages, over names and bytes of the files in it. Raises OSError."""

    def refuse(error: OSError) -> None:  # else passed over, and the rest would be taken for the whole
        raise error

    top = Path(__file__).parent.parent
    found: dict[str, hashlib._Hash] = {}
    for package in _PACKAGES:
        # Not by pathlib, which would take as long again as all of this: every command begins with it.
        for place, _, names in os.walk(top / package, onerror=refuse):
            if own := sorted(name for name in names if name.endswith(_KINDS)):
                folder = found[".".join(Path(place).relative_to(top).parts)] = hashlib.sha256()
                for name in own:
                    with open(f"{place}/{name}", "rb", buffering=0) as stream:
                        # Bytes rather than syntax trees: a comment that counts as a change costs a restart of workers,
                        # a change that is missed would mix answers.
                        folder.update(name.encode() + b"\0" + hashlib.sha256(stream.readall()).digest())
    return found


def _source_digest(module: str) -> str:
    """Of a module's file, or of all of the package that it is in; "none" where it cannot be found. Nothing is run."""
    top = module.partition(".")[0]
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not (spec.origin or spec.submodule_search_locations):
        return "none"
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [(path.relative_to(folder), path) for folder in folders for path in sorted(folder.rglob("*.py"))]
    if not folders and spec.origin is not None:
        files = [(Path(top), Path(spec.origin))]
    whole = hashlib.sha256()
    for name, path in files:
        whole.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:_DIGITS]


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
