"""`train grpo --loop`: from what the command line says to a finished loop, and what it shows."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from loopline.runtime.terminal.pluralize import counted
from loopline.trainers.core.interruption import stoppable
from loopline.trainers.core.training_progress import ShownProgress
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.loop.options import LoopOptions, Target

if TYPE_CHECKING:
    from rich.table import Table

    from loopline.runtime.config.settings import Settings
    from loopline.trainers.data.task_files import TaskFile
    from loopline.trainers.grpo.loop.book import Book, Wave
    from loopline.trainers.grpo.loop.line import Line
    from loopline.trainers.grpo.loop.report import LoopReport, RoundFacts
    from loopline.trainers.grpo.loop.rounds import Keeping
    from loopline.trainers.grpo.loop.settings import LoopSettings
    from loopline.trainers.grpo.settings import GrpoSettings
    from loopline.workers.engines.settings import ModelSettings

TOKEN_BYTES = 56
"""Of a token of an answer as it is recorded: its id, its two log-probabilities, its text."""
ROUNDS = 20
PUZZLES = 64
MORE = 4
"""Times the puzzles of a round that are played at most."""
_OF_ADAPTIVE = {"adaptive": "exit_when", "sampling_rounds": "rounds", "success": "success"}
"""Options, and the fields of `AdaptiveSampling` that they are."""
_OF_GAMES = ("game", "size", "difficulty", "setting")
_MEANINGLESS = {
    "checkpoint_every": "there is one after each round",
    "publish": "what each round comes to is published",
    "from_store": "the rollouts are the data",
    "workflow": "the runs are of pair",
    "steps": "give --rounds",
    "epochs": "a round is gone through once; --minibatch makes several updates of it",
    "base_version": "versions are counted by the deployment",
}


def loop(
    output: Path,
    grpo: GrpoSettings,
    options: LoopOptions,
    target: Target,
    keeping: Keeping,
    *,
    given: Collection[str],
    restart: bool,
    as_json: bool,
) -> None:
    """Run the loop in `output`, or go on with it, in all processes that a launcher has started.
    `given` are the options on the command line. Raises `TrainingError`s, and `typer.Exit` with 130
    for Ctrl-C."""
    from loopline.trainers.core.processes import joined
    from loopline.trainers.grpo.loop.following import follow
    from loopline.trainers.grpo.loop.line import Line
    from loopline.trainers.grpo.pipeline import require_whole

    for name, why in _MEANINGLESS.items():
        if name in given:
            raise TrainingError(f"--{name.replace('_', '-')} has no meaning for --loop: {why}")
    with stoppable(), joined() as processes:
        require_whole(processes)
        line = Line(processes)
        if not processes.is_first:
            follow(grpo, output, keeping.ratios, line)
            return
        with line:
            report = _lead(output, grpo, options, target, keeping, line, restart=restart)
    _show(report, output)
    if as_json:
        from loopline.trainers.grpo.loop.report import last_line

        typer.echo(json.dumps(last_line(report)))


def _lead(
    output: Path,
    grpo: GrpoSettings,
    options: LoopOptions,
    target: Target,
    keeping: Keeping,
    line: Line,
    *,
    restart: bool,
) -> LoopReport:
    """As the first process, or the only one."""
    from loopline.runtime.client.deployment import find
    from loopline.runtime.errors import UserError
    from loopline.trainers.core.checkpoints import forget_work
    from loopline.trainers.core.network import base_folder, load_base
    from loopline.trainers.core.output_lock import locked
    from loopline.trainers.grpo.data import sealing_of
    from loopline.trainers.grpo.loop.line import Start
    from loopline.trainers.grpo.loop.report import read_loop_report
    from loopline.trainers.grpo.loop.rounds import Loop, LoopWatch
    from loopline.trainers.grpo.pipeline import CHECKPOINTS
    from loopline.trainers.grpo.publishing import require_publishable

    file = _tasks(options)
    try:
        deployed = find(redis_url=target.redis_url, profile=target.profile).settings
    except UserError as error:
        raise TrainingError(f"--loop: {error}") from error
    settings = _settings(grpo, options, file, deployed, target)
    for policy in settings.policies.values():
        _require_pool(policy, deployed)
    require_publishable(
        grpo, settings.policies, base_folder(grpo.base), output, deployed, option="--loop"
    )
    with locked(output):
        book = claim(output, settings, restart=restart)
        report = read_loop_report(output)
        if report is not None:
            forget_work(output / CHECKPOINTS)
            typer.echo(f"the loop in {output} is finished; --restart trains anew", err=True)
            return report
        line.say(Start(book.training))
        loaded = load_base(grpo.base, grpo.base_precision)
        with _Shown() as shown:
            for each in said_of_rounding(settings.policies.values(), deployed.models):
                shown.say(each)
            limit = deployed.bus.max_message_bytes
            for each in said_of_size(settings, limit):
                shown.say(each)
            watch = LoopWatch(shown.rolled, shown.round, shown.say)
            sealing = sealing_of(grpo, loaded)
            return Loop(
                settings, loaded, sealing, book, deployed, target.wait, watch, keeping, line,
                file.tasks if file else (),
            ).run()  # fmt: skip


def _require_pool(policy: str, deployed: Settings) -> None:
    """Raises `TrainingError`, with the deployment to start, where a policy's pool is missing."""
    from loopline.bus import pool_of

    if pool_of(policy) not in deployed.models:
        raise TrainingError(
            f"--loop: the deployment has no pool {pool_of(policy)!r}; pools: "
            f"{', '.join(deployed.models)}. Start one with `runtime up --profile petting --detach "
            "--set models.pair.model=MODEL`, or name a pool by --pool, or, with --redis-url, the "
            "profile that the deployment was started with by --profile"
        )


