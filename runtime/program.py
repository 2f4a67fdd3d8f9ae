"""Runner for the project's programs: output that is safe for a terminal, and errors as messages.

An error that the user can fix becomes one message and an exit code; any other error is a defect and
keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, cast

import typer
from typer.core import TyperCommand, TyperGroup

from loopline.runtime.errors import (
    EXIT_CONFIG,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OVERLOADED,
    EXIT_UNREACHABLE,
    FixableError,
)
from loopline.runtime.terminal.safe_text import Guarded, guard_output, sanitize
from loopline.workers.gc_tuning import skip_final_collection
from loopline.workers.installation import missing_package_hint

if TYPE_CHECKING:
    from pydantic import BaseModel

EXIT_BROKEN_PIPE = 141
_OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})
"""Errors that the user can fix even if they name no file. Any other error keeps its traceback."""
SUMMARY = 64
"""Maximum characters of a command's summary that fit next to its name in 80 columns."""


class _GroupedHelp(TyperGroup):
    """Help that lists commands under the names of their groups, with whole summaries."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                group = getattr(command, "rich_help_panel", None) or "Commands"
                rows.setdefault(group, []).append((name, command.get_short_help_str(SUMMARY)))
        for group, listed in rows.items():
            with formatter.section(group):
                formatter.write_dl(listed)


class _Panelled(TyperCommand):
    """Help that lists options under the names of their panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                argument = parameter.param_type_name == "argument"
                panel = getattr(parameter, "rich_help_panel", None)
                rows.setdefault("Arguments" if argument else panel or "Options", []).append(record)
        for panel in sorted(rows, key=lambda name: (name != "Arguments", name == "Options")):
            with formatter.section(panel):
                formatter.write_dl(rows[panel])


def add_command(
    app: typer.Typer,
    run: Callable[[Any], None],
    model: str | Callable[[], type[BaseModel]],
    *,
    name: str | None = None,
    about: str | None = None,
    details: Callable[[], str] | None = None,
    preview: Callable[[Any], Iterable[str]] | None = None,
    complete: Callable[[Any], Any] | None = None,
) -> None:
    """Add a command whose options are the fields of a model: see `loopline.runtime.config.options`.

    `run` is called with an instance of the model. `model` is `package.module:Class` or a function
    that returns the class: the class is imported when the command runs or its own help is shown, so
    that a list of commands doesn't wait for pydantic. `about` is the help text (default: the
    docstring of `run`); `details` returns further text for the command's own help. With a
    `preview`, whose lines describe what would run, the command has `--dry-run`; it prints what
    `complete` makes of the options."""

    @cache
    def built() -> TyperCommand:
        from loopline.runtime.config.options import call, signature_of

        if isinstance(model, str):
            module, _, kind = model.partition(":")
            options: type[BaseModel] = getattr(import_module(f"loopline.{module}"), kind)
        else:
            options = model()

        def command(**arguments: Any) -> None:
            call(run, options, preview, arguments, complete)

        command.__signature__ = signature_of(options, dry_run=preview is not None)  # type: ignore[attr-defined]
        inner = typer.Typer(
            add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
        )
        inner.command(name)(command)
        return cast(TyperCommand, typer.main.get_command(inner))

    class Deferred(_Panelled):
        """Command that is listed by name and help; the rest is loaded on demand."""

        @property
        def params(self) -> Any:
            return built().params

        @params.setter
        def params(self, value: Any) -> None: ...  # pyright: ignore[reportIncompatibleVariableOverride]

        @property
        def callback(self) -> Any:
            return built().callback

        @callback.setter
        def callback(self, value: Any) -> None: ...  # pyright: ignore[reportIncompatibleVariableOverride]

        def format_help_text(self, ctx: Any, formatter: Any) -> None:
            super().format_help_text(ctx, formatter)
            if details is not None:
                formatter.write_paragraph()
                with formatter.indentation():
                    formatter.write_text(details())

    def listed() -> None: ...

    listed.__name__, listed.__doc__ = run.__name__, about or run.__doc__
    app.command(name, cls=Deferred)(listed)


def program(name: str, about: str) -> typer.Typer:
    """Create a command line that has no commands yet."""
    app = typer.Typer(
        name=name,
        cls=_GroupedHelp,
        help=about,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            from loopline.build import describe

            typer.echo(describe())
            raise typer.Exit

    @app.callback()
    def options(  # pyright: ignore[reportUnusedFunction]
        version: bool = typer.Option(
            False, "--version", is_eager=True, callback=show_version,
            help="Show the version and the build, and exit.",
        ),
    ) -> None: ...  # fmt: skip

    options.__doc__ = about
    return app


def run(app: typer.Typer) -> None:
    """Run the command that this process was started with, and exit."""
    skip_final_collection()
    with guard_output():
        try:
            app()
        except BrokenPipeError:
            _end_unread()
        except SystemExit as end:
            # On a closed pipe, typer exits with 1, the code of a failure, and replaces the stream.
            if end.code == 1 and not isinstance(sys.stdout, Guarded):
                _end_unread()
            raise
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise SystemExit(EXIT_INTERRUPTED) from None
        except Exception as error:
            message, code = explain_error(error)
            if code is None:
                raise
            print(f"error: {message}", file=sys.stderr)
            raise SystemExit(code) from None


def _end_unread() -> NoReturn:
    """Exit after `loopline logs | head`: the reader has closed the pipe."""
    # Otherwise Python would complain again when it flushes stdout at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(EXIT_BROKEN_PIPE) from None


def explain_error(error: Exception) -> tuple[str, int | None]:
    """Return the message for the user and the exit code; `None` for a defect.

    A module that was never imported can't have raised the error, so help and completion do not wait
    for its import.
    """
    message = sanitize(str(error))
    if isinstance(error, FixableError):
        return message, error.exit_code
    for module, name, code in (
        ("loopline.bus.errors", "BusUnavailable", EXIT_UNREACHABLE),
        ("loopline.bus.errors", "DeploymentMismatch", EXIT_CONFIG),
        ("loopline.bus.errors", "DeploymentChanged", EXIT_FAILED),
        ("loopline.bus.errors", "Overloaded", EXIT_OVERLOADED),
        ("loopline.bus.errors", "BudgetExceeded", EXIT_FAILED),
    ):
        if _is_error_of(error, module, name):
            return message, code
    if _is_error_of(error, "loopline.workers.engines.protocol", "EngineError"):
        defect = getattr(error, "kind", "internal") == "internal"
        return message, None if defect else EXIT_FAILED
    if _is_error_of(error, "redis.exceptions", "RedisError"):
        from loopline.bus.connection import is_outage
        from loopline.bus.remedies import remedy

        if is_outage(error):  # not a script or an argument of ours
            message = f"Redis refused this, or went away meanwhile ({error}): {remedy(error)}"
            return sanitize(message), EXIT_UNREACHABLE
    if isinstance(error, ModuleNotFoundError) and (advice := missing_package_hint(error)):
        return advice, EXIT_FAILED
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_folder_gone():
        return "the current folder no longer exists: go to another folder", EXIT_FAILED
    if isinstance(error, OSError) and (error.filename is not None or error.errno in _OF_THE_DISK):
        return message, EXIT_FAILED
    return message, None


def _is_folder_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _is_error_of(error: Exception, module: str, name: str) -> bool:
    loaded: Any = sys.modules.get(module)
    return loaded is not None and isinstance(error, getattr(loaded, name))
