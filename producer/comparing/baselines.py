"""Baselines: approved runs under a name, with everything that a comparison needs, as files and in the ledger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from evalq.evalcore.compare.counting import fault_of
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.errors import UsageError, WireError
from evalq.evalcore.files import open_input, write_atomic
from evalq.evalcore.model.lines import encode_in_lines
from evalq.producer.comparing.samples import FOLDER, SUFFIX, encode_samples, folder_of, samples_to_keep, slot_of
from evalq.producer.outputs.cases import decode_cases

if TYPE_CHECKING:
    from evalq.producer.servers import Servers


# A name is also a folder's name, so it must not be a path.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


class Baselines:
    """The baselines of this directory and of the named server; the server's come first."""

    def __init__(self, servers: Servers, folder: Path = FOLDER) -> None:
        self._servers = servers
        self._folder = folder

    def approve(self, name: str, run: RunCases, *, answers: bool = True) -> Path:
        """Keep ``run`` as the baseline ``name`` of its evaluator and target, and restart drift from it; the file.

        With ``answers`` one answer to each case is kept beside it, so that a gate elsewhere can show it.
        Raises UsageError, WireError for a run that cannot be one, OSError.
        """
        _check(name)
        # Cases that no run can have would end each later gate, far from their cause.
        if fault := fault_of(run):
            raise WireError(f"{run.run} does not hold a run's cases: {fault}")
        if run.cases.columns and not any(sum(column.count) for column in run.cases.columns.values()):
            raise UsageError(
                f"run {run.run} has no answer with a verdict, so nothing can be compared with it: look at its faults "
                f"(evalq report {run.run}), run it again, and approve that run"
            )
        slot, data = slot_of(run), encode_in_lines(msgspec.structs.replace(run, named=""))
        path = self._path(name, slot)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data + b"\n")
        self._keep_answers(path.with_name(f"{slot}{SUFFIX}"), run if answers else None)
        if self._servers.named:
            self._servers.baselines.keep(name, slot, data)
            self._servers.drift.approve(run)
        return path

    def _keep_answers(self, path: Path, run: RunCases | None) -> None:
        folder = folder_of(run) if run is not None else None
        samples = samples_to_keep(folder, run.cases.ids) if run is not None and folder is not None else iter(())
        with stdout_to_stderr():  # an evaluator may print
            if run is not None and (first := next(samples, None)) is not None:
                write_atomic(path, encode_samples(run.run, chain([first], samples)))
            else:  # those of another run must not pass for this one's
                path.unlink(missing_ok=True)

    def known(self, name: str) -> list[RunCases]:
        """The runs approved under ``name``, one for each evaluator and target; empty for an unknown name."""
        found: dict[str, RunCases] = {}
        if _NAME.match(name):
            for path in sorted((self._folder / name).glob("*.json")):
                with open_input(path) as stream:  # not a pipe or a device, which a link may lead to
                    found[path.stem] = decode_cases(stream.read(), str(path))
            if self._servers.named:
                # After the files, so that the server's run replaces the file's.
                there = self._servers.baselines.read(name).items()
                found |= {at: decode_cases(data, f"the baseline {name} in the ledger") for at, data in there}
        return [msgspec.structs.replace(found[slot], named=name) for slot in sorted(found)]

    def every(self) -> tuple[dict[str, list[RunCases]], list[str]]:
        """{name: approved runs}, and the reasons why other names cannot be read."""
        found: dict[str, list[RunCases]] = {}
        faults: list[str] = []
        for name in self.names():
            try:
                found[name] = self.known(name)
            except (WireError, OSError) as error:
                faults.append(f"the baseline {name} cannot be read: {error}")
        return found, faults

    def names(self) -> list[str]:
        """The names of all baselines, here and in the ledger."""
        names = {path.parent.name for path in self._folder.glob("*/*.json") if _NAME.match(path.parent.name)}
        if self._servers.named:
            names |= set(self._servers.baselines.names())
        return sorted(names)

    def forget(self, name: str) -> Iterator[str]:
        """Drop ``name`` here and on the server; what was dropped."""
        _check(name)
        for path in sorted((self._folder / name).glob(f"*{SUFFIX}")):
            path.unlink()
        for path in sorted((self._folder / name).glob("*.json")):
            path.unlink()
            yield str(path)
        if (self._folder / name).is_dir() and not any((self._folder / name).iterdir()):
            (self._folder / name).rmdir()
        if self._servers.named and self._servers.baselines.forget(name):
            yield f"{name} in the ledger"

    def _path(self, name: str, slot: str) -> Path:
        return self._folder / name / f"{slot}.json"


def _check(name: str) -> None:
    if not _NAME.match(name):
        raise UsageError(f"{name!r} cannot name a baseline: letters, digits, dots, dashes and underscores")
