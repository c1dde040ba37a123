"""How the product's files are cut: counts, sizes, imports and circles, as a table.

python -m tests.tools.house            # the counts
python -m tests.tools.house --entered  # and how many modules three commands enter
python -m tests.tools.house --list     # and the files behind each count
python -m tests.tools.house --check    # fails where a count is over its limit; part of make check
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).parents[2]
FOLDERS = ("evalq", "evalcore", "workers", "producer")
LONGEST, SHORTEST, MOST_IN_A_FOLDER = 600, 120, 15
LISTS = frozenset(("producer/commands",))
"""Folders with a file for each thing of a kind that users see: these are as many as there are commands."""
ENTRIES = frozenset(("evalq.errors", "evalq.deepeval"))
"""Modules that users import from."""
SKELETON = frozenset(("evaluator", "params", "score", "report", "views", "sample"))
"""The files that every evaluator has, however short."""
_LAYOUT = frozenset(
    (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
)


class Module(NamedTuple):
    """A file of the product, by the name that it is imported as."""

    name: str
    path: Path
    lines: int
    code: int
    importing: int
    imports: frozenset[str]
    classes: tuple[str, ...]

    @property
    def package(self) -> str:
        """The folder's package."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


def modules(*, counted: bool = True) -> dict[str, Module]:
    """All of the product, by name; without ``counted`` no lines of code are counted, which takes longest."""
    paths = [path for folder in FOLDERS for path in sorted((TOP / folder).rglob("*.py"), key=str) if _own(path)]
    named = {_name(path): path for path in paths}
    known = frozenset(named)
    return {name: _read(name, path, known, counted) for name, path in named.items()}


def _own(path: Path) -> bool:
    # The folders are linked into evalq/, too, and would be counted twice.
    return not any(parent.is_symlink() for parent in path.parents if parent != TOP and TOP in parent.parents)


def _name(path: Path) -> str:
    parts = [*path.relative_to(TOP).with_suffix("").parts]
    parts = parts if parts[0] == "evalq" else ["evalq", *parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _read(name: str, path: Path, known: frozenset[str], counted: bool) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    own = Module(name, path, text.count("\n"), 0, 0, frozenset(), ())
    imports = {found for node in ast.walk(tree) for found in _imported(node, own, known)} - {name}
    classes = tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return own._replace(
        code=_code_lines(text, tree) if counted else 0,
        importing=_import_lines(tree),
        imports=frozenset(imports),
        classes=classes,
    )


def _imported(node: ast.AST, module: Module, known: frozenset[str]) -> Iterator[str]:
    """Files of the product that a statement imports, also where it stands in a function or below TYPE_CHECKING."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = module.package.split(".")
            base = ".".join([*above[: len(above) - node.level + 1], *([node.module] if node.module else [])])
        for alias in node.names:
            if f"{base}.{alias.name}" in known:
                yield f"{base}.{alias.name}"
            elif base in known:
                yield base


def _code_lines(text: str, tree: ast.Module) -> int:
    """Lines with code: no blank ones, comments or docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    quoted: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and node.body and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            quoted.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - quoted)


def _import_lines(tree: ast.Module) -> int:
    """Lines of imports, and of ``__all__``."""
    found = 0
    for node in ast.walk(tree):
        names = [target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)]
        if isinstance(node, ast.Import | ast.ImportFrom) or "__all__" in names:
            found += (node.end_lineno or node.lineno) - node.lineno + 1  # type: ignore[attr-defined]  # a statement
    return found


def too_small(found: dict[str, Module]) -> list[str]:
    """Modules under the least size whose only importer stands beside them."""
    importers: dict[str, set[str]] = defaultdict(set)
    for module in found.values():
        for name in module.imports:
            importers[name].add(module.name)
    small = []
    for name, module in found.items():
        exempt = module.path.name in ("__init__.py", "__main__.py") or module.path.stem in SKELETON or name in ENTRIES
        readers = importers[name]
        if not exempt and module.lines < SHORTEST and len(readers) == 1:
            (reader,) = readers
            if found[reader].path.parent == module.path.parent:
                small.append(f"{name} ({module.lines} lines, read by {reader.rpartition('.')[2]})")
    return sorted(small)


