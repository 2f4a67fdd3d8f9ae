"""Offline training: it learns, is the in-process loop, survives a kill, and refuses bad data."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from loopline.agents.records import Trajectory
from loopline.trainers.errors import NotEnoughDisk, TrainingError, UnreadableData
from loopline.trainers.grpo.data import GrpoData, known_runs, read_data
from loopline.trainers.grpo.groups import Group, Sealing, seal
from loopline.trainers.grpo.learner import Learner, NotFinite
from loopline.trainers.grpo.pipeline import StepListener, initial_policies, train
from loopline.trainers.grpo.report import Report
from loopline.trainers.grpo.sequences import same_tokenizer
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.trainers.grpo.storing import write_policies
from loopline.trainers.grpo.stream import batches_of, step_batches
from loopline.workers.engines.torch.lora import LoraLayers

from .launched import launched
from .recorded import a_call, a_candidate, a_run, a_step, record
from .tiny_grpo import (
    chance_at_updates,
    data_in,
    load,
    rollouts,
    sealing_of,
    settings_of,
    write_base,
)

pytestmark = pytest.mark.slow
STEPS = 20


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("grpo") / "base")


def weights(folder: Path, policy: str = "shared") -> dict[str, torch.Tensor]:
    return load_file(folder / "policies" / policy / "model.safetensors")


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def recorded(store: Path, runs: list[Trajectory], batch: int = 1) -> None:
    asyncio.run(record(store, runs, batch=batch))


@pytest.fixture(scope="module")
def store(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve groups that the base itself sampled, of two agents."""
    folder = tmp_path_factory.mktemp("store")
    recorded(folder, rollouts(load(base), 0, count=6, agents=("coder", "tester")))
    return folder


def data_of(store: Path, base: Path) -> GrpoData:
    return data_in(store, load(base))


def test_the_in_process_loop_and_its_replay_from_the_store_give_the_same_weights(
    base: Path, tmp_path: Path
) -> None:
    """Twenty versions, each trained on the previous one's samples: bit-identical in fp32."""
    settings = settings_of(staleness=0, minibatch=2)
    loaded = load(base)
    policies = initial_policies(settings, ["shared"], loaded)
    learner = Learner(policies)
    for version in range(STEPS):
        runs = rollouts(loaded, version)
        recorded(tmp_path / "store", runs, batch=version + 1)
        groups = seal(runs, sealing_of(loaded)).records
        now = settings.model_copy(update={"base_version": version, "steps": 1})
        (batch,) = step_batches(groups, now)
        assert {group.policy.version for group in batch.groups} == {version}
        learner.step(batch)
    online = {name: tensor.detach().clone() for name, tensor in policies.network.trained()}
    report = train(settings, data_of(tmp_path / "store", base), load(base), tmp_path / "out")
    assert len(report.steps) == STEPS
    offline = weights(tmp_path / "out")
    assert all(torch.equal(offline[name], online[name]) for name in online)
    assert not same(offline, load_file(base / "model.safetensors"))
    # On policy: the sampler's and the trainer's values agree except for rounding.
    first = report.steps[0].policies["shared"]
    assert first.effective_samples == pytest.approx(1.0, abs=1e-6)
    assert first.ratios == pytest.approx([1.0] * 5, abs=1e-5)


def test_rewards_rise_when_the_policy_learns_from_its_own_samples(base: Path) -> None:
    settings = settings_of(learning_rate=6e-2, batch=6)
    loaded = load(base)
    learner = Learner(initial_policies(settings, ["shared"], loaded))
    means: list[float] = []
    for version in range(14):
        groups = seal(rollouts(loaded, version, count=6), sealing_of(loaded)).records
        rewards = [reward for group in groups for reward in group.rewards]
        means.append(sum(rewards) / len(rewards))
        now = settings.model_copy(update={"base_version": version})
        for batch in step_batches(groups, now):
            learner.step(batch)
    assert sum(means[-4:]) / 4 > sum(means[:4]) / 4 + 0.3, means


def without_time(report: Report) -> list[object]:
    return [
        (step.version, step.stale, name, summary.model_copy(update={"seconds": 0.0}))
        for step in report.steps
        for name, summary in step.policies.items()
    ]


