"""`train sft` and `train eval`: train micro models and measure their skills."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.core.interruption import exit_on_interrupt
from loopline.trainers.core.output_folder import state_of_folder
from loopline.trainers.sft import session_command as sessions

if TYPE_CHECKING:
    from loopline.trainers.sft.evaluation import Skill
    from loopline.trainers.sft.options import EvalOptions, SftOptions


def preview(options: SftOptions) -> list[str]:
    """The plan of a training, which `--dry-run` prints."""
    from loopline.trainers.sft.card import FACTS

    if options.from_store is not None or options.data is not None:
        return sessions.preview(options)
    recipe, output = options.recipe(), options.output
    begun = FACTS if (output / FACTS).exists() else "checkpoint-*"
    return [
        f"trains {recipe.name} for {format_count(recipe.steps, 'step')} of {recipe.batch:,} "
        "dialogues",
        state_of_folder(output, begun, ".", FACTS, restart=options.restart),
    ]


def sft(options: SftOptions) -> None:
    """Train a micro model from scratch, or a model on dialogues.

    From scratch, a micro model learns from generated dialogues, is measured, and its card is
    written. With --from-store a model learns from recorded sessions, with --data from a file of
    dialogues. After a crash or Ctrl-C, run it again to continue; finished work is not repeated.
    """
    if options.from_store is not None:
        sessions.train_on_sessions(options, options.from_store)
        return
    if options.data is not None:
        sessions.train_on_dialogues(options, options.data)
        return
    from loopline.trainers.core.output_folder import lock_output
    from loopline.trainers.sft.evaluation import read_skills
    from loopline.trainers.sft.training import Progress, train

    recipe, output, samples = options.recipe(), options.output, options.samples

    def show(progress: Progress) -> None:
        typer.echo(
            f"step {progress.step}/{recipe.steps}  loss {progress.loss:.4f}  "
            f"{progress.tokens_per_second:,.0f} tokens/s"
        )

    with exit_on_interrupt(), lock_output(output):
        facts = train(
            recipe,
            output,
            restart=options.restart,
            checkpoint_every=options.checkpoint_every,
            on_progress=show,
            on_checkpoint=lambda step: typer.echo(f"checkpoint at step {step}"),
            say=typer.echo,
            trackers=options.trackers,
        )
    typer.echo(
        f"{recipe.name}: {format_count(facts.steps, 'step')}, {facts.tokens:,} tokens, "
        f"{facts.seconds / 60:.1f} minutes; last loss {facts.last_loss:.4f}; model in {output}"
    )
    if samples:
        is_llm = recipe.name == "micro-llm"
        previous_skills = [skill for skill in read_skills(output) if skill.asked >= samples]
        _measure(
            output if is_llm else None,
            None if is_llm else output,
            samples,
            previous_skills=previous_skills,
        )


def evaluate(options: EvalOptions) -> None:
    """Measure models on the held-out splits. With both, also measure the delegate dialogue."""
    _measure(options.llm, options.slm, options.samples, record=options.record)


def _measure(
    llm: Path | None,
    slm: Path | None,
    samples: int,
    *,
    record: bool = True,
    previous_skills: Sequence[Skill] = (),
) -> None:
    """Measure the skills that are not in `previous_skills`, and show all of them."""
    from loopline.trainers.core.models import load_model
    from loopline.trainers.sft.card import write_card
    from loopline.trainers.sft.evaluation import Task, add_skills, measure, splits

    both: tuple[tuple[Task, bool], ...] = (("delegate", True), ("delegate", False))
    of_big: tuple[tuple[Task, bool], ...] = (
        ("llm", True), ("llm", False), ("llm_sub_tasks", True), ("llm_sub_tasks", False),
    )  # fmt: skip
    of_small: tuple[tuple[Task, bool], ...] = (
        ("slm_sub_tasks", True), ("slm_sub_tasks", False), ("slm", True), ("slm", False),
    )  # fmt: skip
    tasks: list[tuple[Task, bool]] = [
        *(both if llm and slm else ()), *(of_big if llm else ()), *(of_small if slm else ()),
    ]  # fmt: skip
    left: list[tuple[Task, bool, str]] = [
        (task, calculator, split)
        for task, calculator in tasks
        for split in splits()
        if (task, calculator, split) not in {skill.key for skill in previous_skills}
    ]
    measured: list[Skill] = []
    if left:
        big = load_model(llm) if llm else None
        small = load_model(slm) if slm else None
        typer.echo(f"measuring on {format_count(samples, 'problem')} per split…", err=True)
        for task, calculator, split in left:
            skill = measure(task, split, samples=samples, calculator=calculator, llm=big, slm=small)
            measured.append(skill)
            typer.echo(f"{skill.title}: {skill.shown()}", err=True)
    else:
        typer.echo("measured already; `train eval` measures again", err=True)
    _show([*previous_skills, *measured])
    if record:
        for folder, prefix in ((llm, "llm"), (slm, "slm")):
            if folder is not None:
                mine = [s for s in measured if s.task.startswith((prefix, "delegate"))]
                add_skills(folder, mine)
                write_card(folder)


def _show(skills: Sequence[Skill]) -> None:
    """A table for a terminal, or Markdown otherwise."""
    from loopline.trainers.sft.evaluation import markdown, table

    if sys.stdout.isatty():
        from rich.console import Console

        Console(highlight=False).print(table(skills))
    else:
        typer.echo(markdown(skills))
