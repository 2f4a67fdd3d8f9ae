"""The questions of a loop whose rounds do not generate their own, its held-out questions, and the
check of its answers, which stay in this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from loopline.agents.errors import AgentError, InvalidOptions
from loopline.agents.records import JsonObject, Outcome, Trajectory
from loopline.agents.workflows import prompt_hashes, prompts_of, workflows
from loopline.trainers.data.data_files import local_file
from loopline.trainers.data.questions import (
    Question,
    Questions,
    fault,
    from_file,
    from_tasks,
    generate_questions,
    puzzles,
)
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.loop.generators import DATASETS, PAIR, dataset_of
from loopline.trainers.grpo.loop.levels import game_of, read_levels, share_out
from loopline.trainers.grpo.loop.run_directory import PlannedRun
from loopline.trainers.grpo.loop.settings import QuestionFile

if TYPE_CHECKING:
    from loopline.runtime.config.settings import Settings
    from loopline.trainers.data.task_files import TaskFile
    from loopline.trainers.grpo.loop.options import LoopOptions

LOOK_SEED = 1
"""Seed of held-out tasks: trainings with other seeds are evaluated on the same ones."""
JUDGED_OUTCOMES = frozenset({Outcome.ANSWERED, Outcome.GAVE_UP})
"""Outcomes of a finished run that has not been judged yet."""


def questions_of(options: LoopOptions, file: TaskFile | None) -> Questions | None:
    """Both parts of a file. For a generator, which draws new questions for each round, only the
    held-out part. None if neither is needed. Raises `TrainingError`, `UnreadableData`."""
    held_out = options.held_out if options.look_every else 0
    if file is not None and options.tasks is not None:
        path = local_file(options.tasks)
        if not held_out:
            everything = tuple(
                Question(id=str(at), task=task) for at, task in enumerate(file.tasks)
            )
            return Questions(path.name, "judge", everything, ())
        return from_tasks(path, file, held_out)
    if options.questions is not None:
        return from_file(local_file(options.questions), held_out)
    if not held_out:
        return None
    if options.level:
        return _held_out_levels(options, held_out)
    if options.workflow != PAIR:
        if options.env is None:
            return None  # the settings refuse this
        dataset, split, domains = DATASETS[options.env], options.split, options.domain
        return generate_questions(dataset, LOOK_SEED, 0, held_out, split, domains)
    if options.game is None:
        return None
    from loopline.agents.environments.registry import find

    try:
        game = find(options.game)
    except AgentError as error:
        raise TrainingError(f"--game {options.game}: {error}") from error
    return puzzles(
        game, size=options.size, difficulty=options.difficulty, setting=options.setting,
        seed=LOOK_SEED, train=0, held_out=held_out,
    )  # fmt: skip


def _held_out_levels(options: LoopOptions, count: int) -> Questions:
    """Held-out questions, distributed over the levels by their weights. Raises `TrainingError`."""
    try:
        levels = read_levels(options.level)
        parts = share_out(count, {level.name: level.weight for level in levels}, "held out")
        tasks: list[Question] = []
        for level in levels:
            if options.workflow != PAIR:
                drawn = generate_questions(
                    dataset_of(level.source), LOOK_SEED, 0, parts[level.name]
                )
            else:
                game, _ = game_of(level, options.setting)
                drawn = puzzles(
                    game, size=level.size, difficulty=level.difficulty, setting=options.setting,
                    seed=LOOK_SEED, train=0, held_out=parts[level.name],
                )  # fmt: skip
            tasks += drawn.held_out
    except InvalidOptions as error:
        raise TrainingError(str(error)) from error
    except KeyError as error:
        raise TrainingError(f"--level: there is no generator of questions {error}") from error
    return Questions(", ".join(options.level), "puzzle", (), tuple(tasks))


def question_file(options: LoopOptions, questions: Questions | None) -> QuestionFile | None:
    """The record of a question file for the settings."""
    if options.questions is None or questions is None:
        return None
    return QuestionFile(sha256=questions.sha256, count=len(questions.train))


def played_prompts(
    workflow: str, played: Iterable[str | None], options: JsonObject, deployed: Settings
) -> dict[str, str]:
    """Content hashes of the deployment's prompt files, by name, for all environments that are
    played."""
    hashes: dict[str, str] = {}
    for environment in played:
        prompts = prompts_of(workflow, environment, options)
        files = {name: text for name, text in deployed.prompt_files.items() if name in prompts}
        hashes |= prompt_hashes(workflow, files, environment, options)
    return hashes


def resolved_options(options: LoopOptions, deployed: Settings) -> JsonObject:
    """All options of a workflow other than `pair`: those of the command override those of the
    deployment. The caller of `umi` writes freely unless an option says otherwise, since nothing can
    be learned from tokens that a grammar has constrained. Raises `TrainingError`, `UnknownName`."""
    if options.workflow == PAIR:
        return {}
    merged = {**deployed.options.get(options.workflow, {})}
    if options.workflow == "umi" and (not options.agents or "umi_caller" in options.agents):
        merged["constrained"] = False
    try:
        return workflows.get(options.workflow).check_options({**merged, **options.option})
    except InvalidOptions as error:
        raise TrainingError(f"--option: {error}") from error


def judged(
    planned: Sequence[PlannedRun], trajectories: Iterable[Trajectory]
) -> tuple[Trajectory, ...]:
    """The runs with the checker's verdict: solved or failed, and the team's reward for it. A run
    that was broken off stays unchanged."""
    return tuple(
        _judged(run, trajectory) for run, trajectory in zip(planned, trajectories, strict=True)
    )


def _judged(planned: PlannedRun, trajectory: Trajectory) -> Trajectory:
    if trajectory.outcome not in JUDGED_OUTCOMES:
        return trajectory
    question = Question(id=planned.id, task=planned.task, gold=planned.gold)
    wrong = fault(question, trajectory)
    verdict = {"outcome": Outcome.FAILED, "reason": wrong} if wrong else {"outcome": Outcome.SOLVED}
    return trajectory.model_copy(update={**verdict, "team_reward": float(not wrong)})
