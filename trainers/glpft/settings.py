"""Everything that determines a training: two runs with equal settings produce equal weights."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from loopline.agents.records import Record
from loopline.agents.template_options import TemplateOptions
from loopline.runtime.config.options import OnlyWith, Option, Options
from loopline.trainers.errors import UnknownModel
from loopline.trainers.glpft.stages import BACKBONE, COPYING, ROLES, GlobalSet, Method

Weights = Literal["full", "lora", "lora-roles"]
"""`full`: every stage trains all weights. `lora`: every stage trains an adapter of the base, and a
role starts from the backbone's. `lora-roles`: the backbone trains all weights, and the roles train
adapters of it."""


class Size(Record):
    """Sizes of a Qwen2 that starts from random weights. Parameters include the embedding, which is
    also the output layer."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int = 1984
    context: int = 2048


SIZES = {
    "micro-0.2m": Size(hidden=64, layers=2, heads=2, feed_forward=176),
    "micro-0.8m": Size(hidden=128, layers=3, heads=4, feed_forward=352),
    "micro-2m": Size(hidden=192, layers=4, heads=3, feed_forward=512),
}


class Schedule(Record):
    """Schedule of one stage."""

    epochs: float
    """Passes over the stage's set, if no budget is given."""
    learning_rate: float
    matrix_learning_rate: float | None = None
    """Learning rate of the matrices inside the layers, for Muon and in units of AdamW's step, if
    all weights are trained. None: AdamW trains everything."""
    warmup: float
    """Share of the stage in which the learning rate rises to its highest value."""
    weight_decay: float
    prompts: float = 0.0
    """Weight of a prompt token in the loss; a target token has weight 1."""
    lowest: float = 0.0
    """Fraction of the learning rate at the end."""
    batch: int | None = None
    """Rows per step; None: the number of the whole training."""


PUBLISHED: dict[str, Schedule] = {
    BACKBONE: Schedule(epochs=2, learning_rate=5e-5, warmup=0.4, weight_decay=0.0),
    "planner": Schedule(epochs=1, learning_rate=1e-5, warmup=0.2, weight_decay=0.01),
    "caller": Schedule(epochs=1, learning_rate=1e-5, warmup=0.2, weight_decay=0.01),
    "summarizer": Schedule(epochs=2, learning_rate=1e-5, warmup=0.4, weight_decay=0.01),
}
"""Schedules for a pretrained base: X-PLUG/Multi-LLM-Agent, `GLPFT/scripts`."""
PROMPTS = 0.15
"""Weight of prompts for random weights, which also learn to read from them: mainly to copy a name
or a number. The micro model's loss on targets after 1.4 M tokens was 0.73 nats with this weight and
0.96 without. A target is a sixth or seventh of a row, so both parts have about the same total
weight."""
COPYING_SHARE = 0.2
COPYING_TOKENS = 1_500_000
"""Most tokens spent on learning to copy, which otherwise takes a fifth of the compute. A micro
model's loss on copied digits falls from 1.9 nats to 1.3 within some hundred steps near 1.1 M
tokens."""
_RANDOM_WEIGHTS = Schedule(
    epochs=8,
    learning_rate=2e-3,
    matrix_learning_rate=6e-3,
    warmup=0.05,
    weight_decay=0.05,
    prompts=PROMPTS,
)
MICRO: dict[str, Schedule] = {
    COPYING: _RANDOM_WEIGHTS.model_copy(update={"lowest": 1.0, "batch": 8}),
    BACKBONE: _RANDOM_WEIGHTS,
    **{
        role: Schedule(
            epochs=4, learning_rate=1e-3, matrix_learning_rate=3e-3, warmup=0.05, weight_decay=0.05
        )
        for role in ROLES
    },
}
"""Schedules for micro models, at the rates of `train sft`. The published ones would leave random
weights nearly unchanged."""
Schedules = Literal["published", "micro"]
"""`published`: for a pretrained base. `micro`: for random weights, or to continue training a base
that started from them."""
LORA_RATE = 10.0
"""Factor of an adapter's rate: adapters learn best at about ten times the rate of all weights
(Biderman et al. 2024, arXiv:2405.09673)."""
LORA_RATE_MICRO = 3.0
"""The same factor for micro models, whose rates are high already: at ten times those, their roles
lost what they had learned."""

BATCH = 48
"""Rows per step, as published."""
BATCH_MICRO = 16
"""Rows per step of micro models. Steps are smaller, but more: after 0.86 M tokens the loss of a
micro model was 1.65 nats, and 2.1 with steps of 48 rows."""


