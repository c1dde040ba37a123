from typing import Any

SOURCE: str

def read_log(
    data: bytes, resource_key: bytes, /
) -> (
    tuple[bytes, bytes, bytes, bytes, bytes, list[str], list[str], int, int, list[tuple[int, int, int, int]]] | None
): ...
def count_log(
    turns: bytes,
    agents: bytes,
    decisions: bytes,
    values: bytes,
    whole: bytes,
    kinds: bytes,
    many: int,
    /,
) -> tuple[int, int, dict[str, str], list[tuple[Any, ...]], int, list[int]] | None: ...
