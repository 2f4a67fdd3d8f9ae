"""`train distill --objective dpo`: its loss compared with a short reference, and its training."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from loopline.trainers.cli import app
from loopline.trainers.core.network import load_base, network_of
from loopline.trainers.data.token_rows import RecordedRow, RecordedRows, TokenRow
from loopline.trainers.errors import TrainingError
from loopline.trainers.glpft.batches import batch_of
from loopline.trainers.glpft.pipeline import StageListener, claim, train
from loopline.trainers.glpft.preference_training import PreferenceTraining, pair_of, pair_row
from loopline.trainers.glpft.rows import StageRows
from loopline.trainers.glpft.settings import GlpftSettings, Schedule
from tests.trainers.grpo.tiny_grpo import write_base
from tests.trainers.test_distill import store_of_escalations


def row(*ids: int, learned: int) -> TokenRow:
    """The last `learned` of the ids are an answer."""
    return TokenRow(ids, (False,) * (len(ids) - learned) + (True,) * learned)


PAIRS = [
    (row(5, 6, 7, 8, learned=2), row(5, 6, 9, learned=1)),
    (row(11, 12, 13, learned=1), row(11, 12, 14, 15, 16, 17, learned=4)),
    (row(21, 22, 23, 24, 25, learned=3), row(21, 22, 26, 27, learned=2)),
]


def settings_of(base: Path, **changes: object) -> GlpftSettings:
    return GlpftSettings.model_validate(
        {
            "method": "single", "base": str(base), "data_sha256": "", "objective": "dpo",
            "beta": 0.3, "schedules": "micro", "batch": 3, "validation": 0, **changes,
        }
    )  # fmt: skip


def log_probability(model: torch.nn.Module, answer: TokenRow) -> torch.Tensor:
    """Token after token, with nothing padded."""
    scores = model(torch.tensor([answer.ids])).logits[0].log_softmax(-1)
    terms = [scores[at - 1, answer.ids[at]] for at in range(len(answer.ids)) if answer.learned[at]]
    return torch.stack(terms).sum()


def test_the_loss_and_its_gradient_follow_the_formula(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    loaded, reference = load_base(str(base)), load_base(str(base)).model
    network = network_of(loaded, adapter=False, rank=1, begins_from=None, base=str(base))
    rows = [pair_row(*pair) for pair in PAIRS]
    training = PreferenceTraining(
        settings=settings_of(base),
        stage="single",
        schedule=Schedule(epochs=1, learning_rate=1e-3, warmup=0, weight_decay=0),
        network=network,
        rows=StageRows(tuple(rows), (), 0),
        budget=100,
        work=tmp_path / "work",
        curves=tmp_path / "curves",
    )
    with training._prepared(), torch.no_grad():  # pyright: ignore[reportPrivateUsage]
        for parameter in loaded.model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    batch = batch_of(sorted(rows, key=lambda entry: len(entry.ids)), 4096)
    losses = training._losses(batch)  # pyright: ignore[reportPrivateUsage]
    (sum(targets for targets, _ in losses) / batch.learned).backward()  # pyright: ignore
    gradients = [parameter.grad.clone() for parameter in loaded.model.parameters()]
    loaded.model.zero_grad()
    expected = torch.zeros(())
    for preferred, rejected in PAIRS:
        with torch.no_grad():
            before = log_probability(reference, preferred) - log_probability(reference, rejected)
        now = log_probability(loaded.model, preferred) - log_probability(loaded.model, rejected)
        expected = expected + torch.log1p(torch.exp(-0.3 * (now - before))) / len(PAIRS)
    expected.backward()
    total = sum(float(t.detach()) for t, _ in training._losses(batch)) / batch.learned  # pyright: ignore
    assert total == pytest.approx(float(expected.detach()), rel=1e-4)
    for gradient, parameter in zip(gradients, loaded.model.parameters(), strict=True):
        assert torch.allclose(gradient, parameter.grad, rtol=1e-3, atol=1e-5)


def rows_of_pairs() -> RecordedRows:
    return RecordedRows(
        tuple(RecordedRow(str(at), "slm", pair_row(*pair)) for at, pair in enumerate(PAIRS))
    )


@pytest.mark.slow
def test_a_stopped_training_resumes_to_the_same_weights_and_the_loss_starts_at_log_2(
    tmp_path: Path,
) -> None:
    base, rows = write_base(tmp_path / "base"), rows_of_pairs()
    settings = settings_of(base, tokens=600, data_sha256=rows.sha256, rate=0.05, weights="full")
    losses: list[tuple[float, ...]] = []
    for name, stopped in (("whole", False), ("stopped", True)):
        output = tmp_path / name
        claim(settings, rows, output, keep_data=True)

        def stop(stage: str, step: int) -> None:
            raise KeyboardInterrupt

        if stopped:
            with pytest.raises(KeyboardInterrupt):
                train(
                    settings, rows, output, checkpoint_every=5,
                    watch=StageListener(checkpoint=stop),
                )  # fmt: skip
        report = train(settings, rows, output, checkpoint_every=5)
        losses.append(report.stages[0].losses)
    assert losses[0] == losses[1]
    assert losses[0][-1] < math.log(2)
    weights = [(tmp_path / name / "single" / "model.safetensors").read_bytes() for name in
               ("whole", "stopped")]  # fmt: skip
    assert weights[0] == weights[1]


def test_rows_that_are_not_pairs_are_refused() -> None:
    with pytest.raises(TrainingError, match="not pairs"):
        pair_of((1, 2), (False, True))


async def test_the_dpo_command_trains_an_adapter_on_preferences(tmp_path: Path) -> None:
    store = await store_of_escalations(tmp_path / "store")
    base, output = write_base(tmp_path / "base"), tmp_path / "out"
    done = CliRunner().invoke(
        app,
        [
            "distill", str(base), "--from-store", str(store), "--output", str(output),
            "--objective", "dpo", "--schedules", "micro", "--rate", "0.1", "--tokens", "2000",
            "--validation", "0",
        ],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "8 preferences to learn from" in done.output
    assert (output / "single" / "adapter_model.safetensors").exists()
