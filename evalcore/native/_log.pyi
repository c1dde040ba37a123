SOURCE: str

def read_log(
    data: bytes, resource_key: bytes, /
) -> (
    tuple[bytes, bytes, bytes, bytes, bytes, list[str], list[str], int, int, list[tuple[int, int, int, int]]] | None
): ...
