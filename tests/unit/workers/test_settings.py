"""Settings: one frozen object from the command line, the environment and a file, in that order."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import ConfigError
from evalq.workers.settings import load_settings


def test_the_order_of_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A given value wins over a variable, a variable over the file, the file over the default."""
    file = tmp_path / "evalq.yaml"
    file.write_text("window: 5\nlease_seconds: 7\ngrace_seconds: 9\n")
    monkeypatch.setenv("EVALQ_WINDOW", "6")
    monkeypatch.setenv("EVALQ_LEASE_SECONDS", "8")
    chosen = load_settings(file, window=4, broker=None)
    assert (chosen.window, chosen.lease_seconds, chosen.grace_seconds, chosen.poll_seconds) == (4, 8.0, 9.0, 1.0)


def test_settings_are_frozen() -> None:
    """Nobody changes them afterwards."""
    with pytest.raises(ValidationError, match="frozen"):
        load_settings().window = 3


@pytest.mark.parametrize(
    ("text", "said"), [("windw: 5\n", "windw"), ("window: 0\n", "window"), ("lease_seconds: soon\n", "lease_seconds")]
)
def test_a_wrong_file_names_the_key(tmp_path: Path, text: str, said: str) -> None:
    """Unknown keys and impossible values are errors that name file and key."""
    file = tmp_path / "evalq.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        load_settings(file)
    assert "evalq.yaml" in str(caught.value)


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An impossible variable is an error, not a default."""
    monkeypatch.setenv("EVALQ_WINDOW", "many")
    with pytest.raises(ConfigError, match="window"):
        load_settings()


def test_a_missing_file_is_an_error() -> None:
    """A settings file that was named must be there."""
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load_settings("nowhere.yaml")


@pytest.mark.parametrize("value", ["/x:/y", "/x:/y:"])
def test_roots_are_written_like_path(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Several folders in one variable; a single one is no error."""
    monkeypatch.setenv("EVALQ_ROOTS", value)
    assert load_settings().roots == (Path("/x"), Path("/y"))
    monkeypatch.setenv("EVALQ_ROOTS", "/x")
    assert load_settings().roots == (Path("/x"),)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(("BROKR", "BROKER"), ("LEASE_SECOND", "LEASE_SECONDS"), ("ROOTTS", "ROOTS"), ("BORKER", "BROKER")),
        *(("BROKER_URL", "BROKER"), ("LEDGER_URI", "LEDGER"), ("BRKOER_URL", "BROKER"), ("SETTINGS_FILE", "SETTINGS")),
        *(("MAX_CALS", "MAX_CALLS"), ("BASELIN", "BASELINE"), ("JUGE", "JUDGE"), ("TARGTE", "TARGET")),
    ],
)
def test_a_misspelt_variable_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, meant: str) -> None:
    """It would be ignored, and its writer think otherwise; the near name is reported."""
    monkeypatch.setenv(f"EVALQ_{name}", "x")
    with pytest.raises(ConfigError, match=f"EVALQ_{name}: no such setting; is it EVALQ_{meant}"):
        load_settings()


def test_a_server_by_another_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer means the fleet; the job would run on the laptop."""
    monkeypatch.setenv("EVALQ_REDIS", "redis://fleet:6379/0")
    with pytest.raises(ConfigError, match="EVALQ_REDIS: no such setting; is it EVALQ_BROKER"):
        load_settings()


def test_a_variable_like_none_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be a wrapper's own; a typo further off is seen all the same."""
    monkeypatch.setenv("EVALQ_RELEASE_OF_TODAY", "x")
    load_settings()
    load_settings()
    assert [line for line in caplog.messages if "EVALQ_RELEASE_OF_TODAY: evalq reads no such variable" in line]
    assert len(caplog.messages) == 1


def test_an_unknown_key_of_a_file_names_the_nearest(tmp_path: Path) -> None:
    """In a file every unknown key is an error."""
    (tmp_path / "s.yaml").write_text("borker: redis://h/0\n")
    with pytest.raises(ConfigError, match=r"borker: no such setting; is it broker\?"):
        load_settings(tmp_path / "s.yaml")


@pytest.mark.parametrize(
    ("table", "said"),
    [('[tool.evalq]\nborker = "x"\n', "borker (is it broker?)"), ('[tool.evalq]\nbroker = "x"\n', "(broker)")],
)
def test_settings_in_a_project_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, table: str, said: str
) -> None:
    """evalq reads none from there: a checkout must not choose servers. Its writer is told, with the nearest names."""
    (tmp_path / "pyproject.toml").write_text(table)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("evalq.workers.settings._warned_of", set())
    assert load_settings(broker="").broker == ""
    (line,) = caplog.messages
    assert "[tool.evalq] is not read" in line
    assert said in line


@pytest.mark.parametrize("text", ["", "[tool.other]\nevalq = 1\n", "evalq = [", "[tool]\nevalq = 3\n"])
def test_other_projects_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """No table of evalq's, or no TOML at all: nothing is said."""
    (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    load_settings()
    assert caplog.messages == []


def test_variables_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of commands and evaluators, and what Kubernetes names after a service."""
    options = [option.name for name in plugins.names() for option in plugins.get(name).command.options]
    others = ["TARGET", "ROOT", "WORKERS", "SETTINGS", "PORT", "BIND", "LOGLEVEL", "REDIS_SERVICE_HOST", "REDIS_PORT"]
    monkeypatch.delenv("EVALQ_SETTINGS", raising=False)
    for name in [*options, *others, "EXPORTER_PORT_9808_TCP", "IMAGE", "DATA", "REPLICAS", "SECRETS"]:
        monkeypatch.setenv(f"EVALQ_{name.upper()}", "x")
    load_settings()


@pytest.mark.parametrize("broker", ["redis://:secret@host/0", "rediss://host", "unix:///tmp/s"])
def test_arguments_of_queues_that_have_none_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: str
) -> None:
    """From a variable or a file, whatever names the broker: nobody is to believe that they have an effect."""
    monkeypatch.setenv("EVALQ_QUEUE_ARGUMENTS", "x-queue-type=quorum")
    assert load_settings(broker="amqp://host").queue_options == {"x-queue-type": "quorum"}
    with pytest.raises(ConfigError, match=r"queue_arguments: .*RabbitMQ") as caught:
        load_settings(broker=broker)
    assert "secret" not in str(caught.value)
    monkeypatch.delenv("EVALQ_QUEUE_ARGUMENTS")
    (tmp_path / "s.yaml").write_text("queue_arguments: {x-queue-type: quorum}")
    monkeypatch.setenv("EVALQ_BROKER", broker)
    with pytest.raises(ConfigError, match=r"queue_arguments: .*RabbitMQ"):
        load_settings(tmp_path / "s.yaml")
    monkeypatch.delenv("EVALQ_BROKER")
    assert load_settings(tmp_path / "s.yaml").queue_options
