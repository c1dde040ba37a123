"""The pytest plug-in: the cases of evalq suites as tests. docs/how-to/test-with-pytest.md shows how to use it.

Every pytest session of an environment that has evalq loads this module, so it imports nothing until there is a suite.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    import pytest

__all__ = ["pytest_addoption", "pytest_collect_file"]


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
    """A suite, where the file is one."""
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    config = parent.config
    named = config.getoption("evalq") and parent.session.isinitpath(file_path)
    if not named:
        wanted = config.getini("evalq_suites")
        if not wanted or not file_path.is_relative_to(config.rootpath):
            return None
        relative = file_path.relative_to(config.rootpath)
        if not any(relative.match(pattern) for pattern in wanted):
            return None
    from evalq._pytest import SuiteFile

    return SuiteFile.from_parent(parent, path=file_path)
