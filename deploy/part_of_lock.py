"""The part of requirements.lock that an image installs: what evalq needs to run, or its wheel to be built, with hashes.

    python deploy/part_of_lock.py run parquet > run.lock     # evalq's dependencies, with the extra `parquet`
    python deploy/part_of_lock.py build > build.lock         # what builds its wheel

pip resolves under the lock's versions and says what is needed; the lines, hashes included, are the lock's own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

TOP = Path(__file__).parent.parent
_ENTRY = re.compile(
    r"^(?P<name>[\w.-]+)(?:\[.*?\])?(?P<pin>==[^\n\\]+?)(?: \\)?\n(?:^ +--hash=.*\n)+",
    re.MULTILINE,
)


def main(what: str, *extras: str) -> int:
    """Print the part; exits 1 when something that is needed is not in the lock."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = list(project["build-system"]["requires"])
    if what == "run":
        optional = project["project"]["optional-dependencies"]
        wanted = [*project["project"]["dependencies"], *(need for extra in extras for need in optional[extra])]
    lock = (TOP / "requirements.lock").read_text(encoding="utf-8")
    entries = {_normal(entry["name"]): entry for entry in _ENTRY.finditer(lock)}
    needed = _resolved(wanted, "".join(f"{entry['name']}{entry['pin']}\n" for entry in entries.values()))
    missing = [name for name in needed if name not in entries]
    if missing:
        sys.stderr.write(f"not in requirements.lock: {', '.join(missing)}\n")
        return 1
    sys.stdout.write("".join(entries[name].group() for name in needed))
    return 0


def _resolved(wanted: list[str], pins: str) -> list[str]:
    """Normalised names of all packages that ``wanted`` come to, on this machine, under ``pins``."""
    with tempfile.TemporaryDirectory() as folder:
        constraints, plan = Path(folder, "pins.txt"), Path(folder, "plan.json")
        constraints.write_text(pins, encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        pip += ["--disable-pip-version-check", "--constraint", str(constraints), "--report", str(plan), *wanted]
        subprocess.run(pip, check=True, stdout=sys.stderr)  # noqa: S603 - pip, with this project's own requirements
        installs = json.loads(plan.read_text(encoding="utf-8"))["install"]
    return sorted(_normal(item["metadata"]["name"]) for item in installs)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
