"""Write grafana/dashboards/*.json from what evaluators and the exporter declare.

With --check, exits 1 when one is out of date or is not ours.
"""

from __future__ import annotations

import sys
from pathlib import Path

TOP = Path(__file__).parent
DASHBOARDS = TOP / "dashboards"
sys.path.insert(0, str(TOP.parent))  # this folder is no installed package


def files() -> dict[Path, str]:
    """Each dashboard's file and its text as it should be."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    from grafana.page import draw
    from grafana.pages import pages

    made = pages()
    encoder = JSONEncoder(sort_keys=True, indent=2, ensure_ascii=False)
    return {DASHBOARDS / f"{page.name}.json": encoder.encode(draw(page, made)) + "\n" for page in made}


def main() -> int:
    """Write the files, or compare them."""
    wanted = files()
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    # Pages of what is no longer declared: an evaluator that is gone must not leave its page behind.
    left = sorted(set(DASHBOARDS.glob("*.json")) - set(wanted))
    if "--check" in sys.argv:
        for path in [*stale, *left]:
            sys.stderr.write(f"{path.name} is out of date: run .venv/bin/python grafana/generate.py\n")
        return 1 if stale or left else 0
    for path in left:
        path.unlink()
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
