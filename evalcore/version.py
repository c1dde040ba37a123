"""The version of the code, by its bytes, because evalq never mixes answers of different versions."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from evalq.evalcore.contract.plugins import CHECKS, TARGETS, cached_until_named, entries, plug_ins, registered_now
from evalq.evalcore.contract.scoring import ScoringFile, scoring_file, scoring_file_now
from evalq.evalcore.model.canonical import canonical_json

__version__ = version("evalq")

COMPUTING = ("google-re2", "jsonschema", "msgspec", "numpy", "rapidfuzz", "referencing", "sacrebleu")
"""The packages on whose version an answer can depend: matching, reading and writing numbers, distances.

The others that evalcore imports only check a producer's input (pydantic and its core, pyyaml), give back bytes that a
digest checks (zstandard), or give the same digests in all versions (blake3).
"""
_PACKAGES = ("evalcore", "workers")
# With texts and tables: an answer depends on judges' prompts and on word lists as much as on code.
_KINDS = (".py", ".c", ".h", ".lua", ".yaml", ".json", ".md")
_DIGITS = 12


@cached_until_named
def code_version() -> str:
    """Twelve hexadecimal digits over all of `code_parts`.

    Every queue's name has them, so that a worker of other code never sees the message.
    """
    return _digest(code_parts())


def code_now() -> str:
    """The code version of a process that starts now; it differs from `code_version` after an upgrade in place.

    Earlier imports of this process are of `code_version`, later ones of this version.
    """
    return _digest(_parts(*registered_now(), scoring_file_now()))


def _digest(parts: Mapping[str, str]) -> str:
    return hashlib.sha256(canonical_json(parts)).hexdigest()[:_DIGITS]


@cached_until_named
def code_parts() -> Mapping[str, str]:
    """{part: its version} for all parts on which answers and the ledger's scripts depend.

    Parts are the folders of this code, each with a digest of its files; Python's Unicode data; the packages that
    compute; the packages of plug-ins; and the sources of checks and of a scoring function outside of packages.
    """
    return _parts(entries().values(), plug_ins(CHECKS), plug_ins(TARGETS), scoring_file())


def _parts(
    evaluators: Iterable[EntryPoint],
    checks: Iterable[EntryPoint],
    targets: Iterable[EntryPoint],
    scoring: ScoringFile | None,
) -> dict[str, str]:
    parts = {name: digest.hexdigest()[:_DIGITS] for name, digest in _folders().items()}
    parts["Unicode (of Python)"] = unicodedata.unidata_version
    parts |= {name: _installed(name) for name in COMPUTING}
    for kind, points in (("evaluator", evaluators), ("target", targets)):
        for point in points:
            dist = point.dist
            if dist is not None and dist.name != "evalq":
                parts[f"{kind} {point.name}"] = f"{point.value} {dist.name} {dist.version}"
    for point in checks:
        of = _source_digest(point.module) if point.dist is None else f"{point.dist.name} {point.dist.version}"
        parts[f"check {point.name}"] = f"{point.value} {of}"
    if scoring is not None:
        parts["scoring function"] = f"{scoring.path.stem}:{scoring.function} {scoring.digest}"
    return parts


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """The differences between two codes' parts: "<part> <theirs> (here <ours>)", without digests."""
    lines = []
    for name in sorted({*theirs, *ours}):
        one, other = theirs.get(name, "none"), ours.get(name, "none")
        if one != other:
            plain = name.partition(".")[0] in _PACKAGES and "none" not in (one, other)
            lines.append(name if plain else f"{name} {one} (here {other})")
    return lines


def _folders() -> dict[str, hashlib._Hash]:
    """A digest for each folder of the packages, over names and bytes of the files in it. Raises OSError."""

    def refuse(error: OSError) -> None:  # os.walk would ignore it, and the digest would lack files
        raise error

    top = Path(__file__).parent.parent
    digests: dict[str, hashlib._Hash] = {}
    for package in _PACKAGES:
        # Without pathlib, which would double the time: every command does this first.
        for folder, _, names in os.walk(top / package, onerror=refuse):
            if sources := sorted(name for name in names if name.endswith(_KINDS)):
                whole = digests[".".join(Path(folder).relative_to(top).parts)] = hashlib.sha256()
                for name in sources:
                    with open(f"{folder}/{name}", "rb", buffering=0) as stream:
                        # Bytes rather than syntax trees: a changed comment costs a restart of workers, but a change
                        # that is missed would mix answers.
                        whole.update(name.encode() + b"\0" + hashlib.sha256(stream.readall()).digest())
    return digests


def _source_digest(module: str) -> str:
    """The digest of a module's file, or of its whole package; "none" if there is none. It runs no code of it."""
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
