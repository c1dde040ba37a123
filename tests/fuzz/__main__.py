"""`python -m tests.fuzz NAME --seconds 600`: one reader under atheris, from seeds; a crash leaves its input here.

Atheris is no dependency of evalq: pip install atheris (it has wheels for Linux).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path


def main() -> int:
    """Run one harness; returns an exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, help="A folder that keeps what was found worth keeping.")
    given = parser.parse_args()
    try:
        import atheris
    except ImportError:
        sys.stderr.write("atheris is not installed: pip install atheris\n")
        return 2
    # Branches of the code under test guide it; they are marked as it is imported, which is why that comes late.
    with atheris.instrument_imports(include=["evalcore", "producer", "workers"]):
        from tests.fuzz.harnesses import HARNESSES, seeds
    if given.name not in HARNESSES:
        parser.error(f"no reader {given.name!r}; there are: {', '.join(HARNESSES)}")
    harness = HARNESSES[given.name]
    corpus = given.corpus or Path(tempfile.mkdtemp(prefix="evalq-corpus-"))
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(given.name)):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [f"-max_total_time={given.seconds}", "-max_len=8192", "-timeout=30", "-rss_limit_mb=2048"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], harness)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
