"""What a browser makes of report.html and of the viewer's pages: in light, in dark, on a phone, without scripts."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalq.evalcore.contract import plugins
from evalq.producer.cli import cli
from evalq.producer.folder.run_folder import RunFolder
from tests.page.browser import AXE, Chromium, Tab, chromium, program
from tests.page.test_file import evaluated
from tests.portions import some
from tests.unit.viewing.conftest import viewing

pytestmark = pytest.mark.skipif(program() is None or not AXE.is_file(), reason="Chromium or axe-core is not installed")

LOOKS = [(1280, False), (1280, True), (380, False)]
BY_LOOK = ("color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size")
"""The rules that colours and widths decide; what others find is the same in every look."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each evaluator."""
    top = tmp_path_factory.mktemp("runs")
    for name in plugins.built_in():
        (top / "evalq-runs" / name).parent.mkdir(exist_ok=True)
        (top / name).mkdir()
        evaluated(name, top / name).rename(top / "evalq-runs" / name)
    return top


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """One for all."""
    with chromium() as started:
        yield started


def flawless(tab: Tab, address: str) -> None:
    """Opened in every look: nothing on the console, nothing serious for axe-core, nothing wider than the window."""
    for number, (width, dark) in enumerate(LOOKS):
        tab.look(width=width, dark=dark)
        tab.open(address)
        assert not tab.complaints, address
        assert tab.requests == [address]
        assert tab.overflow <= 0, (address, width)
        assert not tab.faults(*(BY_LOOK if number else ())), (address, width, dark)


@pytest.mark.parametrize("name", some(plugins.built_in(), of=3))
def test_a_report_is_flawless(runs: Path, browser: Chromium, name: str) -> None:
    """And its table is filled, searched, sorted, and shows why a record failed."""
    tab = browser.tab()
    address = (runs / "evalq-runs" / name / "report.html").as_uri()
    flawless(tab, address)
    if not tab.run("!!document.getElementById('table')"):
        return
    tab.wait("document.documentElement.dataset.ready === 'yes'")
    tab.run("document.querySelector('#window thead button').click()")
    assert tab.run("document.querySelector('#window th').ariaSort || document.querySelector('th[aria-sort]') !== null")
    tab.run("document.querySelector('#window tbody button').click()")
    tab.wait("document.querySelector('dialog').open")
    assert not tab.faults()
    assert not tab.complaints


def test_a_case_is_reached_from_a_chart_of_the_file(tmp_path: Path, browser: Chromium) -> None:
    """A click on its name shows its records alone, the next one its question and answer; in a link it has any name."""
    (tmp_path / "agent.py").write_text("def ask(call):\n    return '<b>Lyon</b> ' + str(call)[-9:]\n")
    cases = [
        {"id": name, "input": f"What is {name}?", "checks": [{"contains": "Paris"}]}
        for name in ("c1", "c10", "가 #%/<")
    ]
    (tmp_path / "cases.json").write_text(json.dumps({"cases": cases}))
    with contextlib.chdir(tmp_path):
        run = ["checks", "cases.json", "--target", "python:agent:ask", "--repeat", "2", "--out", "run", "--quiet"]
        assert CliRunner().invoke(cli, run).exit_code == 0
    tab = browser.tab()
    address = (tmp_path / "run" / "report.html").as_uri()
    tab.look(width=380)
    tab.open(address)
    tab.run("document.querySelectorAll('details').forEach(node => { node.open = true; })")
    assert not tab.faults()
    assert tab.overflow <= 0
    rails = tab.run(
        "[...document.querySelectorAll('.drawn:not(.stacked) .track')].map(rail => rail.getBoundingClientRect())"
        ".filter(box => box.width).map(box => [box.left, box.right])"
    )
    assert len(rails) > len(cases)
    assert [min(left for left, _ in rails) >= 5, len({right for _, right in rails})] == [True, 1], rails
    assert tab.run("document.title").startswith("0 of 6 outputs passed · checks · agent-ask · cases.json · 20")
    for case in ("c1", "가 #%/<"):
        tab = browser.tab()  # another address of the same page would not load it anew
        tab.open(address)
        tab.wait("document.documentElement.dataset.ready === 'yes'")
        tab.run(f"[...document.querySelectorAll('figure a')].find(a => a.textContent === {json.dumps(case)}).click()")
        tab.wait("document.querySelector('.count').textContent === '2 of 6 records'")
        tab.run("document.querySelector('#window tbody button').click()")
        tab.wait("document.querySelector('dialog').open")
        said = tab.run("[...document.querySelectorAll('dialog .said')].map(node => node.textContent)")
        assert said[0] == f"What is {case}?"
        assert said[1].startswith("<b>Lyon</b>")
        assert not tab.complaints
    tab = browser.tab()
    tab.open(f"{address}#case=c10")
    tab.wait("document.querySelector('.count').textContent === '2 of 6 records'")


def test_the_viewer_s_pages_are_flawless(runs: Path, browser: Chromium, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entered by the address with the token, which is gone from it then; another port of the host is sent no cookie."""
    monkeypatch.chdir(runs)
    monkeypatch.delenv("EVALQ_BROKER", raising=False)
    key = RunFolder(runs / "evalq-runs" / "verification").info().run
    with viewing() as opened:
        tab, top = browser.tab(), f"http://127.0.0.1:{opened.server.server_port}{opened.server.base}"
        tab.look()
        tab.open(opened.server.address())
        tab.wait(f"location.href === '{top}/' && document.querySelector('h1').textContent === 'Runs'")
        own = (f"/run/{key}", f"/run/{key}/records", f"/run/{key}/record?at=1", f"/compare?base={key}&cand={key}")
        for page in ("/", *own, "/suites", "/suite?evaluator=verification&suite=default"):
            flawless(tab, top + page)
        flawless(tab, f"{top}/run/{key}/table")
        tab.wait("document.querySelectorAll('#window tbody button').length > 10")
        with _noting() as (address, cookies):
            tab.open(address)
            assert cookies[0] is None
        tab.look(scripts=False)
        tab.open(f"{top}/run/{key}")
        assert "comply" in tab.run("document.body.innerText")
        assert tab.run("[...document.querySelectorAll('a')].some(a => a.href.includes('/record?'))")


@contextlib.contextmanager
def _noting() -> Iterator[tuple[str, list[str | None]]]:
    """Another server of this host, and the cookies that it was sent."""
    cookies: list[str | None] = []

    class Noting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie"))
            self.send_response(200)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Noting) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", cookies
        finally:
            server.shutdown()


def test_a_page_of_a_run_that_goes_changes_by_itself(
    tmp_path: Path, browser: Chromium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its driver writes is shown without anybody's doing, and the end too."""
    from tests.folders import begun

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALQ_BROKER", raising=False)
    folder = begun(tmp_path / "evalq-runs" / "going")
    records = folder.path / "records.jsonl.partial"
    records.write_bytes(b"{}\n" * 7)
    with viewing() as opened, folder.driving():
        tab = browser.tab()
        tab.look()
        tab.open(opened.server.address("/run/going"))
        # By its parts: the page of this evaluator is Korean.
        tab.wait("document.querySelector('.going[data-run]') !== null")
        assert tab.run("document.querySelector('[data-fact=Records]').textContent") == "7"
        records.write_bytes(b"{}\n" * 12)
        tab.wait("document.querySelector('[data-fact=Records]').textContent === '12'")
        folder.note(state="paused")
        tab.wait("document.querySelector('.going:not([data-run])') !== null")
        assert not tab.complaints
