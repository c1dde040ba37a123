"""promptfoo's providers as targets, if one of evalq's kinds makes the same calls.

The import copies no key. Each target gets the address and the key's variable from the configuration, and a note says
which variable goes to which host. A provider whose address cannot be read gets no target, never another address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from evalq.producer.importing.imported import Imported
from evalq.producer.importing.promptfoo.texts import PLACEHOLDER, NoText, rendered, slug

# For all kinds of targets: addresses without secrets, and notes on settings that are not imported.

TEMPLATE = re.compile(r"\{\{|\{%|\{#|\$\{")
"""The beginning of one of promptfoo's templates."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(:\d{1,5})?")


class NoTarget(ValueError):
    """A provider that cannot become a target; the message says why."""


def harmless_name(name: str) -> str:
    """A provider's name for notes; a URL is shortened to the parts that are not secret."""
    if "://" not in name:
        return name
    scheme, _, rest = name.partition("://")
    path = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, tail = path.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{tail}"


def _address(given: object, what: str) -> str:
    """``given`` as an http(s) address. Raises NoTarget if it is not one; messages call it ``what``."""
    if not isinstance(given, str) or TEMPLATE.search(given):
        shown = given if isinstance(given, str) else type(given).__name__
        raise NoTarget(f"its {what} is {shown[:60]!r}, which only promptfoo can fill in: write the target by hand")
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


def _without_secrets(imported: Imported, given: str, where: str, name: str) -> str:
    """The address ``given`` without the parts that may be secret; adds a note if there are any."""
    parts = urlsplit(given)
    if "@" in parts.netloc or parts.query or parts.fragment:
        left = "user, password, query and fragment of an address are not copied: name a variable for the key"
        imported.note("none", where, f"{name}: a part of its address", left)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def _leftovers(imported: Imported, config: Mapping[str, Any], known: set[str], where: str, name: str) -> None:
    for key in sorted(set(map(str, config)) - known):
        why = "a key is not copied: name an environment variable" if "key" in key.lower() else "set it by hand"
        imported.note("none", where, f"{name}: {key}", why)


# promptfoo's `http` provider as a target of kind http, if evalq can send the same request for every case.
# promptfoo fills the body's templates with the variables of each test; evalq fills in only the prompt. So two kinds of
# variables have a counterpart. One that is equal in all cases becomes its text. One that is the whole prompt of each
# case becomes {prompt}. A string of the body that is JSON of a list or an object after filling becomes data.

Variables = Sequence[Mapping[str, Any]]
"""The variables of each case of an import."""

_ENVIRONMENT = re.compile(r"^(?P<bearer>Bearer\s+)?\{\{\s*env\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*\}\}$")
_OURS = re.compile(r"(?<!\{)\{(?:prompt|agent|case|repeat|messages)\}(?!\})")
_PATH = re.compile(r"^json((?:\.[A-Za-z_][\w]*|\[\d+\]|\[['\"][^'\"]+['\"]\])*)$")
_CHANGES = {
    *("request", "queryParams", "transformRequest", "auth", "signatureAuth", "session", "multipart", "contentType"),
    "tools",
}
"""Keys of the configuration that change the request; evalq has no counterpart for them."""
_READ = {"url", "body", "method", "headers", "transformResponse", "responseParser"}
_MOST = 100
_BY_HAND = "write the target by hand"


def _http_target(
    imported: Imported, name: str, config: Mapping[str, Any], where: str, variables: Variables
) -> dict[str, Any] | None:
    """The target for an `http` provider; None for a provider of another kind. Raises NoTarget."""
    if name not in ("http", "https") and not name.startswith(("http://", "https://")):
        return None
    shown = harmless_name(name)
    url = _address(config.get("url") or name, "url")
    parts = urlsplit(url)
    if parts.query or "@" in parts.netloc:
        raise NoTarget(f"its address has a user, a password or a query, which may be secret: {_BY_HAND}")
    method = config.get("method")
    if str(method).upper() != "POST":
        shown = "by GET, as promptfoo does where no method is named" if method is None else "by another method"
        raise NoTarget(f"evalq posts its calls, and it asks {shown}")
    changed = sorted(set(config) & _CHANGES)
    if changed:
        raise NoTarget(f"its {changed[0]} changes the request, and evalq has no such key: {_BY_HAND}")
    given = config.get("headers")
    headers = given if isinstance(given, Mapping) else {}
    body = _HttpBody([case.get("input") for case in imported.cases], variables).made(config.get("body"), headers)
    target: dict[str, Any] = {"kind": "http", "url": url, "body": body}
    answer = config.get("transformResponse", config.get("responseParser"))
    found = _PATH.match(answer.strip()) if isinstance(answer, str) else None
    if found:
        target["answer"] = found[1].removeprefix(".")
    elif answer is not None:
        imported.note("none", where, f"{shown}: transformResponse", "only a path such as json.answer has a counterpart")
    for header, value in headers.items():
        _header(
            target, str(header), str(value), lambda what, why: imported.note("none", where, f"{shown}: {what}", why)
        )
    _leftovers(imported, config, _READ, where, shown)
    return target


