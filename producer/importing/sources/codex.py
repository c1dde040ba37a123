"""Codex: the rollouts of its sessions, as JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.records.traces.conventions import decoded
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.reading import read_lines
from evalq.producer.importing.transcripts import add_transcript, nanoseconds, objects_in, span_of

_LINES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_USAGE = {"input_tokens": "input", "cached_input_tokens": "cached_input", "output_tokens": "output",
          "reasoning_output_tokens": "reasoning"}  # fmt: skip
_ABOUT = ("<environment_context>", "<user_instructions>", "<permissions", "# AGENTS.md")
"""How messages begin that the program writes in the name of the user."""


def read(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` with the line of the session. Raises ConfigError for other files."""
    session = _Rollout(path, imported)
    for line, given in read_lines(path):
        if isinstance(given, dict) and given.get("type") in _LINES and isinstance(given.get("payload"), dict):
            session.add(given["type"], given["payload"], nanoseconds(given.get("timestamp")), f"{path}:{line}")
    if not session.messages:
        raise ConfigError(f"{path}: no session of Codex in it (its lines have timestamp, type and payload)")
    session.write()


class _Rollout:
    """The messages, calls and facts of a session."""

    def __init__(self, path: Path, imported: Imported) -> None:
        self._imported = imported
        self._name = path.name.partition(".")[0]
        self.messages: list[dict[str, Any]] = []
        self._usage: dict[str, int] = {}
        self._model, self._provider = "", ""
        self._turns = 0
        self._times: list[int] = []
        self._facts: dict[str, Any] = {}

    def add(self, kind: str, payload: Mapping[str, Any], time: int, where: str) -> None:
        """Add a line."""
        self._times.append(time)
        if kind == "session_meta":
            self._name = str(payload.get("id") or self._name)
            self._provider = str(payload.get("model_provider") or "")
            self._facts |= {key: payload[key] for key in ("cwd", "cli_version", "originator", "source")
                            if isinstance(payload.get(key), str)}  # fmt: skip
            git = payload.get("git")
            if isinstance(git, dict) and isinstance(git.get("branch"), str):
                self._facts["git.branch"] = git["branch"]
        elif kind == "turn_context":
            self._model = str(payload.get("model") or self._model)
        elif kind == "event_msg":
            self._add_event(payload)
        elif kind == "compacted":
            why = "the program shortened the conversation here: what the model saw afterwards is not what is recorded"
            self._imported.note("differs", where, "compacted", why)
        else:
            self._add_item(payload, where)

    def _add_event(self, payload: Mapping[str, Any]) -> None:
        info = payload.get("info")
        if payload.get("type") == "token_count" and isinstance(info, dict):
            total = info.get("total_token_usage")
            if isinstance(total, dict):
                usage = {ours: total[theirs] for theirs, ours in _USAGE.items() if type(total.get(theirs)) is int}
                self._turns += usage != self._usage
                self._usage = usage

    def _add_item(self, item: Mapping[str, Any], where: str) -> None:
        kind, call = str(item.get("type") or ""), str(item.get("call_id") or item.get("id") or "")
        if kind == "message":
            text = "".join(str(part.get("text") or "") for part in objects_in(item.get("content")))
            role = {"developer": "system"}.get(str(item.get("role")), str(item.get("role")))
            if role in ("user", "assistant", "system"):
                role = "system" if role == "user" and text.lstrip().startswith(_ABOUT) else role
                self.messages.append({"role": role, "content": text})
        elif kind in ("function_call", "custom_tool_call", "local_shell_call", "web_search_call"):
            arguments: Any = next((item[key] for key in ("arguments", "input", "action") if key in item), {})
            data = decoded(arguments)
            name = str(item.get("name") or kind.removesuffix("_call"))
            made = {"id": call, "name": name, "arguments": data if isinstance(data, dict) else {"input": data}}
            self.messages.append({"role": "assistant", "content": "", "tool_calls": [made]})
        elif kind in ("function_call_output", "custom_tool_call_output"):
            output = decoded(item.get("output"))
            failed = isinstance(output, dict) and output.get("success") is False
            # The output of a command stands in an object with its exit code and seconds.
            facts = output.get("metadata") if isinstance(output, dict) else None
            if isinstance(facts, dict):
                failed = failed or facts.get("exit_code") not in (None, 0)
            content = output.get("output", output.get("content")) if isinstance(output, dict) else item.get("output")
            content = item.get("output") if content is None else content
            answer = {"role": "tool", "tool_call_id": call, "content": content}
            self.messages.append({**answer, "is_error": True} if failed else answer)
        elif kind != "reasoning":
            self._imported.note("none", where, kind or "an item", "evalq has no counterpart of this item")

    def write(self) -> None:
        """Add the session's line."""
        served = {"model": self._model, "provider": self._provider}
        add_transcript(
            self._imported,
            self._name,
            self.messages,
            usage=self._usage,
            served={key: value for key, value in served.items() if value},
            turns=self._turns or None,
            session=self._name,
            extra=self._facts,
            **span_of(self._times),
        )
