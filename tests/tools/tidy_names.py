"""Name what no other file reads with an underscore, and drop ``__all__`` where it says nothing more.

python -m tests.tools.tidy_names            # rewrite the product
python -m tests.tools.tidy_names --check    # fails where a name looks public and nobody else reads it

A name without an underscore is read by another file: that is the whole rule, and `__all__` is for modules that hand
on what they import and for those that users import from.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.tools import house
from tests.tools.fold import TEXTS, TOP, Edit, Source, _definitions, _edited, globals_of, uses

PUBLIC = ("evalq/",)
"""Folders whose names are for users."""
_FOUND_BY_NAME = frozenset(("COMMAND", "read", "SOURCE", "TARGET", "FORMAT", "evaluator", "main", "app"))
"""Names that are looked up in modules that are found by listing a folder, or named in pyproject.toml."""
LISTED = frozenset((TOP / "evalcore" / "errors.py",))
"""Files whose list says what of them is for users."""
_WORD = re.compile(r"[A-Za-z_]\w*")


def unread() -> dict[Path, list[str]]:
    """{file: its names without an underscore that occur in no other file}."""
    occurs: dict[str, set[str]] = defaultdict(set)
    listed = subprocess.run(["git", "ls-files", "-z", *TEXTS], cwd=TOP, check=True, capture_output=True, text=True)
    for name in listed.stdout.split("\0"):
        path = TOP / name
        if name and path.is_file() and not path.is_symlink():
            for word in {*_WORD.findall(path.read_text(encoding="utf-8", errors="replace"))}:
                occurs[word].add(name)
    found: dict[Path, list[str]] = {}
    for module in house.modules(counted=False).values():
        own = module.path.relative_to(TOP).as_posix()
        if own.startswith(PUBLIC) or module.path.name == "__init__.py":
            continue
        names = [
            name
            for name, statement in globals_of(ast.parse(module.path.read_text(encoding="utf-8"))).items()
            if _plain(name, statement)
            and name not in _FOUND_BY_NAME
            and not _read_elsewhere(name, own, module, occurs[name] - {own})
        ]
        if names:
            found[module.path] = names
    return found


def _plain(name: str, statement: ast.stmt) -> bool:
    """Functions alone: classes are in annotations of what is public, and constants state limits."""
    function = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and not statement.decorator_list
    return function and not name.startswith("_")


_TREES: dict[str, tuple[set[tuple[str, str]], set[str], str]] = {}


def _read_elsewhere(name: str, own: str, module: house.Module, files: set[str]) -> bool:
    """Whether another file imports the name from the module, reads it as an attribute, or mentions it in a text."""
    for file in files:
        if not file.endswith(".py"):
            if module.name in (TOP / file).read_text(encoding="utf-8", errors="replace"):
                return True
            continue
        if file not in _TREES:
            text = (TOP / file).read_text(encoding="utf-8")
            tree = ast.parse(text)
            imported = {
                (node.module or "", alias.name)
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
            attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            _TREES[file] = imported, attributes, text
        imported, attributes, text = _TREES[file]
        package, _, last = module.name.rpartition(".")
        if (module.name, name) in imported or (module.name, "*") in imported:
            return True
        # module.name, or a patch's "evalq.module.name"
        if name in attributes and ((package, last) in imported or f"import {module.name}" in text):
            return True
        if f"{module.name}.{name}" in text or f"{module.name}:{name}" in text:
            return True
    return False


def underscore(path: Path, names: list[str]) -> list[str]:
    """Rewrite one file; returns names that are left, since the private one is taken or bound somewhere inside."""
    source = Source(path)
    taken = set(_WORD.findall(source.text))
    renames = {name: f"_{name}" for name in names if f"_{name}" not in taken}
    listed = _list_of(source.tree)
    edits = [edit for edit in _definitions(source, renames) if not (listed and _inside(edit, source, listed))]
    edits += [Edit(*source.span(use), renames[use.id]) for use, _ in uses(source.tree, set(renames))]
    if listed:
        public = [name for name in ast.literal_eval(listed.value) if name not in renames]
        edits.append(Edit(*source.span(listed), "__all__ = [" + ", ".join(f'"{name}"' for name in public) + "]"))
    text = _edited(source.text, edits)
    for old, new in renames.items():
        text = re.sub(rf"`{old}`", f"`{new}`", text)
    path.write_text(text, encoding="utf-8")
    return sorted({*names} - {*renames})


def _list_of(tree: ast.Module) -> ast.Assign | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return node
    return None


def _inside(edit: Edit, source: Source, node: ast.stmt) -> bool:
    start, end = source.span(node)
    return start <= edit.start < end


def unlist(path: Path) -> bool:
    """Drop ``__all__`` of a module that defines all it lists."""
    source = Source(path)
    listed = _list_of(source.tree)
    if listed is None or not isinstance(listed.value, ast.List | ast.Tuple) or path in LISTED:
        return False
    own = globals_of(source.tree)
    names = [each.value for each in listed.value.elts if isinstance(each, ast.Constant)]
    if any(name not in own or isinstance(own[name], ast.Import | ast.ImportFrom) for name in names):
        return False
    path.write_text(_edited(source.text, [Edit(*source.lines_of(listed), "")]), encoding="utf-8")
    return True


def main() -> None:
    """Rewrite, or check."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.tidy_names",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="print such names, and end with 1 if there is one")
    found = unread()
    if parser.parse_args().check:
        for path, names in found.items():
            sys.stdout.write(
                f"{path.relative_to(TOP)}: no other file reads {', '.join(names)}: begin with an underscore\n"
            )
        sys.exit(1 if found else 0)
    for path, names in found.items():
        if left := underscore(path, names):
            sys.stdout.write(f"{path.relative_to(TOP)}: {', '.join(left)} kept: the name with an underscore is taken\n")
    listed = subprocess.run(["git", "ls-files", "-z", "*.py"], cwd=TOP, check=True, capture_output=True, text=True)
    files = [TOP / name for name in listed.stdout.split("\0") if name and not name.startswith(PUBLIC)]
    touched = [path for path in files if path.is_file() and not path.is_symlink() and unlist(path)]
    ruff = [sys.executable, "-m", "ruff"]
    every = [str(path) for path in {*touched, *found}]
    subprocess.run([*ruff, "check", "-q", "--select", "I,F401", "--fix", *every], cwd=TOP, check=False)
    subprocess.run([*ruff, "format", "-q", *every], cwd=TOP, check=False)
    sys.stdout.write(f"{len(every)} files were rewritten\n")


if __name__ == "__main__":
    main()
