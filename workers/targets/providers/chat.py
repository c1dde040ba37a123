"""What all kinds of models share: the keys of their entries, prompts and schemas from files, and reading replies."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from evalq.evalcore.contract.params import MAX_FILE_CHARACTERS
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.records.answers import BadAnswer, Envelope, read_envelope
from evalq.evalcore.records.finish import finish_word
from evalq.evalcore.records.json_values import NothingThere
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.workers.targets.answers import Answered, Call, Failure, begin_of
from evalq.workers.targets.events import Joined, StreamFailed
from evalq.workers.targets.http import (
    BaseUrls,
    Headers,
    PostingClient,
    bad_reply,
    fill,
    secrets_of,
    served_by,
    shown,
    usage_counts,
)
from evalq.workers.targets.providers.tools import Tools
from evalq.workers.targets.target import RequestTarget, files_of, resolved, usable_name

if TYPE_CHECKING:
    from evalq.workers.targets.web import Reply, Sign  # with httpx, which takes a while to import


class ServerTarget(RequestTarget):
    """A model behind an address."""

    base_url: BaseUrls
    model: str = Field(min_length=1, description="The model's name")
    headers: Headers = Field(default_factory=dict, description="Further headers (their values are never shown)")

    def address(self) -> str:
        """Its URL without what may be secret in it, and the model."""
        return f"{shown(self.base_url)} {self.model}"

    def secrets(self) -> Iterator[str]:
        """The secrets in its headers and URL."""
        return secrets_of(self.base_url, self.headers)


class ModelTarget(ServerTarget):
    """A model that answers a conversation."""

    keys: ClassVar[tuple[str, ...]] = ("model", "system_prompt", "json_schema")

    system_prompt: str | None = Field(
        default=None, description="A file next to or below the targets file; {agent} stands for the call's agent"
    )
    json_schema: str | None = Field(
        default=None, description="A JSON schema file to ask for, next to or below this one"
    )
    stream: bool = Field(
        default=False, description="Read the reply as a stream of events, which tells the time to the first token"
    )

    tools: Tools | None = Field(default=None, description="Tools that the model may call, and who answers its calls")

    @model_validator(mode="after")
    def _streams_by_its_key(self) -> ModelTarget:
        if "stream" in self.options:
            raise PydanticCustomError("stream", "options.stream: set the key `stream` of the target instead")
        return self

    def files(self) -> Mapping[str, str | None]:
        """The prompt and the schema."""
        return {"system_prompt": self.system_prompt, "json_schema": self.json_schema}

    def granted(self) -> tuple[str, ...]:
        """The variables of the program that answers calls of its tools."""
        return self.tools.granted() if self.tools is not None else ()

    @property
    def tool_list(self) -> list[dict[str, Any]]:
        """{name, description, parameters} of each tool."""
        return [each.model_dump() for each in self.tools.definitions] if self.tools is not None else []

    def read_schema(self, folder: Path) -> Json:
        """The JSON schema; None without one. Raises ConfigError."""
        if self.json_schema is None:
            return None
        try:
            return msgspec.json.decode(read_file(folder, self.json_schema).encode())
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(f"{self.json_schema}: json_schema is not JSON: {error}") from None

    def split_options(self, names: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The ``options`` in two parts: those of other names, and those of these ``names``."""
        of_names = {name: value for name, value in self.options.items() if name in names}
        return {name: value for name, value in self.options.items() if name not in names}, of_names


class SystemPrompts:
    """The system prompts of a target: one file, or one for each agent."""

    def __init__(self, folder: Path, pattern: str | None) -> None:
        self._folder = folder
        self._pattern = pattern
        # Read once per process: a prompt file that is edited while a sweep runs must not change half of its calls.
        self._known = cache(self._read)
        self._texts: dict[Path, str] = {}

    def load(self) -> None:
        """Read the prompts of all agents: what is recorded has the digest of those that are there now."""
        for path in files_of(self._folder, self._pattern) if self._pattern else ():
            with contextlib.suppress(ConfigError):  # a call of that agent reports it
                self._texts[resolved(path)] = read_file(self._folder, str(path))

    def of(self, call: Call) -> str:
        """The system prompt of a call, filled in; "" for a target without one. Raises ConfigError."""
        text = self._known(call.agent if "{agent}" in (self._pattern or "") else "")
        filled: str = fill(text, call.fillings()) if text else ""
        return filled

    def _read(self, agent: str) -> str:
        if self._pattern is None:
            return ""
        # An agent's name comes from a golden set: "../.." in it must not lead to another file.
        if "{agent}" in self._pattern and not usable_name(agent):
            raise ConfigError(f"system_prompt: {agent[:64]!r} cannot be an agent's name in a file name")
        file = self._pattern.replace("{agent}", agent)
        known = self._texts.get(resolved(self._folder / file))
        return read_file(self._folder, file) if known is None else known


def read_file(folder: Path, name: str) -> str:
    """A file of the targets file's folder; a link out of it does not lead there. Raises ConfigError."""
    path = resolved(folder / name)
    if not allows(Writer.CASES_FILE, Thing.PATH, path, (folder,)):
        raise ConfigError(f"{name}: not in the targets file's folder")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    if len(text) > MAX_FILE_CHARACTERS:
        raise ConfigError(f"{name}: longer than {MAX_FILE_CHARACTERS >> 20} MiB")
    return text


# -- a reply --------------------------------------------------------------------------------------------


class OtherFormat(ValueError):
    """A reply that is not the API's: some other service's JSON."""


