"""Print the JSON Schema of the Celery task evalq.submit.

Other programs may begin runs with this task, if a worker has --submit. The schema describes its keyword arguments.
"""

from __future__ import annotations

import json

import click

from evalq.producer.invocation.invocation import Invocation, command


def _schema(invocation: Invocation) -> None:
    from evalq.producer.door.request import schema

    click.echo(json.dumps(schema(), indent=2, ensure_ascii=False))


COMMAND = command(_schema)
