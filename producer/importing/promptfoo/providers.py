"""promptfoo's providers as targets, where one of evalq's kinds makes the same calls.

No key is ever copied. Each target has the address and the key's variable that the configuration gives it, and a note
says which variable goes to which host. What cannot be read as an address is no target: it never becomes another one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from evalq.producer.importing.imported import Imported
from evalq.producer.importing.promptfoo.texts import slug

__all__ = ["add_target", "harmless_name", "provider_name"]

_LOCAL = {
    "ollama": "http://127.0.0.1:11434/v1",
    "vllm": "http://127.0.0.1:8000/v1",
    "llamafile": "http://127.0.0.1:8080/v1",
}
_SERVICES = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "deepseek": ("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "perplexity": ("https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
    "cerebras": ("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "togetherai": ("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "xai": ("https://api.x.ai/v1", "XAI_API_KEY"),
}
"""Services that speak chat completions: their own address, and the variable that promptfoo reads their key from."""
_REQUEST = ("temperature", "max_tokens", "top_p", "seed", "stop", "frequency_penalty", "presence_penalty")
_TEMPLATE = re.compile(r"\{\{|\{%|\{#|\$\{")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(:\d{1,5})?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENVIRONMENT = re.compile(r"^(?P<bearer>Bearer\s+)?\{\{\s*env\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*\}\}$")
_PROMPT = re.compile(r"\{\{\s*prompt\s*\}\}")
_DUMPED = re.compile(r"\{\{\s*prompt\s*(?:\|\s*dump\s*)?\}\}")
_PLACEHOLDER = re.compile(r"(?<!\{)\{(?:prompt|agent|case|repeat|messages)\}(?!\})")
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


class _NoTarget(ValueError):
    """A provider that no target can stand for; the message says why."""


def add_target(imported: Imported, provider: Any, where: str) -> None:
    """Add the target that ``provider`` is, or note why there is none; the cases are there already.

    What a body of kind http sends for a prompt depends on them.
    """
    given, label, config = provider_name(provider)
    name = harmless_name(given)
    _settings(imported, provider, where, name)
    try:
        target = _chat(imported, given, config, where) or _http(imported, given, config, where)
        if target is None:
            raise _NoTarget(_reason(name))
        _refuse_templates(target)
    except _NoTarget as error:
        imported.note("none", where, name or "a provider", str(error))
        return
    if "api_key_env" in target:
        host = urlsplit(target.get("base_url") or target["url"]).netloc
        header = target.get("api_key_header", "Authorization")
        why = f"sent to {host} in the header {header}, as the configuration says: use the file only if that is meant"
        imported.note("key", where, f"{name}: the value of ${target['api_key_env']}", why)
    # What promptfoo checks is text.
    target["output"] = "text"
    wanted = re.sub(r"[^A-Za-z0-9._-]+", "-", slug(harmless_name(label) or name)).strip("-.")[:60] or "target"
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


def harmless_name(name: str) -> str:
    """A provider's name for notes: of a URL nothing that may be secret."""
    if "://" not in name:
        return name
    scheme, _, rest = name.partition("://")
    path = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, tail = path.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{tail}"


def _refuse_templates(target: Any) -> None:
    """Raise _NoTarget where a template is left: evalq would send it as it stands, or call another address by it."""
    if isinstance(target, str):
        if _TEMPLATE.search(target):
            raise _NoTarget(f"it has a template that evalq does not fill in, {target[:60]!r}: write the target by hand")
    elif isinstance(target, Mapping):
        for key, value in target.items():
            _refuse_templates(key)
            _refuse_templates(value)
    elif isinstance(target, list):
        for value in target:
            _refuse_templates(value)


def _address(given: object, what: str) -> str:
    """An address without a user, a password or a query. Raises _NoTarget for what is none."""
    if not isinstance(given, str) or _TEMPLATE.search(given):
        told = given if isinstance(given, str) else type(given).__name__
        raise _NoTarget(f"its {what} is {told[:60]!r}, which only promptfoo can fill in: write the target by hand")
    try:
        parts = urlsplit(given.strip())
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise _NoTarget(
            f"its {what} {harmless_name(given)[:60]!r} is no address with http:// or https://: write it by hand"
        )
    if not _HOST.fullmatch(parts.netloc.rpartition("@")[2]):
        raise _NoTarget(f"its {what} has a host that evalq does not read: write the target by hand")
    return given.strip()


