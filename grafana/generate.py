"""Write grafana/dashboards/*.json from what evaluators and the exporter declare, and the rules for Kubernetes.

With --check, exits 1 when one is out of date or is not ours.
"""

from __future__ import annotations

import sys
from pathlib import Path

TOP = Path(__file__).parent
DASHBOARDS = TOP / "dashboards"
RULES = TOP.parent / "deploy" / "prometheus" / "rules"
OPERATOR = TOP.parent / "deploy" / "kubernetes" / "prometheus-operator" / "rules.yaml"
sys.path.insert(0, str(TOP.parent))  # this folder is no installed package


def files() -> dict[Path, str]:
    """Each dashboard's file and its text as it should be."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    from grafana.page import draw
    from grafana.pages import pages

    made = pages()
    encoder = JSONEncoder(sort_keys=True, indent=2, ensure_ascii=False)
    drawn = {DASHBOARDS / f"{page.name}.json": encoder.encode(draw(page, made)) + "\n" for page in made}
    return {**drawn, OPERATOR: _for_the_operator()}


def _for_the_operator() -> str:
    """The rules of Prometheus as the operator's kind of manifest, word for word."""
    head = """# Made by grafana/generate.py of deploy/prometheus/rules: change those.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: evalq
spec:
  groups:
"""
    texts = [path.read_text(encoding="utf-8") for path in sorted(RULES.glob("*.yml"))]
    lines = [line for text in texts for line in text.partition("groups:\n")[2].splitlines()]
    return head + "".join(f"  {line}\n" if line else "\n" for line in lines)


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
