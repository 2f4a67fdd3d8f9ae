"""The settings that determine a loop, apart from chance: the training and the rollouts.

`pair` plays the puzzles of a game or the tasks of a file. Every other workflow is asked questions,
and a checker that knows the right answers rewards the whole run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from loopline.agents.environments.environment import AnyEnvironment, Difficulty
from loopline.agents.environments.registry import environments, find
from loopline.agents.errors import InvalidOptions, PluginError, UnknownName
from loopline.agents.records import GenerationOptions, JsonObject, Record
from loopline.agents.roles.pair.adaptive_sampling import AdaptiveSampling
from loopline.agents.template_options import TemplateOptions
from loopline.agents.workflows import agents_of, workflows
from loopline.runtime.config.options import OnlyWith, Option
from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.data.task_files import JUDGED, TeamTasks
from loopline.trainers.grpo.loop.generators import ASKED, DATASETS, PAIR, GeneratorOptions
from loopline.trainers.grpo.loop.levels import (
    Level,
    LevelChoice,
    LevelFacts,
    game_of,
    level_shares,
    read_levels,
)
from loopline.trainers.grpo.settings import GrpoSettings


class QuestionFile(Record):
    """Facts about a file of questions."""

    sha256: str
    """SHA-256 of all its questions."""
    count: int = Field(ge=1)
    """Number of questions that rounds play."""


def _plays_game(options: Any) -> bool:
    return options.tasks is None and options.workflow == PAIR


def _plays_pair(options: Any) -> bool:
    return options.workflow == PAIR


def _looks(options: Any) -> bool:
    return options.look_every > 0


def _alternates(options: Any) -> bool:
    return options.alternate > 0


_ALTERNATED = OnlyWith("--alternate", _alternates)
_PAIR = OnlyWith("--workflow pair", _plays_pair)
_LOOKED = OnlyWith("--look-every", _looks)
_GENERATED = OnlyWith("generated puzzles, not with --tasks", _plays_game)


class RolloutOptions(GeneratorOptions):
    """The rollouts: what is played, and how."""

    panel: ClassVar[str] = "Rollouts"

    workflow: str = PAIR
    """Workflow that is played: pair, or any other one, whose whole runs then compete."""
    option: Annotated[JsonObject, ASKED, Option(example="max_calls=4")] = Field(
        default_factory=dict
    )
    """Option of the workflow, overriding the deployment's; may be repeated."""
    game: Annotated[str | None, _GENERATED, Option(metavar="NAME|MODULE:OBJECT")] = None
    """Environment whose puzzles of the train split are generated and played: its name or its import
    path."""
    size: Annotated[int | None, _GENERATED, Option(default="the game's")] = None
    """Cells along a side of a puzzle."""
    difficulty: Annotated[JsonObject, _GENERATED, Option(example="boxes=2")] = Field(
        default_factory=dict
    )
    """Option of the game's generator: boxes=2, obstacles=0.3, …; may be repeated."""
    setting: Annotated[JsonObject, _GENERATED] = Field(default_factory=dict)
    """How the game is played: turns=4, brief=true, view=3, …; may be repeated."""
    level: Annotated[
        tuple[str, ...], Option(metavar='"NAME [size=N] [OPTION=VALUE] [weight=W]"')
    ] = ()
    """Game, or generator of questions, at one difficulty, instead of --game and --env; may be
    repeated: each has its weight's share of a round's puzzles."""
    level_choice: Annotated[LevelChoice, OnlyWith("--level", lambda options: options.level)] = (
        "weight"
    )
    """Choose levels by weight, or by weight and solve rate: those whose groups are neither all
    solved nor all unsolved."""
    rounds: int = Field(default=20, ge=1)
    """Rounds, each of which makes one version of the policies."""
    puzzles: int = Field(default=64, ge=1)
    """Puzzles or tasks that a round starts with."""
    temperature: float = Field(default=1.0, gt=0, le=5)
    """Temperature of rollouts."""
    max_tokens: Annotated[int, _PAIR] = Field(default=512, ge=1, le=131_072)
    """Most tokens of one completion; in a workflow other than pair, the pool sets this."""
    agent_temperature: Annotated[
        dict[str, Annotated[float, Field(gt=0, le=5)]],
        Option(metavar="AGENT=TEMPERATURE", example="coder=0.8"),
    ] = Field(default_factory=dict)
    """Temperature of one agent's rollouts, instead of --temperature; may be repeated."""
    agent_max_tokens: Annotated[
        dict[str, Annotated[int, Field(ge=1, le=131_072)]],
        Option(metavar="AGENT=TOKENS", example="coder=1024"),
    ] = Field(default_factory=dict)
    """Most tokens of one agent's completions, instead of --max-tokens; may be repeated."""
    agent_template: Annotated[
        dict[str, TemplateOptions],
        Option(metavar="AGENT=JSON", example='coder={"enable_thinking": false}'),
    ] = Field(default_factory=dict)
    """Switches of the chat template for one agent, overriding those of its pool; may be
    repeated."""
    alternate: Annotated[int, Option(metavar="<rounds>", default="all learn", panel="Policies")] = (
        Field(default=0, ge=0)
    )
    """Rounds in which one policy learns and the others stay unchanged, before the next one's
    turn."""
    together: Annotated[
        tuple[str, ...], _ALTERNATED, Option(metavar="POLICY,POLICY", panel="Policies")
    ] = ()
    """Policies that learn in the same turn; may be repeated. Each other policy has its own turn."""
    instructions: Annotated[bool, _PAIR] = True
    """Put the role's prompt before an agent's observations; off for models that learn without
    it."""
    run_seconds: float = Field(default=3_600.0, gt=0, le=86_400)
    """Seconds after which a run is given up."""
    look_every: Annotated[int, Option(metavar="<rounds>", panel="Held-out tasks")] = Field(
        default=0, ge=0
    )
    """Rounds between evaluations on held-out tasks, which are played greedily; 0: never. The
    version that solves the most is published at the end."""
    held_out: Annotated[int, _LOOKED, Option(panel="Held-out tasks")] = Field(
        default=100, ge=1, le=100_000
    )
    """Held-out tasks of an evaluation: from the validation split of a game, otherwise from the
    quarter of the train split, or of the file, that rounds do not play."""
    patience: Annotated[int | None, _LOOKED, Option(default="off", panel="Held-out tasks")] = Field(
        default=None, ge=1
    )
    """Evaluations without a better version after which the loop stops."""


