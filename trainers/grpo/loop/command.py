"""`train grpo loop`: runs a loop from the command line and shows its results."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.core.interruption import exit_on_interrupt
from loopline.trainers.core.output_folder import state_of_folder
from loopline.trainers.core.training_progress import ShownProgress
from loopline.trainers.errors import TrainingError

if TYPE_CHECKING:
    from rich.table import Table

    from loopline.runtime.config.settings import Settings
    from loopline.trainers.data.questions import Questions
    from loopline.trainers.data.task_files import TaskFile, TeamTasks
    from loopline.trainers.grpo.loop.leader_channel import LeaderChannel
    from loopline.trainers.grpo.loop.metrics import TrainingMetrics
    from loopline.trainers.grpo.loop.options import LoopOptions
    from loopline.trainers.grpo.loop.report import LoopReport, RoundFacts
    from loopline.trainers.grpo.loop.rounds import LoopWatch
    from loopline.trainers.grpo.loop.run_directory import RolloutBatch, RunDirectory
    from loopline.trainers.grpo.loop.settings import LoopSettings
    from loopline.trainers.grpo.settings import GrpoSettings
    from loopline.workers.engines.settings import ModelSettings

TOKEN_BYTES = 56
"""Bytes of one recorded answer token: its id, its two log-probabilities, its text."""
CLAIM = "loop.json"


def preview(options: LoopOptions) -> list[str]:
    """The plan of a loop, which `--dry-run` prints."""
    from loopline.trainers.grpo.loop.generators import PAIR
    from loopline.trainers.grpo.pipeline import CHECKPOINTS
    from loopline.trainers.grpo.report import REPORT

    played = options.game if options.tasks is None else f"the tasks of {options.tasks}"
    if options.level:
        played = ", ".join(options.level)
    if options.workflow != PAIR:
        played = f"{options.workflow} on {options.questions or options.env or played}"
    where = options.redis_url or "the deployment of this machine's state directory"
    return [
        f"plays {played or 'nothing yet: add --game, --level or --tasks'} on {where}, and "
        "publishes to it",
        state_of_folder(options.output, CLAIM, CHECKPOINTS, REPORT, restart=options.restart),
    ]


def loop(options: LoopOptions) -> None:
    """Roll out on a running deployment, train, publish, and repeat.

    In each round the deployment plays puzzles of the train split (--game), the tasks of a file
    (--tasks) or, with any other workflow, questions (--workflow, --env), and then answers with the
    version that the round produced. --look-every evaluates on held-out tasks, and publishes the
    best version at the end. --staleness 1 lets it roll out while a round is trained. After a crash
    or Ctrl-C, run it again to continue; finished work is not repeated. On several GPUs: `accelerate
    launch --multi_gpu --module loopline.trainers.cli grpo loop ...`, or with --use_fsdp
    --fsdp_version 2.
    """
    from loopline.trainers.core.processes import join_processes
    from loopline.trainers.grpo.loop.follower_rank import follow
    from loopline.trainers.grpo.loop.leader_channel import LeaderChannel

    grpo = options.settings(assigned=options.policy)
    with exit_on_interrupt(), join_processes() as processes:
        channel = LeaderChannel(processes)
        if not processes.is_first:
            follow(grpo, options.output, options.keep_ratios, channel)
            return
        with channel:
            report = _lead(options, grpo, channel)
    _show(report, options.output)
    if options.as_json:
        from loopline.trainers.grpo.loop.report import last_line

        typer.echo(json.dumps(last_line(report)))


def _lead(options: LoopOptions, grpo: GrpoSettings, channel: LeaderChannel) -> LoopReport:
    """Run the loop in the first process, or the only one."""
    from loopline.runtime.client.deployment import find
    from loopline.runtime.errors import UserError
    from loopline.trainers.core.checkpoints import forget_work
    from loopline.trainers.core.network import load_base
    from loopline.trainers.core.output_folder import lock_output
    from loopline.trainers.data.data_files import local_file
    from loopline.trainers.data.task_files import read_tasks
    from loopline.trainers.grpo.data import sealing_of
    from loopline.trainers.grpo.loop.asked import questions_of
    from loopline.trainers.grpo.loop.leader_channel import Start
    from loopline.trainers.grpo.loop.report import read_loop_report
    from loopline.trainers.grpo.loop.rounds import Loop, LoopWatch, Retention
    from loopline.trainers.grpo.pipeline import CHECKPOINTS
    from loopline.trainers.grpo.publishing import require_publishable

    output = options.output
    file = None if options.tasks is None else read_tasks(local_file(options.tasks))
    try:
        deployed = find(redis_url=options.redis_url, profile=options.profile).settings
    except UserError as error:
        raise TrainingError(f"loop: {error}") from error
    questions = questions_of(options, file)
    settings = _settings(grpo, options, file, questions, deployed)
    for policy in settings.policies.values():
        _require_pool(policy, deployed)
    require_publishable(grpo, settings.policies, output, deployed, option="loop")
    with lock_output(output):
        directory = claim(output, settings, restart=options.restart)
        options.record()
        report = read_loop_report(output)
        if report is not None:
            forget_work(output / CHECKPOINTS)
            typer.echo(f"the loop in {output} is finished; --restart trains again", err=True)
            return report
        channel.say(Start(directory.training))
        loaded = load_base(grpo.base, grpo.base_precision)
        with ExitStack() as stack:
            display = stack.enter_context(_Shown())
            for message in rounding_notices(settings.policies.values(), deployed.models):
                display.say(message)
            limit = deployed.bus.max_message_bytes
            for message in (*size_notices(settings, limit), *mask_notices(settings, deployed)):
                display.say(message)
            watch = LoopWatch(display.rolled, display.round, display.say)
            if deployed.metrics.enabled:
                from loopline.trainers.grpo.loop.metrics import serve_training_metrics

                metrics = stack.enter_context(
                    serve_training_metrics(deployed.metrics, deployed.bus)
                )
                watch = counting(watch, metrics)
            sealing = replace(sealing_of(grpo, loaded), split=settings.split)
            keeping = Retention(options.keep_ratios, options.keep_published, options.trackers)
            return Loop(
                settings, loaded, sealing, directory, deployed, options.wait, watch, keeping,
                channel, questions,
            ).run()  # fmt: skip


def counting(watch: LoopWatch, metrics: TrainingMetrics) -> LoopWatch:
    """The same watch, which also counts rounds in the metrics."""

    def on_round(facts: RoundFacts, rounds: int) -> None:
        metrics.step(facts.step)
        watch.round(facts, rounds)

    return replace(watch, round=on_round)


def _require_pool(policy: str, deployed: Settings) -> None:
    """Raise `TrainingError`, which names the deployment to start, if a policy's pool is missing."""
    from loopline.bus import pool_of

    if pool_of(policy) not in deployed.models:
        raise TrainingError(
            f"loop: the deployment has no pool {pool_of(policy)!r}; pools: "
            f"{', '.join(deployed.models)}. Start one with `runtime up --profile petting --detach "
            "--set models.pair.model=MODEL`, or name a pool with --pool, or, with --redis-url, "
            "the deployment's profile with --profile"
        )


