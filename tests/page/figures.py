"""How big report.html is, and how fast it opens: python -m tests.page.figures [--records N] [--only NAME]

Of each evaluator the page of a run with 100,000 records, and with 1,000,000; ends with 1 where a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from evalq.evalcore.contract import plugins
from evalq.producer.page import write_page
from tests.page.browser import Tab, chromium
from tests.page.test_file import evaluated

MOST_BYTES, MOST_SECONDS, MOST_GROWN = 10_000_000, 2.0, 64_000_000
_MADE = 20_000
_SCROLL = """(async () => {
  const view = document.getElementById('window'), took = [];
  for (let step = 1; step <= 40; step++) {
    const began = performance.now();
    view.scrollTop = (view.scrollHeight - view.clientHeight) * step / 40;
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    took.push(performance.now() - began);
  }
  return Math.max(...took);
})()"""


def main() -> int:
    """Measure, print a table, and say what is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--only", nargs="*", default=plugins.built_in())
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        return _write(*map(Path, given.write))
    print("| records | evaluator | failed | packing, s | memory, MB | file, MB | first rows, s | all, s | scroll, ms |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    missed = []
    for name in given.only:
        with tempfile.TemporaryDirectory() as folder:
            run = evaluated(name, Path(folder), _MADE)
            for records in given.records:
                missed += list(_measured(name, run, Path(folder), records))
    print("\n".join(missed) or "every bound is held")
    return 1 if missed else 0


def _measured(name: str, run: Path, folder: Path, records: int) -> list[str]:
    enlarged = folder / f"{records}"
    lines = _enlarge(run, enlarged, records)
    if not lines:
        return []  # one record is a whole input: its page has no table of them
    made: dict[str, float] = json.loads(
        subprocess.run(
            [sys.executable, "-m", "tests.page.figures", "--write", str(enlarged), str(enlarged / "report.html")],
            check=True,
            capture_output=True,
        ).stdout
    )
    size = (enlarged / "report.html").stat().st_size
    with chromium() as browser:
        tab = browser.tab()
        tab.look()
        found = _opened(tab, (enlarged / "report.html").as_uri())
    print(
        f"| {records:,} | {name} | {made['failed']:.0%} | {made['seconds']:.1f} | {made['grown'] / 1e6:.0f} | "
        f"{size / 1e6:.1f} | {found['first']:.2f} | {found['all']:.2f} | {found['scroll']:.0f} |",
        flush=True,
    )
    checks: dict[str, Any] = {
        f"it asks for {found['requests']}": len(found["requests"]) == 1,
        f"it says {found['complaints']}": not found["complaints"],
        f"writing it takes {made['grown'] / 1e6:.0f} MB": made["grown"] <= MOST_GROWN,
    }
    if records <= 100_000:
        checks[f"it has {size:,} bytes"] = size <= MOST_BYTES
        checks[f"it opens in {found['all']:.2f} s"] = found["all"] + found["scroll"] / 1e3 <= MOST_SECONDS
    return [f"{name}, {records:,} records: {what}" for what, held in checks.items() if not held]


def _enlarge(run: Path, folder: Path, records: int) -> int:
    """A run's report and records repeated up to a number of them, each with an id of its own; how many lines it has."""
    lines = (run / "records.jsonl").read_bytes().splitlines()
    if len(lines) < 100:
        return 0
    folder.mkdir()
    report = json.loads((run / "report.json").read_bytes())
    share = records / len(lines)
    report["records"] = {key: round(count * share) for key, count in report["records"].items()}
    (folder / "report.json").write_text(json.dumps(report))
    with (folder / "records.jsonl").open("wb") as out:
        for number in range(records):
            line = lines[number % len(lines)]
            out.write(line.replace(b'"id":"', b'"id":"%d-' % (number // len(lines)), 1) + b"\n")
    return records


def _write(folder: Path, path: Path) -> int:
    """The page, in a process of its own whose memory is this and nothing else."""
    report = json.loads((folder / "report.json").read_bytes())
    evaluator = plugins.get(report["evaluator"])
    before = _memory("VmRSS")
    began = time.monotonic()
    write_page(path, evaluator, report, folder / "records.jsonl")
    seconds = time.monotonic() - began
    peak = _memory("VmHWM")  # of this program: what getrusage tells includes the process that started it
    text = path.read_bytes()
    known = json.loads(text.partition(b'id="known">')[2].partition(b"</script>")[0])
    total = report["records"]["total"]
    print(json.dumps({"seconds": seconds, "grown": peak - before,
                      "failed": known["failed"] / total}))  # fmt: skip
    return 0


def _memory(kind: str) -> int:
    """Bytes that this process has in memory (VmRSS), or has had at most (VmHWM)."""
    found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def _opened(tab: Tab, address: str) -> dict[str, Any]:
    """Seconds until the first rows are there, and until all are; what scrolling through all of it takes at most."""
    began = time.monotonic()
    tab.open(address)
    tab.wait("document.querySelector('#window tbody button') !== null")
    first = time.monotonic() - began
    tab.wait("document.documentElement.dataset.ready === 'yes'")
    done = time.monotonic() - began
    return {
        "first": first,
        "all": done,
        "scroll": tab.run(_SCROLL),
        "requests": tab.requests,
        "complaints": tab.complaints,
    }


if __name__ == "__main__":
    sys.exit(main())
