"""`python -P waiting.py READY GO ARGS...`: an evalq command that stands still in front of its first own step.

The interpreter is started and what the command needs is imported; then it says so in the named pipe READY and waits
until the other end of the named pipe GO is closed, which is one instant for all that wait there. What it says after
that is the moment at which it went.
"""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module

from evalq.evalcore.contract import plugins
from evalq.evalcore.version import code_version
from evalq.producer.cli import main

EVERYWHERE = ("evalq.producer.commands._evaluation", "evalq.producer.folder.job", "evalq.producer.run.execute")
WITH_A_QUEUE = ("evalq.producer.local.processes", "evalq.producer.run.work", "evalq.producer.driving.retries")

if __name__ == "__main__":
    ready, go = os.open(sys.argv[1], os.O_WRONLY), os.open(sys.argv[2], os.O_RDONLY)
    sys.argv[:] = ["evalq", *sys.argv[3:]]
    plugins.get(sys.argv[1])
    code_version()
    for name in EVERYWHERE if "--inline" in sys.argv else (*EVERYWHERE, *WITH_A_QUEUE):
        import_module(name)
    os.write(ready, b"ready\n")
    os.read(go, 1)
    os.close(go)
    os.write(ready, b"%d\n" % time.monotonic_ns())
    os.close(ready)
    sys.exit(main())