def _without_secrets(imported: Imported, given: str, where: str, name: str) -> str:
    """``given`` without what may be secret in it, which is noted."""
    parts = urlsplit(given)
    if "@" in parts.netloc or parts.query or parts.fragment:
        left = "user, password, query and fragment of an address are not copied: name a variable for the key"
        imported.note("none", where, f"{name}: a part of its address", left)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def _chat(imported: Imported, name: str, config: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    parts = name.split(":")
    service = parts[0]
    if service in _SERVICES and len(parts) >= 2 and parts[1] != "chat":
        # `openai:gpt-4o`; other words there name other interfaces.
        model = ":".join(parts[1:]) if parts[1] not in _INTERFACES else ""
    elif service in (*_SERVICES, *_LOCAL) and len(parts) >= 3 and parts[1] == "chat":
        model = ":".join(parts[2:])
    else:
        return None
    if not model:
        return None
    shown = harmless_name(name)
    base, is_default = _base(service, config)
    target: dict[str, Any] = {
        "kind": "openai",
        "base_url": _without_secrets(imported, base, where, shown),
        "model": model,
    }
    key = config.get("apiKeyEnvar")
    if isinstance(key, str) and _VARIABLE.fullmatch(key):
        target["api_key_env"] = key
    elif key is not None:
        why = "it is no name of a variable: set api_key_env by hand"
        imported.note("none", where, f"{shown}: apiKeyEnvar", why)
    elif service in _SERVICES and is_default:
        target["api_key_env"] = _SERVICES[service][1]
    elif service in _SERVICES:
        variable = _SERVICES[service][1]
        why = f"no variable is named for this address, where promptfoo sends ${variable}: set api_key_env by hand"
        imported.note("none", where, f"{shown}: its key", why)
    options = {option: config[option] for option in _REQUEST if option in config}
    if options:
        target["options"] = options
    _leftovers(imported, config, {*_REQUEST, "apiBaseUrl", "apiHost", "apiKeyEnvar"}, where, shown)
    return target


_INTERFACES = (
    "embedding",
    "embeddings",
    "moderation",
    "image",
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


def _base(service: str, config: Mapping[str, Any]) -> tuple[str, bool]:
    """The address, and whether it is the service's own, which stands only where none is given. Raises _NoTarget."""
    if (base := config.get("apiBaseUrl")) not in (None, ""):
        return _address(base, "apiBaseUrl"), False
    if (host := config.get("apiHost")) not in (None, ""):
        if not isinstance(host, str) or "/" in host:
            raise _NoTarget("its apiHost is not the name of a host: write the target by hand")
        return _address(f"https://{host}/v1", "apiHost"), False
    return _LOCAL.get(service) or _SERVICES[service][0], True


def _http(imported: Imported, name: str, config: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    url = config.get("url") if name in ("http", "https") else name
    body = config.get("body")
    if name not in ("http", "https") and not name.startswith(("http://", "https://")):
        return None
    shown = harmless_name(name)
    url = _address(url, "url")
    parts = urlsplit(url)
    if parts.query or "@" in parts.netloc:
        raise _NoTarget("its address has a user, a password or a query, which may be secret: write the target by hand")
    if str(config.get("method", "POST")).upper() != "POST":
        raise _NoTarget("evalq posts its calls, and it asks by another method")
    if not isinstance(body, dict | list):
        raise _NoTarget("its body is no JSON: write a target of kind http for it (see docs/reference/targets.md)")
    changed = sorted(set(config) & _CHANGES)
    if changed:
        raise _NoTarget(f"its {changed[0]} changes the request, and evalq has no such key: write the target by hand")
    target: dict[str, Any] = {"kind": "http", "url": url, "body": _filled(body, _prompt_of(imported))}
    answer = config.get("transformResponse", config.get("responseParser"))
    found = _PATH.match(answer.strip()) if isinstance(answer, str) else None
    if found:
        target["answer"] = found[1].removeprefix(".")
    elif answer is not None:
        imported.note("none", where, f"{shown}: transformResponse", "only a path such as json.answer has a counterpart")
    headers = config.get("headers")
    for header, value in (headers if isinstance(headers, Mapping) else {}).items():
        variable = _ENVIRONMENT.match(str(value).strip())
        if variable and "api_key_env" not in target:
            target |= {"api_key_env": variable["name"]}
            # evalq puts it before the key in this header, and in no other.
            if bool(variable["bearer"]) != (str(header).lower() == "authorization"):
                there = "with" if variable["bearer"] else "without"
                raise _NoTarget(f"its header {header} has the key {there} Bearer before it: write the target by hand")
            if str(header).lower() != "authorization":
                target["api_key_header"] = str(header)
        elif str(header).lower() not in ("content-type", "accept"):
            imported.note("none", where, f"{shown}: header {header}", "it may hold a secret: write it by hand")
    _leftovers(
        imported, config, {"url", "body", "method", "headers", "transformResponse", "responseParser"}, where, shown
    )
    return target


_CHANGES = {
    *("request", "queryParams", "transformRequest", "auth", "signatureAuth", "session", "multipart", "contentType"),
}
"""Keys of the configuration by which another request is sent."""


def _prompt_of(imported: Imported) -> str:
    """The placeholder of a text that is {{prompt}} alone; "" where the cases are not all of one kind.

    promptfoo sends such a text as data where it is JSON: a chat stays a list of messages.
    """
    kinds = {_kind_of(case.get("input")) for case in imported.cases}
    if kinds == {"chat"}:
        return "{messages}"
    return "{prompt}" if kinds <= {"text"} else ""


def _kind_of(given: Any) -> str:
    if not isinstance(given, str):
        return "chat" if isinstance(given, list) else "data"
    try:
        json.loads(given)
    except (ValueError, RecursionError):
        return "text"
    return "data"


def _filled(body: Any, alone: str) -> Any:
    """The body with evalq's placeholders for the prompt; ``alone`` is that of a text of nothing else."""
    if isinstance(body, str):
        if _PLACEHOLDER.search(body):
            raise _NoTarget(f"its body has {body[:60]!r}, where evalq would fill in a call: write the target by hand")
        if _PROMPT.fullmatch(body.strip()):
            if not alone:
                why = "chats and texts, or texts that are JSON, are among its prompts, and promptfoo sends each as data"
                raise _NoTarget(f"{why}: import them apart")
            # Space around a chat is none of its JSON; around a text it is sent.
            return alone if alone != "{prompt}" else _DUMPED.sub(alone, body)
        return _DUMPED.sub("{prompt}", body)
    if isinstance(body, dict):
        return {key: _filled(value, alone) for key, value in body.items()}
    if isinstance(body, list):
        return [_filled(value, alone) for value in body]
    return body


def _leftovers(imported: Imported, config: Mapping[str, Any], known: set[str], where: str, name: str) -> None:
    for key in sorted(set(map(str, config)) - known):
        why = "a key is not copied: name an environment variable" if "key" in key.lower() else "set it by hand"
        imported.note("none", where, f"{name}: {key}", why)
