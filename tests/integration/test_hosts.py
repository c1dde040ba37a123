"""What a host lacks is said in words: a folder that a worker needs, and how far away the server is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.harness import EVALQ, Server, clean_environment, evalq

READ_ONLY = "mount -t tmpfs -o ro none /dev/shm"


@pytest.fixture(scope="module")
def mounts() -> None:
    """Skips where this user may mount nothing."""
    made = (
        subprocess.run(["unshare", "-m", "sh", "-c", READ_ONLY], capture_output=True, text=True, check=False)
        if shutil.which("unshare")
        else None
    )
    if made is None or made.returncode:
        pytest.skip("nothing can be mounted here")


def test_shared_memory_that_cannot_be_written(mounts: None, tmp_path: Path, server: Server) -> None:
    """A worker names the folder, and ends with 2; without, Python's error names nothing."""
    command = ["unshare", "-m", "sh", "-c", f'{READ_ONLY} && exec "$@"', "sh", *EVALQ, "worker", "--broker", server.url]
    done = subprocess.run(command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.fullmatch(
        r"evalq: /dev/shm: a worker's pool cannot make a semaphore there \(.*\).*mount it writable\n", done.stderr
    )


def test_doctor_measures_a_round_trip(server: Server, tmp_path: Path) -> None:
    """To the ledger, in milliseconds."""
    done = evalq("doctor", "--broker", server.url, cwd=tmp_path)
    assert re.search(r"^(ok|note) +a round trip to the ledger takes \d+\.\d ms", done.stdout, re.MULTILINE)