def test_a_run_killed_with_sigkill_within_a_step_resumes_as_if_uninterrupted(
    base: Path, store: Path, tmp_path: Path
) -> None:
    """Losses, random numbers, position in the stream and weights equal those of an undisturbed
    run."""
    settings = settings_of(policies="per-role", minibatch=1, epochs=2, objective={"kl": 0.01})
    killed = tmp_path / "killed"
    with launched(settings, store, base, killed, held_at=8) as (process,):
        process.kill()
        process.join()
    assert [path.name for path in (killed / "checkpoints").iterdir()] == ["checkpoint-00000002"]
    steps: list[int] = []
    data = data_of(store, base)
    with chance_at_updates():
        resumed = train(
            settings, data, load(base), killed,
            watch=StepListener(progress=lambda now: steps.append(now.step)),
        )  # fmt: skip
        random_state = torch.get_rng_state()
        whole = train(settings, data, load(base), tmp_path / "whole")
    assert steps[0] == 3
    assert without_time(resumed) == without_time(whole)
    assert torch.equal(random_state, torch.get_rng_state())
    for policy in ("coder", "tester"):
        assert same(weights(killed, policy), weights(tmp_path / "whole", policy))
    assert not same(weights(killed, "coder"), weights(killed, "tester"))


def test_adapters_resume_from_a_checkpoint_as_if_uninterrupted(
    base: Path, store: Path, tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="needs make install")
    settings = settings_of(weights="lora", policies="per-role", rank=2, objective={"kl": 0.01})

    def stop(step: int) -> None:
        if step == 2:
            raise KeyboardInterrupt

    data = data_of(store, base)
    with pytest.raises(KeyboardInterrupt):
        train(
            settings, data, load(base), tmp_path / "stopped", checkpoint_every=1,
            watch=StepListener(checkpoint=stop),
        )  # fmt: skip
    resumed = train(settings, data, load(base), tmp_path / "stopped")
    whole = train(settings, data, load(base), tmp_path / "whole")
    assert without_time(resumed) == without_time(whole)
    for policy in ("coder", "tester"):
        resumed_weights, reference_weights = (
            load_file(tmp_path / name / "policies" / policy / "adapter_model.safetensors")
            for name in ("stopped", "whole")
        )
        assert same(resumed_weights, reference_weights)


def test_adapters_per_role_are_served_as_they_were_trained(
    base: Path, store: Path, tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="needs make install")
    settings = settings_of(weights="lora", policies="per-role", rank=2, learning_rate=1e-2)
    loaded = load(base)
    before = loaded.model.state_dict()["model.norm.weight"].clone()
    policies = initial_policies(settings, ["coder", "tester"], loaded)
    learner = Learner(policies)
    for batch in step_batches(data_in(store, loaded).groups, settings):
        learner.step(batch)
    ids = torch.arange(3, 20)[None]
    trained: dict[str, torch.Tensor] = {}
    write_policies(policies, tmp_path / "out", lambda name: settings)
    for name in policies.names:
        policies.activate(name)
        with torch.no_grad():
            trained[name] = policies.network.whole(ids).logits
    base_model = load(base)
    assert torch.equal(base_model.model.state_dict()["model.norm.weight"], before)
    with torch.no_grad():
        plain = base_model.model(ids).logits
    layers = LoraLayers(base_model.model, base_model.device)
    read = {name: layers.read(str(tmp_path / "out" / name)) for name in policies.names}
    with torch.no_grad():
        layers.use(list(read.values()))
        together = base_model.model(ids.expand(2, -1)).logits
        for row, (name, adapter) in enumerate(read.items()):
            layers.use([adapter])
            alone = base_model.model(ids).logits
            assert torch.allclose(alone, trained[name], rtol=0, atol=1e-5)
            assert torch.allclose(together[row : row + 1], trained[name], rtol=0, atol=1e-5)
    # No adapter, the other role's, or one at another scale differs by more than rounding.
    for logits in (plain, trained["tester"]):
        assert float((trained["coder"] - logits).abs().max()) > 1e-3


def test_one_policy_learns_from_all_agents_or_each_from_its_own(
    base: Path, store: Path, tmp_path: Path
) -> None:
    shared = train(settings_of(), data_of(store, base), load(base), tmp_path / "shared")
    apart = train(
        settings_of(policies="per-role"), data_of(store, base), load(base), tmp_path / "apart"
    )
    by_policy = [
        {name: item.groups for step in report.steps for name, item in step.policies.items()}
        for report in (shared, apart)
    ]
    assert [set(item) for item in by_policy] == [{"shared"}, {"coder", "tester"}]
    assert list((tmp_path / "apart/curves/coder").glob("events.*"))


