"""The application of `tests.integration.shop` with evalq in it: stock kombu, and one queue more for its workers."""

from __future__ import annotations

import evalq.celery
from tests.integration.shop import app

app.conf.task_acks_late = True
app.conf.accept_content = ["json"]
evalq.celery.install(app)
