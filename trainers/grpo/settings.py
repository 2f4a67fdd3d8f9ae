"""Everything that determines a training: on a CPU, two runs with equal settings produce equal
weights. A GPU sums in no fixed order, so that the last digits of two runs differ."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from loopline.runtime.config.options import OnlyWith, Option, Options
from loopline.trainers.grpo.advantages import Baseline
from loopline.trainers.grpo.credit import Credit
from loopline.trainers.grpo.groups import Grouping
from loopline.trainers.grpo.losses import Objective
from loopline.trainers.grpo.rewards import RewardChoice

Shape = Literal["constant", "linear", "cosine"]


class Schedule(Options):
    """How the learning rate changes."""

    panel: ClassVar[str] = "Optimisation"

    shape: Annotated[Shape, Option("schedule")] = "constant"
    """Learning rate after the warm-up: constant, or falling to 0 after the last step along a
    straight line (linear) or half a cosine (cosine)."""
    warmup: Annotated[int, Option(metavar="<steps>")] = Field(default=0, ge=0)
    """Steps in which the learning rate rises to its highest value."""

    def factor(self, step: int, steps: int) -> float:
        """Factor of the learning rate in step 1 to `steps`; above 0 and at most 1."""
        if step <= self.warmup:
            return step / (self.warmup + 1)
        if self.shape == "constant":
            return 1.0
        progress = (step - self.warmup - 1) / max(steps - self.warmup, 1)
        if self.shape == "linear":
            return 1.0 - progress
        return 0.5 * (1.0 + math.cos(math.pi * progress))


Sharing = Literal["shared", "per-role"]
"""`shared`: one policy learns from all agents' samples. `per-role`: one for each agent."""
Weights = Literal["full", "lora"]
Precision = Literal["float32", "bfloat16"]
SHARED = "shared"

LEARNING_RATE = 1e-6
"""Learning rate for all weights of a pretrained language model: PettingLLMs' setting."""
LORA_RATE = 10.0
"""Factor of an adapter's rate: adapters learn best at about ten times the rate of all weights
(Biderman et al. 2024, arXiv:2405.09673)."""


class InitialPolicy(BaseModel):
    """An earlier version of a policy."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str
    """Folder or hub id of a model, or the folder of an adapter."""
    sha256: str
    """Hash of its weights."""


class PolicyBase(InitialPolicy):
    """The model that a policy starts from, or is an adapter of."""


class ComputationOptions(Options):
    """How a step is computed."""

    panel: ClassVar[str] = "Computation"

    precision: Precision = "float32"
    """Precision of the forward pass, and of the frozen base under adapters. Trained weights and
    moments stay float32. Log-probabilities match an engine's within 1e-5 only in float32; an engine
    in bfloat16 differs by hundredths of a nat."""
    micro_batch_tokens: int = Field(default=4_096, ge=64)
    """Tokens per forward and backward pass, padding included: limits the memory of a step."""
    head_chunk: Annotated[int, Option(metavar="<tokens>")] = Field(default=0, ge=0)
    """Learned tokens whose logits are in memory at once, recomputed in the backward pass; 0: all of
    a micro-batch. A vocabulary of 150,000 takes 0.6 MB per token."""
    checkpoint_activations: bool = False
    """Keep only the input of each layer for the backward pass and recompute the rest: less memory
    for a third more time."""
    optimizer: Literal["adamw", "adamw-8bit"] = "adamw"
    """AdamW, or AdamW with 8-bit moments: 2 bytes per trained weight instead of 8 (needs
    bitsandbytes, from the extra quantized)."""
    offload_optimizer: Annotated[
        bool, OnlyWith("--optimizer adamw", lambda options: options.optimizer == "adamw")
    ] = False
    """Keep AdamW's moments in the machine's memory and compute updates on the CPU: saves 8 bytes of
    GPU memory per trained weight."""
    share_prefixes: bool = True
    """Compute the common prefix of a group's samples once, as a tree: the same losses up to
    rounding, in a fraction of the time if prompts are longer than answers."""
    threads: int = Field(default=1, ge=1, le=1_024)
    """CPU threads. A different number sums in a different order, which changes the last digits."""
    seed: int = Field(default=1, ge=0, lt=2**63)
    """Seed of new adapters, of the order of groups, and of the puzzles that a loop plays."""


class OptimisationOptions(Options):
    """The steps of the optimizer."""

    panel: ClassVar[str] = "Optimisation"

    batch: int = Field(default=32, ge=1)
    """Groups with a signal per step; each step makes one version of the policies."""
    minibatch: Annotated[int | None, Option(default="the whole step")] = Field(default=None, ge=1)
    """Groups per update of the weights."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay of AdamW."""
    clip: Annotated[float, Option("max-grad-norm")] = Field(default=1.0, gt=0)
    """Largest norm of the gradient; a larger one is scaled down to it."""
    schedule: Schedule = Field(default_factory=Schedule)


