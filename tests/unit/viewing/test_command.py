"""evalq view: what it prints, where it leads, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from evalq.producer.cli import main
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.viewing.server import ViewServer
from tests.integration.harness import clean_environment, launch
from tests.unit.comparing.conftest import Made


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[ViewServer]:
    """Servers that were started, each ended by Ctrl-C before the first request."""
    seen: list[ViewServer] = []

    def serve(self: ViewServer, poll_interval: float = 0.5) -> None:
        seen.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(ViewServer, "serve_forever", serve)
    return seen


def test_the_address_leads_to_what_is_named(
    made: Made, ended: list[ViewServer], capsys: pytest.CaptureFixture[str]
) -> None:
    """To the index, to a run, or to two of them side by side; Ctrl-C is how one ends it, and no error."""
    paths = [made(name, [("a", True)]) for name in ("one", "two")]
    one, two = (RunFolder(path).info().run for path in paths)
    for given, where in (
        ([], "/?token="),
        (["--json"], "/?token="),
        ([str(paths[0])], f"/run/{one}?token="),
        ([one], f"/run/{one}?token="),
        ([one, str(paths[1])], f"/compare?base={one}&cand={two}&token="),
        (["evalq-runs"], "/?token="),
    ):
        capsys.readouterr()
        assert main(["view", *given]) == 0
        said = capsys.readouterr()
        url = json.loads(said.out)["url"] if "--json" in given else said.out.strip()
        assert url == f"http://127.0.0.1:{ended[-1].server_port}{where}{ended[-1].token}"
        assert said.err == ""


def test_a_browser_is_given_an_address_for_once(
    here: Path, ended: list[ViewServer], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And where there is none, that is said."""
    asked: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: asked.append(url))
    assert main(["view", "--open"]) == 0
    assert ended[-1].token not in asked[0]
    assert ended[-1].admits(asked[0].partition("token=")[2])
    assert "no browser could be started here" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["nothing"], ["--port", "99999"], ["--port", "-1"]])
def test_what_cannot_be_shown_is_a_usage_error(
    here: Path, given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is served."""
    assert main(["view", *given]) == 2
    assert capsys.readouterr().out == ""


def test_a_port_that_is_taken_is_named(here: Path, ended: list[ViewServer], capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do about it."""
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert main(["view", "--port", str(other.getsockname()[1])]) == 2
    assert "name another with --port" in capsys.readouterr().err


def test_a_process_of_its_own_serves_until_it_is_interrupted(here: Path) -> None:
    """With a request under way, too: it ends at once, with 0."""
    process: subprocess.Popen[str] = launch(
        ["view", "--json"], cwd=here, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = urlsplit(json.loads(process.stdout.readline())["url"])
    connection = http.client.HTTPConnection(address.netloc, timeout=30)
    connection.request("GET", f"{address.path}?{address.query}")
    assert connection.getresponse().status == 200
    idle = http.client.HTTPConnection(address.netloc, timeout=30)
    idle.connect()
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")
    idle.close()
