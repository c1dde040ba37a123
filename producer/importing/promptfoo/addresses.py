"""What targets of every kind are made with: addresses that hold no secret, and notes of what is not taken over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from evalq.producer.importing.imported import Imported

__all__ = ["TEMPLATE", "NoTarget", "address", "harmless_name", "leftovers", "without_secrets"]

TEMPLATE = re.compile(r"\{\{|\{%|\{#|\$\{")
"""Where a template of promptfoo begins."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(:\d{1,5})?")


class NoTarget(ValueError):
    """A provider that no target can stand for; the message says why."""


def harmless_name(name: str) -> str:
    """A provider's name for notes: of a URL nothing that may be secret."""
    if "://" not in name:
        return name
    scheme, _, rest = name.partition("://")
    path = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, tail = path.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{tail}"


def address(given: object, what: str) -> str:
    """An address without a user, a password or a query. Raises NoTarget for what is none."""
    if not isinstance(given, str) or TEMPLATE.search(given):
        told = given if isinstance(given, str) else type(given).__name__
        raise NoTarget(f"its {what} is {told[:60]!r}, which only promptfoo can fill in: write the target by hand")
    try:
        parts = urlsplit(given.strip())
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise NoTarget(
            f"its {what} {harmless_name(given)[:60]!r} is no address with http:// or https://: write it by hand"
        )
    if not _HOST.fullmatch(parts.netloc.rpartition("@")[2]):
        raise NoTarget(f"its {what} has a host that evalq does not read: write the target by hand")
    return given.strip()


def without_secrets(imported: Imported, given: str, where: str, name: str) -> str:
    """``given`` without what may be secret in it, which is noted."""
    parts = urlsplit(given)
    if "@" in parts.netloc or parts.query or parts.fragment:
        left = "user, password, query and fragment of an address are not copied: name a variable for the key"
        imported.note("none", where, f"{name}: a part of its address", left)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def leftovers(imported: Imported, config: Mapping[str, Any], known: set[str], where: str, name: str) -> None:
    for key in sorted(set(map(str, config)) - known):
        why = "a key is not copied: name an environment variable" if "key" in key.lower() else "set it by hand"
        imported.note("none", where, f"{name}: {key}", why)
