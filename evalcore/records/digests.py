"""The digest of chunks and of their answers, which takes an eighth of the time of SHA-256.

Whoever plans a chunk takes it, and whoever computes it once more; so do those who compute an answer and who collect it.
It has to find other bytes than those that were meant: in a file that is cut off, half written or changed meanwhile, in
an answer that is damaged or differs. It is no signature: see docs/decisions/0026-one-sha-256-a-byte.md.

Bytes are taken in leaves of LEAF_BYTES, the last one filled up with zeros. Of a leaf's 32-bit words w, little endian,
there are two sums, w[0] k[0] + w[1] k[1] + ... modulo 2**64, each with 64-bit numbers k of its own. Were those drawn
for the purpose, leaves that differ would have the same sums with a probability of 2**-66 at most (one equation leaves
2**31 of the 2**64 values to the number of a word that differs; Lemire and Kaser 2014, Strongly universal string hashing
is fast). They come from SHAKE-128, so the same bytes have the same digest everywhere. The digest is SHA-256 over
the sums of all leaves and the number of bytes.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from functools import cache
from operator import mul

from evalq.evalcore.native import compiled

__all__ = ["LEAF_BYTES", "PLAIN_BYTES", "leaf_digest", "leaf_sums", "plainly", "quickly"]

LEAF_BYTES = 2048
PLAIN_BYTES = 512 << 10
"""Where nothing is compiled: longer ones are worth the import of numpy, which takes as long as this many bytes."""
_WORDS = LEAF_BYTES // 4
_SUMS = 2
_LEAF = struct.Struct(f"<{_WORDS}I")
_BLOCK = 1024 * LEAF_BYTES
_MODULUS = 1 << 64

Buffer = bytes | bytearray | memoryview


@cache
def _key() -> bytes:
    """The numbers of both sums, one after the other."""
    return hashlib.shake_128(b"evalq leaf digest, 1").digest(_SUMS * _WORDS * 8)


def leaf_digest(data: Buffer) -> str:
    """The digest of ``data``, hexadecimal."""
    digest = hashlib.sha256(leaf_sums(data))
    digest.update(len(data).to_bytes(8, "little"))
    return digest.hexdigest()


def leaf_sums(data: Buffer) -> bytes:
    """The sums of each leaf in turn, little endian, in the fastest of three ways."""
    native = compiled()
    if native is not None:
        found: bytes = native.leaf_sums(_key(), data)
        return found
    return quickly(data) if len(data) > PLAIN_BYTES or "numpy" in sys.modules else plainly(data)


def quickly(data: Buffer) -> bytes:
    """The sums by numpy."""
    import numpy as np

    key = np.frombuffer(_key(), "<u8").reshape(_SUMS, _WORDS).T.copy()
    found = []
    for start in range(0, len(data), _BLOCK):  # a block at a time, so that little memory is taken
        words = np.frombuffer(_filled(memoryview(data)[start : start + _BLOCK]), "<u4").reshape(-1, _WORDS)
        found.append((words.astype("<u8") @ key).tobytes())
    return b"".join(found)


def plainly(data: Buffer) -> bytes:
    """The sums by Python alone."""
    numbers = struct.unpack(f"<{_SUMS * _WORDS}Q", _key())
    keys = [numbers[at : at + _WORDS] for at in range(0, len(numbers), _WORDS)]
    leaves = _LEAF.iter_unpack(_filled(memoryview(data)))
    sums = (sum(map(mul, leaf, key)) % _MODULUS for leaf in leaves for key in keys)
    return b"".join(number.to_bytes(8, "little") for number in sums)


def _filled(data: memoryview) -> Buffer:
    """``data`` with zeros up to the end of its last leaf."""
    rest = -len(data) % LEAF_BYTES
    return bytes(data) + bytes(rest) if rest else data
