"""Evaluators are found by entry point, evalq's own and other packages' alike."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import ConfigError, InfrastructureError
from tests.contract.specimens import Summing


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, plugins.GROUP)


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """What is registered in this test, to be filled; modules `good` and `bad` stand for other packages."""
    points: list[EntryPoint] = []
    good, bad = ModuleType("good"), ModuleType("bad")
    good.evaluator = Summing()  # type: ignore[attr-defined]  # a module made here
    bad.evaluator = object()  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "good", good)
    monkeypatch.setitem(sys.modules, "bad", bad)

    def entry_points(group: str) -> Any:
        assert group == "evalq.evaluators"
        return tuple(points)

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    for cached in (plugins.entries, plugins.get, plugins.packages, plugins._registered):
        cached.cache_clear()
    yield points
    for cached in (plugins.entries, plugins.get, plugins.packages, plugins._registered):
        cached.cache_clear()


def test_names_are_sorted_and_nothing_is_imported(packages: list[EntryPoint]) -> None:
    """Listing works though a package is broken."""
    packages += [point("summing", "good:evaluator"), point("away", "not_installed:evaluator")]
    assert plugins.names() == ["away", "summing"]


def test_an_evaluator_is_found_by_its_name(packages: list[EntryPoint]) -> None:
    """The very object that its package registers."""
    packages.append(point("summing", "good:evaluator"))
    assert plugins.get("summing") is sys.modules["good"].evaluator


def test_an_unknown_name_is_answered_with_the_known_ones(packages: list[EntryPoint]) -> None:
    """So that a typing error is seen."""
    packages += [point("summing", "good:evaluator"), point("away", "x:y")]
    with pytest.raises(ConfigError, match="no evaluator 'sumning'; there are: away, summing"):
        plugins.get("sumning")


def test_two_packages_of_the_same_name_are_named_and_end_nothing_else(packages: list[EntryPoint]) -> None:
    """Which one would run would be chance: neither does, both are named, and all others work."""
    packages += [point("other", "bad:evaluator"), point("summing", "good:evaluator")]
    packages.append(point("other", "another:evaluator"))
    assert plugins.names() == ["other", "summing"]
    with pytest.raises(ConfigError, match="'other': another:evaluator, bad:evaluator; uninstall all but one"):
        plugins.get("other")
    assert plugins.get("summing") is sys.modules["good"].evaluator


def test_the_same_package_seen_twice_is_one(packages: list[EntryPoint]) -> None:
    """An editable installation may be found on two paths."""
    packages += [point("summing", "good:evaluator"), point("summing", "good:evaluator")]
    assert plugins.names() == ["summing"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("bad", "bad:evaluator", r"'bad' \(bad:evaluator\) is not an Evaluator of that name"),
        ("adding", "good:evaluator", r"'adding' \(good:evaluator\) is not an Evaluator of that name"),
        (
            "away",
            "not_installed_here:evaluator",
            r"'away' \(not_installed_here:evaluator\) cannot be loaded: No module",
        ),
        ("away", "good:nothing", r"'away' \(good:nothing\) cannot be loaded: .*nothing"),
    ],
)
def test_a_broken_package_is_named(name: str, value: str, said: str, packages: list[EntryPoint]) -> None:
    """Not an evaluator, one of another name, or nothing that can be loaded."""
    packages.append(point(name, value))
    with pytest.raises(ConfigError, match=said):
        plugins.get(name)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise ImportError\n", r"ImportError:  \(in raising\.py:1, <module>\)$"),
        ("1 / 0\n", r"ZeroDivisionError: division by zero \(in raising\.py:1, <module>\)$"),
        ("\nraise TimeoutError('no model')\n", r"TimeoutError: no model \(in raising\.py:2, <module>\)$"),
        ("def f(:\n", r"SyntaxError: .* \(raising\.py, line 1\)$"),
    ],
)
def test_what_an_import_raises_is_reported_with_its_line(
    source: str, said: str, tmp_path: Path, packages: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is: no traceback of evalq's, and no server that is said to be away."""
    (tmp_path / "raising.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    packages.append(point("away", "raising:evaluator"))
    with pytest.raises(ConfigError, match=rf"'away' \(raising:evaluator\) cannot be loaded: {said}"):
        plugins.get("away")


def test_a_machine_with_too_little_for_an_import_is_no_broken_package(
    tmp_path: Path, packages: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is wrong with what was asked, so the exit code is not that of a configuration."""
    (tmp_path / "hungry.py").write_text("raise MemoryError\n")
    monkeypatch.syspath_prepend(tmp_path)
    packages.append(point("hungry", "hungry:evaluator"))
    with pytest.raises(
        InfrastructureError, match=r"'hungry' \(hungry:evaluator\) cannot be loaded: there is no memory"
    ):
        plugins.get("hungry")


def test_what_an_import_prints_is_no_answer(
    tmp_path: Path,
    packages: list[EntryPoint],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Standard output is for the answer of a command, which a program may read."""
    (tmp_path / "greeting.py").write_text("print('hello')\nfrom good import evaluator\n")
    monkeypatch.syspath_prepend(tmp_path)
    packages.append(point("summing", "greeting:evaluator"))
    plugins.get("summing")
    assert capsys.readouterr() == ("", "hello\n")


def test_the_installed_package_registers_its_evaluators() -> None:
    """The entry points of the project are there without any of this test's doing."""
    assert plugins.names() == sorted(plugins.names()) != []
