"""The token of whoever drives a run."""

from __future__ import annotations

import os
import subprocess
import sys

from evalq.workers.processes.identity import driver_token


def test_a_process_has_one_token_that_says_which_it_is() -> None:
    """Host, process and something nobody else has; another process's differs."""
    host, pid, tail = driver_token().split(" ")
    assert driver_token() == f"{host} {pid} {tail}"
    assert (int(pid), len(tail)) == (os.getpid(), 16)
    script = "from evalq.workers.processes.identity import driver_token; print(driver_token())"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    assert other.split(" ")[1:] != [pid, tail]
