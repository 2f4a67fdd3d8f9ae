"""Turns the command line into a search that is ready to start: every impossible combination is
reported before a run is paid for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.environments.environment import AnyEnvironment
from loopline.agents.environments.registry import DEFAULT, find
from loopline.agents.errors import PluginError, UnknownName
from loopline.agents.prompts import Prompt, parse_replacement_prompt
from loopline.agents.records import JsonObject
from loopline.agents.roles import roles
from loopline.agents.workflows import (
    ChoosingPrompts,
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
from loopline.trainers.data.data_files import local_file
from loopline.trainers.data.questions import (
    Questions,
    from_file,
    from_tasks,
    generate_questions,
    puzzles,
)
from loopline.trainers.data.task_files import JUDGED, TaskFile, read_tasks
from loopline.trainers.errors import TrainingError
from loopline.trainers.prompts.candidates import Candidate, current_candidate, read_variants
from loopline.trainers.prompts.options import PromptsOptions
from loopline.trainers.prompts.search import questions_needed
from loopline.trainers.prompts.settings import CandidateFile, SearchOptions, SearchSettings

_DRAWS = {"candidates", "temperature", "adaptive"}
"""Options of `pair` that matter only if answers are sampled."""


@dataclass(frozen=True)
class PreparedSearch:
    """A search that is ready to start."""

    settings: SearchSettings
    questions: Questions
    candidates: dict[str, list[Candidate]]
    files: dict[str, str]
    """The deployment's own prompt files for the workflow."""


def prepare_search(request: PromptsOptions, deployment: Settings) -> PreparedSearch:
    """Prepare a search. Raises `TrainingError`, and `AgentError` for unknown names."""
    _require_one_source(request)
    _require_playable(request)
    tasks = _tasks(request, deployment)
    game = _game(request)
    environment = game.key if game else tasks.about.environment if tasks else None
    options = workflows.get(request.workflow).check_options(_options(request, deployment))
    shipped = prompts_of(request.workflow, environment, options)
    agents = agents_of(request.workflow, environment)
    playing = _playing_roles(request, tasks, game)
    files = {file: text for file, text in deployment.prompt_files.items() if file in shipped}
    candidates = _candidates(request, playing, game, shipped, files)
    proposer = request.proposer
    policies = policies_for(
        request.workflow,
        {
            **{role: policy for role, policy in deployment.policies.items() if role in agents},
            **request.policies,
        },
        environment,
    )
    _require_proposer(request)
    models = _models([*policies.values(), *([proposer] if proposer else [])], deployment)
    serving = dict.fromkeys(serving_role(request.workflow, agent) for agent in playing)
    _require_workers([*serving, *(["completion"] if proposer else [])], deployment)
    settings = SearchSettings(
        **{name: getattr(request, name) for name in SearchOptions.model_fields},
        workflow=request.workflow,
        options=options,
        policies=policies,
        models=models,
        prompts={
            name: tuple(
                CandidateFile(label=candidate.label, hash=candidate.hash)
                for candidate in candidate_list
            )
            for name, candidate_list in candidates.items()
        },
        others={
            file: parse_replacement_prompt(text, shipped[file].name, origin=file).hash
            for file, text in files.items()
            if shipped[file].name not in candidates
        },
        source="",
        questions_sha256="",
    )
    questions = _questions(request, tasks, game, settings)
    settings = settings.model_copy(
        update={"source": questions.source, "questions_sha256": questions.sha256}
    )
    return PreparedSearch(settings, questions, candidates, files)


def _options(request: PromptsOptions, deployment: Settings) -> JsonObject:
    """Options of the workflow. By default a team plays greedily, as benches measure it: with K
    answers the judge executes the best one, so that the search would optimize prompts for K
    answers."""
    pair = request.workflow == PairWorkflow.name
    begin: JsonObject = {"greedy": True} if pair and not _DRAWS & request.options.keys() else {}
    if not pair and isinstance(workflows.get(request.workflow), ChoosingPrompts):
        # Its answers are compared with right ones: each answer must be in a box, on its own.
        begin["prompts"] = "mathematics"
    return {**begin, **deployment.options.get(request.workflow, {}), **request.options}


