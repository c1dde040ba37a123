"""Records that are hard to read: blank, broken and odd ones."""

from __future__ import annotations

from pathlib import Path

from evalq.evalcore.evaluators.selfcheck.sample import write_records


def hard_files(folder: Path, seed: int) -> list[Path]:
    """Two files in ``folder``: one of whole records, one with blank, broken and odd ones among them."""
    calm, rough = folder / "calm.jsonl", folder / "rough.jsonl"
    with calm.open("wb") as stream:
        write_records(stream, 60, seed)
    with rough.open("wb") as stream:
        write_records(stream, 5, seed + 1)
        stream.write(
            b'\n  \n{}\n[1, 2]\n{"testOutput": 3}\n{"id": 7, "evidence": [{"type": "log"}]}\r\n{"id": "x", "id": "y"}\n'
        )
        stream.write(b'{"testOutput": "\\ud83d\\ude00 probably", "requirementsList": [], "assumptions": null}\n')
        stream.write(
            b'{"testOutput": "\\ud800"}\n{"expectedPaths": ["a.txt"]}\n{"testOutput": "no newline at the end"}'
        )
    return [calm, rough]
