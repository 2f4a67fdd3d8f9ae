"""`bench grpo-speed`: what it counts, and that both kinds of rollouts play the same puzzles."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace

import pytest

from loopline.bench.errors import UsageError
from loopline.bench.proofs.grpo_speed import ours, proof, rollouts
from loopline.bench.proofs.grpo_speed.proof import (
    BUS,
    IN_PROCESS,
    PLAIN,
    PROOF,
    SHARED,
    TRL,
    TRL_BEST,
    GrpoSpeedOptions,
    check,
    measurements,
)
from loopline.bench.proofs.grpo_speed.rollouts import Rollouts, play_in_process, play_on_bus
from loopline.bench.proofs.grpo_speed.trl_peer import padded_samples
from loopline.bench.proofs.grpo_speed.workload import StepWork
from loopline.bench.proofs.harness import conduct
from loopline.bench.proofs.isolated_process import isolated_worker
from loopline.runtime.config.options import validated
from loopline.runtime.errors import InputError
from loopline.trainers.core.models import export_model, load_tokenizer, new_model
from loopline.workers.engines.local.model_files import MICRO_MODELS

pytestmark = pytest.mark.slow

WORK = StepWork(
    model="", groups=3, candidates=2, prompt=12, completion=4, steps=1, seed=1, vocabulary=300
)
OPTIONS = GrpoSpeedOptions(
    model="micro:llm", runs=2, candidates=2, max_tokens=4, groups=2, prompt=8, steps=1, repeats=2,
    only="both", trl=False, seed=1,
)  # fmt: skip


class Sizes:
    hidden, feed_forward, layers, heads, context = 32, 64, 1, 2, 512


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("grpo-speed") / "model"
    tokenizer = load_tokenizer(MICRO_MODELS / "slm")
    network = new_model(Sizes(), tokenizer.get_vocab_size())
    export_model(network, tokenizer, folder, context=Sizes.context)
    return str(folder)


def test_every_trainer_gets_the_same_samples_in_a_step() -> None:
    assert WORK.batch == replace(WORK).batch
    assert WORK.batch != replace(WORK, seed=2).batch
    for group in WORK.batch:
        assert 6 <= len(group.prompt) <= 12
        assert len(group.completions) == len(group.rewards) == 2
        assert all(2 <= len(completion) <= 4 for completion in group.completions)


def test_a_prompt_counts_once_for_each_of_its_samples() -> None:
    counted = [len(group.prompt) * 2 + sum(map(len, group.completions)) for group in WORK.batch]
    assert WORK.tokens == sum(counted)


@pytest.mark.parametrize("share_prefixes", [True, False])
def test_our_step_is_measured(model: str, share_prefixes: bool) -> None:
    assert ours.measure(replace(WORK, model=model), share_prefixes=share_prefixes) > 0


def test_both_kinds_of_rollouts_sample_the_same_puzzles(model: str, tmp_path: Path) -> None:
    work = Rollouts(model=model, runs=2, candidates=2, max_tokens=4, seed=1)
    (here,) = asyncio.run(play_in_process(work, [0]))
    (there,) = asyncio.run(play_on_bus(work, [0], tmp_path))
    # Two agents, four turns, two candidates of at most four tokens.
    assert 0 < here.tokens <= work.runs * 2 * 4 * 2 * 4
    assert here.tokens == there.tokens
    assert min(here.seconds, there.seconds) > 0


def test_repeats_play_different_puzzles() -> None:
    work = Rollouts(model="", runs=2, candidates=2, max_tokens=4, seed=1)
    assert work.tasks(0) == work.tasks(0)
    assert work.tasks(0) != work.tasks(1)


def test_trl_pads_to_the_longest_sequence_of_the_step() -> None:
    padded = padded_samples(WORK)
    for part in ("prompt", "completion"):
        assert padded[f"{part}_mask"].any(dim=0).all(), "a column of nothing but padding"
    real = int(padded["prompt_mask"].sum() + padded["completion_mask"].sum())
    assert real == WORK.tokens


def test_ratios_are_computed_per_repeat() -> None:
    ratios = {
        measurement.name: (measurement.value, measurement.low, measurement.high)
        for measurement in measurements(
            {
                BUS: [90.0, 50.0, 80.0], IN_PROCESS: [100.0, 100.0, 40.0],
                SHARED: [300.0, 300.0, 300.0], PLAIN: [100.0, 150.0, 50.0],
                TRL: [100.0, 50.0, 100.0],
            }
        )
    }  # fmt: skip
    assert ratios["bus_vs_in_process"] == (0.9, 0.5, 2.0)
    assert (ratios["grpo_vs_trl"][0], ratios["grpo_plain_vs_trl"][0]) == (3.0, 1.0)
    assert [measurement.name for measurement in measurements({SHARED: [1.0], PLAIN: [1.0]})] == [
        "tokens/s"
    ] * 2


def test_three_repeats_are_judged_by_the_ratio_to_trl_at_its_best() -> None:
    rates = {SHARED: [300.0] * 3, PLAIN: [140.0] * 3, TRL: [50.0] * 3, TRL_BEST: [100.0] * 3}
    met = {figure.name: figure.met for figure in measurements(rates) if not figure.subject}
    assert met == {
        "grpo_vs_trl": None, "grpo_plain_vs_trl": None,
        "grpo_vs_trl_best": True, "grpo_plain_vs_trl_best": False,
    }  # fmt: skip
    few = measurements({name: values[:2] for name, values in rates.items()})
    assert {figure.met for figure in few} == {None}


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"only": "half"}, "--only half: Input should be"), ({"model": "micro:none"}, "--model")],
)
def test_an_impossible_measurement_is_reported(changes: dict[str, str], named: str) -> None:
    with pytest.raises((UsageError, InputError), match=named):
        check(validated(GrpoSpeedOptions, OPTIONS.model_dump() | changes))


def test_each_measurement_is_announced_with_its_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def finds(rate: float) -> Callable[[Rollouts, int], float]:
        return lambda work, repeat: rate + repeat

    monkeypatch.setattr(proof, "_measure_bus", finds(90.0))
    monkeypatch.setattr(proof, "_measure_in_process", finds(1_200.0))
    options = OPTIONS.model_copy(update={"only": "rollouts"})
    conduct(PROOF, options.model_copy(update={"as_json": True}))
    output = capsys.readouterr()
    assert output.err.splitlines()[1:] == [
        "1 of 4: rollouts through the bus, repeat 1 of 2… 90 tokens/s",
        "2 of 4: rollouts in-process, repeat 1 of 2… 1,200 tokens/s",
        "3 of 4: rollouts through the bus, repeat 2 of 2… 91 tokens/s",
        "4 of 4: rollouts in-process, repeat 2 of 2… 1,201 tokens/s",
    ]
    figures = json.loads(output.out.splitlines()[-1])
    rate = figures["measurements"][f"rollouts / {BUS} / tokens/s"]
    assert (rate["value"], rate["low"], rate["high"]) == (90.5, 90.0, 91.0)
    assert figures["options"]["runs"] == OPTIONS.runs


def test_an_interruption_does_not_wait_for_the_measurement() -> None:
    def interrupted() -> None:
        with isolated_worker() as executor:
            measurement = executor.submit(time.sleep, 600.0)
            while not measurement.running():
                pass
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert active_children() == []


async def test_an_interruption_while_the_server_starts_ends_the_rollouts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The wait for the server has no pause, so the interruption takes effect after it."""

    @contextmanager
    def interrupted(folder: Path, **options: str) -> Generator[SimpleNamespace]:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        yield SimpleNamespace(url="redis://127.0.0.1:1/0")

    monkeypatch.setattr(rollouts, "running_redis", interrupted)
    work = Rollouts(model="", runs=1, candidates=2, max_tokens=4, seed=1)
    playing = asyncio.create_task(play_on_bus(work, [0], tmp_path))
    done, _ = await asyncio.wait([playing], timeout=10.0)
    assert done == {playing}
    assert playing.cancelled()
