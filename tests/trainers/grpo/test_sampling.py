"""The in-process sampler's draws and their log-probabilities."""

from __future__ import annotations

import pytest
import torch

from loopline.trainers.grpo.learner import Learner
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.trainers.grpo.prefix_trees import tree_micro_batches_of
from loopline.trainers.grpo.rows import micro_batches_of, rows_of
from loopline.trainers.grpo.sampling import Completion, Sampler
from loopline.workers.engines.torch.loading import LoadedModel

from .tiny_grpo import settings_of
from .tiny_puzzles import a_model, played, sampler_of

PROMPTS = [[5, 9, 11, 40, 41], [7, 8], [30, 31, 32]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return a_model(tmp_path_factory.mktemp("sampling") / "model")


def drawn(sampler: Sampler, seed: int, temperature: float = 1.0) -> list[list[Completion]]:
    return sampler.sample(
        PROMPTS, count=16, limit=3, temperature=temperature,
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip


def alone(model: LoadedModel, prompt: list[int], ids: tuple[int, ...], heat: float) -> list[float]:
    """Log-probabilities by a plain forward pass of one sequence."""
    with torch.no_grad():
        logits = model.model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    scores = (logits / heat).log_softmax(-1)
    return scores.gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_every_log_probability_equals_that_of_a_plain_forward_pass(
    model: LoadedModel, temperature: float
) -> None:
    for prompt, completions in zip(PROMPTS, drawn(sampler_of(model), 1, temperature), strict=True):
        assert len(completions) == 16
        for completion in set(completions):
            expected = alone(model, prompt, completion.ids, temperature)
            assert completion.logprobs == pytest.approx(expected, abs=1e-5)


def test_the_trainer_computes_the_log_probabilities_of_the_sampler(
    model: LoadedModel,
) -> None:
    groups = played(model).groups
    settings = settings_of(truncated="keep")
    learner = Learner(initial_policies(settings, ["shared"], model))
    rows = rows_of(groups, settings)
    for micro_batch in (
        *micro_batches_of(rows, 4_096, model.device),
        *tree_micro_batches_of(rows, 4_096, model.device),
    ):
        assert float((learner.logprobs(micro_batch) - micro_batch.behaviour).abs().max()) < 1e-5


def test_equal_seeds_draw_equal_samples_and_different_seeds_draw_others(model: LoadedModel) -> None:
    sampler = sampler_of(model)
    assert drawn(sampler, 3) == drawn(sampler, 3)
    assert drawn(sampler, 3) != drawn(sampler, 4)


def test_sampled_frequencies_follow_the_softmax(model: LoadedModel) -> None:
    prompt = PROMPTS[0]
    completions = sampler_of(model).sample(
        [prompt], count=4_000, limit=1, temperature=1.0,
        generator=torch.Generator().manual_seed(1),
    )[0]  # fmt: skip
    with torch.no_grad():
        expected = model.model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    counts = torch.bincount(
        torch.tensor([completion.ids[0] for completion in completions]), minlength=len(expected)
    )
    # Four standard deviations of the most probable ones.
    for token in expected.topk(5).indices.tolist():
        share = float(expected[token])
        apart = abs(float(counts[token]) / 4_000 - share)
        assert apart < 4 * (share * (1 - share) / 4_000) ** 0.5


def test_a_completion_ends_with_the_end_of_turn_token_or_is_marked_as_truncated(
    model: LoadedModel,
) -> None:
    ends = model.end_ids
    for completion in [completion for some in drawn(sampler_of(model), 2) for completion in some]:
        assert completion.truncated == (completion.ids[-1] not in ends)
        assert not ends.intersection(completion.ids[:-1])
        assert len(completion.ids) == 3 or not completion.truncated


def test_greedy_play_takes_the_most_probable_token_regardless_of_its_batch(
    model: LoadedModel,
) -> None:
    completions = sampler_of(model).greedy(PROMPTS, limit=4)
    for prompt, completion in zip(PROMPTS, completions, strict=True):
        ids = list(prompt)
        for token in completion.ids:
            with torch.no_grad():
                assert int(model.model(torch.tensor([ids])).logits[0, -1].argmax()) == token
            ids.append(token)
