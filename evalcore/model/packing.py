"""Bytes packed for the ledger: chunks, answers, prompts and outputs."""

from __future__ import annotations

import zstandard

from evalq.evalcore.errors import WireError

__all__ = ["pack", "unpack"]

# Level -5 saves .1 µs a row, and makes answers 1.8 times as long in the ledger (docs/decisions/0021).
_LEVEL = 1


def pack(data: bytes) -> bytes:
    """``data`` as one frame that says how long it is unpacked."""
    return zstandard.ZstdCompressor(level=_LEVEL).compress(data)


def unpack(data: bytes, most: int) -> bytes:
    """What `pack` made ``data`` of, ``most`` bytes at most. Raises WireError for anything else.

    What the frame says is looked at first: unpacking takes memory for what is announced before a byte of it is there.
    """
    try:
        if zstandard.get_frame_parameters(data).content_size > most:  # so is a frame that does not say
            raise WireError(f"it unpacks to more than {most} bytes")
        # No extra data: what stands behind the frame would be passed over unseen.
        return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise WireError(str(error)) from error
