"""What a loop follows from, but for chance on the way: what is trained, and what is rolled out."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from loopline.agents.environments.environment import AnyEnvironment, Difficulty
from loopline.agents.environments.registry import environments, find
from loopline.agents.errors import InvalidOptions, PluginError, UnknownName
from loopline.agents.records import JsonObject
from loopline.agents.roles.pair.adaptive_sampling import AdaptiveSampling
from loopline.agents.workflows import workflows
from loopline.runtime.config.options import OnlyWith, Option, Options
from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.data.task_files import JUDGED, TeamTasks
from loopline.trainers.grpo.settings import GrpoSettings

WORKFLOW = "pair"


def _plays_game(options: Any) -> bool:
    return options.tasks is None


_GENERATED = OnlyWith("generated puzzles, not with --tasks", _plays_game)


class RolloutOptions(Options):
    """What is played, and how."""

    panel: ClassVar[str] = "Rollouts"

    game: Annotated[str | None, _GENERATED, Option(metavar="NAME|MODULE:OBJECT")] = None
    """Environment whose puzzles of the train split are generated and played, by its name or by
    where its object is."""
    size: Annotated[int | None, _GENERATED, Option(default="the game's")] = None
    """Cells along a side of a puzzle."""
    difficulty: Annotated[JsonObject, _GENERATED, Option(example="boxes=2")] = Field(
        default_factory=dict
    )
    """Option of the game's generator: boxes=2, obstacles=0.3, …; may be repeated."""
    setting: Annotated[JsonObject, _GENERATED] = Field(default_factory=dict)
    """How the game is played: turns=4, brief=true, view=3, …; may be repeated."""
    rounds: int = Field(default=20, ge=1)
    """Rounds, each of which makes one version of the policies."""
    puzzles: int = Field(default=64, ge=1)
    """Puzzles or tasks that a round begins with."""
    temperature: float = Field(default=1.0, gt=0, le=5)
    """Temperature of rollouts."""
    max_tokens: int = Field(default=512, ge=1, le=131_072)
    """Most tokens of one completion."""
    instructions: bool = True
    """Put the role's prompt before what an agent sees; off for models that learn without it."""
    run_seconds: float = Field(default=3_600.0, gt=0, le=86_400)
    """Seconds after which a run is given up."""


class LoopSettings(RolloutOptions):
    """What one loop follows from, but for where it is written. It is what the folder records."""

    grpo: GrpoSettings
    """`batch` is the number of groups with a signal that a round is to have."""
    policies: dict[str, str]
    """By agent that is trained, the policy of the deployment that answers for it."""
    partners: dict[str, str] = Field(default_factory=dict)
    """The same of the rest of the team."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """Content hash of each prompt of the workflow, as the deployment has it."""
    tasks: TeamTasks | None = None
    """None: puzzles of the game are played."""
    most_puzzles: int = Field(ge=1)
    """Most puzzles of a round, with those that make up for groups without a signal."""
    adaptive: AdaptiveSampling | None = None
    """Adaptive sampling of candidates; None: K of each observation."""

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if self.most_puzzles < self.puzzles:
            raise ValueError(
                f"--most-puzzles {self.most_puzzles} can't be less than --puzzles {self.puzzles}"
            )
        if self.adaptive is not None and self.plays > 1:
            raise ValueError(
                "--adaptive samples the candidates of an observation: it goes with --grouping "
                "at-grpo"
            )
        self.require_playable()
        return self

    def require_playable(self) -> None:
        """Raises `InvalidOptions` for what the game, the team or the workflow refuses."""
        source = self.source
        if self.grpo.grouping == "single" and len(self.team) > 1:
            raise InvalidOptions(
                "--grouping single is of runs in which one agent acts, and the team is "
                f"{', '.join(self.team)}: take at-grpo or trajectory, or of a game a team of one "
                f"(--setting 'team=[\"{self.team[-1]}\"]')"
            )
        if isinstance(source, TeamTasks):
            self._require_distinct_rewards(source)
        workflows.get(WORKFLOW).check_options(self.options)

    def _require_distinct_rewards(self, tasks: TeamTasks) -> None:
        """Raises `InvalidOptions` where the scheme pays all candidates of an agent the same."""
        scheme, agents = self.grpo.reward.scheme, self.grpo.agents
        if scheme == "progress" and tasks.environment in JUDGED:
            raise InvalidOptions(
                f"--scheme progress: nobody measures how far a team of {tasks.environment} has "
                "come: take paper, dense or sparse"
            )
        tester_learns = "tester" in tasks.team and (agents is None or "tester" in agents)
        if scheme == "sparse" and tester_learns and self.grpo.grouping == "at-grpo":
            raise InvalidOptions(
                "--scheme sparse: no test makes a program right, so all tests of a turn earn the "
                "same and the tester would never learn: take paper or dense, or leave it out of "
                "the training with --agent coder"
            )

    @property
    def source(self) -> Difficulty | TeamTasks:
        """What the generator is asked for, or what is played in place of a game. Raises
        `InvalidOptions`."""
        if self.tasks is not None:
            return self.tasks
        if self.game is None:
            raise InvalidOptions(
                f"a loop needs a game: --game NAME ({', '.join(environments.names())}) or --game "
                "package.module:OBJECT; or the tasks of a file: --tasks FILE (`bench tasks` writes "
                "one)"
            )
        return self.environment.levels(self.size, self.difficulty, self.setting)

    @property
    def environment(self) -> AnyEnvironment:
        """Of the game. Raises `InvalidOptions`."""
        try:
            return find(str(self.game))
        except (UnknownName, PluginError) as error:
            raise InvalidOptions(f"--game {self.game}: {error}") from error

    @property
    def team(self) -> tuple[str, ...]:
        """Who plays, in the order of a turn."""
        source = self.source
        if isinstance(source, TeamTasks):
            return source.team
        return self.environment.team(source.setting)

    @property
    def played(self) -> str:
        """What `Task.environment` says of everything that is played."""
        return self.environment.key if self.tasks is None else self.tasks.environment

    @property
    def subject(self) -> str:
        """What is played, in words."""
        if self.tasks is None:
            return str(self.game)
        return f"{format_count(self.tasks.count, 'task')} of {self.tasks.environment}"

    @property
    def noun(self) -> str:
        """Of one thing that is played."""
        return "puzzle" if self.tasks is None else "task"

    @property
    def plays(self) -> int:
        """How often each puzzle is played: whole runs compete with each other, candidates stand in
        one run."""
        return 1 if self.grpo.grouping == "at-grpo" else self.grpo.group_size

    @property
    def candidates(self) -> int:
        """Of an agent's turn."""
        return self.grpo.group_size if self.plays == 1 else 1

    @property
    def most_candidates(self) -> int:
        """Of an agent's turn, in all rounds of sampling: a step records them together."""
        return self.candidates * (1 if self.adaptive is None else self.adaptive.rounds)

    @property
    def options(self) -> JsonObject:
        """Of the workflow. Sampling has full support: no top-p, no schema."""
        return {
            "candidates": self.candidates,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "instructions": self.instructions,
            "scheme": self.grpo.reward.scheme or "paper",
            "alpha": self.grpo.reward.alpha,
            "adaptive": None if self.adaptive is None else self.adaptive.model_dump(mode="json"),
        }

    @property
    def rounds_ahead(self) -> int:
        """Rounds whose rollouts may be begun while an earlier one is trained."""
        return self.grpo.staleness or 0
