"""promptfoo's `http` provider as a target of kind http, where evalq sends the same request for every case.

promptfoo fills the body's templates with the variables of each test. evalq fills in the prompt alone. So a variable has
a counterpart where it is the same in all cases (then its text stands in the body), or where it is the whole prompt of
each case (then it is {prompt}). A string of the body that is JSON of a list or an object once filled becomes data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from evalq.producer.importing.imported import Imported
from evalq.producer.importing.promptfoo.addresses import NoTarget, address, harmless_name, leftovers
from evalq.producer.importing.promptfoo.texts import PLACEHOLDER, NoText, rendered

__all__ = ["Variables", "http_target"]

Variables = Sequence[Mapping[str, Any]]
"""The variables of each case of an import."""

_ENVIRONMENT = re.compile(r"^(?P<bearer>Bearer\s+)?\{\{\s*env\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*\}\}$")
_OURS = re.compile(r"(?<!\{)\{(?:prompt|agent|case|repeat|messages)\}(?!\})")
_PATH = re.compile(r"^json((?:\.[A-Za-z_][\w]*|\[\d+\]|\[['\"][^'\"]+['\"]\])*)$")
_CHANGES = {
    *("request", "queryParams", "transformRequest", "auth", "signatureAuth", "session", "multipart", "contentType"),
    "tools",
}
"""Keys of the configuration by which another request is sent."""
_READ = {"url", "body", "method", "headers", "transformResponse", "responseParser"}
_MOST = 100
_BY_HAND = "write the target by hand"


def http_target(
    imported: Imported, name: str, config: Mapping[str, Any], where: str, variables: Variables
) -> dict[str, Any] | None:
    """The target; None for a provider of another kind. Raises NoTarget."""
    if name not in ("http", "https") and not name.startswith(("http://", "https://")):
        return None
    shown = harmless_name(name)
    url = address(config.get("url") or name, "url")
    parts = urlsplit(url)
    if parts.query or "@" in parts.netloc:
        raise NoTarget(f"its address has a user, a password or a query, which may be secret: {_BY_HAND}")
    method = config.get("method")
    if str(method).upper() != "POST":
        told = "by GET, as promptfoo does where no method is named" if method is None else "by another method"
        raise NoTarget(f"evalq posts its calls, and it asks {told}")
    changed = sorted(set(config) & _CHANGES)
    if changed:
        raise NoTarget(f"its {changed[0]} changes the request, and evalq has no such key: {_BY_HAND}")
    given = config.get("headers")
    headers = given if isinstance(given, Mapping) else {}
    body = _Body([case.get("input") for case in imported.cases], variables).made(config.get("body"), headers)
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
    leftovers(imported, config, _READ, where, shown)
    return target


def _header(target: dict[str, Any], header: str, value: str, note: Callable[[str, str], None]) -> None:
    """Put a header into the target, or note it. Raises NoTarget."""
    variable = _ENVIRONMENT.match(value.strip())
    name = header.lower()
    if variable and "api_key_env" not in target:
        target["api_key_env"] = variable["name"]
        # evalq puts it before the key in this header, and in no other.
        if bool(variable["bearer"]) != (name == "authorization"):
            there = "with" if variable["bearer"] else "without"
            raise NoTarget(f"its header {header} has the key {there} Bearer before it: {_BY_HAND}")
        if name != "authorization":
            target["api_key_header"] = header
    elif name == "accept" and not PLACEHOLDER.search(value):
        target["headers"] = {header: value}
    elif name != "content-type":
        note(f"header {header}", "it may hold a secret: write it by hand")


class _Body:
    """A body filled as promptfoo fills it, for cases with these inputs and variables."""

    def __init__(self, inputs: Sequence[Any], variables: Variables) -> None:
        self._inputs, self._variables = inputs, variables
        kinds = {_kind_of(each) for each in inputs}
        self._alone = "{messages}" if kinds == {"chat"} else "{prompt}" if kinds <= {"text"} else ""
        self._texts = kinds <= {"text"}
        self._known: dict[str, str | None] = {}

    def made(self, body: Any, headers: Mapping[str, Any]) -> Any:
        """The template that evalq fills. Raises NoTarget."""
        if isinstance(body, dict | list):
            return self._inside(body)
        told = " ".join(str(value) for name, value in headers.items() if str(name).lower() == "content-type")
        if not isinstance(body, str) or "application/json" not in told.lower():
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
        """A string of a body of data. Raises NoTarget."""
        self._refuse_ours(text)
        if self._is_prompt(text.strip()):
            if not self._alone:
                why = "chats and texts, or texts that are JSON, are among its prompts, and promptfoo sends each as data"
                raise NoTarget(f"{why}: import them apart")
            # Space around a chat is none of its JSON; around a text it is sent.
            return self._alone if self._alone != "{prompt}" else text.replace(text.strip(), "{prompt}")
        filled = PLACEHOLDER.sub(self._in_text, text)
        return filled if "{prompt}" in filled else _data(filled)

    def _is_prompt(self, text: str) -> bool:
        """Whether ``text`` is one placeholder, and that of the prompt."""
        found = PLACEHOLDER.fullmatch(text)
        return found is not None and self._stands_for(found) is None

    def _in_text(self, found: re.Match[str]) -> str:
        """What stands for a placeholder within other text. Raises NoTarget."""
        constant = self._stands_for(found)
        if constant is None and not self._texts:
            raise NoTarget(f"its body has a chat, or JSON, within other text, which promptfoo indents: {_BY_HAND}")
        return "{prompt}" if constant is None else constant

    def _stands_for(self, found: re.Match[str]) -> str | None:
        """The text that a placeholder is in every case; None where it is the prompt of each. Raises NoTarget."""
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
        """A body of text that is JSON once it is filled: with `| dump`, numbers or chats outside of quotes."""
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
        """What stands, as JSON, for a placeholder outside of quotes."""
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
        """What stands for a placeholder within quotes, where promptfoo writes the text as it is and then reads JSON."""
        constant = self._stands_for(found)
        values = [constant] if constant is not None else list(self._inputs)
        if found["dump"] or any(not isinstance(each, str) or re.search(r'["\\\x00-\x1f]', each) for each in values):
            raise NoTarget(f"its body has {found[0]!r} within quotes, and a text that JSON escapes: {_BY_HAND}")
        return constant if constant is not None else "{prompt}"


def _kind_of(given: Any) -> str:
    """What an input is once it stands alone in a string of a body: a chat, data, or text."""
    if not isinstance(given, str):
        return "chat" if isinstance(given, list) else "data"
    return "text" if _data(given) is given else "data"


def _data(text: str) -> Any:
    """The list or the object that ``text`` is as JSON; itself where it is none."""
    if not text.strip().startswith(("{", "[")):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict | list) else text
