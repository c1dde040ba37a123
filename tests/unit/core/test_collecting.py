"""The collector of cycles, which is off while much is made at once, and on afterwards."""

from __future__ import annotations

import gc
import threading

import pytest

from evalq.evalcore.model.canonical import uncollected


def test_it_is_on_again_however_a_block_ends() -> None:
    """Also the outer one of two, and one that raises."""

    @uncollected()
    def fail() -> None:
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise ValueError("out")

    assert gc.isenabled()
    with pytest.raises(ValueError, match="out"):
        fail()
    assert gc.isenabled()


def test_a_function_that_is_called_again_has_its_own_block() -> None:
    """As a decorator, in a call within a call."""

    @uncollected()
    def down(depth: int) -> bool:
        return gc.isenabled() or (depth > 0 and down(depth - 1))

    assert not down(3)
    assert gc.isenabled()


def test_whoever_turned_it_off_has_it_stay_so() -> None:
    """A program that calls evalq may have its own reasons."""
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_blocks_of_two_threads_end_with_it_on() -> None:
    """Whichever of them ends first."""
    for first in (True, False):
        begun, go_on = threading.Event(), threading.Event()

        def other(begun: threading.Event = begun, go_on: threading.Event = go_on) -> None:
            with uncollected():
                begun.set()
                assert go_on.wait(30)

        thread = threading.Thread(target=other)
        with uncollected():
            thread.start()
            assert begun.wait(30)
            if first:
                go_on.set()
                thread.join(30)
        go_on.set()
        thread.join(30)
        assert gc.isenabled()
