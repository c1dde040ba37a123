"""`evalq demo` as it stands in the README: its reports are those that were written down, byte for byte.

After a change that is meant to change them, write them down anew::

    python -m tests.integration.test_demo
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from evalq.evalcore.contract import plugins
from tests.integration.harness import evalq

RECORDED = Path(__file__).with_name("demo_reports.json")


def reports(folder: Path) -> dict[str, str]:
    """The digest of each evaluation's report.json after a demo in ``folder``, with real workers and a server."""
    done = evalq("demo", cwd=folder)
    assert done.returncode == 0, done.stderr
    written = {path.parent.name: path.read_bytes() for path in (folder / "evalq-demo").glob("*/report.json")}
    return {name: hashlib.sha256(written[name]).hexdigest() for name in sorted(written)}


def test_its_reports_are_those_written_down(tmp_path: Path) -> None:
    """Of every evaluation that evalq brings."""
    found = reports(tmp_path)
    assert [*found] == sorted(plugins.built_in())
    assert found == json.loads(RECORDED.read_text())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        RECORDED.write_text(json.dumps(reports(Path(made)), indent=1) + "\n")