def _require_one_source(request: PromptsOptions) -> None:
    option_names = [
        option
        for option, value in (
            ("--dataset", request.dataset), ("--game", request.game), ("--data", request.data),
            ("--tasks", request.tasks),
        )
        if value is not None
    ]  # fmt: skip
    if len(option_names) > 1:
        raise TrainingError(
            f"{option_names[0]} and {option_names[1]} name different questions: give one"
        )


def _require_playable(request: PromptsOptions) -> None:
    """Raise `TrainingError` for questions that no run of the workflow could solve."""
    pair = request.workflow == PairWorkflow.name
    if request.game is not None and not pair:
        raise TrainingError(
            f"--game: {request.workflow!r} plays no puzzles: give --workflow {PairWorkflow.name}"
        )
    if pair and (request.dataset is not None or request.data is not None):
        option = "--data" if request.dataset is None else "--dataset"
        raise TrainingError(
            f"{option}: {request.workflow!r} answers no questions: give --game or --tasks"
        )
    if request.dataset == "worlds" and not offers_tools(request.workflow):
        raise TrainingError(
            f"--dataset worlds: the workflow {request.workflow!r} offers its models no tools of a "
            "task: give --workflow umi"
        )


def _playing_roles(
    request: PromptsOptions, tasks: TaskFile | None, game: AnyEnvironment | None
) -> Sequence[str]:
    """Roles that act in its runs. `pair` has many teams: there the questions or the game determine
    them."""
    if tasks is not None:
        return tasks.about.team
    if game is not None:
        return [spec.name for spec in game.agents]
    return workflows.get(request.workflow).roles


def _tasks(request: PromptsOptions, deployment: Settings) -> TaskFile | None:
    """The file of tasks, if one is played. Raises `TrainingError` if no team could play it."""
    if request.tasks is None:
        return None
    if request.workflow != PairWorkflow.name:
        raise TrainingError(
            f"--tasks: {request.workflow!r} plays no tasks of a team: give --workflow "
            f"{PairWorkflow.name}"
        )
    task_file = read_tasks(local_file(request.tasks))
    # Its runs would wait until their deadline.
    if task_file.about.environment in JUDGED and "judge" not in deployment.workers:
        raise TrainingError(
            "--tasks: no worker of the deployment judges the team's work; add [workers.judge] to "
            "its profile"
        )
    return task_file


def _candidates(
    request: PromptsOptions,
    playing: Sequence[str],
    game: AnyEnvironment | None,
    of_workflow: Mapping[str, Prompt],
    files: Mapping[str, str],
) -> dict[str, list[Candidate]]:
    if game is None:
        read = [
            of_workflow.get(prompt.file, prompt)
            for agent in playing
            for prompt in roles.get(serving_role(request.workflow, agent)).prompts
        ]
    else:
        # An agent may have a prompt for calls and one for programs, and reads one of them.
        by_program = bool(request.setting.get("python"))
        read = [game.prompt(spec, by_program=by_program) for spec in game.agents]
    shipped = {prompt.name: prompt for prompt in read}
    for name in request.prompts:
        if name not in shipped:
            pair = request.workflow == PairWorkflow.name
            who = "the team that plays" if pair else f"the workflow {request.workflow!r}"
            raise TrainingError(
                f"--prompt {name}: {who} has no such prompt; it has: {', '.join(shipped)}"
            )
    variants = read_variants(request.variants, request.prompts or shipped)
    prompt_names = request.prompts or tuple(
        name for name in shipped if name in variants or request.propose
    )
    candidates_by_prompt: dict[str, list[Candidate]] = {}
    for name in prompt_names:
        current = current_candidate(shipped[name], files.get(f"{name}.md"))
        others = [
            variant
            for variant in variants.get(name, [])
            if variant.prompt.text != current.prompt.text
        ]
        if not others and not request.propose:
            if name in request.prompts:
                raise TrainingError(
                    f"--prompt {name}: there is no candidate besides the current prompt: give "
                    "--variants a file with another text, or let a model write some with --propose"
                )
            continue
        candidates_by_prompt[name] = [current, *others]
    if not candidates_by_prompt:
        raise TrainingError(
            "there is no candidate besides the current prompts: give --variants files with other "
            "texts, or let a model write some with --propose N --proposer POLICY"
        )
    return candidates_by_prompt


