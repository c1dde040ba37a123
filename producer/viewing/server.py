"""The server of evalq view: a page for each address, if the browser has the token."""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
import traceback
from functools import cache
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import EvalqError
from evalq.evalcore.views.markdown import printed_block
from evalq.producer.folder.documents import explain_unknown_form
from evalq.producer.page.render import element
from evalq.producer.page.words import written_in
from evalq.producer.viewing.case_page import case_page, compared_case_page
from evalq.producer.viewing.catalogue import KnownRun
from evalq.producer.viewing.compare_page import compare_page
from evalq.producer.viewing.frame import PageAnswer, bare_page, below, content_policy, refusal
from evalq.producer.viewing.index_page import index_page
from evalq.producer.viewing.run_page import record_page, records_page, run_page, table_page
from evalq.producer.viewing.suite_page import Histories, suite_page, suites_page
from evalq.producer.viewing.viewer import Query, RunSides, Viewer, query_value
from evalq.workers.servers.listening import HERE, Listening

# All addresses. No part of an address is ever a path on disk.

_LIVE = 50


class Site:
    """The pages of a viewer."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._sides = RunSides(viewer)
        self._histories = Histories(viewer, self._sides)

    def answer(self, path: str, query: str) -> PageAnswer:
        """The page at ``path``, or a page with the error."""
        try:
            asked = parse_qs(query, keep_blank_values=True, max_num_fields=2 * _LIVE, errors="replace")
        except ValueError:
            return refusal(400, "Invalid address", "The query of the address is too long.")
        parts = [unquote(part, errors="replace") for part in path.split("/")[1:]]
        try:
            with written_in(self._language(parts, asked)):
                return self._page(parts, asked)
        except EvalqError as error:
            return refusal(404, "That cannot be shown", str(error))
        except OSError as error:
            return refusal(404, "That cannot be read (any more)", f"{error.filename}: {error.strerror or error}")

    def _language(self, parts: list[str], query: Query) -> str:
        """The language of a page's runs: that of their reports if all have the same, else English."""
        named = [*parts[1:2]] if parts[0] == "run" else [query_value(query, name) for name in ("base", "cand")]
        asked = [known for key in named if key and (known := self._viewer.catalogue.get(key)) is not None]
        shown = asked or self._viewer.catalogue.runs()
        first = _language_of(shown[0]) if shown else "en"
        return first if all(_language_of(each) == first for each in shown) else "en"

    def _page(self, parts: list[str], query: Query) -> PageAnswer:
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
            case ["compare", "case"]:
                return compared_case_page(viewer, self._sides, query)
            case ["live"]:
                return self._live(query.get("run", [])[:_LIVE])
            case ["run", key, *rest] if (known := viewer.catalogue.get(key)) is not None:
                return self._of_run(known, rest, query)
            case ["run", *_]:
                return refusal(404, "No such run", "Its folder is gone, or it has expired in the ledger.")
        return refusal(404, "No such page", "This address leads nowhere.")

    def _of_run(self, known: KnownRun, rest: list[str], query: Query) -> PageAnswer:
        origin = known.folder.path if known.folder else f"the ledger's record of run {known.run}"
        with explain_unknown_form(origin, known.evaluator or "its evaluator"):
            match rest:
                case []:
                    return run_page(self._viewer, known)
                case ["records"]:
                    return records_page(self._viewer, known, query)
                case ["table"]:
                    return table_page(self._viewer, known)
                case ["case"]:
                    return case_page(self._viewer, known, query)
                case ["record"]:
                    return record_page(self._viewer, known, query)
        return refusal(404, "No such page", "This address leads nowhere.")

    def _live(self, keys: list[str]) -> PageAnswer:
        """The progress of runs on an open page."""
        shown = {}
        for key in keys:
            if (known := self._viewer.catalogue.get(key)) is not None:
                found = self._viewer.standings.of(known)
                shown[key] = {
                    "going": found.going, "line": found.line, "share": found.share, "facts": list(found.facts),
                }  # fmt: skip
        return PageAnswer(200, msgspec.json.encode(shown), "application/json")


