"""Docs name only what exists (commands, flags, make targets, links, files), and folders say what is in them.

Run by `make check`; exits 1 with a line for each thing that is named and is not there.
"""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from evalq.producer.cli import cli

TOP = Path(__file__).parent.parent
PAGES = sorted(
    [*TOP.glob("*.md"), *TOP.glob("docs/**/*.md"), *TOP.glob("deploy/**/*.md"), *TOP.glob("examples/**/*.md")]
)
FOLDERS = ("evalq", "evalcore", "workers", "producer", "tests", "deploy", "grafana", "docs")
PACKAGES = ("evalcore", "workers", "producer", "grafana")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
_REGISTERED = re.compile(r'^([a-z]\w*) = "\w+:evaluator"', re.MULTILINE)
_INTERNAL = re.compile(r"\bevalq\.(?:evalcore|producer|workers)(?:\.\w+)+")
_TARGET = re.compile(r"^([a-z][\w-]*):", re.MULTILINE)


def main() -> int:
    """Check every page; returns an exit code."""
    faults = [f"{page.relative_to(TOP)}: {fault}" for page in PAGES for fault in _faults(page)]
    faults += [f"{path.relative_to(TOP)}: its first line does not say what is in the folder" for path in _silent()]
    sys.stdout.write("".join(fault + "\n" for fault in faults) or f"{len(PAGES)} pages name only what exists\n")
    return 1 if faults else 0


def _silent() -> Iterator[Path]:
    """`__init__` modules that do not begin with a sentence on one line."""
    for name in PACKAGES:
        for path in sorted((TOP / name).rglob("__init__.py")):
            first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
            if not first.endswith((".", "?")):
                yield path


def _faults(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    fences = [body for kind, body in _FENCE.findall(text) if kind in ("", "sh", "console")]
    own = [[name] for name in _REGISTERED.findall(text)]  # commands of a package that the page itself builds
    spans = _SPAN.findall(_FENCE.sub("", text))
    for line in [line.strip().removeprefix("$ ") for body in fences for line in body.splitlines()] + spans:
        if line.split()[1:2] not in own:
            yield from _command_faults(line)
        yield from _path_faults(line if line in spans else "")
    if page.parent.name in ("evaluators", "how-to"):  # what they show a reader is to work with the next version too
        yield from (f"{name} is internal: show a public name" for name in sorted(set(_INTERNAL.findall(text))))
    for link in _LINK.findall(text):
        if "://" not in link and not (page.parent / link).exists():
            yield f"link to {link}, which is not there"


def _command_faults(line: str) -> Iterator[str]:
    """Commands and flags of `evalq ...`, targets of `make ...`."""
    targets = set(_TARGET.findall((TOP / "Makefile").read_text()))
    for part in re.split(r"\s(?:&&|\||;)\s", line):
        try:
            words = [word for word in shlex.split(part, comments=True) if "=" not in word or word.startswith("-")]
        except ValueError:
            continue
        if words[:1] == ["make"]:
            yield from (f"make {word}: no such target" for word in words[1:2] if word not in targets)
        if words[:1] == ["evalq"] and len(words) > 1 and re.fullmatch(r"[a-z][a-z-]+", words[1]):
            yield from _evalq_faults(words[1], words[2:])


def _evalq_faults(name: str, words: list[str]) -> Iterator[str]:
    context = click.Context(cli)
    command = cli.get_command(context, name)
    if command is None:
        yield f"evalq {name}: no such command"
        return
    known = {flag for param in command.get_params(context) for flag in (*param.opts, *param.secondary_opts)}
    for word in words:
        flag = word.partition("=")[0]
        if re.fullmatch(r"-{1,2}[a-z][a-z-]*", flag) and flag not in known:
            yield f"evalq {name} {flag}: no such option"


def _path_faults(span: str) -> Iterator[str]:
    """A span that reads like a path of this tree."""
    if re.fullmatch(rf"(?:{'|'.join(FOLDERS)})/[\w./-]*[\w/]", span) and not (TOP / span).exists():
        yield f"`{span}` is not there"


if __name__ == "__main__":
    sys.exit(main())
