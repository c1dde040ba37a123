"""The ledger's other door: answers that were damaged or swapped there, and what their digests show of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard

from evalq.evalcore.records.digests import answer_digest
from evalq.evalcore.version import code_version
from evalq.workers.ledger.keys import SHARED
from tests.doors.intruder import logged_worker
from tests.integration.harness import Server, evalq, info, running_server, same_answer, wait_until

Change = Callable[[dict[bytes, bytes], dict[bytes, bytes]], None]


def _flip(parts: dict[bytes, bytes], digests: dict[bytes, bytes]) -> None:
    part = bytearray(parts[b"3"])
    part[len(part) // 2] ^= 0x10
    parts[b"3"] = bytes(part)


def _cut(parts: dict[bytes, bytes], digests: dict[bytes, bytes]) -> None:
    parts[b"3"] = parts[b"3"][:-7]


def _garbage(parts: dict[bytes, bytes], digests: dict[bytes, bytes]) -> None:
    parts[b"3"] = b"\xff" * 100


def _other_part(parts: dict[bytes, bytes], digests: dict[bytes, bytes]) -> None:
    parts[b"3"] = parts[b"5"]


def _other_digest(parts: dict[bytes, bytes], digests: dict[bytes, bytes]) -> None:
    digests[b"3"] = digests[b"5"]


def _no_digest(parts: dict[bytes, bytes], digests: dict[bytes, bytes]) -> None:
    digests[b"3"] = b"\xff\x00"


def _swapped(parts: dict[bytes, bytes], digests: dict[bytes, bytes]) -> None:
    parts[b"3"], digests[b"3"] = parts[b"5"], digests[b"5"]


def _forged(parts: dict[bytes, bytes], digests: dict[bytes, bytes]) -> None:
    """Another chunk's lines under this one's head, and the digest of both."""
    head, _, _ = zstandard.ZstdDecompressor().decompress(parts[b"3"]).partition(b"\n")
    _, _, lines = zstandard.ZstdDecompressor().decompress(parts[b"5"]).partition(b"\n")
    plain = head + b"\n" + lines
    parts[b"3"], digests[b"3"] = zstandard.ZstdCompressor().compress(plain), answer_digest(plain).encode()


class Left(NamedTuple):
    """A detached run whose answers all lie in the ledger: its folder, and every key of its server."""

    folder: Path
    ledger: dict[bytes, bytes]


@pytest.fixture(scope="module")
def left(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Left:
    """One run, computed once; what is changed is a copy of it."""
    folder = tmp_path_factory.mktemp("left")
    with running_server(folder) as server:
        # Or the worker would make the report of them, too.
        server.client.set(SHARED.reconciler + code_version(), "nobody")
        args = ("planagent", "rows.csv", "--broker", server.url, "--chunk-size", "250", "--out", folder / "run")
        with logged_worker(server, data, folder / "log"):
            assert evalq(*args, "--detach", cwd=data).returncode == 0
            key = f"evalq:run:{{{info(folder / 'run')['run']}}}:digests"
            wait_until(lambda: server.client.hlen(key) == 12, "every chunk is committed")
        return Left(folder / "run", {key: server.client.dump(key) for key in server.client.keys("evalq:run*")})


def _collected(server: Server, left: Left, data: Path, tmp_path: Path, change: Change) -> tuple[int, str]:
    """The run's answers, altered on another server, and then collected: exit code and words."""
    shutil.copytree(left.folder, tmp_path / "run")
    for name, dumped in left.ledger.items():
        server.client.restore(name, 3_600_000, dumped)
    key = f"evalq:run:{{{info(tmp_path / 'run')['run']}}}:"
    parts, digests = server.client.hgetall(key + "parts"), server.client.hgetall(key + "digests")
    change(parts, digests)
    server.client.hset(key + "parts", mapping=parts)
    server.client.hset(key + "digests", mapping=digests)
    done = evalq("watch", tmp_path / "run", "--broker", server.url, "--format", "none", cwd=data)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("change", [_flip, _cut, _garbage, _other_part])
def test_a_damaged_answer_is_computed_again(
    server: Server, left: Left, data: Path, calm: Path, tmp_path: Path, change: Change
) -> None:
    """Flipped, cut, overwritten, or another chunk's: found by its digest, and the report is that of the calm run."""
    code, said = _collected(server, left, data, tmp_path, change)
    assert code == 0, said
    same_answer(calm, tmp_path / "run")


@pytest.mark.parametrize("change", [_other_digest, _no_digest, _swapped])
def test_a_damaged_digest_ends_the_run(server: Server, left: Left, data: Path, tmp_path: Path, change: Change) -> None:
    """A digest that no computation of this chunk gives, be it another chunk's: exit 3, divergent, and no report."""
    code, said = _collected(server, left, data, tmp_path, change)
    assert code == 3
    assert "chunk 3 has another answer here than in the ledger" in said
    assert not (tmp_path / "run" / "report.json").exists()


def test_what_no_digest_shows(server: Server, left: Left, data: Path, calm: Path, tmp_path: Path) -> None:
    """An answer forged with its digest is taken: SECURITY.md says so, and that --inline shows the difference."""
    code, said = _collected(server, left, data, tmp_path, _forged)
    assert code == 0, said
    assert (tmp_path / "run" / "records.jsonl").read_bytes() != (calm / "records.jsonl").read_bytes()
