"""Configurations in the styles of public ones: nine of ten keep all cases and checks, and each other is named here.

`styles/` has a folder for each. What is lost is what an import lists as without a counterpart among cases and checks;
settings and providers are other things.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from evalq.evalcore.records import yaml
from evalq.producer.cli import main
from evalq.producer.importing import sources
from evalq.producer.importing.imported import Imported, ImportRequest, Note

STYLES = Path(__file__).parent / "styles"
CONFIGS = sorted(STYLES.glob("*/promptfooconfig.*"))
LOST = {
    "embeddings-similar": "similar, embeddings compare",
    "program-files": "prompt, it is a program",
    "python-program": "python, its program is no closed expression",
    "select-the-best": "select-best, it compares the outputs of several providers",
    "sql-answers": "is-sql, evalq has no check of markup or SQL",
    "template-loop": "a prompt, a template that is more than {{name}}",
    "tools-validity": "is-valid-openai-tools-call, it needs the provider's list of tools",
}
"""The configurations that lose a case or a check, and what the import says of it."""
_OF_CASES = {"a case", "a check", "a prompt", "prompt", "prompts", "a test", "tests", "scenario", "vars", "defaultTest"}


def _lost(note: Note) -> bool:
    """Whether a case or a check is missing by what is noted."""
    of_check = ".assert[" in note.where or ": assert[" in note.where or ".csv:" in note.where or ".jsonl:" in note.where
    return note.kind in ("none", "later") and (note.what in _OF_CASES or of_check)


def _imported(config: Path) -> Imported:
    return sources.read("promptfoo", config, ImportRequest(unchecked=True))


def test_nine_of_ten_configurations_keep_all_cases_and_checks() -> None:
    """Of at least sixty; the others are exactly those that are named."""
    assert len(CONFIGS) >= 60
    losing = {config.parent.name for config in CONFIGS if any(map(_lost, _imported(config).notes))}
    assert losing == set(LOST)
    assert 1 - len(losing) / len(CONFIGS) >= 0.9


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.parent.name)
def test_an_import_says_on_the_terminal_what_is_lost(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the configuration is named by a path from where the user stands; all files of it are cases."""
    monkeypatch.chdir(STYLES)
    name = config.parent.name
    code = main(
        ["import", "promptfoo", str(config.relative_to(STYLES)), "-d", str(tmp_path / "evals"), "--keep-unchecked"]
    )
    message = capsys.readouterr().out
    lines = [line for line in message.splitlines() if line.startswith("left out: ")]
    assert code == 0
    assert (name in LOST) == any(LOST.get(name, "?") in line for line in lines), message
    # Without the settings that no case depends on.
    settings = (*("evaluateOptions", "derivedMetrics", "env", "outputPath", "sharing", "commandLineOptions"), ": ")
    beside = [line for line in lines if LOST.get(name, "?") not in line]
    assert all(any(sign in line for sign in settings) for line in beside), beside


def test_every_case_has_as_many_checks_as_its_test_has_assertions() -> None:
    """Of all configurations whose tests stand in them, and that lose none."""
    compared = 0
    for config in CONFIGS:
        data = yaml.load(config.read_text(encoding="utf-8"))
        tests, default = data.get("tests"), data.get("defaultTest", {})
        inline = isinstance(tests, list) and all(isinstance(test, dict) for test in tests) and isinstance(default, dict)
        # The score of that one passes every answer.
        if config.parent.name in (*LOST, "starter-with-score") or not inline:
            continue
        wanted = {
            len(test.get("assert", []))
            + (0 if test.get("options", {}).get("disableDefaultAsserts") else len(default.get("assert", [])))
            for test in tests
        }
        # A case that is kept without a check of its own has one.
        assert {len(case["checks"]) for case in _imported(config).cases} == {count or 1 for count in wanted}, config
        compared += 1
    assert compared >= 45
