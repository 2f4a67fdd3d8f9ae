"""Loops on a real bus with real workers: they train on exactly what was rolled out, once, even if
the trainer is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from loopline.agents.roles.pair.adaptive_sampling import AdaptiveSampling
from loopline.agents.workflows.pair import agreement_rate
from loopline.bench.proofs.grpo_faults.model import write_base
from loopline.bus import Bus, BusSettings, policies
from loopline.testing import RedisProcess
from loopline.trainers.core.network import load_base
from loopline.trainers.data.store import read_trajectories
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.data import GrpoData, read_data, sealing_of
from loopline.trainers.grpo.loop.report import LoopReport, RoundFacts, Seconds, last_line
from loopline.trainers.grpo.loop.rounds import LoopWatch
from loopline.trainers.grpo.loop.run_directory import RunDirectory
from loopline.trainers.grpo.loop.settings import LoopSettings
from loopline.trainers.grpo.pipeline import train
from tests.conftest import quick_settings
from tests.runtime.parsed_page import ParsedPage

from .looped import (
    Deployed,
    adapter,
    deployed,
    directory_of,
    interrupted,
    killed_at,
    loop_settings,
    on_bus,
    recorded,
    run_loop,
    same,
)
from .test_command import command
from .tiny_grpo import chance_at_updates

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Finished = tuple[LoopSettings, Path, LoopReport]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("peft", reason="needs make install")
    return write_base(tmp_path_factory.mktemp("loop") / "base")


@pytest.fixture(scope="module")
def bus(_shared_servers: dict[str, RedisProcess]) -> BusSettings:
    return quick_settings(next(iter(_shared_servers.values())).url, lease_seconds=2.0)


@pytest.fixture(scope="module")
def where(
    bus: BusSettings, base: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    """One deployment for all tests of this module that do not stop its workers."""
    with deployed(bus, base, tmp_path_factory.mktemp("workers")) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def undisturbed(
    where: Deployed, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Finished, torch.Tensor]:
    """An undisturbed loop of three rounds, and the random state at its end."""
    settings = loop_settings(where.base)
    output = tmp_path_factory.mktemp("finished") / "out"
    with chance_at_updates():
        report = run_loop(settings, output, where.settings)
    return (settings, output, report), torch.get_rng_state()


@pytest.fixture(scope="module")
def finished(undisturbed: tuple[Finished, torch.Tensor]) -> Finished:
    return undisturbed[0]


def test_each_round_learns_from_the_previous_version_s_samples_and_is_published_once(
    finished: Finished, where: Deployed
) -> None:
    settings, output, report = finished
    directory = directory_of(output)
    assert [entry.round for entry in report.rounds] == [1, 2, 3]
    for facts in report.rounds:
        sealed = directory.sealed(facts.round)
        assert facts.groups == len(sealed.groups) > 0
        assert (facts.stale, facts.foreign, facts.broken, facts.left_out) == (0, 0, 0, {})
        # Both policies are the one that all agents share, each with its own number.
        latest = directory.served(facts.round - 1).versions[-1]
        assert facts.served == latest
        for group in sealed.groups:
            assert group.version == latest[group.policy]
            assert (group.fate == "zero_variance") == (len(set(group.rewards)) == 1)
        assert facts.trained >= settings.grpo.batch or facts.puzzles == settings.most_puzzles
        assert facts.seconds.rollout > 0
    assert not list(output.rglob("*.runs.jsonl"))
    for number in range(3):
        assert not same(adapter(directory, number), adapter(directory, number + 1))
    shared = on_bus(where.settings.bus, "pair/tool")
    paths = [str((directory.published(number) / "shared").resolve()) for number in range(4)]
    assert [entry.path for entry in shared.versions][-4:] == paths
    assert shared.current == report.served["pair/tool"]
    assert same(
        load_file(output / "policies/shared/adapter_model.safetensors"), adapter(directory, 3)
    )


def test_a_finished_loop_writes_a_page_of_curves(finished: Finished) -> None:
    _, output, report = finished
    page = ParsedPage((output / "report.html").read_text())
    page.require_harmless()
    assert "AT-GRPO as a loop: plan_path" in page.text
    assert f"{len(report.rounds)} rounds" in page.text


def test_every_group_is_sealed_once_from_runs_that_the_recorder_has(
    finished: Finished, where: Deployed
) -> None:
    _, output, report = finished
    directory = directory_of(output)
    rounds = [directory.sealed(facts.round) for facts in report.rounds]
    runs = [run for loop_round in rounds for run in loop_round.runs]
    groups = [group for loop_round in rounds for group in loop_round.groups]
    assert len(set(runs)) == len(runs)
    assert len({group.id for group in groups}) == len(groups)
    origins = [origin for group in groups for origin in group.origins]
    assert len(set(origins)) == len(origins)
    recorded(where, set(runs))


def test_the_agreement_of_a_round_is_computed_from_its_recorded_runs(
    finished: Finished, where: Deployed
) -> None:
    _, output, report = finished
    rounds = {
        facts.round: set(directory_of(output).sealed(facts.round).runs) for facts in report.rounds
    }
    recorded(where, set.union(*rounds.values()))
    trajectories = {
        trajectory.run.id: trajectory for trajectory in read_trajectories(where.store, None).records
    }
    agreed = [facts.agreement for facts in report.rounds]
    assert agreed == [
        agreement_rate(*(trajectories[run] for run in runs)) for runs in rounds.values()
    ]
    assert any(rate is not None for rate in agreed), "nothing was ever proposed"
    assert last_line(report)["agreement"] == [
        None if rate is None else round(rate, 4) for rate in agreed
    ]


def test_training_from_the_recorder_s_store_gives_the_loop_s_weights_bit_for_bit(
    finished: Finished, where: Deployed, tmp_path: Path
) -> None:
    settings, output, report = finished
    same_as_offline(settings, where, directory_of(output), report, tmp_path / "out")


def same_as_offline(
    settings: LoopSettings,
    where: Deployed,
    directory: RunDirectory,
    report: LoopReport,
    output: Path,
) -> GrpoData:
    """Train from the store as the loop has trained; the weights must be equal. Returns the data."""
    runs = tuple(run for facts in report.rounds for run in directory.sealed(facts.round).runs)
    recorded(where, set(runs))
    loaded = load_base(settings.grpo.base)
    offline = settings.grpo.model_copy(update={"batch": 10_000})
    data = read_data(where.store, "pair", sealing_of(offline, loaded), runs)
    versions = sorted({group.policy.version for group in data.groups})
    offline = offline.model_copy(update={"base_version": versions[0]})
    train(offline, data, loaded, output)
    weights = load_file(output / "policies/shared/adapter_model.safetensors")
    assert same(weights, adapter(directory, len(report.rounds)))
    return data


def test_a_replay_of_a_loop_with_adaptive_sampling_gives_the_same_weights(
    where: Deployed, base: Path, tmp_path: Path
) -> None:
    adaptive = AdaptiveSampling(exit_when="balanced", rounds=3, success=0.5)
    settings = loop_settings(base, adaptive=adaptive, rounds=2)
    report = run_loop(settings, tmp_path / "loop", where.settings)
    directory = directory_of(tmp_path / "loop")
    data = same_as_offline(settings, where, directory, report, tmp_path / "offline")
    assert any(len(group.sampled_rewards) > len(group.rewards) for group in data.groups)


def test_a_trainer_that_is_killed_again_and_again_resumes_as_if_uninterrupted(
    undisturbed: tuple[Finished, torch.Tensor], bus: BusSettings, base: Path, tmp_path: Path
) -> None:
    """Each on its own bus, with the same plans: after runs were started and before any was
    collected; before a wave is sealed; after a step, before its checkpoint; before the result is
    published; within the next step, with its gradients and before they change the weights; before
    that round's adapters are written."""
    (settings, before, report), random_state = undisturbed
    output = tmp_path / "out"
    planned = copied_plans(before, output)
    with deployed(quick_settings(bus.redis_url), base, tmp_path / "workers") as where:
        for place, call in (
            ("_gather", 1), ("seal_round", 1), ("save", 1), ("serve", 2), ("_clipped_norm", 1),
            ("_write", 1),
        ):  # fmt: skip
            killed_at(place, call, settings, output, where.settings)
        with chance_at_updates():
            again = run_loop(settings, output, where.settings)
        random_state_again = torch.get_rng_state()
        paths = [entry.path for entry in on_bus(where.settings.bus, "pair/plan").versions]
    directory, reference_book = directory_of(output), directory_of(before)
    assert copied_plans(output, tmp_path / "plans") == planned
    for facts in report.rounds:
        sealed, expected = directory.sealed(facts.round), reference_book.sealed(facts.round)
        assert [entry.id for entry in sealed.groups] == [entry.id for entry in expected.groups]
        assert same(adapter(directory, facts.round), adapter(reference_book, facts.round))
    # Losses and all other facts of a round, including the numbers of its versions.
    assert list(map(without_time, again.rounds)) == list(map(without_time, report.rounds))
    assert again.served == report.served
    assert torch.equal(random_state_again, random_state)
    # Each version was published once.
    assert paths == [str((directory.published(number) / "shared").resolve()) for number in range(4)]


