"""Rename attributes of classes everywhere, by what mypy says of their uses.

python -m tests.tools.rename_attribute Class.old=new...

The definition is renamed by hand (or by this, where a class of that name is found); then each use of which mypy says
that the class has no such attribute is rewritten, until mypy names no other. What has type Any, mypy does not see:
search for the old name afterwards.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]
_USE = re.compile(
    r'^(?P<path>[^:]+):(?P<line>\d+):\d+: error: (?:Item )?"(?:type\[)?(?P<cls>\w+)\]?"(?: of "[^"]*")? '
    r'has no attribute "(?P<name>\w+)"',
    re.MULTILINE,
)
_KEYWORD = re.compile(
    r'^(?P<path>[^:]+):(?P<line>\d+):\d+: error: Unexpected keyword argument "(?P<name>\w+)" for "(?P<of>[^"]+)"',
    re.MULTILINE,
)


def _defined(cls: str, old: str, new: str) -> None:
    """Rename the definition: a method, a field, ``self.old`` inside of the class."""
    found = subprocess.run(
        ["git", "grep", "-lE", rf"^class {cls}\b", "*.py"], cwd=TOP, check=True, capture_output=True, text=True
    )
    for name in found.stdout.split():
        path = TOP / name
        text = path.read_text(encoding="utf-8")
        body = re.search(rf"^class {cls}\b.*?(?=^\S(?<![)\]]))", text + "end", re.MULTILINE | re.DOTALL)
        if body is None:
            continue
        inside = re.sub(rf"(?<=def ){old}(?=\()|^(    ){old}(?=: |\s=)|(?<=self\.){old}\b|(?<=cls\.){old}\b",
                        lambda match: (match[1] or "") + new, body[0], flags=re.MULTILINE)  # fmt: skip
        if inside != body[0]:
            path.write_text(text.replace(body[0], inside), encoding="utf-8")
            print(f"{name}: {cls}.{old}")  # noqa: T201 - a command says what it did


def _rewritten(renames: dict[tuple[str, str], str], output: str) -> int:
    """How many lines were rewritten."""
    count = 0
    done: set[tuple[str, int, str]] = set()
    for use in [*_USE.finditer(output), *_KEYWORD.finditer(output)]:
        name, owner = use["name"], use.groupdict().get("cls") or use["of"]
        named = {cls: new for (cls, old), new in renames.items() if old == name}
        # A subclass has it from one that is named: by the attribute's name, where that has one new name only.
        new = {n for cls, n in named.items() if cls in owner.split()} or {*named.values()}
        at = (use["path"], int(use["line"]), name)
        if len(new) != 1 or at in done:
            continue
        done.add(at)
        path = TOP / use["path"]
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        (to,) = new
        pattern = rf"(?<=\.){name}\b" if "cls" in use.groupdict() else rf"(?<=[(, ]){name}(?==)"
        for number in range(at[1] - 1, min(at[1] + 12, len(lines))):
            changed = re.sub(pattern, to, lines[number])
            if changed != lines[number]:
                lines[number] = changed
                count += 1
                break
        path.write_text("".join(lines), encoding="utf-8")
    return count


def main() -> None:
    """Rename as the command line says."""
    renames = {}
    for word in sys.argv[1:]:
        place, new = word.split("=")
        cls, old = place.split(".")
        renames[cls, old] = new
        _defined(cls, old, new)
    while True:
        checked = subprocess.run(
            ["nice", sys.executable, "-m", "mypy", "--show-column-numbers", "--no-pretty", "--hide-error-context"],
            cwd=TOP, check=False, capture_output=True, text=True,
        )  # fmt: skip
        count = _rewritten(renames, checked.stdout)
        print(f"{count} uses")  # noqa: T201 - a command says what it did
        if not count:
            sys.exit(checked.stdout)


if __name__ == "__main__":
    main()
