"""The parts of a loop that need no bus: the choice of a round's puzzles and of its samples."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from loopline.agents.environments.plan_path.instance import PlanPathInstance
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.records import Outcome, PolicyRef, Run, Trajectory
from loopline.bench.proofs.grpo_faults.driver import write_profile
from loopline.bus import BusSettings, Limits, Overloaded
from loopline.runtime.client.client import Client
from loopline.runtime.run_driver import RunDriver
from loopline.trainers.errors import TrainingError, UnreadableModel
from loopline.trainers.grpo.groups import Sealing
from loopline.trainers.grpo.loop.command import TOKEN_BYTES, size_notices
from loopline.trainers.grpo.loop.planning import TooFewPuzzles, further_puzzles, plan_batch
from loopline.trainers.grpo.loop.rollouts import Rollouts
from loopline.trainers.grpo.loop.round_groups import RoundGroups, seal_round
from loopline.trainers.grpo.loop.rounds import Loop
from loopline.trainers.grpo.loop.run_directory import RolloutBatch, RunDirectory
from loopline.trainers.grpo.loop.settings import LoopSettings
from loopline.trainers.grpo.rewards import RewardChoice
from loopline.workers.admission import NO_LIMITS
from loopline.workers.engines.settings import ModelSettings

from .recorded import a_call, a_candidate, a_run, a_step
from .test_command import command
from .tiny_grpo import settings_of, write_base


def settings(**changes: object) -> LoopSettings:
    grpo = {name: changes.pop(name) for name in ("batch", "grouping", "reward") if name in changes}
    return LoopSettings.model_validate(
        {
            "grpo": settings_of(weights="lora", staleness=0, **grpo), "policies": {},
            "game": "plan_path", "size": 5, "rounds": 2, "puzzles": 8, "most_puzzles": 32,
            **changes,
        }
    )  # fmt: skip


def plan(
    loop_settings: LoopSettings, number: int = 1, played: int = 0, count: int = 8
) -> RolloutBatch:
    return plan_batch(loop_settings, number, 1, played=played, count=count)


# ---- which puzzles ----


def test_a_round_plays_the_same_puzzles_of_the_train_split_whenever_it_is_planned() -> None:
    wave, same_wave = plan(settings()), plan(settings())
    assert [run.task for run in wave.runs] == [run.task for run in same_wave.runs]
    assert [run.seed for run in wave.runs] == [run.seed for run in same_wave.runs]
    assert not {run.id for run in wave.runs} & {run.id for run in same_wave.runs}
    for run in wave.runs:
        assert PlanPathInstance.model_validate(run.task.instance).split is Split.TRAIN


def test_further_waves_and_other_rounds_play_other_puzzles() -> None:
    first, more = plan(settings()), plan(settings(), played=8)
    other_wave = plan(settings(), number=2)
    tasks = [str(run.task.instance) for wave in (first, more) for run in wave.runs]
    assert len(set(tasks)) == 16
    assert not {str(run.task.instance) for run in other_wave.runs} <= set(tasks)


def test_whole_runs_that_compete_play_each_puzzle_k_times_with_other_seeds() -> None:
    loop_settings = settings(grouping="trajectory")
    wave = plan(loop_settings, count=2)
    assert (loop_settings.plays, loop_settings.options["candidates"]) == (4, 1)
    assert len(wave.runs) == len({run.seed for run in wave.runs}) == 8
    assert len({str(run.task.instance) for run in wave.runs}) == wave.puzzles == 2


def test_a_difficulty_with_too_few_puzzles_is_reported() -> None:
    with pytest.raises(TooFewPuzzles, match="--game plan_path: 5000 attempts in a row made no"):
        plan(settings(difficulty={"least_moves": 40}))


@given(st.integers(1, 200), st.integers(0, 400), st.integers(1, 50))
def test_puzzles_are_added_while_groups_are_missing_and_never_beyond_the_limit(
    played: int, groups: int, batch: int
) -> None:
    loop_settings = settings(batch=batch, puzzles=1, most_puzzles=200)
    more = further_puzzles(loop_settings, played=played, group_count=groups)
    assert 0 <= more <= 200 - played
    assert (more == 0) == (groups >= batch or played == 200)


# ---- how runs are begun ----


async def test_a_run_gets_its_full_time_once_admitted() -> None:
    runs: list[Run] = []

    class FullAtFirst(Client):
        async def submit(
            self,
            run: Run,
            *,
            delay: float = 0.0,
            key_limits: Limits = NO_LIMITS,
            idempotency: str = "",
        ) -> bool:
            runs.append(run)
            if len(runs) == 1:
                raise Overloaded("full")
            return True

    wave = plan(settings(), count=1)
    client = FullAtFirst(BusSettings())
    driver = RunDriver(client, lambda text: None)
    await Rollouts(client, settings(), lambda wave, ended: None, driver, "one").begin(wave)
    refused, admitted = runs
    assert refused.id == admitted.id == wave.runs[0].id
    assert admitted.tags == {"loop": "one", "round": "1", "wave": "1"}
    assert admitted.deadline > refused.deadline


# ---- what is learned from ----


def test_candidates_are_ranked_by_the_rewards_that_the_loop_learns_from() -> None:
    options = settings(reward=RewardChoice(alpha=2.0)).options
    assert (options["scheme"], options["alpha"]) == ("paper", 2.0)
    assert settings(reward=RewardChoice(scheme="sparse")).options["scheme"] == "sparse"


def a_game(number: int, version: int, rewards: Sequence[float], **changes: object) -> Trajectory:
    """One step of one agent, sampled by a version of `pair/plan`."""
    policy = PolicyRef(name="pair", base="micro", adapter="pair/plan", version=version)
    call = a_call().model_copy(update={"policy": policy})
    step = a_step([a_candidate(reward, call) for reward in rewards], agent="plan_agent")
    run = a_run(number, step, instance=number)
    return run.model_copy(update={"outcome": Outcome.FAILED, **changes})


def harvest(*runs: Trajectory, number: int = 2, staleness: int = 0) -> RoundGroups:
    """The harvest of a loop whose versions 5, 6 and 7 are its start and the results of its rounds 1
    and 2."""
    return seal_round(
        runs,
        Sealing(size=2, belongs=lambda call: True, max_context=64),
        {("pair/plan", 5): 0, ("pair/plan", 6): 1, ("pair/plan", 7): 2},
        first=5,
        number=number,
        settings=settings_of(staleness=staleness),
    )


def test_a_round_learns_from_the_previous_version_s_samples() -> None:
    round_harvest = harvest(a_game(1, 6, (0.0, 1.0)), a_game(2, 6, (1.0, 1.0)))
    batch = round_harvest.batch(6, seed=1)
    assert [group.rewards for group in batch.groups] == [(0.0, 1.0)]
    assert [group.rewards for group in batch.zero_variance] == [(1.0, 1.0)]
    assert round_harvest.counts == {"trained": 1, "zero_variance": 1}


def test_samples_of_an_older_version_are_used_only_within_the_staleness_bound() -> None:
    old = a_game(1, 5, (0.0, 1.0))
    assert harvest(old).counts == {"stale": 1}
    within = harvest(old, staleness=1)
    assert within.counts == {"trained": 1}
    (group,) = within.batch(6, seed=1).groups
    assert 6 - group.policy.version == 1


def test_samples_of_foreign_weights_are_never_learned_from() -> None:
    round_harvest = harvest(a_game(1, 0, (0.0, 1.0)), staleness=100)
    assert round_harvest.counts == {"foreign": 1}
    assert round_harvest.batch(6, seed=1).groups == ()
    assert round_harvest.batch(6, seed=1).stale == 1


def test_an_aborted_run_is_left_out_and_reported() -> None:
    round_harvest = harvest(
        a_game(1, 6, (0.0, 1.0)),
        a_game(2, 6, (0.0, 1.0), outcome=Outcome.DEADLINE, reason="too slow"),
    )
    assert len(round_harvest.groups) == 1
    (skipped,) = round_harvest.left_out
    assert (skipped.reason, skipped.detail) == ("run that ended by deadline", "too slow")


def test_a_notice_says_what_to_set_if_answers_may_exceed_a_message() -> None:
    assert size_notices(settings(max_tokens=512), 1_048_576) == ()
    [message] = size_notices(settings(max_tokens=8_192), 1_048_576)
    assert message.startswith(
        "4 answers of 8,192 tokens take up to 1.8 MB, but a message on the bus"
    )
    assert "bus.max_message_bytes=1835008" in message
    assert size_notices(settings(max_tokens=8_192), 1_835_008) == ()


def test_the_notice_counts_the_answers_of_all_rounds_of_adaptive_sampling() -> None:
    adaptive = {"exit_when": "positive", "rounds": 4}
    assert size_notices(settings(max_tokens=2_048), 1_048_576) == ()
    [message] = size_notices(settings(max_tokens=2_048, adaptive=adaptive), 1_048_576)
    assert message.startswith("16 answers of 2,048 tokens take up to 1.8 MB")
    assert "Lower --max-tokens or --sampling-rounds, or" in message


@given(st.lists(st.floats(-40, 0, width=32), min_size=100, max_size=100))
def test_a_recorded_token_takes_no_more_bytes_than_estimated(
    logprobs: list[float],
) -> None:
    call = a_call(
        output=range(151_000, 151_100), logprobs=logprobs, raw_logprobs=tuple(logprobs),
        text="word " * 100,
    )  # fmt: skip
    beside = len(a_call(output=(), logprobs=(), raw_logprobs=()).model_dump_json())
    assert len(call.model_dump_json()) - beside <= 100 * TOKEN_BYTES


def test_a_damaged_plan_file_is_reported(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, "one")
    wave = plan(settings())
    directory.plan(wave)
    assert directory.waves(1) == [wave]
    path = directory.round(1) / "wave-1.plan.json"
    path.write_text("{")
    with pytest.raises(UnreadableModel, match=r"wave-1\.plan\.json is damaged"):
        directory.waves(1)


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c", "\r", "\n"])
def test_a_model_s_text_can_contain_every_kind_of_line_break(tmp_path: Path, end: str) -> None:
    directory, wave = RunDirectory(tmp_path, "one"), plan(settings(), count=2)
    directory.plan(wave)
    games = tuple(a_game(n, 6, (0.0, 1.0), answer=f"up{end}{end}down{end}") for n in (1, 2))
    directory.keep(wave, games)
    assert directory.trajectories(wave) == games


# ---- the command line ----


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("parts") / "base")


LOOP = ("--game", "plan_path", "--weights", "lora", "--redis-url", "redis://127.0.0.1:1")


def test_whole_weights_are_checked_against_the_pool_by_their_tokenizer(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a training from the store: each round's whole model replaces the pool's."""

    def begin(self: Loop) -> None:
        raise TrainingError("it has begun")

    monkeypatch.setattr(Loop, "run", begin)
    url, pool = "redis://127.0.0.1:1", tmp_path / "pool"
    shutil.copytree(base, pool)
    weights = load_file(pool / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in weights.items()}, pool / "model.safetensors")
    model_settings = ModelSettings(engine="torch", model=str(pool))
    profile = write_profile(tmp_path / "profile.toml", BusSettings(redis_url=url), model_settings)
    arguments = (
        tmp_path / "out", "--base", base, "--game", "plan_path", "--redis-url", url,
        "--profile", profile,
    )  # fmt: skip
    code, _, answer = command("loop", *arguments, "--weights", "lora")
    assert code == 1
    assert "loop: " in answer
    assert "is an adapter of another base than" in answer
    code, _, answer = command("loop", *arguments)
    assert (code, answer) == (1, "it has begun")
    (pool / "tokenizer.json").write_text("{}")
    code, _, answer = command("loop", *arguments)
    assert code == 1
    assert answer.removeprefix("error: ").startswith("loop: ")
    assert "tokenizer.json" in answer


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--game", "plan_path"), "loop: no deployment runs in"),
        (("--weights", "lora", *LOOP[-2:]), "a loop needs a game: --game NAME (plan_path"),
        ((*LOOP, "--size", 3), "plan_path: --size 3"),
        ((*LOOP, "--setting", "turns=0"), "--setting turns"),
        ((*LOOP, "--setting", "turns"), "is not NAME=VALUE"),
        ((*LOOP, "--difficulty", "boxes=2"), "--difficulty boxes"),
        ((*LOOP, "--game", "chess"), "--game chess: there is no environment 'chess'"),
        ((*LOOP, "--rounds", 0), "--rounds 0: Input should be greater than or equal to 1"),
        ((*LOOP, "--most-puzzles", 2), "--most-puzzles 2 can't be less than --puzzles 64"),
        ((*LOOP, "--success", 0.5), "--success only applies with --adaptive positive|"),
        ((*LOOP, "--adaptive", "often"), "--adaptive often: Input should be 'positive'"),
        (
            (*LOOP, "--adaptive", "positive", "--grouping", "trajectory"),
            "--adaptive samples the candidates of an observation",
        ),
        ((*LOOP, "--adaptive", "positive", "--success", "nan"), "--success nan: Input should be a"),
        ((*LOOP, "--init-from", "sharde=micro:slm"), "--init-from sharde: no such policy"),
        ((*LOOP, "--grouping", "single"), "--grouping single is for runs in which one agent"),
        ((*LOOP, "--temperature", 0), "--temperature 0: Input should be greater than 0"),
        (
            (*LOOP, "--agent", "plan_agent", "--agent", "tool_agnt"),
            "--agent: no agent of the team (tool_agent, plan_agent) is called tool_agnt",
        ),
        (
            (*LOOP, "--pool", "pink"),
            "loop: the deployment has no pool 'pink'; pools: pair. Start one with `runtime up "
            "--profile petting --detach",
        ),
        (LOOP, "is an adapter of another base than micro:llm"),
        (LOOP, "loop: "),
    ],
)  # fmt: skip
def test_invalid_options_are_reported_before_anything_is_written(
    base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setenv("LOOPLINE_PROFILE", "petting")
    monkeypatch.setenv("LOOPLINE_STATE", str(tmp_path / "state"))
    code, _, answer = command("loop", tmp_path / "out", "--base", base, *arguments)
    assert code != 0
    assert message in answer
    assert not (tmp_path / "out").exists()
