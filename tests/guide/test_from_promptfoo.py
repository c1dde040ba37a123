"""The page for who comes from promptfoo, walked against an agent that answers: its configuration, commands, suite."""

from __future__ import annotations

import json
import re
import shlex
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from evalq.producer.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "from-promptfoo.md"
_BLOCK = re.compile(r"^```(yaml|sh|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PORT = "127.0.0.1:8000"


class _Translator(BaseHTTPRequestHandler):
    """Chat completions that know two sentences."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one call."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][-1]["content"]
        said = "Bonjour !" if "French" in asked else "Einundzwanzig"
        choice = {"message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        data = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own name
        """Say nothing."""


@pytest.fixture
def translator() -> Iterator[str]:
    """Where the agent listens."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Translator)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_page_leads_from_a_configuration_to_a_gate_that_says_go(
    translator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every command ends with 0, the import prints what is shown, and both gates are met at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALQ_BROKER", raising=False)
    monkeypatch.setenv("TRANSLATOR_KEY", "a key")
    blocks = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    config, suite = (text for kind, text in blocks if kind == "yaml")
    (printed,) = (text for kind, text in blocks if kind == "text")
    assert PORT in config
    Path("promptfooconfig.yaml").write_text(config.replace(PORT, translator))
    Path("evalq.yaml").write_text(suite)
    commands = [
        line for kind, text in blocks if kind == "sh" for line in text.splitlines() if line.startswith("evalq ")
    ]
    assert len(commands) == 6
    for number, command in enumerate(commands):
        assert main(shlex.split(command)[1:]) == 0, command
        said = capfd.readouterr().out
        assert number != 0 or printed.replace(PORT, translator) == said
    assert said.count("| GO | checks.pass") == 2
