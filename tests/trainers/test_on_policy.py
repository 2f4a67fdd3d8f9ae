"""`train distill --objective on-policy`: its loss compared with references of a few lines, its
teachers, and a small model that approaches its own."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from loopline.agents.environments.word_problems import Split, stream
from loopline.testing.vllm_double import VllmDouble
from loopline.trainers.cli import app
from loopline.trainers.core.background_loop import BackgroundLoop
from loopline.trainers.core.batches import encode_all
from loopline.trainers.core.models import load_tokenizer
from loopline.trainers.core.network import Network, base_folder, load_base, network_of
from loopline.trainers.data.token_rows import RecordedRow, RecordedRows, TokenRow
from loopline.trainers.errors import TrainingError
from loopline.trainers.glpft.batches import batch_of
from loopline.trainers.glpft.on_policy_training import (
    OnPolicyTraining,
    prompts_of,
    reverse_kl_losses,
)
from loopline.trainers.glpft.pipeline import StageListener, claim, train
from loopline.trainers.glpft.rows import StageRows
from loopline.trainers.glpft.settings import GlpftSettings, Schedule
from loopline.trainers.glpft.teacher import Teacher
from loopline.trainers.sft.dialogues import dialogue
from loopline.workers.engines.local.model_files import MICRO_MODELS
from tests.trainers.grpo.tiny_grpo import write_base
from tests.trainers.test_distill import store_of_escalations
from tests.trainers.test_preferences import row

ROWS = [
    row(5, 6, 7, 8, learned=2),
    row(11, 12, 13, learned=1),
    TokenRow((21, 22, 23, 24, 25, 26), (False, False, True, False, False, True)),
]
LOGITS = st.lists(st.floats(-4, 4), min_size=5, max_size=5)


def settings_of(base: Path, teacher: str, **changes: object) -> GlpftSettings:
    return GlpftSettings.model_validate(
        {
            "method": "single", "base": str(base), "data_sha256": "", "objective": "on-policy",
            "teacher": teacher, "max_tokens": 6, "schedules": "micro", "batch": 3, "validation": 0,
            **changes,
        }
    )  # fmt: skip


def perturbed(folder: Path, model: str, spread: float) -> Path:
    """The model with noise on its weights, scaled to this multiple of their spread."""
    loaded = load_base(model, device="cpu")
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            if parameter.dim() == 2:
                parameter += spread * parameter.std() * torch.randn_like(parameter)
    folder.mkdir()
    Network(loaded).write(folder, base_folder(model))
    return folder


@given(LOGITS, LOGITS)
def test_the_expected_gradient_is_that_of_the_reverse_divergence(
    student: list[float], teacher: list[float]
) -> None:
    logits = torch.tensor(student, dtype=torch.float64, requires_grad=True)
    q = torch.tensor(teacher, dtype=torch.float64).log_softmax(-1)
    p = logits.log_softmax(-1)
    mean = (p.detach().exp() * reverse_kl_losses(p, q)).sum()
    (estimated,) = torch.autograd.grad(mean, logits, retain_graph=True)
    divergence = (p.exp() * (p - q)).sum()
    (exact,) = torch.autograd.grad(divergence, logits)
    assert float(mean.detach()) == pytest.approx(float(divergence.detach()), abs=1e-12)
    assert torch.allclose(estimated, exact, atol=1e-10)


def test_every_assistant_turn_gives_a_prompt() -> None:
    assert [prompts_of(entry.ids, entry.learned) for entry in ROWS] == [
        [[5, 6]],
        [[11, 12]],
        [[21, 22], [21, 22, 23, 24, 25]],
    ]


def test_the_loss_and_its_gradient_follow_the_formula(tmp_path: Path) -> None:
    teacher = write_base(tmp_path / "teacher")
    base = perturbed(tmp_path / "base", str(teacher), 0.3)
    loaded, judge = load_base(str(base)), load_base(str(teacher)).model
    training = OnPolicyTraining(
        settings=settings_of(base, str(teacher), micro_batch_tokens=64),
        stage="single",
        schedule=Schedule(epochs=1, learning_rate=1e-3, warmup=0, weight_decay=0),
        network=network_of(loaded, adapter=False, rank=1, begins_from=None, base=str(base)),
        rows=StageRows(tuple(ROWS), (), 0),
        budget=100,
        work=tmp_path / "work",
        curves=tmp_path / "curves",
    )
    batch = batch_of(sorted(ROWS, key=lambda entry: len(entry.ids)), 4096)
    with torch.no_grad():  # The measurement draws the same samples each time.
        written = training._answers(batch)  # pyright: ignore[reportPrivateUsage]
    assert sorted(entry.ids[: entry.learned.index(True)] for entry in written) == sorted(
        tuple(prompt) for entry in ROWS for prompt in prompts_of(entry.ids, entry.learned)
    )
    training._answers = lambda batch: written  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    with Teacher(str(teacher)) as training._teacher:  # pyright: ignore[reportPrivateUsage]
        losses = [*training._losses(batch)]  # pyright: ignore[reportPrivateUsage]
    whole = torch.stack([targets for targets, _ in losses]).sum() / batch.learned
    whole.backward()
    gradients = [parameter.grad.clone() for parameter in loaded.model.parameters()]
    loaded.model.zero_grad()
    values, surrogates = list[float](), list[torch.Tensor]()
    for entry in written:
        ids = torch.tensor([entry.ids])
        p = loaded.model(ids).logits[0].log_softmax(-1)
        with torch.no_grad():
            q = judge(ids).logits[0].log_softmax(-1)
        for at in range(1, len(entry.ids)):
            if entry.learned[at]:
                student_scores, teacher_scores = p[at - 1, entry.ids[at]], q[at - 1, entry.ids[at]]
                values.append(float((student_scores - teacher_scores).detach()))
                surrogates.append(values[-1] * student_scores)
    (torch.stack(surrogates).sum() / len(values)).backward()
    assert float(whole.detach()) == pytest.approx(sum(values) / len(values), abs=1e-4)
    for gradient, parameter in zip(gradients, loaded.model.parameters(), strict=True):
        assert torch.allclose(gradient, parameter.grad, rtol=1e-3, atol=1e-5)


def dialogues(count: int, seed: int, split: Split) -> list[TokenRow]:
    """Worked subtasks as the micro model receives them."""
    tokenizer, rng = load_tokenizer(MICRO_MODELS / "slm"), random.Random(seed)
    worked = [dialogue("sub_task", problem, rng) for problem in islice(stream(split, seed), count)]
    return [TokenRow(tuple(ids), tuple(learned)) for ids, learned in encode_all(tokenizer, worked)]


def divergence(student: str, teacher: str, rows: list[TokenRow]) -> float:
    """KL(student || teacher) of whole distributions in nats, the mean over all positions of the
    dialogues at which an assistant writes."""
    models = [load_base(name, device="cpu").model for name in (student, teacher)]
    values: list[torch.Tensor] = []
    with torch.no_grad():
        for entry in rows:
            ids, mask = torch.tensor([entry.ids]), torch.tensor(entry.learned[1:])
            p, q = (model(ids).logits[0, :-1].log_softmax(-1)[mask] for model in models)
            values.append((p.exp() * (p - q)).sum(-1))
    return float(torch.cat(values).mean())


@pytest.mark.slow
def test_a_small_model_approaches_its_teacher_on_held_out_questions(
    tmp_path: Path,
) -> None:
    student = perturbed(tmp_path / "student", "micro:slm", 0.35)
    rows = RecordedRows(
        tuple(
            RecordedRow(str(at), "slm", entry)
            for at, entry in enumerate(dialogues(200, 1, Split.TRAIN))
        )
    )
    settings = settings_of(
        student, "micro:slm", data_sha256=rows.sha256, weights="full", rate=0.1, batch=16,
        tokens=20_000, max_tokens=64, validation=0.1,
    )  # fmt: skip
    report = train(settings, rows, tmp_path / "out")
    (stage,) = report.stages
    held_out = dialogues(60, 2, Split.NEW_NUMBERS)
    before = divergence(str(student), "micro:slm", held_out)
    after = divergence(str(tmp_path / "out" / "single"), "micro:slm", held_out)
    assert after < 0.5 * before, (before, after)
    assert stage.validation_before is not None
    assert stage.validation_after is not None
    assert stage.validation_after < 0.5 * stage.validation_before


@pytest.mark.slow
def test_a_stopped_training_resumes_to_the_same_weights(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    teacher = perturbed(tmp_path / "teacher", str(base), 0.3)
    rows = RecordedRows(tuple(RecordedRow(str(at), "slm", entry) for at, entry in enumerate(ROWS)))
    settings = settings_of(
        base, str(teacher), tokens=600, data_sha256=rows.sha256, rate=0.05, weights="full"
    )
    weights: list[bytes] = []
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
        train(settings, rows, output, checkpoint_every=5)
        weights.append((output / "single" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


@contextmanager
def served(model: Path) -> Generator[str]:
    """Address of a server that speaks vLLM's protocol."""
    double = VllmDouble(str(model))
    with BackgroundLoop() as loop:
        loop.run(double.__aenter__())
        try:
            yield double.url
        finally:
            loop.run(double.__aexit__(None, None, None))


