"""What safety costs: the same run on a server without a log, with one synced each second or each write, and over TLS.

    python -m tests.bench.safety [--rows N] [--chunk-size N] [--times N]

The fleet is up before the clock starts. Small chunks make the ledger's share large: more than a real run has.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.throughput import make_rows, medians
from tests.integration.harness import Server, evalq, running_fleet, running_server, wait_until

LOGS = {
    "no log": (),
    "appendfsync everysec": ("--appendonly", "yes", "--appendfsync", "everysec"),
    "appendfsync always": ("--appendonly", "yes", "--appendfsync", "always"),
}


def main() -> None:
    """Measure and print a Markdown table of ratios to the server without a log."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.safety")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--chunk-size", type=int, default=100)
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("redis-server is needed: it is in Debian's package of that name")
    with tempfile.TemporaryDirectory(prefix="evalq-safety-") as folder, contextlib.ExitStack() as stack:
        top = Path(folder)
        make_rows(top / "rows.csv", asked.rows)
        ways: dict[str, Callable[[], float]] = {}
        for name, options in LOGS.items():
            server = stack.enter_context(running_server(_made(top / name), program, *options))
            ways[name] = _way(stack, server.url, top, asked.chunk_size)
        url = stack.enter_context(_encrypted(_made(top / "tls"), program))
        ways["TLS, no log"] = _way(stack, url, top, asked.chunk_size)
        for way in ways.values():
            way()  # the first run of a fleet pays for imports
        found = medians(ways, asked.times)
    print(f"\n{asked.rows:,} rows, {asked.chunk_size} a chunk, two processes, medians of {asked.times}\n")
    print("| server | throughput, to that without a log | seconds |\n| --- | --- | --- |")
    for name, seconds in found.items():
        print(f"| {name} | {found['no log'] / seconds:.2f} | {seconds:.2f} |")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _way(stack: contextlib.ExitStack, url: str, top: Path, chunk_size: int) -> Callable[[], float]:
    """A function that runs once over the server at ``url`` and returns its seconds; its fleet is started here."""
    fleet = stack.enter_context(running_fleet(url, top))
    fleet.add(2, "--preload", "planagent")

    def run() -> float:
        out = top / "run"
        shutil.rmtree(out, ignore_errors=True)
        began = time.perf_counter()
        args = ("planagent", "rows.csv", "--broker", url, "--chunk-size", str(chunk_size), "--out", out)
        done = evalq(*args, "--format", "none", cwd=top, seconds=600)
        assert done.returncode == 0, done.stderr
        return time.perf_counter() - began

    return run


@contextlib.contextmanager
def _encrypted(folder: Path, program: str) -> Iterator[str]:
    """A server that speaks TLS only; yields a URL that verifies its certificate."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subject += ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]  # which Python asks for from 3.13 on
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    server = Server(folder, program)
    port = str(server.port)
    tls = ["--tls-port", port, "--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    command = [program, "--port", "0", *tls, "--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no"]
    command += ["--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}&ssl_cert_reqs=required"
    try:
        asked = ["redis-cli", "-p", port, "--tls", "--cacert", str(certificate), "ping"]
        wait_until(lambda: subprocess.run(asked, capture_output=True, check=False).stdout == b"PONG\n", "TLS answers")
        yield url
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
