"""`runtime jobs add|ls|cancel|log`: offline jobs on the queue."""

from __future__ import annotations

from typing import Annotated

import typer

from loopline.runtime.commands.options import AsJson, RedisUrl


def register(app: typer.Typer) -> None:
    jobs = typer.Typer(
        invoke_without_command=True,
        help="Run bench and train commands in the background.",
    )
    app.add_typer(jobs, name="jobs")
    jobs.callback()(default)
    jobs.command(
        "add",
        # Everything after the program's name is for the program.
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )(add)
    jobs.command("ls")(ls)
    jobs.command("cancel")(cancel)
    jobs.command("log")(log)


def default(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        _ls(None, as_json=False)


def add(
    program: Annotated[
        str, typer.Argument(metavar="bench|train", help="Program that the job runs.")
    ],
    arguments: Annotated[
        list[str], typer.Argument(metavar="ARGUMENT...", help="Arguments of the job's program.")
    ],
) -> None:
    """Queue a `bench` or `train` command line. For example: `runtime jobs add train grpo
    loop runs/loop --game sudoku` or `runtime jobs add bench wordproblems --output
    results/monday`.

    The job runs in this folder, in the environment of the jobs worker (so give data with --data),
    and outlives the terminal. If that worker dies, the next one restarts the job: a training
    resumes where it stopped, and so does a benchmark with --output.
    """
    import asyncio
    from pathlib import Path

    from loopline.runtime.client.deployment import find
    from loopline.runtime.config.state import StateDirectory
    from loopline.runtime.errors import InputError
    from loopline.runtime.jobs.programs import MODULES
    from loopline.runtime.jobs.queue import enqueue
    from loopline.runtime.jobs.requests import JobRequest, require_allowed

    if program not in MODULES:
        raise InputError(
            f"{program!r} is not a program that jobs run; those are {', '.join(MODULES)}"
        )
    output = _value_of("--output", arguments)
    request = JobRequest.model_validate(
        {
            "program": program,
            "argv": arguments,
            "cwd": str(Path.cwd()),
            "output": output and str(Path(output).absolute()),
        }
    )
    require_allowed(request, StateDirectory.from_environment())
    # The job would continue that benchmark and ignore this command line.
    if program == "bench" and output and Path(output, "manifest.json").exists():
        raise InputError(
            f"{output} already holds a benchmark",
            hint=f"`runtime jobs add bench resume {output}` continues it; or give another"
            " --output.",
        )
    typer.echo(f"job {asyncio.run(enqueue(find().settings, request))}")
    typer.echo("follow it with: runtime jobs")


def ls(redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """List jobs with their states and the places of their results.

    Exit code 1 if a job can't be read; its id is printed.
    """
    _ls(redis_url, as_json=as_json)


def cancel(
    job_id: Annotated[
        str, typer.Argument(metavar="ID", help="Job to act on, as `runtime jobs` prints it.")
    ],
    redis_url: RedisUrl = None,
) -> None:
    """Stop a job, or keep a queued job from starting. Its output stays."""
    import asyncio

    from loopline.runtime.client.deployment import find
    from loopline.runtime.jobs import queue as jobs

    asyncio.run(jobs.cancel(find(redis_url=redis_url).settings, job_id))
    typer.echo(f"{job_id}: cancelling (`runtime jobs` says when it has ended)")


def log(
    job_id: Annotated[
        str, typer.Argument(metavar="ID", help="Job to act on, as `runtime jobs` prints it.")
    ],
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Last lines to print.")] = 50,
) -> None:
    """Print the end of a job's output."""
    from loopline.runtime.config.state import StateDirectory
    from loopline.runtime.errors import InputError
    from loopline.runtime.observe.log_files import tail
    from loopline.runtime.terminal.safe_text import sanitize

    file = StateDirectory.from_environment().jobs / job_id / "output.log"
    if "/" in job_id or not file.is_file():
        raise InputError(f"no output of job {job_id!r} here", hint="`runtime jobs` lists them.")
    for line in tail(file, lines):
        typer.echo(sanitize(line))


def _value_of(option: str, arguments: list[str]) -> str:
    """Return the value of an option in a command line; empty without the option."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def _ls(redis_url: str | None, *, as_json: bool) -> None:
    import asyncio
    import json

    from loopline.runtime.client.deployment import find
    from loopline.runtime.jobs.queue import list_jobs
    from loopline.runtime.terminal.safe_text import sanitize
    from loopline.runtime.terminal.tables import align_columns, truncate_to_terminal
    from loopline.runtime.terminal.unreadable import report_unreadable

    job_list, unreadable = asyncio.run(list_jobs(find(redis_url=redis_url).settings))
    if as_json:
        typer.echo(json.dumps([job.model_dump() for job in job_list]))
        report_unreadable(unreadable)
        return
    rows = [
        (job.id, job.state, "" if job.seconds is None else f"{job.seconds:.0f} s", job.command)
        for job in job_list
    ]
    heading, *lines = align_columns(("job", "state", "time", "command"), rows, numbers=("time",))
    typer.echo(heading if job_list else "no jobs")
    for job, line in zip(job_list, lines, strict=True):
        typer.echo(truncate_to_terminal(line))
        if job.output:
            typer.echo(f"    results: {job.output}")
        if job.reason:
            typer.echo(f"    {sanitize(job.reason)}")
    report_unreadable(unreadable)
