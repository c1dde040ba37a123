"""promptfoo's providers as targets, where one of evalq's kinds makes the same calls. No key is ever copied."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from evalq.producer.importing.imported import Imported
from evalq.producer.importing.promptfoo.texts import slug

__all__ = ["add_target", "provider_name"]

_LOCAL = {
    "ollama": "http://127.0.0.1:11434/v1",
    "vllm": "http://127.0.0.1:8000/v1",
    "llamafile": "http://127.0.0.1:8080/v1",
}
_REQUEST = ("temperature", "max_tokens", "top_p", "seed", "stop", "frequency_penalty", "presence_penalty")
_ENVIRONMENT = re.compile(r"^(?:Bearer\s+)?\{\{\s*env\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}$")
_PATH = re.compile(r"^json((?:\.[A-Za-z_][\w]*|\[\d+\]|\[['\"][^'\"]+['\"]\])*)$")
_PROGRAMS = ("exec:", "file://", "python:", "golang:", "ruby:", "package:", "mcp:", "browser", "webhook:")


def provider_name(provider: Any) -> tuple[str, str, Mapping[str, Any]]:
    """(id, label, configuration) of a provider in any of its forms; empty for one that has none."""
    if isinstance(provider, str):
        return provider, "", {}
    if not isinstance(provider, Mapping):
        return "", "", {}
    if isinstance(provider.get("id"), str):
        config = provider.get("config")
        return provider["id"], str(provider.get("label") or ""), config if isinstance(config, Mapping) else {}
    if len(provider) == 1:
        name, inner = next(iter(provider.items()))
        config = inner.get("config") if isinstance(inner, Mapping) else None
        return str(name), "", config if isinstance(config, Mapping) else {}
    return "", "", {}


def add_target(imported: Imported, provider: Any, where: str) -> None:
    """Add the target that ``provider`` is, or note why there is none."""
    name, label, config = provider_name(provider)
    _settings(imported, provider, where, name)
    target = _chat(imported, name, config, where) or _http(imported, name, config, where)
    if target is None:
        imported.note("none", where, name or "a provider", _reason(name))
        return
    # What promptfoo checks is text.
    target["output"] = "text"
    wanted = re.sub(r"[^A-Za-z0-9._-]+", "-", slug(label or name)).strip("-.")[:60] or "target"
    number = 2
    while wanted in imported.targets:
        wanted, number = f"{wanted.rsplit('--', 1)[0]}--{number}", number + 1
    imported.targets[wanted] = target


_WHY = {
    "prompts": "cases are for every target: import a configuration for each, or choose cases by their tags prompt:...",
    "transform": "it is a program: only a path in its config's transformResponse has a counterpart",
    "delay": "how fast a target is asked is said in the targets file",
    "env": "variables of the environment are set where the worker starts",
}


def _settings(imported: Imported, provider: Any, where: str, name: str) -> None:
    """Note what stands beside a provider's configuration."""
    if not isinstance(provider, Mapping):
        return
    inner = provider if isinstance(provider.get("id"), str) else next(iter(provider.values()), None)
    for key in sorted(set(map(str, inner)) - {"id", "label", "config"}) if isinstance(inner, Mapping) else ():
        imported.note("none", where, f"{name}: {key}", _WHY.get(key, "evalq's targets have no such key"))


def _reason(name: str) -> str:
    if name == "echo":
        return "it answers with its prompt; no target is needed for outputs that are recorded"
    if name.startswith(_PROGRAMS):
        return "it runs a program, which no import sets up: write a target of kind command or python for it"
    return "evalq has no kind of target that speaks to it: write a target for it (see docs/reference/targets.md)"


def _chat(imported: Imported, name: str, config: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    parts = name.split(":")
    service = parts[0]
    if service == "openai" and len(parts) >= 2 and parts[1] not in ("chat", "embedding", "moderation", "image"):
        # `openai:gpt-4o`; other words there name other interfaces.
        model = ":".join(parts[1:]) if parts[1] not in _INTERFACES else ""
    elif service in ("openai", *_LOCAL) and len(parts) >= 3 and parts[1] == "chat":
        model = ":".join(parts[2:])
    else:
        return None
    if not model:
        return None
    base = _base(service, config)
    target: dict[str, Any] = {"kind": "openai", "base_url": base, "model": model}
    key = config.get("apiKeyEnvar")
    if isinstance(key, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
        target["api_key_env"] = key
    elif service == "openai":
        target["api_key_env"] = "OPENAI_API_KEY"
    options = {option: config[option] for option in _REQUEST if option in config}
    if options:
        target["options"] = options
    _leftovers(imported, config, {*_REQUEST, "apiBaseUrl", "apiHost", "apiKeyEnvar"}, where, name)
    return target


_INTERFACES = (
    "completion",
    "responses",
    "assistant",
    "realtime",
    "transcription",
    "speech",
    "agents",
    "video",
    "chatkit",
)


def _base(service: str, config: Mapping[str, Any]) -> str:
    base = config.get("apiBaseUrl")
    if isinstance(base, str) and base.startswith(("http://", "https://")):
        return base.rstrip("/")
    host = config.get("apiHost")
    if isinstance(host, str) and re.fullmatch(r"[\w.:-]+", host):
        return f"https://{host}/v1"
    return _LOCAL.get(service, "https://api.openai.com/v1")


def _http(imported: Imported, name: str, config: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    url = config.get("url") if name in ("http", "https") else name
    body = config.get("body")
    if not isinstance(url, str) or not _plain(url) or str(config.get("method", "POST")).upper() != "POST":
        return None
    if not isinstance(body, dict | list):
        return None
    target: dict[str, Any] = {"kind": "http", "url": url, "body": _filled(body)}
    answer = config.get("transformResponse", config.get("responseParser"))
    found = _PATH.match(answer.strip()) if isinstance(answer, str) else None
    if found:
        target["answer"] = found[1].removeprefix(".")
    elif answer is not None:
        imported.note("none", where, f"{name}: transformResponse", "only a path such as json.answer has a counterpart")
    headers = config.get("headers")
    for header, value in (headers if isinstance(headers, Mapping) else {}).items():
        variable = _ENVIRONMENT.match(str(value).strip())
        if variable and "api_key_env" not in target:
            target |= {"api_key_env": variable[1]}
            if str(header).lower() != "authorization":
                target["api_key_header"] = str(header)
        elif str(header).lower() not in ("content-type", "accept"):
            imported.note("none", where, f"{name}: header {header}", "it may hold a secret: write it by hand")
    _leftovers(
        imported, config, {"url", "body", "method", "headers", "transformResponse", "responseParser"}, where, name
    )
    return target


def _plain(url: str) -> bool:
    """Whether it is a URL without what may be secret of it, and without a template."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and not parts.query and "@" not in parts.netloc and "{{" not in url


def _filled(body: Any) -> Any:
    """The body with evalq's placeholder for the prompt."""
    if isinstance(body, str):
        return re.sub(r"\{\{\s*prompt\s*(?:\|\s*dump\s*)?\}\}", "{prompt}", body)
    if isinstance(body, dict):
        return {key: _filled(value) for key, value in body.items()}
    if isinstance(body, list):
        return [_filled(value) for value in body]
    return body


def _leftovers(imported: Imported, config: Mapping[str, Any], known: set[str], where: str, name: str) -> None:
    for key in sorted(set(map(str, config)) - known):
        why = "a key is not copied: name an environment variable" if "key" in key.lower() else "set it by hand"
        imported.note("none", where, f"{name}: {key}", why)
