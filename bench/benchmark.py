"""A benchmark is one object: the source of its questions, its arms, its judge, and its failure
classes.

Each benchmark of this repository is such an object alongside its data set. Your own package adds
one through an entry point of the group `loopline.benchmarks`:

    [project.entry-points."loopline.benchmarks"]
    capitals = "my_package.capitals:CAPITALS"

Then `bench run capitals` runs it; `bench run my_package.capitals:CAPITALS` needs no entry point.
For questions whose answer is a text or a number, `loopline.bench.text_answers.text_benchmark` and
`loopline.bench.numeric_answers.numeric_benchmark` make the object from a name, a title and a
loader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from loopline.agents.records import JsonObject, Outcome, Record
from loopline.bench.arms import QUESTION_ARMS, Arm, Arms
from loopline.bench.datasets import Dataset, Request
from loopline.bench.errors import UsageError
from loopline.bench.judgement import Judge
from loopline.bench.origins import Origin
from loopline.bench.output import Manifest, ManifestItem
from loopline.bench.results import Result
from loopline.bench.taxonomy import MEANINGS, Class

R = TypeVar("R", bound=Record)

Classifier = Callable[[Result, str], str]
"""Maps a result and the gold answer to a class: one of `loopline.bench.taxonomy.Class`, or of the
benchmark's own `classes`. A right result has `Class.RIGHT`."""

Rescorer = Callable[[Result, ManifestItem], Result]
"""Returns the result with the score that today's checkers give its stored prediction."""

_CONSTANT = "the constant that solves the most questions, chosen with their answers"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark. Its callables import what they need when they are called."""

    name: str
    """Name on the command line, in tags of runs and in names of output directories."""
    title: str
    """Heading of the report."""
    load: Callable[[Request], Dataset]
    """Returns the items of a request. Raises UsageError or DataError."""
    judge: Callable[[Manifest, Path], AbstractContextManager[Judge]]
    """Yields a ready judge. The path is the folder of problems, if there are hidden tests or gold
    answers. Raises UsageError if this machine lacks something that the judge needs."""
    checkers: Mapping[str, str]
    """Description of each checker's rule. The primary checker is first, in verdicts too."""
    class_of: Classifier
    classes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Meanings of failure classes beyond those of `loopline.bench.taxonomy`."""
    arms: Arms = QUESTION_ARMS
    arms_of: Callable[[JsonObject], Arms] | None = None
    """Returns the arms for a data set's options or its `reference`; None if the arms don't depend
    on them. Raises UsageError."""
    default_arms: str = "llm,router,slm"
    """Names of the arms that run by default; empty means the first arm."""
    default_split: str = "test"
    options: type[Record] | None = None
    """Model that validates `Request.choices`, for a data set with options of its own."""
    workflow_options: JsonObject | None = None
    """Options of the workflows; None sets only the calculator and the prompts."""
    require: Callable[[Manifest], None] = lambda manifest: None
    """Called before the search for a deployment. Raises UsageError if runs could not be judged on
    this machine."""
    rescorer: Callable[[Manifest], AbstractContextManager[Rescorer]] | None = None
    """Scorer of stored predictions; None if the judge needs a run's actions, which an output
    directory does not contain."""
    needs_judge_worker: bool = False
    """Whether its runs call a worker of the kind `judge` while in flight."""
    team: bool = False
    """Whether workflow `pair` plays it: reports then have success by policy version, and pass@k."""
    attempts: bool = False
    """Whether its items are attempts: attempts at one question share `attempt_of` in their known
    facts."""
    players_by_hand: Callable[[JsonObject], str] = lambda reference: _CONSTANT
    """Describes the players in a data set's `baselines`, given its `reference`; empty for none."""
    origin: Origin | None = None
    """Origin by which to find it again; None if the name is enough. `loopline.bench.registry` sets
    it."""

    def arms_for(self, choices: JsonObject) -> Arms:
        """Return the arms for these options, or for a data set with this `reference`. Raises
        UsageError."""
        return self.arms if self.arms_of is None else self.arms_of(choices)

    def parse_arms(self, text: str | None, choices: JsonObject) -> tuple[Arm, ...]:
        """Parse the arms of a command line; None means the default ones, or the first if there are
        no defaults. Raises UsageError."""
        arms = self.arms_for(choices)
        return arms.parse(text or self.default_arms or next(iter(arms.listed)))

    @property
    def class_meanings(self) -> dict[str, str]:
        """Meaning of every class that a result may have, in a report's order."""
        return {**{str(name): meaning for name, meaning in MEANINGS.items()}, **self.classes}


def by_signals(class_of: Callable[[Outcome, bool, Collection[str]], Class]) -> Classifier:
    """Return the classifier for a judge whose signals are the applicable classes."""
    return lambda result, gold: class_of(result.outcome, result.right, result.signals)


def options_of(model: type[R], choices: Mapping[str, Any]) -> R:
    """Validate the options of a command line. Raises UsageError that names the option."""
    try:
        return model.model_validate(choices)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]).replace("_", "-")
        raise UsageError(f"--{where}: {first['msg']}; got {first['input']!r}") from error
