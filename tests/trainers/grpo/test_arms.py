"""The arms of `bench grpo`: each learns in its own way from an equal budget, and resumes after an
interruption."""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.team_episode import AGENTS, PLAN, TOOL
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.core.job_progress import JobProgress
from loopline.trainers.core.json_records import read_record
from loopline.trainers.core.network import Network
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.arms.arm import train_arm
from loopline.trainers.grpo.arms.folder import CLOCK, Clock, claim, track_seconds
from loopline.trainers.grpo.arms.game import Team
from loopline.trainers.grpo.arms.kinds import (
    AT_GRPO,
    BEST_OF_K,
    CONTINUED,
    EXPERT_ITERATION,
    KINDS,
    MAS_GRPO,
    MAS_GRPO_TOKENS,
    PER_ROLE,
    PER_ROLE_LORA,
    PROPOSER,
    SINGLE_GRPO,
    SWAPPED,
    WARM_START,
    ArmName,
    slug,
)
from loopline.trainers.grpo.arms.measured import play_greedily
from loopline.trainers.grpo.arms.models import load_policies, untrained_policies
from loopline.trainers.grpo.arms.reinforced import grpo_settings
from loopline.trainers.grpo.arms.results import Arm, ArmResult, read_result
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.supervised import SupervisedSteps
from loopline.trainers.grpo.arms.tuning import OWN, Tuning
from loopline.trainers.grpo.learner import Learner, NotFinite
from loopline.trainers.grpo.report import PolicyStep
from loopline.trainers.grpo.stream import StepBatch
from tests.trainers.full_disk import no_file_larger_than

from .tiny_puzzles import LEARNING

TEAMS: tuple[Team, ...] = ((PLAN,), (TOOL,))
BY_ROLE: tuple[ArmName, ...] = (PER_ROLE, PER_ROLE_LORA)
REWARDED: list[ArmName] = [name for name, kind in KINDS.items() if kind.way == "reinforced"]


def silent(event: JobLine) -> None:
    """A watch that ignores everything."""


def arm(name: ArmName) -> Arm:
    return Arm(kind=name, seed=1)


def weights(name: ArmName, output: Path) -> dict[str, torch.Tensor]:
    """The weights of all of the arm's policies."""
    model = arm(name).folder(output) / "model"
    return {
        f"{path.relative_to(model)}:{key}": tensor
        for path in sorted(model.rglob("*.safetensors"))
        for key, tensor in load_file(path).items()
    }


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def result(name: ArmName, output: Path) -> ArmResult:
    arm_result = read_result(arm(name).folder(output))
    assert arm_result is not None
    return arm_result


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All arms of one seed, run without interruption."""
    output = tmp_path_factory.mktemp("arms")
    for name in KINDS:
        train_arm(arm(name), output, LEARNING, silent)
    return output


@pytest.mark.parametrize("name", list(KINDS))
def test_every_arm_is_measured_on_all_held_out_puzzles(whole: Path, name: ArmName) -> None:
    arm_result = result(name, whole)
    assert len(arm_result.outcomes) == LEARNING.held_out
    assert sum(arm_result.failures.values()) == arm_result.outcomes.count("0")
    assert (arm_result.tokens > 0) == (arm_result.samples > 0) == (KINDS[name].way != "measured")


@pytest.mark.parametrize("name", [name for name in REWARDED if KINDS[name].spends == "samples"])
def test_an_arm_draws_as_many_samples_as_at_grpo_and_at_most_a_step_more(
    whole: Path, name: ArmName
) -> None:
    arm_result, wanted = result(name, whole), result(AT_GRPO, whole).samples
    settings = LEARNING.reinforced
    of_a_step = (
        settings.episodes
        * settings.candidates
        * LEARNING.game.turns
        * len(KINDS[name].team or AGENTS)
    )
    assert wanted <= arm_result.samples < wanted + of_a_step


@pytest.mark.parametrize("name", [CONTINUED, MAS_GRPO_TOKENS])
def test_an_arm_with_the_token_budget_of_at_grpo_ends_with_the_step_that_reaches_it(
    whole: Path, name: ArmName
) -> None:
    arm_result, wanted = result(name, whole), result(AT_GRPO, whole).tokens
    *before, last = (point.tokens for point in arm_result.curve)
    assert max(before, default=0) < wanted <= last
    assert arm_result.tokens == last


@pytest.mark.parametrize("name", REWARDED)
def test_a_rewarded_arm_ends_with_other_weights_than_it_started_with(
    whole: Path, name: ArmName
) -> None:
    begins = KINDS[name].begins
    assert begins is not None
    if KINDS[name].weights == "lora":
        # The B matrix of a new adapter is zero.
        tensors = weights(name, whole)
        assert any(bool(tensor.any()) for key, tensor in tensors.items() if "lora_B" in key)
    else:
        before = weights(begins, whole)
        after = weights(name, whole)
        assert any(not torch.equal(after[key], before[key.split("/")[-1]]) for key in after)


def test_each_role_has_its_own_weights(whole: Path) -> None:
    for name in BY_ROLE:
        tensors = weights(name, whole)
        tool, plan = (
            {key.split("/")[-1]: tensor for key, tensor in tensors.items() if key.startswith(agent)}
            for agent in AGENTS
        )
        assert len(tool) + len(plan) == len(tensors)
        assert not same(tool, plan)


class Stopped(Exception):
    """Stands for the death of the arm's process."""


