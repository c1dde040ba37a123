"""Recorded outputs that are hard to read: repeated, blank and broken lines, broken marks of a sweep that stopped."""

from __future__ import annotations

from pathlib import Path

from evalq.evalcore.evaluators.vs.sample import sample_cases, write_outputs


def hard_files(folder: Path, seed: int) -> list[Path]:
    """Three files of recorded outputs in ``folder``.

    A calm one, one with repeated, blank and broken lines, and one of a sweep that could stop, with broken marks of it.
    """
    calm, rough, stopped = (folder / f"{name}.jsonl" for name in ("calm", "rough", "stopped"))
    with calm.open("wb") as stream:
        write_outputs(stream, sample_cases(), repeats=3, seed=seed)
    with rough.open("wb") as stream:
        write_outputs(stream, sample_cases()[:12], repeats=4, seed=seed + 1)
        stream.write(
            b'\n  \n{"case": "FULL-01", "repeat": 0, "output": {}}\n[1, 2]\n{"case": "NOWHERE", "repeat": 0}\n'
        )
        stream.write(
            b'{"case": "FULL-02", "repeat": -1, "output": {}}\r\n{"case": "FULL-02", "repeat": 9, "output": 3}\n'
        )
        stream.write(b'{"case": "FULL-03", "repeat": 9, "output": {"agent_id": "\xff"}}\n')
        write_outputs(stream, sample_cases()[10:14], repeats=2, seed=seed + 2)
        stream.write(b'{"case": "LIGHT-01", "repeat": 7, "output": {"agent_id": 1, "agent_id": 2}}')
    with stopped.open("wb") as stream:
        write_outputs(stream, sample_cases()[:6], repeats=20, seed=seed + 3, planned=50)
        stream.write(
            b'{"case": "FULL-07", "repeat": 0, "error": "timeout", "stop": {"rule": "when-decided", "of": 9}}\n'
        )
        stream.write(b'{"case": "FULL-08", "repeat": 0, "output": {}, "stop": {"rule": "soon", "of": 9}}\n')
        stream.write(b'{"case": "FULL-08", "repeat": 1, "output": {}, "stop": {"rule": "when-decided", "of": 0}}\n')
        write_outputs(stream, sample_cases()[5:7], repeats=2, seed=seed + 4)
    return [calm, rough, stopped]