class LoopSettings(RolloutOptions):
    """Everything that determines one loop, except its output folder. The folder records it."""

    grpo: GrpoSettings
    """`batch` is the target number of groups with a signal in a round."""
    policies: dict[str, str]
    """Policy of the deployment that answers for each trained agent."""
    partners: dict[str, str] = Field(default_factory=dict)
    """Policy of the deployment that answers for each other agent of the team."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """Content hash of each prompt of the workflow in the deployment."""
    tasks: TeamTasks | None = None
    """Facts about the file of tasks; None: puzzles of the game are played."""
    most_puzzles: int = Field(ge=1)
    """Most puzzles of a round, including those that make up for groups without a signal."""
    adaptive: AdaptiveSampling | None = None
    """Adaptive sampling of candidates; None: K samples per observation."""
    workflow_options: JsonObject = Field(default_factory=dict)
    """All options of a workflow other than `pair`."""
    questions: QuestionFile | None = None
    """File of questions for a workflow other than `pair`, instead of a generator."""

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if self.most_puzzles < self.puzzles:
            raise ValueError(
                f"--most-puzzles {self.most_puzzles} can't be less than --puzzles {self.puzzles}"
            )
        if self.adaptive is not None and self.plays > 1:
            raise ValueError(
                "--adaptive samples the candidates of an observation: it needs --grouping at-grpo"
            )
        self.require_playable()
        return self

    def require_playable(self) -> None:
        """Raise `InvalidOptions` for settings that the game, the team or the workflow refuses."""
        if self.level and (self.game or self.size or self.difficulty or self.tasks):
            raise InvalidOptions(
                '--level describes the whole game (--level "sokoban size=6 boxes=1"): leave out '
                "--game, --size, --difficulty and --tasks"
            )
        if self.asks:
            self._require_answerable()
            return
        source = self.source
        if self.grpo.grouping == "single" and len(self.team) > 1:
            raise InvalidOptions(
                "--grouping single is for runs in which one agent acts, but the team is "
                f"{', '.join(self.team)}: use at-grpo or trajectory, or a team of one (--setting "
                f"'team=[\"{self.team[-1]}\"]')"
            )
        if isinstance(source, TeamTasks):
            self._require_distinct_rewards(source)
        workflows.get(PAIR).check_options(self.options)

    def _require_answerable(self) -> None:
        """Raise `InvalidOptions` unless exactly one option specifies the questions of the
        workflow."""
        if [self.env is None, self.questions is None, not self.level].count(False) != 1:
            raise InvalidOptions(
                f"--workflow {self.workflow} needs questions from one source: give --env "
                f"{'|'.join(DATASETS)}, several of them with --level, or --questions FILE (JSON "
                "lines with `question` and `answer`)"
            )
        for level in self.levels:
            if level.source not in DATASETS or level.size is not None or level.difficulty:
                raise InvalidOptions(
                    f"--level {level.name!r}: with --workflow {self.workflow} a level is one of "
                    f"{', '.join(DATASETS)}, without size and options"
                )
        if self.tasks is not None:
            raise InvalidOptions("--tasks are for a team of pair: give --questions FILE")
        if self.grpo.grouping == "at-grpo":
            raise InvalidOptions(
                "--grouping at-grpo compares candidates of one observation, which only pair "
                f"samples and rewards: use trajectory with --workflow {self.workflow}"
            )
        if self.grpo.reward.scheme is not None or self.adaptive is not None:
            raise InvalidOptions(
                f"--scheme and --adaptive only apply to pair; with --workflow {self.workflow} the "
                "whole run is rewarded, by a checker or by --reward MODULE:FUNCTION, less "
                "--dollar-weight"
            )
        if not self.team:
            raise InvalidOptions(f"--workflow {self.workflow} has no agents")

    @property
    def trained(self) -> tuple[str, ...]:
        """The policies that are trained."""
        return tuple(dict.fromkeys(self.grpo.policy_of(agent) for agent in self.policies))

    def require_agents(self) -> None:
        """Raise `InvalidOptions` for settings of an agent or a policy that does not exist."""
        options = {
            "--agent-temperature": self.agent_temperature,
            "--agent-max-tokens": self.agent_max_tokens,
            "--agent-template": self.agent_template,
        }
        for option, agents in options.items():
            if unknown := sorted(set(agents) - set(self.team)):
                raise InvalidOptions(
                    f"{option}: no agent of the team ({', '.join(self.team)}) is called "
                    f"{', '.join(unknown)}"
                )
        _ = self.turns

    @property
    def turns(self) -> tuple[frozenset[str], ...]:
        """Sets of policies that take turns to learn for `alternate` rounds. Raises `InvalidOptions`
        for a set that contains none of the trained policies, or all of them."""
        if not self.alternate:
            return (frozenset(self.trained),)
        sets = [frozenset(filter(None, text.split(","))) for text in self.together]
        named = [name for members in sets for name in members]
        for name in named:
            if name not in self.trained or named.count(name) > 1:
                why = "is listed twice" if name in self.trained else "is not trained"
                raise InvalidOptions(
                    f"--together: {name} {why}; policies: {', '.join(self.trained)}"
                )
        by_first = {min(self.trained.index(name) for name in members): members for members in sets}
        for at, name in enumerate(self.trained):
            if name not in named:
                by_first[at] = frozenset([name])
        if len(by_first) < 2:
            raise InvalidOptions(
                f"--alternate {self.alternate}: all policies learn in one turn, "
                f"{', '.join(self.trained)}: train several policies (--policies per-role, "
                "--policy), or leave it out"
            )
        return tuple(by_first[at] for at in sorted(by_first))

    def learning(self, number: int) -> frozenset[str]:
        """The policies that learn in round `number`, from 1; the others stay unchanged."""
        turns = self.turns
        return turns[(number - 1) // max(self.alternate, 1) % len(turns)]

    def sampling_of(self, *, greedily: bool) -> dict[str, GenerationOptions]:
        """Generation options for the completions of single agents, by agent."""
        lasting = {*self.agent_max_tokens, *self.agent_template}
        agents = dict.fromkeys([*self.agent_temperature, *sorted(lasting)])
        return {
            agent: GenerationOptions(
                temperature=None if greedily else self.agent_temperature.get(agent),
                max_tokens=self.agent_max_tokens.get(agent),
                template_options=self.agent_template.get(agent, {}),
            )
            for agent in agents
            if not greedily or agent in lasting
        }

    def rate_of(self, number: int) -> float:
        """Factor of the learning rate in a round."""
        return self.grpo.schedule.factor(number, self.rounds)

    @property
    def asks(self) -> bool:
        """Whether a workflow other than `pair` is asked questions."""
        return self.workflow != PAIR

    def _require_distinct_rewards(self, tasks: TeamTasks) -> None:
        """Raise `InvalidOptions` if the scheme gives all candidates of an agent the same reward."""
        scheme, agents = self.grpo.reward.scheme, self.grpo.agents
        if scheme == "progress" and tasks.environment in JUDGED:
            raise InvalidOptions(
                f"--scheme progress: the progress of a team of {tasks.environment} is not "
                "measured: use paper, dense or sparse"
            )
        tester_learns = "tester" in tasks.team and (agents is None or "tester" in agents)
        if scheme == "sparse" and tester_learns and self.grpo.grouping == "at-grpo":
            raise InvalidOptions(
                "--scheme sparse: no test makes a program right, so all tests of a turn earn the "
                "same and the tester would never learn: use paper or dense, or leave it out of "
                "the training with --agent coder"
            )

    @property
    def source(self) -> Difficulty | TeamTasks:
        """The difficulty for the generator, or the tasks that are played instead of a game. Raises
        `InvalidOptions`."""
        if self.tasks is not None:
            return self.tasks
        if self.level:
            return game_of(self.levels[0], self.setting)[1]
        if self.game is None:
            raise InvalidOptions(
                f"a loop needs a game: --game NAME ({', '.join(environments.names())}) or --game "
                "package.module:OBJECT; several with --level; or the tasks of a file: --tasks "
                "FILE (`bench tasks` writes one)"
            )
        return self.environment.levels(self.size, self.difficulty, self.setting)

    @property
    def environment(self) -> AnyEnvironment:
        """Environment of the game; with several levels, of the first. Raises `InvalidOptions`."""
        if self.level:
            return game_of(self.levels[0], self.setting)[0]
        try:
            return find(str(self.game))
        except (UnknownName, PluginError) as error:
            raise InvalidOptions(f"--game {self.game}: {error}") from error

    @property
    def team(self) -> tuple[str, ...]:
        """Agents that play; for `pair`, in the order of a turn."""
        if self.asks:
            return tuple(agents_of(self.workflow, None, self.workflow_options))
        source = self.source
        if isinstance(source, TeamTasks):
            return source.team
        if self.level:
            return self._common_team()
        return self.environment.team(source.setting)

    @property
    def levels(self) -> tuple[Level, ...]:
        """Levels that rounds play; empty for a single game, file or generator. Raises
        `InvalidOptions`."""
        return read_levels(self.level)

    def shares(self, history: Sequence[Mapping[str, LevelFacts]]) -> dict[str, float]:
        """Share of the puzzles of each level after the rounds in `history`; empty without
        levels."""
        if not self.level:
            return {}
        return level_shares(self.levels, self.level_choice, self.grpo.group_size, history)

    def _common_team(self) -> tuple[str, ...]:
        """Team that plays all levels. Raises `InvalidOptions`."""
        games = [game_of(level, self.setting) for level in self.levels]
        teams = [game.team(difficulty.setting) for game, difficulty in games]
        for level, team in zip(self.levels, teams, strict=True):
            if set(team) != set(teams[0]):
                raise InvalidOptions(
                    f"--level {level.name!r} is played by {', '.join(team)}, but "
                    f"{self.levels[0].name!r} by {', '.join(teams[0])}: one team plays all levels"
                )
        return teams[0]

    @property
    def played(self) -> tuple[str | None, ...]:
        """Values of `Task.environment` that `pair` plays; None for questions."""
        if self.asks:
            return (None,)
        if self.tasks is not None:
            return (self.tasks.environment,)
        if not self.level:
            return (self.environment.key,)
        return tuple(dict.fromkeys(game_of(level, self.setting)[0].key for level in self.levels))

    @property
    def subject(self) -> str:
        """Description of the puzzles, tasks or questions."""
        if self.questions is not None:
            return f"{self.workflow}, asked {format_count(self.questions.count, 'question')}"
        if self.level:
            names = ", ".join(level.name for level in self.levels)
            return f"{self.workflow} in {names}" if self.asks else names
        if self.asks:
            return f"{self.workflow} in {self.env}"
        if self.tasks is None:
            return str(self.game)
        return f"{format_count(self.tasks.count, 'task')} of {self.tasks.environment}"

    @property
    def noun(self) -> str:
        """Noun for one thing that is played."""
        return "puzzle" if self.tasks is None and not self.asks else "task"

    @property
    def plays(self) -> int:
        """Number of times that each puzzle is played: whole runs compete with each other, whereas
        candidates are in one run."""
        return 1 if self.grpo.grouping == "at-grpo" else self.grpo.group_size

    @property
    def candidates(self) -> int:
        """Candidates of an agent's turn."""
        return self.grpo.group_size if self.plays == 1 else 1

    @property
    def most_candidates(self) -> int:
        """Most candidates of an agent's turn, over all rounds of sampling: a step records them
        together."""
        return self.candidates * (1 if self.adaptive is None else self.adaptive.rounds)

    @property
    def options(self) -> JsonObject:
        """Options of the workflow. Sampling has full support: no top-p, no schema."""
        if self.asks:
            return self.workflow_options
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
        """Rounds whose rollouts may start while an earlier one is trained."""
        return self.grpo.staleness or 0


class Look(Record):
    """Results of a version on held-out tasks."""

    round: int
    """Round that made the version; 0 for the initial one."""
    outcomes: str
    """Outcomes of the tasks in order: `1` solved, `0` not."""

    @property
    def success(self) -> float:
        """Share of solved tasks."""
        return self.outcomes.count("1") / max(len(self.outcomes), 1)
