"""The trainings that are compared, and the result of each."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from loopline.agents.records import JsonObject, Record
from loopline.trainers.core.json_records import find_record
from loopline.trainers.data.held_out import TRAIN
from loopline.trainers.data.questions import Dataset

RESULT = "result.json"

Workflow = Literal["umi", "delegate"]
Method = Literal["start", "grpo", "expert-iteration"]


class TeamSetup(Record):
    """A team before training."""

    dataset: Dataset
    pools: dict[str, str]
    """Model by pool."""
    policies: dict[str, str]
    """Policy by agent: a pool, or an adapter of a pool."""
    trained: tuple[str, ...]
    """Agents whose policies learn; all on the pool `base`."""
    base: str
    begin: dict[str, str] = Field(default_factory=dict)
    """Initial adapter by policy."""
    options: JsonObject
    """Options of the team's workflow."""
    split: str
    """Split for measuring if the team learns in the training split: nothing is learned from it, and
    no setting is chosen by it."""
    prices: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """US dollars per million prompt and completion tokens, by pool; pools without an entry are
    free."""


SETUPS: dict[Workflow, TeamSetup] = {
    "umi": TeamSetup(
        dataset="worlds",
        pools={"umi": "micro:umi"},
        policies={
            "umi_planner": "umi/planner",
            "umi_caller": "umi/caller",
            "umi_summarizer": "umi/summarizer",
        },
        trained=("umi_planner", "umi_caller", "umi_summarizer"),
        base="umi",
        begin={
            "umi/planner": "micro:umi-planner",
            "umi/caller": "micro:umi-caller",
            "umi/summarizer": "micro:umi-summarizer",
        },
        # With a grammar, no completion of the caller could be learned from.
        options={"tool_style": "signatures", "constrained": False},
        split="unseen_worlds",
    ),
    "delegate": TeamSetup(
        dataset="wordproblems",
        pools={"llm": "micro:llm", "slm": "micro:slm"},
        policies={"planner": "llm/planner", "expert": "llm", "slm": "slm"},
        trained=("planner",),
        base="llm",
        options={"prompts": "mathematics"},
        split="new_numbers",
        # List prices of a big model and a small model.
        prices={"llm": (2.5, 10.0), "slm": (0.1, 0.4)},
    ),
}


class TeamSettings(Record):
    """Settings of every cell."""

    workflow: Workflow = "umi"
    seeds: tuple[int, ...] = (1,)
    split: str = TRAIN
    """Split that the team learns in. Any split other than the training split is also the one for
    measuring, with other questions, from a quarter that no round plays."""
    domains: tuple[str, ...] = ()
    """Subjects of the questions, from `loopline.trainers.data.questions.DOMAINS`; () means all."""
    model: str | None = None
    """Model that replaces the trained pool's model, for example one that was trained for less time.
    Policies then start without the team's adapters."""
    cpu_minutes: float = Field(default=20.0, gt=0)
    """CPU minutes of each training, on one thread: rollouts, updates and looks at validation
    tasks."""
    dollar_weight: float = Field(default=0.0, ge=0)
    """Loss of reward per dollar of a run."""
    temperature: float = Field(default=1.0, gt=0, le=5)
    """Temperature of the sampled runs."""
    tasks: int = Field(default=24, ge=1)
    """Tasks per round."""
    group_size: int = Field(default=8, ge=2)
    """Runs per task."""
    rank: int = Field(default=4, ge=1)
    learning_rate: float = Field(default=2e-3, gt=0)
    advantage: Literal["standardised", "centred", "leave-one-out"] = "standardised"
    minibatch: int | None = None
    """Groups per update."""
    weights: Literal["full", "lora"] = "lora"
    look_every: int = Field(default=8, ge=1)
    """Rounds between looks at validation tasks."""
    look_tasks: int = Field(default=150, ge=1)
    """Number of validation tasks, from a quarter of the split that no round plays."""
    held_out: int = Field(default=500, ge=1)
    """Held-out tasks on which start and outcome are measured greedily."""
    test_seed: int = 7_001
    """Seed of the held-out tasks."""

    @property
    def setup(self) -> TeamSetup:
        setup = SETUPS[self.workflow]
        if self.model is None:
            return setup
        pools = {**setup.pools, setup.base: self.model}
        return setup.model_copy(update={"pools": pools, "begin": {}})

    @property
    def measured_split(self) -> str:
        return self.setup.split if self.split == TRAIN else self.split


class Cell(Record):
    """One training, or the team before training."""

    method: Method
    seed: int = 0
    """Seed of the training; 0 for `start`, which has none."""

    @property
    def name(self) -> str:
        return self.method if self.method == "start" else f"seed {self.seed}, {self.method}"

    @property
    def needs(self) -> tuple[Cell, ...]:
        return ()

    def folder(self, output: Path) -> Path:
        return output / (
            self.method if self.method == "start" else f"seed-{self.seed}-{self.method}"
        )


class RoundCurve(Record):
    """Measures of one round."""

    round: int
    solved: float
    """Solved share of the sampled runs."""
    groups: int
    trained: int
    left_out: dict[str, int]
    cpu_seconds: float
    """CPU seconds of the training so far."""
    looked: float | None = None
    """Mean greedy reward on validation tasks of the version before this round."""


class CellResult(Record):
    """Result of a training."""

    cell: Cell
    outcomes: str = Field(pattern=r"^[01]+$")
    """Outcomes of greedy runs of the held-out tasks, in order: `1` solved, `0` not."""
    micro_dollars: tuple[int, ...]
    """Cost of each task's run, in millionths of a US dollar."""
    rounds: tuple[RoundCurve, ...] = ()
    best: int = 0
    """Round whose version was measured, the best of all looks; 0 means before training."""
    runs: int = 0
    train_cpu_seconds: float = 0.0
    cpu_seconds: float

    @property
    def solved(self) -> int:
        return self.outcomes.count("1")

    def rewards(self, dollar_weight: float) -> list[float]:
        """Rewards of the held-out tasks, shape (tasks,): 1 if solved, else 0, minus the run's
        cost."""
        return [
            (outcome == "1") - dollar_weight * paid / 1e6
            for outcome, paid in zip(self.outcomes, self.micro_dollars, strict=True)
        ]


def cells_of(settings: TeamSettings) -> list[Cell]:
    """All cells."""
    methods: tuple[Method, ...] = ("grpo", "expert-iteration")
    trainings = [Cell(method=method, seed=seed) for seed in settings.seeds for method in methods]
    return [Cell(method="start"), *trainings]


def read_result(cell: Cell, output: Path) -> CellResult | None:
    """Return the result of a finished cell; None if it is not finished. Raises
    `UnreadableModel`."""
    return find_record(
        cell.folder(output) / RESULT, CellResult, "remove it, and run the command again"
    )
