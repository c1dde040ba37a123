"""deploy/Dockerfile, taken apart: its instructions by stage, and its build stage carried out as processes."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).parents[2]
DOCKERFILE = TOP / "deploy" / "Dockerfile"


class Instruction(NamedTuple):
    """One instruction: its word in capitals, and the rest of its line with continuations joined."""

    word: str
    rest: str


def stages(text: str) -> list[list[Instruction]]:
    """The instructions of each stage, FROM first."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    found: list[list[Instruction]] = []
    for line in joined:
        word, _, rest = line.strip().partition(" ")
        if word.upper() == "FROM":
            found.append([])
        found[-1].append(Instruction(word.upper(), " ".join(rest.split())))
    return found


@cache
def sent(top: Path = TOP) -> frozenset[Path]:
    """Files that .dockerignore lets into the build, relative to ``top``: of its rules, the last that fits decides."""
    rules = [line for line in (top / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    with tempfile.TemporaryDirectory() as empty:  # whether the tree was cloned, and whose it is, is all the same then
        git = ("git", f"--git-dir={empty}", f"--work-tree={top}")
        subprocess.run([*git, "init", "-q"], cwd=top, check=True)
        listed = [*git, "ls-files", "-o", "--exclude-standard"]
        names = subprocess.run(listed, cwd=top, capture_output=True, text=True, check=True).stdout.splitlines()
    kept = set()
    for path in map(Path, names):
        fits = [rule for rule in rules if _fits(path, rule.removeprefix("!"))]
        if not fits or fits[-1].startswith("!"):
            kept.add(path)
    return frozenset(kept)


def _fits(path: Path, rule: str) -> bool:
    """Whether a rule names the file or a folder it is in; `**/` stands for any depth."""
    last = rule.removeprefix("**/")
    return any(
        part.match(last) if rule != last else len(part.parts) == len(Path(rule).parts) and part.match(rule)
        for part in [path, *path.parents[:-1]]
    )


def build(stage: list[Instruction], folder: Path) -> Path:
    """Carry out a build stage in ``folder``; returns what is /opt/evalq in the image. Raises CalledProcessError."""
    source, result, python = folder / "src", folder / "opt" / "evalq", Path(sys.executable).parent
    source.mkdir(parents=True)
    allowed = sent()
    # Compiling all packages takes longer than all the rest, and is pip's own business. (Of an option that says no, "no"
    # in the environment means that it is given.) How fast the C is does not matter here.
    environment = {"PATH": f"{python}:/usr/bin:/bin", "HOME": str(folder), "PIP_NO_COMPILE": "no", "CFLAGS": "-O0"}
    for word, rest in stage:
        if word == "COPY":
            *names, target = shlex.split(rest)
            for name in names:
                _copy(Path(name), source / target, allowed, whole=len(names) == 1 and not target.endswith("/"))
        mapped = rest.replace("/opt/evalq", str(result))
        if word == "ENV":
            name, _, value = mapped.partition("=")
            environment[name] = value.replace(f"${name}", environment.get(name, ""))
        if word == "RUN" and not rest.startswith("apt-get "):  # this machine's own packages are left alone
            subprocess.run(["sh", "-ec", mapped], cwd=source, env=environment, check=True)
    return result


def _copy(name: Path, target: Path, allowed: frozenset[Path], *, whole: bool) -> None:
    found = [path for path in allowed if path == name or name in path.parents]
    assert found, f"COPY {name}: .dockerignore leaves nothing of it"
    for path in found:
        place = target / path.relative_to(name) if whole else target / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(TOP / path, place, follow_symlinks=False)
