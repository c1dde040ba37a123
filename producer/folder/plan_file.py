"""The chunks of a plan, as they stand in its file: of however many there are, a few pages are in memory."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import overload

from evalq.evalcore.errors import WireError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.manifest import Chunk

__all__ = ["PAGE", "PlannedChunks"]

PAGE = 256
"""Chunks that are read together: a run asks for them in order, at a few places at once."""
_PAGES = 4


class PlannedChunks(Sequence[Chunk]):
    """Chunks by number, read from the lines of the file by ``read`` whenever they are asked for.

    ``path`` says where the file is: a run's folder gets its name after its plan was begun. A slice is a view: it holds
    no chunk either.
    """

    def __init__(self, path: Callable[[], Path], read: Callable[[bytes], Chunk]) -> None:
        self._path = path
        self._read = read
        self._starts = array("Q")  # where the first line of each page begins
        self._last: list[Chunk] = []
        self._count = 0
        self._pages: dict[int, list[Chunk]] = {}

    def add(self, chunk: Chunk, start: int) -> None:
        """The next chunk; its line begins at byte ``start``, right behind those of its page."""
        if self._count % PAGE == 0:
            self._starts.append(start)
            self._last = []
        self._last.append(chunk)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Chunk]: ...
    def __getitem__(self, index: int | slice) -> Chunk | Sequence[Chunk]:
        if isinstance(index, slice):
            return _View(self, range(self._count)[index])
        number = range(self._count)[index]
        return self._page(number // PAGE)[number % PAGE]

    def _page(self, number: int) -> list[Chunk]:
        if number == len(self._starts) - 1:
            return self._last
        # Out and in again, so that the dictionary's first page is always the one that was asked for longest ago.
        page = self._pages.pop(number, None) or self._loaded(number)
        self._pages[number] = page
        if len(self._pages) > _PAGES:
            del self._pages[next(iter(self._pages))]
        return page

    def _loaded(self, number: int) -> list[Chunk]:
        start, end = self._starts[number], self._starts[number + 1]
        with open_input(self._path()) as stream:
            stream.seek(start)
            lines = stream.read(end - start).splitlines()
        page = [self._read(line) for line in lines]
        if [chunk.seq for chunk in page] != list(range(number * PAGE, (number + 1) * PAGE)):
            raise WireError(f"{self._path()} is damaged: it changed while the run went on; start the run anew")
        return page


class _View(Sequence[Chunk]):
    """Some chunks of a plan."""

    def __init__(self, chunks: PlannedChunks, numbers: range) -> None:
        self._chunks = chunks
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Chunk]: ...
    def __getitem__(self, index: int | slice) -> Chunk | Sequence[Chunk]:
        if isinstance(index, slice):
            return _View(self._chunks, self._numbers[index])
        return self._chunks[self._numbers[index]]
