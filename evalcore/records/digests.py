"""The digests of chunks and of their answers: BLAKE3, for a chunk keyed by a secret of its run.

The producer computes a chunk's digest when it plans the chunk, and the worker computes it again. So the worker notices
other bytes, even if somebody chose them without the key. An answer's digest has no key: it shows damage, and
computations that differ. See docs/decisions/0027-chunk-digests-by-a-secret.md.
"""

from __future__ import annotations

import re
import secrets

from blake3 import blake3

from evalq.evalcore.errors import WireError

_KEY_BYTES = 32

Buffer = bytes | bytearray | memoryview


def new_key() -> str:
    """A key for the chunks of one run: 32 random bytes, hexadecimal."""
    return secrets.token_hex(_KEY_BYTES)


def checked_key(text: str) -> str:
    """``text``, if it is a key as `new_key` makes it. Raises WireError, which does not show the text."""
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise WireError("a run's key is not what evalq writes")
    return text


def chunk_digest(data: Buffer, key: str) -> str:
    """The digest of a chunk's bytes in the run of this ``key``, hexadecimal. Raises WireError for an invalid key."""
    return blake3(data, key=bytes.fromhex(checked_key(key))).hexdigest()


def answer_digest(data: Buffer) -> str:
    """The digest of an answer's bytes, hexadecimal: the same in every run."""
    return blake3(data).hexdigest()
