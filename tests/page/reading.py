"""Reading a page as its script does, and as somebody would who wants to know what it could do."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r'<script type="text/plain" class="(rows|evidence)">([^<]*)</script>')


@dataclass
class Read(HTMLParser):
    """What stands in a page: its elements, its text, and what each script and style holds."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    inside: dict[str, list[str]] = field(default_factory=lambda: {"script": [], "style": []})
    within: str = ""

    def __post_init__(self) -> None:
        """Characters that are written as entities come as themselves."""
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.append((tag, dict(attrs)))
        self.within = tag if tag in self.inside else ""

    def handle_endtag(self, tag: str) -> None:
        """What comes next is text again."""
        self.within = ""

    def handle_data(self, data: str) -> None:
        """Note what is shown, apart from what is run."""
        (self.inside[self.within] if self.within else self.text).append(data)

    @property
    def policy(self) -> str:
        """Its Content-Security-Policy."""
        return next(a["content"] or "" for tag, a in self.tags if a.get("http-equiv") == "Content-Security-Policy")

    def allows(self, kind: str, source: str) -> bool:
        """Whether the policy lets an inline script or style of this text take effect."""
        named = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        return f"'sha256-{named}'" in re.findall(rf"{kind}-src ([^;]*)", self.policy)[0]


def read_page(path: Path) -> Read:
    """The page at ``path``."""
    read = Read()
    read.feed(path.read_text(encoding="utf-8"))
    read.close()
    return read


def rows_of(path: Path) -> list[list[Any]]:
    """The rows of its table: record, id, status, number of the evidence, reason, and the evaluator's own cells."""
    return [list(row) for block in _blocks(path, "rows") for row in zip(*block, strict=True)]


def evidence_of(path: Path) -> list[list[list[Any]]]:
    """Expected and actual values of each record that failed."""
    return [each for block in _blocks(path, "evidence") for each in block]


def _blocks(path: Path, wanted: str) -> list[Any]:
    found = _BLOCK.findall(path.read_text(encoding="utf-8"))
    return [json.loads(gzip.decompress(base64.b64decode(data))) for kind, data in found if kind == wanted]
