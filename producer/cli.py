"""The command line. Commands are imported when they are called, so that help comes at once."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from evalq.evalcore.errors import EvalqError, InfrastructureError, StorageError, UsageError, resource_shortage
from evalq.evalcore.naming import is_text
from evalq.evalcore.views.markdown import printed, printed_block
from evalq.producer import commands
from evalq.producer.driving.interrupts import keep_interrupts
from evalq.producer.monitor.command import command_running, ignore_write_errors
from evalq.workers.names import PREFIX
from evalq.workers.processes.environment import receive_secrets, set_aside_celery


class _OutputClosed(Exception):
    """The reader of standard output has closed it."""


@contextlib.contextmanager
def _detect_closed_output() -> Iterator[None]:
    """Raise _OutputClosed before click sees the closed pipe: it would end with 1, a policy's answer."""
    try:
        yield
    except BrokenPipeError as error:
        raise _OutputClosed from error


class _Lazy(click.Group):
    """Commands by name only; those of evaluators come from the registry."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """As click does, which may print help or the version."""
        with _detect_closed_output():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _detect_closed_output():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        from evalq.evalcore.contract import plugins as registry

        return [*registry.names(), registry.SCORE.name, *commands.names()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from evalq.evalcore.contract import plugins as registry

        if cmd_name in commands.names():
            command: click.Command = import_module(f"evalq.producer.commands.{commands.module(cmd_name)}").COMMAND
            return command
        if cmd_name in (*registry.names(), registry.SCORE.name):
            from evalq.producer.commands._evaluation import start_command

            return start_command(cmd_name)
        return self._extra(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; the error for an unknown command suggests commands with similar names."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # click suggests options, but not commands.
            if near := get_close_matches(args[0], self.list_commands(ctx)):
                error.message = f"{error.message.rstrip('.')}; is it {' or '.join(near)}?"
            raise

    def _extra(self, name: str) -> click.Command | None:
        from evalq.evalcore.contract import plugins as registry

        owners = [owner for owner in registry.names() if name.startswith(f"{owner}-")]
        for command in [command for owner in owners for command in registry.get(owner).command.commands]:
            if command.name == name:
                from evalq.producer.commands._evaluation import extra_command

                return extra_command(command)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from evalq.evalcore.contract import plugins as registry

        evaluations = [(name, _first_line(point.module)) for name, point in registry.entries().items()]
        evaluations.append((registry.SCORE.name, _first_line(registry.SCORE.module)))
        for title, group in commands.GROUPS.items():
            rows = [(name, commands.summary(name)) for name in group]
            with formatter.section(title):
                formatter.write_dl([*evaluations, *rows])
            evaluations = []


def _first_line(module: str) -> str:
    """The first line of a module's docstring, without importing it."""
    try:
        spec = find_spec(module)
        if spec is None or spec.origin is None:
            return "(cannot be imported)"
        source = getattr(spec.loader, "get_source", lambda _: None)(module)
        tree = ast.parse(source or "")  # a compiled module has no source
    # find_spec imports the packages above the module, which may raise anything.
    except Exception:
        return "(cannot be imported)"
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def _version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from evalq.evalcore.version import __version__, code_version

        click.echo(f"evalq {__version__} (code {code_version()})")
        ctx.exit()


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version,
              help="Show the version, and the code version that runs, queues and workers carry.")  # fmt: skip
