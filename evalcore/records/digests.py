"""The digests of chunks and of their answers, which take an eighth of the time of SHA-256.

Bytes are taken in leaves of LEAF_BYTES, the last one filled up with zeros. Of a leaf's 32-bit words w, little endian,
there are two sums, w[0] k[0] + w[1] k[1] + ... modulo 2**64, each with 64-bit multipliers k of its own. Where those are
drawn at random, two leaves that differ have the same sums with a probability of 2**-66 at most: of the multiplier of a
word that differs, one equation leaves at most 2**31 of 2**64 values (Lemire and Kaser 2014, Strongly universal string
hashing is fast). A digest is a hash over the sums of all leaves and the number of bytes.

A chunk's digest is keyed by a secret of its run: whoever plans a chunk takes it, and whoever computes the chunk once
more, to find other bytes than those planned, also those that somebody chose who does not know the key. That makes it a
message authentication code (a universal hash, then a pseudorandom function: Wegman and Carter 1981). An answer's
digest has multipliers that everybody knows: it finds damage, and two computations that differ. See
docs/decisions/0027-chunk-digests-by-a-secret.md.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import struct
import sys
from functools import cache, lru_cache
from operator import mul
from typing import NamedTuple

from evalq.evalcore.errors import WireError
from evalq.evalcore.native import compiled

__all__ = [
    "LEAF_BYTES",
    "PLAIN_BYTES",
    "checked_key",
    "chunk_digest",
    "leaf_digest",
    "leaf_sums",
    "new_key",
    "plainly",
    "public",
    "quickly",
]

LEAF_BYTES = 2048
PLAIN_BYTES = 512 << 10
"""Where nothing is compiled: longer ones are worth the import of numpy, which takes as long as this many bytes."""
_WORDS = LEAF_BYTES // 4
_SUMS = 2
_LEAF = struct.Struct(f"<{_WORDS}I")
_BLOCK = 1024 * LEAF_BYTES
_MODULUS = 1 << 64
_MULTIPLIERS = _SUMS * _WORDS * 8
_KEY_BYTES = 32
_KEYS = 16
"""Runs of which a process remembers the multipliers, 8 KiB each."""

Buffer = bytes | bytearray | memoryview


class _Secrets(NamedTuple):
    """What a run's key is drawn out into: the multipliers, and the key of the hash over their sums."""

    multipliers: bytes
    outer: bytes


def new_key() -> str:
    """A key for the chunks of one run: 32 random bytes, hexadecimal."""
    return secrets.token_hex(_KEY_BYTES)


def checked_key(text: str) -> str:
    """``text``, where it is a key as `new_key` makes them. Raises WireError, which does not show it."""
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise WireError("a run's key is not what evalq writes")
    return text


def chunk_digest(data: Buffer, key: str) -> str:
    """The digest of a chunk's bytes in the run of this ``key``, hexadecimal. Raises WireError for what is no key."""
    multipliers, outer = _drawn(key)
    digest = hashlib.blake2b(leaf_sums(data, multipliers), digest_size=32, key=outer)
    # The length as well: a last leaf that was filled up with zeros has the sums of one that ends in them.
    digest.update(len(data).to_bytes(8, "little"))
    return digest.hexdigest()


def leaf_digest(data: Buffer) -> str:
    """The digest of an answer's bytes, hexadecimal: the same in every run."""
    digest = hashlib.sha256(leaf_sums(data, public()))
    digest.update(len(data).to_bytes(8, "little"))
    return digest.hexdigest()


@lru_cache(maxsize=_KEYS)
def _drawn(key: str) -> _Secrets:
    known = bytes.fromhex(checked_key(key))
    # Named, so that nothing else that is ever drawn from a run's key has the same bytes.
    drawn = hashlib.shake_256(b"evalq chunk digest, 1" + known).digest(_MULTIPLIERS + _KEY_BYTES)
    return _Secrets(drawn[:_MULTIPLIERS], drawn[_MULTIPLIERS:])


@cache
def public() -> bytes:
    """The multipliers of both sums, one after the other, that need no key."""
    return hashlib.shake_128(b"evalq leaf digest, 1").digest(_MULTIPLIERS)


def leaf_sums(data: Buffer, multipliers: bytes) -> bytes:
    """The sums of each leaf in turn, little endian, in the fastest of three ways."""
    native = compiled()
    if native is not None:
        found: bytes = native.leaf_sums(multipliers, data)
        return found
    numpy_pays = len(data) > PLAIN_BYTES or "numpy" in sys.modules
    return quickly(data, multipliers) if numpy_pays else plainly(data, multipliers)


def quickly(data: Buffer, multipliers: bytes) -> bytes:
    """The sums by numpy."""
    import numpy as np

    key = np.frombuffer(multipliers, "<u8").reshape(_SUMS, _WORDS).T.copy()
    found = []
    for start in range(0, len(data), _BLOCK):  # a block at a time, so that little memory is taken
        words = np.frombuffer(_filled(memoryview(data)[start : start + _BLOCK]), "<u4").reshape(-1, _WORDS)
        # Unsigned numbers of 64 bits wrap around: that is the modulus.
        found.append((words.astype("<u8") @ key).tobytes())
    return b"".join(found)


def plainly(data: Buffer, multipliers: bytes) -> bytes:
    """The sums by Python alone."""
    numbers = struct.unpack(f"<{_SUMS * _WORDS}Q", multipliers)
    keys = [numbers[at : at + _WORDS] for at in range(0, len(numbers), _WORDS)]
    leaves = _LEAF.iter_unpack(_filled(memoryview(data)))
    sums = (sum(map(mul, leaf, key)) % _MODULUS for leaf in leaves for key in keys)
    return b"".join(number.to_bytes(8, "little") for number in sums)


def _filled(data: memoryview) -> Buffer:
    """``data`` with zeros up to the end of its last leaf."""
    rest = -len(data) % LEAF_BYTES
    return bytes(data) + bytes(rest) if rest else data