def rounding_notices(
    policies: Iterable[str], models: Mapping[str, ModelSettings]
) -> tuple[str, ...]:
    """One line for each pool whose log-probabilities depend on the batch: they can be trained on,
    but importance ratios then show rounding in addition to the age of samples."""
    from loopline.bus import pool_of

    pools = dict.fromkeys(pool_of(policy) for policy in policies)
    return tuple(
        f"the pool {pool} has no plain_logprobs: its log-probabilities differ from the trainer's "
        "by rounding (in float32 by up to 4e-5, with it by less than 1e-5); `runtime up --set "
        f"models.{pool}.plain_logprobs=true`"
        for pool in pools
        if not models[pool].plain_logprobs
    )


def size_notices(settings: LoopSettings, limit: int) -> tuple[str, ...]:
    """A line if the longest possible answers of one step exceed `limit`, the bytes of a message on
    the bus: such a step would fail after its answers were sampled."""
    answers = settings.most_candidates
    longest = max(settings.max_tokens, *settings.agent_max_tokens.values(), 0)
    most = answers * longest * TOKEN_BYTES
    if most <= limit:
        return ()
    lower = "--max-tokens" if settings.adaptive is None else "--max-tokens or --sampling-rounds"
    return (
        f"{answers} answers of {longest:,} tokens take up to {most / 1e6:.1f} MB, but a message "
        f"on the bus holds {limit / 1e6:.1f} MB: the runtime gives up a step that needs more. "
        f"Lower {lower}, or `runtime up --set bus.max_message_bytes={most}`",
    )


