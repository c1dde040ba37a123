"""What evalq says of imported outputs: every check of every line."""

from __future__ import annotations

from pathlib import Path

import msgspec

from evalq.evalcore.evaluators.checks.cases import load_cases
from evalq.evalcore.evaluators.checks.params import ChecksParams
from evalq.evalcore.evaluators.checks.score import OutputScorer, ScoredOutput
from evalq.producer.importing import sources
from evalq.producer.importing.imported import Imported, ImportRequest, write


def judged(
    source: str, path: Path, folder: Path, asked: ImportRequest | None = None
) -> tuple[Imported, list[ScoredOutput]]:
    """What was imported, by way of the files that are written into ``folder``, and the judgements of its outputs."""
    imported = sources.read(source, path, asked or ImportRequest())
    written = write(imported, folder, force=True).files
    cases = next(path for path in written if path.stem == "cases")
    params = ChecksParams.model_validate({"cases": [case.params for case in load_cases([cases])]})
    judge = OutputScorer(params)
    lines = [line for path in written if path.name.startswith("outputs") for line in path.read_bytes().splitlines()]
    assert all(msgspec.json.decode(line)["case"] for line in lines)
    return imported, [judge.test(line) for line in lines]