def without_time(facts: RoundFacts) -> RoundFacts:
    policies = {
        name: summary.model_copy(update={"seconds": 0.0})
        for name, summary in facts.step.policies.items()
    }
    step = facts.step.model_copy(update={"policies": policies})
    return facts.model_copy(update={"step": step, "seconds": Seconds()})


def copied_plans(source: Path, output: Path) -> dict[str, bytes]:
    """Take over the loop's identity, and which runs play which puzzles."""
    plans = {
        str(path.relative_to(source)): path.read_bytes()
        for path in (source / "loop.json", *sorted(source.glob("rounds/*/wave-*.plan.json")))
    }
    for name, body in plans.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_bytes(body)
    return plans


def test_ctrl_c_while_the_loop_waits_for_runs_ends_it_at_once_and_it_can_be_resumed(
    where: Deployed, tmp_path: Path
) -> None:
    settings = loop_settings(where.base, rounds=1)
    roles = where.processes["roles"]
    roles.send_signal(signal.SIGSTOP)
    try:
        child = interrupted(settings, tmp_path / "out", where.settings, tmp_path / "ready")
        until = time.monotonic() + 60
        while not (tmp_path / "ready").exists():
            assert time.monotonic() < until
            assert child.is_alive()
            time.sleep(0.02)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGINT)
        child.join(30)
        assert child.exitcode == 130
    finally:
        roles.send_signal(signal.SIGCONT)
    (plan,) = directory_of(tmp_path / "out").waves(1)
    report = run_loop(settings, tmp_path / "out", where.settings)
    assert report.rounds[0].runs >= len(plan.runs)


