from collections.abc import Callable
from typing import Any

SOURCE: str

def plan_rows(
    data: bytes,
    first_line: int,
    width: int,
    columns: tuple[int, ...],
    checks: Callable[[str], tuple[tuple[int, bytes, bool], ...] | None],
    /,
) -> tuple[list[tuple[int, int, Any, float | None, Any]], list[tuple[Any, ...]]] | None: ...
def record_ends(data: bytes | bytearray | memoryview, /) -> tuple[bytes, bytes, int, bool]: ...
