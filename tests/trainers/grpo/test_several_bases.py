"""Agents, policies and bases as a free map: policies of several bases in one step, and in one
loop."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from loopline.agents.errors import InvalidOptions
from loopline.agents.records import GenerationOptions, Trajectory
from loopline.bench.proofs.grpo_faults.model import ANSWERS, Sizes
from loopline.bench.proofs.grpo_faults.model import write_base as write_player
from loopline.testing import RedisProcess
from loopline.trainers.core.network import load_base
from loopline.trainers.data.store import read_trajectories
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.data import sealing_of as sealing_of_settings
from loopline.trainers.grpo.groups import Group, seal
from loopline.trainers.grpo.learner import Learner, NotFinite
from loopline.trainers.grpo.loop.settings import LoopSettings
from loopline.trainers.grpo.pipeline import initial_policies, require_known
from loopline.trainers.grpo.sequences import OTHER_TOKENIZER
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.trainers.grpo.stream import StepBatch
from loopline.workers.engines.local.adapter_base import weights_sha256
from loopline.workers.engines.settings import ModelSettings
from tests.conftest import quick_settings

from .looped import Deployed, adapter, deployed, directory_of, loop_settings, run_loop, same
from .test_training import spoiled
from .tiny_grpo import Sizes as TinySizes
from .tiny_grpo import load, rollouts, settings_of, write_base

pytestmark = pytest.mark.timeout(300)

ROLES = ("coder", "tester")
LARGER = Sizes(hidden=48, feed_forward=96, layers=2)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two bases of different sizes."""
    folder = tmp_path_factory.mktemp("bases")
    larger = TinySizes(hidden=48, feed_forward=96, layers=2)
    return write_base(folder / "small"), write_base(folder / "large", larger)


def settings_for(bases: tuple[Path, Path], **changes: object) -> GrpoSettings:
    """The tester has the second base, and learns at another rate."""
    return settings_of(
        base=str(bases[0]), policies="per-role",
        bases={"tester": {"model": str(bases[1]), "sha256": weights_sha256(bases[1])}},
        rates={"tester": 3e-4}, **changes,
    )  # fmt: skip


def runs_of(base: Path, agent: str) -> list[Trajectory]:
    return rollouts(load(base), 0, agents=(agent,))


def groups_of(runs: Sequence[Trajectory], settings: GrpoSettings) -> list[Group]:
    reading = seal(runs, sealing_of_settings(settings, load(Path(settings.base))))
    assert reading.skipped == ()
    return list(reading.records)


def weights_of(learner: Learner, policy: str) -> dict[str, torch.Tensor]:
    learner.policies.activate(policy)
    return {k: v.detach().clone() for k, v in learner.policies.network.trained()}


@pytest.mark.parametrize("minibatch", [None, 1])
def test_two_policies_on_two_bases_learn_what_each_learns_in_a_separate_training(
    bases: tuple[Path, Path], minibatch: int | None
) -> None:
    together = settings_for(bases, minibatch=minibatch)
    learner = Learner(initial_policies(together, ROLES, load(bases[0])))
    groups = [
        group
        for base, agent in zip(bases, ROLES, strict=True)
        for group in groups_of(runs_of(base, agent), together)
    ]
    assert {group.key.agent for group in groups} == set(ROLES)
    for version in range(2):
        learner.step(StepBatch(version, tuple(groups), (), 0))
    for base, agent, rate in zip(bases, ROLES, (1e-3, 3e-4), strict=True):
        alone = settings_of(base=str(base), minibatch=minibatch, learning_rate=rate)
        reference = Learner(initial_policies(alone, ["shared"], load(base)))
        of_agent = tuple(group for group in groups if group.key.agent == agent)
        for version in range(2):
            reference.step(StepBatch(version, of_agent, (), 0))
        assert same(weights_of(learner, agent), weights_of(reference, "shared"))
    assert learner.policies.parameters == sum(load(b).model.num_parameters() for b in bases)