@pytest.mark.parametrize("name", [EXPERT_ITERATION, PER_ROLE_LORA, MAS_GRPO, SINGLE_GRPO])
def test_an_interrupted_arm_ends_with_the_weights_of_an_uninterrupted_one(
    whole: Path, tmp_path: Path, name: ArmName
) -> None:
    for needed in arm(name).needs:
        shutil.copytree(needed.folder(whole), needed.folder(tmp_path))
    events: list[JobLine] = []

    def breaks(event: JobLine) -> None:
        events.append(event)
        if len(events) == 2:
            raise Stopped

    with pytest.raises(Stopped):
        train_arm(arm(name), tmp_path, LEARNING, breaks)
    assert read_result(arm(name).folder(tmp_path)) is None
    assert list(arm(name).folder(tmp_path).glob("checkpoints/*"))
    train_arm(arm(name), tmp_path, LEARNING, silent)
    assert same(weights(name, tmp_path), weights(name, whole))
    assert result(name, tmp_path).outcomes == result(name, whole).outcomes


@pytest.mark.parametrize("name", [CONTINUED, AT_GRPO, PER_ROLE_LORA])
def test_an_arm_whose_loss_becomes_nan_stops_early_and_is_still_measured(
    whole: Path, tmp_path: Path, name: ArmName
) -> None:
    steep = Arm(kind=name, seed=1, tuning=Tuning(rate=1e30))
    for needed in steep.needs:
        shutil.copytree(needed.folder(whole), needed.folder(tmp_path))

    def breaks(event: JobLine) -> None:
        if event.event == "playing":
            raise Stopped

    with pytest.raises(Stopped):
        train_arm(steep, tmp_path, LEARNING, breaks)
    # The arm is measured and not trained again.
    arm_result = train_arm(steep, tmp_path, LEARNING, silent)
    assert arm_result.stopped.startswith(f"step {arm_result.steps + 1}: the loss is nan at")
    assert "Lower" not in arm_result.stopped, "what an arm says is for commands with other options"
    assert len(arm_result.outcomes) == LEARNING.held_out
    assert arm_result.samples < result(AT_GRPO, whole).samples
    assert read_result(steep.folder(tmp_path)) == arm_result


def test_the_proposer_arm_plays_only_the_tool_agent(whole: Path) -> None:
    assert set(result(PROPOSER, whole).answers) == {TOOL}
    assert set(result(SINGLE_GRPO, whole).answers) == {PLAN}
    assert set(result(PER_ROLE, whole).answers) == set(AGENTS)


def test_swapped_policies_answer_in_each_others_place(whole: Path) -> None:
    """On the same first observation, each policy now writes as plan agent what it wrote as tool
    agent, and vice versa."""
    playing = load_policies(arm(PER_ROLE), whole, LEARNING)
    arm_result = play_greedily(
        playing, arm(SWAPPED), LEARNING, Split.TEST, LEARNING.held_out, swapped=True
    )
    assert arm_result.outcomes == result(SWAPPED, whole).outcomes
    assert arm_result.answers == result(SWAPPED, whole).answers
    playing.activate(PLAN)
    table = LEARNING.game.tables(Split.TEST, 2026, 1)[0]
    (completion,) = playing.sampler.greedy(
        [playing.prompter.ids(table.episode.observe(TOOL))], limit=LEARNING.reinforced.limit
    )
    assert playing.prompter.text(completion) in arm_result.answers[TOOL]


def test_best_of_k_is_reproducible_from_its_seed(whole: Path, tmp_path: Path) -> None:
    warm = arm(WARM_START)
    shutil.copytree(warm.folder(whole), warm.folder(tmp_path))
    again = train_arm(arm(BEST_OF_K), tmp_path, LEARNING, silent)
    assert again.outcomes == result(BEST_OF_K, whole).outcomes
    assert again.failures == result(BEST_OF_K, whole).failures
    assert set(again.failures) <= {"refused", "in circles", "out of turns"}


