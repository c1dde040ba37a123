"""`python -m tests.guide.block CODE` runs the Python of a page, as `python -c CODE` does, where that is forked."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    exec(compile(sys.argv[1], "<page>", "exec"), {"__name__": "__main__"})  # noqa: S102 - the page's own code
