"""The questions and answers of a run, read from its folder: what was asked, what came back, and what each call took.

All of it is text of others: files may be cut, changed or very large, and nothing here fails on that.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

import msgspec

from evalq.evalcore.errors import EvalqError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.calls import BY_USER, Prompt, served_text
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.manifest import input_of
from evalq.evalcore.records.inputs import Source, format_suffixes
from evalq.evalcore.views.charts import number
from evalq.producer.folder.files import ASKED, CALLS, HEAD, LINES, PROMPTS, RECORDS
from evalq.producer.folder.own_runs import may_read
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.page.conversation import (
    ShownCall,
    ShownMessage,
    as_text,
    calls_shown,
    further_facts,
    messages_shown,
)

LONGEST = 1 << 22
"""A longer line is cut here."""
_BLOCK = 1 << 20
_ATTEMPTS = 50
_READ = (ValueError, RecursionError, TypeError, AttributeError, KeyError)


class ShownQuestion(NamedTuple):
    """What a target was asked about a case: (role, text) of each message; a plain prompt has one, without a role."""

    messages: tuple[tuple[str, str], ...]


class AttemptFacts(NamedTuple):
    """One call: how it ended, and its seconds, tokens and cost as far as known; ``by`` the simulated user, perhaps."""

    ended: str
    seconds: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cost: float | None
    by: str = ""


class ShownAnswer(NamedTuple):
    """One recorded output: its text (or why there is none), its tool calls, and the attempts that it took.

    ``question`` is what its own record says that was asked, ``messages`` the conversation, if it has one. ``further``
    are facts as the record has them: parts of tokens, the model, why it ended.
    """

    text: str
    error: str = ""
    tools: tuple[ShownCall, ...] = ()
    attempts: tuple[AttemptFacts, ...] = ()
    case: str = ""
    question: ShownQuestion | None = None
    messages: tuple[ShownMessage, ...] = ()
    further: tuple[tuple[str, str], ...] = ()

    @property
    def _own(self) -> list[AttemptFacts]:
        return [each for each in self.attempts if each.by != BY_USER]

    @property
    def seconds(self) -> float | None:
        """The seconds of the last attempt; None if unknown."""
        own = self._own
        return own[-1].seconds if own else None

    @property
    def tokens(self) -> tuple[int, int] | None:
        """The tokens of all attempts, of prompts and of answers; None if no attempt says any."""
        pairs = [(each.prompt_tokens, each.completion_tokens) for each in self._own]
        known = [pair for pair in pairs if pair != (None, None)]
        return (sum(one or 0 for one, _ in known), sum(other or 0 for _, other in known)) if known else None

    @property
    def cost(self) -> float | None:
        """The cost of all attempts; None if no attempt says any."""
        known = [each.cost for each in self._own if each.cost is not None]
        return sum(known) if known else None

    def facts(self) -> list[tuple[str, str]]:
        """Attempts, seconds, tokens and cost, as far as known; what a simulated user took is none of them."""
        found = [("Attempts", f"{len(self._own):,}")] if self.attempts else []
        found += [] if self.seconds is None else [("Seconds", number(self.seconds, "seconds"))]
        if self.tokens is not None:
            found.append(("Tokens", f"{self.tokens[0]:,} in the prompt, {self.tokens[1]:,} in the answer"))
        return [*found, *([] if self.cost is None else [("Cost", f"{self.cost:.4g}")]), *self.further]


def answer_of(line: bytes) -> ShownAnswer:
    """The answer in a line of recorded outputs; a line of another form is shown whole."""
    try:
        record = msgspec.json.decode(line)
    except _READ:
        return ShownAnswer(line.decode(errors="replace"))
    if not isinstance(record, dict):
        return ShownAnswer(as_text(record))
    asked = _asked_in(record)
    if not {"output", "error", "text", "messages"} & record.keys():
        return ShownAnswer(as_text(record), question=asked)
    output, text = record.get("output"), record.get("text")
    if record.keys() <= _TEXT_ALONE and isinstance(output, str) and output[:1] not in ("{", "["):
        # Most answers are a text and nothing else: these take a tenth of the time.
        return ShownAnswer(output, case=str(record.get("case") or ""), question=asked)
    error = "" if record.get("error") in (None, "") else as_text(record["error"])
    shown = text if isinstance(text, str) else as_text(output) if "output" in record else ""
    attempts, case = record.get("attempts"), str(record.get("case") or "")
    listed = attempts[:_ATTEMPTS] if isinstance(attempts, list) else []
    made, messages = tuple(_attempt(each) for each in listed), messages_shown(record.get("messages"))
    if not shown and not error and "output" not in record:
        shown = next((each.text for each in reversed(messages) if each.role == "assistant" and each.text), "")
    tools = calls_shown(record, output, _data(shown)) or tuple(call for each in messages for call in each.calls)
    return ShownAnswer(shown, error, tools, made, case, asked, messages, further_facts(record))


_ASKED = ("input", "prompt", "question")
"""The keys by which recorded outputs have their questions."""
_TEXT_ALONE = frozenset(("case", "repeat", "output", *_ASKED))
"""The keys of a recorded output that says nothing beside its text."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
"""What a line of a live call has of its prompt."""