def spoiled(runs: list[Trajectory], at: int, logprob: float = -2_000.0) -> list[Trajectory]:
    """The sampler of run `at` gives the tokens of its last step these log-probabilities; by default
    impossible ones, whose ratios overflow."""
    run = runs[at]
    *others, step = run.steps
    candidates = [
        candidate.model_copy(
            update={
                "calls": tuple(
                    call.model_copy(update={"logprobs": (logprob,) * len(call.logprobs)})
                    for call in candidate.calls
                )
            }
        )
        for candidate in step.candidates
    ]
    last = step.model_copy(update={"candidates": tuple(candidates)})
    bad = run.model_copy(update={"steps": (*others, last)})
    return [*runs[:at], bad, *runs[at + 1 :]]


@pytest.mark.parametrize(
    ("agents", "minibatch"), [(("solo",), None), (("solo",), 1), (("coder", "tester"), None)]
)
def test_a_nan_loss_stops_the_training_and_keeps_the_last_good_version(
    agents: tuple[str, ...], minibatch: int | None, base: Path, tmp_path: Path
) -> None:
    """Even if a part of the bad step, or another policy's, has already changed weights."""
    loaded = load(base)
    runs = [run for version in range(3) for run in rollouts(loaded, version, agents=agents)]
    policies = ("shared",) if len(agents) == 1 else agents
    good = settings_of(
        staleness=0, steps=2, minibatch=minibatch, batch=3 * len(agents),
        policies="shared" if len(agents) == 1 else "per-role", objective={"correction": "clip"},
    )  # fmt: skip
    recorded(tmp_path / "good", runs)
    train(good, data_of(tmp_path / "good", base), load(base), tmp_path / "expected")
    recorded(tmp_path / "store", spoiled(runs, 7))
    settings = good.model_copy(update={"steps": None})
    with pytest.raises(NotFinite) as raised:
        train(settings, data_of(tmp_path / "store", base), load(base), tmp_path / "out")
    message = str(raised.value)
    assert f"step 3: the loss is inf at version 2, policy {policies[-1]}, minibatch" in message
    assert runs[7].run.id in message
    lower = "Lower --learning-rate (1.0e-03), or leave those runs out"
    assert f". {lower}; version 2, after step 2, is the last good one" in message
    for policy in policies:
        good_weights = load_file(tmp_path / "out/last-good" / policy / "model.safetensors")
        assert same(good_weights, weights(tmp_path / "expected", policy))


def test_a_failed_step_restores_weights_and_moments_that_its_minibatches_had_changed(
    base: Path,
) -> None:
    loaded = load(base)
    settings = settings_of(minibatch=1, objective={"correction": "clip"}, seed=3)
    learner = Learner(initial_policies(settings, ["shared"], loaded))
    for version, bad in ((0, True), (0, False), (1, True)):
        runs = rollouts(loaded, version)
        groups = seal(spoiled(runs, 2) if bad else runs, sealing_of(loaded)).records
        now = settings.model_copy(update={"base_version": version})
        (batch,) = step_batches(groups, now)
        before = learner.policies.copied()
        if bad:
            with pytest.raises(NotFinite, match=r"minibatch [23] of 3"):
                learner.step(batch)
        else:
            learner.step(batch)
        assert same(before, learner.policies.copied()) == bad


def test_a_nan_gradient_of_a_finite_loss_changes_no_weight(base: Path) -> None:
    """Ratios of e^60 are finite; their squares in a norm overflow."""
    loaded = load(base)
    runs = spoiled(rollouts(loaded, 0), 1, logprob=-65.0)
    settings = settings_of(objective={"correction": "clip"})
    (batch,) = step_batches(seal(runs, sealing_of(loaded)).records, settings)
    learner = Learner(initial_policies(settings, ["shared"], loaded))
    before = {name: tensor.detach().clone() for name, tensor in learner.policies.network.trained()}
    with pytest.raises(NotFinite) as raised:
        learner.step(batch)
    message = str(raised.value)
    assert "the gradient is inf at version 0, policy shared, minibatch 1 of 1; samples: " in message
    assert message.endswith(" and 8 more"), "what to do is for a command to say, by its own options"
    assert same(before, dict(learner.policies.network.trained()))


