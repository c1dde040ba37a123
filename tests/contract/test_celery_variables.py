"""Variables that Celery and its libraries read, by their own sources: a worker of evalq is moved by none of them."""

from __future__ import annotations

import pytest

from evalq.workers.names import is_celery_variable
from tests.contract.celery_variables import variables_read

HARMLESS = {
    "APP": "the `celery` command",
    "BROKER_URL": "the `celery` command",
    "CONFIG_MODULE": "the `celery` command",
    "LOADER": "the `celery` command",
    "NO_COLOR": "the `celery` command",
    "RESULT_BACKEND": "the `celery` command",
    "SKIP_CHECKS": "the `celery` command",
    "DJANGO_PROJECT_DIR": "pool processes that are not forked",
    "DJANGO_SETTINGS_MODULE": "the fix-up for Django, without which the application is made",
    "ITERM_PROFILE": "pictures in a terminal",
    "NO_WORKER": "Celery's own tests",
    "NUMBER_OF_PROCESSORS": "Windows",
    "PUBSUB_EMULATOR_HOST": "a transport that evalq does not use, from kombu 5.7 on",
    "SLMQ_ACCOUNT": "a transport that evalq does not use",
    "SLMQ_HOST": "a transport that evalq does not use",
    "SLMQ_PORT": "a transport that evalq does not use",
    "SLMQ_SECURE": "a transport that evalq does not use",
    "SL_API_KEY": "a transport that evalq does not use",
    "SL_USERNAME": "a transport that evalq does not use",
    "TERM": "everybody's",
    "TEST_BROKER": "Celery's own tests",
    "WORKER_LOGLEVEL": "Celery's own tests",
}
"""Variables that stay in a worker's environment, and who reads them."""


def test_each_variable_that_they_read_is_taken_away_or_known_to_be_harmless() -> None:
    """A version that reads another one fails here."""
    found = variables_read()
    assert {
        "CELERY_BROKER_URL",
        "CELERY_CONFIG_MODULE",
        "PICKLE_PROTOCOL",
        "REMAP_SIGTERM",
        "C_FAKEFORK",
    } <= found.keys()
    unknown = {name: where for name, where in found.items() if not is_celery_variable(name) and name not in HARMLESS}
    assert not unknown
    assert not [name for name in HARMLESS if is_celery_variable(name)]
    assert HARMLESS.keys() - {"PUBSUB_EMULATOR_HOST"} <= found.keys(), "what nobody reads any more need not stand there"


@pytest.mark.parametrize("name", ["EVALQ_BROKER", "PATH", "HTTPS_PROXY", "MYCELERY_X", "OPENAI_API_KEY", "MPLBACKEND"])
def test_other_variables_are_left_alone(name: str) -> None:
    """Only whole names count."""
    assert not is_celery_variable(name)
