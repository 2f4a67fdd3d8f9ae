"""From what the command line says to a search that can begin: everything that cannot be meant is
named before a run is paid for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from loopline.agents.environments.environment import AnyEnvironment
from loopline.agents.environments.registry import DEFAULT, find
from loopline.agents.errors import PluginError, UnknownName
from loopline.agents.prompts import replacement
from loopline.agents.records import JsonObject
from loopline.agents.roles import roles
from loopline.agents.workflows import (
    agents_of,
    offers_tools,
    policies_for,
    prompts_of,
    serving_role,
    workflows,
)
from loopline.agents.workflows.pair import PairWorkflow
from loopline.bus import pool_of
from loopline.runtime.config.settings import Settings
from loopline.trainers.data.task_files import JUDGED, TaskFile, read_tasks
from loopline.trainers.errors import TrainingError
from loopline.trainers.prompts.candidates import Candidate, in_force, read_variants
from loopline.trainers.prompts.questions import (
    Dataset,
    Questions,
    from_file,
    from_tasks,
    generated,
    puzzles,
)
from loopline.trainers.prompts.search import questions_needed
from loopline.trainers.prompts.settings import CandidateFile, SearchSettings

_DRAWS = {"candidates", "temperature", "adaptive"}
"""Options of `pair` that have a meaning where answers are drawn."""


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    workflow: str
    prompts: tuple[str, ...]
    variants: tuple[Path, ...]
    dataset: str | None
    game: str | None
    size: int | None
    difficulty: JsonObject
    setting: JsonObject
    data: Path | None
    tasks: Path | None
    options: JsonObject
    policies: Mapping[str, str]
    limits: Mapping[str, object]
    """Of `SearchSettings`: runs, tokens, held_out, alpha, propose, proposer, seed, run_seconds."""


@dataclass(frozen=True)
class Prepared:
    """A search that can begin."""

    settings: SearchSettings
    questions: Questions
    candidates: dict[str, list[Candidate]]
    files: dict[str, str]
    """The deployment's own prompt files for the workflow."""


