"""Records that are hard to read: blank, broken and odd ones."""

from __future__ import annotations

from pathlib import Path

from evalq.evalcore.evaluators.verification.sample import write_records


def hard_files(folder: Path, seed: int) -> list[Path]:
    """Two files in ``folder``: one of whole records, one with blank, broken and odd ones among them."""
    calm, rough = folder / "calm.jsonl", folder / "rough.jsonl"
    with calm.open("wb") as stream:
        write_records(stream, 60, seed)
    with rough.open("wb") as stream:
        write_records(stream, 5, seed + 1)
        stream.write(
            b'\n \n{}\n[]\n{"actual_output": 3}\n{"actual_output": ""}\r\n{"id": 1, "actual_output": "a", "id": 2}\n'
        )
        stream.write(b'{"actual_output": "Edit \\ud83d\\ude00 Read", "id": 12}\n{"actual_output": "\\udc00"}\n')
        stream.write(b'{"actual_output": "x", "compliant": "yes"}\n{"actual_output": "Edit", "compliant": false}')
    return [calm, rough]