def _header(target: dict[str, Any], header: str, value: str, note: Callable[[str, str], None]) -> None:
    """Add a header to the target, or note that it is not imported. Raises NoTarget."""
    variable = _ENVIRONMENT.match(value.strip())
    name = header.lower()
    if variable and "api_key_env" not in target:
        target["api_key_env"] = variable["name"]
        # evalq puts "Bearer" before the key in the header Authorization, and in no other.
        if bool(variable["bearer"]) != (name == "authorization"):
            there = "with" if variable["bearer"] else "without"
            raise NoTarget(f"its header {header} has the key {there} Bearer before it: {_BY_HAND}")
        if name != "authorization":
            target["api_key_header"] = header
    elif name == "accept" and not PLACEHOLDER.search(value):
        target["headers"] = {header: value}
    elif name != "content-type":
        note(f"header {header}", "it may hold a secret: write it by hand")


class _HttpBody:
    """Turns a promptfoo body into evalq's template, given the inputs and the variables of all cases."""

    def __init__(self, inputs: Sequence[Any], variables: Variables) -> None:
        self._inputs, self._variables = inputs, variables
        kinds = {_kind_of(each) for each in inputs}
        self._alone = "{messages}" if kinds == {"chat"} else "{prompt}" if kinds <= {"text"} else ""
        self._texts = kinds <= {"text"}
        self._known: dict[str, str | None] = {}

    def made(self, body: Any, headers: Mapping[str, Any]) -> Any:
        """evalq's template for the body. Raises NoTarget."""
        if isinstance(body, dict | list):
            return self._inside(body)
        shown = " ".join(str(value) for name, value in headers.items() if str(name).lower() == "content-type")
        if not isinstance(body, str) or "application/json" not in shown.lower():
            why = "no Content-Type says that it is" if isinstance(body, str) else "evalq posts nothing else"
            raise NoTarget(f"its body is no JSON, or {why}: write a target of kind http for it")
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            return self._of_text(body)
        if not isinstance(data, dict | list):
            raise NoTarget(f"its body is a single value: {_BY_HAND}")
        return self._inside(data)

    def _inside(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._leaf(value)
        if isinstance(value, dict):
            return {key: self._inside(each) for key, each in value.items()}
        return [self._inside(each) for each in value] if isinstance(value, list) else value

    def _leaf(self, text: str) -> Any:
        """The counterpart of one string inside the body. Raises NoTarget."""
        self._refuse_ours(text)
        if self._is_prompt(text.strip()):
            if not self._alone:
                why = "chats and texts, or texts that are JSON, are among its prompts, and promptfoo sends each as data"
                raise NoTarget(f"{why}: import them apart")
            # White space around a chat is not part of its JSON; around a text it is sent.
            return self._alone if self._alone != "{prompt}" else text.replace(text.strip(), "{prompt}")
        filled = PLACEHOLDER.sub(self._in_text, text)
        return filled if "{prompt}" in filled else _data(filled)

    def _is_prompt(self, text: str) -> bool:
        """Whether ``text`` is exactly one placeholder, and stands for the prompt."""
        found = PLACEHOLDER.fullmatch(text)
        return found is not None and self._stands_for(found) is None

    def _in_text(self, found: re.Match[str]) -> str:
        """The counterpart of a placeholder inside other text. Raises NoTarget."""
        constant = self._stands_for(found)
        if constant is None and not self._texts:
            raise NoTarget(f"its body has a chat, or JSON, within other text, which promptfoo indents: {_BY_HAND}")
        return "{prompt}" if constant is None else constant

    def _stands_for(self, found: re.Match[str]) -> str | None:
        """The placeholder's text if it is equal in all cases, None if it is the prompt of each. Raises NoTarget."""
        if found["path"] == "prompt" and not found["dump"]:
            return None
        if found[0] not in self._known:
            if len(self._known) >= _MOST:
                raise NoTarget(f"its body has more than {_MOST} variables: {_BY_HAND}")
            self._known[found[0]] = self._text_of(found)
        return self._known[found[0]]

    def _text_of(self, found: re.Match[str]) -> str | None:
        shown = found[0][:60]
        name = re.split(r"[.\[]", found["path"], maxsplit=1)[0]
        if not self._variables or any(name not in each for each in self._variables) or name == "env":
            raise NoTarget(f"its body has {shown!r}, which is no variable of every case: {_BY_HAND}")
        try:
            texts = [rendered(found[0], each) for each in self._variables]
        except NoText as error:
            raise NoTarget(f"its body has {shown!r}: {error}") from None
        if all(text == texts[0] for text in texts):
            self._refuse_ours(texts[0])
            return texts[0]
        if texts == list(self._inputs):
            return None
        raise NoTarget(
            f"its body has {shown!r}, which is not the same in all cases; evalq fills in the prompt alone: {_BY_HAND}"
        )

    def _refuse_ours(self, text: str) -> None:
        if _OURS.search(text):
            raise NoTarget(f"its body has {text[:60]!r}, where evalq would fill in a call: {_BY_HAND}")

    def _of_text(self, body: str) -> Any:
        """The template for a body that is JSON only when filled: with `| dump`, numbers or chats outside of quotes."""
        self._refuse_ours(body)
        made, at, quoted = "", 0, False
        for found in PLACEHOLDER.finditer(body):
            between = body[at : found.start()]
            quoted ^= len(re.findall(r'(?<!\\)(?:\\\\)*"', between)) % 2 == 1
            made += between + (self._quoted(found, body) if quoted else self._bare(found))
            at = found.end()
        made += body[at:]
        try:
            data = json.loads(made)
        except (ValueError, RecursionError):
            raise NoTarget(f"its body is no JSON with its variables filled in: {_BY_HAND}") from None
        if not isinstance(data, dict | list):
            raise NoTarget(f"its body is a single value: {_BY_HAND}")
        return data

    def _bare(self, found: re.Match[str]) -> str:
        """The counterpart, as JSON, of a placeholder outside of quotes."""
        if found["path"] == "prompt":
            if found["dump"] and self._texts:
                return '"{prompt}"'
            if not found["dump"] and self._alone == "{messages}":
                return '"{messages}"'
            raise NoTarget(
                f"its body has {found[0]!r} outside of quotes, and its prompts are not all alike: {_BY_HAND}"
            )
        constant = self._stands_for(found)
        if constant is not None:
            return constant
        if not found["dump"]:
            raise NoTarget(f"its body has {found[0]!r} outside of quotes: {_BY_HAND}")
        return '"{prompt}"'

    def _quoted(self, found: re.Match[str], body: str) -> str:
        """The counterpart of a placeholder inside quotes, where promptfoo inserts the text and then parses JSON."""
        constant = self._stands_for(found)
        values = [constant] if constant is not None else list(self._inputs)
        if found["dump"] or any(not isinstance(each, str) or re.search(r'["\\\x00-\x1f]', each) for each in values):
            raise NoTarget(f"its body has {found[0]!r} within quotes, and a text that JSON escapes: {_BY_HAND}")
        return constant if constant is not None else "{prompt}"


def _kind_of(given: Any) -> str:
    """The kind of an input that fills a whole string of a body: "chat", "data" or "text"."""
    if not isinstance(given, str):
        return "chat" if isinstance(given, list) else "data"
    return "text" if _data(given) is given else "data"


def _data(text: str) -> Any:
    """``text`` decoded, if it is JSON of a list or an object; else ``text`` itself."""
    if not text.strip().startswith(("{", "[")):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict | list) else text


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
    "google": ("https://generativelanguage.googleapis.com", "GEMINI_API_KEY"),
    "anthropic": ("https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    "xai": ("https://api.x.ai/v1", "XAI_API_KEY"),
}
"""Services, most with OpenAI's chat completions: their address, and the variable that has promptfoo's key."""
_REQUEST = ("temperature", "max_tokens", "top_p", "seed", "stop", "frequency_penalty", "presence_penalty")
_PLAIN = ("max_completion_tokens", "reasoning_effort", "tool_choice", "service_tier", "user")
_DATA = ("response_format", "tools")
"""Members that are data; as text they name a file."""
_REASONING = re.compile(r"(?:^|/)(?:ft:)?(?:o1|o3|o4|gpt-5)")
"""OpenAI's reasoning models."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROGRAMS = ("exec:", "file://", "python:", "golang:", "ruby:", "package:", "mcp:", "browser", "webhook:")


def _provider_name(provider: Any) -> tuple[str, str, Mapping[str, Any]]:
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
    """Add the target of ``provider``, or note why there is none, after all cases are added.

    A body of kind http depends on the cases, and on the ``variables`` of each.
    """
    given, label, config = _provider_name(provider)
    name = harmless_name(given)
    _settings(imported, provider, where, name)
    try:
        target = _model(imported, given, config, where) or _http_target(imported, given, config, where, variables)
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
    "delay": "the targets file sets the rate of calls",
    "env": "variables of the environment are set where the worker starts",
}


def _settings(imported: Imported, provider: Any, where: str, name: str) -> None:
    """Add notes on keys beside a provider's configuration."""
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


