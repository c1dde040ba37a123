"""Files that an earlier attempt left, of a command that ends before it knows what it reads: they say so, too."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from evalq.evalcore.errors import EvalqError, UsageError
from evalq.evalcore.files import open_input
from evalq.producer.comparing.outputs.write import errors_written

__all__ = ["Deciding", "withdrawn"]

_OURS = re.compile(
    rb'\{"(decided|comparisons|schemaVersion)":|# [A-Z-]+: |# [^\n]* against |<!-- evalq-comment: |<svg '
    rb'|<\?xml [^>]*>\s*<testsuites name="evalq |::(error|warning|notice) title=evalq |\Z'
)
"""How a file of a decision or a comparison begins; one of annotations may be empty."""
_HEAD = 1000


class Deciding(click.Command):
    """A command with -o for its decision, which keeps none of an earlier attempt where its arguments are wrong."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            what = "gate" if self.name == "run" else self.name or ""
            named = () if "--dry-run" in given else _outputs(given)  # which decides nothing
            with contextlib.suppress(EvalqError), withdrawn(what, named):
                raise UsageError(error.format_message()) from error
            raise


@contextlib.contextmanager
def withdrawn(what: str, paths: Iterable[Path]) -> Iterator[None]:
    """What ends ``what`` meanwhile stands as an error in those of ``paths`` that hold an earlier decision.

    Only in them: nobody knows yet which files are read, and what was recorded must not be lost by a slip.
    """
    try:
        yield
    except BaseException:  # a plug-in's sys.exit() is no Exception either
        with errors_written(what, [path for path in paths if _is_ours(path)]):
            raise


def _is_ours(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError, EvalqError), open_input(path) as stream:
        return _OURS.match(stream.read(_HEAD)) is not None
    return False


def _outputs(args: Sequence[str]) -> Iterator[Path]:
    """What -o names in a command line that click does not understand."""
    rest = iter(args)
    for each in rest:
        if each in ("-o", "--output"):
            yield Path(next(rest, ""))
        elif each.startswith(("--output=", "-o")):
            yield Path(each.removeprefix("--output=").removeprefix("-o"))
