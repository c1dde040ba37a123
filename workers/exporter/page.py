"""The text of /metrics: one look at the ledger, rendered in the format that is asked for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import redis
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from evalcore.errors import EvalqError
from workers.exporter.collector import About, Histories, Live
from workers.snapshot import Snapshot

__all__ = ["Page"]

_FORMATS = 4
_END = b"# EOF\n"
_Encoder = Callable[[Collector], bytes]


class Page:
    """``look`` gives a snapshot from the one before, or raises what being unable to reach the ledger raises.

    What only changes when a run ends is rendered once for each version of the histories and format.
    """

    def __init__(self, look: Callable[[Snapshot | None], Snapshot], most: int) -> None:
        self._look = look
        self._most = most
        self._before: Snapshot | None = None
        self._rendered: dict[str, tuple[str, bytes, int]] = {}
        self._lock = threading.Lock()

    def render(self, accept: str) -> tuple[str, bytes]:
        """(content type, text) for an Accept header; without a ledger only that there is none."""
        encode, kind = _encoder(accept)
        began = time.monotonic()
        snapshot: Snapshot | None = None
        with contextlib.suppress(redis.RedisError, EvalqError, OSError):
            snapshot = self._look(self._before)
        seconds = time.monotonic() - began
        parts, folded = [], 0
        if snapshot is not None:
            self._before = snapshot
            live = Live(snapshot, self._most)
            parts.append(encode(live))
            text, of_histories = self._histories(snapshot, encode, kind)
            parts.append(text)
            folded = live.folded + of_histories
        parts.append(encode(About(up=snapshot is not None, seconds=seconds, series_folded=folded)))
        return kind, b"".join(part.removesuffix(_END) for part in parts[:-1]) + parts[-1]

    def _histories(self, snapshot: Snapshot, encode: _Encoder, kind: str) -> tuple[bytes, int]:
        with self._lock:
            version, text, folded = self._rendered.get(kind, ("", b"", 0))
            if version != snapshot.version:
                shown = Histories(snapshot, self._most)
                text = encode(shown)
                folded = shown.folded
                if len(self._rendered) >= _FORMATS:  # a client may ask for any version of a format
                    self._rendered.clear()
                self._rendered[kind] = (snapshot.version, text, folded)
            return text, folded


def _encoder(accept: str) -> tuple[_Encoder, str]:
    """The plain format for a header that makes no sense."""
    try:
        return choose_encoder(accept)
    except (ValueError, TypeError):
        return choose_encoder("")
