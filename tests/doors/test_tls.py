"""The wire's door: over TLS both connections check the server's certificate, and show their own where it is asked."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from tests.integration.harness import PATIENCE, clean_environment, evalq, launch, same_answer, wait_until
from tests.integration.ports import free_port

pytestmark = pytest.mark.skipif(
    shutil.which("redis-server") is None or shutil.which("openssl") is None,
    reason="redis-server (with TLS) or openssl is not installed",
)


class Certificates:
    """An authority of the test's own, and certificates it signed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        use = "keyUsage=critical,keyCertSign,cRLSign"  # which Python asks an authority for from 3.13 on
        self._openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=a test authority",
                      "-addext", use, "-keyout", "ca.key", "-out", "ca.crt")  # fmt: skip
        self.ca = folder / "ca.crt"

    def sign(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """Certificate and key for ``name``, valid for ``hosts``."""
        names = ",".join(hosts or ["DNS:nowhere.invalid"])
        # With the key of who signed it, which it asks for, too.
        (self.folder / f"{name}.ext").write_text(f"subjectAltName={names}\nauthorityKeyIdentifier=keyid\n")
        self._openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key",
                      "-out", f"{name}.csr")  # fmt: skip
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                      "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.crt")  # fmt: skip
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    def _openssl(self, *args: str) -> None:
        subprocess.run(["openssl", *args], cwd=self.folder, check=True, capture_output=True)


class TlsServer(NamedTuple):
    """Where it listens, and what a client needs."""

    port: int
    ca: Path
    client: tuple[Path, Path]

    def url(self, host: str = "127.0.0.1", *, ca: Path | None = None, client: bool = True) -> str:
        """Its URL with an authority to check it by and, where wanted, the client's certificate."""
        mine = f"&ssl_certfile={self.client[0]}&ssl_keyfile={self.client[1]}" if client else ""
        return f"rediss://{host}:{self.port}/0?ssl_ca_certs={ca or self.ca}{mine}"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once for these tests."""
    return Certificates(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def secured(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    """A Redis that speaks TLS only and asks clients for a certificate; its own is for 127.0.0.1 alone."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    certificate, key = certificates.sign("server", "IP:127.0.0.1")
    server = TlsServer(port, certificates.ca, certificates.sign("client"))
    command = ["redis-server", "--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1", "--save", ""]
    command += ["--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file", str(server.ca)]
    process = subprocess.Popen([*command, "--dir", str(folder)], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(server), "the server answers over TLS")
        yield server
    finally:
        process.kill()
        process.wait()


def _answers(server: TlsServer) -> bool:
    try:
        return bool(redis.Redis.from_url(server.url()).ping())
    except redis.RedisError:
        return False


def test_a_run_over_tls(secured: TlsServer, data: Path, calm: Path, tmp_path: Path) -> None:
    """Producer and worker over rediss:// with certificates checked on both sides: the bytes of the inline run."""
    log = (tmp_path / "log").open("wb")
    worker = launch(
        ["worker", "--concurrency", "1"],
        cwd=data,
        env=clean_environment(EVALQ_BROKER=secured.url()),
        stderr=log,
    )
    try:
        args = ("planagent", "rows.csv", "--chunk-size", "250", "--out", tmp_path / "run", "--format", "none")
        done = evalq(*args, cwd=data, EVALQ_BROKER=secured.url())
        assert done.returncode == 0, done.stderr
        client: Any = redis.Redis.from_url(secured.url())
        waits = "the broker's connection is there, by TLS alone"
        wait_until(lambda: any(one["cmd"] == "brpop" for one in client.client_list()), waits)
    finally:
        worker.terminate()
        worker.wait(timeout=PATIENCE)
        log.close()
    assert "insecure" not in (tmp_path / "log").read_text()
    same_answer(calm, tmp_path / "run")


def test_what_is_refused(secured: TlsServer, certificates: Certificates, data: Path, tmp_path: Path) -> None:
    """Another authority, a name the certificate is not for, no certificate of one's own, no TLS: exit 3, and why."""
    other = Certificates(tmp_path / "other")
    for url, said in (
        (secured.url(ca=other.ca), "CERTIFICATE_VERIFY_FAILED"),
        (secured.url("localhost"), "CERTIFICATE_VERIFY_FAILED"),
        (f"rediss://127.0.0.1:{secured.port}/0", "CERTIFICATE_VERIFY_FAILED"),
        (secured.url(client=False), "no server answers"),
        (f"redis://127.0.0.1:{secured.port}/0", "no server answers"),
    ):
        for command in (("planagent", str(data / "rows.csv")), ("worker",)):
            done = evalq(*command, cwd=tmp_path, EVALQ_BROKER=url, EVALQ_PATIENCE_SECONDS="1")
            assert done.returncode == 3, (url, done.stderr)
            assert said in done.stderr, url
            assert "Traceback" not in done.stderr


@pytest.mark.parametrize("way", ["another authority", "another name"])
def test_the_broker_connection_checks_for_itself(
    secured: TlsServer, certificates: Certificates, tmp_path: Path, way: str
) -> None:
    """Celery's own connection, without the ledger's before it, refuses a server it cannot check."""
    from kombu.exceptions import OperationalError

    from evalq.workers.broker.transport import make_app
    from evalq.workers.settings import Settings

    good = make_app(Settings(broker=secured.url()))
    with good.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1)
    url = secured.url(ca=Certificates(tmp_path / "x").ca) if way == "another authority" else secured.url("localhost")
    bad = make_app(Settings(broker=url))
    with (
        pytest.raises(OperationalError, match="CERTIFICATE_VERIFY_FAILED"),
        bad.connection_for_write() as connection,
    ):
        connection.ensure_connection(max_retries=1, interval_start=0, interval_max=0)
