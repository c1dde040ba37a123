"""The systemd units: systemd itself accepts them, calls them closed, and they give evalq the time it asks for."""

from __future__ import annotations

import configparser
import re
import shutil
from pathlib import Path

import pytest

from tests.deploy.programs import TOP, program, run

SYSTEMD = TOP / "deploy" / "systemd"
UNITS = sorted(path.name for path in SYSTEMD.iterdir() if path.suffix in (".service", ".timer"))
EXPOSURE = 2.0
"""At most this much on systemd's own scale of 0 to 10 for how open a service is; below 5 it says OK."""


def installed(unit: str, folder: Path, good: str = "", bad: str = "") -> Path:
    """A copy of all units, an instance of each template, with a program at ExecStart; one text may be replaced."""
    for name in UNITS:
        text = (SYSTEMD / name).read_text()
        if name == unit:
            assert good in text
            text = text.replace(good, bad, 1) if good else text
        assert "/opt/evalq/bin/evalq" in text or name.endswith(".timer")
        (folder / name.replace("@.", "@nightly.")).write_text(
            text.replace("/opt/evalq/bin/evalq", str(shutil.which("true")))
        )
    return folder / unit.replace("@.", "@nightly.")


def verdict(unit: Path) -> str:
    """What systemd-analyze has against a unit; nothing when all is well."""
    done = run(program("systemd-analyze"), "verify", "--man=no", unit, SYSTEMD_UNIT_PATH=f"{unit.parent}:")
    return (done.stdout + done.stderr).strip()


def exposure(unit: Path) -> float:
    """systemd's score for how open a service is."""
    done = run(program("systemd-analyze"), "security", "--offline=yes", "--no-pager", unit)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    return float(found[1])


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_every_unit_and_finds_it_closed(unit: str, tmp_path: Path) -> None:
    """No unknown key, no missing program, and little exposure."""
    copy = installed(unit, tmp_path)
    assert verdict(copy) == ""
    assert copy.suffix == ".timer" or exposure(copy) <= EXPOSURE


@pytest.mark.parametrize(
    ("unit", "good", "bad"),
    [
        ("evalq-worker@.service", "KillMode=mixed", "KillMod=mixed"),
        ("evalq-worker@.service", "ExecStart=/opt", "ExecStart=/nowhere/opt"),
        ("evalq-calls.service", "TimeoutStopSec=90", "TimeoutStopSec=long"),
        ("evalq-suite@.timer", "OnCalendar=*-*-* 03:00:00", "OnCalendar=at night"),
        ("evalq-suite@.timer", "OnCalendar=*-*-* 03:00:00\n", ""),
    ],
)
def test_systemd_finds_what_is_broken(unit: str, good: str, bad: str, tmp_path: Path) -> None:
    """One mistake in a copy is found: a key, a program, a value."""
    assert verdict(installed(unit, tmp_path, good, bad)) != ""


@pytest.mark.parametrize("unit", [name for name in UNITS if name.endswith(".service")])
@pytest.mark.parametrize(
    "lost", ["ProtectSystem=strict", "NoNewPrivileges=yes", "CapabilityBoundingSet=", "User=evalq"]
)
def test_systemd_finds_a_service_more_open_without_a_protection(unit: str, lost: str, tmp_path: Path) -> None:
    """What is taken away is seen in the score."""
    before = exposure(installed(unit, tmp_path))
    assert exposure(installed(unit, tmp_path, f"\n{lost}\n", "\n")) > before


@pytest.mark.parametrize("unit", [name for name in UNITS if "worker" in name or "calls" in name])
def test_workers_get_the_time_of_their_soft_shutdown(unit: str) -> None:
    """SIGTERM goes to the main process alone, and SIGKILL comes well after the soft shutdown."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys of units keep their case
    parser.read(SYSTEMD / unit)
    soft = (SYSTEMD / unit).read_text().partition("EVALQ_SOFT_SHUTDOWN_SECONDS=")[2].partition("\n")[0]
    assert float(parser["Service"]["TimeoutStopSec"]) >= float(soft) + 10
    assert parser["Service"]["KillMode"] == "mixed"


def test_a_suite_takes_as_long_as_its_work_does() -> None:
    """systemd does not end a run in the middle: one that takes more than a day delays the next."""
    parser = configparser.RawConfigParser(strict=False)
    parser.read(SYSTEMD / "evalq-suite@.service")
    assert parser["Service"]["TimeoutStartSec"] == "infinity"
