"""Options of `train grpo loop`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from loopline.agents.roles.pair.adaptive_sampling import Exit
from loopline.runtime.config.options import OnlyWith, Option
from loopline.trainers.data.data_files import DataFile
from loopline.trainers.grpo.loop.generators import PAIR
from loopline.trainers.grpo.loop.settings import RolloutOptions
from loopline.trainers.grpo.options import GrpoOptions
from loopline.trainers.grpo.settings import GrpoSettings

MORE = 4
"""Default limit of the puzzles played in a round, as a multiple of `--puzzles`."""


def _samples_adaptively(options: Any) -> bool:
    return options.adaptive is not None


_ADAPTIVE = OnlyWith("--adaptive positive|balanced", _samples_adaptively)


class LoopOptions(GrpoOptions, RolloutOptions):
    """Roll out on a running deployment, train, publish, and repeat."""

    panel: ClassVar[str] = "Rollouts"

    tasks: Annotated[DataFile | None, Option(metavar="FILE")] = None
    """Tasks for a team of code or mathematics, as `bench tasks` writes them, instead of a game; a
    local file or hf://OWNER/NAME/FILE."""
    questions: Annotated[
        DataFile | None,
        Option(metavar="FILE"),
        OnlyWith("--workflow NAME other than pair", lambda o: o.workflow != PAIR),
    ] = None
    """JSON lines or Parquet with `question` and `answer`, a local file or hf://OWNER/NAME/FILE, for
    a workflow other than pair, instead of --env."""
    policy: Annotated[
        dict[str, str],
        Option(metavar="AGENT=POLICY", example="umi_planner=slm/planner", panel="Policies"),
    ] = Field(default_factory=dict)
    """Policy of the deployment that answers for an agent and learns from its samples; may be
    repeated. Agents with the same policy share it. For other agents, --policies and the deployment
    decide."""
    most_puzzles: Annotated[int | None, Option(default=f"{MORE} times --puzzles")] = Field(
        default=None, ge=1
    )
    """Most puzzles or tasks of a round, in which more are played until --batch groups have a
    signal."""
    staleness: int = Field(default=0, ge=0)
    """Rounds that may be rolled out while an earlier one is trained; also the largest age of a
    sample in versions."""
    adaptive: Annotated[Exit | None, Option(default="K samples of each observation")] = None
    """Sample an observation K at a time until one sample is a success (positive), or half of K are
    of either kind (balanced): Reinforce-Ada."""
    sampling_rounds: Annotated[int, _ADAPTIVE] = Field(default=4, ge=1, le=16)
    """Most rounds of adaptive sampling."""
    success: Annotated[
        float | None, _ADAPTIVE, Option(default="the reward of a solved task or a right test")
    ] = None
    """Lowest reward of a success in adaptive sampling."""
    keep_published: Annotated[int, Option(metavar="<rounds>")] = Field(default=20, ge=2)
    """Newest versions that stay on disk, and that `runtime policies` can choose."""

    @model_validator(mode="before")
    @classmethod
    def _whole_runs_compete(cls, values: Any) -> Any:
        """Default to whole runs in a workflow other than `pair`, in which only whole runs can
        compete."""
        asks = isinstance(values, dict) and values.get("workflow", PAIR) != PAIR
        return {"grouping": "trajectory", **values} if asks else values

    def settings(self, **more: object) -> GrpoSettings:
        return super().settings(staleness=self.staleness, **more)
