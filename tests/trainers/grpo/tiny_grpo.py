"""A model with random weights and runs that it sampled itself, so small that a training of twenty
steps takes a second."""

from __future__ import annotations

import json
import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.optim.optimizer import register_optimizer_step_post_hook

from loopline.agents.records import Candidate, Trajectory
from loopline.trainers.core.models import WEIGHTS, export_model, load_tokenizer, new_model
from loopline.trainers.core.network import load_base
from loopline.trainers.grpo.data import GrpoData, read_data
from loopline.trainers.grpo.groups import Sealing
from loopline.trainers.grpo.sequences import same_tokenizer
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.workers.engines.local.model_files import MICRO_MODELS
from loopline.workers.engines.torch.loading import LoadedModel

from .recorded import a_call, a_candidate, a_run, a_step

SIZE = 4
"""K."""
WRITTEN = 6
"""Tokens of a completion."""


@dataclass(frozen=True)
class Sizes:
    hidden: int = 32
    feed_forward: int = 64
    layers: int = 1
    heads: int = 2
    context: int = 128


def write_base(folder: Path, sizes: Sizes | None = None) -> Path:
    """A model folder in fp32, so that trained weights can be compared bit by bit."""
    tokenizer = load_tokenizer(MICRO_MODELS / "slm")
    torch.manual_seed(7)
    model = new_model(sizes or Sizes(), tokenizer.get_vocab_size())
    export_model(model, tokenizer, folder, context=128)
    weights = {k: v.detach() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float32"}))
    return folder


def sealing_of(loaded: LoadedModel) -> Sealing:
    return Sealing(
        size=SIZE,
        belongs=same_tokenizer(loaded.codec, loaded.vocabulary, loaded.end_ids),
        max_context=loaded.max_context,
    )


def settings_of(**changes: object) -> GrpoSettings:
    return GrpoSettings.model_validate(
        {
            "base": "base", "base_sha256": "", "data_sha256": "", "group_size": SIZE, "batch": 3,
            "learning_rate": 1e-3, **changes,
        }
    )  # fmt: skip


def rollouts(
    loaded: LoadedModel, version: int, *, count: int = 3, agents: Sequence[str] = ("solo",)
) -> list[Trajectory]:
    """Runs of one step for each agent, sampled from the current weights; a good answer has many
    small ids."""
    generator = torch.Generator().manual_seed(version)
    rng = random.Random(version)
    runs: list[Trajectory] = []
    for number in range(count):
        instance = version * count + number
        prompt = [rng.randrange(3, 400) for _ in range(rng.randrange(3, 9))]
        steps = [
            a_step(
                _candidates(loaded, [*prompt, turn + 3], version, generator), agent=agent, turn=turn
            )
            for turn, agent in enumerate(agents)
        ]
        runs.append(a_run(instance, *steps, instance=instance))
    return runs


def _candidates(
    loaded: LoadedModel, prompt: Sequence[int], version: int, generator: torch.Generator
) -> list[Candidate]:
    ids = torch.tensor([list(prompt)] * SIZE)
    columns: list[torch.Tensor] = []
    with torch.no_grad():
        for _ in range(WRITTEN):
            scores = loaded.model(ids).logits[:, -1].log_softmax(-1)
            tokens = torch.multinomial(scores.exp(), 1, generator=generator)
            ids = torch.cat([ids, tokens], dim=1)
            columns.append(scores.gather(1, tokens))
    logprobs: list[list[float]] = torch.cat(columns, dim=1).tolist()
    candidates: list[Candidate] = []
    for row, row_logprobs in zip(ids[:, len(prompt) :].tolist(), logprobs, strict=True):
        reward = sum(token_id < loaded.vocabulary // 2 for token_id in row) / WRITTEN
        answer_ids = row[:-1] if row[-1] in loaded.end_ids else row
        text = loaded.codec.decode(answer_ids, prompt[-1])
        candidates.append(
            a_candidate(reward, a_call(prompt, row, row_logprobs, version=version, text=text))
        )
    return candidates


@contextmanager
def chance_at_updates() -> Generator[None]:
    """Each update of weights in the block draws a random number, as dropout would: a resumed
    training has the random state of an undisturbed one only if it was restored."""

    def draw(*_: object) -> None:
        torch.rand(1)

    handle = register_optimizer_step_post_hook(draw)
    try:
        yield
    finally:
        handle.remove()


def data_in(store: Path, loaded: LoadedModel) -> GrpoData:
    return read_data(store, None, sealing_of(loaded))


def load(folder: Path) -> LoadedModel:
    return load_base(str(folder))
