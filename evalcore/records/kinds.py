"""What a file that is no text of ours seems to be, by how it begins: so that a message can say what to do with it."""

from __future__ import annotations

import re

from evalq.evalcore.model.manifest import BOM

__all__ = ["HEAD_BYTES", "encoding_of", "kind_of"]

HEAD_BYTES = 4096

# Looked through in this order: UTF-32's mark begins with that of UTF-16.
_ENCODINGS = {
    b"\xff\xfe\0\0": "UTF-32: save the file as UTF-8",
    b"\0\0\xfe\xff": "UTF-32: save the file as UTF-8",
    b"\xff\xfe": "UTF-16: save the file as UTF-8",
    b"\xfe\xff": "UTF-16: save the file as UTF-8",
    b"\x1f\x8b": "packed by gzip: name the file .gz",
    b"\x28\xb5\x2f\xfd": "packed by zstd: name the file .zst",
}
_BEGINNINGS = {
    b"PK\x03\x04": "an Excel workbook (.xlsx) or another zip archive: export it as CSV in UTF-8",
    b"\xd0\xcf\x11\xe0": "an Excel workbook (.xls): export it as CSV in UTF-8",
    b"PAR1": "a Parquet file: write it as CSV in UTF-8",
    b"%PDF": "a PDF",
}
_EXCEL_ALONE = re.compile(rb'(?:\xef\xbb\xbf)?"?sep=[\x21-\x7e\t]?"?,*\s*', re.IGNORECASE)
_DELIMITERS = {b";": "semicolons", b"\t": "tabs", b"|": "vertical bars"}


def encoding_of(head: bytes) -> str | None:
    """How the file whose first bytes these are is encoded, in words, where no line of it can be read as UTF-8."""
    for beginning, words in _ENCODINGS.items():
        if head.startswith(beginning):
            return words
    # ASCII text in UTF-16 is half zero bytes; a quarter leaves room for other scripts.
    wide = head.count(b"\0") > len(head) // 4
    return "UTF-16 without a mark: save the file as UTF-8" if wide else None


def kind_of(head: bytes) -> str | None:
    """What the file whose first bytes these are seems to be, in words; None where it may well be CSV in UTF-8."""
    for beginning, words in _BEGINNINGS.items():
        if head.startswith(beginning):
            return words
    if encoding := encoding_of(head):
        return encoding
    if b"\0" in head:
        return "binary data: no text at all"
    if b"\r" in head and b"\n" not in head:
        return "lines that end in a lone carriage return: save the file with line feeds (\\n or \\r\\n)"
    first = head.partition(b"\n")[0]
    if _EXCEL_ALONE.fullmatch(first):
        return f"{first.strip().removeprefix(BOM).decode()!r}, a line that Excel alone reads: delete it"
    if b"," not in first:
        sign, count = max(((sign, first.count(sign)) for sign in _DELIMITERS), key=lambda found: found[1])
        if count:
            return f"fields separated by {_DELIMITERS[sign]}: is the delimiter a comma? Save the file with commas"
    if _share_of_noise(head) > 0.1:
        return "binary data, or text in another encoding: save the file as UTF-8"
    return None


def _share_of_noise(head: bytes) -> float:
    """The share of characters that no UTF-8 text has."""
    text = head.decode(errors="replace")
    noise = sum(sign == "\ufffd" or (sign < " " and sign not in "\t\r\n") for sign in text)
    return noise / max(1, len(text))
