"""The pytest plug-in: the cases of evalq suites as tests. docs/how-to/test-with-pytest.md shows how to use it.

Every pytest session of an environment that has evalq loads this module, so it imports nothing until there is a suite.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "pytest_addoption",
    "pytest_collect_file",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_xdist_node_collection_finished",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which files are suites, what becomes of an undecided case, and how suites are run."""
    group = parser.getgroup("evalq", "evaluations of agents")
    group.addoption("--evalq", action="store_true", help="Take the YAML files that are named for suites of evalq.")
    group.addoption(
        "--evalq-undecided",
        choices=["xfail", "skip", "fail"],
        default=None,
        help="What becomes of a test whose answers cannot tell [xfail].",
    )
    parser.addini("evalq_suites", "Suites of evalq, as patterns of files below the root folder.", type="args")
    parser.addini("evalq_undecided", "As --evalq-undecided.", default="xfail")
    parser.addini("evalq_args", "Further options of `evalq run` (--workers 2, --targets FILE).", type="args")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """The collector for a file that is a suite; None for other files."""
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    named = parent.config.getoption("evalq") and parent.session.isinitpath(file_path)
    if not named and not _is_listed(parent.config, file_path):
        return None
    from evalq._pytest.items import SuiteFile

    return SuiteFile.from_parent(parent, path=file_path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort tests of suites last, so that the fleet evaluates their runs while other tests run."""
    if "evalq._pytest.items" in sys.modules:
        from evalq._pytest.session import put_last

        put_last(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Enqueue the collected suites. Under pytest-xdist the controller does it, not the workers."""
    config = session.config
    collected = "evalq._pytest.items" in sys.modules
    if collected and not hasattr(config, "workerinput") and not config.getoption("collectonly"):
        from evalq._pytest.session import begin

        begin(session)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Enqueue the suites that a worker of pytest-xdist has collected."""
    files = dict.fromkeys(name.partition("::")[0] for name in ids)
    config = node.config
    paths = [config.rootpath / file for file in files if file.endswith((".yaml", ".yml"))]
    suites = [path for path in paths if path.is_file() and (config.getoption("evalq") or _is_listed(config, path))]
    if suites:
        from evalq._pytest.session import begin_for_workers

        begin_for_workers(config, suites, node.workerinput["testrunuid"])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop runs that no test waits for any more."""
    if "evalq._pytest.session" in sys.modules:
        from evalq._pytest.session import end

        end(session.config)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show which runs were stopped, and how to resume them."""
    if "evalq._pytest.session" in sys.modules:
        from evalq._pytest.session import end_messages

        for line in end_messages(terminalreporter.config):
            terminalreporter.write_line(f"evalq: {line}", yellow=True)


def _is_listed(config: pytest.Config, path: Path) -> bool:
    """Whether pytest's settings (`evalq_suites`) name the file as a suite."""
    wanted = config.getini("evalq_suites")
    if not wanted or not path.is_relative_to(config.rootpath):
        return False
    relative = path.relative_to(config.rootpath)
    return any(relative.match(pattern) for pattern in wanted)
