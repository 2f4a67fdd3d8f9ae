"""`runtime ask "…"`: ask a question and watch the dialogue."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from loopline.runtime.commands.options import (
    AsJson,
    BudgetTokens,
    BudgetUsd,
    RedisUrl,
    budget_of,
)

if TYPE_CHECKING:
    from loopline.agents.records import Budget, GenerationOptions, JsonObject, Run, Trajectory
    from loopline.runtime.client.client import Client
    from loopline.runtime.client.deployment import Deployment
    from loopline.runtime.client.question import Query


CANCEL_SECONDS = 5.0
"""Seconds that a cancelled question waits for the bus to cancel its run."""


class _Task(TypedDict, total=False):
    environment: str
    instance: JsonObject


def register(app: typer.Typer) -> None:
    app.command("ask")(ask)


def ask(
    question: Annotated[
        str | None,
        typer.Argument(help="The question; - or a pipe without one reads it from stdin."),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="A system message, after the role's own prompt."),
    ] = None,
    messages: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The conversation so far in OpenAI's format: a JSON list of messages with"
            " role and content. A question is its next message.",
        ),
    ] = None,
    world: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="NUMBER",
            help="Send an instruction of the API simulator instead, with its tools, and report "
            "whether it was carried out. For umi and umi_single.",
        ),
    ] = None,
    workflow: Annotated[
        str | None,
        typer.Option(
            "--workflow",
            "-w",
            help="delegate, solo, umi, umi_single, or one of yours (default: the profile's).",
        ),
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", "-s", help="Show the text while it is generated.")
    ] = False,
    calculator: Annotated[
        bool | None,
        typer.Option(
            "--calculator/--no-calculator",
            help="Offer the calculator (default: the profile's setting).",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=POOL",
            help="Policy that plays a role, as in solo=slm; may be repeated.",
        ),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Offer this tool; may be repeated. For umi and umi_single."
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Option of the workflow, as in tool_style=signatures; may be repeated.",
        ),
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="A Markdown file in place of this prompt, as in solo=terse.md; may be repeated.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=86_400, help="Deadline of the run.")
    ] = 600.0,
    budget_usd: BudgetUsd = None,
    budget_tokens: BudgetTokens = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Start later, as in 90s, 30m, 2h or 3d; print the run's id now.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the sampling.")] = 0,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0, max=5, help="Sampling temperature of every agent (default: its pool's)."
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Sample only the likeliest tokens up to this total probability, above 0 (default:"
            " the pool's).",
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, max=131_072, help="Maximum tokens of a completion of the answering agent."
        ),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Text before which the answer ends; may be repeated."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the answer.")] = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Ask the running deployment. Exit code 0 if it answered, 1 if not.

    Causes of a delay are printed on stderr meanwhile.
    """
    import asyncio

    from loopline.runtime.client.deployment import find
    from loopline.runtime.client.question import resolve_question
    from loopline.runtime.client.waiting import parse_delay
    from loopline.runtime.config.key_value_options import key_value_options, policy_options
    from loopline.runtime.config.prompt_files import parse_prompt_files
    from loopline.runtime.errors import EXIT_FAILED, InputError
    from loopline.runtime.terminal.dialogue import succeeded

    query = resolve_question(question, world, system=system, messages=messages)
    simulated = query.simulated
    delay = 0.0 if after is None else parse_delay(after, "--after")
    where = find(redis_url=redis_url)
    settings = where.settings
    if settings.app is not None:
        from loopline.runtime.app.loading import load_app

        load_app(settings.app)
    workflow_name = workflow or settings.workflow
    if tool or simulated:
        require_tools_offered(workflow_name, "--tool" if tool else "--world")
    if tool and simulated:
        raise InputError("--world brings its own tools: leave out --tool")
    if simulated and not (quiet or as_json):
        typer.echo(f"{query.text}\n")
    options: JsonObject = {
        **({} if calculator is None else {"calculator": calculator}),
        **key_value_options("--option", option or [], "max_calls=4"),
    }
    trajectory = asyncio.run(
        _ask_deployment(
            where,
            query,
            workflow=workflow_name,
            options=options,
            generation=_generation(temperature, top_p, max_tokens, stop),
            policies=policy_options(policy or [], settings.models),
            stream=stream,
            budget=budget_of(seconds, budget_tokens, budget_usd),
            seed=seed,
            tools=tool or [],
            prompt_files=parse_prompt_files(prompt or []),
            show=not (quiet or as_json),
            delay=delay,
        )
    )
    if isinstance(trajectory, str):
        typer.echo(json.dumps({"run": trajectory}) if as_json else trajectory)
        return
    if as_json:
        typer.echo(trajectory.model_dump_json())
    elif quiet:
        from loopline.runtime.terminal.dialogue import ending_reason
        from loopline.runtime.terminal.safe_text import sanitize

        typer.echo(sanitize(trajectory.answer or ""))
        if trajectory.answer is None:
            print(sanitize(ending_reason(trajectory)), file=sys.stderr)
    if simulated and not as_json:
        reason = simulated.verify(trajectory)
        typer.echo(f"not done: {reason}" if reason else "the simulator reports: done", err=quiet)
    if not succeeded(trajectory):
        raise typer.Exit(EXIT_FAILED)