def _asked_in(record: dict[str, Json]) -> ShownQuestion | None:
    """What a recorded output itself says that was asked: a text, a chat, or other data."""
    value = next((record[key] for key in _ASKED if record.get(key) not in (None, "", [], {})), None)
    if value is None or (isinstance(value, str) and _DIGEST.fullmatch(value)):
        return None
    if isinstance(value, list) and all(isinstance(each, dict) and "content" in each for each in value):
        return ShownQuestion(tuple((str(each.get("role", "")), as_text(each["content"])) for each in value))
    return ShownQuestion((("", as_text(value)),))


def _data(shown: str) -> Json:
    """The data of an answer that is a text of JSON; None for another."""
    if shown[:1] in ("{", "[") and len(shown) <= LONGEST:
        with contextlib.suppress(*_READ):
            return msgspec.json.decode(shown)
    return None


def _attempt(given: Json) -> AttemptFacts:
    found = given if isinstance(given, dict) else {}
    status = found.get("status")
    kind, reason = (str(found.get(key) or "") for key in ("kind", "reason"))
    by = str(found.get("by") or "")
    ended = ": ".join(filter(None, (kind, reason))) or "answered"
    ended += f" (status {status})" if isinstance(status, int) and kind else ""
    seconds, cost = (_number(found.get(key)) for key in ("latency_seconds", "cost"))
    asked, answered = (_count(found.get(key)) for key in ("prompt_tokens", "completion_tokens"))
    return AttemptFacts(ended, seconds, asked, answered, cost, by)


