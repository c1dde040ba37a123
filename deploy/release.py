"""What a release says of itself: its part of CHANGELOG.md. Refuses a tag that is not of this version.

python deploy/release.py v0.1.0 > notes.md
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

TOP = Path(__file__).parent.parent


def notes(tag: str, top: Path = TOP) -> str:
    """The text below the version's heading. Raises ValueError if ``tag`` and files do not fit together."""
    version = tomllib.loads((top / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if tag != f"v{version}":
        raise ValueError(f"the tag is {tag!r}, and pyproject.toml says version {version}: tag v{version}, or change it")
    changes = (top / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.compile(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", re.MULTILINE)
    found = heading.split(changes)
    if len(found) != 2:
        raise ValueError(f"CHANGELOG.md has {len(found) - 1} headings '## [{version}] - YEAR-MONTH-DAY'; one is needed")
    text = re.split(r"^## ", found[1], maxsplit=1, flags=re.MULTILINE)[0].strip()
    if not text:
        raise ValueError(f"CHANGELOG.md says nothing about {version}")
    return text + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python deploy/release.py TAG")
    try:
        sys.stdout.write(notes(sys.argv[1]))
    except ValueError as error:
        sys.exit(str(error))
