"""`train grpo`: the next versions of a deployment's policies, from the runs that it recorded."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopline.runtime.terminal.pluralize import counted
from loopline.trainers.core.interruption import stoppable
from loopline.trainers.core.training_progress import ShownProgress
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.loop import options as of_loop

if TYPE_CHECKING:
    from rich.table import Table

    from loopline.trainers.grpo.data import GrpoData
    from loopline.trainers.grpo.pipeline import Progress
    from loopline.trainers.grpo.report import Report
    from loopline.trainers.grpo.settings import GrpoSettings


def grpo(
    context: typer.Context,
    output: Annotated[Path, typer.Argument(help="Folder for checkpoints and finished policies.")],
    from_store: Annotated[
        Path | None, typer.Option(help="Folder of recorded runs; or --loop, or --demo.")
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="Folder or hub id of the model that policies begin with.")
    ] = None,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="From nothing, in minutes: does it learn? Needs no store."),
    ] = False,
    begin: Annotated[
        list[str] | None,
        typer.Option(metavar="POLICY=FOLDER", help="Earlier version to go on from; repeatable."),
    ] = None,
    workflow: Annotated[str | None, typer.Option(help="Whose runs; none: of all.")] = None,
    grouping: Annotated[
        str, typer.Option(metavar="at-grpo|trajectory|single", help="What competes with what.")
    ] = "at-grpo",
    group_size: Annotated[int, typer.Option(help="K: samples of a complete group.")] = 4,
    agent: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Learn from this one's samples; repeatable."),
    ] = None,
    policies: Annotated[
        str, typer.Option(metavar="shared|per-role", help="One for all agents, or one for each.")
    ] = "shared",
    weights: Annotated[
        str, typer.Option(metavar="full|lora", help="All weights, or an adapter of the base.")
    ] = "full",
    rank: Annotated[int, typer.Option(help="Of adapters.")] = 16,
    learning_rate: Annotated[
        float | None, typer.Option(help="Constant; 1e-6 of all weights, 1e-5 of adapters.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Groups with a signal per step.")] = 32,
    minibatch: Annotated[
        int | None, typer.Option(help="Groups per update; none: all of the step.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Times that the groups are gone through.")] = 1,
    steps: Annotated[int | None, typer.Option(help="At most; none: all groups.")] = None,
    staleness: Annotated[
        int | None,
        typer.Option(help="Versions that a sample may be behind; none: any number, of --loop 0."),
    ] = None,
    base_version: Annotated[
        int | None, typer.Option(help="Version of the base; none: the oldest in the store.")
    ] = None,
    advantage: Annotated[
        str, typer.Option(metavar="standardised|centred|leave-one-out", help="Within a group.")
    ] = "standardised",
    scheme: Annotated[
        str | None,
        typer.Option(
            metavar="paper|dense|sparse|progress",
            help="What actions are paid for; none: as it was recorded, of --loop paper. dense: the "
            "published code's step rewards, but for what these pay for going there and back; "
            "progress: what an answer makes good of the way to the solution, by the solver.",
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="Of --scheme paper: weight of the team's reward.")
    ] = 1.0,
    correction: Annotated[
        str,
        typer.Option(
            metavar="none|clip|truncated|token|sequence",
            help="Of samples of the past. clip: the ratio to the sampler is clipped; truncated: "
            "truncated importance sampling; token: decoupled, with a weight per token; sequence: "
            "decoupled, with one per sequence; none: as if they were of now.",
        ),
    ] = "token",
    cap: Annotated[float, typer.Option(help="Of importance weights.")] = 2.0,
    clip_low: Annotated[float, typer.Option(help="Of ratios, below one.")] = 0.2,
    clip_high: Annotated[float, typer.Option(help="Of ratios, above one.")] = 0.28,
    dual_clip: Annotated[float | None, typer.Option(help="Of bad samples' ratios.")] = None,
    normalisation: Annotated[
        str, typer.Option(metavar="token|constant|sequence", help="What a loss is a mean over.")
    ] = "token",
    completion_limit: Annotated[int, typer.Option(help="Of --normalisation constant.")] = 512,
    kl: Annotated[float, typer.Option(help="Weight of the divergence from the base.")] = 0.0,
    entropy: Annotated[float, typer.Option(help="Weight of the entropy bonus.")] = 0.0,
    truncated: Annotated[
        str, typer.Option(metavar="mask|keep", help="Completions that ran into their limit.")
    ] = "mask",
    precision: Annotated[
        str,
        typer.Option(
            metavar="float32|bfloat16", help="What is computed in, and adapters' base is held in."
        ),
    ] = "float32",
    piece_tokens: Annotated[
        int, typer.Option(help="Tokens that go through the model at once: its memory.")
    ] = 4_096,
    share_prefixes: Annotated[
        bool,
        typer.Option(help="Put what a group's samples begin with through the model only once."),
    ] = True,
    seed: Annotated[
        int, typer.Option(help="Of new adapters, the order of groups, and a loop's puzzles.")
    ] = 1,
    threads: Annotated[int, typer.Option(help="Of the CPU.")] = 1,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 10,
    keep_ratios: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="TOKENS",
            help="Keep importance ratios of so many per step and policy, for `runtime runs show`.",
        ),
    ] = 0,
    restart: Annotated[bool, typer.Option(help="Forget what is in the folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="End with a line of JSON.")] = False,
    publish: of_loop.Publish = False,
    pool: of_loop.Pool = None,
    redis_url: of_loop.RedisUrl = None,
    profile: of_loop.Profile = None,
    wait: of_loop.Wait = 60.0,
    loop: of_loop.LoopOn = False,
    game: of_loop.Game = None,
    tasks: of_loop.Tasks = None,
    size: of_loop.Size = None,
    difficulty: of_loop.Difficulty = None,
    setting: of_loop.Setting = None,
    rounds: of_loop.Rounds = None,
    puzzles: of_loop.Puzzles = None,
    most_puzzles: of_loop.MostPuzzles = None,
    adaptive: of_loop.Adaptive = None,
    sampling_rounds: of_loop.SamplingRounds = None,
    success: of_loop.Success = None,
    temperature: of_loop.Temperature = None,
    max_tokens: of_loop.MaxTokens = None,
    instructions: of_loop.Instructions = None,
    run_seconds: of_loop.RunSeconds = None,
    keep_published: of_loop.KeepPublished = None,
) -> None:
    """Train policies on recorded runs by AT-GRPO or GRPO. GRPO compares whole runs.

    Groups are learned from version by version, in the order in which the deployment recorded them.
    With --loop a running deployment rolls out puzzles of the train split (--game), or the tasks of
    a file (--tasks), round after round, and answers with what each round came to; --staleness 1
    lets it roll out while a round is trained.
    Run it again to go on after a crash or Ctrl-C; what is finished is not done again. On several
    GPUs, also with --loop: `accelerate launch --multi_gpu --module loopline.trainers.cli grpo ...`.
    """
    if demo:
        _require_only(context, "demo", "output", "restart", "as_json")
        from loopline.trainers.grpo.demo.command import demonstrate

        demonstrate(output, restart=restart, as_json=as_json)
        return
    if base is None:
        raise TrainingError(
            "--base is missing: name the model that policies begin with, or see what is learned "
            "without any by --demo"
        )
    from loopline.trainers.core.network import base_folder, load_base
    from loopline.trainers.core.output_lock import locked
    from loopline.trainers.core.processes import joined
    from loopline.trainers.core.publishing import publish as publish_all
    from loopline.trainers.grpo.data import known_runs, read_data, sealing_of
    from loopline.trainers.grpo.pipeline import (
        POLICIES,
        Watch,
        claim,
        require_possible,
        require_whole,
        train,
    )
    from loopline.trainers.grpo.publishing import (
        publications,
        publishing_to,
        require_publishable,
        served_policies,
    )
    from loopline.trainers.grpo.settings import LEARNING_RATE, LORA_RATE
    from loopline.workers.engines.local.adapter_base import weights_sha256

    folder = base_folder(base)
    chosen: dict[str, object] = {
        "base": base,
        "base_sha256": weights_sha256(folder),
        "begins": _begins(begin or []),
        "data_sha256": "",
        "grouping": grouping,
        "group_size": group_size,
        "agents": tuple(sorted(agent)) if agent else None,
        "reward": {"scheme": scheme, "alpha": alpha},
        "advantage": advantage,
        "objective": {
            "correction": correction,
            "cap": cap,
            "clip_low": clip_low,
            "clip_high": clip_high,
            "dual_clip": dual_clip,
            "normalisation": normalisation,
            "limit": completion_limit,
            "kl": kl,
            "entropy": entropy,
        },
        "truncated": truncated,
        "policies": policies,
        "weights": weights,
        "rank": rank,
        "batch": batch,
        "minibatch": minibatch,
        "epochs": epochs,
        "steps": steps,
        "staleness": staleness,
        "learning_rate": learning_rate
        if learning_rate is not None
        else LEARNING_RATE * (LORA_RATE if weights == "lora" else 1.0),
        "precision": precision,
        "piece_tokens": piece_tokens,
        "share_prefixes": share_prefixes,
        "seed": seed,
        "threads": threads,
        "base_version": base_version or 0,
    }
    # What can't be meant is named before the model and the store are read.
    settings = _settings(chosen)
    _require_heeded(context, settings, served=loop or publish)
    rolled = of_loop.LoopOptions(
        game=game,
        tasks=tasks,
        size=size,
        difficulty=difficulty,
        setting=setting,
        rounds=rounds,
        puzzles=puzzles,
        most_puzzles=most_puzzles,
        adaptive=adaptive,
        sampling_rounds=sampling_rounds,
        success=success,
        temperature=temperature,
        max_tokens=max_tokens,
        instructions=instructions,
        run_seconds=run_seconds,
    )
    if loop:
        from loopline.trainers.grpo.loop.command import loop as run_loop
        from loopline.trainers.grpo.loop.rounds import Keeping

        target = of_loop.Target(pool, redis_url, profile, wait)
        keeping = Keeping(keep_ratios, keep_published or Keeping.published)
        run_loop(
            output, settings, rolled, target, keeping,
            given=_given(context), restart=restart, as_json=as_json,
        )  # fmt: skip
        return
    of_loop_alone = [*rolled.given, *(["--keep-published"] if keep_published else [])]
    if of_loop_alone:
        raise TrainingError(
            f"{of_loop_alone[0]} only applies with --loop: add it, or leave this out"
        )
    if from_store is None:
        raise TrainingError(
            "--from-store is missing: name the folder of recorded runs, or record them by --loop"
        )
    deployed = publishing_to(redis_url, profile) if publish else None
    with stoppable(), joined() as processes, ExitStack() as held:
        require_whole(processes)
        loaded = load_base(str(folder), settings.base_precision)
        # Runs may be recorded while the first process reads: the others take those it took.
        with processes.in_turn():
            begin_anew = restart and processes.is_first
            known = None if begin_anew else known_runs(output)
            data = read_data(from_store, workflow, sealing_of(settings, loaded), known)
            if base_version is None:
                chosen["base_version"] = min(group.policy.version for group in data.groups)
            settings = _settings({**chosen, "data_sha256": data.sha256})
            require_possible(settings, data)
            served: dict[str, str] | None = None
            if deployed is not None:
                served = served_policies(data.agents, deployed, workflow, pool)
                require_publishable(settings, served, folder, output / POLICIES, deployed)
            if processes.is_first:
                held.enter_context(locked(output))
                claim(output, settings, data, restart=begin_anew)
        if processes.is_first:
            _say_skipped(data)
        with _Shown(seen=processes.is_first) as shown:
            report = train(
                settings,
                data,
                loaded,
                output,
                checkpoint_every=checkpoint_every,
                keep_ratios=keep_ratios,
                watch=Watch(shown.progress, shown.checkpoint, shown.say),
                processes=processes,
            )
    if not processes.is_first:
        return
    _show(report, output)
    if served is not None:
        made = publications(report.settings, served, output / POLICIES)
        publish_all(made, output, redis_url, wait, profile)
    if as_json:
        typer.echo(json.dumps(_last_line(report)))


def _require_only(context: typer.Context, *known: str) -> None:
    """Raises `TrainingError` for an option that the demonstration would not heed."""
    for name in _given(context):
        if name not in known:
            raise TrainingError(
                f"--{name.replace('_', '-')} does not go with --demo, whose settings are fixed; it "
                "takes --restart and --json"
            )


def _require_heeded(context: typer.Context, settings: GrpoSettings, *, served: bool) -> None:
    """Raises `TrainingError` for an option that the others leave no meaning."""
    from loopline.runtime.config.sources import URL_VARIABLE

    objective, given = settings.objective, _given(context)
    team_counts = settings.grouping != "at-grpo" or settings.reward.scheme in (None, "paper")
    for names, heeded, of in (
        (("rank",), settings.weights == "lora", "--weights lora"),
        (("alpha",), team_counts, "--scheme paper"),
        (("completion_limit",), objective.normalisation == "constant", "--normalisation constant"),
        (("cap",), objective.correction not in ("none", "clip"),
         "--correction truncated, token or sequence"),
        (("clip_low", "clip_high", "dual_clip"), objective.correction != "truncated",
         "every --correction but truncated"),
        (("pool", "redis_url", "wait"), served, "--publish and --loop"),
        (("profile",), served and ("redis_url" in given or URL_VARIABLE in os.environ),
         "--redis-url"),
    ):  # fmt: skip
        for name in names:
            if name in given and not heeded:
                option = f"--{name.replace('_', '-')}"
                raise TrainingError(
                    f"{option} only applies with {of}: add that, or leave {option} out"
                )


def _given(context: typer.Context) -> list[str]:
    """The parameters that the command line names."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]


