"""Who is let in: who has the token, under this machine's name, to read."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.unit.viewing.conftest import Browser, viewing

METHODS = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE")


def test_nothing_is_shown_without_the_token(here: Path) -> None:
    """Not the index, not a page that there is not, and not with another token or cookie."""
    with viewing() as browser:
        cookie = browser.server.cookie
        for path in ("/", "/suites", "/live?run=x", "/run/x", "/nothing", "/?token=", "/?token=x", "/?token=%ff"):
            for sent in ("", f"{cookie}=x", f"{cookie}=", "a=b; ;;=", f'{cookie}="'):
                found = browser.get(path, Cookie=sent)
                assert found.status == 403, (path, sent)
                assert "Runs" not in found.text


def test_the_token_in_the_address_becomes_a_strict_cookie_and_leaves_the_address(here: Path) -> None:
    """The page that is answered leads on without it; the cookie is no token."""
    with viewing() as browser:
        asked = browser.server.address("/suites?a=1").partition(str(browser.server.server_port))[2]
        assert "token=" in asked
        found = browser.get(asked)
        assert found.status == 200
        base = browser.server.base
        assert len(base) > 12
        assert found.headers["Set-Cookie"].endswith(f"; Path={base}/; HttpOnly; SameSite=Strict")
        assert browser.server.token not in found.body + str(found.headers)
        assert f'href="{base}/suites?a=1"' in found.body
        assert browser.enter().get("/suites").status == 200


def test_other_servers_of_this_host_are_not_sent_the_cookie(here: Path) -> None:
    """It belongs to a path that is in no address but those of its pages, and counts nowhere else."""
    with viewing() as browser, viewing() as another:
        cookie = browser.enter().cookie
        assert browser.server.base != another.server.base
        for path in ("/", "/suites", another.server.base + "/", browser.server.base):
            assert Browser(browser.server).get(path, Cookie=cookie).status == 403
        leads = [
            at.get("href") or at.get("action") or ""
            for _, at in browser.get("/").page.tags
            if {"href", "action"} & set(at)
        ]
        assert all(lead.startswith((f"{browser.server.base}/", "#")) for lead in leads)
        assert len(leads) > 3


@pytest.mark.parametrize("path", ["//evil.example/x", "/%5cevil.example", "/\\evil.example", "/a?b=//evil.example"])
def test_the_way_in_leads_to_no_other_host(here: Path, path: str) -> None:
    """Whatever the path is, it stays one of this server's."""
    with viewing() as browser:
        mark = "&" if "?" in path else "?"
        (link,) = browser.get(f"{path}{mark}token={browser.server.token}").links
        assert link.startswith("/")
        assert not link.startswith(("//", "/\\"))


def test_an_address_for_once_is_used_up(here: Path) -> None:
    """A browser is started with such a one, since everybody can read command lines."""
    with viewing() as browser:
        asked = browser.server.address("/", once=True).partition(str(browser.server.server_port))[2]
        assert [browser.get(asked).status for _ in range(2)] == [200, 403]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]:80", "", "x:y:z"])
def test_another_host_s_name_is_refused(here: Path, host: str) -> None:
    """A name that somebody points at 127.0.0.1 makes the browser send what it would send there."""
    with viewing() as browser:
        browser.enter()
        assert browser.get("/", Host=host).status == 403
        assert browser.get(f"/?token={browser.server.token}", Host=host).status == 403
        assert browser.get("/", Host="localhost:1234").status == 200, "a tunnel has another port"


@pytest.mark.parametrize("method", METHODS)
def test_nothing_but_reading_is_answered(here: Path, method: str) -> None:
    """Whoever asks."""
    with viewing() as browser:
        found = browser.enter().get("/", method=method)
        assert (found.status, found.headers["Allow"]) == (405, "GET")


def test_every_answer_has_the_policy_and_nothing_is_loaded(here: Path) -> None:
    """One style and one script by their hashes; no frame, no cache, no referrer."""
    with viewing() as browser:
        browser.enter()
        for path in ("/", "/suites", "/compare", "/nothing", "/live"):
            found = browser.get(path)
            policy = found.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; style-src 'sha256-")
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert found.headers["Cache-Control"] == "no-store"
            assert found.headers["Referrer-Policy"] == "no-referrer"
            page = found.page
            assert not [
                at for _, at in page.tags if "style" in at or "src" in at or any(k.startswith("on") for k in at)
            ]
            assert all(link.startswith("/") or link == "#content" for link in found.links)


def test_it_listens_on_this_machine_alone(here: Path) -> None:
    """On 127.0.0.1 and no other address of the host."""
    with viewing() as browser:
        assert browser.server.server_address[0] == "127.0.0.1"
        with socket.socket() as other:
            other.settimeout(5)
            assert other.connect_ex(("127.0.0.2", browser.server.server_port)) != 0