def said_of_rounding(
    policies: Iterable[str], models: Mapping[str, ModelSettings]
) -> tuple[str, ...]:
    """A line for each pool whose log-probabilities are those of a batch: they can be trained on,
    but importance ratios then show rounding beside the age of samples."""
    from loopline.bus import pool_of

    pools = dict.fromkeys(pool_of(each) for each in policies)
    return tuple(
        f"the pool {pool} has no plain_logprobs: its log-probabilities differ from the trainer's "
        "by rounding (in float32 by up to 4e-5, with it by less than 1e-5); `runtime up --set "
        f"models.{pool}.plain_logprobs=true`"
        for pool in pools
        if not models[pool].plain_logprobs
    )


def said_of_size(settings: LoopSettings, limit: int) -> tuple[str, ...]:
    """A line where the answers of one step, all as long as they may be, are more than the `limit`
    in bytes of a message of the bus: they would be given up after they were sampled."""
    answers = settings.most_candidates
    most = answers * settings.max_tokens * TOKEN_BYTES
    if most <= limit:
        return ()
    lower = "--max-tokens" if settings.adaptive is None else "--max-tokens or --sampling-rounds"
    return (
        f"{answers} answers of {settings.max_tokens:,} tokens take up to {most / 1e6:.1f} MB, and "
        f"a message of the bus {limit / 1e6:.1f} MB: a step that takes more is given up. Lower "
        f"{lower}, or `runtime up --set bus.max_message_bytes={most}`",
    )