def mask_notices(settings: LoopSettings, deployed: Settings) -> tuple[str, ...]:
    """One line for each pool that constrains tool calls to a grammar: nothing can be learned from
    these calls."""
    if not settings.asks:
        return ()
    from loopline.bus import pool_of

    pools = dict.fromkeys(pool_of(policy) for policy in settings.policies.values())
    return tuple(
        f"the pool {pool} constrains tool calls, and the training cannot learn from a run with a "
        f"constrained call; `runtime up --set models.{pool}.constrain_tools=false`"
        for pool in pools
        if deployed.models[pool].constrain_tools
    )


def claim(output: Path, settings: LoopSettings, *, restart: bool) -> RunDirectory:
    """Mark the folder as belonging to this loop. Raises `TrainingError` if it belongs to another
    training."""
    from loopline.runtime.observe.learned_tokens import LEARNED_TOKENS
    from loopline.trainers.core.checkpoints import require_same_recipe, require_unused
    from loopline.trainers.core.json_records import read_record
    from loopline.trainers.grpo.loop.run_directory import Claim, RunDirectory, write_page
    from loopline.trainers.grpo.page import PAGE
    from loopline.trainers.grpo.pipeline import CHECKPOINTS, POLICIES
    from loopline.trainers.grpo.report import REPORT

    path = output / CLAIM
    if path.exists() and not restart:
        existing_claim = read_record(path, Claim)
        require_same_recipe(existing_claim.settings, settings, output)
        return RunDirectory(output, existing_claim.id)
    if path.exists():
        # The report is removed first: as long as it exists, a training counts as finished.
        # Published weights stay: a deployment may answer with them.
        for name in (REPORT, PAGE):
            (output / name).unlink(missing_ok=True)
        for name in (CHECKPOINTS, "curves", LEARNED_TOKENS, POLICIES, "rounds"):
            shutil.rmtree(output / name, ignore_errors=True)
    else:
        require_unused(output)
    new_claim = Claim(id=secrets.token_hex(4), settings=settings)
    write_page(path, new_claim)
    return RunDirectory(output, new_claim.id)


def _settings(
    grpo: GrpoSettings,
    options: LoopOptions,
    file: TaskFile | None,
    questions: Questions | None,
    deployed: Settings,
) -> LoopSettings:
    """The settings of the loop. Raises `TrainingError` or `InputError`, which name the option."""
    from loopline.agents.errors import InvalidOptions
    from loopline.runtime.config.options import validated
    from loopline.trainers.grpo.loop.asked import (
        played_prompts,
        question_file,
        resolved_options,
    )
    from loopline.trainers.grpo.loop.options import MORE
    from loopline.trainers.grpo.loop.settings import LoopSettings, RolloutOptions
    from loopline.trainers.grpo.pipeline import require_known
    from loopline.trainers.grpo.publishing import served_policies

    adaptive = {
        "exit_when": options.adaptive,
        "rounds": options.sampling_rounds,
        "success": options.success,
    }
    loop_settings = validated(
        LoopSettings,
        {
            **{name: getattr(options, name) for name in RolloutOptions.model_fields},
            "grpo": grpo,
            "policies": {},
            "tasks": _played_part(file, questions, options),
            "workflow_options": resolved_options(options, deployed),
            "questions": question_file(options, questions),
            "most_puzzles": options.most_puzzles or MORE * options.puzzles,
            "adaptive": None if options.adaptive is None else adaptive,
        },
    )
    agents = [item for item in loop_settings.team if grpo.agents is None or item in grpo.agents]
    option = "--agent" if grpo.agents else "--policy"
    unknown = sorted({*(grpo.agents or ()), *options.policy} - set(loop_settings.team))
    if unknown:
        raise TrainingError(
            f"{option}: no agent of the team ({', '.join(loop_settings.team)}) is called "
            f"{', '.join(unknown)}"
        )
    require_known(grpo, tuple(dict.fromkeys(map(grpo.policy_of, agents))))
    others = [item for item in loop_settings.team if item not in agents]
    workflow, played = loop_settings.workflow, loop_settings.played
    workflow_options = loop_settings.workflow_options
    # One team plays everything, with the same policies.
    first = played[0]
    complete = loop_settings.model_copy(
        update={
            "policies": {
                **served_policies(
                    [agent for agent in agents if agent not in options.policy],
                    deployed,
                    workflow,
                    options.pool,
                    environment=first,
                    option="loop",
                ),
                **{agent: options.policy[agent] for agent in agents if agent in options.policy},
            },
            "partners": served_policies(
                others, deployed, workflow, None, environment=first, option="loop"
            ),
            "prompts": played_prompts(workflow, played, workflow_options, deployed),
        }
    )
    try:
        complete.require_agents()
    except InvalidOptions as error:
        raise TrainingError(str(error)) from error
    return complete


