"""With equal settings, trl's GRPOTrainer has the same loss and the same gradients on the same
batch."""

# `make test` installs trl, which has no stubs; `make install` does not.
# pyright: reportMissingImports=false
from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from loopline.agents.records import PolicyRef
from loopline.trainers.core.models import load_tokenizer, new_model, save_tokenizer
from loopline.trainers.grpo.groups import Group, GroupKey, Member
from loopline.trainers.grpo.learner import Learner
from loopline.trainers.grpo.losses import Objective, Tokens, divergences, policy_losses
from loopline.trainers.grpo.losses import shares as shares_of
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.trainers.grpo.rows import LENGTH_STEP
from loopline.trainers.grpo.sequences import TokenSequence
from loopline.trainers.grpo.stream import StepBatch
from loopline.workers.engines.local.model_files import MICRO_MODELS

from .tiny_grpo import load, settings_of, write_base

trl = pytest.importorskip("trl", reason="needs make test, which installs it")

PROMPT, ANSWER, ROWS = 5, 7, 6


class Sizes:
    hidden, feed_forward, layers, heads, context = 32, 64, 2, 2, 64


def loss_and_gradients(loss: torch.Tensor, model: Any) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss.backward()
    named = model.named_parameters()
    return float(loss.detach()), {name: p.grad.clone() for name, p in named if p.grad is not None}


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    return new_model(Sizes(), 2048).eval()


