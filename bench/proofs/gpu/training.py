"""`train grpo`'s own steps: an adapter for each role on a base in bfloat16."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loopline.bench.errors import BenchError
from loopline.bench.proofs.gpu.model import TEMPLATE_OPTIONS
from loopline.bench.proofs.gpu.serving import ROLES
from loopline.trainers.grpo.groups import Group
from loopline.trainers.grpo.report import PolicyStep

LEARNING_RATE = 3e-3
"""Rate at which one step makes a measurable difference in bfloat16; the model is not meant to learn
here."""


@dataclass(frozen=True)
class Training:
    """Steps on the same groups."""

    base: Path
    first: Path
    """Folder of the policies after the first step."""
    last: Path
    """Folder of the policies after the last step."""
    groups: tuple[Group, ...]
    steps: int
    rank: int
    micro_batch_tokens: int
    threads: int
    seed: int


@dataclass(frozen=True)
class Trained:
    """Result of the training."""

    base_mb: float
    """Megabytes of the frozen weights in memory."""
    trained_parameters: int
    """Parameters of one adapter."""
    steps: tuple[dict[str, PolicyStep], ...]
    """Figures of each step, by role."""
    peak_memory_mb: float
    reserved_mb: float | None = None
    """Peak of the reserved GPU memory; None on a CPU."""

    @property
    def seconds(self) -> float:
        """Mean seconds of a step of all roles together, without the first step."""
        timed = self.steps[1:]
        return sum(facts.seconds for step in timed for facts in step.values()) / len(timed)

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second that go through the model, padding included."""
        timed = [facts for step in self.steps[1:] for facts in step.values()]
        return sum(facts.tokens for facts in timed) / sum(facts.seconds for facts in timed)


def train(work: Training) -> Trained:
    """Make the steps and write the policies. Raises `BenchError` if memory runs out."""
    import torch

    from loopline.trainers.core.memory import keep_freed_memory, peak_memory_mb, peak_reserved_mb
    from loopline.trainers.core.network import load_base
    from loopline.trainers.grpo.facts import PolicyFacts
    from loopline.trainers.grpo.learner import Learner
    from loopline.trainers.grpo.pipeline import initial_policies
    from loopline.trainers.grpo.report import StepFacts
    from loopline.trainers.grpo.settings import GrpoSettings
    from loopline.trainers.grpo.storing import write_policies
    from loopline.trainers.grpo.stream import StepBatch
    from loopline.workers.engines.local.adapter_base import weights_sha256

    keep_freed_memory()
    torch.set_num_threads(work.threads)
    settings = GrpoSettings.model_validate(
        {
            "base": str(work.base), "base_sha256": weights_sha256(work.base), "data_sha256": "",
            "policies": "per-role", "weights": "lora", "rank": work.rank,
            "precision": "bfloat16", "batch": len(work.groups),
            "group_size": len(work.groups[0].members),
            "micro_batch_tokens": work.micro_batch_tokens, "learning_rate": LEARNING_RATE,
            "truncated": "keep", "threads": work.threads, "seed": work.seed,
        }
    )  # fmt: skip
    loaded = load_base(str(work.base), settings.base_precision, TEMPLATE_OPTIONS)
    policies = initial_policies(settings, ROLES, loaded)
    learner = Learner(policies)
    history: list[StepFacts] = []
    try:
        for step in range(work.steps):
            policy_steps = learner.step(StepBatch(step, work.groups, (), 0))
            history.append(StepFacts(version=step, stale=0, policies=policy_steps))
            facts_of = partial(
                PolicyFacts.of, settings=settings, version=step + 1, steps=tuple(history)
            )
            for at, folder in (0, work.first), (work.steps - 1, work.last):
                if step == at:
                    write_policies(policies, folder, facts_of)
    except torch.OutOfMemoryError as error:
        raise BenchError(
            f"a step of {work.micro_batch_tokens:,} tokens at once does not fit next to the "
            "engine: give a smaller --micro-batch-tokens, or fewer --groups "
            f"({' '.join(str(error).split())[:160]})"
        ) from error
    trained = policies.network.trained()
    frozen = [parameter for parameter in loaded.model.parameters() if not parameter.requires_grad]
    return Trained(
        base_mb=round(
            sum(parameter.numel() * parameter.element_size() for parameter in frozen) / 1e6, 1
        ),
        trained_parameters=sum(parameter.numel() for _, parameter in trained),
        steps=tuple(facts.policies for facts in history),
        peak_memory_mb=peak_memory_mb(loaded.device),
        reserved_mb=peak_reserved_mb(loaded.device),
    )