def test_a_full_disk_at_a_checkpoint_is_reported_and_the_previous_one_resumes(
    base: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, data = settings_of(), data_of(store, base)
    whole = train(settings, data, load(base), tmp_path / "whole")

    def fill(step: int) -> None:
        if step == 2:
            monkeypatch.setattr("loopline.trainers.core.checkpoints.shutil.disk_usage", full)

    with pytest.raises(NotEnoughDisk, match=r"the checkpoint of step 3 was not written.*free some"):
        train(
            settings, data, load(base), tmp_path / "out", checkpoint_every=1,
            watch=StepListener(checkpoint=fill),
        )  # fmt: skip
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "out/checkpoints").glob("checkpoint-*")] == [
        "checkpoint-00000002"
    ]
    report = train(settings, data, load(base), tmp_path / "out")
    assert without_time(report) == without_time(whole)


def full(path: Path) -> SimpleNamespace:
    """The result of `shutil.disk_usage` for a disk with a megabyte left."""
    return SimpleNamespace(total=10**9, used=10**9 - 10**6, free=10**6)


def test_a_store_with_only_groups_of_equal_rewards_is_refused(base: Path, tmp_path: Path) -> None:
    run = rollouts(load(base), 0, count=1)[0]
    (step,) = run.steps
    same_reward = [c.model_copy(update={"reward_parts": {"team": 1.0}}) for c in step.candidates]
    recorded(tmp_path, [a_run(1, a_step(same_reward))])
    with pytest.raises(TrainingError, match=r"all 1 groups .* have equal rewards"):
        data_of(tmp_path, base)


def test_a_store_without_runs_or_complete_groups_is_reported(
    base: Path, store: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnreadableData, match="holds no recorded runs"):
        data_of(tmp_path, base)
    sealing = sealing_of(load(base))
    with pytest.raises(UnreadableData, match="no readable run of the workflow 'solo'"):
        read_data(store, "solo", sealing)
    with pytest.raises(UnreadableData, match=r"no complete group of 9.*12 × incomplete group"):
        read_data(store, None, replace(sealing, size=9))
    foreign = replace(sealing, belongs=same_tokenizer(load(base).codec, 2, frozenset()))
    with pytest.raises(UnreadableData, match="48 × token ids of another tokenizer"):
        read_data(store, None, foreign)


def test_runs_recorded_later_do_not_change_a_running_training(base: Path, tmp_path: Path) -> None:
    loaded = load(base)
    recorded(tmp_path / "store", rollouts(loaded, 0))
    data = data_in(tmp_path / "store", loaded)
    train(settings_of(), data, loaded, tmp_path / "out")
    recorded(tmp_path / "store", rollouts(load(base), 1), batch=2)
    later = data_of(tmp_path / "store", base)
    assert later.sha256 != data.sha256
    run_ids = known_runs(tmp_path / "out")
    assert read_data(tmp_path / "store", None, sealing_of(load(base)), run_ids) == data


