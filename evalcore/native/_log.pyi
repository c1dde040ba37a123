from array import array
from typing import Any

SOURCE: str

_Buffer = bytes | bytearray | array[Any]

def read_log(
    data: bytes, resource_key: bytes, /
) -> tuple[bytes, bytes, bytes, bytes, bytes, list[str], list[str], int, int, bytes]: ...
def count_log(
    turns: _Buffer,
    agents: _Buffer,
    decisions: _Buffer,
    values: _Buffer,
    whole: _Buffer,
    kinds: bytes,
    many: int,
    /,
) -> tuple[int, bool, int, dict[str, str], list[tuple[Any, ...]], int, list[int]] | None: ...