def prepared(asked: Asked, deployment: Settings) -> Prepared:
    """Raises `TrainingError`, and `AgentError` for names that nobody knows."""
    _require_one_source(asked)
    _require_playable(asked)
    tasks = _tasks(asked, deployment)
    game = _game(asked)
    environment = game.key if game else tasks.about.environment if tasks else None
    shipped = prompts_of(asked.workflow, environment)
    known = agents_of(asked.workflow, environment)
    playing = _playing(asked, tasks, game)
    files = {file: text for file, text in deployment.prompt_files.items() if file in shipped}
    candidates = _candidates(asked, playing, game, files)
    proposer = asked.limits["proposer"]
    policies = policies_for(
        asked.workflow,
        {
            **{role: policy for role, policy in deployment.policies.items() if role in known},
            **asked.policies,
        },
        environment,
    )
    _require_proposer(asked)
    models = _models([*policies.values(), *([str(proposer)] if proposer else [])], deployment)
    serving = dict.fromkeys(serving_role(asked.workflow, agent) for agent in playing)
    _require_workers([*serving, *(["completion"] if proposer else [])], deployment)
    options = workflows.get(asked.workflow).check_options(_options(asked, deployment))
    try:
        settings = SearchSettings.model_validate(
            {
                "workflow": asked.workflow,
                "options": options,
                "policies": policies,
                "models": models,
                "prompts": {
                    name: tuple(CandidateFile(label=one.label, hash=one.hash) for one in each)
                    for name, each in candidates.items()
                },
                "others": {
                    file: replacement(text, shipped[file].name, origin=file).hash
                    for file, text in files.items()
                    if shipped[file].name not in candidates
                },
                "source": "",
                "questions_sha256": "",
                **asked.limits,
            }
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = ".".join(map(str, first["loc"])).replace("_", "-")
        raise TrainingError(f"--{option} {first['input']!r}: {first['msg']}") from error
    questions = _questions(asked, tasks, game, settings)
    settings = settings.model_copy(
        update={"source": questions.source, "questions_sha256": questions.sha256}
    )
    return Prepared(settings, questions, candidates, files)


def _options(asked: Asked, deployment: Settings) -> JsonObject:
    """Of the workflow. A team plays greedily, as benches measure it, unless something else is asked
    for: of K answers the judge plays the best one, so that prompts would be searched for it too."""
    greedy = asked.workflow == PairWorkflow.name and not _DRAWS & asked.options.keys()
    begin: JsonObject = {"greedy": True} if greedy else {}
    return {**begin, **deployment.options.get(asked.workflow, {}), **asked.options}


def _require_one_source(asked: Asked) -> None:
    given = [
        option
        for option, value in (
            ("--dataset", asked.dataset), ("--game", asked.game), ("--data", asked.data),
            ("--tasks", asked.tasks),
        )
        if value is not None
    ]  # fmt: skip
    if len(given) > 1:
        raise TrainingError(f"{given[0]} and {given[1]} name different questions: give one")


def _require_playable(asked: Asked) -> None:
    """Raises `TrainingError` for questions that no run of the workflow could solve."""
    pair = asked.workflow == PairWorkflow.name
    if asked.game is not None and not pair:
        raise TrainingError(
            f"--game: {asked.workflow!r} plays no puzzles: give --workflow {PairWorkflow.name}"
        )
    if pair and (asked.dataset is not None or asked.data is not None):
        option = "--data" if asked.dataset is None else "--dataset"
        raise TrainingError(
            f"{option}: {asked.workflow!r} answers no questions: give --game or --tasks"
        )
    if asked.dataset == "worlds" and not offers_tools(asked.workflow):
        raise TrainingError(
            f"--dataset worlds: the workflow {asked.workflow!r} offers its models no tools of a "
            "task: give --workflow umi"
        )


def _playing(asked: Asked, tasks: TaskFile | None, game: AnyEnvironment | None) -> Sequence[str]:
    """Who acts in its runs: of `pair`, which has many teams, one alone."""
    if tasks is not None:
        return tasks.about.team
    if game is not None:
        return [spec.name for spec in game.agents]
    return workflows.get(asked.workflow).roles


def _tasks(asked: Asked, deployment: Settings) -> TaskFile | None:
    """The file, where one is played. Raises `TrainingError` where nobody could play it."""
    if asked.tasks is None:
        return None
    if asked.workflow != PairWorkflow.name:
        raise TrainingError(
            f"--tasks: {asked.workflow!r} plays no tasks of a team: give --workflow "
            f"{PairWorkflow.name}"
        )
    found = read_tasks(asked.tasks)
    # Its runs would wait until their deadline.
    if found.about.environment in JUDGED and "judge" not in deployment.workers:
        raise TrainingError(
            "--tasks: no worker of the deployment judges what the team hands in; give its profile "
            "[workers.judge]"
        )
    return found


def _candidates(
    asked: Asked,
    playing: Sequence[str],
    game: AnyEnvironment | None,
    files: Mapping[str, str],
) -> dict[str, list[Candidate]]:
    if game is None:
        read = [
            prompt
            for agent in playing
            for prompt in roles.get(serving_role(asked.workflow, agent)).prompts
        ]
    else:
        # An agent may have a prompt for calls and one for programs, and reads one of them.
        by_program = bool(asked.setting.get("python"))
        read = [game.prompt(spec, by_program=by_program) for spec in game.agents]
    shipped = {prompt.name: prompt for prompt in read}
    for name in asked.prompts:
        if name not in shipped:
            pair = asked.workflow == PairWorkflow.name
            who = "the team that plays" if pair else f"the workflow {asked.workflow!r}"
            raise TrainingError(
                f"--prompt {name}: {who} has no such prompt; it has: {', '.join(shipped)}"
            )
    variants = read_variants(asked.variants, asked.prompts or shipped)
    chosen = asked.prompts or tuple(
        name for name in shipped if name in variants or asked.limits["propose"]
    )
    found: dict[str, list[Candidate]] = {}
    for name in chosen:
        current = in_force(shipped[name], files.get(f"{name}.md"))
        others = [one for one in variants.get(name, []) if one.prompt.text != current.prompt.text]
        if not others and not asked.limits["propose"]:
            if name in asked.prompts:
                raise TrainingError(
                    f"--prompt {name}: there is no candidate beside the prompt in force: give a "
                    "file of another text by --variants, or let a model write some by --propose"
                )
            continue
        found[name] = [current, *others]
    if not found:
        raise TrainingError(
            "there is no candidate beside the prompts in force: give files of other texts by "
            "--variants, or let a model write some by --propose N --proposer POLICY"
        )
    return found


def _game(asked: Asked) -> AnyEnvironment | None:
    """Whose puzzles are generated, where no other questions are named. Raises `TrainingError`."""
    others = asked.tasks or asked.data or asked.dataset
    plays = asked.workflow == PairWorkflow.name and others is None
    name = DEFAULT if plays and asked.game is None else asked.game
    try:
        return None if name is None else find(name)
    except (UnknownName, PluginError) as error:
        raise TrainingError(f"--game {name}: {error}") from error


def _require_proposer(asked: Asked) -> None:
    propose, proposer = asked.limits["propose"], asked.limits["proposer"]
    if propose and not proposer:
        raise TrainingError("--propose: who writes them? Name a policy by --proposer, as in llm")
    if proposer and not propose:
        raise TrainingError("--proposer: how many shall it write? Say so by --propose N")


def _models(policies: Sequence[str], deployment: Settings) -> dict[str, str]:
    found: dict[str, str] = {}
    for policy in policies:
        pool = pool_of(policy)
        if pool not in deployment.models:
            raise TrainingError(
                f"the deployment has no pool {pool!r} for the policy {policy!r}; it has: "
                f"{', '.join(deployment.models) or 'none'}"
            )
        model = deployment.models[pool]
        # A path would name this machine; its last part says which weights.
        name = Path(model.model).name if os.path.isabs(model.model) else model.model
        found[pool] = f"{model.engine}:{name}"
    return found


def _require_workers(roles: Sequence[str], deployment: Settings) -> None:
    """Runs whose role nobody takes would wait until their deadline."""
    taken = {role for worker in deployment.workers.values() for role in worker.roles}
    for role in roles:
        if role not in taken:
            raise TrainingError(
                f"no worker of the deployment takes the role {role!r} (they take: "
                f"{', '.join(sorted(taken)) or 'none'}); give a worker of its profile that role"
            )


def _questions(
    asked: Asked,
    tasks: TaskFile | None,
    game: AnyEnvironment | None,
    settings: SearchSettings,
) -> Questions:
    needed = questions_needed(settings)
    path, held_out = asked.tasks or asked.data, settings.held_out
    if game is None and (asked.size is not None or asked.difficulty or asked.setting):
        raise TrainingError(
            "--size, --difficulty and --setting are of generated puzzles: name a --game, or leave "
            "them away"
        )
    if path is not None:
        found = from_tasks(path, tasks, held_out) if tasks else from_file(path, held_out)
        return _enough(found, path, settings, needed)
    if game is not None:
        return puzzles(
            game,
            size=asked.size,
            difficulty=asked.difficulty,
            setting=asked.setting,
            seed=settings.seed,
            train=needed,
            held_out=held_out,
        )
    dataset = asked.dataset
    if dataset is None:
        dataset = "worlds" if offers_tools(asked.workflow) else "wordproblems"
    return generated(_dataset(dataset), settings.seed, needed, held_out)


def _enough(questions: Questions, path: Path, settings: SearchSettings, needed: int) -> Questions:
    """The questions of a file. Raises `TrainingError` where they are too few."""
    there, kept = len(questions.train), len(questions.held_out)
    if there < needed:
        raise TrainingError(
            f"--runs {settings.runs:,}: the search would ask {needed:,} questions, and {path} has "
            f"{there:,} for it; take fewer runs (about {settings.runs * there // needed:,})"
        )
    if kept < settings.held_out:
        raise TrainingError(
            f"--held-out {settings.held_out:,}: {path} has {kept:,} questions to hold out; take "
            "as many, or more data"
        )
    return questions


def _dataset(name: str) -> Dataset:
    match name:
        case "worlds" | "wordproblems":
            return name
        case _:
            raise TrainingError(
                f"--dataset {name!r}: there is no such data set; there are: worlds, wordproblems, "
                "and files by --data"
            )
