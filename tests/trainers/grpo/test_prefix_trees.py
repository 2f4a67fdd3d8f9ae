"""Shared prefixes change only the time of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.trainers.core.network import load_base
from loopline.trainers.core.processes import Processes
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.groups import Group
from loopline.trainers.grpo.learner import Learner
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.trainers.grpo.prefix_trees import tree_micro_batches_of
from loopline.trainers.grpo.report import PolicyStep
from loopline.trainers.grpo.rows import Row
from loopline.trainers.grpo.sequences import TokenSequence
from loopline.trainers.grpo.stream import StepBatch
from loopline.workers.engines.torch.loading import LoadedModel

from .tiny_grpo import settings_of
from .tiny_puzzles import a_model, played


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trees") / "model"
    a_model(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load_base(str(folder))


def row(prompt: tuple[int, ...], answer: tuple[int, ...], number: int) -> Row:
    sequence = TokenSequence(
        ids=(*prompt, *answer),
        learned=(*[False] * len(prompt), *[True] * len(answer)),
        logprobs=(*[0.0] * len(prompt), *[-1.0 - number] * len(answer)),
        temperature=1.0,
        truncated=False,
    )
    return Row(sequence, float(number), f"row {number}", 0)


TOKENS = st.integers(0, 5)
PROMPTS = st.lists(st.lists(TOKENS, min_size=1, max_size=20).map(tuple), min_size=1, max_size=3)


@given(PROMPTS, st.data())
@settings(max_examples=25, deadline=None)
def test_every_token_of_a_tree_has_the_log_probability_of_its_row_alone(
    model: LoadedModel, prompts: list[tuple[int, ...]], data: st.DataObject
) -> None:
    answers = st.tuples(
        st.sampled_from(prompts), st.lists(TOKENS, min_size=1, max_size=4).map(tuple)
    )
    drawn = data.draw(st.lists(answers, min_size=1, max_size=12))
    rows = [row(*sample, number) for number, sample in enumerate(drawn)]
    learner = Learner(initial_policies(settings_of(share_prefixes=True), ["shared"], model))
    logprobs_by_row: dict[int, list[float]] = {number: [] for number in range(len(rows))}
    for micro_batch in tree_micro_batches_of(rows, 64, model.device):
        with torch.no_grad():
            logprobs = learner.logprobs(micro_batch).tolist()
        for number, logprob, weight in zip(
            micro_batch.sequence.tolist(), logprobs, micro_batch.advantages.tolist(), strict=True
        ):
            assert weight == number
            logprobs_by_row[number].append(logprob)
    for number, (prompt, answer) in enumerate(drawn):
        with torch.no_grad():
            logits = model.model(torch.tensor([[*prompt, *answer]])).logits[0]
        scores = logits[len(prompt) - 1 : -1].log_softmax(-1)
        expected = scores.gather(1, torch.tensor(answer)[:, None])[:, 0].tolist()
        assert logprobs_by_row[number] == pytest.approx(expected, abs=1e-5)


def test_a_tree_stores_shared_prefixes_once(model: LoadedModel) -> None:
    prompt = tuple(range(40))
    rows = [row(prompt, answer, at) for at, answer in enumerate([(1, 2), (1, 3), (1, 2), (4,)])]
    (micro_batch,) = tree_micro_batches_of(rows, 4_096, model.device)
    # 40 of the prompt, then 1, 2, 3 and 4: rounded up to 48 from 44, where four rows were 4 · 48.
    assert micro_batch.tokens == 48
    assert micro_batch.targets.tolist() == [1, 2, 1, 3, 1, 2, 4]
    assert micro_batch.sequence.tolist() == [0, 0, 1, 1, 2, 2, 3]


def test_an_id_attends_to_itself_and_to_earlier_ids_of_its_own_rows(model: LoadedModel) -> None:
    answers = [(3, 4), (3, 5), (6,)]
    rows = [row((7,), (8,), 0), *(row((1, 2), answer, 1) for answer in answers)]
    (micro_batch,) = tree_micro_batches_of(rows, 64, model.device)
    short, branched = (
        [[at for at, visible in enumerate(line) if visible] for line in tree]
        for tree in micro_batch.ancestor_mask()[:, 0].tolist()
    )
    # Padding attends only to itself, up to the length of 16.
    assert short == [[0], [0, 1], *([at] for at in range(2, 16))]
    paths = [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 5]]
    assert branched == [*paths, *([at] for at in range(6, 16))]


def test_the_memory_of_a_micro_batch_grows_linearly_with_its_tokens(
    model: LoadedModel,
) -> None:
    (micro_batch,) = tree_micro_batches_of([row((1,), (2,) * 2_000, 0)], 4_096, model.device)
    tensors = [tensor for tensor in vars(micro_batch).values() if isinstance(tensor, torch.Tensor)]
    assert (
        sum(tensor.numel() * tensor.element_size() for tensor in tensors) < 100 * micro_batch.tokens
    )


def test_a_tree_that_is_too_long_is_split_between_rows(model: LoadedModel) -> None:
    prompt = tuple(range(40))
    rows = [row(prompt, (at, 1, 2, 3, 4, 5, 6, 7), at) for at in range(6)]
    micro_batches = tree_micro_batches_of(rows, 64, model.device)
    assert [micro_batch.tokens for micro_batch in micro_batches] == [64, 64]
    assert [sorted(set(micro_batch.sequence.tolist())) for micro_batch in micro_batches] == [
        [0, 1, 2],
        [3, 4, 5],
    ]


def test_a_model_with_a_window_is_refused_by_name(folder: Path) -> None:
    loaded = load_base(str(folder))
    loaded.model.config.layer_types = ["sliding_attention"]
    with pytest.raises(TrainingError, match="--no-share-prefixes"):
        initial_policies(settings_of(), ["shared"], loaded)
    initial_policies(settings_of(share_prefixes=False), ["shared"], loaded)


@pytest.mark.parametrize(
    "objective",
    [
        {"entropy": 0.01},
        {"correction": "sequence", "normalisation": "sequence", "kl": 0.1},
        {"correction": "truncated", "normalisation": "constant", "completion_limit": 5},
    ],
)
def test_a_step_has_the_same_loss_and_the_same_gradients_with_shared_prefixes(
    folder: Path, objective: dict[str, object]
) -> None:
    groups = [with_a_signal(group) for group in played(load_base(str(folder))).groups]
    facts: list[PolicyStep] = []
    gradients: list[dict[str, torch.Tensor]] = []
    for shared in (False, True):
        grpo_settings = settings_of(
            share_prefixes=shared, micro_batch_tokens=256, truncated="keep", clip=1e9,
            objective=objective,
        )  # fmt: skip
        policies = initial_policies(grpo_settings, ["shared"], load_base(str(folder)))
        summary = Learner(policies).step(StepBatch(0, tuple(groups), (), 0))["shared"]
        facts.append(summary)
        trained = policies.network.trained()
        gradients.append({name: tensor.grad for name, tensor in trained if tensor.grad is not None})
    plain, tree = facts
    assert tree.loss == pytest.approx(plain.loss, abs=1e-6)
    assert tree.entropy == pytest.approx(plain.entropy, rel=1e-5)
    assert tree.learned == plain.learned
    assert 2 * tree.tokens < plain.tokens
    alone, shared_ones = gradients
    assert alone.keys() == shared_ones.keys() == {name for name, _ in trained}
    for name, gradient in alone.items():
        assert torch.allclose(shared_ones[name], gradient, rtol=0, atol=1e-5), name
    assert max(float(tensor.abs().max()) for tensor in alone.values()) > 1e-2


@dataclass(frozen=True)
class OneOfTwo(Processes):
    """A process whose peer is simulated by another step of the test."""

    number: int = 0

    @property
    def count(self) -> int:
        return 2

    @property
    def index(self) -> int:
        return self.number


def test_a_prompt_goes_through_the_model_once_in_one_of_two_processes(folder: Path) -> None:
    groups = [with_a_signal(group) for group in played(load_base(str(folder))).groups]
    grpo_settings = settings_of(
        micro_batch_tokens=256, truncated="keep", objective={"normalisation": "sequence"}
    )

    def step(processes: Processes) -> PolicyStep:
        policies = initial_policies(grpo_settings, ["shared"], load_base(str(folder)), processes)
        return Learner(policies).step(StepBatch(0, tuple(groups), (), 0))["shared"]

    alone = step(Processes())
    halves = [step(OneOfTwo(number=number)) for number in range(2)]
    assert sum(half.learned for half in halves) == alone.learned
    # Weighed by the length of its own row, whichever process has it.
    assert sum(half.loss for half in halves) == pytest.approx(alone.loss, abs=1e-6)
    assert sum(half.tokens for half in halves) < 1.3 * alone.tokens
    assert all(half.tokens < 0.8 * alone.tokens for half in halves)


def with_a_signal(group: Group) -> Group:
    """A model without training earns nothing, so rewards go by position; the sampler's
    log-probabilities are slightly off."""
    return replace(
        group,
        members=tuple(
            replace(member, reward=float(place), sequences=(apart(member.sequences[0], place),))
            for place, member in enumerate(group.members)
        ),
    )


def apart(sequence: TokenSequence, place: int) -> TokenSequence:
    shifted = (logprob - 0.05 * (place - 1) for logprob in sequence.logprobs)
    return replace(sequence, logprobs=tuple(shifted))
