"""A headless Chromium over its own protocol, by a pipe: what a page asks for, complains of, and shows."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

AXE = Path(__file__).parents[2] / ".venv/npm/node_modules/axe-core/axe.min.js"
"""The checks of accessibility, as npm has them."""
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OPTIONS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
)
_SERIOUS = ("serious", "critical")
_PATIENCE = 600.0


def program() -> str | None:
    """Where Chromium is, or Chrome."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


@contextlib.contextmanager
def chromium() -> Iterator[Chromium]:
    """A browser for the length of a block."""
    found = program()
    assert found is not None, "there is no Chromium"
    # What it reads and what it writes; lifted, so that neither is one of the numbers 3 and 4, which are Chromium's own.
    (asking, to), (back, answering) = (tuple(map(_lifted, os.pipe())) for _ in range(2))

    def hand_over() -> None:
        os.dup2(asking, 3)
        os.dup2(answering, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        command = [found, *_OPTIONS, f"--user-data-dir={home}"]
        process = subprocess.Popen(
            command,
            pass_fds=(3, 4, asking, answering),
            preexec_fn=hand_over,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(asking)
        os.close(answering)
        try:
            yield Chromium(to, back)
        finally:
            process.kill()
            process.wait()
            os.close(to)
            os.close(back)


def _lifted(number: int) -> int:
    lifted = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(number)
    return lifted


class Chromium:
    """A browser that runs."""

    def __init__(self, to: int, back: int) -> None:
        self._to = to
        self._back = back
        self._rest = b""
        self._last = 0
        self.events: list[dict[str, Any]] = []

    def tab(self) -> Tab:
        """A new tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Tab(self, session)

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Ask for something, and take what happens meanwhile into `events`."""
        self._last += 1
        asked: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        asked |= {"sessionId": session} if session else {}
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while (reply := self._next()).get("id") != self._last:
            self.events.append(reply)
        assert "error" not in reply, (method, reply["error"])
        return dict(reply["result"])

    def until(self, happened: Callable[[dict[str, Any]], bool]) -> None:
        """Wait for an event."""
        while not any(map(happened, self.events)):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._back, 1 << 20)
            assert piece, "Chromium ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))


class Tab:
    """One tab, as wide and in such colours as `look` asked for."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        self._call("Page.setLifecycleEventsEnabled", enabled=True)

    def look(self, *, width: int = 1280, dark: bool = False, scripts: bool = True) -> None:
        """How pages are shown from now on."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Emulation.setScriptExecutionDisabled", value=not scripts)

    def open(self, address: str) -> float:
        """Go there, and wait until it is loaded; the seconds that took."""
        before = self._call("Page.getFrameTree")["frameTree"]["frame"]["loaderId"]
        self._browser.events.clear()
        began = time.monotonic()
        self._call("Page.navigate", url=address)

        def loaded(event: dict[str, Any]) -> bool:
            """Not the page before, whose event may come only now."""
            if event.get("method") != "Page.lifecycleEvent" or event.get("sessionId") != self._session:
                return False
            return bool(event["params"]["name"] == "load" and event["params"]["loaderId"] != before)

        self._browser.until(loaded)
        return time.monotonic() - began

    def run(self, expression: str) -> Any:
        """What JavaScript gives, awaited."""
        reply = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait(self, expression: str) -> float:
        """Until it is true; the seconds that took."""
        began = time.monotonic()
        while not self._holds(expression):
            assert time.monotonic() - began < _PATIENCE, f"never true: {expression}"
            time.sleep(0.02)  # here and not there: the page may be leaving
        return time.monotonic() - began

    def _holds(self, expression: str) -> bool:
        try:
            return bool(self.run(expression))
        except AssertionError:  # asked between two pages
            return False

    @property
    def complaints(self) -> list[str]:
        """What came on the console, and what was thrown."""
        self.run("1")
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(each["params"])[:300] for each in self._own() if each["method"] in kinds]

    @property
    def requests(self) -> list[str]:
        """Every address that was asked for."""
        self.run("1")
        return [
            each["params"]["request"]["url"] for each in self._own() if each["method"] == "Network.requestWillBeSent"
        ]

    @property
    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.run("document.documentElement.scrollWidth - innerWidth"))

    def faults(self, *rules: str) -> list[str]:
        """What axe-core finds serious or critical, a line each: by all of its rules, or by these."""
        self.run(AXE.read_text(encoding="utf-8"))
        asked = {"resultTypes": ["violations"]} | ({"runOnly": rules} if rules else {})
        found = json.loads(self.run(f"axe.run({json.dumps(asked)}).then(found => JSON.stringify(found.violations))"))
        return [
            f"{each['id']} ({each['impact']}): {each['nodes'][0]['html'][:200]}"
            for each in found
            if each["impact"] in _SERIOUS
        ]

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        import base64

        reply = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(reply["data"]))

    def _own(self) -> list[dict[str, Any]]:
        return [each for each in self._browser.events if each.get("sessionId") == self._session]

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)