def test_a_step_that_fails_for_one_policy_changes_none(bases: tuple[Path, Path]) -> None:
    settings = settings_for(bases, objective={"correction": "clip"})
    learner = Learner(initial_policies(settings, ROLES, load(bases[0])))
    good = groups_of(runs_of(bases[0], "coder"), settings)
    bad = groups_of(spoiled(runs_of(bases[1], "tester"), 0), settings)
    learner.step(StepBatch(0, tuple(good), (), 0))
    before = {key: tensor.clone() for key, tensor in learner.policies.tensors().items()}
    with pytest.raises(NotFinite, match="policy tester"):
        learner.step(StepBatch(1, (*good, *bad), (), 0))
    assert same(before, learner.policies.tensors())
    learner.step(StepBatch(1, tuple(good), (), 0))
    assert not same(before, learner.policies.tensors())


def test_switching_policies_copies_no_weights(bases: tuple[Path, Path]) -> None:
    settings = settings_of(base=str(bases[0]), policies="per-role")
    policies = initial_policies(settings, ROLES, load(bases[0]))

    def addresses() -> list[int]:
        return [parameter.data_ptr() for _, parameter in policies.network.trained()]

    memory = {name: (policies.activate(name), addresses())[1] for name in ROLES}
    assert set(memory["coder"]).isdisjoint(memory["tester"])
    for name in (*ROLES, *ROLES):
        policies.activate(name)
        assert addresses() == memory[name]


def test_an_agent_s_completions_must_use_its_own_base_s_tokenizer(
    bases: tuple[Path, Path], tmp_path: Path
) -> None:
    settings = settings_for((bases[0], write_player(tmp_path / "other", 3)))
    runs = rollouts(load(bases[0]), 0, agents=ROLES)
    reading = seal(runs, sealing_of_settings(settings, load(bases[0])))
    assert {group.key.agent for group in reading.records} == {"coder"}
    assert OTHER_TOKENIZER in {skipped.reason for skipped in reading.skipped}


def test_a_setting_for_an_untrained_policy_is_refused() -> None:
    settings = settings_of(rates={"nobody": 1e-3})
    with pytest.raises(TrainingError, match="--policy-rate nobody: no such policy is trained"):
        require_known(settings, ["shared"])


@pytest.mark.parametrize(
    ("together", "turns"),
    [
        ((), [{"tool_agent"}, {"tool_agent"}, {"plan_agent"}, {"plan_agent"}, {"tool_agent"}]),
        (("plan_agent",), [{"tool_agent"}] * 2 + [{"plan_agent"}] * 2 + [{"tool_agent"}]),
    ],
)
def test_policies_learn_in_turn(together: tuple[str, ...], turns: list[set[str]]) -> None:
    settings = in_turn(together)
    assert [settings.learning(number) for number in range(1, 6)] == turns


@pytest.mark.parametrize(
    ("together", "why"),
    [
        (("tool_agent,plan_agent",), "all policies learn in one turn"),
        (("tool_agent,nobody",), "nobody is not trained"),
        (("tool_agent", "tool_agent"), "is listed twice"),
    ],
)
def test_invalid_turns_are_refused(together: tuple[str, ...], why: str) -> None:
    with pytest.raises(InvalidOptions, match=why):
        in_turn(together).require_agents()


