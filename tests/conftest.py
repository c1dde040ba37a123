"""What holds for every test: hypothesis looks at answers, never at how long a busy machine took for them.

`make test` tries a third of the examples that a test asks for, other ones each time, `make quick` a fifth, and `make
thorough` all of them (`tests.portions`).

Who runs what, where several processes run tests: `tests.spread` says. What evalq starts of its own in the process of a
test is forked from one that has imported it: `tests.integration.preloaded`.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, settings

from tests import portions
from tests.integration.preloaded import Beside, share

# Other examples in each run, in CI too: those of many runs are more than those of one.
settings.register_profile("evalq", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False)
for _name, _share in portions.SHARES.items():
    settings.register_profile(_name, settings.get_profile("evalq"), max_examples=-(-100 // _share))
settings.load_profile("usual")


class Fewer(settings):
    """Settings of a test, where each takes a share of its examples."""

    def __init__(self, *given: Any, **named: Any) -> None:
        if "max_examples" in named:
            named["max_examples"] = -(-named["max_examples"] // portions.share())
        super().__init__(*given, **named)


# For sessions of pytest that tests start: to load these two plug-ins of others takes longer than what is tested.
os.environ["PYTEST_ADDOPTS"] = f"{os.environ.get('PYTEST_ADDOPTS', '')} -p no:deepeval -p no:asyncio"
subprocess.Popen = Beside  # type: ignore[misc]  # a Popen itself, for whatever else is started


def pytest_configure(config: pytest.Config) -> None:
    """Collecting makes objects that stay: to look for garbage among them takes a third of its time."""
    gc.disable()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup's choice is not for the workers that tests start
    config.stash[_SCALED] = portions.begin(config.getoption("--hypothesis-profile", None) or "usual")
    hypothesis.settings = Fewer  # type: ignore[misc]  # for the tests, which are imported from here on
    if hasattr(config, "workerinput"):
        return
    _leave_nothing(config)
    if getattr(config.option, "numprocesses", None):
        share()


_SCALED = pytest.StashKey[str]()


def pytest_report_header(config: pytest.Config) -> str:
    """Of what there would be more of."""
    return config.stash[_SCALED]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it where something failed, too: `-q` prints no header."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(terminalreporter.config.stash[_SCALED])


def _leave_nothing(config: pytest.Config) -> None:
    """What processes that tests kill have in the folder for such things goes with the session."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # pytest's own stay, to be looked at
    made = Path(tempfile.mkdtemp(prefix="evalq-tests-"))
    made.chmod(0o1777)  # some tests are other users
    os.environ["TMPDIR"] = tempfile.tempdir = str(made)
    os.environ["XDG_STATE_HOME"] = str(made / "state")  # what runs are begun here is no business of the user's own
    config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """What a test wrote or logged may hold half of a surrogate pair, of which xdist's processes cannot tell each other:
    all of them would end."""
    report = yield
    report.sections = [(title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections]
    return report


def pytest_collection_finish(session: pytest.Session) -> None:
    """From here on there is garbage; of what is there now nothing ever is, or too little to look for."""
    gc.enable()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)  # without xdist there is nobody to share tests out to
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist asks who shares out the tests."""
    from tests.spread import Spread

    config.option.loadscopereorder = False  # the order is that of the items
    return Spread(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests first, where several processes run them; none that starts a server or waits, by `make quick`."""
    if portions.share() == portions.SHARES["quick"]:
        from tests.spread import WAITING

        left = {item for item in items if "server" in item.fixturenames or item.location[0] in WAITING}  # type: ignore[attr-defined]
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]
    if hasattr(config, "workerinput"):
        from tests.spread import turn

        items.sort(key=lambda item: turn(item.nodeid))
