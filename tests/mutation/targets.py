"""What can be mutated: the evaluators' folders, and what all of them decide verdicts by."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from evalq.evalcore.contract import plugins

CORE = "evalq.evalcore"


class Target(NamedTuple):
    """Modules, as files and folders below ``evalcore``, and the tests that are to notice changes of them."""

    modules: tuple[str, ...]
    unit: tuple[str, ...]
    contract: tuple[str, ...] = ()
    package: str = CORE
    """What has the caches that are emptied before each test, so that it executes all that it needs."""

    def files(self) -> list[Path]:
        """All modules, in order."""
        top = Path(*CORE.split("."))
        return sorted(file for each in self.modules for file in _python(top / each))

    def has(self, module: str) -> bool:
        """Whether an imported module is one of them."""
        names = [f"{CORE}.{each.removesuffix('.py').replace('/', '.')}" for each in self.modules]
        return any(module == name or module.startswith(f"{name}.") for name in names)


def _python(path: Path) -> list[Path]:
    return list(path.rglob("*.py")) if path.is_dir() else [path]


def _evaluator(name: str) -> Target:
    contract = ("tests/contract/test_conformance.py", "-k", name)
    return Target((f"evaluators/{name}",), (f"tests/unit/{name}",), contract, f"{CORE}.evaluators.{name}")


_MODES = ("statistics/mode_share.py", "statistics/diversity.py")
_STATISTICS = tuple(f"statistics/{name}.py" for name in (
    "agreement", "corrected_rate", "distributions", "exact", "quantiles", "rates", "sequences"
))  # fmt: skip
_TESTS_OF_STATISTICS = (
    "tests/unit/statistics",
    *(f"tests/unit/checks/test_{name}.py" for name in ("embeddings", "labels", "section", "state")),
    "tests/unit/vs/test_stops.py",
    *(f"tests/unit/compare/test_{name}.py" for name in ("drift", "permutation", "quarantine")),
    "tests/unit/targets/test_embeddings.py",
)

TARGETS = {name: _evaluator(name) for name in plugins.built_in()} | {
    "modes": Target(_MODES, ("tests/unit/statistics", "tests/unit/vs", "tests/unit/checks/test_diversity.py")),
    "statistics": Target(_STATISTICS, _TESTS_OF_STATISTICS),
}
