"""Help of at most 15 options: those that most users need come first, and `--help-all` shows all."""

from __future__ import annotations

from typing import Any

import click

_MOST = 15
_FIRST = ("target", "repeat", "targets", "out", "outputs", "broker", "workers")
"""Shared options that nearly every user meets, by the names of click's parameters."""
_LATER = (
    *("suite", "limit", "dry_run", "detach", "params", "once", "fmt", "inline", "max_cost", "quiet", "as_json"),
    *("allow_dead", "calls", "max_calls", "settings", "verbose", "ledger", "reuse", "stop", "cache", "tags", "scorer"),
    *("chunk_size", "priority", "base_target", "json_lines", "no_progress", "follow", "every", "passes", "verify"),
)
"""Other shared options, in the order in which a short help takes them. A command's own options come before these."""


class HelpfulCommand(click.Command):
    """A command whose `--help` shows at most 15 options, and whose `--help-all` shows all of them."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """As click does; a command with many options has `--help-all`, too."""
        params = super().get_params(ctx)
        options = _visible(params)
        if len(options) > _MOST:
            text = f"Show all {len(options) + 1} options and exit."
            flag = click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False,
                                callback=_show_all, help=text)  # fmt: skip
            params = [*params[:-1], flag, params[-1]]
        return params

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that most users need, or all after `--help-all`."""
        params = self.get_params(ctx)
        shown = _visible(params) if _ALL in ctx.meta else _most_needed(_visible(params))
        records = [record for param in shown if (record := param.get_help_record(ctx)) is not None]
        if records:
            with formatter.section("Options"):
                formatter.write_dl(records)


_ALL = "evalq.help_all"


def _show_all(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _visible(params: list[click.Parameter]) -> list[click.Option]:
    return [param for param in params if isinstance(param, click.Option) and not param.hidden]


def _most_needed(options: list[click.Option]) -> list[click.Option]:
    """At most 15 of ``options``, in their own order; the last two are those that show help."""
    if len(options) <= _MOST:
        return options
    *own, help_all, help_ = options
    ranked = sorted(own, key=_rank)[: _MOST - 2]
    return [option for option in own if option in ranked] + [help_all, help_]


def _rank(option: click.Option) -> tuple[int, int]:
    name: Any = option.name
    if name in _FIRST:
        return 0, _FIRST.index(name)
    return (2, _LATER.index(name)) if name in _LATER else (1, 0)