_NAMES = frozenset({"127.0.0.1", "[::1]", "localhost"})
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class ViewServer(Listening):
    """Serves a `Site` on a local port, a free one for 0. Raises OSError if the port is in use."""

    def __init__(self, site: Site, port: int = 0) -> None:
        self.site = site
        self.token = secrets.token_urlsafe(32)
        self._kept = secrets.token_urlsafe(32)
        self._once: set[str] = set()
        self._using = threading.Lock()
        super().__init__((HERE, port), _Handler)
        # Browsers send a cookie to every port of a host, so the secret path keeps it from other servers.
        self.base = f"/{secrets.token_urlsafe(12)}"
        self.cookie = f"evalq-view-{self.server_port}"

    def address(self, path: str = "/", *, once: bool = False) -> str:
        """The address of a page with the token; with ``once`` a token for a single use."""
        token = self.token
        if once:  # a browser gets it on its command line, which other users of the machine can read
            token = secrets.token_urlsafe(32)
            self._once.add(token)
        return f"http://{self.netloc}{path}{'&' if '?' in path else '?'}{urlencode({'token': token})}"

    def admits(self, token: str) -> bool:
        """Whether this token gives access."""
        if secrets.compare_digest(token.encode(), self.token.encode()):
            return True
        with self._using:
            known = token in self._once
            self._once.discard(token)
        return known

    def remembers(self, cookies: str) -> bool:
        """Whether a Cookie header has the cookie of a browser that had the token."""
        try:
            found = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return False
        return found is not None and secrets.compare_digest(found.value.encode(), self._kept.encode())

    @property
    def given(self) -> str:
        """The Set-Cookie header for a browser that has the token."""
        return f"{self.cookie}={self._kept}; Path={self.base}/; HttpOnly; SameSite=Strict"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that close the connection."""


def _language_of(known: KnownRun) -> str:
    return known.lang or _default_language(known.evaluator)


@cache
def _default_language(evaluator: str) -> str:
    with contextlib.suppress(EvalqError):
        return plugins.get(evaluator).views.language
    return "en"


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer
    server_version, sys_version = "evalq", ""
    timeout = 30

    def do_GET(self) -> None:
        """Send a page."""
        self._send(*self._answer())

    def _refuse(self) -> None:
        self._send(bare_page(405, "Only to look at", "This server answers GET, and changes nothing."), {"Allow": "GET"})

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815 - http.server's names

    def _answer(self) -> tuple[PageAnswer, dict[str, str]]:
        host = self.headers.get("Host", "").lower()
        if host.rpartition(":")[0] not in _NAMES and host not in _NAMES:
            return bare_page(403, "Not under this name", "Open the address that evalq view has printed."), {}
        try:
            asked = urlsplit(self.path if self.path.startswith("/") else "/")
            pairs = parse_qsl(asked.query, keep_blank_values=True, max_num_fields=200)
        except ValueError:
            return bare_page(400, "No address", "That is no address of a page."), {}
        tokens = [value for name, value in pairs if name == "token"]
        base = self.server.base
        path = "/" + quote(asked.path, safe="/%~").lstrip("/")  # a browser takes a backslash for a slash
        if tokens:
            if not self.server.admits(tokens[-1]):
                return _closed(), {}
            rest = urlencode([pair for pair in pairs if pair[0] != "token"])
            path = base + path.removeprefix(base)
            return _welcome(f"{path}?{rest}" if rest else path), {"Set-Cookie": self.server.given}
        if not path.startswith(f"{base}/") or not self.server.remembers(self.headers.get("Cookie", "")):
            return _closed(), {}
        with below(base):
            return self._page(path.removeprefix(base), asked.query), {}

    def _page(self, path: str, query: str) -> PageAnswer:
        try:
            return self.server.site.answer(path, query)
        except (Exception, SystemExit) as error:  # such as a plug-in's views; other pages still work
            sys.stderr.write(printed_block("".join(traceback.format_exception(error)[-6:])) + "\n")
            return bare_page(
                500, "This page could not be made", f"{type(error).__name__}; more where evalq view was started."
            )

    def _send(self, answer: PageAnswer, headers: dict[str, str] | None = None) -> None:
        self.send_response(answer.status)
        fields = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body)), **_HEADERS, **(headers or {})}
        fields["Content-Security-Policy"] = content_policy()
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the standard library
        """Log nothing, since addresses have the token."""


def _closed() -> PageAnswer:
    return bare_page(403, "Not without its token", "Open the whole address that evalq view has printed.")


def _welcome(path: str) -> PageAnswer:
    """A page that loads the requested page: after a link on another site, a redirect would have no cookie."""
    head = element("meta", http_equiv="refresh", content=f"0;url={path}")
    return bare_page(200, "One moment", "This leads to the page.", head, element("p", element("a", "Go on", href=path)))