def cli() -> None:
    """Evaluate agents, on a laptop or on a fleet, with byte-identical reports."""


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns its exit code (see evalq.evalcore.errors)."""
    signal.signal(signal.SIGTERM, _interrupt)
    receive_secrets()
    set_aside_celery()
    _have_streams()
    try:
        with ignore_write_errors(), keep_interrupts():
            return _run(argv)
    finally:
        _flush_errors()


def _run(argv: list[str] | None) -> int:
    try:
        _refuse_bytes(arguments := sys.argv[1:] if argv is None else argv)
        _refuse_misspelt(arguments)
        with command_running():
            # In standalone mode click would end with 1 at Ctrl-C, which is a policy's answer.
            result = cli.main(args=argv, prog_name="evalq", standalone_mode=False)
    except EvalqError as error:
        _print_error(str(error))
        return error.exit_code
    except click.ClickException as error:
        _name_variable(error)
        with contextlib.suppress(OSError):
            error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        # The exit code in shells of a program that Ctrl-C ended.
        return 130
    except _OutputClosed:
        # Otherwise the interpreter tries to write the rest when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return StorageError.exit_code
    except BaseException as error:  # a plug-in's sys.exit(), too: its 0 or 1 would pass for a gate's decision
        return _failed(error)
    return result if isinstance(result, int) else 0


def _print_error(error: str) -> None:
    """Print on standard error. If that is closed, keep evalq's exit code: Python's would be 1, which means NO-GO."""
    with contextlib.suppress(OSError):
        click.echo(printed(f"evalq: {error}"), err=True)


def _flush_errors() -> None:
    """Flush standard error, or drop the rest: the interpreter would exit with 120 if it cannot write it."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _name_variable(error: click.ClickException) -> None:
    """Name the environment variable that a wrong value comes from."""
    if not isinstance(error, click.BadParameter) or error.ctx is None or error.param is None:
        return
    # Otherwise users look for an option that is not on their command line.
    source = error.ctx.get_parameter_source(error.param.name or "")
    if source is click.core.ParameterSource.ENVIRONMENT:
        error.param_hint = f"{error.param.opts[0]}, by the variable {error.param.envvar}"


def _have_streams() -> None:
    """Open standard streams that are closed: a file could get the number of one, and its output."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _refuse_misspelt(arguments: Sequence[str]) -> None:
    """Raise ConfigError for a misspelt EVALQ_* variable, which would be ignored.

    Commands that decide check this with their settings, as `_refuse_bytes` says.
    """
    if any(name.upper().startswith(PREFIX) for name in os.environ):
        from evalq.producer.invocation.invocation import DECIDING

        if arguments and arguments[0] not in DECIDING:
            from evalq.workers.settings import check_variables

            check_variables()


def _refuse_bytes(arguments: Sequence[str]) -> None:
    """Raise UsageError for an argument that is not UTF-8: neither JSON nor a terminal could show it.

    Commands that decide check this themselves, to write the error into the files of an earlier decision.
    """
    odd = next((argument for argument in arguments if not is_text(argument)), None)
    if odd is not None:
        from evalq.producer.invocation.invocation import DECIDING

        if arguments[0] not in DECIDING:
            raise UsageError(f"{odd!a} is not text in UTF-8: rename the file, or set a locale that is UTF-8")


def _failed(error: BaseException) -> int:
    """Print an error that no command has caught; returns 3, since 1 means NO-GO."""
    from evalq.workers.servers.errors import SERVER_ERRORS, explained

    # Files raise ConnectionError and TimeoutError, too, with a filename; sockets have none.
    server = isinstance(error, SERVER_ERRORS) and getattr(error, "filename", None) is None
    if server:
        text = explained(error, "a server that this command needs")
        _print_error(str(text))
    elif isinstance(error, OSError):
        _print_error(f"{error.filename or 'a file, or standard output'}: {error.strerror or error}")
    elif shortage := resource_shortage(error):
        _print_error(shortage)
    else:
        click.echo(printed_block("".join(traceback.format_exception(error))), err=True)
        if isinstance(error, SystemExit):
            _print_error(f"a plug-in (above) ended the command by sys.exit({error.code!r}); nothing was finished")
        else:
            _print_error("an error in evalq or in a plug-in (above); please report it")
    return InfrastructureError.exit_code


def _interrupt(signum: int, frame: Any) -> None:
    """Treat SIGTERM (a cancelled CI job) like Ctrl-C: the run keeps its results, and can be resumed."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
