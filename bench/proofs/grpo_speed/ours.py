"""`train grpo`'s own step."""

from __future__ import annotations

from loopline.agents.records import PolicyRef
from loopline.bench.proofs.grpo_speed.workload import (
    CLIP,
    LEARNING_RATE,
    PIECE_TOKENS,
    WARM,
    Sampled,
    StepClock,
    StepWork,
)
from loopline.trainers.grpo.groups import Group, GroupKey, Member
from loopline.trainers.grpo.sequences import TokenSequence


def measure(work: StepWork, *, share_prefixes: bool) -> float:
    """Return seconds of a step."""
    import torch

    from loopline.trainers.core.memory import keep_freed_memory
    from loopline.trainers.core.network import load_base
    from loopline.trainers.grpo.learner import Learner
    from loopline.trainers.grpo.pipeline import initial_policies
    from loopline.trainers.grpo.settings import SHARED, GrpoSettings
    from loopline.trainers.grpo.stream import StepBatch

    keep_freed_memory()
    torch.set_num_threads(1)
    settings = GrpoSettings.model_validate(
        {
            "base": work.model, "base_sha256": "", "data_sha256": "", "batch": work.groups,
            "group_size": work.candidates, "learning_rate": LEARNING_RATE, "clip": CLIP,
            "objective": {"correction": "none"}, "micro_batch_tokens": PIECE_TOKENS,
            "share_prefixes": share_prefixes, "seed": work.seed,
        }
    )  # fmt: skip
    policies = initial_policies(settings, [SHARED], load_base(work.model))
    policy = PolicyRef(name=SHARED, base=work.model)
    groups = tuple(_group(number, group, policy) for number, group in enumerate(work.batch))
    learner, clock = Learner(policies), StepClock()
    for step in range(WARM + work.steps):
        learner.step(StepBatch(step, groups, (), 0))
    return clock.seconds()


def _group(number: int, sampled: Sampled, policy: PolicyRef) -> Group:
    prompt = sampled.prompt
    members = tuple(
        Member(
            f"{number}#{at}",
            reward,
            (
                TokenSequence(
                    ids=(*prompt, *completion),
                    learned=(*[False] * len(prompt), *[True] * len(completion)),
                    logprobs=(0.0,) * (len(prompt) + len(completion)),
                    temperature=1.0,
                    truncated=False,
                ),
            ),
        )
        for at, (completion, reward) in enumerate(
            zip(sampled.completions, sampled.rewards, strict=True)
        )
    )
    return Group(GroupKey(str(number), "agent", 0, str(number)), policy, members)
