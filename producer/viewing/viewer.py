"""What the pages of one viewer are made from, and what of it is kept so that nobody reads it twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.charts import Summary
from evalq.producer.folder.files import RECORDS
from evalq.producer.page import summary_of
from evalq.producer.servers import Servers
from evalq.producer.viewing.catalogue import Catalogue, KnownRun
from evalq.producer.viewing.ledger import Ledger
from evalq.producer.viewing.lines import LinesOf
from evalq.producer.viewing.progress import Standings

__all__ = ["NewestValues", "Query", "Viewer", "asked", "number_of"]

T = TypeVar("T")
Query = Mapping[str, list[str]]
"""What stands behind the question mark of an address."""

_LARGEST = 4_000_000
"""Of a larger report.json the index shows no headline."""


class NewestValues(Generic[T]):
    """The newest of some values, by what they were made of. For many threads at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._changing = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        """The value of ``key``, while it is kept."""
        with self._changing:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Hashable, value: T) -> T:
        """Keep ``value``, and give it back."""
        with self._changing:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value


class Viewer:
    """The runs that are shown, and what was read of them."""

    def __init__(self, given: Sequence[str], servers: Servers) -> None:
        """``given`` as in `Catalogue`. Raises UsageError, and what connecting to a server raises."""
        self.ledger = Ledger(servers)
        self.catalogue = Catalogue(given, self.ledger)
        self.standings = Standings(self.ledger)
        self.lines = LinesOf()
        self._heads: NewestValues[Summary] = NewestValues(2_000)

    def report(self, known: KnownRun) -> dict[str, Json] | None:
        """The report of a run that has one, from its folder or from the ledger. Raises EvalqError."""
        if known.folder is None:
            return self.ledger.report(known.run)
        try:
            return known.folder.report() if known.folder.reported else None
        except OSError as error:
            raise UsageError(f"{known.folder.path}: {error.strerror or error}") from error

    def head(self, known: KnownRun) -> Summary | None:
        """What the page of a finished run in a folder begins with; None where that is not soon known."""
        if known.folder is None or not known.folder.reported:
            return None
        try:
            found = (known.folder.path / "report.json").stat()
            key = (known.folder.path, found.st_ino, found.st_size, found.st_mtime_ns)
            kept = self._heads.get(key)
            if kept is None and found.st_size <= _LARGEST:
                report = known.folder.report()
                kept = self._heads.put(key, summary_of(plugins.get(report["evaluator"]), report))
        except (Exception, SystemExit):  # the run's own page says what: a plug-in takes no other's run along
            return None
        return kept

    def path_of(self, known: KnownRun) -> Path | None:
        """The records.jsonl of a run, where it is here."""
        return known.folder.own(RECORDS) if known.folder and known.folder.records.is_file() else None


def asked(query: Query, name: str) -> str:
    """One value of a query, empty where it has none."""
    return query.get(name, [""])[-1].strip()


def number_of(query: Query, name: str) -> int:
    """A count in a query: 0 where it has none, or it is none that could be."""
    given = asked(query, name)
    return int(given) if given.isascii() and given.isdigit() and len(given) < 13 else 0
