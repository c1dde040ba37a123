"""The image: its linter's verdict, what its build stage installs, and what its last stage promises."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from evalq.evalcore.version import code_version
from tests.deploy.image import DOCKERFILE, TOP, build, sent, stages
from tests.deploy.programs import program, run

TEXT = DOCKERFILE.read_text()


def test_hadolint_has_no_findings() -> None:
    """hadolint, with all its rules on, finds nothing, not even of the kind it only informs about."""
    done = run(program("hadolint"), "--failure-threshold", "style", DOCKERFILE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("good", "bad", "rule"),
    [
        ("FROM python:3.11-slim-bookworm\n", "FROM python:latest\n", "DL3007"),
        (" --no-cache-dir --no-deps --require-hashes", " --no-deps --require-hashes", "DL3042"),
        ("USER 10001:10001", "USER root", "DL3002"),
        ("# hadolint ignore=DL3008\n", "", "DL3008"),
        ("--no-install-recommends ", "", "DL3015"),
        ('CMD ["worker"]', "CMD worker", "DL3025"),
        ("WORKDIR /srv/evalq", "WORKDIR evalq", "DL3000"),
    ],
)
def test_hadolint_finds_what_is_broken(good: str, bad: str, rule: str, tmp_path: Path) -> None:
    """A copy that breaks one rule is refused by that rule."""
    assert good in TEXT
    (tmp_path / "Dockerfile").write_text(TEXT.replace(good, bad))
    done = run(program("hadolint"), "--failure-threshold", "style", tmp_path / "Dockerfile")
    assert done.returncode != 0
    assert rule in done.stdout


def test_the_image_runs_as_a_numbered_user_and_checks_itself() -> None:
    """A uid, so that Kubernetes can see it is not root's; a health check; an entry point that hands signals on."""
    last = dict(stages(TEXT)[-1])
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last["USER"])
    assert f"--uid {last['USER'].partition(':')[0]} " in " ".join(rest for _, rest in stages(TEXT)[-1])
    assert last["ENTRYPOINT"] == '["tini", "--", "evalq"]'
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert last["HEALTHCHECK"].endswith('CMD ["evalq-health"]')
    assert not re.search(r"(?i)https?://|--index-url", TEXT)


def test_nothing_but_the_code_goes_into_the_build() -> None:
    """No test, document, secret or history: packages, what installs them, and the health check."""
    tops = {path.parts[0] for path in sent()}
    assert tops == {
        "LICENSE",
        "README.md",
        "deploy",
        "evalcore",
        "evalq",
        "producer",
        "pyproject.toml",
        "requirements.lock",
        "setup.py",
        "workers",
    }
    assert {path.name for path in sent() if path.parts[0] == "deploy"} == {"health.sh", "part_of_lock.py"}


def test_the_build_stage_gives_a_working_evalq_of_this_code(tmp_path: Path) -> None:
    """Its steps, run as processes: every package by its hash, evalq of this tree's code version, no pip left."""
    result = build(stages(TEXT)[0], tmp_path)
    python = result / "bin" / "python"
    script = "from evalq.evalcore.version import code_version; print(code_version())"
    done = subprocess.run([python, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == code_version()
    doctor = subprocess.run(
        [result / "bin" / "evalq", "doctor"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert doctor.returncode == 0, doctor.stdout
    assert not list(result.glob("lib/*/site-packages/pytest*"))
    assert not list(result.glob("lib/*/site-packages/pip*"))
    lock = (tmp_path / "src" / "run.lock").read_text()
    entries = re.findall(r"^([\w.-]+(?:\[[^]]*\])?==\S+)[^\n]*\n( +--hash=)", lock, re.MULTILINE)
    assert len(entries) > 30
    whole = (TOP / "requirements.lock").read_text()
    assert all(name in whole for name, _ in entries)


def test_a_package_with_another_hash_is_refused(tmp_path: Path) -> None:
    """The build ends where a downloaded file is not the one that was locked."""
    # Only what builds the wheel, so that the test is short.
    short = TEXT.replace("part_of_lock.py run parquet", "part_of_lock.py build").replace(" -r run.lock", "")
    tampered = short.replace("> build.lock", "| sed 's/sha256:..../sha256:0000/' > build.lock")
    install = [part for part in stages(tampered)[0] if part.word != "COPY" or "lock" in part.rest]
    until = next(number for number, part in enumerate(install) if part.rest.startswith("python -m pip install"))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        build(install[: until + 1], tmp_path)
    assert "--require-hashes -r build.lock" in refused.value.cmd[-1]
