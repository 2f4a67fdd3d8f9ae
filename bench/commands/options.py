"""Options of the evaluation commands. They have their own module so that listing the commands does
not wait for pydantic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from loopline.agents.prompts import PromptSet
from loopline.agents.records import JsonObject
from loopline.runtime.config.options import Argument, Option, Options
from loopline.trainers.router.prices import PriceOptions

if TYPE_CHECKING:
    from loopline.bench.benchmark import Benchmark
    from loopline.bench.budgets import BenchBudget
    from loopline.bench.datasets import Request
    from loopline.bench.session import BenchRequest

_ALL_FILES = Option(default="below LOOPLINE_DATA")


class BudgetOptions(Options):
    """Options for the budget of a benchmark."""

    panel: ClassVar[str] = "Run"

    budget_usd: Annotated[float | None, Option(default="no limit")] = Field(
        default=None, gt=0, le=1e6
    )
    """US dollars that all runs may cost together, reserved before each call."""
    budget_tokens: Annotated[int | None, Option(default="no limit")] = Field(
        default=None, ge=1, le=10**12
    )
    """Tokens that all runs may use together, reserved before each call."""
    budget_seconds: Annotated[float | None, Option(default="no limit")] = Field(
        default=None, gt=0, le=1e9
    )
    """Seconds of all runs together; each run reserves its --run-seconds until it ends."""

    @property
    def budget(self) -> BenchBudget:
        from loopline.bench.budgets import BenchBudget

        return BenchBudget(self.budget_usd, self.budget_tokens, self.budget_seconds)


class RunOptions(BudgetOptions):
    """Options for running any benchmark."""

    panel: ClassVar[str] = "Run"

    seed: int = Field(default=123, ge=0, lt=2**32)
    """Seed for drawing questions and for every run's sampling."""
    concurrency: int = Field(default=32, ge=1, le=4096)
    """Runs in flight at once."""
    run_seconds: float = Field(default=600.0, gt=0, le=86_400)
    """Deadline of each run in seconds."""
    output: Annotated[Path | None, Option(default="a new one under results/")] = None
    """Directory for the results."""
    as_json: Annotated[bool, Option("json")] = False
    """Print one line of JSON on stdout at the end."""
    profile: str | None = None
    """Deployment profile: if none runs, start one and stop it at the end; refuse to run on a
    deployment with another profile."""
    redis_url: Annotated[str | None, Option(default="from the state directory")] = None
    """Redis URL of the deployment."""

    def asked(
        self, benchmark: Benchmark, arms: str | None, request: Request, **more: Any
    ) -> BenchRequest:
        """Return the request for a benchmark, its questions and arms (None: the default ones)."""
        from loopline.bench.session import BenchRequest

        return BenchRequest(
            benchmark=benchmark,
            arms=benchmark.parse_arms(arms, request.choices),
            request=request,
            concurrency=self.concurrency,
            budget=self.budget,
            output=self.output,
            profile=self.profile,
            redis_url=self.redis_url,
            run_seconds=self.run_seconds,
            **more,
        )


class QuestionOptions(RunOptions):
    """Questions that any arm can answer."""

    panel: ClassVar[str] = "Questions"

    arms: Annotated[str | None, Option(default="the benchmark's own")] = None
    """Arms, separated by commas: llm, router, slm or names of workflows."""
    calculator: Literal["on", "off"] = "on"
    """Whether the calculator is offered."""
    prompts: PromptSet = "mathematics"
    """Prompts of solo and delegate: mathematics asks for the answer in a box; general fits any
    domain and takes the whole text as the answer."""
    compat: Literal["delegate"] | None = None
    """Show Delegate's own bookkeeping alongside ours."""


class Gsm8kOptions(QuestionOptions):
    """GSM8K."""

    samples: Annotated[int | None, Option(default="all")] = None
    """Number of questions."""
    split: str = "test"
    """Split of the data set: test or train."""
    data: Annotated[Path | None, _ALL_FILES] = None
    """File or folder of the questions."""


class WordProblemOptions(QuestionOptions):
    """Generated word problems."""

    samples: int = 60
    """Number of questions."""
    split: str = "held_out"
    """Split of the generator: held_out, one of the splits that held_out mixes, or train."""