def claim(output: Path, settings: LoopSettings, *, restart: bool) -> Book:
    """Make the folder this loop's own. Raises `TrainingError` if it is another training's."""
    from loopline.runtime.observe.learned_tokens import LEARNED_TOKENS
    from loopline.trainers.core.checkpoints import require_same_recipe, require_unused
    from loopline.trainers.core.json_records import read_record
    from loopline.trainers.grpo.loop.book import Book, Claim, write_page
    from loopline.trainers.grpo.page import PAGE
    from loopline.trainers.grpo.pipeline import CHECKPOINTS, POLICIES
    from loopline.trainers.grpo.report import REPORT

    path = output / "loop.json"
    if path.exists() and not restart:
        found = read_record(path, Claim)
        require_same_recipe(found.settings, settings, output)
        return Book(output, found.id)
    if path.exists():
        # The report goes first: with it a training is finished, whatever else is there. What was
        # published stays: a deployment may answer with it.
        for name in (REPORT, PAGE):
            (output / name).unlink(missing_ok=True)
        for name in (CHECKPOINTS, "curves", LEARNED_TOKENS, POLICIES, "rounds"):
            shutil.rmtree(output / name, ignore_errors=True)
    else:
        require_unused(output)
    made = Claim(id=secrets.token_hex(4), settings=settings)
    write_page(path, made)
    return Book(output, made.id)


def _tasks(options: LoopOptions) -> TaskFile | None:
    """The file, where one is played. Raises `TrainingError` for options that it leaves no
    meaning."""
    from loopline.trainers.data.task_files import read_tasks

    if options.tasks is None:
        return None
    for name in _OF_GAMES:
        if getattr(options, name) is not None:
            raise TrainingError(
                f"--{name} is of generated puzzles; the tasks of --tasks bring all of that along: "
                "leave one out"
            )
    return read_tasks(options.tasks)


def _settings(
    grpo: GrpoSettings,
    options: LoopOptions,
    file: TaskFile | None,
    deployed: Settings,
    target: Target,
) -> LoopSettings:
    """Raises `TrainingError`, naming the option."""
    from pydantic import ValidationError

    from loopline.agents.workflows import prompt_hashes, prompts_of
    from loopline.runtime.config.key_value_options import key_value_options
    from loopline.runtime.errors import UserError
    from loopline.trainers.grpo.loop.settings import WORKFLOW, LoopSettings
    from loopline.trainers.grpo.pipeline import require_known
    from loopline.trainers.grpo.publishing import served_policies

    puzzles = PUZZLES if options.puzzles is None else options.puzzles
    chosen = {
        **{
            name: value
            for name, value in vars(options).items()
            if value is not None and name not in ("tasks", *_OF_ADAPTIVE)
        },
        "tasks": file.about if file else None,
        "rounds": ROUNDS if options.rounds is None else options.rounds,
        "puzzles": puzzles,
        "most_puzzles": MORE * puzzles if options.most_puzzles is None else options.most_puzzles,
    }
    try:
        chosen["adaptive"] = _adaptive(options)
        chosen["difficulty"] = key_value_options("--difficulty", options.difficulty or [])
        chosen["setting"] = key_value_options("--setting", options.setting or [])
        bounded = grpo.model_copy(update={"staleness": grpo.staleness or 0})
        made = LoopSettings.model_validate({**chosen, "grpo": bounded, "policies": {}})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # What concerns several options names them itself.
        at = [str(each) for each in first["loc"]]
        if len(at) > 1 and at[0] == "adaptive":
            at = [name for name, field in _OF_ADAPTIVE.items() if field == at[1]]
        option = f"--{at[0].replace('_', '-')}: " if at else ""
        said = first["msg"].removeprefix("Value error, ")
        raise TrainingError(f"{option}{said}") from error
    except UserError as error:
        raise TrainingError(str(error)) from error
    agents = [each for each in made.team if grpo.agents is None or each in grpo.agents]
    unknown = sorted(set(grpo.agents or ()) - set(made.team))
    if unknown:
        raise TrainingError(
            f"--agent: nobody of the team ({', '.join(made.team)}) is called {', '.join(unknown)}"
        )
    require_known(grpo, tuple(dict.fromkeys(map(grpo.policy_of, agents))))
    others = [each for each in made.team if each not in agents]
    ours = prompts_of(WORKFLOW, made.played)
    files = {file: text for file, text in deployed.prompt_files.items() if file in ours}
    return made.model_copy(
        update={
            "policies": served_policies(
                agents, deployed, WORKFLOW, target.pool, environment=made.played, option="--loop"
            ),
            "partners": served_policies(
                others, deployed, WORKFLOW, None, environment=made.played, option="--loop"
            ),
            "prompts": prompt_hashes(WORKFLOW, files, made.played),
        }
    )


