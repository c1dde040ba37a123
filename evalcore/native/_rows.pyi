from collections.abc import Callable
from typing import Any

SOURCE: str

def plan_rows(
    data: bytes,
    first_line: int,
    width: int,
    columns: tuple[int, ...],
    source: bytes,
    limits: tuple[float, ...],
    lines: list[bytes],
    queries: dict[str, bytes],
    checks: Callable[[str, int], tuple[tuple[int, bytes, bool], ...] | None],
    error: Callable[[str, str | None, bool], bool],
    kind: Callable[[int, Any, int], tuple[bytes, bytes, bytes, list[float]]],
    other: Callable[[int, Any], None],
    llm: Callable[[int, str, str, str], bytes],
    again: Callable[[str, bytes], None],
    encode: Callable[[float], bytes],
    /,
) -> list[tuple[tuple[int, int], ...]] | None: ...
def record_ends(data: bytes | bytearray | memoryview, narrow: bool = False, /) -> tuple[bytes, bytes, int, bool]: ...
def count_newlines(data: bytes | bytearray | memoryview, narrow: bool = False, /) -> int: ...
def line_sums(data: bytes, /) -> tuple[int, int, int, int]: ...
def check_utf8(data: bytes, /) -> tuple[int, int]: ...
