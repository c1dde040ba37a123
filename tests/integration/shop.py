"""Somebody else's Celery application, as its tutorial writes one: stock kombu, default settings, the queue `celery`."""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery

app = Celery("shop", broker=os.environ.get("SHOP_BROKER"))


@app.task(name="shop.note")  # type: ignore[untyped-decorator]  # Celery is untyped
def note(number: int) -> None:
    """Write the number down, one line each time it is asked to."""
    with Path(os.environ["SHOP_LOG"]).open("a") as log:
        log.write(f"{number}\n")