def _played_part(
    file: TaskFile | None, questions: Questions | None, options: LoopOptions
) -> TeamTasks | None:
    """The part of a task file that rounds play: all tasks except those held out for evaluation."""
    if file is None:
        return None
    if not options.look_every or questions is None:
        return file.about
    return file.about.model_copy(update={"count": len(questions.train)})


class _Shown(ShownProgress):
    """Shows a progress bar for the runs of a wave, and a line for each round."""

    def __init__(self) -> None:
        behind = "{task.completed:,.0f} of {task.total:,.0f} runs"
        super().__init__("{task.fields[said]}", behind, remaining=False)

    def rolled(self, wave: RolloutBatch, ended: int) -> None:
        """Show how many runs of a wave have ended."""
        label = f"round {wave.round}" + (f", wave {wave.number}" if wave.number > 1 else "")
        self.bar("runs", ended, len(wave.runs), label)

    def round(self, facts: RoundFacts, rounds: int) -> None:
        """Show a line about a trained round."""
        self.say(round_line(facts, rounds))


def round_line(facts: RoundFacts, rounds: int) -> str:
    """The line that is printed when a round is trained."""
    broke = f", {facts.broken:,} of them aborted" if facts.broken else ""
    return (
        f"round {facts.round}/{rounds}  solved {facts.success:.1%} of "
        f"{format_count(facts.runs, 'run')}{broke}  "
        f"groups {facts.trained:,}  zero-variance {facts.zero_variance_share:.0%}  "
        + "  ".join(
            f"{name}: loss {policy.loss:+.4f} reward {policy.reward:.3f} "
            f"ESS {policy.effective_samples:.2f}"
            for name, policy in facts.step.policies.items()
        )
    )


def table(report: LoopReport) -> Table:
    """A line for each round, narrow enough for 80 columns."""
    from loopline.runtime.terminal.tables import new_table

    noun = f"{report.settings.noun}s"
    round_table = new_table(
        "round", "served", noun, "solved,\nbest\nof K", "broke\noff", "groups", "zero-\nvariance",
        "too\nold", "agreed", "reward", "loss",
    )  # fmt: skip
    round_table.padding = (0, 1, 0, 0)  # Otherwise eleven columns would not fit into 80.
    for facts in report.rounds:
        policies = facts.step.policies.values()
        groups = sum(policy.groups for policy in policies)
        round_table.add_row(
            f"{facts.round}",
            ", ".join(map(str, sorted(set(facts.served.values())))),
            f"{facts.puzzles:,}",
            f"{facts.success:.1%}",
            f"{facts.broken:,}",
            f"{facts.groups:,}",
            f"{facts.zero_variance_share:.0%}",
            f"{facts.stale + facts.foreign:,}",
            "" if facts.agreement is None else f"{facts.agreement:.0%}",
            f"{sum(policy.reward * policy.groups for policy in policies) / groups:.3f}",
            f"{sum(policy.loss * policy.groups for policy in policies) / groups:+.4f}",
        )
    return round_table


def _show(report: LoopReport, output: Path) -> None:
    from rich.console import Console

    Console(highlight=False, width=None if sys.stdout.isatty() else 140).print(table(report))
    seconds = report.seconds
    shares = ", ".join(
        f"{name} {part / max(seconds.total, 1e-9):.0%}"
        for name, part in seconds.model_dump().items()
    )
    versions = ", ".join(f"{policy} {version}" for policy, version in report.served.items())
    typer.echo(
        f"{format_count(len(report.rounds), 'round')} in {seconds.total / 60:.1f} minutes "
        f"({shares}); "
        f"now served: {versions}; {report.trained_parameters:,} of {report.parameters:,} "
        "parameters, "
        f"{report.peak_memory_mb:,.0f} MB; policies in {output / 'policies'}"
    )