class BenchmarkOptions(QuestionOptions):
    """The user's own benchmark."""

    benchmark: Annotated[str, Argument()]
    """Name of a benchmark, package.module:OBJECT, or a file of questions (my.jsonl)."""
    scorer: Annotated[Path | None, Option(default="answers are compared as texts")] = None
    """Python file with score(item, answer), for a file of questions."""
    samples: Annotated[int | None, Option(default="all, or the default of a generated set")] = None
    """Number of questions."""
    split: Annotated[str | None, Option(default="the benchmark's own")] = None
    """Split of the benchmark."""
    data: Annotated[Path | None, _ALL_FILES] = None
    """File or folder of the questions."""
    options: Annotated[JsonObject, Option("option", example="game=sudoku")] = Field(
        default_factory=dict
    )
    """Option of this benchmark, such as game=sudoku; may be repeated."""


class TeamOptions(RunOptions):
    """Options for a team of agents."""

    panel: ClassVar[str] = "Play"

    greedy: Annotated[bool | None, Option("greedy/--sampled", default="greedy")] = None
    """One completion at temperature 0, or sampled completions."""
    candidates: Annotated[int | None, Option(default="1")] = None
    """Completions per agent and turn; the one with the best reward is played. This search uses the
    rules, hidden tests or gold answers."""
    temperature: Annotated[float | None, Option(default="1")] = None
    """Temperature of sampled completions."""
    attempts: Annotated[int | None, Option(default="1")] = None
    """Attempts at each instance, for pass@k, with sampled completions."""
    setting: JsonObject = Field(default_factory=dict)
    """Rules of the game: turns=40, brief=true, view=3, …; may be repeated."""

    @property
    def workflow_options(self) -> JsonObject:
        """Options of `pair`. Raises UsageError."""
        from loopline.bench.teams.sampling import sampling

        return sampling(self.greedy, self.candidates, self.temperature, self.attempts)


class PuzzleOptions(TeamOptions):
    """Generated puzzles."""

    panel: ClassVar[str] = "Questions"

    game: Annotated[str | None, Option(metavar="NAME|MODULE:OBJECT", default="plan_path")] = None
    """Environment to play: its name, or package.module:OBJECT."""
    size: Annotated[int | None, Option(default="the game's")] = None
    """Cells along a side of a puzzle."""
    split: Annotated[str | None, Option(default="test; with --data the published puzzles")] = None
    """Split: test, validation or train; or a published one, such as boxoban or
    boxoban/unfiltered/test, if the environment reads published puzzles."""
    samples: int = 200
    """Number of instances."""
    arms: Annotated[str | None, Option(default="the whole team")] = None
    """Arms, separated by commas: pair (team for three or more agents), AGENT_alone, or swapped (two
    agents with each other's policies)."""
    difficulty: Annotated[JsonObject, Option(example="boxes=2")] = Field(default_factory=dict)
    """Option of the game's generator: boxes=2, obstacles=0.3, equations=[1,2], …; may be
    repeated."""
    data: Annotated[Path | None, _ALL_FILES] = None
    """File or folder of Boxoban levels."""


class ProblemOptions(TeamOptions):
    """Problems for a team of two agents."""

    panel: ClassVar[str] = "Questions"

    samples: Annotated[int | None, Option(default="all; 60 of wordproblems")] = None
    """Number of problems."""
    data: Annotated[Path | None, _ALL_FILES] = None
    """Folder of the data sets, or a file of math problems."""
    unsafe_exec: bool = False
    """Let the bench run generated programs without bubblewrap. The deployment's judge has its own
    switch: runtime up --unsafe-exec."""
    concurrency: int = Field(default=16, ge=1, le=4096)
    """Runs in flight at once."""
    run_seconds: float = Field(default=1800.0, gt=0, le=86_400)
    """Deadline of each run in seconds."""


class CodeOptions(ProblemOptions):
    """Programming problems."""

    dataset: str = "humaneval"
    """Data set: humaneval, mbpp, mbpp_sanitized, apps, codecontests or livecodebench."""
    split: str = "test"
    """Split: test; mbpp also has validation, train and prompt; apps train and selected (150 of its
    problems); codecontests train and valid; livecodebench test2 to test6."""
    arms: str = "team"
    """Arms, separated by commas: team, coder_alone, or swapped (the team with each other's
    policies)."""


