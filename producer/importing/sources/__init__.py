"""The tools to import from, a module each: ``read(path, request, imported)`` fills ``imported`` from a file.

It raises ConfigError for a file that is not of that tool.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from pathlib import Path

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing.imported import Imported, ImportRequest


def names() -> list[str]:
    """The tools, as the command line names them."""
    found = [path.stem for folder in __path__ for path in Path(folder).glob("*.py")]
    return sorted(name.replace("_", "-") for name in found if not name.startswith("_"))


def guess(path: Path, request: ImportRequest) -> dict[str, Imported]:
    """{tool: the content} of each tool that finds a case or a target in the file. Raises OSError."""
    path.open("rb").close()
    found: dict[str, Imported] = {}
    for source in names():
        with contextlib.suppress(ConfigError):
            imported = read(source, path, request)
            if imported.cases or imported.targets or imported.traces:
                found[source] = imported
    return found


def read(source: str, path: Path, request: ImportRequest) -> Imported:
    """The content of a file of ``source``. Raises ConfigError."""
    imported = Imported()
    try:
        import_module(f"{__name__}.{source.replace('-', '_')}").read(path, request, imported)
        imported.finish()
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    except OverflowError as error:
        raise ConfigError(f"{path}: has a number that is too large: {error}") from None
    return imported
