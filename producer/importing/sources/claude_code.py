"""Claude Code: the transcripts of its sessions, as JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.records.traces.conventions import finish_of
from evalq.evalcore.records.usage import token_parts
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.reading import read_lines
from evalq.producer.importing.transcripts import add_transcript, nanoseconds, span_of, summed

_SPOKEN = ("user", "assistant")


def read(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` with a line for each session in the file. Raises ConfigError for other files."""
    sessions: dict[str, _Session] = {}
    for line, given in read_lines(path):
        if not isinstance(given, dict) or not isinstance(given.get("type"), str):
            continue
        name = given.get("sessionId")
        if given["type"] in _SPOKEN and isinstance(name, str) and isinstance(given.get("message"), dict):
            sessions.setdefault(name, _Session()).add(given, f"{path}:{line}", imported)
    if not sessions:
        raise ConfigError(f"{path}: no session of Claude Code in it (its lines have type, sessionId and message)")
    for name, session in sessions.items():
        session.write(name, imported)


class _Session:
    """The messages of a session. One reply of a model stands on several lines, of one message id."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._replies: dict[str, dict[str, Any]] = {}
        self._usages: dict[str, Mapping[str, Any]] = {}
        self._times: list[int] = []
        self._seen: set[str] = set()
        self._facts: dict[str, Any] = {}
        self._last: Mapping[str, Any] = {}

    def add(self, line: Mapping[str, Any], where: str, imported: Imported) -> None:
        """Add a line; one that was resumed stands in two files, with the same uuid."""
        identity = str(line.get("uuid") or where)
        if identity in self._seen or line.get("isMeta"):
            return
        self._seen.add(identity)
        message = line["message"]
        self._times.append(nanoseconds(line.get("timestamp")))
        for key in ("cwd", "gitBranch", "version"):
            if isinstance(line.get(key), str):
                self._facts.setdefault(key, line[key])
        if line["type"] == "assistant":
            self._add_reply(message, identity)
        if line.get("isSidechain"):
            why = "it is the conversation of a sub-agent: its tokens count, and its result is that of the call"
            imported.note("differs", where, "a sidechain", why)
            return
        content = message.get("content")
        known = self._replies.get(str(message.get("id"))) if line["type"] == "assistant" else None
        if known is not None and isinstance(known["content"], list) and isinstance(content, list):
            known["content"] += content
            return
        made = {"role": line["type"], "content": list(content) if isinstance(content, list) else content}
        self._messages.append(made)
        if line["type"] == "assistant" and message.get("id"):
            self._replies[str(message["id"])] = made

    def _add_reply(self, message: Mapping[str, Any], identity: str) -> None:
        if message.get("model") == "<synthetic>":
            return  # a notice of the program itself
        if isinstance(message.get("usage"), dict):
            self._usages[str(message.get("id") or identity)] = message["usage"]  # the last line has the whole count
        self._last = message

    def write(self, name: str, imported: Imported) -> None:
        """Add the session's line."""
        usage = summed({key: count for key, count in token_parts(each).items() if type(count) is int}
                       for each in self._usages.values())  # fmt: skip
        model = self._last.get("model")
        add_transcript(
            imported,
            name,
            self._messages,
            usage=usage,
            served={"model": model, "provider": "anthropic"} if isinstance(model, str) else None,
            turns=len(self._usages),
            finish=finish_of({}, [self._last.get("stop_reason")]),
            session=name,
            extra=self._facts,
            **span_of(self._times),
        )