def _begins(named: list[str]) -> dict[str, dict[str, str]]:
    from loopline.runtime.config.key_value_options import key_value_texts
    from loopline.trainers.core.network import base_folder
    from loopline.workers.engines.local.adapter_base import weights_sha256

    folders = key_value_texts("--begin", named, form="POLICY=FOLDER", example="coder=out/coder")
    return {
        policy: {"model": model, "sha256": weights_sha256(base_folder(model))}
        for policy, model in folders.items()
    }


_OPTIONS = {"limit": "completion-limit", "agents": "agent"}


def _settings(chosen: dict[str, object]) -> GrpoSettings:
    from pydantic import ValidationError

    from loopline.trainers.grpo.settings import GrpoSettings

    try:
        return GrpoSettings.model_validate(chosen)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = [str(each) for each in first["loc"] if each not in ("objective", "reward")]
        option = _OPTIONS.get(place[0], place[0]).replace("_", "-")
        raise TrainingError(f"--{option} {first['input']!r}: {first['msg']}") from error


def _say_skipped(data: GrpoData) -> None:
    typer.echo(
        f"{counted(len(data.groups), 'group')} of {counted(len(data.runs), 'run')}", err=True
    )
    for reason, count in data.skipped.items():
        typer.echo(f"left out: {count:,} × {reason}, such as {data.example(reason)}", err=True)
    if len(set(data.oldest.values())) > 1:
        listed = ", ".join(f"{name} {version:,}" for name, version in data.oldest.items())
        typer.echo(
            "warning: the groups begin at different versions of their policies "
            f"({listed}), and a training counts the versions of all of them as one. If the "
            "policies began at different numbers, samples of the higher one pass for newer than "
            "they are, and this is no replay of the loop that recorded them: train the agents of "
            "one policy at a time (--agent), each with its own --base-version",
            err=True,
        )
    if len(data.bases) > 1:
        listed = ", ".join(f"{counted(n, 'group')} of {base}" for base, n in data.bases.items())
        typer.echo(
            f"warning: the groups were sampled by several base models ({listed}). All are learned "
            "from as if --base had sampled them; for the runs of one alone, record those of each "
            "into a store of its own",
            err=True,
        )