def test_an_update_from_whole_runs_has_as_many_completions(tmp_path: Path) -> None:
    settings = LEARNING.model_copy(
        update={"reinforced": LEARNING.reinforced.model_copy(update={"minibatch": 64})}
    )
    settings_by_name = {name: grpo_settings(settings, KINDS[name], "", 1) for name in REWARDED}
    turns = LEARNING.game.turns
    assert settings_by_name[MAS_GRPO].minibatch == 64 // turns
    assert settings_by_name[AT_GRPO].minibatch == settings_by_name[PER_ROLE].minibatch == 64
    assert (
        settings_by_name[PER_ROLE_LORA].learning_rate
        == 10 * settings_by_name[PER_ROLE].learning_rate
    )
    for name in REWARDED:
        assert settings_by_name[name].group_size == settings_by_name[AT_GRPO].group_size
        assert settings_by_name[name].objective == settings_by_name[AT_GRPO].objective


def test_a_tuning_changes_only_the_settings_that_it_lists() -> None:
    settings = ArmSettings(game=LEARNING.game)
    tuned = Tuning(rate=2, entropy=0, batch=0.25).applied(settings)
    rewarded, imitated = settings.reinforced, settings.supervised
    expected = settings.model_dump()
    expected["reinforced"] |= {
        "learning_rate": 2 * rewarded.learning_rate, "entropy": 0.0, "episodes": 12,
    }  # fmt: skip
    expected["supervised"] |= {"learning_rate": 2 * imitated.learning_rate, "batch": 16}
    assert tuned.model_dump() == expected
    assert (rewarded.episodes, imitated.batch, rewarded.entropy > 0) == (48, 64, True)
    assert OWN.applied(settings) == settings
    assert Tuning(batch=1e-9).applied(settings).reinforced.episodes == 1


