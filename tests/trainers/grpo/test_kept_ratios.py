"""The record of importance ratios: the values in the loss, token by token, once for each step."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from loopline.agents.records import PolicyRef
from loopline.runtime.observe.learned_tokens import LEARNED_TOKENS, LearnedSequence, read_learned
from loopline.trainers.errors import NotEnoughDisk
from loopline.trainers.grpo.data import GrpoData
from loopline.trainers.grpo.groups import Group, GroupKey, Member
from loopline.trainers.grpo.kept_ratios import KeptRatios
from loopline.trainers.grpo.losses import Objective, Tokens
from loopline.trainers.grpo.pipeline import Progress, StepListener, claim, train
from loopline.trainers.grpo.rows import Row
from loopline.trainers.grpo.sequences import TokenSequence
from loopline.workers.atomic_files import flush

from .launched import launched
from .recorded import record
from .tiny_grpo import SIZE, WRITTEN, data_in, load, rollouts, settings_of, write_base

ALL = 1_000_000
SEVERAL_UPDATES = settings_of(policies="per-role", minibatch=1, learning_rate=3e-2)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("kept") / "base")


@pytest.fixture(scope="module")
def store(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    asyncio.run(record(folder, rollouts(load(base), 0, count=6, agents=("coder", "tester"))))
    return folder


def data_of(store: Path, base: Path) -> GrpoData:
    return data_in(store, load(base))


def everything(training: Path, data: GrpoData) -> list[LearnedSequence]:
    """The records in a fixed order, since two processes share a step's rows."""
    records = [entry for run in data.runs for entry in read_learned(training, run)]
    return sorted(records, key=lambda entry: (entry.step, entry.sample))


def test_every_learned_token_is_recorded_once_per_step_with_its_sampling_log_probability(
    base: Path, store: Path, tmp_path: Path
) -> None:
    data = data_of(store, base)
    settings = SEVERAL_UPDATES.model_copy(update={"epochs": 2})
    report = train(settings, data, load(base), tmp_path, keep_ratios=ALL)
    records = everything(tmp_path, data)
    assert sum(len(entry.weights) for entry in records) == sum(
        facts.learned for step in report.steps for facts in step.policies.values()
    )
    places = [(entry.step, entry.sample) for entry in records]
    assert len(places) == len(set(places)) == 2 * 12 * SIZE
    members = {member.origin: member for group in data.groups for member in group.members}
    for entry in records:
        (sequence,) = members[entry.sample].sequences
        assert (entry.ids, entry.learned) == (sequence.ids, sequence.learned)
        assert entry.behaviour == pytest.approx(sequence.logprobs[-WRITTEN:], abs=1e-6)
        assert entry.sampled_version == 0
        assert entry.version == entry.step - 1
        assert entry.policy == entry.sample.split("/")[2].partition("#")[0]


def test_ratios_are_one_before_any_update_and_clipped_shares_match_the_report(
    base: Path, store: Path, tmp_path: Path
) -> None:
    data = data_of(store, base)
    report = train(SEVERAL_UPDATES, data, load(base), tmp_path, keep_ratios=ALL)
    records = everything(tmp_path, data)
    first = [entry for entry in records if entry.step == 1]
    for entry in first:
        assert entry.proximal == pytest.approx(entry.behaviour, abs=1e-5)
        assert entry.weights == pytest.approx([1.0] * len(entry.weights), abs=1e-4)
    for at, step in enumerate(report.steps, start=1):
        for name, summary in step.policies.items():
            flags = [c for entry in records if (entry.step, entry.policy) == (at, name)
                     for c in entry.clipped]  # fmt: skip
            assert sum(flags) / len(flags) == pytest.approx(summary.clipped)
    assert any(entry.trained != entry.proximal for entry in first), "the second update has moved"
    assert any(any(entry.clipped) for entry in records)


def test_the_first_groups_that_fit_are_kept_whole(base: Path, store: Path, tmp_path: Path) -> None:
    data = data_of(store, base)
    sizes = [sum(len(s.ids) for m in group.members for s in m.sequences) for group in data.groups]
    train(settings_of(batch=12), data, load(base), tmp_path / "some", keep_ratios=2 * max(sizes))
    records = everything(tmp_path / "some", data)
    assert sum(len(item.ids) for item in records) <= 2 * max(sizes)
    samples = {item.sample for item in records}
    whole = [{member.origin for member in group.members} for group in data.groups]
    groups = [item for item in whole if item & samples]
    assert len(groups) >= 2
    assert set().union(*groups) == samples
    train(settings_of(batch=12), data, load(base), tmp_path / "none")
    assert not (tmp_path / "none" / LEARNED_TOKENS).exists()


def test_keeping_ratios_changes_no_weight(base: Path, store: Path, tmp_path: Path) -> None:
    data = data_of(store, base)
    for name, tokens in (("kept", ALL), ("plain", 0)):
        train(SEVERAL_UPDATES, data, load(base), tmp_path / name, keep_ratios=tokens)
    weights, reference_weights = (
        (tmp_path / name / "policies/coder/model.safetensors").read_bytes()
        for name in ("kept", "plain")
    )
    assert weights == reference_weights


