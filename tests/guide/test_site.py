"""The docs site: every page is in its navigation, every link leads somewhere, and a browser needs no other host."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from docs import build_site
from tests.page.browser import AXE, chromium, program

TOP = Path(__file__).parents[2]
MKDOCS = TOP / ".venv-docs" / "bin" / "python"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's sources."""
    folder = tmp_path_factory.mktemp("site") / "pages"
    build_site.stage(folder)
    return folder


def test_every_page_is_in_the_navigation_once() -> None:
    """Also those outside of docs/; a page that docs/README.md forgets could not be found."""
    found = [*build_site.listed([*build_site.sections()])]
    assert len(found) == len(set(found))
    own = {*(TOP / "docs").rglob("*.md")} - {TOP / "docs" / "README.md"}
    assert own <= set(found)
    assert all(path.is_file() for path in found)


def test_every_link_leads_to_a_file_of_the_site(pages: Path) -> None:
    """Pages move when they are staged, and links with them."""
    count = 0
    for path in pages.rglob("*.md"):
        text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in link:
                count += 1
                assert (path.parent / link).is_file(), f"{path.relative_to(pages)}: {link}"
    assert count > 200


def test_programs_find_every_page_and_what_it_is_about(pages: Path) -> None:
    """llms.txt: a title, a summary, and each page with its first sentence."""
    text = (pages / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# evalq\n\n> evalq tests AI agents")
    entries = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): (.+)$", text, re.MULTILINE)
    assert {path for path, _ in entries} == {
        str(path.relative_to(pages)) for path in pages.rglob("*.md") if path != pages / "index.md"
    }
    assert len(entries) == len(re.findall(r"^- ", text, re.MULTILINE)), "a page has no first sentence"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<script src="https://a.b/c.js">', True), ("<link rel=x href=//a.b>", True), ("url(//a.b/c)", True),
        ('<a href="https://a.b">', False), ('<script src="../c.js">', False), ("url(data:x)", False),
    ],
)  # fmt: skip
def test_what_another_host_would_send_is_found(text: str, found: bool, tmp_path: Path) -> None:
    (tmp_path / "x.html").write_text(text)
    assert bool([*build_site.loaded_elsewhere(tmp_path)]) == found


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of the built site."""
    if not MKDOCS.is_file() or program() is None:
        pytest.skip("make docs was not run here, or there is no Chromium")
    done = subprocess.run([MKDOCS, "docs/build_site.py"], cwd=TOP, capture_output=True, text=True, check=False,
                          env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    handler = partial(_Quiet, directory=str(TOP / "build" / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own name
        """Say nothing."""


def test_pages_are_read_by_everyone(site: str) -> None:
    """In light, in dark and on a phone: nothing serious for axe-core, nothing on the console, nothing wider."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed")
    with chromium() as browser:
        tab = browser.tab()
        for page in ("index", "reference/targets", "ko/index"):
            for width, dark in ((1280, False), (1280, True), (380, False)):
                tab.look(width=width, dark=dark)
                tab.open(f"{site}/{page}.html")
                tab.run("localStorage.clear()")  # it keeps the last page's colours
                tab.open(f"{site}/{page}.html")
                assert tab.run("document.body.dataset.mdColorScheme") == ("slate" if dark else "default")
                assert not tab.faults(), (page, width, dark)
                assert not tab.complaints
                assert tab.overflow <= 0


def test_the_site_is_searched_without_another_host(site: str) -> None:
    """In English and in Korean; no page is wider than a phone."""
    with chromium() as browser:
        for word, page in (("baseline", "approve-a-baseline"), ("프롬프트", "ko/index")):
            tab = browser.tab()
            tab.look(width=380)
            tab.open(f"{site}/index.html?q={word}")
            tab.wait("document.querySelectorAll('.md-search-result__link').length > 0")
            links = tab.run("[...document.querySelectorAll('.md-search-result__link')].map(x => x.href).join(' ')")
            assert page in links
            assert not tab.complaints
            assert tab.overflow <= 0
            assert all(request.startswith((site, "data:", "blob:")) for request in tab.requests)
