"""Plain words: pages, helps and messages avoid phrases that readers had to read twice. Run by `make check`.

The list has this project's own slips, each with what to say instead. It exits 1 with a line for each one left.
A sentence of a page that leads a newcomer, and of a help, has at most 25 words.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from evalq.producer.cli import cli

TOP = Path(__file__).parent.parent
sys.path.insert(0, str(TOP))  # it is no installed package

from docs.check import PAGES  # noqa: E402 - by the line above

MOST = 25
"""Words of a sentence, on pages that lead a newcomer and in helps."""
LEADING = ("README.md", "docs/README.md", "docs/first-run.md", "docs/glossary.md", "docs/how-to", "examples")


class Rule(NamedTuple):
    """A phrase, and what to say instead."""

    pattern: re.Pattern[str]
    instead: str


def _rule(pattern: str, instead: str) -> Rule:
    return Rule(re.compile(pattern), instead)


EVERYWHERE = (
    _rule(r"\b(?<!be )told\b", "say who says it: 'evalq reports', 'the message names'"),
    _rule(r"\btells? no\b", "'does not report'"),
    _rule(r"\w\(s\)(?!\w)", "write the singular or the plural: `plural(count, 'case')`"),
    _rule(r"\b[Ww]hoever\b", "name the reader or the user"),
    _rule(r"\bnot for others\b", "'callers cannot override it'"),
    _rule(r"\basked no more\b", "'evalq stops calling it'"),
    _rule(
        r"\b(?:hence|thus|lest|wherein|thereby|thereof|whereby|forthwith)\b", "use 'so', 'by which' or a new sentence"
    ),
    _rule(r"\bfor want of\b", "'because ... is missing'"),
    _rule(r"\bturns? (?:it|them) round\b", "'negates it'"),
    _rule(r"\b(?:might|may) pass by\b(?! luck)", "'may miss'"),
    _rule(r"\b(?:is|are) held against\b", "'is compared with'"),
    _rule(r"\bare findings, not errors\b", "'do not change the exit code'"),
    _rule(r"\bis heard\b", "'the ledger hears'"),
    _rule(r"\bmay run twice\b", "'that a CI system may start twice'"),
    _rule(r"\bit pages\b", "'evalq alerts'"),
    _rule(r"\bwould have seen\b", "'smallest detectable'"),
    _rule(r"\bthe (?:ledger|gate|judge) decides:", "one idea a sentence"),
    _rule(r"\bnobody at all\b|\bas ever\b|\bby and by\b", "leave it out"),
)
IN_PROSE = (
    _rule(r"^What (?:[\w'`,-]+ ){6,}[^?]*\.$", "begin with the subject: the reader, evalq, or the thing that acts"),
    _rule(r"^Whether (?:[\w'`,-]+ ){6,}[^?]*\.$", "begin with the subject, as for 'What ...'"),
)
"""For whole sentences of pages."""
_NOT_OURS = ("docs/decisions", "CHANGELOG.md", "docs/ko")
"""Records of the past, and another language."""
_PROMPTS = ("judged.py", "evaluator.py", "words.py")
"""Files whose texts are prompts of judges, or words that answers are searched for: their bytes decide results."""
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def main() -> int:
    """Check everything that users read; returns an exit code."""
    faults = [*_pages(), *_helps(), *_messages()]
    sys.stdout.write("".join(fault + "\n" for fault in faults) or "pages, helps and messages use plain words\n")
    return 1 if faults else 0


def _pages() -> Iterator[str]:
    for page in PAGES:
        name = str(page.relative_to(TOP))
        if name.startswith(_NOT_OURS):
            continue
        leading = name.startswith(LEADING)
        for sentence in sentences(page.read_text(encoding="utf-8")):
            yield from (f"{name}: {fault}" for fault in faults_in(sentence, MOST if leading else 0, prose=True))


def _helps() -> Iterator[str]:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        if command is None:
            continue
        for each in [command, *getattr(command, "commands", {}).values()]:
            texts = [each.help or "", *(getattr(param, "help", "") or "" for param in each.params)]
            for sentence in (sentence for text in texts for sentence in sentences(text)):
                yield from (f"evalq {name} --help-all: {fault}" for fault in faults_in(sentence, MOST))


def _messages() -> Iterator[str]:
    """Texts in the code, without docstrings."""
    for package in ("producer", "workers", "evalcore", "evalq"):
        for path in sorted((TOP / package).rglob("*.py")):
            if any(part.is_symlink() for part in path.parents) or path.name in _PROMPTS:
                continue
            for node in _texts(ast.parse(path.read_text(encoding="utf-8"))):
                for fault in faults_in(str(node.value)):
                    yield f"{path.relative_to(TOP)}:{node.lineno}: {fault}"


def _texts(tree: ast.Module) -> Iterator[ast.Constant]:
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in bare
        ):
            yield node


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page's or a help's prose: no code, tables or headings, and links as their text."""
    for block in _FENCED.sub("", text).split("\n\n"):
        if block.lstrip().startswith(("|", "#", "<", "\b")):
            continue
        for item in re.split(r"\n(?=- |\d+\. )", block):
            plain = re.sub(r"`[^`]*`", "X", " ".join(item.split()).removeprefix("- "))
            plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
            yield from re.split(r"(?<=[.?!:;]) +| · ", plain)


def faults_in(text: str, most: int = 0, *, prose: bool = False) -> Iterator[str]:
    """What is wrong in a text: phrases of the list, and more words than ``most`` (0: any number)."""
    for rule in (*EVERYWHERE, *(IN_PROSE if prose else ())):
        if found := rule.pattern.search(text):
            near = text[max(0, found.start() - 20) : found.end() + 20].strip()[:80]
            yield f"{near!r}: {rule.instead}"
    words = [word for word in text.split() if re.search(r"\w", word)]
    if most and len(words) > most:
        yield f"{len(words)} words in one sentence: {text[:80]!r}"


if __name__ == "__main__":
    sys.exit(main())
