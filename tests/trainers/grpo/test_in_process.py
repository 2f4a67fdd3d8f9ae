"""Rollouts in one process follow the rules of the workflow `pair`."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice

import pytest

from loopline.agents.environments.game import Agent
from loopline.agents.environments.plan_path.generation import stream
from loopline.agents.environments.plan_path.puzzle import open_episode
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.team_episode import AGENTS, TOOL
from loopline.agents.records import Message
from loopline.trainers.grpo.groups import Group
from loopline.trainers.grpo.vectorized_rollout import Prompter, evaluate
from loopline.workers.engine_runner import EnginePool, EngineRunner
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.text.chat_prompt import build_prompt
from loopline.workers.engines.torch.loading import LoadedModel

from .recorded import a_run
from .tiny_puzzles import GAME, PUZZLE, a_model, played, sampler_of


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return a_model(tmp_path_factory.mktemp("in_process") / "model")


def texts_of(group: Group, prompter: Prompter) -> list[str]:
    """The texts of its candidates."""
    texts: list[str] = []
    for member in group.members:
        (sequence,) = member.sequences
        ids = [
            token_id
            for token_id, is_learned in zip(sequence.ids, sequence.learned, strict=True)
            if is_learned
        ]
        if ids[-1] in prompter.loaded.end_ids:
            ids.pop()
        texts.append(prompter.loaded.codec.decode(ids))
    return texts


def test_a_prompt_equals_the_one_that_a_gpu_worker_makes(model: LoadedModel) -> None:
    for table in GAME.tables(Split.TRAIN, 1, 3):
        observation = table.episode.observe(TOOL)
        rendered = model.render([Message(role="user", content=observation)], [])
        expected = build_prompt(rendered, (), model.codec).ids
        assert Prompter(model).ids(observation) == expected


def test_each_grid_cell_and_each_move_is_one_token(model: LoadedModel) -> None:
    assert [
        model.codec.decode([token_id]) for token_id in model.codec.encode("##.\n.A.\n")
    ] == list("##.\n.A.\n")
    answer = model.codec.encode("#### [U, R]")
    assert [model.codec.decode([token_id]) for token_id in answer] == ["#### ", "[U", ", R", "]"]


def test_the_best_candidate_is_executed_before_the_next_agent_observes(
    model: LoadedModel,
) -> None:
    prompter = Prompter(model)
    groups_by_instance: dict[str, list[Group]] = defaultdict(list)
    for group in played(model).groups:
        groups_by_instance[group.key.instance].append(group)
    for table in GAME.tables(Split.TRAIN, 1, 4):
        episode = table.episode
        for turn, group in enumerate(
            sorted(groups_by_instance[table.instance], key=lambda g: g.key.turn or 0)
        ):
            agent: Agent = episode.agent
            assert (group.key.agent, group.key.turn) == (agent, turn)
            prompt = tuple(prompter.ids(episode.observe(agent)))
            texts = texts_of(group, prompter)
            rewards: list[float] = []
            for member, text in zip(group.members, texts, strict=True):
                assert member.sequences[0].ids[: len(prompt)] == prompt
                rewards.append(episode.copy().apply(agent, text).rewards.total())
            assert group.rewards == tuple(rewards)
            episode.apply(agent, texts[rewards.index(max(rewards))])
        assert episode.done


async def test_a_model_plays_in_process_as_it_does_when_served(model: LoadedModel) -> None:
    settings = ModelSettings(
        engine="torch", model=str(model.weights.folder), device="cpu", dtype="float32",
        plain_logprobs=True, constrain_tools=False,
    )  # fmt: skip
    engine = build_engine(settings)
    await engine.start()
    try:
        runner = EngineRunner({"pair": EnginePool(settings, engine)})
        for instance in islice(stream(Split.TEST, 5, PUZZLE), 2):
            run = a_run(1).run.model_copy(
                update={
                    "task": instance.task, "deadline": 4e9,
                    "policies": dict.fromkeys(AGENTS, "pair"),
                    "options": {"greedy": True, "instructions": False, "max_tokens": 5},
                }
            )  # fmt: skip
            trajectory = await runner.play(run)
            token_ids = [step.candidates[0].calls[0].output_ids for step in trajectory.steps]
            episode, prompter, sampler = open_episode(instance), Prompter(model), sampler_of(model)
            here: list[tuple[int, ...]] = []
            while not episode.done:
                agent = episode.agent
                (completion,) = sampler.greedy([prompter.ids(episode.observe(agent))], limit=5)
                here.append(completion.ids)
                episode.apply(agent, prompter.text(completion))
            assert [tuple(ids) for ids in token_ids] == here
    finally:
        await engine.close()


def test_equal_seeds_play_the_same_and_different_seeds_do_not(model: LoadedModel) -> None:
    assert played(model, seed=2) == played(model, seed=2)
    assert played(model, seed=2) != played(model, seed=3)


def test_puzzles_played_together_go_as_they_do_alone(model: LoadedModel) -> None:
    prompter, sampler = Prompter(model), sampler_of(model)
    together = evaluate(GAME.tables(Split.TEST, 5, 6), prompter, sampler, 5)
    alone = [
        evaluate([table], prompter, sampler, 5).outcomes for table in GAME.tables(Split.TEST, 5, 6)
    ]
    assert together.outcomes == "".join(alone)
    assert sum(together.failures.values()) == together.outcomes.count("0")


def test_evaluation_and_training_share_no_puzzle() -> None:
    grids = {split: {t.instance for t in GAME.tables(split, 1, 50)} for split in Split}
    assert grids[Split.TRAIN].isdisjoint(grids[Split.TEST] | grids[Split.VALIDATION])