def _game(options: PromptsOptions) -> AnyEnvironment | None:
    """The game whose puzzles are generated, if no other questions are given. Raises
    `TrainingError`."""
    others = options.tasks or options.data or options.dataset
    plays = options.workflow == PairWorkflow.name and others is None
    name = DEFAULT if plays and options.game is None else options.game
    try:
        return None if name is None else find(name)
    except (UnknownName, PluginError) as error:
        raise TrainingError(f"--game {name}: {error}") from error


def _require_proposer(request: PromptsOptions) -> None:
    propose, proposer = request.propose, request.proposer
    if propose and not proposer:
        raise TrainingError(
            "--propose needs a policy that writes the candidates: name one with --proposer, such "
            "as llm"
        )
    if proposer and not propose:
        raise TrainingError(
            "--proposer needs the number of candidates to write: set it with --propose N"
        )


def _models(policies: Sequence[str], deployment: Settings) -> dict[str, str]:
    model_by_pool: dict[str, str] = {}
    for policy in policies:
        pool = pool_of(policy)
        if pool not in deployment.models:
            raise TrainingError(
                f"the deployment has no pool {pool!r} for the policy {policy!r}; it has: "
                f"{', '.join(deployment.models) or 'none'}"
            )
        model = deployment.models[pool]
        # A full path would reveal this machine; its last part identifies the weights.
        name = Path(model.model).name if os.path.isabs(model.model) else model.model
        model_by_pool[pool] = f"{model.engine}:{name}"
    return model_by_pool


def _require_workers(roles: Sequence[str], deployment: Settings) -> None:
    """Raise `TrainingError` for a role that no worker serves: its runs would wait until their
    deadline."""
    worker_roles = {role for worker in deployment.workers.values() for role in worker.roles}
    for role in roles:
        if role not in worker_roles:
            raise TrainingError(
                f"no worker of the deployment takes the role {role!r} (they take: "
                f"{', '.join(sorted(worker_roles)) or 'none'}); give a worker of its profile "
                "that role"
            )


def _questions(
    request: PromptsOptions,
    tasks: TaskFile | None,
    game: AnyEnvironment | None,
    settings: SearchSettings,
) -> Questions:
    needed = questions_needed(settings)
    target, held_out = request.tasks or request.data, settings.held_out
    if game is None and (request.size is not None or request.difficulty or request.setting):
        raise TrainingError(
            "--size, --difficulty and --setting only apply to generated puzzles: name a --game, "
            "or leave them out"
        )
    if target is not None:
        path = local_file(target)
        questions = from_tasks(path, tasks, held_out) if tasks else from_file(path, held_out)
        return _require_enough(questions, path, settings, needed)
    if game is not None:
        return puzzles(
            game,
            size=request.size,
            difficulty=request.difficulty,
            setting=request.setting,
            seed=settings.seed,
            train=needed,
            held_out=held_out,
        )
    dataset = request.dataset
    if dataset is None:
        dataset = "worlds" if offers_tools(request.workflow) else "wordproblems"
    return generate_questions(dataset, settings.seed, needed, held_out)


def _require_enough(
    questions: Questions, path: Path, settings: SearchSettings, needed: int
) -> Questions:
    """The questions of a file. Raises `TrainingError` if there are too few."""
    there, held_out_count = len(questions.train), len(questions.held_out)
    if there < needed:
        raise TrainingError(
            f"--runs {settings.runs:,}: the search would ask {needed:,} questions, and {path} "
            f"only has {there:,} for it; use fewer runs (about "
            f"{settings.runs * there // needed:,})"
        )
    if held_out_count < settings.held_out:
        raise TrainingError(
            f"--held-out {settings.held_out:,}: {path} has {held_out_count:,} questions to hold "
            "out; lower --held-out, or use more data"
        )
    return questions