def circles(found: dict[str, Module]) -> list[list[str]]:
    """Groups of files that import each other, hidden imports included (Tarjan's components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in sorted(found[name].imports):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                groups.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for name in found:
        if name not in order:
            visit(name)
    return sorted(groups, key=len, reverse=True)


def entered(*command: str) -> int:
    """How many modules of the product have a function called by an evalq command, in it and in what it starts.

    Ends the program where the command fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(_TRACED)
        names = Path(folder) / "names"
        names.touch()
        environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{TOP}", "HOUSE_NAMES": str(names)}
        done = subprocess.run([*_EVALQ, *command], cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode not in (0, 1):  # 1: what was evaluated did not pass
            sys.exit(f"evalq {' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
        return len({*names.read_text().split()})


_EVALQ = (sys.executable, "-m", "evalq.producer.cli")
_TRACED = """
import os, sys, threading

seen = set()

def called(frame, event, arg):
    if event == "call" and frame.f_code.co_name != "<module>":
        name = frame.f_globals.get("__name__") or ""
        if name.startswith("evalq.") and name not in seen:
            seen.add(name)
            # At once, and appended: some processes end without saying so.
            file = os.open(os.environ["HOUSE_NAMES"], os.O_WRONLY | os.O_APPEND)
            os.write(file, f"{name}\\n".encode())
            os.close(file)

if "HOUSE_NAMES" in os.environ:
    threading.setprofile(called)
    sys.setprofile(called)
"""


class Count(NamedTuple):
    """A line of the table: what is counted, the most that may be, and the files behind it."""

    name: str
    value: str
    number: float
    limit: float | None = None
    files: Iterable[str] = ()


LIMITS = {"long": 0, "small": 0, "folders": 0, "circles": 0, "names": 4, "imports": 0.075}
"""What `make check` holds. A number that goes down is lowered here, and never raised."""


def counts(found: dict[str, Module]) -> list[Count]:
    """The table's lines."""
    written = [module for module in found.values() if module.code]
    by_folder: dict[Path, int] = defaultdict(int)
    meanings: dict[str, list[str]] = defaultdict(list)
    for module in found.values():
        by_folder[module.path.parent] += module.path.name != "__init__.py"
        for name in module.classes:
            meanings[name].append(module.name)
    share = sum(module.importing for module in found.values()) / sum(module.lines for module in found.values())
    return [
        Count("Python files / folders", f"{len(found)} / {len(by_folder)}", 0),
        Count("code lines a file that has any", str(round(sum(each.code for each in written) / len(written))), 0),
        Count("imports and `__all__`, share of lines", f"{share:.1%}", share, LIMITS["imports"]),
        _counted(f"files of more than {LONGEST} lines", "long", (m.name for m in found.values() if m.lines > LONGEST)),
        _counted(f"files under {SHORTEST} lines with one reader, beside them", "small", too_small(found)),
        _counted(
            f"folders of more than {MOST_IN_A_FOLDER} files",
            "folders",
            (
                f"{path.relative_to(TOP)} ({n})"
                for path, n in by_folder.items()
                if n > MOST_IN_A_FOLDER and path.relative_to(TOP).as_posix() not in LISTS
            ),
        ),
        _counted("circles of imports", "circles", (", ".join(group) for group in circles(found))),
        _counted(
            "class names with several meanings",
            "names",
            (f"{name}: {', '.join(at)}" for name, at in sorted(meanings.items()) if len(at) > 1),
        ),
    ]


def _counted(name: str, limit: str, files: Iterable[str]) -> Count:
    listed = list(files)
    return Count(name, str(len(listed)), len(listed), LIMITS[limit], listed)


def main() -> None:
    """Print the table, or check it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.house", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="name the files behind each count")
    parser.add_argument("--entered", action="store_true", help="run three commands, and count what they enter")
    parser.add_argument("--check", action="store_true", help="print what is over its limit, and end with 1")
    asked = parser.parse_args()
    table = counts(modules())
    if asked.check:
        over = [each for each in table if each.limit is not None and each.number > each.limit]
        for each in over:
            sys.stdout.write(f"{each.name}: {each.value}, at most {each.limit} may be\n")
            sys.stdout.writelines(f"    {name}\n" for name in each.files)
        sys.exit(1 if over else 0)
    words = f"{_words([TOP / 'README.md'])} / {_words((TOP / 'docs').rglob('*.md'))}"
    table.append(Count("words in README.md / in docs", words, 0))
    if asked.entered:
        table += [Count(f"modules entered by {name}", str(entered(*each)), 0) for name, each in _commands().items()]
    for each in table:
        sys.stdout.write(f"| {each.name} | {each.value} |\n")
        if asked.list:
            sys.stdout.writelines(f"    {name}\n" for name in each.files)


def _words(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths)


_AGENT = r"""
import json, re, sys

# What it reads is JSON, in which the quotes of a prompt are escaped.
asked = re.search(r'nothing else: \{\\?"(\w+)\\?": \\?"(\w+)\\?"', sys.stdin.read())
print(json.dumps({asked[1]: asked[2], "reason": "it does", "pass": True} if asked else "q"))
"""


def _commands() -> dict[str, tuple[str, ...]]:
    """One CSV row inline, a live check with a judge, and a gate, each on files that are made here."""
    folder = Path(tempfile.mkdtemp(prefix="evalq-house-"))
    cases, targets, policy = (folder / name for name in ("c.yaml", "t.yaml", "p.yaml"))
    checks = "cases: [{id: a, input: q, checks: [{contains: q}, {rubric: it answers}]}]"
    cases.write_text(checks)
    (folder / "agent.py").write_text(_AGENT)
    argv = json.dumps([sys.executable, str(folder / "agent.py")])
    targets.write_text(f"targets: {{own: {{kind: command, argv: {argv}}}, judge: {{kind: command, argv: {argv}}}}}")
    policy.write_text("gates: [{metric: planagent.set.accuracy, min: 0}]")
    made = ("demo", "--only", "planagent", "--records", "1", "--data-only", "--out", str(folder))
    subprocess.run([*_EVALQ, *made], cwd=folder, check=True, capture_output=True)
    (rows,) = (folder / "data" / "planagent").glob("*.csv")
    run = ("planagent", str(rows), "--inline", "--quiet", "--format", "none", "--out")
    subprocess.run([*_EVALQ, *run, str(folder / "cand")], cwd=folder, check=True)
    asked = ("--target", "own", "--judge", "judge", "--targets", str(targets))
    live = ("checks", str(cases), *asked, "--quiet")
    return {
        "one CSV inline": (*run, str(folder / "once")),
        "a live check with a judge": (*live, "--format", "none", "--out", str(folder / "live")),
        "a gate": ("gate", str(folder / "cand"), "--policy", str(policy), "--allow-inconclusive"),
    }


if __name__ == "__main__":
    main()
