"""The tree holds no secret: what .gitignore keeps out of it for that reason has not slipped in before the rule came."""

from __future__ import annotations

import subprocess

import pytest

from tests.deploy.programs import TOP


def test_nothing_that_is_ignored_is_tracked() -> None:
    """`deploy/secrets.sh` leaves alone what exists: a password in the tree would be the one of every deployment."""
    if not (TOP / ".git").exists():
        pytest.skip("this tree was not cloned, so nobody says what of it is tracked")
    listed = subprocess.run(
        # Whoever the tree belongs to: git reads none of somebody else's unless it is told to.
        ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--ignored", "--exclude-standard"],
        cwd=TOP,
        capture_output=True,
        text=True,
    )
    assert (listed.returncode, listed.stdout) == (0, "")
