"""Environments of OpenEnv servers: played, scored, replayed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from loopline.agents.environments.environment import Environment
from loopline.agents.environments.game import ActionRecord, replay_episode
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.errors import EnvironmentFault
from loopline.agents.workflow_runner import run_locally
from loopline.workers.openenv import client, openenv_environment
from loopline.workers.openenv import environment as openenv
from loopline.workers.openenv.client import OpenEnvError, Server
from loopline.workers.openenv.environment import PLAYER, URL_VARIABLE, read_action
from tests.agents.test_pair import ManyHost, pair_run
from tests.workers.openenv.number_server import NumberServer, number_server, secret_of

NumberEnvironment = Environment[Any, Any, Any]
ONE_TEXT = {"properties": {"metadata": {}, "message": {"type": "string"}}}
TWO = {"properties": {"row": {"type": "integer"}, "column": {"type": "integer"}}}


@pytest.fixture
def server() -> Iterator[NumberServer]:
    with number_server() as server:
        yield server


@pytest.fixture
def numbers(server: NumberServer) -> NumberEnvironment:
    return openenv_environment("numbers", "Numbers", server.url)


def first(environment: NumberEnvironment, **difficulty: Any) -> Any:
    return next(environment.stream(Split.TRAIN, 1, environment.difficulty(**difficulty)))


def guesses(secret: int) -> list[int]:
    """Return guesses that end with the right one."""
    return [secret % 9 + 1, secret]


def test_an_episode_is_observed_played_and_solved_by_its_rewards(
    numbers: NumberEnvironment,
) -> None:
    puzzle = first(numbers)
    wrong, right = guesses(secret_of(puzzle.seed))
    episode = numbers.reset(json.loads(puzzle.task.model_dump_json())["instance"])
    text = episode.observe(PLAYER)
    assert text.startswith("Guess a number from 1 to 9.")
    assert '"guess": {"type": "integer"' in text
    assert "metadata" not in text
    rewards, observation, done = episode.apply(PLAYER, f'I say {{"guess": {wrong}}}.')
    assert (rewards.total("dense"), done) == (0.0, False)
    assert observation.action == {"action": {"guess": wrong}, "reward": 0.0}
    assert f'Action 1: {{"guess": {wrong}}}\nReward 0.\nIt is ' in episode.observe(PLAYER)
    assert episode.verify().reason == "the rewards add up to 0, and 1 solve it"
    rewards, _, done = episode.apply(PLAYER, f'{{"guess": {right}}}')
    assert (rewards.sums()["team"], done) == (1.0, True)
    assert episode.verify().solved


def test_a_text_without_an_action_and_a_refused_action_earn_nothing(
    numbers: NumberEnvironment,
) -> None:
    puzzle = first(numbers)
    episode = numbers.open(puzzle)
    nothing = episode.apply(PLAYER, "I do not know.")
    assert [refusal.reason for refusal in nothing.observation.refusals] == ["no_action"]
    refused = episode.apply(PLAYER, '{"guess": "seven"}')
    assert [refusal.reason for refusal in refused.observation.refusals] == ["refused_action"]
    assert "guess: Input should be a valid integer" in refused.observation.text
    assert refused.rewards.total() == 0.0
    assert "It was refused: Invalid message; guess:" in episode.observe(PLAYER)
    episode.apply(PLAYER, json.dumps({"guess": secret_of(puzzle.seed)}))
    assert episode.verify().solved


def test_candidates_are_tried_from_one_state_and_a_run_replays_elsewhere(
    numbers: NumberEnvironment, server: NumberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    puzzle = first(numbers)
    wrong, right = guesses(secret_of(puzzle.seed))
    episode = numbers.open(puzzle)
    episode.apply(PLAYER, json.dumps({"guess": wrong}))
    scores = [
        episode.copy().apply(PLAYER, json.dumps({"guess": guess})).rewards.sums()["local"]
        for guess in range(1, 10)
    ]
    assert scores == [float(guess == right) for guess in range(1, 10)]
    actions = [ActionRecord(PLAYER, json.dumps({"guess": guess})) for guess in (wrong, right)]
    monkeypatch.setattr(openenv, "_server_at", Server)
    elsewhere = openenv_environment("numbers", "Numbers", server.url)
    instance = json.loads(puzzle.task.model_dump_json())["instance"]
    assert replay_episode(elsewhere, instance, actions).verify().solved


def test_action_results_are_remembered_and_one_session_serves_an_episode(
    numbers: NumberEnvironment, server: NumberServer
) -> None:
    puzzle = first(numbers)
    episode = numbers.open(puzzle)
    resets, sessions = server.resets, server.sessions
    for guess in guesses(secret_of(puzzle.seed)):
        episode.observe(PLAYER)
        episode.apply(PLAYER, json.dumps({"guess": guess}))
        episode.verify()
    assert server.steps == 2
    assert server.resets - resets <= 1
    assert server.sessions - sessions <= 1


def test_puzzles_are_drawn_by_seed_and_split(numbers: NumberEnvironment) -> None:
    level = numbers.difficulty()
    train = list(islice(numbers.stream(Split.TRAIN, 7, level), 4))
    again = list(islice(numbers.stream(Split.TRAIN, 7, level), 4))
    test = list(islice(numbers.stream(Split.TEST, 7, level), 4))
    assert [puzzle.id for puzzle in train] == [puzzle.id for puzzle in again]
    assert not {puzzle.id for puzzle in train} & {puzzle.id for puzzle in test}
    assert numbers.parse(json.loads(train[0].model_dump_json())) == train[0]


def test_a_server_that_starts_differently_with_the_same_seed_is_reported(
    numbers: NumberEnvironment, server: NumberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    puzzle = first(numbers)
    server.repeats = False
    monkeypatch.setattr(openenv, "_server_at", Server)  # like another process, without memory
    elsewhere = openenv_environment("numbers", "Numbers", server.url)
    instance = json.loads(puzzle.task.model_dump_json())["instance"]
    with pytest.raises(OpenEnvError, match="a reset must depend only on its seed"):
        elsewhere.reset(instance).observe(PLAYER)


def test_a_full_server_is_asked_again_until_it_has_room(
    server: NumberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.room = 1
    first_server, another = Server(server.url), Server(server.url)
    first_server.play({"seed": 1}, ())
    # The first one frees its session after a while without use.
    [result] = another.play({"seed": 2}, ())
    assert result.observation == {"hint": "Guess a number from 1 to 9."}
    monkeypatch.setattr(client, "WAIT_SECONDS", 0.5)
    server.room = 0
    another.close()
    with pytest.raises(OpenEnvError, match=r"max_concurrent_envs"):
        another.play({"seed": 3}, ())


def test_a_lost_session_is_restarted(server: NumberServer) -> None:
    secret = secret_of(5)
    playing = Server(server.url)
    playing.play({"seed": 5}, [{"guess": secret % 9 + 1}])
    server.drop()
    results = playing.play({"seed": 5}, [{"guess": secret % 9 + 1}, {"guess": secret}])
    assert [result.reward for result in results] == [0.0, 0.0, 1.0]
    playing.close()


def test_a_missing_server_is_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "WAIT_SECONDS", 0.2)
    nowhere = openenv_environment("numbers", "Numbers", "http://127.0.0.1:9")
    with pytest.raises(ValueError, match=r"the OpenEnv server at http://127\.0\.0\.1:9"):
        first(nowhere)
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    with pytest.raises(ValueError, match=f"set {URL_VARIABLE}="):
        first(openenv_environment("numbers", "Numbers"))


@pytest.mark.parametrize(
    ("text", "schema", "action"),
    [
        ("Hello there.", ONE_TEXT, {"message": "Hello there."}),
        ('{"message": "Hello"}', ONE_TEXT, {"message": "Hello"}),
        ('{"code": 1}', ONE_TEXT, {"message": '{"code": 1}'}),
        (
            'First {"row": 1, "column": 2}, no: {"row": 3, "column": 4}!',
            TWO,
            {"row": 3, "column": 4},
        ),
        ("{not json} and nothing", TWO, None),
        ("", ONE_TEXT, None),
        ('{"type": "list_tools"}', {}, {"type": "list_tools"}),
    ],
)
def test_a_text_is_read_as_an_action(
    text: str, schema: dict[str, Any], action: dict[str, Any] | None
) -> None:
    assert read_action(text, schema) == action


async def test_the_pair_workflow_plays_an_episode_with_the_better_of_two_candidates(
    numbers: NumberEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loopline.agents.environments import registry

    monkeypatch.setattr(registry.environments, "get", {"numbers": numbers}.__getitem__)
    puzzle = first(numbers)
    wrong, right = (json.dumps({"guess": guess}) for guess in guesses(secret_of(puzzle.seed)))
    run = pair_run(numbers.task(puzzle), candidates=2)
    ended = await run_locally(run, {PLAYER: ManyHost([["no", wrong], [wrong, right]])})
    assert ended.outcome == "solved"
    assert ended.steps[-1].selected == 1


async def test_a_server_that_goes_away_is_an_environment_error(
    numbers: NumberEnvironment, server: NumberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loopline.agents.environments import registry

    puzzle = first(numbers)
    monkeypatch.setattr(client, "WAIT_SECONDS", 0.2)
    nowhere = openenv_environment("numbers", "Numbers", "http://127.0.0.1:9")
    monkeypatch.setattr(registry.environments, "get", {"numbers": nowhere}.__getitem__)
    run = pair_run(nowhere.task(puzzle))
    with pytest.raises(EnvironmentFault, match="has played no episode for"):
        await run_locally(run, {PLAYER: ManyHost([['{"guess": 1}']])})