class _Shown(ShownProgress):
    """A bar of steps."""

    def __init__(self, *, seen: bool) -> None:
        before = "step {task.completed}/{task.total}"
        super().__init__(before, "{task.fields[said]}", seen=seen)

    def progress(self, now: Progress) -> None:
        said = "  ".join(
            f"{name}: loss {each.loss:+.4f} reward {each.reward:.3f} "
            f"zero-variance {each.flat / (each.flat + each.groups):.0%} "
            f"ESS {each.effective_samples:.2f} KL {each.behind:.1e}"
            for name, each in now.facts.policies.items()
        )
        self.line(f"step {now.step}/{now.steps}  {said}")
        self.bar("steps", now.step, now.steps, said)

    def checkpoint(self, step: int) -> None:
        self.line(f"checkpoint at step {step}")


def table(report: Report) -> Table:
    """A column for each policy, a line for each figure: narrow enough for 80 columns."""
    from loopline.runtime.terminal.tables import figures
    from loopline.trainers.grpo.page import policy_table
    from loopline.trainers.grpo.report import summaries

    head, rows = policy_table(summaries(report.steps))
    first, *names = zip(head, *rows, strict=True)
    made = figures(*first, words=(head[0],))
    for line in names:
        made.add_row(*line)
    return made


def _show(report: Report, output: Path) -> None:
    from rich.console import Console

    from loopline.trainers.grpo.page import PAGE

    Console(highlight=False, width=None if sys.stdout.isatty() else 140).print(table(report))
    cut = f"{report.truncated:,} with nothing but cut completions, " if report.truncated else ""
    typer.echo(
        f"version {report.settings.base_version} → {report.version}; "
        f"{counted(report.groups, 'group')} of {counted(report.runs, 'run')}, "
        f"{report.flat:,} with all rewards the same, {cut}{report.stale:,} too old; "
        f"{report.trained_parameters:,} of {report.parameters:,} parameters, "
        f"{report.peak_memory_mb:,.0f} MB, {report.seconds / 60:.1f} minutes; "
        f"policies in {output / 'policies'}, curves in {output / PAGE}"
    )


def _last_line(report: Report) -> dict[str, object]:
    from loopline.trainers.grpo.report import summaries

    return {
        "version": report.version,
        "steps": len(report.steps),
        "runs": report.runs,
        "groups": report.groups,
        "zero_variance_groups": report.flat,
        "truncated_groups": report.truncated,
        "stale_groups": report.stale,
        "skipped": report.skipped,
        "minutes": round(report.seconds / 60, 3),
        "policies": {name: row.model_dump() for name, row in summaries(report.steps).items()},
    }