def test_repeated_steps_are_recorded_once(base: Path, store: Path, tmp_path: Path) -> None:
    """The stop comes after step 3; the last checkpoint is that of step 2."""
    data, stopped = data_of(store, base), tmp_path / "stopped"

    def stop(now: Progress) -> None:
        if now.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            SEVERAL_UPDATES, data, load(base), stopped, checkpoint_every=2, keep_ratios=ALL,
            watch=StepListener(progress=stop),
        )  # fmt: skip
    assert {entry.step for entry in everything(stopped, data)} == {1, 2, 3}
    # From a step that will be repeated by one process fewer.
    stray = stopped / LEARNED_TOKENS / "00000004-1.parquet"
    stray.write_bytes(b"")
    train(SEVERAL_UPDATES, data, load(base), stopped, keep_ratios=ALL)
    train(SEVERAL_UPDATES, data, load(base), tmp_path / "whole", keep_ratios=ALL)
    assert not stray.exists()
    assert everything(stopped, data) == everything(tmp_path / "whole", data)


@pytest.mark.slow
def test_two_processes_together_keep_the_ratios_that_one_keeps(
    base: Path, store: Path, tmp_path: Path
) -> None:
    data, settings = data_of(store, base), settings_of()
    pair = tmp_path / "pair"
    with launched(settings, store, base, pair, count=2, keep_ratios=ALL) as both:
        for item in both:
            item.join()
    train(settings, data, load(base), tmp_path / "alone", keep_ratios=ALL)
    pair_records, single_records = everything(pair, data), everything(tmp_path / "alone", data)
    assert [item.sample for item in pair_records] == [item.sample for item in single_records]
    for pair_record, single_record in zip(pair_records, single_records, strict=True):
        assert pair_record.trained == pytest.approx(single_record.trained, abs=1e-4)


def test_a_restart_deletes_the_record(base: Path, store: Path, tmp_path: Path) -> None:
    data = data_of(store, base)
    train(settings_of(), data, load(base), tmp_path, keep_ratios=ALL)
    train(settings_of(), data, load(base), tmp_path, restart=True)
    assert not (tmp_path / LEARNED_TOKENS).exists()


def test_a_failed_write_of_the_record_stops_the_training_before_the_step_counts(
    base: Path, store: Path, tmp_path: Path
) -> None:
    data, steps, settings = data_of(store, base), list[int](), settings_of()
    claim(tmp_path / "out", settings, data, restart=False)
    (tmp_path / "out" / LEARNED_TOKENS).write_text("in the way")
    watch = StepListener(progress=lambda now: steps.append(now.step))
    with pytest.raises(NotEnoughDisk, match="leave out --keep-ratios"):
        train(settings, data, load(base), tmp_path / "out", keep_ratios=ALL, watch=watch)
    assert steps == []


def test_a_record_is_on_disk_before_its_name_and_its_name_before_the_step_counts(
    base: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, flushed = tmp_path / LEARNED_TOKENS, list[tuple[str, int]]()

    def noted(path: Path) -> None:
        if folder in (path, path.parent):
            flushed.append((path.name, len(list(folder.glob("*.parquet")))))
        flush(path)

    def done(now: Progress) -> None:
        flushed.append(("step", now.step))

    monkeypatch.setattr("loopline.workers.atomic_files.flush", noted)
    train(
        settings_of(steps=2), data_of(store, base), load(base), tmp_path, keep_ratios=ALL,
        watch=StepListener(progress=done),
    )  # fmt: skip
    assert flushed == [
        (f".00000001-0.parquet.{os.getpid()}.part", 0), (LEARNED_TOKENS, 1), ("step", 1),
        (f".00000002-0.parquet.{os.getpid()}.part", 1), (LEARNED_TOKENS, 2), ("step", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("objective", "weights"),
    [
        (Objective(correction="token", cap=2.0), [2.0, math.exp(-0.5)]),
        (Objective(correction="sequence", cap=2.0), [0.0, 0.0]),
        (Objective(correction="truncated", cap=2.0), [2.0, math.exp(-1.0)]),
        (Objective(correction="none"), [1.0, 1.0]),
    ],
)
def test_the_kept_weight_is_that_of_the_correction(
    objective: Objective, weights: Sequence[float], tmp_path: Path
) -> None:
    behaviour = [-3.0, -1.0]
    tokens = Tokens(
        logprobs=torch.tensor([-1.0, -2.0]),
        proximal=torch.tensor([-1.0, -1.5]),
        behaviour=torch.tensor(behaviour),
        advantages=torch.tensor([1.0, 1.0]),
        sequence=torch.tensor([0, 0]),
    )
    sequence = TokenSequence((5, 6, 7), (False, True, True), (0.0, *behaviour), 1.0, False)
    ratios = KeptRatios(tmp_path, ALL)
    ratios.begin_step()
    ratios.begin_policy("shared", 4, [a_group(sequence)])
    ratios.add([Row(sequence, 1.0, "run/0.0/solo#0", 3)], tokens, objective)
    ratios.write(5)
    (entry,) = read_learned(tmp_path, "run")
    assert entry.weights == pytest.approx(weights)
    assert (entry.step, entry.version, entry.sampled_version) == (5, 4, 3)


def a_group(sequence: TokenSequence) -> Group:
    member = Member("run/0.0/solo#0", 1.0, (sequence,))
    return Group(GroupKey("i", "solo", 0, "s"), PolicyRef(name="llm", base="b"), (member,))
