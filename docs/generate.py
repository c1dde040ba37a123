"""Pages made from the code and from recorded results: docs/reference/settings.md, the table in docs/reliability.md.

With --check, exits 1 when one is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from evalcore.report.markdown import table
from workers.settings import Settings

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))  # the tests are no installed package


def settings_page() -> str:
    """Every setting, its variable, default and meaning."""
    rows: list[tuple[object, ...]] = []
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=False)
        rows.append((f"EVALQ_{name.upper()}", name, default if default not in ("", ()) else "-", field.description))
    return (
        "# Settings\n\n"
        "Read once, when a command starts: from the command line, then the environment, then the YAML file named by\n"
        "`--settings` (or EVALQ_SETTINGS), whose keys are the names below. Lists in variables are JSON.\n\n"
        + table(("variable", "key", "default", "meaning"), rows)
    )


def pages() -> dict[Path, str]:
    """Each page and its text as it should be."""
    from tests.chaos import table as chaos

    return {DOCS / "reference" / "settings.md": settings_page(), chaos.PAGE: chaos.page()}


def main() -> int:
    """Write the pages, or compare them."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if "--check" in sys.argv:
            sys.stderr.write(f"{path.name} is out of date: run .venv/bin/python docs/generate.py\n")
        else:
            path.write_text(pages()[path], encoding="utf-8")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