@pytest.fixture(scope="module")
def batch() -> dict[str, torch.Tensor]:
    """Six completions, of which three are shorter and one contains an observation."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones(ROWS, ANSWER, dtype=torch.long)
    mask[1, 5:], mask[2, 3:], mask[4, 6:] = 0, 0, 0
    tool_mask = torch.ones(ROWS, ANSWER, dtype=torch.long)
    tool_mask[0, 2:4] = 0
    return {
        "prompt_ids": torch.randint(3, 2000, (ROWS, PROMPT), generator=generator),
        "prompt_mask": torch.ones(ROWS, PROMPT, dtype=torch.long),
        "completion_ids": torch.randint(3, 2000, (ROWS, ANSWER), generator=generator),
        "completion_mask": mask,
        "tool_mask": tool_mask,
        "advantages": torch.tensor([1.0, -1.0, 0.5, -0.5, 1.5, -1.5]),
        "noise": torch.randn(ROWS, ANSWER, generator=generator) * 0.4,
        "behind": torch.randn(ROWS, ANSWER, generator=generator) * 0.6,
    }


def _no_reward(completions: list[str], **columns: object) -> list[float]:
    return [0.0] * len(completions)


def theirs(
    model: Any, batch: dict[str, torch.Tensor], folder: Path, old: torch.Tensor,
    ratio: torch.Tensor | None, reference: torch.Tensor | None, **settings: object,
) -> tuple[float, dict[str, torch.Tensor]]:  # fmt: skip
    from datasets import Dataset
    from transformers import PreTrainedTokenizerFast

    save_tokenizer(load_tokenizer(MICRO_MODELS / "slm"), folder, 64)
    # With a divergence the trainer would load the reference, which this test does not need.
    beta = settings.pop("beta", 0.0)
    config = trl.GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=ROWS, num_generations=2,
        max_completion_length=ANSWER, report_to="none", use_cpu=True, bf16=False,
        gradient_checkpointing=False, **settings,
    )  # fmt: skip
    trainer: Any = trl.GRPOTrainer(
        model=model, args=config, train_dataset=Dataset.from_dict({"prompt": ["a"] * ROWS}),
        reward_funcs=_no_reward,
        processing_class=PreTrainedTokenizerFast.from_pretrained(folder),
    )  # fmt: skip
    inputs = {name: tensor for name, tensor in batch.items() if name not in ("noise", "behind")}
    inputs["old_per_token_logps"] = old
    inputs["num_items_in_batch"] = (batch["completion_mask"] * batch["tool_mask"]).sum()
    if ratio is not None:
        trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
        inputs["importance_sampling_ratio"] = ratio
    if reference is not None:
        trainer.beta, inputs["ref_per_token_logps"] = beta, reference
    trainer.current_gradient_accumulation_steps = 1
    model.eval()
    return loss_and_gradients(trainer._compute_loss(model, inputs), model)


def ours(
    model: Any, batch: dict[str, torch.Tensor], old: torch.Tensor, behaviour: torch.Tensor,
    reference: torch.Tensor | None, objective: Objective,
) -> tuple[float, dict[str, torch.Tensor]]:  # fmt: skip
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    answer = (batch["completion_mask"] * batch["tool_mask"]).bool()
    learned = torch.cat([torch.zeros(ROWS, PROMPT - 1, dtype=torch.bool), answer], dim=1)
    logits = model(ids).logits[:, :-1][learned]
    written = ids[:, 1:][learned]
    logprobs = logits.float().log_softmax(-1).gather(1, written[:, None])[:, 0]
    sequence = torch.arange(ROWS)[:, None].expand(ROWS, ANSWER)[answer]
    tokens = Tokens(
        logprobs, old[answer], behaviour[answer], batch["advantages"][sequence], sequence
    )
    losses = policy_losses(tokens, objective)
    if reference is not None:
        losses = losses + objective.kl * divergences(tokens, reference[answer], objective)
    counts = answer.sum(1)
    weights = shares_of(sequence, counts, objective.normalisation, objective.completion_limit)
    return loss_and_gradients((losses * weights).sum(), model)


def proximal(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Samples of slightly different weights, so that ratios are not one and some are clipped."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    with torch.no_grad():
        logits = model(ids).logits[:, PROMPT - 1 : -1].log_softmax(-1)
    return logits.gather(2, batch["completion_ids"][:, :, None])[:, :, 0] + batch["noise"]


CASES: list[tuple[str, dict[str, object], Objective]] = [
    ("dapo", {"loss_type": "dapo"}, Objective(correction="none")),
    ("per sequence", {"loss_type": "grpo"}, Objective(correction="none", normalisation="sequence")),
    (
        "dr_grpo",
        {"loss_type": "dr_grpo"},
        Objective(correction="none", normalisation="constant", completion_limit=ANSWER),
    ),
    ("dual clip", {"loss_type": "dapo", "delta": 1.5}, Objective(correction="none", dual_clip=1.5)),
    (
        "divergence, unbiased",
        {"loss_type": "dapo", "beta": 0.3, "use_bias_correction_kl": True},
        Objective(correction="none", kl=0.3),
    ),
    ("token truncation", {"loss_type": "dapo"}, Objective(correction="token", cap=1.2)),
    ("sequence mask", {"loss_type": "dapo"}, Objective(correction="sequence", cap=1.2)),
    ("clip to the sampler", {"loss_type": "dapo"}, Objective(correction="clip")),
    ("cispo", {"loss_type": "cispo"}, Objective(correction="truncated", cap=1.2)),
]


@pytest.mark.parametrize(("name", "settings", "objective"), CASES, ids=[case[0] for case in CASES])
def test_loss_and_gradients_equal_those_of_trl(
    name: str, settings: dict[str, object], objective: Objective, model: Any,
    batch: dict[str, torch.Tensor], tmp_path: Path,
) -> None:  # fmt: skip
    old = proximal(model, batch)
    behaviour = old - batch["behind"]
    answer = batch["completion_mask"] * batch["tool_mask"]
    # As `_generate_and_score_completions` makes it, from the same cap.
    ratio = None
    if objective.correction == "token":
        ratio = torch.exp(batch["behind"] * answer).clamp(max=objective.cap)
    elif objective.correction == "sequence":
        ratio = torch.exp((batch["behind"] * answer).sum(1, keepdim=True))
        ratio = ratio.masked_fill(ratio > objective.cap, 0.0)
        assert 0 < int((ratio == 0).sum()) < ROWS
    reference = old + batch["behind"] if objective.kl else None
    # Those that know one old policy only: the sampler. CISPO's cap is the upper bound there.
    their_old = behaviour if objective.correction in ("clip", "truncated") else old
    high = objective.cap if objective.correction == "truncated" else objective.clip_high
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs(
            model, batch, tmp_path, their_old, ratio, reference,
            epsilon=objective.clip_low, epsilon_high=high, **settings,
        )  # fmt: skip
    actual = ours(model, batch, old, behaviour, reference, objective)
    assert_same(actual, expected)


def assert_same(
    actual: tuple[float, dict[str, torch.Tensor]], expected: tuple[float, dict[str, torch.Tensor]]
) -> None:
    assert actual[0] == pytest.approx(expected[0], abs=1e-6)
    assert actual[1].keys() == expected[1].keys()
    for parameter, gradient in expected[1].items():
        assert torch.allclose(actual[1][parameter], gradient, atol=1e-5, rtol=0), parameter
    assert max(float(tensor.abs().max()) for tensor in expected[1].values()) > 1e-3


@pytest.mark.parametrize("alike", [False, True], ids=["apart", "sharing prefixes"])
@pytest.mark.parametrize("correction", ["clip", "token"])
def test_a_step_with_masked_truncated_completions_equals_that_of_trl(
    correction: Literal["clip", "token"], alike: bool, batch: dict[str, torch.Tensor],
    tmp_path: Path,
) -> None:  # fmt: skip
    """From groups to gradients. Both completions of one group are truncated, and one of another.
    The learner computes shared prefixes of rows once."""
    loaded = load(write_base(tmp_path / "base"))
    truncated = torch.tensor([True, True, False, False, True, False])
    if alike:
        batch = beginning_alike(batch)
    behaviour = proximal(loaded.model, batch)
    objective = Objective(correction=correction, cap=1.2)
    # In a step with one update the proximal weights are the trained ones.
    present = behaviour - batch["noise"]
    their_old, ratio = behaviour, None
    if correction == "token":
        their_old, ratio = present, torch.exp(present - behaviour).clamp(max=objective.cap)
        assert 0 < int((ratio[~truncated] == objective.cap).sum()) < ratio[~truncated].numel()
    # As `_generate_and_score_completions` makes them with `mask_truncated_completions`.
    masks = {name: batch[name] * (~truncated)[:, None] for name in ("completion_mask", "tool_mask")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs(
            loaded.model, {**batch, **masks}, tmp_path, their_old, ratio, None,
            epsilon=objective.clip_low, epsilon_high=objective.clip_high, loss_type="dapo",
        )  # fmt: skip
    settings = settings_of(
        advantage="centred", truncated="mask", clip=1e9, objective=objective.model_dump()
    )
    learner = Learner(initial_policies(settings, ["shared"], loaded))
    groups = groups_of(batch, behaviour, truncated.tolist())
    summary = learner.step(StepBatch(0, groups, (), 0))["shared"]
    trained = learner.policies.network.trained()
    gradients = {name: parameter.grad for name, parameter in trained if parameter.grad is not None}
    assert summary.truncated == 0.5
    # The step learns from three rows; each by itself is padded to this length.
    assert summary.tokens == (2 if alike else 3) * LENGTH_STEP
    assert_same((summary.loss, gradients), expected)


def beginning_alike(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All share one prompt, two share the start of an answer, and the last contains an
    observation."""
    changed = {name: tensor.clone() for name, tensor in batch.items()}
    changed["prompt_ids"][:] = changed["prompt_ids"][0]
    changed["completion_ids"][3, :2] = changed["completion_ids"][2, :2]
    changed["tool_mask"][5, 2:4] = 0
    return changed


def groups_of(
    batch: dict[str, torch.Tensor], behaviour: torch.Tensor, truncated: list[bool]
) -> tuple[Group, ...]:
    """Groups of two rows each, whose rewards are the advantages: their mean is 0."""
    members: list[Member] = []
    for row, cut in enumerate(truncated):
        written = int(batch["completion_mask"][row].sum())
        answer = batch["completion_ids"][row, :written]
        learned = batch["tool_mask"][row, :written].bool()
        sequence = TokenSequence(
            ids=(*batch["prompt_ids"][row].tolist(), *answer.tolist()),
            learned=(*[False] * PROMPT, *learned.tolist()),
            logprobs=(*[0.0] * PROMPT, *(behaviour[row, :written] * learned).tolist()),
            temperature=1.0,
            truncated=cut,
        )
        members.append(Member(f"row {row}", float(batch["advantages"][row]), (sequence,)))
    policy = PolicyRef(name="shared", base="base", version=0)
    return tuple(
        Group(GroupKey(str(at), "solo", 0, ""), policy, tuple(members[at : at + 2]))
        for at in range(0, ROWS, 2)
    )
