"""Everything that listens or connects does so on a machine that has IPv6 alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evalq.workers.servers.listening import listen
from tests.integration.harness import clean_environment

ALONE = "ip link set lo up && ip addr del 127.0.0.1/8 dev lo"
_IN_A_NETWORK = ["unshare", "-n", "sh", "-c"]


def _no_network() -> str:
    if not shutil.which("unshare") or not shutil.which("ip"):
        return "no unshare, or no ip, to make a network with"
    made = subprocess.run([*_IN_A_NETWORK, ALONE], capture_output=True, text=True, check=False)
    return f"no network can be made here: {made.stderr.strip()}" if made.returncode else ""


@pytest.fixture(scope="module")
def network() -> None:
    """Skips where this user may make none."""
    if why := _no_network():
        pytest.skip(why)


def test_every_door_of_a_machine_that_has_ipv6_alone(network: None, tmp_path: Path) -> None:
    """A server, a worker, a run over it, doctor, the exporter in each way to bind it, its health check, the pages."""
    (tmp_path / "t.jsonl").write_text('{"actual_output": "ok"}\n')
    program = Path(__file__).parent / "ipv6_alone.py"
    command = f'{ALONE} && exec "$@"'
    done = subprocess.run(
        [*_IN_A_NETWORK, command, "sh", sys.executable, "-m", f"tests.integration.{program.stem}", str(tmp_path)],
        env=clean_environment(PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin"),
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("host", ["localhost", "*", "127.0.0.1", "0.0.0.0", "::1", "::", "[::1]"])  # noqa: S104 - listens for a moment
def test_each_form_of_an_address_is_listened_at(host: str) -> None:
    """A machine that has both kinds."""
    with listen(host, 0) as listening:
        assert listening.getsockname()[1] > 0


def test_a_port_that_is_taken_is_not_looked_for_at_another_address() -> None:
    """Nobody would look for it there."""
    with listen("localhost", 0) as first, pytest.raises(OSError, match="in use"):
        listen("localhost", first.getsockname()[1])
    with pytest.raises(OSError, match="assign"):
        listen("203.0.113.1", 0)
