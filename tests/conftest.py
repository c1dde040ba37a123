"""What holds for every test: hypothesis looks at answers, never at how long a busy machine took for them.

`make quick` tries a fifth of the examples that a test asks for, and a share of what some tests count by themselves
(`tests.portions`); `make test`, and with it CI, tries all of them.

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

from tests.integration.preloaded import Beside, share
from tests.portions import SHARE, quicken

settings.register_profile("evalq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("evalq"), max_examples=100 // SHARE)
settings.load_profile("evalq")


class Fewer(settings):
    """Settings of a test, where each takes a share of its examples."""

    def __init__(self, *given: Any, **named: Any) -> None:
        if "max_examples" in named:
            named["max_examples"] = -(-named["max_examples"] // SHARE)
        super().__init__(*given, **named)


# For sessions of pytest that tests start: to load these two plug-ins of others takes longer than what is tested.
os.environ["PYTEST_ADDOPTS"] = f"{os.environ.get('PYTEST_ADDOPTS', '')} -p no:deepeval -p no:asyncio"
subprocess.Popen = Beside  # type: ignore[misc]  # a Popen itself, for whatever else is started


def pytest_configure(config: pytest.Config) -> None:
    """Collecting makes objects that stay: to look for garbage among them takes a third of its time."""
    gc.disable()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup's choice is not for the workers that tests start
    if config.getoption("--hypothesis-profile", None) == "quick":
        quicken()
        hypothesis.settings = Fewer  # type: ignore[misc]  # for the tests, which are imported from here on
    if hasattr(config, "workerinput"):
        return
    _leave_nothing(config)
    if getattr(config.option, "numprocesses", None):
        share()


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
    """Long tests first, where several processes run them."""
    if hasattr(config, "workerinput"):
        from tests.spread import turn

        items.sort(key=lambda item: turn(item.nodeid))
