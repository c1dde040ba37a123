"""CPUs are those that this process may use: what the scheduler gives it, within what its control groups may take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evalq.workers.processes.system import usable_cpus

V2 = "30 1 0:26 / {point} rw - cgroup2 cgroup2 rw\n"
V1 = "40 1 0:30 {root} {point} rw - cgroup cgroup rw,cpu,cpuacct\n41 1 0:31 / {other} rw - cgroup cgroup rw,memory\n"


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 64."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)


def _proc(folder: Path, groups: str, mounts: str, files: dict[str, str]) -> Path:
    """What /proc/self has of a process, and files below its mounted control groups."""
    (folder / "proc").mkdir()
    for path, text in {"proc/cgroup": groups, "proc/mountinfo": mounts, **files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder / "proc"


@pytest.mark.parametrize(
    ("limits", "cpus"),
    [
        ({}, 64),
        ({"cg/a/b/cpu.max": "max 100000\n"}, 64),
        ({"cg/a/b/cpu.max": "100000 100000\n"}, 1),
        ({"cg/a/b/cpu.max": "150000 100000\n"}, 2),
        ({"cg/a/b/cpu.max": "1000 100000\n"}, 1),
        ({"cg/a/b/cpu.max": "800000 100000\n", "cg/a/cpu.max": "300000 100000\n"}, 3),
        ({"cg/a/b/cpu.max": "9900000 100000\n"}, 64),
        ({"cg/a/b/cpu.max": "junk\n"}, 64),
        ({"cg/a/c/cpu.max": "100000 100000\n"}, 64),
    ],
)
def test_quotas_of_version_2(tmp_path: Path, many: None, limits: dict[str, str], cpus: int) -> None:
    """The strictest of a group and those above it; another group's is none of this process's."""
    proc = _proc(tmp_path, "0::/a/b\n", V2.format(point=tmp_path / "cg"), limits)
    assert usable_cpus(proc) == cpus


@pytest.mark.parametrize("root", ["/", "/docker/x"])
def test_quotas_of_version_1(tmp_path: Path, many: None, root: str) -> None:
    """In two files, of the controller of CPUs; a container has its own group mounted as the root."""
    inside = "cg/docker/x" if root == "/" else "cg"
    files = {f"{inside}/cpu.cfs_quota_us": "250000\n", f"{inside}/cpu.cfs_period_us": "100000\n"}
    mounts = V1.format(root=root, point=tmp_path / "cg", other=tmp_path / "other")
    proc = _proc(tmp_path, "5:cpu,cpuacct:/docker/x\n6:memory:/docker/x\n", mounts, files)
    assert usable_cpus(proc) == 3
    (tmp_path / inside / "cpu.cfs_quota_us").write_text("-1\n")
    assert usable_cpus(proc) == 64


def test_a_namespace_shows_its_own_group_as_the_root(tmp_path: Path, many: None) -> None:
    """As in a container: the group is "/", and its limit lies at the mount itself."""
    proc = _proc(tmp_path, "0::/\n", V2.format(point=tmp_path / "a\\040b"), {"a b/cpu.max": "200000 100000\n"})
    assert usable_cpus(proc) == 2


def test_where_nothing_is_reported(tmp_path: Path, many: None) -> None:
    """Another system than Linux: no proc, no groups."""
    assert usable_cpus(tmp_path / "nothing") == 64
    proc = _proc(tmp_path, "junk\n\n", "junk\n30 - x\n", {})
    assert usable_cpus(proc) == 64


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system binds no process to CPUs")
def test_a_process_that_is_bound_to_one() -> None:
    """By taskset, or a cpuset: it, and what it takes for its own number of processes."""
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from evalq.workers.settings import Settings; print(Settings().processes)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_nobody_counts_by_another_way() -> None:
    """The product has one function for it."""
    folder = Path(__file__).parents[3]
    found = [
        str(path.relative_to(folder))
        for room in ("producer", "workers", "evalcore", "evalq")
        for path in sorted((folder / room).rglob("*.py"))
        if "cpu_count" in path.read_text() or "sched_getaffinity" in path.read_text()
    ]
    assert [name for name in found if not name.startswith("evalq/workers/")] == ["workers/processes/system.py"]
