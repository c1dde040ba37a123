"""The comment of a pull request: what is refused before anything is sent, and where the link stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.comparing.conftest import Command

MARKER = "<!-- evalq-comment: evalq -->\n"


@pytest.fixture
def request_of(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of GitHub for pull request 3, whose forge is nowhere."""
    Path("event.json").write_text(json.dumps({"pull_request": {"number": 3}}))
    Path("comment.md").write_text(f"{MARKER}# GO: run\n\nAll is kept.\n\n## See more\n")
    for name, value in {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_PATH": "event.json",
        "GITHUB_REPOSITORY": "me/agents",
        "GITHUB_TOKEN": "t",
        "GITHUB_API_URL": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("GITHUB_SERVER_URL", "GITHUB_RUN_ID", "GITLAB_CI"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("request_of")
def test_what_cannot_be_posted_says_why(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file, a link that is none, no server, no address, no token, a broken event."""
    Path("other.md").write_text("# GO\n")
    Path("short.md").write_text(MARKER)
    assert (command("comment", "other.md").code, command("comment", "none.md").code) == (2, 2)
    assert "give the address of a page" in command("comment", "comment.md", "--artifact", "x) [y](z").stderr
    for name in ("comment.md", "short.md"):
        done = command("comment", name, "--artifact", "https://forge.example/a")
        assert (done.code, "the comment is not posted" in done.stderr) == (3, True), done
    for address in ("nowhere", "http://[::1", "ftp://h"):
        monkeypatch.setenv("GITHUB_API_URL", address)
        assert command("comment", "comment.md").code == 3
    monkeypatch.delenv("GITHUB_TOKEN")
    assert "GITHUB_TOKEN: give the job's token" in command("comment", "comment.md").stderr
    Path("event.json").write_text("{")
    assert command("comment", "comment.md").code == 2


@pytest.mark.usefixtures("request_of")
@pytest.mark.parametrize("event", ["{}", "[]", '{"pull_request": null}', '{"pull_request": {"number": "3"}}'])
def test_without_a_request_nothing_is_posted(command: Command, event: str) -> None:
    """As on a push, and outside of any CI."""
    Path("event.json").write_text(event)
    done = command("comment", "comment.md")
    assert (done.code, "nothing is posted" in done.stderr) == (0, True), done