class MathOptions(ProblemOptions):
    """Mathematical problems."""

    dataset: str = "aime24"
    """Data set: gsm8k, wordproblems (generated), aime24, aime25 or olympiadbench."""
    split: str = "test"
    """Split: test; gsm8k also has train; wordproblems has unseen_wordings and its generator's other
    splits, where test means all splits kept away from training."""
    arms: str = "team"
    """Arms, separated by commas: team, reasoner_alone, or swapped (the team with each other's
    policies)."""


class ToolOptions(RunOptions):
    """Tool use."""

    panel: ClassVar[str] = "Questions"

    suite: Literal["worlds", "tool_steps", "bfcl", "apibench"] = "worlds"
    """Whole runs in simulated worlds, single steps, or published calls (BFCL, APIBench)."""
    split: Annotated[str | None, Option(default="unseen_worlds; all of bfcl and apibench")] = None
    """Split: for worlds and tool_steps unseen_worlds, unseen_wordings, unseen_combinations,
    unseen_apis, train, or held_out for all unseen ones; tool_steps also has toolbench, toolalpaca
    and toolalpaca_real; bfcl has its categories, and live for the user-contributed ones; apibench
    has its hubs."""
    arms: Annotated[str | None, Option(default="umi; llm for bfcl and apibench")] = None
    """Arms, separated by commas: umi, single or both, compared by win rate in worlds. For bfcl and
    apibench each arm is a policy of the deployment: llm, umi/planner, …"""
    samples: Annotated[int | None, Option(default="200 of the simulator, else all")] = None
    """Number of questions."""
    constrained: Annotated[bool | None, Option("constrained/--free", default="constrained")] = None
    """Constrain the caller to the offered tools with a schema, or let it write freely (worlds and
    tool_steps)."""
    tool_style: Annotated[
        Literal["documents", "signatures"] | None, Option(default="the profile's, else documents")
    ] = None
    """How prompts describe the tools (worlds and tool_steps)."""
    data: Annotated[Path | None, _ALL_FILES] = None
    """File or folder of published data; worlds needs none."""


class TaskOptions(Options):
    """Problems to train on."""

    dataset: Annotated[str, Argument()]
    """Data set: gsm8k, wordproblems (generated), mbpp, mbpp_sanitized, apps or codecontests."""
    file: Annotated[Path, Argument()]
    """File of JSON lines to write, one task per line; replaced if it exists."""
    split: str = "train"
    """Split; splits reserved for measuring are refused."""
    samples: Annotated[int | None, Option(default="all; 60 of wordproblems")] = None
    """Number of problems."""
    seed: int = Field(default=123, ge=0, lt=2**32)
    """Seed for drawing the problems."""
    setting: JsonObject = Field(default_factory=dict)
    """How a problem is played: turns=5, …; may be repeated."""
    data: Annotated[Path | None, _ALL_FILES] = None
    """Folder of the data sets, or a file of math problems."""


class JsonOptions(Options):
    """Output of a command at the end."""

    as_json: Annotated[bool, Option("json")] = False
    """Print one line of JSON on stdout at the end."""


class ReportOptions(JsonOptions):
    """A benchmark that was run."""

    directory: Annotated[Path, Argument()]
    """The benchmark's output directory."""


class RescoreOptions(ReportOptions):
    """A benchmark whose predictions are scored again."""

    scorer: Annotated[Path | None, Option(default="the earlier one")] = None
    """Python file with score(item, answer), for a file of questions."""


