"""The committed dashboards, by uid."""

from __future__ import annotations

import json
from typing import Any

from tests.grafana.known import TOP

PAGES: dict[str, dict[str, Any]] = {
    page["uid"]: page
    for page in (json.loads(file.read_text(encoding="utf-8")) for file in sorted(TOP.glob("grafana/dashboards/*.json")))
}