def _number(value: Json) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _count(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# Lines of a file, found by a piece of their text, which is as fast as the file is read.


def lines_with(stream: BufferedReader, piece: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, line) of each line that has ``piece``, counted from 0; an overlong line may be missed."""
    number = 0
    while block := stream.read(_BLOCK):
        if not block.endswith(b"\n"):
            block += stream.readline(LONGEST)
        at = block.find(piece)
        counted = 0
        while at >= 0:
            start = block.rfind(b"\n", 0, at) + 1
            end = block.find(b"\n", at)
            end = len(block) if end < 0 else end
            number += block.count(b"\n", counted, start)
            counted = start
            yield number, block[start:end]
            at = block.find(piece, end)
        number += block.count(b"\n", counted)


def question_in(folder: RunFolder, case: str) -> ShownQuestion | None:
    """What the target was asked about ``case``; None if the folder does not have it."""
    piece = b'{"case":' + msgspec.json.encode(case) + b","
    with contextlib.suppress(EvalqError, OSError, UnicodeEncodeError), open_input(folder.own(PROMPTS)) as stream:
        for _, line in lines_with(stream, piece):
            if line.startswith(piece) and (found := question_of(line)) is not None:
                return found
    return None


def question_of(line: bytes) -> ShownQuestion | None:
    """The question in a line of prompts.jsonl."""
    try:
        prompt = msgspec.json.decode(line, type=Prompt)
    except (*_READ, msgspec.DecodeError):
        return None
    if not prompt.messages:
        return ShownQuestion((("", prompt.text),))
    return ShownQuestion(
        tuple((str(each.get("role", "")), as_text(each.get("content", each))) for each in prompt.messages)
    )


def input_path(folder: RunFolder, record: str) -> tuple[Path, int] | None:
    """The file with the line of the recorded output that is called ``record``, and the line, counted from 0.

    None if it is in no file of lines, or if this run's folder may not choose the file.
    """
    return RecordedFiles(folder).place(record)


class RecordedFiles:
    """Where the recorded outputs of a run are, as lines of JSON."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._paths: dict[str, Path | None] = {}
        self._members: dict[str, dict[str, int]] = {}
        self._sources: list[Source] | None = None

    def place(self, record: str) -> tuple[Path, int] | None:
        """The file and the line, counted from 0, of the output called ``record``."""
        name = input_of(record)
        number = self._line_of(name, record[len(name) :])
        if number is None:
            return None
        if name not in self._paths:
            self._paths[name] = self._file(name)
        path = self._paths[name]
        return (path, number) if path is not None else None

    def _line_of(self, name: str, rest: str) -> int | None:
        line = rest[1:]
        if rest.startswith(":"):
            return int(line) - 1 if line.isascii() and line.isdigit() and len(line) < 13 else None
        if name not in self._members:  # of a folder with an output in each file
            found = [source.members for source in self._known() if source.name == name]
            self._members[name] = {member: at for at, member in enumerate(found[0])} if found else {}
        return self._members[name].get(line)

    def _known(self) -> list[Source]:
        if self._sources is None:
            self._sources = []
            with contextlib.suppress(EvalqError, OSError):
                self._sources = self._folder.info().sources
        return self._sources

    def _file(self, name: str) -> Path | None:
        """The file of lines of the input ``name``; None if there is none that this run may choose."""
        folder = self._folder
        with contextlib.suppress(EvalqError, OSError):
            # A folder that was moved has its own outputs beside its records.
            if "/" not in name and name not in ("", ".", ".."):
                folder.own(LINES)
                own = [folder.own(f"{LINES}/{name}"), *([] if name in _OF_THE_RUN else [folder.own(name)])]
                if there := next((path for path in own if path.is_file()), None):
                    return there
            for source in self._known():
                if source.name == name and not source.members and may_read(folder, source.path):
                    return Path(source.path) if source.path.endswith(format_suffixes("jsonl")) else None
        return None


_OF_THE_RUN = frozenset({RECORDS, PROMPTS, CALLS})
"""Files of a run that hold no outputs, whatever its input is called."""


class RecordedAnswers:
    """The answers to a run's records, and their questions, read once in the order of the records."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._files = RecordedFiles(folder)
        self._streams: dict[Path, tuple[BufferedReader, int]] = {}
        self._prompts: BufferedReader | None = None
        self._prompted = True
        self._question: tuple[str, ShownQuestion | None] = ("", None)

    def of(self, record: str) -> tuple[ShownQuestion | None, ShownAnswer] | None:
        """What the record called ``record`` is about; None if that cannot be read, or came before the last one."""
        place = self._files.place(record)
        line = self._line(*place) if place else None
        if line is None:
            return None
        answer = answer_of(line)
        return (self._asked(answer.case) if answer.case else None) or answer.question, answer

    def _line(self, path: Path, wanted: int) -> bytes | None:
        try:
            if path not in self._streams:
                self._streams[path] = open_input(path), 0
            stream, at = self._streams[path]
            while at < wanted and _skipped(stream):
                at += 1
            line = stream.readline(LONGEST) if at == wanted else b""
            if len(line) == LONGEST and not line.endswith(b"\n"):
                _skipped(stream)
        except OSError:
            return None
        self._streams[path] = stream, at + bool(line)
        return line or None

    def _asked(self, case: str) -> ShownQuestion | None:
        """The question about ``case``: cases come in the order of the prompts."""
        if self._question[0] == case:
            return self._question[1]
        if not self._prompted:
            return None
        with contextlib.suppress(EvalqError, OSError):
            if self._prompts is None:
                self._prompted = False  # until it is open: --no-prompts leaves it out
                self._prompts = open_input(self._folder.own(PROMPTS))
                self._prompted = True
            piece = b'{"case":' + msgspec.json.encode(case) + b","
            while line := self._prompts.readline():
                if line.startswith(piece):
                    self._question = case, question_of(line)
                    return self._question[1]
        return None

    def close(self) -> None:
        """Close all files."""
        for stream, _ in self._streams.values():
            stream.close()
        if self._prompts is not None:
            self._prompts.close()


def _skipped(stream: BufferedReader) -> bool:
    """Skip a line, in pieces; False at the end."""
    piece = stream.readline(_BLOCK)
    while len(piece) == _BLOCK and not piece.endswith(b"\n"):
        piece = stream.readline(_BLOCK)
    return bool(piece)


# What a run is about, for its titles.


class _AskedFiles(msgspec.Struct):
    inputs: list[str] = []


class _Asked(msgspec.Struct):
    request: _AskedFiles = msgspec.field(default_factory=_AskedFiles)


def about(folder: RunFolder) -> list[str]:
    """Target, prompt and date of a run, as far as known: the prompt by its name, or by the file of the questions."""
    try:
        info = folder.info()
    except (EvalqError, OSError):
        return []
    prompt = f"prompt {info.tags['prompt']}" if info.tags.get("prompt") else ", ".join(_question_files(folder))
    return list(filter(None, (info.target, prompt, info.started[:10])))


def served_by(folder: RunFolder | None) -> list[tuple[str, str]]:
    """The models that gave the answers of a run's live calls, and who simulated their users, as far as known."""
    if folder is None:
        return []
    try:
        info = folder.info()
    except (EvalqError, OSError):
        return []
    found = (("Served by", served_text(info.served)), ("Simulated user", served_text(info.users)))
    return [(name, text) for name, text in found if text]


def _question_files(folder: RunFolder) -> list[str]:
    for name in (ASKED, HEAD):
        with contextlib.suppress(EvalqError, OSError, msgspec.DecodeError), open_input(folder.own(name)) as stream:
            asked = msgspec.json.decode(stream.read(LONGEST), type=_Asked)
            return [Path(path).name for path in asked.request.inputs[:3]]
    return []