def in_turn(together: tuple[str, ...]) -> LoopSettings:
    return LoopSettings.model_validate(
        {
            "grpo": settings_of(policies="per-role"), "game": "plan_path", "most_puzzles": 64,
            "policies": {"tool_agent": "a/tool", "plan_agent": "b/plan"},
            "alternate": 2, "together": together,
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def where(
    _shared_servers: dict[str, RedisProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    """Pools of two bases: the tool agent's and the planner's, which is larger and has another
    vocabulary."""
    pytest.importorskip("peft", reason="needs make install")
    folder = tmp_path_factory.mktemp("workers")
    bus = quick_settings(next(iter(_shared_servers.values())).url, lease_seconds=2.0)
    large = write_player(folder / "large", 3, ANSWERS[4:], LARGER)
    pool = ModelSettings(
        engine="torch", model=str(large), device="cpu", plain_logprobs=True,
        constrain_tools=False, base_until_published=("plan",),
    )  # fmt: skip
    small = write_player(folder / "small")
    names = {"tool_agent": "pair/tool", "plan_agent": "large/plan"}
    with deployed(bus, small, folder / "workers", names, others={"large": pool}) as deployment:
        yield deployment


@pytest.mark.slow
def test_a_loop_trains_two_agents_on_two_bases_in_turn(where: Deployed, tmp_path: Path) -> None:
    large = Path(where.settings.models["large"].model)
    settings = loop_settings(
        where.base, policies={"tool_agent": "pair/tool", "plan_agent": "large/plan"},
        alternate=1, rounds=3, agent_temperature={"plan_agent": 0.8},
        agent_max_tokens={"plan_agent": 5}, rates={"plan_agent": 2e-2},
        bases={"plan_agent": {"model": str(large), "sha256": weights_sha256(large)}},
    )  # fmt: skip
    grpo = settings.grpo.model_copy(update={"policies": "per-role"})
    settings = settings.model_copy(update={"grpo": grpo})
    report = run_loop(settings, tmp_path / "out", where.settings)
    directory = directory_of(tmp_path / "out")
    for facts, learned in zip(
        report.rounds, ("tool_agent", "plan_agent", "tool_agent"), strict=True
    ):
        assert set(facts.step.policies) == {learned}
        assert (facts.stale, facts.foreign, facts.broken, facts.left_out) == (0, 0, 0, {})
        assert facts.frozen > 0
        # The trainer finds the samples as likely as the engine did, at the agent's temperature.
        assert facts.step.policies[learned].effective_samples == pytest.approx(1.0, abs=1e-4)
        for policy in ("tool_agent", "plan_agent"):
            before, after = (adapter(directory, facts.round - back, policy) for back in (1, 0))
            assert same(before, after) == (policy != learned)
    for policy, base in {"tool_agent": where.base, "plan_agent": large}.items():
        written = json.loads((tmp_path / "out/policies" / policy / "training.json").read_text())
        assert written["base_sha256"] == weights_sha256(base)
    calls = [
        (step.agent, call.sampling.temperature, call.sampling.max_tokens)
        for trajectory in read_trajectories(where.store, "pair").records
        for step in trajectory.steps
        for call in step.calls
    ]
    assert set(calls) == {("tool_agent", 1.0, 8), ("plan_agent", 0.8, 5)}
    shapes = [
        {tuple(tensor.shape) for tensor in adapter(directory, 3, policy).values()}
        for policy in ("tool_agent", "plan_agent")
    ]
    assert shapes[0] != shapes[1]
    assert load_base(str(large)).model.config.hidden_size == LARGER.hidden


def test_an_agent_s_chat_template_options_apply_to_evaluations_and_rounds(
    bases: tuple[Path, Path],
) -> None:
    settings = loop_settings(
        bases[0],
        agent_template={"plan_agent": {"enable_thinking": False}},
        agent_temperature={"tool_agent": 0.5},
    )
    settings.require_agents()
    quiet = GenerationOptions(template_options={"enable_thinking": False})
    assert settings.sampling_of(greedily=True) == {"plan_agent": quiet}
    assert settings.sampling_of(greedily=False) == {
        "tool_agent": GenerationOptions(temperature=0.5), "plan_agent": quiet,
    }  # fmt: skip
    unknown = loop_settings(bases[0], agent_template={"coder": {"enable_thinking": False}})
    with pytest.raises(InvalidOptions, match="--agent-template: no agent of the team"):
        unknown.require_agents()