def test_other_settings_and_other_folders_are_refused(
    base: Path, store: Path, tmp_path: Path
) -> None:
    data = data_of(store, base)
    train(settings_of(), data, load(base), tmp_path / "out")
    with pytest.raises(TrainingError, match=r"other settings: seed \(1 → 2\)"):
        train(settings_of(seed=2), data, load(base), tmp_path / "out")
    messages: list[str] = []
    train(
        settings_of(), data, load(base), tmp_path / "out", watch=StepListener(say=messages.append)
    )
    assert messages == [f"the training in {tmp_path / 'out'} is finished; --restart trains again"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("mine")
    with pytest.raises(TrainingError, match="already contains other files"):
        train(settings_of(), data, load(base), tmp_path / "other", restart=True)


def test_a_restart_deletes_the_training_and_keeps_unrelated_files(
    base: Path, store: Path, tmp_path: Path
) -> None:
    data, out = data_of(store, base), tmp_path / "out"
    train(settings_of(), data, load(base), out)
    (out / "run.log").write_text("mine")
    (out / ".policies.99999999.part/shared").mkdir(parents=True)
    train(settings_of(seed=2), data, load(base), out, restart=True)
    assert (out / "run.log").read_text() == "mine"
    assert not (out / ".policies.99999999.part").exists()
    with pytest.raises(TrainingError, match=r"other settings: seed \(2 → 1\)"):
        train(settings_of(), data, load(base), out)


def test_a_training_learns_from_an_old_store_version_by_version_within_the_bound() -> None:
    """Without a bound all of it, oldest first; with one, samples that are too old are counted."""

    def versions(**changes: object) -> list[tuple[int, list[int], int]]:
        batches = step_batches(_groups([0, 0, 0, 1, 3]), settings_of(batch=2, **changes))
        return [
            (item.version, [g.policy.version for g in item.groups], item.stale) for item in batches
        ]

    assert versions() == [(0, [0, 0], 0), (1, [0, 1], 0), (3, [3], 0)]
    assert versions(staleness=0) == [(0, [0, 0], 0), (1, [1], 1), (3, [3], 0)]
    assert versions(base_version=3, staleness=2) == [(3, [1, 3], 3)]
    assert versions(steps=1) == [(0, [0, 0], 0)]
    assert [item[0] for item in versions(epochs=2)] == [0, 1, 3, 4, 5, 6]


def test_groups_too_old_after_the_last_step_are_counted() -> None:
    def left(*versions: int, **changes: object) -> tuple[list[int], int]:
        batches = batches_of(
            _groups([*versions]), settings_of(**{"batch": 2, "staleness": 0} | changes)
        )
        return [step.stale for step in batches.steps], batches.stale

    assert left(0, 0, 0, 0, 0) == ([0], 3)
    assert left(0, 0, 0, 1) == ([0, 1], 0)
    assert left(0, 0, 0, steps=1) == ([0], 0)
    # All of them in the second epoch.
    assert left(0, 0, 0, epochs=2) == ([0], 4)


def _groups(versions: list[int]) -> tuple[Group, ...]:
    runs = [
        a_run(number, a_step([a_candidate(r, a_call(version=version)) for r in (0.0, 1.0)]))
        for number, version in enumerate(versions)
    ]
    return seal(runs, Sealing(size=2, belongs=lambda call: True, max_context=64)).records


def test_groups_of_equal_rewards_take_no_place_in_a_batch_and_are_counted(base: Path) -> None:
    loaded = load(base)
    groups = list(seal(rollouts(loaded, 0, count=4), sealing_of(loaded)).records)
    zero_variance = [
        replace(group, members=tuple(replace(m, reward=0.5) for m in group.members))
        for group in groups[:2]
    ]
    (batch,) = step_batches([*zero_variance, *groups[2:]], settings_of(batch=2))
    assert len(batch.groups) == 2
    settings = settings_of(batch=2)
    learner = Learner(initial_policies(settings, ["shared"], loaded))
    summary = learner.step(batch)["shared"]
    assert summary.groups == 2
    assert summary.zero_variance == len(batch.zero_variance)


def test_truncated_completions_are_left_out_of_the_loss_and_its_denominator(base: Path) -> None:
    loaded = load(base)
    groups = list(seal(rollouts(loaded, 0, count=2), sealing_of(loaded)).records)
    cut = [
        replace(
            group,
            members=tuple(
                replace(m, sequences=tuple(replace(s, truncated=at == 0) for s in m.sequences))
                for at, m in enumerate(group.members)
            ),
        )
        for group in groups
    ]
    token_counts: dict[str, int] = {}
    for how in ("mask", "keep"):
        settings: GrpoSettings = settings_of(truncated=how)
        learner = Learner(initial_policies(settings, ["shared"], load(base)))
        step = learner.step(next(iter(step_batches(cut, settings))))["shared"]
        assert step.truncated == 0.25
        token_counts[how] = step.learned
    assert token_counts["mask"] * 4 == token_counts["keep"] * 3


def test_each_tracker_has_a_run_for_each_policy(base: Path, store: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="needs make test, which installs it")
    settings, trackers = settings_of(policies="per-role", steps=2), ("tensorboard", "mlflow")
    train(settings, data_of(store, base), load(base), tmp_path, trackers=trackers)
    for policy in ("coder", "tester"):
        assert list(tmp_path.glob(f"curves/{policy}/events.out.tfevents.*"))
        [metric] = tmp_path.glob(f"curves/{policy}/mlflow/*/*/metrics/loss")
        assert [line.split()[2] for line in metric.read_text().splitlines()] == ["1", "2"]