def test_a_server_scores_like_the_same_model_in_this_process(tmp_path: Path) -> None:
    teacher = write_base(tmp_path / "teacher")
    ids = [list(entry.ids) for entry in ROWS]
    with Teacher(str(teacher)) as here:
        scores = here.score(ids)
    with served(teacher) as url, Teacher(str(teacher), url) as there:
        for student_scores, teacher_scores in zip(scores, there.score(ids), strict=True):
            assert teacher_scores == pytest.approx(student_scores, abs=1e-4)


def test_an_unreachable_teacher_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopline.trainers.glpft.teacher.WAIT_SECONDS", 0.2)
    with pytest.raises(TrainingError, match="the teacher can't be used"):
        Teacher("micro:slm", "http://127.0.0.1:9/v1").__enter__()
    with pytest.raises(TrainingError, match="--teacher-url nowhere"):
        Teacher("micro:slm", "nowhere")


def test_a_teacher_with_another_vocabulary_is_refused_with_the_difference() -> None:
    student = load_base("micro:slm", device="cpu")
    with pytest.raises(TrainingError, match=r"different vocabularies: .* of 2,048 tokens, such as"):
        Teacher("micro:llm").require_vocabulary_of(student)
    Teacher("micro:slm").require_vocabulary_of(student)


async def test_the_command_learns_from_a_teacher_and_requires_one(tmp_path: Path) -> None:
    store = await store_of_escalations(tmp_path / "store")
    base, output = write_base(tmp_path / "base"), tmp_path / "out"
    teacher = perturbed(tmp_path / "teacher", str(base), 0.3)
    arguments = [
        "distill", str(base), "--from-store", str(store), "--output", str(output),
        "--objective", "on-policy", "--schedules", "micro", "--rate", "0.1", "--tokens", "2000",
        "--validation", "0", "--max-tokens", "8",
    ]  # fmt: skip
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code != 0
    assert "--teacher" in refused.output + str(refused.exception)
    done = CliRunner().invoke(app, [*arguments, "--teacher", str(teacher), "--samples", "2"])
    assert done.exit_code == 0, done.output
    assert (output / "single" / "adapter_model.safetensors").exists()