def _generation(
    temperature: float | None, top_p: float | None, max_tokens: int | None, stop: list[str] | None
) -> GenerationOptions:
    from loopline.agents.records import GenerationOptions
    from loopline.runtime.errors import InputError

    if top_p == 0:
        raise InputError("--top-p 0 leaves no token to draw", hint="--temperature 0 is greedy.")
    if stop and not all(stop):
        raise InputError("--stop: an empty text would end every answer before it begins")
    return GenerationOptions(
        temperature=temperature, top_p=top_p, max_tokens=max_tokens, stop=tuple(stop or ()) or None
    )


def require_tools_offered(workflow: str, option: str) -> None:
    """Raises `InputError` for a workflow whose models would never see a tool of the option."""
    from loopline.agents.errors import AgentError
    from loopline.agents.workflows import offers_tools
    from loopline.runtime.errors import InputError

    try:
        offered = offers_tools(workflow)
    except AgentError as error:
        raise InputError(str(error)) from error
    if not offered:
        raise InputError(
            f"{option}: the workflow {workflow!r} offers its models no tools",
            hint="--workflow umi or umi_single do; your own workflow needs offers_tools = True.",
        )


async def _ask_deployment(
    where: Deployment,
    query: Query,
    *,
    workflow: str,
    options: JsonObject,
    generation: GenerationOptions,
    policies: dict[str, str],
    stream: bool,
    budget: Budget,
    seed: int,
    tools: list[str],
    prompt_files: dict[str, str],
    show: bool,
    delay: float = 0.0,
) -> Trajectory | str:
    """Return the trajectory, or the id of a run that starts later."""
    import asyncio

    from loopline.bus import BusUnavailable, tasks
    from loopline.runtime.client.blockers import report_blockers
    from loopline.runtime.client.client import Client
    from loopline.runtime.errors import Unreachable
    from loopline.runtime.terminal.safe_text import sanitize

    def say(blocker: str) -> None:
        print(sanitize(blocker), file=sys.stderr)

    settings = where.settings
    task: _Task = {"instance": {"tools": [*tools]}} if tools else {}
    if query.simulated is not None:
        task = {"environment": query.simulated.environment, "instance": query.simulated.instance}
    async with Client.of(settings) as client:
        run = client.new_run(
            query.text,
            messages=query.messages,
            workflow=workflow,
            options=options,
            generation=generation,
            policies=policies,
            stream=stream,
            seed=seed,
            budget=budget,
            prompt_files=prompt_files,
            **task,
        )
        if delay:
            await client.submit(run, delay=delay)
            return run.id
        reports: list[asyncio.Task[None]] = []

        async def answered() -> Trajectory:
            await client.submit(run)
            reports.append(asyncio.create_task(report_blockers(client.bus, run, where, say)))
            try:
                return await (show_run(client, run) if show else client.wait(run.id))
            except BusUnavailable as error:
                raise Unreachable(
                    str(error), hint=f"the run was admitted: `runtime runs show {run.id}` later."
                ) from error

        work = asyncio.create_task(answered())
        try:
            # Shielded in its own task, because a time-out inside may mistake the cancellation for
            # its own and swallow it (see `tasks.end`). Ctrl-C must not be lost.
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await tasks.end([work])
            # Also during the admission: the run may be admitted although the bus has not answered
            # yet.
            if message := await _cancel_run(client, run.id):
                print(f"\n{message}", file=sys.stderr)
            raise
        finally:
            await tasks.end([work, *reports])


async def _cancel_run(client: Client, run_id: str) -> str:
    """Cancel a run and describe the result in words; empty if it had already ended."""
    import asyncio

    try:
        async with asyncio.timeout(CANCEL_SECONDS):
            return f"cancelled (run {run_id})" if await client.cancel(run_id) else ""
    except TimeoutError:
        return f"the bus does not answer; `runtime runs cancel {run_id}` ends the run later"


def tool_names(run: Run) -> set[str]:
    """Return the tools that the run's models may call: call markup is not shown as text."""
    from loopline.agents.tools import tools
    from loopline.agents.tools.handover import HAND_OVER_TOOLS
    from loopline.agents.tools.offered import offered_tools
    from loopline.agents.workflows import NamingTools, workflows

    workflow = workflows.get(run.workflow)
    of_agents = workflow.tools_in(run.options) if isinstance(workflow, NamingTools) else ()
    return {
        *tools.names(),
        *(tool.name for pair in HAND_OVER_TOOLS.values() for tool in pair),
        *(tool if isinstance(tool, str) else tool.name for tool in of_agents),
        *(spec.name for spec in offered_tools(run.task).specs),
    }


async def show_run(client: Client, run: Run) -> Trajectory:
    """Print the dialogue as it happens."""
    from rich.console import Console

    from loopline.agents.records import Step
    from loopline.runtime.terminal.dialogue import DialoguePrinter

    run_id = run.id
    printer = DialoguePrinter(Console(highlight=False), tool_names(run))
    shown_count = 0
    async for event in client.follow(run_id):
        match event.kind:
            case "tokens":
                printer.tokens(event.fields)
            case "restart":
                printer.restart(event.fields)
            case "step":
                state = await client.bus.run_state(run_id)
                for step in state.steps[shown_count : int(event.fields["index"]) + 1]:
                    printer.step(Step.model_validate_json(step))
                shown_count = max(shown_count, int(event.fields["index"]) + 1)
            case _:
                break
    trajectory = await client.wait(run_id)
    for step in trajectory.steps[shown_count:]:
        printer.step(step)
    printer.end(trajectory)
    return trajectory
