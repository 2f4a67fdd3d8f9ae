"""The `train` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopline.runtime.program import program, run
from loopline.runtime.terminal.pluralize import counted
from loopline.trainers.core.interruption import stoppable
from loopline.trainers.data.command import data
from loopline.trainers.data.worlds_command import worlds
from loopline.trainers.errors import TrainingError
from loopline.trainers.glpft.command import glpft
from loopline.trainers.grpo.command import grpo
from loopline.trainers.prompts.command import prompts

if TYPE_CHECKING:
    from loopline.trainers.sft.evaluation import Skill

app = program("train", "Train models and measure their skill.")
app.command()(data)
app.command()(worlds)
app.command()(glpft)
app.command()(grpo)
app.command()(prompts)


@app.command()
def sft(
    model: Annotated[str, typer.Argument(help="Recipe: micro-llm or micro-slm.")],
    output: Annotated[Path, typer.Option(help="Folder for checkpoints and the finished model.")],
    steps: Annotated[int | None, typer.Option(min=1, help="Steps instead of the recipe's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed instead of the recipe's.")] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Dialogues per step instead of the recipe's.")
    ] = None,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 200,
    samples: Annotated[int, typer.Option(min=0, help="Problems per split to measure on.")] = 200,
    restart: Annotated[bool, typer.Option(help="Forget what is in the folder.")] = False,
) -> None:
    """Train a micro model from scratch on generated dialogues. Measures it and writes its card.

    Run it again to go on after a crash or Ctrl-C; what is finished is not done again.
    """
    from loopline.trainers.core.output_lock import locked
    from loopline.trainers.sft.evaluation import read_skills
    from loopline.trainers.sft.recipes import recipe
    from loopline.trainers.sft.training import Progress, train

    chosen = recipe(model)
    changes = {"steps": steps, "seed": seed, "batch": batch}
    chosen = chosen.model_copy(update={k: v for k, v in changes.items() if v is not None})

    def show(progress: Progress) -> None:
        typer.echo(
            f"step {progress.step}/{chosen.steps}  loss {progress.loss:.4f}  "
            f"{progress.tokens_per_second:,.0f} tokens/s"
        )

    with stoppable(), locked(output):
        facts = train(
            chosen,
            output,
            restart=restart,
            checkpoint_every=checkpoint_every,
            on_progress=show,
            on_checkpoint=lambda step: typer.echo(f"checkpoint at step {step}"),
            say=typer.echo,
        )
    typer.echo(
        f"{model}: {counted(facts.steps, 'step')}, {facts.tokens:,} tokens, "
        f"{facts.seconds / 60:.1f} minutes; last loss {facts.last_loss:.4f}; model in {output}"
    )
    if samples:
        is_llm = model == "micro-llm"
        known = [skill for skill in read_skills(output) if skill.asked >= samples]
        _measure(output if is_llm else None, None if is_llm else output, samples, known=known)


@app.command("eval")
def evaluate(
    llm: Annotated[Path | None, typer.Option(help="Folder of a micro-LLM.")] = None,
    slm: Annotated[Path | None, typer.Option(help="Folder of a micro-SLM.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Problems per split.")] = 500,
    record: Annotated[bool, typer.Option(help="Write skills and card into the folders.")] = False,
) -> None:
    """Measure models on the held-out splits. With both, also the delegate dialogue."""
    if llm is None and slm is None:
        raise TrainingError("nothing to measure: give --llm, --slm or both")
    _measure(llm, slm, samples, record=record)


@app.command()
def export(
    model: Annotated[
        str, typer.Argument(help="Folder of a model or a LoRA adapter, micro:llm or micro:slm.")
    ],
    gguf: Annotated[Path, typer.Option(help="The file to write, for llama.cpp.")],
    precision: Annotated[
        str, typer.Option(metavar="f32|f16|bf16|q8_0|q4_k_m", help="Of a model's matrices.")
    ] = "f16",
    base: Annotated[str | None, typer.Option(help="Of an adapter: the model it is for.")] = None,
) -> None:
    """Write a model or an adapter into one GGUF file. A model comes with its tokenizer and chat
    template."""
    from loopline.trainers.export.gguf import export_gguf, export_gguf_adapter
    from loopline.trainers.export.precision import Precision
    from loopline.workers.engines.local.model_files import local_folder
    from loopline.workers.engines.protocol import EngineError

    if precision not in set(Precision):
        raise TrainingError(f"--precision is one of {', '.join(Precision)}; got {precision!r}")
    try:
        folder, base_folder = local_folder(model), None if base is None else local_folder(base)
    except EngineError as error:
        raise TrainingError(str(error)) from error
    if gguf.is_dir():
        raise TrainingError(f"--gguf {gguf} is a folder: name the file to write")
    if (folder / "adapter_config.json").is_file():
        if base_folder is None:
            raise TrainingError(f"{folder} is an adapter: name its model by --base")
        export_gguf_adapter(folder, base_folder, gguf)
    else:
        export_gguf(folder, gguf, Precision(precision))
    typer.echo(f"{gguf}: {gguf.stat().st_size / 1e6:.1f} MB")


def _measure(
    llm: Path | None,
    slm: Path | None,
    samples: int,
    *,
    record: bool = True,
    known: Sequence[Skill] = (),
) -> None:
    """Measure what is not `known` yet, and show all of it."""
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
        if (task, calculator, split) not in {skill.key for skill in known}
    ]
    measured: list[Skill] = []
    if left:
        big = load_model(llm) if llm else None
        small = load_model(slm) if slm else None
        typer.echo(f"measuring on {counted(samples, 'problem')} per split…", err=True)
        for task, calculator, split in left:
            skill = measure(task, split, samples=samples, calculator=calculator, llm=big, slm=small)
            measured.append(skill)
            typer.echo(f"{skill.title}: {skill.shown()}", err=True)
    else:
        typer.echo("measured already; `train eval` measures again", err=True)
    _show([*known, *measured])
    if record:
        for folder, own in ((llm, "llm"), (slm, "slm")):
            if folder is not None:
                mine = [s for s in measured if s.task.startswith((own, "delegate"))]
                add_skills(folder, mine)
                write_card(folder)


def _show(skills: Sequence[Skill]) -> None:
    """A table to read on a terminal, Markdown elsewhere."""
    from loopline.trainers.sft.evaluation import markdown, table

    if sys.stdout.isatty():
        from rich.console import Console

        Console(highlight=False).print(table(skills))
    else:
        typer.echo(markdown(skills))


def main() -> None:
    """Entry point."""
    run(app)


if __name__ == "__main__":
    main()
