"""Targets that are named on the command line alone, without a targets file, such as ``openai:gpt-4o-mini``.

A spec stands only where the user of the machine types it: nothing reads it from a suite, a cases file, a run folder or
a message (`evalcore.trust`).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from evalq.evalcore.errors import UsageError
from evalq.evalcore.trust import KEY_VARIABLES

FORMS = (
    *("openai:MODEL", "anthropic:MODEL", "gemini:MODEL", "ollama:MODEL"),
    *("http://HOST/PATH", "python:MODULE:FUNCTION", "command:PROGRAM"),
)
"""What can be named without a file."""
_URLS = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com",
    "ollama": "http://127.0.0.1:11434/v1",
}
_OLLAMA_PORTS = {"": 11434, "http": 80, "https": 443}
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what a server listens on, and where it is found
_SPEC = re.compile(r"(?:openai|anthropic|gemini|ollama|python|command):(?!//)|https?://")
_LINE = "\n"
_JOINED = "\nin:"
"""Begins joined specs. The folder in which they were typed follows: where modules and programs are."""
_LONGEST_NAME = 64


def is_spec(text: str) -> bool:
    """Whether ``text`` names a target by itself, or is what `join` gives; else it is a target or a file."""
    return bool(_SPEC.match(text)) or text.startswith(_JOINED)


def entries(specs: str) -> tuple[dict[str, dict[str, Any]], Path]:
    """{name: entry of a targets file} of a spec or of what `join` gives, and the folder.

    Raises UsageError for an incomplete one.
    """
    found: dict[str, dict[str, Any]] = {}
    folder = Path.cwd()
    if specs.startswith(_JOINED):
        head, *listed = specs.removeprefix(_JOINED).split(_LINE)
        folder = Path(unquote(head))
    else:
        listed = [specs]
    for spec in listed:
        if not spec.isprintable():
            raise UsageError(f"--target {spec!r}: has a line end or another sign that cannot be printed")
        try:
            found[_free_name(_name_of(spec), found)] = _entry(spec)
        except ValueError as error:  # of an address
            raise UsageError(f"--target {spec!r}: not an address: {error}") from None
    return found, folder


def join(specs: Iterable[str]) -> tuple[str, dict[str, str]]:
    """(the specs and the current folder as one text, {spec: the name of its target}). Raises UsageError."""
    distinct = list(dict.fromkeys(specs))
    for spec in distinct:
        entries(spec)
    joined = _LINE.join([f"{_JOINED}{quote(str(Path.cwd()))}", *distinct])
    return joined, dict(zip(distinct, entries(joined)[0], strict=True))


def _entry(spec: str) -> dict[str, Any]:
    kind, _, rest = spec.partition(":")
    if kind in ("http", "https"):
        # The reply says the answer at ``output``; another form needs a targets file, which names it.
        body = {"prompt": "{prompt}", "messages": "{messages}", "case": "{case}", "repeat": "{repeat}"}
        return {"kind": "http", "url": spec, "body": body, "answer": "output"}
    if not rest.strip():
        raise UsageError(f"--target {spec!r}: say which one: {next(form for form in FORMS if form.startswith(kind))}")
    if kind == "python":
        if not all(part.strip() for part in rest.partition(":")[::2]):
            raise UsageError(f"--target {spec!r}: name a function of a module, such as python:agent:answer")
        return {"kind": "python", "function": rest}
    if kind == "command":
        try:
            argv = shlex.split(rest)
        except ValueError as error:
            raise UsageError(f"--target {spec!r}: not a command line: {error}") from None
        return {"kind": "command", "argv": argv}
    key = {"api_key_env": KEY_VARIABLES[kind]} if kind in KEY_VARIABLES else {}
    return {"kind": "openai" if kind == "ollama" else kind, "base_url": base_url(kind), "model": rest, **key}


def base_url(kind: str) -> str:
    """Where the server of a provider is: its usual address, unless the environment names another.

    The variables are those that the provider's own SDK and command read. Raises UsageError for one without an address.
    """
    variable, given = _given_url(kind)
    if not given:
        return _URLS[kind]
    from pydantic import TypeAdapter

    from evalq.workers.targets.http import BaseUrl

    try:
        url = _ollama_url(given) if kind == "ollama" else given.rstrip("/")
        return TypeAdapter[str](BaseUrl).validate_python(url)
    except ValueError:
        received = re.sub(r"//[^/@]*@", "//...@", given)  # a password may stand there
        raise UsageError(
            f"{variable}={received!r}: not an address: it needs http:// or https:// (OLLAMA_HOST may leave it out), a "
            "host, and neither ? nor #; set it to one, or unset it"
        ) from None


def _given_url(kind: str) -> tuple[str, str]:
    """The variable that names a provider's address, and what it holds."""
    if kind == "openai":
        return "OPENAI_BASE_URL", os.environ.get("OPENAI_BASE_URL", "").strip()
    if kind == "anthropic":
        return "ANTHROPIC_BASE_URL", os.environ.get("ANTHROPIC_BASE_URL", "").strip()
    if kind == "gemini":
        return "GOOGLE_GEMINI_BASE_URL", os.environ.get("GOOGLE_GEMINI_BASE_URL", "").strip()
    return "OLLAMA_HOST", os.environ.get("OLLAMA_HOST", "").strip()


def _ollama_url(given: str) -> str:
    """As Ollama reads it: a host, with a port, a scheme and a path where they are not the usual ones."""
    scheme, mark, rest = given.rpartition("://")
    parts = urlsplit(f"{scheme if mark else 'http'}://{rest}")
    if parts.query or parts.fragment:
        raise ValueError("an address to which a path is added has neither")
    host = parts.hostname or "127.0.0.1"
    host = _EVERY_ADDRESS.get(host, host)
    port = _OLLAMA_PORTS.get(scheme, 0) if parts.port is None else parts.port
    named = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{named}:{port}{parts.path.rstrip('/')}/v1"


def _name_of(spec: str) -> str:
    kind, _, rest = spec.partition(":")
    if kind in ("http", "https"):
        parts = urlsplit(spec)
        rest = f"{parts.hostname or ''}{parts.path}"
    elif kind == "command":
        rest = " ".join(Path(word).name for word in rest.split()[:2])
    return re.sub(r"[^\w.-]+", "-", rest).strip(".-")[:_LONGEST_NAME] or kind


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    if name not in taken:
        return name
    return next(free for n in range(2, len(taken) + 3) if (free := f"{name[: _LONGEST_NAME - 4]}-{n}") not in taken)
