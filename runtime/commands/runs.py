"""`runtime runs ls|show|replay|fork|cancel|signal|reward`: runs, read from the journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopline.runtime.commands.options import AsJson, RedisUrl
from loopline.runtime.errors import InputError
from loopline.runtime.on_bus import run_with_client

if TYPE_CHECKING:
    from loopline.agents.records import Trajectory
    from loopline.runtime.client.client import Client
    from loopline.runtime.client.deployment import Deployment
    from loopline.runtime.observe.recorded_runs import KnownRun
    from loopline.runtime.observe.run_index import RunLine, RunsOfPage

RunId = Annotated[str, typer.Argument(metavar="ID", help="A run's id, or a part of it.")]


def register(app: typer.Typer) -> None:
    runs = typer.Typer(
        no_args_is_help=True, help="Runs: list, show, replay, fork, cancel, signal, reward."
    )
    app.add_typer(runs, name="runs")
    runs.command("ls")(ls)
    runs.command("show")(show)
    runs.command("replay")(replay)
    runs.command("fork")(fork)
    runs.command("cancel")(cancel)
    runs.command("signal")(signal)

    # A value may start with a minus sign, as options do.
    runs.command("reward", context_settings={"ignore_unknown_options": True})(reward)


def ls(
    redis_url: RedisUrl = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum runs to list.")] = 20,
    active: Annotated[bool, typer.Option("--active", help="Only runs in flight.")] = False,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only waiting runs.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the newest runs on the bus.

    Exit code 1 if one of these runs can't be read; its id is printed.
    """
    from loopline.runtime.observe.run_index import RunQuery, list_runs
    from loopline.runtime.terminal.dialogue import milliseconds
    from loopline.runtime.terminal.safe_text import sanitize
    from loopline.runtime.terminal.tables import align_columns
    from loopline.runtime.terminal.unreadable import report_unreadable

    async def newest(client: Client, _: Deployment) -> tuple[RunsOfPage, float]:
        query = RunQuery(state="waiting" if waiting else "active" if active else "")
        return await list_runs(client.bus, query, limit), client.bus.clock.now()

    page, now = run_with_client(redis_url, newest)
    lines = page.lines
    unreadable = [f"run {run} can't be read: another program wrote it" for run in page.unreadable]
    if as_json:
        typer.echo(json.dumps([line.as_json(now) for line in lines]))
        report_unreadable(unreadable)
        return
    rows = [
        (
            *(line.id, line.state, line.workflow, milliseconds(line.seconds(now))),
            str(line.tokens or ""),
            sanitize(" ".join((line.answer or _waits_for(line)).split()))[:46],
            sanitize(" ".join(line.question.split()))[:60],
        )
        for line in lines
    ]
    head = ("run", "state", "workflow", "time", "tokens", "answer", "question")
    typer.echo(
        "\n".join(align_columns(head, rows, numbers=("time", "tokens"))) if rows else "no runs"
    )
    report_unreadable(unreadable)


