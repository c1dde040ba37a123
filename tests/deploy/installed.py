"""Does an installation of evalq work? Run by the Python that it is installed for; needs nothing else of this tree.

    PYTHON tests/deploy/installed.py            # what needs no fleet
    PYTHON tests/deploy/installed.py --fleet    # and the demo, with workers and a server
    PYTHON tests/deploy/installed.py --compiled # and without its C it fails

It asks `evalq doctor` how rows are read, evaluates the demo's data, compares, gates, and holds the reports' bytes
against those written down in tests/integration/demo_reports.json. The last line says what was found, the exit code is
0 if all is as it should be. Where evalq reads rows without its C, the line says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

RECORDED = Path(__file__).parents[1] / "integration" / "demo_reports.json"
DATA = "evalq-demo/data"
COMMANDS = {
    "checks": f"checks {DATA}/checks/cases.yaml --outputs {DATA}/checks/outputs.jsonl",
    "planagent": f"planagent {DATA}/planagent/plan_agent_sample.csv",
    "selfcheck": f"selfcheck {DATA}/selfcheck/completion-reports.jsonl",
    "verification": f"verification {DATA}/verification/transcripts.jsonl",
}


def evalq(folder: Path, command: str, *codes: int) -> str:
    """What a command prints. Ends this program if its exit code is none of ``codes``, or not 0 without any."""
    # Not from the tree in which this file lies, if evalq is installed from elsewhere.
    words = [sys.executable, "-P", "-c", "from evalq.producer.entry import main; main()", *command.split()]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=folder, env=environment | {"PYTHONUTF8": "1"}, capture_output=True, check=False)
    if done.returncode not in (codes or (0,)):
        sys.exit(f"evalq {command} ended with {done.returncode}:\n{done.stdout.decode()}{done.stderr.decode()}")
    return done.stdout.decode()


def main(folder: Path, *, fleet: bool, compiled: bool) -> str:
    """What was found. Ends this program where something is wrong."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    reading = next(line for line in evalq(folder, "doctor").splitlines() if "rows are read by" in line).split(
        maxsplit=1
    )
    if compiled and "compiled code" not in reading[1].partition(":")[0]:
        sys.exit(f"not compiled: {reading[1]}")
    evalq(folder, "demo" if fleet else "demo --data-only")
    found = {path.parent.name: _digest(path) for path in folder.glob("evalq-demo/*/report.json")}
    for name, command in COMMANDS.items():
        evalq(folder, f"{command} --inline --suite demo --out inline/{name} --format none")
        found[f"inline {name}"] = _digest(folder / "inline" / name / "report.json")
    wrong = {name: digest for name, digest in found.items() if recorded[name.removeprefix("inline ")] != digest}
    if wrong:
        sys.exit(f"other bytes than in {RECORDED}: {wrong}")
    evalq(folder, "compare inline/checks inline/checks --format json", 0, 2)
    (folder / "policy.yaml").write_text("gates: [{metric: selfcheck.pass_rate, min: 0.1}]\n", encoding="utf-8")
    evalq(folder, "gate inline/selfcheck --policy policy.yaml")
    evalq(folder, "report inline/checks -o rows.csv -o page.html")
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{system}: {reading[1]}; {len(found)} reports of the same bytes"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        sys.stdout.write(main(Path(made), fleet="--fleet" in sys.argv, compiled="--compiled" in sys.argv) + "\n")
