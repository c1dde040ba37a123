"""Fold modules into one, and let all files import the names from there.

python -m tests.tools.fold TARGET SOURCE... [--rename SOURCE:OLD=NEW]... [--doc TEXT]
python -m tests.tools.fold --plan FILE     # a fold a line: TARGET SOURCE... [--rename ...]; "#" begins a comment

Modules are named from the top of the project ("evalcore.records.cut"). TARGET may be one of them that exists, which
then comes first, or a new one. Order follows what each module needs of the others when it is imported. Definitions
keep their text. A name with two meanings in the new file is an error that asks for a --rename; two definitions that
are alike become one. Files that only mention a folded module (documentation, contracts, patches in tests) name the
new one afterwards. ``ruff`` sorts and formats what was touched.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import json
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.tools import house

TOP = Path(__file__).parents[2]
FOLDERS = ("evalcore", "workers", "producer")
"""Folders at the top that are installed below the package."""
MUTANTS = TOP / "tests/mutation/survivors.json"
TEXTS = ("*.py", "*.pyi", "*.md", "*.toml", "*.yaml", "*.yml", "*.sh", "Makefile", "*.txt", "*.json", "*.in")


class Edit(NamedTuple):
    """Characters ``start`` to ``end`` of a file become ``text``."""

    start: int
    end: int
    text: str


class Source:
    """A Python file: its text, its tree, and where in the text a node stands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self._lines = self.text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """The character at which UTF-8 byte ``column`` of a line stands; lines count from 1."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        """First character of a node, and the one after its last."""
        start, end = self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]  # nodes with a place
        return start, end

    def lines_of(self, node: ast.stmt) -> tuple[int, int]:
        """The whole lines of a statement."""
        return self._starts[node.lineno - 1], self._starts[node.end_lineno or node.lineno]


def module_of(path: Path) -> str:
    """The name that a file is imported as."""
    parts = [*path.relative_to(TOP).with_suffix("").parts]
    parts = ["evalq", *parts] if parts[0] in FOLDERS else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def path_of(name: str) -> Path:
    """The file of a module that is named from the project's top, or as it is imported."""
    parts = name.split(".")
    if parts[0] == "evalq" and len(parts) > 1 and parts[1] in FOLDERS:
        parts = parts[1:]
    return TOP.joinpath(*parts).with_suffix(".py")


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _bound(scope: ast.AST) -> set[str]:
    """Names that a function, lambda or comprehension binds itself."""
    names: set[str] = set()
    free: set[str] = set()

    def inside(node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            return
        if isinstance(node, ast.Lambda):
            return
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            names.add(node.rest)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            free.update(node.names)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            # Only what := binds leaves a comprehension.
            names.update(each.target.id for each in ast.walk(node) if isinstance(each, ast.NamedExpr))
            return
        for child in ast.iter_child_nodes(node):
            inside(child)

    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        every = scope.args
        given = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
        names.update(each.arg for each in given if each)
        for child in scope.body if isinstance(scope.body, list) else [scope.body]:
            inside(child)
    else:
        for generator in scope.generators:  # type: ignore[attr-defined]  # a comprehension
            inside(generator.target)
    return names - free


def uses(tree: ast.AST, wanted: set[str]) -> Iterator[tuple[ast.Name, set[str]]]:
    """Each use of a wanted name of the module's own, with what the scopes around it bind."""

    def visit(node: ast.AST, bound: set[str], own: set[str], in_class: bool) -> Iterator[tuple[ast.Name, set[str]]]:
        if isinstance(node, ast.ClassDef):
            # What a class binds hides a name from its body alone; `name = name` there still reads the module's.
            own = {name for each in node.body for name in globals_of(ast.Module([each], [])) if name not in wanted}
            in_class = True
        elif isinstance(node, _SCOPES):
            outside = bound
            bound = bound | _bound(node)
            for field, value in ast.iter_fields(node):
                # Decorators, defaults and annotations are evaluated around a function.
                around = field in ("decorator_list", "args", "returns", "type_params")
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        names = own if around else set()
                        yield from visit(child, outside if around else bound, names, in_class and around)
            return
        # What is bound in a class is an attribute, also if the module has the same name.
        attribute = in_class and isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        if isinstance(node, ast.Name) and node.id in wanted and node.id not in bound and not attribute:
            yield node, bound | own
        for child in ast.iter_child_nodes(node):
            yield from visit(child, bound, own, in_class)

    yield from visit(tree, set(), set(), False)


def _uses_in_functions(tree: ast.AST, wanted: set[str]) -> Iterator[ast.Name]:
    """Each use of a wanted name in a function that imports it itself: a name of its scope, which `uses` passes over."""
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            own = {
                alias.name
                for node in _imports(scope)
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
                if alias.name in wanted and not alias.asname
            }
            yield from (node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id in own)


def globals_of(tree: ast.Module) -> dict[str, ast.stmt]:
    """Names that a module defines or imports, each with its statement (the first)."""
    found: dict[str, ast.stmt] = {}

    def add(statement: ast.stmt) -> None:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.setdefault(statement.name, statement)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                found.setdefault((alias.asname or alias.name).split(".")[0], statement)
        elif isinstance(statement, ast.If | ast.Try | ast.With | ast.For):
            for child in ast.walk(statement):
                if isinstance(child, ast.stmt) and child is not statement:
                    add(child)
        else:
            for child in ast.walk(statement):
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                    found.setdefault(child.id, statement)

    for statement in tree.body:
        add(statement)
    return found


def _imports(tree: ast.AST) -> Iterator[ast.ImportFrom | ast.Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level):
            yield node


class Fold:
    """One fold: which modules become which, with what renames."""

    def __init__(self, target: str, sources: list[str], renames: dict[tuple[str, str], str], doc: str | None) -> None:
        self.target_path = path_of(target)
        self.target = module_of(self.target_path)
        paths = [path_of(source) for source in sources]
        if self.target_path.exists() and self.target_path not in paths:
            paths.insert(0, self.target_path)
        missing = [str(path) for path in paths if not path.exists()]
        if missing:
            sys.exit(f"no such module: {', '.join(missing)}")
        self.paths = paths
        self.names = [module_of(path) for path in paths]
        self.renames = {(module_of(path_of(source)), old): new for (source, old), new in renames.items()}
        self.doc = doc
        self.problems: list[str] = []

    def run(self) -> set[Path]:
        """Write the new file, delete the old ones, and rewrite every file that names them; returns what was touched."""
        parts = {name: self._part(Source(path)) for name, path in zip(self.names, self.paths, strict=True)}
        order = self._ordered(parts)
        self._find_clashes(parts)
        if self.problems:
            sys.exit("\n".join(sorted({*self.problems})))
        text = self._assembled([parts[name] for name in order])
        touched = {self.target_path}
        for path in self.paths:
            if path != self.target_path:
                subprocess.run(["git", "rm", "-q", "-f", "--cached", str(path)], cwd=TOP, check=True)
                path.unlink()
        self.target_path.parent.mkdir(exist_ok=True)
        self.target_path.write_text(text, encoding="utf-8")
        # At once: a later fold of the same plan rewrites the files that git lists.
        subprocess.run(["git", "add", str(self.target_path)], cwd=TOP, check=True)
        touched |= self._rewrite_others()
        self.target_path.write_text(self._mentions(self.target_path.read_text(encoding="utf-8")), encoding="utf-8")
        self._narrow_all()
        return touched

    def _part(self, source: Source) -> Part:
        """What of a module goes into the new file, with the group's imports resolved and its renames done."""
        name = module_of(source.path)
        own = {old: new for (module, old), new in self.renames.items() if module == name}
        edits, meaning, aliases = [], dict(own), {}
        for node in _imports(source.tree):
            kept = []
            for alias in node.names:
                bound = alias.asname or alias.name
                if isinstance(node, ast.ImportFrom) and node.module in self.names:
                    new = self.renames.get((node.module, alias.name), alias.name)
                    if bound != new:
                        meaning[bound] = new
                elif isinstance(node, ast.ImportFrom) and f"{node.module}.{alias.name}" in self.names:
                    aliases[bound] = f"{node.module}.{alias.name}"
                else:
                    kept.append(alias)
            if len(kept) != len(node.names):
                edits.append(self._without(source, node, kept))
        for use, _ in uses(source.tree, set(meaning)):
            edits.append(Edit(*source.span(use), meaning[use.id]))
        edits += [Edit(*source.span(use), meaning[use.id]) for use in _uses_in_functions(source.tree, set(meaning))]
        edits += _definitions(source, own)
        edits += self._attributes(source, aliases)
        return Part(name, source, _edited(source.text, edits))

    def _without(self, source: Source, node: ast.ImportFrom | ast.Import, kept: list[ast.alias]) -> Edit:
        if kept:
            left = ", ".join(each.name + (f" as {each.asname}" if each.asname else "") for each in kept)
            assert isinstance(node, ast.ImportFrom)
            return Edit(*source.span(node), f"from {node.module} import {left}")
        alone = any(
            getattr(parent, "body", None) == [node]
            for parent in ast.walk(source.tree)
            if not isinstance(parent, ast.Module)
        )
        return Edit(*source.span(node), "pass") if alone else Edit(*source.lines_of(node), "")

    def _attributes(self, source: Source, aliases: dict[str, str]) -> list[Edit]:
        """``module.name`` becomes ``name``."""
        edits = []
        inside: dict[int, ast.Attribute] = {
            id(node.value): node for node in ast.walk(source.tree) if isinstance(node, ast.Attribute)
        }
        for use, bound in uses(source.tree, set(aliases)):
            where = f"{source.path.relative_to(TOP)}:{use.lineno}"
            node = inside.get(id(use))
            if node is None:
                self.problems.append(f"{where}: the module {use.id} itself is used")
                continue
            new = self.renames.get((aliases[use.id], node.attr), node.attr)
            if new in bound:
                self.problems.append(
                    f"{where}: {use.id}.{node.attr} would be the local {new}: --rename it, or the local"
                )
            edits.append(Edit(*source.span(node), new))
        return edits

    def _ordered(self, parts: dict[str, Part]) -> list[str]:
        """The group's modules, those that others import before these."""
        needs = {
            name: {
                found
                for node in part.source.tree.body
                for each in ([node] if not _for_types(node) else [])
                for found in self._in_group(each)
            }
            - {name}
            for name, part in parts.items()
        }
        order: list[str] = []

        def visit(name: str, above: tuple[str, ...]) -> None:
            if name in above:
                return
            for other in self.names:
                if other in needs[name]:
                    visit(other, (*above, name))
            if name not in order:
                order.append(name)

        for name in self.names:
            visit(name, ())
        return order

    def _in_group(self, node: ast.stmt) -> Iterator[str]:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if node.module in self.names:
                    yield node.module
                elif f"{node.module}.{alias.name}" in self.names:
                    yield f"{node.module}.{alias.name}"

    def _find_clashes(self, parts: dict[str, Part]) -> None:
        """Names with two meanings, and names of builtins that another part uses."""
        found: dict[str, list[tuple[Part, ast.stmt]]] = {}
        for part in parts.values():
            for name, statement in globals_of(part.tree).items():
                found.setdefault(name, []).append((part, statement))
        for name, places in found.items():
            if name in ("__all__", "annotations", "TYPE_CHECKING"):
                continue
            meanings = {_meaning(statement, name) for _, statement in places}
            if len(meanings) > 1:
                at = ", ".join(f"{part.name.rpartition('.')[2]} (line {line.lineno})" for part, line in places)
                self.problems.append(f"{self.target}: {name} has {len(meanings)} meanings: {at}")
            if hasattr(builtins, name):
                defining = {part.name for part, _ in places}
                for other in parts.values():
                    if other.name not in defining and any(True for _ in uses(other.tree, {name})):
                        self.problems.append(
                            f"{self.target}: {name} of {', '.join(defining)} is a builtin in {other.name}"
                        )

    def _assembled(self, parts: list[Part]) -> str:
        imports: list[str] = []
        bodies: list[str] = []
        public: list[str] = []
        seen: set[str] = set()
        lead = next((part for part in parts if part.source.path == self.target_path), parts[0])
        for part in parts:
            body, imported, names = part.pieces(seen)
            imports += imported
            public += names
            doc = ast.get_docstring(part.tree) or ""
            if part is not lead and doc and body.strip():
                body = f"{_as_comment(doc)}\n\n{body.lstrip()}"
            bodies.append(body.strip("\n"))
        doc = self.doc or ast.get_docstring(lead.tree, clean=False) or ""
        raw = "r" if "\\" in doc else ""
        head = f'{raw}"""{doc}"""\n\nfrom __future__ import annotations\n\n' + "\n".join(imports)
        listed = "\n\n__all__ = [" + ", ".join(f'"{name}"' for name in sorted({*public})) + "]\n\n" if public else "\n"
        return head + listed + "\n\n\n".join(body for body in bodies if body) + "\n"

    def _rewrite_others(self) -> set[Path]:
        done = set()
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", *TEXTS], cwd=TOP, check=True, capture_output=True, text=True
        )
        for name in listed.stdout.split("\0"):
            path = TOP / name
            if (
                not name
                or path.is_symlink()
                or not path.is_file()
                or path == self.target_path
                or path == Path(__file__)
            ):
                continue
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            new = self._importers(path, text) if path.suffix == ".py" else text
            new = self._mutants(new) if path == MUTANTS else new
            new = self._mentions(new)
            if new != text:
                path.write_text(new, encoding="utf-8", errors="surrogateescape")
                done.add(path)
        return done

    def _importers(self, path: Path, text: str) -> str:
        """``from pkg import module`` and renamed names, in a file outside of the group."""
        last = {name.rpartition(".")[2]: name for name in self.names if name != self.target}
        renamed = {old for _, old in self.renames}
        if not any(name.rpartition(".")[0] in text for name in self.names):
            return text
        source = Source(path)
        edits: list[Edit] = []
        new_last = self.target.rpartition(".")[2]
        defined = globals_of(source.tree)
        for node in _imports(source.tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            moved = [each for each in node.names if f"{node.module}.{each.name}" in self.names and each.name in last]
            if moved:
                lines = [f"from {node.module} import " + ", ".join(_alias(a) for a in node.names if a not in moved)]
                lines = lines if len(moved) < len(node.names) else []
                for each in moved:
                    bound = each.asname or each.name
                    taken = new_last in defined and not _is_module(defined[new_last], self.target)
                    # A function's own import keeps the name that the function uses.
                    local = node not in source.tree.body
                    keep = bound if each.asname or taken or local else new_last
                    alias = "" if keep == new_last else f" as {keep}"
                    lines.append(f"from {self.target.rpartition('.')[0]} import {new_last}{alias}")
                    if keep != bound:
                        for use, around in uses(source.tree, {bound}):
                            if keep in around:
                                sys.exit(f"{path}:{use.lineno}: {bound} would be the local {keep}")
                            edits.append(Edit(*source.span(use), keep))
                indent = " " * node.col_offset
                edits.append(Edit(*source.span(node), f"\n{indent}".join(lines)))
            elif node.module in self.names and any(each.name in renamed for each in node.names):
                lines = []
                for each in node.names:
                    new = self.renames.get((node.module, each.name))
                    if new is None or each.asname:
                        lines.append(_alias(each) if new is None else f"{new} as {each.asname}")
                    elif node not in source.tree.body:
                        lines.append(new)
                        edits += [Edit(*source.span(use), new) for use in _inside(source.tree, node, each.name)]
                    elif new in defined or any(new in around for _, around in uses(source.tree, {each.name})):
                        lines.append(f"{new} as {each.name}")
                    else:
                        lines.append(new)
                        edits += [Edit(*source.span(use), new) for use, _ in uses(source.tree, {each.name})]
                        edits += _definitions(source, {each.name: new})
                edits.append(Edit(*source.span(node), f"from {node.module} import {', '.join(lines)}"))
        # module.old, where a module of the group was imported whole
        modules = {
            (each.asname or each.name): f"{node.module}.{each.name}"
            for node in _imports(source.tree)
            if isinstance(node, ast.ImportFrom)
            for each in node.names
            if f"{node.module}.{each.name}" in self.names
        }
        for attribute in ast.walk(source.tree):
            if (
                isinstance(attribute, ast.Attribute)
                and isinstance(attribute.value, ast.Name)
                and attribute.value.id in modules
            ):
                other = self.renames.get((modules[attribute.value.id], attribute.attr))
                if other:
                    end = source.span(attribute)[1]
                    edits.append(Edit(end - len(attribute.attr), end, other))
        return _edited(text, edits)

    def _mutants(self, text: str) -> str:
        """The list of mutants that survived, with renamed definitions."""
        entries = json.loads(text)
        folded = {path.relative_to(TOP).as_posix(): name for name, path in zip(self.names, self.paths, strict=True)}
        for entry in entries:
            for (module, old), new in self.renames.items():
                if folded.get(entry["path"]) == module:
                    for key in ("function", "before", "after"):
                        entry[key] = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", new, entry[key])
        return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"

    def _mentions(self, text: str) -> str:
        """Names and paths of folded modules in any text."""
        for name in self.names:
            for (module, old), new in self.renames.items():
                if module == name:
                    text = re.sub(rf"\b{re.escape(name)}\.{re.escape(old)}\b", f"{self.target}.{new}", text)
            if name == self.target:
                continue
            inner = name.removeprefix("evalq.")
            new_inner = self.target.removeprefix("evalq.")
            text = re.sub(rf"\b{re.escape(name)}(?!\w)", self.target, text)
            if inner != name:
                old_path, new_path = inner.replace(".", "/"), new_inner.replace(".", "/")
                text = re.sub(rf"(?<![\w/]){re.escape(old_path)}\.py\b", f"{new_path}.py", text)
                text = re.sub(rf"(?<=evalq/){re.escape(old_path)}\.py\b", f"{new_path}.py", text)
        return text

    def _narrow_all(self) -> None:
        """Public names that no other file reads leave ``__all__``."""
        read: set[str] = set()
        listed = subprocess.run(["git", "ls-files", "-z", "*.py"], cwd=TOP, check=True, capture_output=True, text=True)
        package, last = self.target.rpartition(".")[::2]
        for name in listed.stdout.split("\0"):
            path = TOP / name
            if not name or path.is_symlink() or not path.is_file() or path == self.target_path:
                continue
            text = path.read_text(encoding="utf-8")
            if self.target not in text and not (package in text and re.search(rf"\b{last}\b", text)):
                continue
            tree = ast.parse(text)
            whole: set[str] = set()
            for node in _imports(tree):
                if isinstance(node, ast.ImportFrom) and node.module == self.target:
                    read.update(each.name for each in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module == package:
                    whole.update(each.asname or each.name for each in node.names if each.name == last)
            read.update(
                each.attr
                for each in ast.walk(tree)
                if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id in whole
            )
        source = Source(self.target_path)
        for statement in source.tree.body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                names = sorted(each for each in ast.literal_eval(statement.value) if each in read)
                new = "__all__ = [" + ", ".join(f'"{each}"' for each in names) + "]"
                start, end = source.lines_of(statement)
                text = source.text[:start] + (f"{new}\n" if names else "") + source.text[end:]
                self.target_path.write_text(text, encoding="utf-8")


class Part:
    """A module's text on its way into another file."""

    def __init__(self, name: str, source: Source, text: str) -> None:
        self.name = name
        self.source = source
        self.text = text
        self.tree = ast.parse(text)

    def pieces(self, seen: set[str]) -> tuple[str, list[str], list[str]]:
        """The body without docstring, imports, ``__all__`` and what was ``seen``; imports; public names."""
        edits: list[Edit] = []
        imports: list[str] = []
        public: list[str] = []
        lines = _Lines(self.text)
        body = self.tree.body
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            edits.append(lines.whole(body[0]))
        for index, node in enumerate(body):
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                edits.append(lines.whole(node))
            elif isinstance(node, ast.Import | ast.ImportFrom) or _for_types(node):
                # A comment behind an import goes with it.
                edit = lines.whole(node)
                imports.append(self.text[edit.start : edit.end].rstrip("\n"))
                edits.append(edit)
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                public += ast.literal_eval(node.value)
                edits.append(lines.whole(node))
            elif isinstance(node, ast.Assign | ast.AnnAssign) and ast.dump(node) in seen:
                edits.append(lines.whole(node))
                after = body[index + 1] if index + 1 < len(body) else None
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    edits.append(lines.whole(after))
            elif isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.dump(node) in seen:
                edits.append(lines.whole(node))
            seen.add(ast.dump(node))
        return _edited(self.text, edits), imports, public


class _Lines:
    def __init__(self, text: str) -> None:
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def whole(self, node: ast.stmt) -> Edit:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        return Edit(self.starts[first - 1], self.starts[node.end_lineno or node.lineno], "")


def _inside(tree: ast.AST, statement: ast.stmt, name: str) -> Iterator[ast.Name]:
    """Uses of a name in the function that imports it by ``statement``."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and statement in ast.walk(function):
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and node.id == name:
                    yield node


def _for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not node.orelse


def _meaning(statement: ast.stmt, name: str) -> str:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        (alias,) = (each for each in statement.names if (each.asname or each.name).split(".")[0] == name)
        if isinstance(statement, ast.Import):
            return f"import {alias.name if alias.asname else name}"
        return f"from {statement.module} import {alias.name}"
    return ast.dump(statement)


def _is_module(statement: ast.stmt, module: str) -> bool:
    return isinstance(statement, ast.ImportFrom) and any(
        f"{statement.module}.{each.name}" == module for each in statement.names
    )


def _alias(each: ast.alias) -> str:
    return each.name + (f" as {each.asname}" if each.asname else "")


def _definitions(source: Source, renames: dict[str, str]) -> list[Edit]:
    """Where renamed names are defined by ``def``, ``class``, ``global`` or listed in ``__all__``."""
    edits = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Global) and any(name in renames for name in node.names):
            edits.append(Edit(*source.span(node), "global " + ", ".join(renames.get(n, n) for n in node.names)))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            edits += [
                Edit(*source.span(each), f'"{renames[str(each.value)]}"')
                for each in ast.walk(node.value)
                if isinstance(each, ast.Constant) and each.value in renames
            ]
        elif (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node in source.tree.body
            and node.name in renames
        ):
            word = re.compile(rf"(?:def|class)\s+({node.name})\b")
            found = word.search(source.text, source.span(node)[0])
            assert found, node.name
            edits.append(Edit(*found.span(1), renames[node.name]))
    return edits


def _edited(text: str, edits: Iterable[Edit]) -> str:
    for edit in sorted({*edits}, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _as_comment(doc: str) -> str:
    return "\n".join(
        line
        for paragraph in doc.split("\n\n")
        for line in textwrap.wrap(" ".join(paragraph.split()), 117, initial_indent="# ", subsequent_indent="# ")
    )


def _parsed(words: list[str]) -> Fold:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.fold", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--rename", action="append", default=[], metavar="SOURCE:OLD=NEW")
    parser.add_argument("--doc", help="docstring of the new file; by default that of TARGET, or of the first SOURCE")
    asked = parser.parse_args(words)
    package = asked.target.rpartition(".")[0]
    full = {name: name if "." in name else f"{package}.{name}" for name in asked.sources}
    renames = {}
    for each in asked.rename:
        place, new = each.split("=")
        source, old = place.split(":")
        renames[source if "." in source else f"{package}.{source}", old] = new
    return Fold(asked.target, [full[name] for name in asked.sources], renames, asked.doc)


def main() -> None:
    """Fold as the command line or a plan says."""
    words = sys.argv[1:]
    plans = [words]
    if words[:1] == ["--plan"]:
        lines = Path(words[1]).read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
        plans = [split for line in lines if (split := shlex.split(line, comments=True))]
    before = house.circles(house.modules(counted=False))
    touched: set[Path] = set()
    for plan in plans:
        touched |= _parsed(plan).run()
    python = [str(path) for path in touched if path.suffix == ".py" and path.exists()]
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run(
        [*ruff, "check", "-q", "--select", "I,F401,F811,RUF022,TC005,PIE790", "--fix", *python], cwd=TOP, check=False
    )
    subprocess.run([*ruff, "format", "-q", *python], cwd=TOP, check=False)
    subprocess.run(["git", "add", "-A", *[str(path) for path in touched if path.exists()]], cwd=TOP, check=False)
    print(f"{len(touched)} files were rewritten")  # noqa: T201 - a command says what it did
    new = [group for group in house.circles(house.modules(counted=False)) if group not in before]
    if new:
        sys.exit("new circles of imports:\n" + "\n".join("  " + ", ".join(group) for group in new))


if __name__ == "__main__":
    main()