class StageOptions(Options):
    """How every stage is trained."""

    panel: ClassVar[str] = "Training"

    method: Method = "glpft"
    """Models to train: GLPFT's backbone and roles, or a baseline at the same compute."""
    weights: Weights = "full"
    """Train all weights (full), adapters of the base (lora), or adapters of a backbone whose
    weights are all trained (lora-roles)."""
    global_set: GlobalSet = "global_steps"
    """Data of the backbone: single steps, or whole trajectories."""
    schedules: Annotated[
        Schedules | None, Option(default="micro for random weights, published for a base")
    ] = None
    """Learning rates and epochs. To continue a base that started as a micro model, choose micro."""
    tokens: Annotated[int | None, Option(default="as many as GLPFT's epochs need")] = Field(
        default=None, ge=1
    )
    """Compute of the whole method: tokens that go through a model, padding included."""
    micro_batch_tokens: int = Field(default=4_096, ge=64)
    """Tokens per forward and backward pass, over all processes: limits the memory of a step, whose
    gradient is summed over the passes."""
    offload_optimizer: bool = False
    """Keep AdamW's moments in the machine's memory and compute updates on the CPU: saves 8 bytes of
    GPU memory per trained weight."""
    rate: float = Field(default=1.0, gt=0)
    """Factor of all learning rates."""
    clip: Annotated[float, Option("max-grad-norm")] = Field(default=1.0, gt=0)
    """Largest norm of the gradient; a larger one is scaled down to it."""
    rank: Annotated[
        int, OnlyWith("--weights lora or lora-roles", lambda options: options.weights != "full")
    ] = Field(default=16, ge=1)
    """LoRA rank; alpha is twice the rank."""
    validation: float = Field(default=0.02, ge=0, lt=1)
    """Share of the instructions that no stage learns from."""
    template_options: Annotated[
        TemplateOptions, Option("template-option", example="enable_thinking=false")
    ] = Field(default_factory=dict)
    """Option of the base's chat template, equal to that of the serving pool; may be repeated."""
    threads: int = Field(default=1, ge=1)
    """CPU threads. A different number sums in a different order, which changes the last digits."""
    seed: int = 1
    """Seed of the weights and of the order of rows."""


class GlpftSettings(StageOptions):
    """Everything that determines one training, except its output folder. The folder records it."""

    data_sha256: str
    """Hash of the data set."""
    agents: tuple[str, ...] = ()
    """Agents of recorded rows, each with its own role; empty: the roles of umi."""
    base: str | None = None
    """Folder or hub id of the model to start from; None: random weights."""
    base_sha256: str | None = None
    """Hash of the base's weights; None for random ones."""
    size: Size | None = None
    """Size of a model that starts from random weights."""
    batch: int = Field(default=BATCH, ge=1)
    """Rows per step."""
    objective: Literal["sft", "dpo", "on-policy"] = "sft"
    """The meaning of a row: an answer to write, a pair with a preferred answer, or a conversation
    with places at which the model writes its own answers."""
    beta: float = Field(default=0.1, gt=0)
    """Weight of staying close to the initial model, against preferences; for dpo."""
    teacher: str | None = None
    """Folder or hub id of the model that judges the written tokens; for on-policy."""
    teacher_url: str | None = None
    """URL of the server that runs the teacher; None: it runs in this process."""
    teacher_sha256: str | None = None
    """Hash of the teacher's weights; None for those of a server."""
    samples: int = Field(default=1, ge=1)
    """Answers at each place; for on-policy."""
    max_tokens: int = Field(default=256, ge=1)
    """Most tokens of such an answer; for on-policy."""

    @property
    def is_micro(self) -> bool:
        """Whether the schedules of micro models are used."""
        return is_micro(self.schedules, self.base)

    def schedule(self, stage: str, *, begins: bool = False) -> Schedule:
        """Schedule of a stage. A single model is trained like the backbone, and so is a role that
        `begins` with random weights. An agent of recorded rows is trained like the caller."""
        table = MICRO if self.is_micro else PUBLISHED
        random = begins and self.base is None and stage in ROLES
        other = table["caller"] if stage in self.agents else table[BACKBONE]
        schedule = table[BACKBONE] if random else table.get(stage, other)
        factor, matrices = self.rate, schedule.matrix_learning_rate
        if self.trains_adapter(stage):
            factor *= LORA_RATE_MICRO if self.is_micro else LORA_RATE
            matrices = None
        return schedule.model_copy(
            update={
                "learning_rate": schedule.learning_rate * factor,
                "matrix_learning_rate": matrices and matrices * factor,
            }
        )

    def copying_share(self, budget: int) -> float:
        """Share of the `budget` tokens that is spent on learning to copy."""
        return 0.0 if self.base is not None else min(COPYING_SHARE, COPYING_TOKENS / budget)

    def trains_adapter(self, stage: str) -> bool:
        roles = self.agents or ROLES
        return self.weights == "lora" or (self.weights == "lora-roles" and stage in roles)


def is_micro(schedules: str | None, base: str | None) -> bool:
    """Whether these schedules, or the default ones for this base, are those of micro models."""
    return schedules == "micro" or (schedules is None and base is None)


def size(name: str) -> Size:
    """Size of that name. Raises `UnknownModel`, which lists the available names."""
    model_size = SIZES.get(name)
    if model_size is None:
        raise UnknownModel(f"there is no size {name!r}; choose one of: {', '.join(SIZES)}")
    return model_size