class ResumeOptions(ReportOptions):
    """A benchmark to continue."""

    concurrency: Annotated[int | None, Option(default="as before")] = Field(
        default=None, ge=1, le=4096
    )
    """Runs in flight at once."""
    budget_usd: Annotated[float | None, Option(default="as before")] = Field(
        default=None, gt=0, le=1e6
    )
    """Total budget in US dollars, including what is already spent."""
    budget_tokens: Annotated[int | None, Option(default="as before")] = Field(
        default=None, ge=1, le=10**12
    )
    """Total budget in tokens, including what is already spent."""
    budget_seconds: Annotated[float | None, Option(default="as before")] = Field(
        default=None, gt=0, le=1e9
    )
    """Total budget in seconds of runs, including what is already spent."""

    @property
    def budget(self) -> BenchBudget:
        from loopline.bench.budgets import BenchBudget

        return BenchBudget(self.budget_usd, self.budget_tokens, self.budget_seconds)

    profile: str | None = None
    """Deployment profile: if none runs, start one and stop it at the end; refuse to run on a
    deployment with another profile."""
    redis_url: Annotated[str | None, Option(default="from the state directory")] = None
    """Redis URL of the deployment."""


class CompareOptions(JsonOptions):
    """Two benchmarks."""

    a: Annotated[Path, Argument()]
    """Output directory of a benchmark, an inspect log, or lm-eval samples."""
    b: Annotated[Path, Argument()]
    """The same for the other benchmark."""
    arms: Annotated[str | None, Option(metavar="A:B,…", default="arms that both have")] = None
    """Arms to pair, separated by commas."""
    scorer: Annotated[str | None, Option(metavar="A[:B]", default="the only one")] = None
    """Scorer to read from logs and samples; A_SCORER:B_SCORER sets one per side."""


class ImportOptions(JsonOptions):
    """Another tool's evaluation."""

    file: Annotated[Path, Argument()]
    """Inspect log (a.eval), or lm-eval samples (samples_TASK_DATE.jsonl)."""
    output: Annotated[Path | None, Option(default="a new one under results/")] = None
    """Directory for the results."""
    scorer: Annotated[str | None, Option(default="the only one")] = None
    """Scorer whose scores are used."""


class ExportOptions(ReportOptions):
    """A benchmark for other tools."""

    format: Literal["inspect", "lm-eval", "csv", "latex"]
    """Format of the files."""
    output: Annotated[Path | None, Option(default="DIRECTORY/export")] = None
    """Folder for the files; earlier ones in it are replaced."""


class CheckOptions(Options):
    """Predictions made elsewhere."""

    file: Annotated[Path, Argument()]
    """JSON lines with `prediction` and `gold`."""
    as_json: Annotated[bool, Option("json")] = False
    """Print one line of JSON for each prediction: a boolean per checker."""


class RouteOptions(PriceOptions, JsonOptions):
    """Answers of two models to the same questions."""

    labelled: Annotated[Path | None, Option(metavar="FILE")] = None
    """JSON lines with id, question, small {text, right} and big {text, right}."""
    from_store: Annotated[Path | None, Option(metavar="FOLDER")] = None
    """Store of recorded runs in which both models answered the questions."""
    alpha: float = Field(default=0.1, gt=0, lt=1)
    """Highest share of all questions for which a wrong small answer may be accepted."""
    delta: float = Field(default=0.05, gt=0, lt=1)
    """Probability that the bound does not hold."""
    splits: int = Field(default=200, ge=1, le=10_000)
    """Random splits into training, calibration and test."""
    seed: int = Field(default=123, ge=0, lt=2**32)
    """Seed of the splits."""
    output: Annotated[Path | None, Option(metavar="FOLDER", default="none is written")] = None
    """Folder for the report: report.html with the plot, report.md and report.json."""


class PublishedDataOptions(JsonOptions):
    """Published data of tool use."""

    data: Annotated[Path | None, _ALL_FILES] = None
    """Folder with the published data."""
    first: int = Field(default=3, ge=1)
    """Examples to list per reason for skipping records; --json lists all."""


class PowerOptions(JsonOptions):
    """A planned comparison."""

    difference: float | None = None
    """Difference of accuracies to show, for example 0.02."""
    discordant: float = Field(default=0.10, gt=0, lt=1)
    """Share of questions that exactly one of the two arms solves."""
    samples: int | None = Field(default=None, ge=1, le=1_000_000)
    """Number of questions."""
    target: float = Field(default=0.80, gt=0, lt=1)
    """Power to reach."""
    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Level of the two-sided test."""

    @model_validator(mode="after")
    def _check_question(self) -> Self:
        if self.difference is None and self.samples is None:
            raise ValueError("give --difference, or --samples, or both")
        return self