class PolicyOptions(Options):
    """The weights that are trained."""

    panel: ClassVar[str] = "Policies"

    policies: Sharing = SHARED
    """One policy that learns from all agents' samples, or one policy for each agent."""
    weights: Weights = "full"
    """Train all weights, or a LoRA adapter of the base."""
    rank: Annotated[int, OnlyWith("--weights lora", lambda options: options.weights == "lora")] = (
        Field(default=16, ge=1, le=4_096)
    )
    """LoRA rank; alpha is twice the rank."""


class GroupOptions(Options):
    """The samples that are learned from."""

    panel: ClassVar[str] = "Groups and rewards"

    grouping: Grouping = "at-grpo"
    """What forms a group: candidates for one state (at-grpo), whole runs (trajectory), or the runs
    of one agent (single)."""
    group_size: int = Field(default=4, ge=2)
    """Samples of a complete group (K)."""
    agents: Annotated[
        tuple[str, ...] | None, Option("agent", metavar="NAME", default="all agents")
    ] = None
    """Agent from whose samples to learn; may be repeated."""
    reward: RewardChoice = Field(default_factory=RewardChoice)
    advantage: Baseline = "standardised"
    """How rewards become advantages within a group; best: 1 for the best samples, 0 for the
    others."""
    credit: Credit = Field(default_factory=Credit)
    truncated: Literal["mask", "keep"] = "mask"
    """Whether completions truncated at their token limit are left out of the loss (mask, DAPO's
    overlong filtering) or learned from (keep). Their rewards count in the group either way."""


class TrainingOptions(GroupOptions, PolicyOptions, OptimisationOptions, ComputationOptions):
    """Options that trainings on recorded runs and on rollouts share."""

    objective: Objective = Field(default_factory=Objective)


class GrpoSettings(TrainingOptions):
    """Everything that determines one GRPO training, except its output folder: its options, with
    hashes of the files that they refer to. The folder records it."""

    base: str
    """Folder or hub id of the model that policies start from, or are adapters of."""
    base_sha256: str
    """Hash of its weights."""
    init_from: dict[str, InitialPolicy] = Field(default_factory=dict)
    """Initial weights of each policy; other policies start from the base, or from an adapter that
    changes nothing."""
    data_sha256: str
    """Hash of the sealed groups."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the groups."""
    steps: int | None = Field(default=None, ge=1)
    """Maximum number of versions to train; None: until the groups are used up."""
    staleness: int | None = Field(default=None, ge=0)
    """Maximum age of a sample in versions; None: any number."""
    base_version: int = Field(default=0, ge=0)
    """Version of the policies that the base corresponds to."""
    learning_rate: float = Field(default=LEARNING_RATE, gt=0)
    """Highest learning rate; `schedule` sets how it changes."""
    assigned: dict[str, str] = Field(default_factory=dict)
    """Policy that learns from each agent's samples; for other agents `policies` decides."""
    bases: dict[str, PolicyBase] = Field(default_factory=dict)
    """Model that each policy starts from, or is an adapter of; for other policies it is `base`."""
    rates: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Highest learning rate of each policy; for other policies it is `learning_rate`."""

    def base_of(self, policy: str) -> PolicyBase:
        """The model that a policy starts from, or is an adapter of."""
        return self.bases.get(policy) or PolicyBase(model=self.base, sha256=self.base_sha256)

    def rate_of(self, policy: str) -> float:
        """A policy's highest learning rate."""
        return self.rates.get(policy, self.learning_rate)

    @property
    def base_precision(self) -> Precision:
        """Precision of the base's weights. Under adapters they never change, so half the bytes are
        enough; as trained weights they would round most updates away."""
        return self.precision if self.weights == "lora" else "float32"

    def policy_of(self, agent: str) -> str:
        """Policy that learns from an agent's samples."""
        return self.assigned.get(agent) or (SHARED if self.policies == SHARED else agent)
