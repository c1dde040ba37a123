"""promptfoo's providers as targets, where one of evalq's kinds makes the same calls.

No key is ever copied. Each target has the address and the key's variable that the configuration gives it, and a note
says which variable goes to which host. What cannot be read as an address is no target: it never becomes another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from evalq.producer.importing.imported import Imported
from evalq.producer.importing.promptfoo.addresses import (
    TEMPLATE,
    NoTarget,
    address,
    harmless_name,
    leftovers,
    without_secrets,
)
from evalq.producer.importing.promptfoo.http_provider import Variables, http_target
from evalq.producer.importing.promptfoo.texts import slug

__all__ = ["add_target", "provider_name"]

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
_PLAIN = ("max_completion_tokens", "reasoning_effort", "tool_choice", "service_tier", "user")
_DATA = ("response_format", "tools")
"""Members that are data; as text they name a file."""
_REASONING = re.compile(r"(?:^|/)(?:ft:)?(?:o1|o3|o4|gpt-5)")
"""Models of OpenAI that think first."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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


def add_target(imported: Imported, provider: Any, where: str, variables: Variables) -> None:
    """Add the target that ``provider`` is, or note why there is none; the cases are there already.

    What a body of kind http sends depends on them, and on the ``variables`` of each.
    """
    given, label, config = provider_name(provider)
    name = harmless_name(given)
    _settings(imported, provider, where, name)
    try:
        target = _chat(imported, given, config, where) or http_target(imported, given, config, where, variables)
        if target is None:
            raise NoTarget(_reason(name))
        _refuse_templates(target)
    except NoTarget as error:
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


def _refuse_templates(target: Any) -> None:
    """Raise NoTarget where a template is left: evalq would send it as it stands, or call another address by it."""
    if isinstance(target, str):
        if TEMPLATE.search(target):
            raise NoTarget(f"it has a template that evalq does not fill in, {target[:60]!r}: write the target by hand")
    elif isinstance(target, Mapping):
        for key, value in target.items():
            _refuse_templates(key)
            _refuse_templates(value)
    elif isinstance(target, list):
        for value in target:
            _refuse_templates(value)


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
        "base_url": without_secrets(imported, base, where, shown),
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
    options = _options(service, model, config)
    if options:
        target["options"] = options
    known = {*_REQUEST, *options, "apiBaseUrl", "apiHost", "apiKeyEnvar", "omitDefaults"}
    leftovers(imported, config, known, where, shown)
    return target


def _options(service: str, model: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Members of the request beside model and messages: those that are given, and promptfoo's own defaults."""
    given = {option: config[option] for option in (*_REQUEST, *_PLAIN) if config.get(option) is not None}
    given |= {option: config[option] for option in _DATA if isinstance(config.get(option), list | dict)}
    if service == "mistral":
        return {"top_p": 1, "max_tokens": 1024, "random_seed": None, **given}
    if service in _LOCAL or config.get("omitDefaults") is True:
        return given
    if service in ("openai", "openrouter") and _REASONING.search(model):
        # These take neither: promptfoo sends none, whatever is given.
        return {option: value for option, value in given.items() if option not in ("temperature", "max_tokens")}
    given.pop("max_completion_tokens", None)
    given.pop("reasoning_effort", None)
    return {"max_tokens": 1024, "temperature": 0, **given}


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
    """The address, and whether it is the service's own, which stands only where none is given. Raises NoTarget."""
    if (base := config.get("apiBaseUrl")) not in (None, ""):
        return address(base, "apiBaseUrl"), False
    if (host := config.get("apiHost")) not in (None, ""):
        if not isinstance(host, str) or "/" in host:
            raise NoTarget("its apiHost is not the name of a host: write the target by hand")
        return address(f"https://{host}/v1", "apiHost"), False
    return _LOCAL.get(service) or _SERVICES[service][0], True