def _adaptive(options: LoopOptions) -> dict[str, object] | None:
    """Raises `TrainingError` for its options without it."""
    said = {
        field: value
        for name, field in _OF_ADAPTIVE.items()
        if (value := getattr(options, name)) is not None
    }
    if said and options.adaptive is None:
        given = ", ".join(f"--{name.replace('_', '-')}" for name in _OF_ADAPTIVE)
        raise TrainingError(f"{given} only apply with --adaptive positive|balanced: add it")
    return said or None


class _Shown(ShownProgress):
    """A bar of the runs of a wave, a line for each round."""

    def __init__(self) -> None:
        behind = "{task.completed:,.0f} of {task.total:,.0f} runs"
        super().__init__("{task.fields[said]}", behind, remaining=False)

    def rolled(self, wave: Wave, ended: int) -> None:
        """Some runs of a wave have ended."""
        said = f"round {wave.round}" + (f", wave {wave.number}" if wave.number > 1 else "")
        self.bar("runs", ended, len(wave.runs), said)

    def round(self, facts: RoundFacts, rounds: int) -> None:
        """A round is trained."""
        self.say(round_line(facts, rounds))


def round_line(facts: RoundFacts, rounds: int) -> str:
    """What is said of a round when it is trained."""
    broke = f", {facts.broken:,} of them broke off" if facts.broken else ""
    return (
        f"round {facts.round}/{rounds}  solved {facts.success:.1%} of "
        f"{counted(facts.runs, 'run')}{broke}  "
        f"groups {facts.trained:,}  zero-variance {facts.zero_variance_share:.0%}  "
        + "  ".join(
            f"{name}: loss {each.loss:+.4f} reward {each.reward:.3f} "
            f"ESS {each.effective_samples:.2f}"
            for name, each in facts.step.policies.items()
        )
    )


def table(report: LoopReport) -> Table:
    """A line for each round, narrow enough for 80 columns."""
    from loopline.runtime.terminal.tables import figures

    noun = f"{report.settings.noun}s"
    made = figures(
        "round", "served", noun, "solved,\nbest\nof K", "broke\noff", "groups", "zero-\nvariance",
        "too\nold", "agreed", "reward", "loss",
    )  # fmt: skip
    made.padding = (0, 1, 0, 0)  # Else eleven columns would have no room on 80.
    for facts in report.rounds:
        own = facts.step.policies.values()
        groups = sum(each.groups for each in own)
        made.add_row(
            f"{facts.round}",
            ", ".join(map(str, sorted(set(facts.served.values())))),
            f"{facts.puzzles:,}",
            f"{facts.success:.1%}",
            f"{facts.broken:,}",
            f"{facts.groups:,}",
            f"{facts.zero_variance_share:.0%}",
            f"{facts.stale + facts.foreign:,}",
            "" if facts.agreement is None else f"{facts.agreement:.0%}",
            f"{sum(each.reward * each.groups for each in own) / groups:.3f}",
            f"{sum(each.loss * each.groups for each in own) / groups:+.4f}",
        )
    return made


def _show(report: LoopReport, output: Path) -> None:
    from rich.console import Console

    Console(highlight=False, width=None if sys.stdout.isatty() else 140).print(table(report))
    seconds = report.seconds
    shares = ", ".join(
        f"{name} {part / max(seconds.total, 1e-9):.0%}"
        for name, part in seconds.model_dump().items()
    )
    served = ", ".join(f"{policy} {version}" for policy, version in report.served.items())
    typer.echo(
        f"{counted(len(report.rounds), 'round')} in {seconds.total / 60:.1f} minutes ({shares}); "
        f"now served: {served}; {report.trained_parameters:,} of {report.parameters:,} parameters, "
        f"{report.peak_memory_mb:,.0f} MB; policies in {output / 'policies'}"
    )