def _model(imported: Imported, name: str, config: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    """The target of a model's API; None for another provider. Raises NoTarget."""
    parts = name.split(":")
    service, rest = parts[0], parts[2:]
    kind, model, options = "openai", ":".join(rest), dict[str, Any]()
    if parts[:2] == ["openai", "responses"]:
        kind, options = "responses", _responses_options(model, config)
    elif service == "anthropic" and len(parts) >= 2 and (parts[1] == "messages" or parts[1].startswith("claude-")):
        model = model if parts[1] == "messages" else parts[1]
        kind, options = "anthropic", _messages_options(model, config)
    elif service == "google" and len(parts) == 2 and parts[1].startswith("gemini-"):
        kind, model, options = "gemini", parts[1], _gemini_options(parts[1], config)
    elif (chat := _chat_model(parts)) is not None:
        model, options = chat, _options(service, chat, config)
    else:
        return None
    if not model:
        return None
    shown = harmless_name(name)
    base, is_default = _base(service, config)
    target: dict[str, Any] = {
        "kind": kind,
        "base_url": _without_secrets(imported, base, where, shown),
        "model": model,
    }
    _add_key(imported, target, service, config, is_default, where, shown)
    if kind == "anthropic":
        # The version that promptfoo's package speaks.
        target |= {"max_tokens": options.pop("max_tokens"), "api_version": "2023-06-01"}
    if kind == "gemini":
        target["api_version"] = str(config.get("apiVersion") or "v1beta")
    if options:
        target["options"] = options
    known = {*_REQUEST, *options, "apiBaseUrl", "apiHost", "apiKeyEnvar", "omitDefaults"}
    if kind == "gemini":
        known |= {"generationConfig", "apiVersion"}
    if kind == "responses":
        known |= {"max_output_tokens", "instructions", "response_format", "reasoning", "verbosity"}
    _leftovers(imported, config, known, where, shown)
    return target


def _chat_model(parts: list[str]) -> str | None:
    """The model of a service with chat completions; None for another provider, empty for one without a model."""
    service = parts[0]
    if service in ("anthropic", "google"):
        return None
    if service in _SERVICES and len(parts) >= 2 and parts[1] != "chat":
        # `openai:gpt-4o`; other words there name other interfaces.
        return ":".join(parts[1:]) if parts[1] not in _INTERFACES else ""
    if service in (*_SERVICES, *_LOCAL) and len(parts) >= 3 and parts[1] == "chat":
        return ":".join(parts[2:])
    return None


def _add_key(
    imported: Imported,
    target: dict[str, Any],
    service: str,
    config: Mapping[str, Any],
    is_default: bool,
    where: str,
    shown: str,
) -> None:
    """Add the variable from which the key is read, or note why there is none."""
    key, variable = config.get("apiKeyEnvar"), _SERVICES.get(service, ("", ""))[1]
    if isinstance(key, str) and _VARIABLE.fullmatch(key):
        target["api_key_env"] = key
    elif key is not None:
        why = "it is no name of a variable: set api_key_env by hand"
        imported.note("none", where, f"{shown}: apiKeyEnvar", why)
    elif service in _SERVICES and is_default:
        target["api_key_env"] = variable
    elif service in _SERVICES:
        why = f"no variable is named for this address, where promptfoo sends ${variable}: set api_key_env by hand"
        imported.note("none", where, f"{shown}: its key", why)


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


def _responses_options(model: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The same for OpenAI's Responses."""
    names = ("max_output_tokens", "instructions", "top_p", "tool_choice", "max_tool_calls", "truncation", "metadata")
    given = {option: config[option] for option in (*names, "user", "service_tier", "parallel_tool_calls", "store")
             if config.get(option) is not None}  # fmt: skip
    if isinstance(config.get("tools"), list):
        given["tools"] = config["tools"]
    wanted = config.get("response_format")
    form: dict[str, Any] = {"type": "text"}
    if isinstance(wanted, Mapping) and wanted.get("type") == "json_object":
        form = {"type": "json_object"}
    elif isinstance(wanted, Mapping) and wanted.get("type") == "json_schema":
        held = wanted["json_schema"] if isinstance(wanted.get("json_schema"), Mapping) else {}
        name = held.get("name") or wanted.get("name") or "response_schema"
        form = {"type": "json_schema", "name": name, "schema": wanted.get("schema") or held.get("schema"),
                "strict": True}  # fmt: skip
    given["text"] = {"format": form}
    if _REASONING.search(model):
        reasoning = config["reasoning"] if isinstance(config.get("reasoning"), Mapping) else {}
        effort = {"effort": config["reasoning_effort"]} if config.get("reasoning_effort") else {}
        return {**given, **({"reasoning": {**effort, **reasoning}} if effort or reasoning else {})}
    defaults = {} if config.get("omitDefaults") is True else {"max_output_tokens": 1024, "temperature": 0}
    return {**defaults, **given, **{key: config[key] for key in ("temperature",) if config.get(key) is not None}}


_NO_TEMPERATURE = re.compile(r"claude-(?:opus-4-[78](?!\d)|(?:opus|sonnet|fable|mythos)-5(?!\w))")
_OF_LATER_GENERATIONS = re.compile(r"claude-(?:[a-z]\w*-)+(?:[5-9]|[1-9]\d)(?!\w)")
"""Claude models that refuse a temperature: promptfoo sends none, and to the others only at Anthropic's own address."""
_THINKS = re.compile(r"claude-(?:opus|sonnet|fable|mythos)-5(?!\w)")
"""Those that think unless they are asked not to: promptfoo allows them more tokens."""


def _messages_options(model: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The same for Anthropic's Messages. Raises NoTarget for thinking, which changes what is sent in many ways."""
    if config.get("thinking") is not None or config.get("effort") is not None:
        raise NoTarget("promptfoo changes its request with thinking and effort: write the target by hand")
    names = ("stop_sequences", "metadata", "service_tier", "cache_control")
    given = {option: config[option] for option in names if config.get(option)}
    if isinstance(config.get("tools"), list):
        raise NoTarget("promptfoo rewrites the tools of such a provider: write the target by hand")
    most = config.get("max_tokens")
    given["max_tokens"] = (2048 if _THINKS.search(model) else 1024) if most is None else most
    own = config.get("apiBaseUrl") in (None, "")
    if _NO_TEMPERATURE.search(model) or (own and _OF_LATER_GENERATIONS.search(model)):
        return given
    sampling = {option: config[option] for option in ("top_p", "top_k") if config.get(option) is not None}
    if "top_p" not in sampling:
        sampling["temperature"] = 0 if config.get("temperature") is None else config["temperature"]
    return {**given, **sampling}


def _gemini_options(model: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The same for Gemini's generateContent. Raises NoTarget for what promptfoo changes by tables of its own."""
    sampling = ("temperature", "topP", "topK")
    if "flash" in model and any(config.get(name) is not None for name in sampling):
        raise NoTarget("promptfoo sends sampling to some Flash models and not to others: write the target by hand")
    for name in ("tools", "toolConfig", "systemInstruction", "responseSchema", "passthrough", "safetySettings"):
        if config.get(name):
            raise NoTarget(f"promptfoo rewrites {name}: write the target by hand")
    names = (*sampling, "stopSequences", "maxOutputTokens")
    given = {name: config[name] for name in names if config.get(name) is not None}
    more = config.get("generationConfig")
    return {**given, **more} if isinstance(more, Mapping) else given


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
        return _address(base, "apiBaseUrl"), False
    if (host := config.get("apiHost")) not in (None, ""):
        if not isinstance(host, str) or "/" in host:
            raise NoTarget("its apiHost is not the name of a host: write the target by hand")
        return _address(f"https://{host}/v1", "apiHost"), False
    return _LOCAL.get(service) or _SERVICES[service][0], True
