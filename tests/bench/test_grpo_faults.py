"""No sealed group is lost, doubled or of mixed versions while workers and the trainer are killed: a
smaller version of `bench grpo-faults --groups 1000`. Each round's published adapter can be measured
afterwards, and the checker finds planted violations."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from loopline.bench.errors import UsageError
from loopline.bench.experiments.grpo_curve.looks import Measurement
from loopline.bench.experiments.grpo_curve.settings import CurveSettings
from loopline.bench.proofs.grpo_faults.checker import (
    check,
    played_as_planned,
    published_once,
    rounds_once,
    sampled_by_one_version,
    sealed_once,
    trained_as_recorded,
)
from loopline.bench.proofs.grpo_faults.driver import (
    ONLY_KILLS,
    AdapterCopies,
    LoopAttack,
    LoopDriver,
    LoopEvidence,
    LoopWork,
    work_of,
)
from loopline.trainers.core.network import ADAPTER
from loopline.trainers.grpo.arms.training import Reinforced
from loopline.trainers.grpo.loop.run_directory import GroupRecord
from tests.bench.command_line import bench
from tests.trainers.grpo.tiny_puzzles import GAME

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SEED = 20_261_122
_MEMORY = Path("/dev/shm")


class Attacked(NamedTuple):
    """An attacked loop."""

    attack: LoopAttack
    work: LoopWork
    adapters: AdapterCopies


@pytest.fixture(scope="module")
def whole() -> Iterator[Attacked]:
    """On a file system with free syncs: the attack kills processes, not the machine."""
    pytest.importorskip("peft", reason="needs make install")
    where = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="grpo-faults-", dir=where) as folder:
        adapters = AdapterCopies(Path(folder) / "adapters")
        work = work_of(Path(folder) / "base", groups=84, seed=SEED, puzzles=12, staleness=0)
        driver = LoopDriver(
            Path(folder), work, seed=SEED, faults=ONLY_KILLS, progress=print, adapters=adapters
        )
        yield Attacked(driver.attack(), work, adapters)


@pytest.fixture
def attacked(whole: Attacked) -> LoopAttack:
    return whole.attack


def with_groups(evidence: LoopEvidence, *groups: GroupRecord, number: int = 0) -> LoopEvidence:
    """The loop with these groups in a round (from 0) instead of its own."""
    sealed = list(evidence.sealed)
    sealed[number] = sealed[number].model_copy(update={"groups": groups})
    return replace(evidence, sealed=tuple(sealed))


def test_a_folder_with_an_earlier_attack_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "evidence.json").write_text("{}")
    process = bench("grpo-faults", "--groups", "8", "--evidence", str(tmp_path))
    assert process.returncode == 2
    assert f"{tmp_path} is not an empty folder; choose another one" in process.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["evidence.json"]


def test_an_attacked_loop_seals_every_group_once_from_one_version(
    attacked: LoopAttack, tmp_path: Path
) -> None:
    assert [str(violation) for violation in check(attacked.evidence, tmp_path)] == []
    assert sum(len(violation.groups) for violation in attacked.evidence.sealed) >= 80
    # There was an attack, and no process died without one.
    assert attacked.injected["kill"]
    assert attacked.died == []


def test_every_published_adapter_is_kept_and_can_be_measured_afterwards(
    whole: Attacked,
) -> None:
    adapters = [
        load_file(whole.adapters.folder(number) / "shared" / ADAPTER)
        for number in range(whole.work.rounds + 1)
    ]
    final = load_file(whole.attack.evidence.final / "shared" / ADAPTER)
    assert all(torch.equal(final[name], tensor) for name, tensor in adapters[-1].items())
    name = next(name for name in final if "lora_B" in name)
    assert len({tensor[name].numpy().tobytes() for tensor in adapters}) == len(adapters)
    settings = CurveSettings(game=GAME, reinforced=Reinforced(rank=2, limit=8), held_out=3)
    measurement = Measurement(whole.work.base, settings)
    assert len(measurement.outcomes(whole.adapters.folder(1) / "shared")) == 3


def test_a_group_sealed_twice_or_not_at_all_is_found(attacked: LoopAttack) -> None:
    evidence = attacked.evidence
    first, *others = evidence.sealed[0].groups
    lost = list(sealed_once(with_groups(evidence, *others)))
    assert len(lost) == len(first.origins)
    assert "is in 1 groups too few" in lost[0].message
    twice = [
        violation.message for violation in sealed_once(with_groups(evidence, first, first, *others))
    ]
    assert f"group {first.id[:12]} was sealed 2 times" in twice
    assert list(rounds_once(with_groups(evidence, *others)))


def test_a_group_whose_version_differs_from_its_record_or_round_is_found(
    attacked: LoopAttack,
) -> None:
    evidence = attacked.evidence
    first, *others = evidence.sealed[0].groups
    wrong = first.model_copy(update={"version": first.version + 1})
    (violation, late) = sampled_by_one_version(with_groups(evidence, wrong, *others))
    assert "was sampled by" in violation.message
    assert "which came from round 1" in late.message
    # Learned from two rounds later.
    (old,) = sampled_by_one_version(
        with_groups(evidence, *evidence.sealed[1].groups, first, number=1)
    )
    assert "which came from round 0" in old.message


def test_an_unplanned_run_and_an_unsealed_run_are_found(
    attacked: LoopAttack,
) -> None:
    evidence = attacked.evidence
    wave, *others = evidence.waves
    unplanned = wave.model_copy(update={"runs": wave.runs[1:]})
    texts = [
        violation.message
        for violation in played_as_planned(replace(evidence, waves=(unplanned, *others)))
    ]
    assert texts == ["sealed 1 times more than planned in round 1", "recorded, but not planned"]


def test_a_version_published_twice_or_not_last_is_found(attacked: LoopAttack) -> None:
    evidence = attacked.evidence
    policy = evidence.published["pair/tool"]
    again = policy.published(str(policy.path_of(policy.current)), 0.0)
    (violation,) = published_once(
        replace(evidence, published={**evidence.published, "pair/tool": again})
    )
    assert "pair/tool" in violation.message
    back = policy.rolled_back()
    (violation,) = published_once(
        replace(evidence, published={**evidence.published, "pair/tool": back})
    )
    assert f"version {back.current} is in use" in violation.message


def test_weights_that_do_not_follow_from_the_records_are_found(
    attacked: LoopAttack, tmp_path: Path
) -> None:
    evidence, final = attacked.evidence, tmp_path / "final/shared"
    final.mkdir(parents=True)
    weights = load_file(evidence.final / "shared" / ADAPTER)
    name = next(iter(weights))
    save_file({**weights, name: weights[name] + 1e-6}, final / ADAPTER)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (violation,) = trained_as_recorded(replace(evidence, final=final.parent), scratch)
    assert "1 of " in violation.message
    assert name in violation.message


def test_more_rounds_than_kept_versions_are_refused_with_a_working_setting(tmp_path: Path) -> None:
    """For older versions the bench could not tell which round produced them."""
    with pytest.raises(UsageError, match=r"243 rounds.*give --puzzles 25 or more"):
        work_of(tmp_path / "base", groups=17_000, seed=1, puzzles=20, staleness=0)
    assert not (tmp_path / "base").exists()