def test_rollouts_may_be_one_version_ahead_and_no_group_is_older_than_the_bound(
    where: Deployed, tmp_path: Path
) -> None:
    settings = loop_settings(where.base, staleness=1)
    leads: list[int] = []
    report = run_loop(
        settings, tmp_path / "out", where.settings,
        LoopWatch(round=lambda facts, rounds: leads.append(begun_ahead(tmp_path / "out"))),
    )  # fmt: skip
    # When a round was trained, the next one's runs had started.
    assert leads == [2, 3, 3]
    ages = {age for facts in report.rounds for summary in facts.step.policies.values()
            for age in summary.ages}  # fmt: skip
    assert ages <= {0, 1}
    assert 1 in ages


def begun_ahead(output: Path) -> int:
    """The last round that has a plan."""
    return max(int(path.parent.name) for path in output.glob("rounds/*/wave-*.plan.json"))


def test_the_command_trains_a_policy_per_role_and_ends_with_a_table_and_a_json_line(
    where: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPLINE_PROFILE", str(where.profile))
    monkeypatch.setenv("LOOPLINE_STATE", str(tmp_path / "state"))
    arguments = (
        tmp_path / "out", "--base", where.base, "--weights", "lora", "--rank", 2,
        "--policies", "per-role", "--game", "plan_path", "--size", 5, "--setting", "turns=2",
        "--setting", "brief=true", "--no-instructions", "--max-tokens", 8, "--rounds", 2,
        "--puzzles", 2, "--batch", 6, "--learning-rate", 1e-2, "--truncated", "keep", "--json",
        "--keep-ratios", 100_000,
    )  # fmt: skip
    code, out, err = command("loop", *arguments)
    assert code == 0, err
    assert "round 2/2  solved" in err
    assert "plain_logprobs" not in err
    summary = json.loads(out.splitlines()[-1])
    assert summary["rounds"] == 2
    assert summary["puzzles"] > 4, "two puzzles have no six groups with a signal"
    assert set(summary["policies"]) == {"tool_agent", "plan_agent"}
    assert summary["groups"] == summary["trained_groups"] + summary["zero_variance_groups"]
    assert set(summary["seconds"]) == {"rollout", "wait", "train", "publish"}
    assert "agreed" in out
    assert list((tmp_path / "out/curves/rounds").iterdir())
    assert len(list((tmp_path / "out/learned-tokens").iterdir())) == 2
    directory = directory_of(tmp_path / "out")
    assert not same(adapter(directory, 2, "tool_agent"), adapter(directory, 2, "plan_agent"))
    tool = on_bus(where.settings.bus, "pair/tool")
    assert tool.path_of(summary["served"]["pair/tool"]) == str(
        directory.published(2) / "tool_agent"
    )
    # As left by a loop that is killed before it has removed the last checkpoint.
    (tmp_path / "out/checkpoints/checkpoint-00000002").mkdir(parents=True)
    code, again, err = command("loop", *arguments)
    assert code == 0
    assert "is finished; --restart trains again" in err
    assert again == out
    assert not (tmp_path / "out/checkpoints").exists()


def test_a_loop_plays_with_the_policies_and_prompts_of_the_deployment(
    where: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Including the agent that is not trained, to which the workflow assigns another policy. The
    user of a profile without `plain_logprobs` learns what that means."""
    prompt = tmp_path / "tool_agent.md"
    prompt.write_text("---\nname: tool_agent\nversion: 2\n---\nWrite one call.\n")
    profile = tmp_path / "profile.toml"
    profile.write_text(
        f"extends = {json.dumps(str(where.profile))}\n"
        '[policies]\nplan_agent = "pair/tool"\n[models.pair]\nplain_logprobs = false\n'
        f"[prompts]\ntool_agent = {json.dumps(str(prompt))}\n"
    )
    monkeypatch.setenv("LOOPLINE_PROFILE", str(profile))
    monkeypatch.setenv("LOOPLINE_STATE", str(tmp_path / "state"))
    arguments = (
        tmp_path / "out", "--base", where.base, "--weights", "lora", "--rank", 2,
        "--agent", "tool_agent", "--game", "plan_path", "--size", 5, "--setting", "turns=2",
        "--setting", "brief=true", "--max-tokens", 8, "--rounds", 1, "--puzzles", 2,
        "--batch", 1, "--truncated", "keep",
    )  # fmt: skip
    code, _, err = command("loop", *arguments)
    assert code == 0, err
    assert err.count("the pool pair has no plain_logprobs: its log-probabilities differ") == 1
    runs = set(directory_of(tmp_path / "out").sealed(1).runs)
    recorded(where, runs)
    for trajectory in read_trajectories(where.store, None).records:
        if trajectory.run.id in runs:
            assert trajectory.run.policies["plan_agent"] == "pair/tool"
            assert trajectory.run.prompt_files == {"tool_agent.md": prompt.read_text()}
    prompt.write_text(prompt.read_text().replace("one call", "two calls"))
    code, _, err = command("loop", *arguments)
    assert code == 1
    assert "was started with other settings: prompts.tool_agent.md" in err


def test_an_offline_training_can_be_published_to_the_workers_that_recorded_its_runs(
    finished: Finished, where: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, output, _ = finished
    recorded(where, set(directory_of(output).sealed(1).runs))
    monkeypatch.setenv("LOOPLINE_PROFILE", str(where.profile))
    monkeypatch.setenv("LOOPLINE_STATE", str(tmp_path / "state"))
    before = on_bus(where.settings.bus, "pair/plan")
    code, out, err = command(
        "offline", tmp_path / "out", "--from-store", where.store, "--base", where.base,
        "--weights", "lora", "--rank", 2, "--workflow", "pair", "--truncated", "keep",
        "--steps", 1, "--publish",
    )  # fmt: skip
    assert code == 0, err
    after = on_bus(where.settings.bus, "pair/plan")
    assert after.current == max(version.version for version in before.versions) + 1
    [folder] = (tmp_path / "out/published").glob("*/shared")
    assert after.path_of(after.current) == str(folder.resolve())
    assert f"pair/plan: version {after.current}" in out
    assert out.count("gpu: serves version") == 2


def test_a_policy_that_another_program_changed_is_reported_and_not_overwritten(
    finished: Finished, where: Deployed, tmp_path: Path
) -> None:
    _, other_output, _ = finished
    settings = loop_settings(where.base, rounds=1)
    killed_at("serve", 2, settings, tmp_path / "out", where.settings)
    foreign = str((directory_of(other_output).published(1) / "shared").resolve())

    async def publish() -> None:
        async with Bus(where.settings.bus) as bus:
            await policies.publish(bus, "pair/plan", foreign)

    asyncio.run(publish())
    with pytest.raises(TrainingError, match=r"'pair/plan': another client has selected version"):
        run_loop(settings, tmp_path / "out", where.settings)
    assert (
        on_bus(where.settings.bus, "pair/plan").path_of(
            on_bus(where.settings.bus, "pair/plan").current
        )
        == foreign
    )