class ModelReply(msgspec.Struct, kw_only=True):
    """What a reply of any provider says.

    ``text`` is None if the reply has no place for one. ``own`` are the parts of its message (`Answered.own`).
    ``finish`` is the provider's word. A ``refusal`` is the model's
    or the provider's reason to answer nothing. ``usage`` and ``served`` are as the reply has them.
    """

    text: str | None
    tool_calls: Any = ()
    own: Sequence[Mapping[str, Any]] = ()
    finish: str | None = None
    refusal: str = ""
    usage: Any = None
    served: Mapping[str, Any] = {}
    fault: str = ""
    """Why what the model wrote is no answer."""


class ModelClient(PostingClient):
    """Calls of a model: each kind says what it sends, and reads what comes."""

    what: ClassVar[str] = "a reply of this API"
    """What a reply is, for the message about one that is none."""

    def __init__(
        self,
        target: ModelTarget,
        folder: Path,
        urls: str | list[str],
        key: str | None,
        *,
        key_header: str = "Authorization",
        headers: Mapping[str, str] | None = None,
        sign: Sign | None = None,
    ) -> None:
        sent = {name.lower(): value for name, value in (headers or {}).items()}
        sent |= {name.lower(): value for name, value in target.headers.items()}
        super().__init__(urls, sent, key, target.max_bytes, key_header=key_header, sign=sign)
        self._prompts = SystemPrompts(folder, target.system_prompt)
        self._stream = target.stream
        self._says_calls = target.tools is not None or functions_only(target.options)

    async def open(self) -> None:
        """Read the prompts."""
        self._prompts.load()

    async def call(self, call: Call) -> Answered | Failure:
        """One answer."""
        try:
            body = self._body(self._prompts.of(call), call)
        except ConfigError as error:
            return Failure(kind="refused", reason=str(error))
        reply = await self.post(body, call.headers, self._joining if self._stream else None)
        if isinstance(reply, Failure):
            return reply
        try:
            said = self._read(reply.value)
        except (NothingThere, OtherFormat) as error:
            reason = f"not {self.what}: {error}; check base_url; the reply begins: {begin_of(reply.text)}"
            return bad_reply(reply, reason, reply.text, kind="server")
        except StreamFailed as error:
            return bad_reply(reply, error.reason, reply.text, kind=error.kind)
        result = outcome(reply, said)
        if self._says_calls and isinstance(result, Answered) and result.envelope is None:
            # That it called none of its tools is a fact: without it, no check of tool calls would have a verdict.
            told = Envelope(output=result.text, tool_calls=(), finish=result.finish_reason)
            return msgspec.structs.replace(result, envelope=told)
        return result

    def offer(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Send these tools, {name, description, parameters} each, with each call."""
        if tools:
            self._offer(tools)

    def _offer(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Put tools into what is sent. Raises ConfigError."""
        raise ConfigError("a target of this kind cannot be offered tools")

    @abstractmethod
    def _body(self, system: str, call: Call) -> dict[str, Any]:
        """The JSON to send. Raises ConfigError for what this API cannot be asked."""

    @abstractmethod
    def _read(self, value: Any) -> ModelReply:
        """What a reply says. Raises NothingThere or OtherFormat if it is not the API's, StreamFailed for an error."""

    _joining: Callable[[], Joined]
    """What joins the events of a stream into such a reply."""


def functions_only(options: Mapping[str, Any]) -> bool:
    """Whether a request's own ``options`` name tools, and all are functions, whose calls stand in the reply.

    A provider's other tools (a search, a sandbox) run there, and their calls need not be in the reply.
    """
    config = options.get("toolConfig")
    listed = (
        options.get("tools") or options.get("functions") or (config.get("tools") if isinstance(config, dict) else ())
    )
    return isinstance(listed, list) and bool(listed) and all(map(_is_function, listed))


_FUNCTIONS = ("functionDeclarations", "function_declarations", "toolSpec")
_OF_FUNCTIONS = ("function", "custom", None)
"""The types of functions, as chat completions, Responses and Messages have them."""


def _is_function(tool: Any) -> bool:
    if not isinstance(tool, Mapping) or tool.get("type") not in _OF_FUNCTIONS:
        return False
    return "name" in tool or "function" in tool or tool.keys() <= {*_FUNCTIONS}


def outcome(reply: Reply, said: ModelReply) -> Answered | Failure:
    """The answer or the failure in what a reply says."""
    finish = "refusal" if said.refusal and said.finish != "content_filter" else finish_word(said.finish)
    shared: dict[str, Any] = {
        "latency_seconds": reply.seconds,
        "first_token_seconds": reply.first_token_seconds,
        "finish_reason": finish,
        "limits": reply.limits,
        **usage_counts(reply, said.usage),
        **served_by(said.served, "model", "fingerprint", "provider"),
    }
    text = said.text if said.text is not None else reply.text
    if said.refusal or finish in ("content_filter", "refusal"):
        why = said.refusal or ("content filter" if finish == "content_filter" else "no reason given")
        return Failure(text=text, kind="refused", reason=f"the model refuses: {why[:200]}", **shared)
    try:
        envelope = _envelope(said, finish)
    except BadAnswer as error:
        return Failure(text=text, kind="bad_output", reason=f"what the model wrote cannot be read: {error}", **shared)
    if envelope is None and (said.fault or said.text is None):
        reason = said.fault or f"the answer has no text{_ended(finish)}"
        return Failure(text=text, kind="bad_output", reason=reason, **shared)
    return Answered(text=said.text or "", envelope=envelope, own=tuple(said.own), **shared)


def _ended(finish: str | None) -> str:
    return f" (it ended with: {finish})" if finish else ""


def _envelope(said: ModelReply, finish: str | None) -> Envelope | None:
    """What an answer does beside its text; None for a text alone. Raises BadAnswer."""
    if not said.tool_calls:
        return None
    return read_envelope({"output": said.text or None, "tool_calls": said.tool_calls, "finish": finish})
