"""The plain loop: cases and outputs read line by line, two checks each, a record written for each output.

`python -m tests.bench.rivals.plain_checks CASES OUTPUTS RECORDS` prints how many passed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    """All in memory, nothing validated, nothing counted but what passes."""
    cases, outputs, records = map(Path, sys.argv[1:])
    with cases.open() as lines:
        checks = {case["id"]: case["checks"] for case in map(json.loads, lines)}
    passed = 0
    with outputs.open() as lines, records.open("w") as out:
        for record in map(json.loads, lines):
            text, verdicts = record["output"], []
            for check in checks[record["case"]]:
                ((name, value),) = check.items()
                verdicts.append((name, value in text if name == "contains" else len(text) <= value))
            fine = all(held for _, held in verdicts)
            passed += fine
            messages = {"id": record["case"], "repeat": record["repeat"], "passed": fine, "checks": dict(verdicts)}
            out.write(json.dumps(messages) + "\n")
    sys.stderr.write(f"passed={passed}\n")


if __name__ == "__main__":
    main()
