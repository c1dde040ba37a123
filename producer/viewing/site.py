"""From an address to a page: every address there is stands here, and nothing of one is ever a path on a disk."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote

import msgspec

from evalq.evalcore.errors import EvalqError
from evalq.producer.folder.documents import explain_unknown_form
from evalq.producer.viewing.catalogue import KnownRun
from evalq.producer.viewing.compare_page import compare_page
from evalq.producer.viewing.frame import Answer, refusal
from evalq.producer.viewing.history import Histories
from evalq.producer.viewing.index_page import index_page
from evalq.producer.viewing.records_page import record_page, records_page, table_page
from evalq.producer.viewing.run_page import run_page
from evalq.producer.viewing.sides import Sides
from evalq.producer.viewing.suite_page import suite_page, suites_page
from evalq.producer.viewing.viewer import Query, Viewer

__all__ = ["Site"]

_LIVE = 50


class Site:
    """The pages of a viewer."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._sides = Sides(viewer)
        self._histories = Histories(viewer, self._sides)

    def answer(self, path: str, query: str) -> Answer:
        """The page at ``path``. What cannot be shown is said on a page, too."""
        try:
            asked = parse_qs(query, keep_blank_values=True, max_num_fields=2 * _LIVE, errors="replace")
        except ValueError:
            return refusal(400, "That cannot be asked", "The address asks for too much.")
        try:
            return self._page([unquote(part, errors="replace") for part in path.split("/")[1:]], asked)
        except EvalqError as error:
            return refusal(404, "That cannot be shown", str(error))
        except OSError as error:
            return refusal(404, "That cannot be read (any more)", f"{error.filename}: {error.strerror or error}")

    def _page(self, parts: list[str], query: Query) -> Answer:
        viewer = self._viewer
        match parts:
            case [""]:
                return index_page(viewer, query)
            case ["suites"]:
                return suites_page(viewer)
            case ["suite"]:
                return suite_page(self._histories, query)
            case ["compare"]:
                return compare_page(viewer, self._sides, query)
            case ["live"]:
                return self._live(query.get("run", [])[:_LIVE])
            case ["run", key, *rest] if (known := viewer.catalogue.get(key)) is not None:
                return self._of_run(known, rest, query)
            case ["run", *_]:
                return refusal(404, "No such run", "Its folder is gone, or it has expired in the ledger.")
        return refusal(404, "No such page", "This address leads nowhere.")

    def _of_run(self, known: KnownRun, rest: list[str], query: Query) -> Answer:
        place = known.folder.path if known.folder else f"what the ledger has of run {known.run}"
        with explain_unknown_form(place, known.evaluator or "its evaluator"):
            match rest:
                case []:
                    return run_page(self._viewer, known)
                case ["records"]:
                    return records_page(self._viewer, known, query)
                case ["table"]:
                    return table_page(self._viewer, known)
                case ["record"]:
                    return record_page(self._viewer, known, query)
        return refusal(404, "No such page", "This address leads nowhere.")

    def _live(self, keys: list[str]) -> Answer:
        """How runs stand that are on a page now."""
        told = {}
        for key in keys:
            if (known := self._viewer.catalogue.get(key)) is not None:
                found = self._viewer.standings.of(known)
                told[key] = {
                    "going": found.going, "line": found.line, "share": found.share, "facts": list(found.facts),
                }  # fmt: skip
        return Answer(200, msgspec.json.encode(told), "application/json")
