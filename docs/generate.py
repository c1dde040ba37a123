"""Reference pages made from the code: docs/reference/settings.md. With --check, exits 1 when one is out of date."""

from __future__ import annotations

import sys
from pathlib import Path

from evalcore.report.markdown import table
from workers.settings import Settings

PAGE = Path(__file__).parent / "reference" / "settings.md"


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


def main() -> int:
    """Write the page, or compare it."""
    text = settings_page()
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{PAGE.name} is out of date: run .venv/bin/python docs/generate.py\n")
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
