"""The `bench` command."""

from __future__ import annotations

import sys

import typer

from loopline.bench.commands import register_all
from loopline.bench.errors import EXIT_FAILED, EXIT_INTERRUPTED, BenchError
from loopline.runtime.terminal import guarded_output
from loopline.workers.garbage import end_quickly

app = typer.Typer(
    name="bench",
    help="Measure Loopline: accuracy, cost and latency of workflows, and the bus itself.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
register_all(app)


def main() -> None:
    """Run a command; an error that the user can mend is one message and an exit code."""
    end_quickly()
    with guarded_output():
        _main()


def _main() -> None:
    try:
        app()
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(EXIT_INTERRUPTED) from None
    except Exception as error:
        # What belongs to the deployment (none runs, its Redis is away) has its own words.
        from loopline.runtime.cli import explained

        code = explained(error)
        if code is None:
            code = _refused(error)
        if code is None:
            raise
        raise SystemExit(code) from None


def _refused(error: Exception) -> int | None:
    """Print what a trainer or an engine says it can't do, with the model that it was given above
    all; the exit code, `None` for a defect of ours."""
    from loopline.trainers.errors import TrainingError
    from loopline.workers.engines.protocol import EngineError

    of_engine = isinstance(error, EngineError) and error.kind != "internal"
    if not of_engine and not isinstance(error, TrainingError):
        return None
    print(f"error: {error}", file=sys.stderr)
    return EXIT_FAILED


if __name__ == "__main__":
    main()