def show(
    run_id: RunId,
    redis_url: RedisUrl = None,
    store: Annotated[
        Path | None, typer.Option(help="Look only in this folder of recorded runs.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page with all candidates and tokens."),
    ] = None,
    training: Annotated[
        Path | None,
        typer.Option(help="OUTPUT of a `train grpo` with --keep-ratios that learned from the run."),
    ] = None,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="Model of the run's tokens; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a run's dialogue; by its whole id, also after `down`.

    The page only needs a browser. It shows the tree of candidates with the chosen path, rewards,
    tool calls, and every token with its log-probability; with --training, also its importance
    ratio.
    """
    outcome = (
        _find_known_run(redis_url, run_id) if store is None else _load_recorded_run(store, run_id)
    )
    if html is not None:
        _write_page(outcome, html, training, tokenizer or [])
        if not as_json:
            typer.echo(f"the page of run {outcome.run.id}: {html}")
            return
    elif training is not None or tokenizer:
        raise InputError("--training and --tokenizer need --html FILE")
    if as_json:
        typer.echo(outcome.trajectory().model_dump_json())
        return
    from rich.console import Console

    from loopline.runtime.client.waiting import describe_waits
    from loopline.runtime.terminal.dialogue import DialoguePrinter
    from loopline.runtime.terminal.pluralize import format_count
    from loopline.runtime.terminal.safe_text import sanitize

    printer = DialoguePrinter(Console(highlight=False))
    typer.echo(f"question  {sanitize(outcome.run.task.prompt)}\n")
    for step in outcome.steps:
        printer.step(step)
    if outcome.ended is None:
        typer.echo(f"\nstill running: {format_count(len(outcome.steps), 'step')} so far")
        for words in describe_waits(outcome.waits):
            typer.echo(f"waits for {sanitize(words)}")
    else:
        printer.end(outcome.ended)


def replay(run_id: RunId, redis_url: RedisUrl = None) -> None:
    """Repeat every step from the recorded calls and compare decisions.

    Shows whether today's code makes the same decisions, without asking a model. Exit code 1 if
    something differs.
    """
    import asyncio

    from loopline.agents.replay import replay as replayed
    from loopline.runtime.errors import EXIT_FAILED

    outcome = _with_own_prompts(redis_url, _find_known_run(redis_url, run_id).trajectory())
    result = asyncio.run(replayed(outcome))
    typer.echo(f"{result.steps} of {len(outcome.steps)} steps came out as recorded")
    for difference in result.divergences:
        typer.echo(f"differs: {difference}")
    if not result.reproduced:
        raise typer.Exit(EXIT_FAILED)


def fork(
    run_id: RunId,
    at: Annotated[int, typer.Option("--at", min=0, help="The turn to repeat.")] = 0,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of the sampling, in place of the run's.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=POOL", help="Policy that plays a role; may be repeated."),
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="A Markdown file in place of this prompt from the turn on; may be repeated.",
        ),
    ] = None,
    question: Annotated[str | None, typer.Option(help="Another question, from turn 0 on.")] = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Start a run from this run's journal up to a turn, and watch it."""
    from loopline.runtime.commands.ask import show_run
    from loopline.runtime.config.key_value_options import policy_options
    from loopline.runtime.config.prompt_files import parse_prompt_files
    from loopline.runtime.errors import EXIT_FAILED
    from loopline.runtime.terminal.dialogue import succeeded

    files = parse_prompt_files(prompt or [])

    async def forked(client: Client, where: Deployment) -> Trajectory:
        outcome = (await _find_on_bus(client, where, run_id)).trajectory()
        policies = policy_options(policy or [], where.settings.models)
        new = await client.fork(
            outcome, at, seed=seed, policies=policies, prompt_files=files, question=question
        )
        # Printed now, so that a user who stops watching can cancel the run by its id.
        typer.echo(f"run {new.id}", err=True)
        return await (client.wait(new.id) if as_json else show_run(client, new))

    trajectory = run_with_client(redis_url, forked)
    if as_json:
        typer.echo(trajectory.model_dump_json())
    if not succeeded(trajectory):
        raise typer.Exit(EXIT_FAILED)


def cancel(run_id: RunId, redis_url: RedisUrl = None) -> None:
    """Cancel a run now; its workers drop their work on it."""
    from loopline.runtime.observe.run_history import resolve

    async def cancelled(client: Client, _: Deployment) -> str:
        whole = await resolve(client.bus, run_id)
        if not await client.cancel(whole):
            raise InputError(f"run {whole} has ended, or the bus doesn't know it")
        return whole

    typer.echo(f"cancelled {run_with_client(redis_url, cancelled)}")


def signal(
    run_id: RunId,
    name: Annotated[str, typer.Argument(help="The signal that the run waits for.")],
    value: Annotated[str, typer.Option(metavar="JSON", help="Value for the run.")] = "null",
    signal_id: Annotated[
        str | None,
        typer.Option("--id", help="Id of the signal; repeated sending counts once."),
    ] = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Send a run the signal that it waits for, or will wait for."""
    import getpass

    from loopline.runtime.observe.run_history import resolve

    try:
        parsed_value = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"--value is not JSON: {error}", hint="""a text needs quotes: --value '"yes"'"""
        ) from error

    async def sent(client: Client, _: Deployment) -> tuple[str, str]:
        whole = await resolve(client.bus, run_id)
        answer = await client.signal(
            whole, name, parsed_value, signal_id=signal_id, by=getpass.getuser()
        )
        return whole, answer.value

    whole, status = run_with_client(redis_url, sent)
    if as_json:
        typer.echo(json.dumps({"run": whole, "name": name, "status": status}))
        return
    words = {
        "woken": "it continues",
        "kept": "it does not wait for the signal yet, but will find it",
        "already": "a signal with this id was sent before",
    }
    typer.echo(f"run {whole}: {words[status]}")


def reward(
    run_id: RunId,
    value: Annotated[float, typer.Argument(help="The reward, for example 1 or -0.5.")],
    agent: Annotated[
        str | None, typer.Option(help="The agent that earned it (default: the whole team).")
    ] = None,
    turn: Annotated[
        int | None, typer.Option(min=0, help="Turn that earned it (default: the whole run).")
    ] = None,
    source: Annotated[
        str,
        typer.Option(help="Source of the reward; its next reward for the target replaces it."),
    ] = "user",
    reward_id: Annotated[
        str | None,
        typer.Option("--id", help="Id of the reward; repeated sending counts once."),
    ] = None,
    comment: Annotated[str, typer.Option(help="Reason, in words.")] = "",
    session: Annotated[
        bool,
        typer.Option("--session", help="ID names a session: reward each of its trajectories."),
    ] = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Reward a run, also long after it has ended.

    The reward is joined to the run when the store is read: `train grpo offline --reward-from
    feedback` learns from it.
    """
    from loopline.runtime.client.rewards import PostedReward
    from loopline.runtime.observe.run_history import resolve

    async def posted(client: Client, _: Deployment) -> PostedReward:
        if session:
            if turn is not None:
                raise InputError("--turn is for a run: leave --turn or --session out")
            return await client.reward_session(
                run_id, value, agent=agent, source=source, reward_id=reward_id, comment=comment
            )
        return await client.reward(
            await resolve(client.bus, run_id), value, agent=agent, turn=turn, source=source,
            reward_id=reward_id, comment=comment,
        )  # fmt: skip

    outcome = run_with_client(redis_url, posted)
    if as_json:
        typer.echo(json.dumps({**outcome.reward.model_dump(), "new": outcome.new}))
        return
    counted = "" if outcome.new else ", which had been counted before"
    typer.echo(f"reward {outcome.reward.id} for {outcome.reward.target}{counted}")


def _waits_for(line: RunLine) -> str:
    return f"waits for {', '.join(line.waits)}" if line.waits else ""


def _find_known_run(redis_url: str | None, run_id: str) -> KnownRun:
    """Return a run of the deployment or, if no deployment runs, a run from the store of this state
    directory. Raises `InputError`, `RunUnknown`, or `Unreachable` for a run that isn't there."""
    from loopline.runtime.config.state import StateDirectory
    from loopline.runtime.errors import Unreachable
    from loopline.runtime.observe.recorded_runs import find_recorded_run

    try:
        return run_with_client(redis_url, lambda client, where: _find_on_bus(client, where, run_id))
    except Unreachable as error:
        known_run = find_recorded_run(StateDirectory.from_environment().store, run_id)
        if known_run is None:
            raise Unreachable(
                f"{error.args[0]}, and the store there has no run with the full id {run_id}",
                hint=error.hint,
            ) from None
        return known_run


def _with_own_prompts(redis_url: str | None, trajectory: Trajectory) -> Trajectory:
    """Return the run with its original prompts, read from the bus if a deployment runs, or else
    from the store."""
    import asyncio

    from loopline.runtime.client.run_prompts import on_bus_or_in_store, trajectory_with_own_prompts
    from loopline.runtime.config.state import StateDirectory
    from loopline.runtime.errors import Unreachable

    async def of_deployment(client: Client, where: Deployment) -> Trajectory:
        return await trajectory_with_own_prompts(
            trajectory, on_bus_or_in_store(client.bus, where.state.store)
        )

    try:
        return run_with_client(redis_url, of_deployment)
    except Unreachable:
        store = StateDirectory.from_environment().store
        return asyncio.run(trajectory_with_own_prompts(trajectory, on_bus_or_in_store(None, store)))


def _load_recorded_run(store: Path, run_id: str) -> KnownRun:
    """Return a run of a store by its whole id. Raises `InputError`."""
    from loopline.runtime.observe.recorded_runs import find_recorded_run

    known_run = find_recorded_run(store, run_id)
    if known_run is None:
        raise InputError(f"the store in {store} has no run with the full id {run_id!r}")
    return known_run


def _write_page(
    known_run: KnownRun, path: Path, training: Path | None, tokenizers: list[str]
) -> None:
    """Write the run's page. Raises `InputError` for a file that can't be read or written."""
    from loopline.runtime.observe.learned_tokens import read_learned
    from loopline.runtime.observe.run_page.page import render
    from loopline.runtime.observe.run_page.tokenizers import Tokenizers, require_tokenizer
    from loopline.workers.atomic_files import write_atomic

    if path.is_dir():
        raise InputError(f"{path} is a folder", hint="name the file of the page: --html run.html.")
    learned = None if training is None else read_learned(training, known_run.run.id)
    for tokenizer in tokenizers:
        require_tokenizer(tokenizer)
    text = render(known_run, Tokenizers([*tokenizers, *_models()]), learned)
    try:
        write_atomic(path, text)
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror or error}") from error


def _models() -> list[str]:
    """Return the models of the deployment that runs, or last ran, in this state directory."""
    from loopline.runtime.config.settings import load_resolved_file
    from loopline.runtime.config.state import StateDirectory

    resolved = StateDirectory.from_environment().resolved
    if not resolved.exists():
        return []
    return [model.model for model in load_resolved_file(resolved).models.values()]


async def _find_on_bus(client: Client, where: Deployment, run_id: str) -> KnownRun:
    from loopline.runtime.observe.run_history import find_run

    return await find_run(client.bus, run_id, where.state.store)