@pytest.mark.parametrize(("value", "text"), [(math.nan, "nan"), (-math.inf, "inf")])
def test_a_nan_supervised_loss_changes_no_weight(
    value: float, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer's logits are set to `value`."""
    plain = Network.learned_logits

    def logits(self: Network, ids: torch.Tensor, learned: torch.Tensor) -> torch.Tensor:
        return plain(self, ids, learned).scatter(1, ids[:, 1:][learned][:, None], value)

    refused(logits, f"the loss is {text} at supervised step 3", tmp_path, monkeypatch)


def test_a_nan_supervised_gradient_changes_no_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Network.learned_logits

    def endless(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * math.inf

    def logits(self: Network, ids: torch.Tensor, learned: torch.Tensor) -> torch.Tensor:
        output_logits = plain(self, ids, learned)
        output_logits.register_hook(endless)
        return output_logits

    refused(logits, "the gradient is nan at supervised step 3", tmp_path, monkeypatch)


def refused(
    logits: Callable[[Network, torch.Tensor, torch.Tensor], torch.Tensor],
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Require that the third supervised step of seed 1 fails with these logits."""
    playing = untrained_policies(arm(WARM_START), folder, LEARNING)
    steps = SupervisedSteps(LEARNING, 1, 0, None, playing.policies, playing.prompter)
    before = {k: v.detach().clone() for k, v in playing.policies.network.trained()}
    monkeypatch.setattr(Network, "learned_logits", logits)
    with pytest.raises(
        NotFinite, match=rf"{message}, whose 16 answers .* of seed 1000005, at a learning rate of "
    ):
        steps.step(2, 0.5)
    assert same(before, dict(playing.policies.network.trained()))


@pytest.mark.parametrize("name", [AT_GRPO, PER_ROLE])
def test_an_arm_that_ends_early_is_measured_with_the_weights_from_before_the_failed_step(
    name: ArmName, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other minibatches or another policy may have changed weights in that step: wherever in the
    second step a gradient becomes NaN, the result is the same."""
    ended = {bad: tmp_path / str(bad) for bad in (1, 3)}
    for bad, output in ended.items():
        for needed in arm(name).needs:
            shutil.copytree(needed.folder(whole), needed.folder(output))
        with monkeypatch.context() as patched:
            spoil(patched, step=2, update=bad)
            arm_result = train_arm(arm(name), output, LEARNING, silent)
        assert arm_result.stopped.startswith("step 2: the gradient is nan")
        assert arm_result.steps == 1
    assert same(weights(name, ended[1]), weights(name, ended[3]))
    assert result(name, ended[1]).outcomes == result(name, ended[3]).outcomes


def test_a_peer_that_ended_in_its_first_step_sets_no_budget_for_a_control(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for needed in arm(AT_GRPO).needs:
        shutil.copytree(needed.folder(whole), needed.folder(tmp_path))
    with monkeypatch.context() as patched:
        spoil(patched, step=1, update=2)
        assert train_arm(arm(AT_GRPO), tmp_path, LEARNING, silent).tokens == 0
    with pytest.raises(TrainingError, match=r"stopped before it finished its first step .*lower"):
        train_arm(arm(CONTINUED), tmp_path, LEARNING, silent)


def spoil(monkeypatch: pytest.MonkeyPatch, *, step: int, update: int) -> None:
    """The gradient of that update of that step is NaN."""
    steps = updates = 0
    plain, clipped_norm = Learner.step, Learner._clipped_norm  # pyright: ignore[reportPrivateUsage]

    def counted(self: Learner, batch: StepBatch, rate: float) -> dict[str, PolicyStep]:
        nonlocal steps, updates
        steps, updates = steps + 1, 0
        return plain(self, batch, rate)

    def norm(self: Learner) -> float:
        nonlocal updates
        updates += 1
        total_norm = clipped_norm(self)
        return math.nan if (steps, updates) == (step, update) else total_norm

    monkeypatch.setattr(Learner, "step", counted)
    monkeypatch.setattr(Learner, "_clipped_norm", norm)


def test_arms_follow_the_arms_that_they_need_and_have_their_own_folders() -> None:
    arm_names: set[ArmName] = set()
    for name in KINDS:
        assert arm_names.issuperset(needed.kind for needed in arm(name).needs)
        arm_names.add(name)
    assert len({slug(name) for name in KINDS}) == len(KINDS)


def test_a_folder_accepts_more_seeds_only_if_allowed_and_no_other_settings(tmp_path: Path) -> None:
    claim(tmp_path / "out", LEARNING)
    more = LEARNING.model_copy(update={"seeds": (1, 2)})
    claim(tmp_path / "out", more, more_seeds=True)
    with pytest.raises(TrainingError, match="was started with other settings: seeds"):
        claim(tmp_path / "out", more)
    other_settings = LEARNING.model_copy(update={"held_out": 5})
    with pytest.raises(TrainingError, match="held_out"):
        claim(tmp_path / "out", other_settings, more_seeds=True)


def test_the_clock_of_a_killed_command_lacks_only_the_last_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline.trainers.grpo.arms.folder._KEPT_EVERY", 0.01)
    with track_seconds(tmp_path) as seconds:
        while not (tmp_path / CLOCK).exists():
            assert seconds() < 60
        assert 0 < read_record(tmp_path / CLOCK, Clock).seconds <= seconds()


def test_a_clock_that_a_full_disk_stopped_is_still_written_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline.trainers.grpo.arms.folder._KEPT_EVERY", 0.01)
    with track_seconds(tmp_path):
        with no_file_larger_than(16):
            for keeper in threading.enumerate():
                if keeper.name == CLOCK:
                    keeper.join(60)
                    assert not keeper.is_alive()
        (tmp_path / CLOCK).unlink(missing_ok=True)
    assert (tmp_path / CLOCK).exists()


def test_a_restart_keeps_unrelated_files(tmp_path: Path) -> None:
    claim(tmp_path, LEARNING)
    (tmp_path / "seed-1").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    other_settings = LEARNING.model_copy(update={"held_out": 5})
    claim(tmp_path, other_settings, restart=True)
    assert not (tmp_path / "seed-1").exists()
    assert (tmp_path / "notes.txt").read_text() == "mine"
    claim(tmp_path, other_settings)


def test_progress_shows_how_many_arms_are_done_and_how_long_the_others_may_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with JobProgress("arms") as progress:
        tell = progress.watch(4, 3)
        tell(arm(AT_GRPO), JobLine(event="training", done=100, total=1_000, message="half way"))
        tell(arm(PER_ROLE), JobLine(event="training", done=500, total=1_000, message="resumed"))
        tell(arm(AT_GRPO), JobLine(event="finished", message="7 of 8 held-out puzzles solved"))
    first, second, third = capsys.readouterr().err.splitlines()
    # Nothing has been done in this time yet.
    assert first == "seed 1, AT-GRPO, training: 10%, half way"
    assert second == "seed 1, AT-GRPO per role, training: 50%, resumed"
    assert third.startswith("seed 1, AT-GRPO: 7 of 8 held-out puzzles solved (2 of 4 arms; about ")
    assert third.endswith(" min left)")


def test_progress_continues_when_the_number_of_arms_grows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with JobProgress("arms") as progress:
        progress.watch(4, 3)(arm(AT_GRPO), JobLine(event="finished", message="7 of 8"))
        progress.watch(6, 4)(arm(PER_ROLE), JobLine(event="finished", message="8 of 8"))
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("seed 1, AT-GRPO: 7 of 8 (2 of 4 arms; about ")
    assert second.startswith("seed 1, AT-GRPO per role: 8 of 8 (3 of 6 arms; about ")


def test_an_arm_learns_on_the_cpu_even_if_there_is_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arm has one core, and its samples are drawn there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    playing = untrained_policies(arm(WARM_START), tmp_path, LEARNING)
    assert playing.policies.network.device.type == "cpu"
