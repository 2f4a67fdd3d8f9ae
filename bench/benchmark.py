"""A benchmark is one object: the source of its questions, its arms, its judge, and its failure
classes.

Each benchmark of this repository is such an object alongside its data set. A package of yours
brings one by an entry point of the group `loopline.benchmarks`:

    [project.entry-points."loopline.benchmarks"]
    capitals = "my_package.capitals:CAPITALS"

and `bench run capitals` runs it; `bench run my_package.capitals:CAPITALS` needs no entry point. For
questions whose answer is a text or a number, `loopline.bench.text_answers.text_benchmark` and
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
"""Returns the result with the score that its stored prediction gets today."""

_CONSTANT = "the constant that solves most, chosen by these questions' own answers"


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
    """Yields a ready judge. The path is the folder of problems, where there are hidden tests or
    gold answers. Raises UsageError for a judge that lacks something here."""
    checkers: Mapping[str, str]
    """Description of the rule of each checker; the primary one is first, and so are its
    verdicts."""
    class_of: Classifier
    classes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Meaning of failure classes beyond those of `loopline.bench.taxonomy`."""
    arms: Arms = QUESTION_ARMS
    arms_of: Callable[[JsonObject], Arms] | None = None
    """Arms that follow from the data set's options or its `reference`, where the arms depend on
    what is asked; None where they don't. Raises UsageError."""
    default_arms: str = "llm,router,slm"
    """Names of the arms that run by default; empty means the first arm."""
    default_split: str = "test"
    options: type[Record] | None = None
    """Model that `Request.choices` must fit, where a data set has options of its own."""
    workflow_options: JsonObject | None = None
    """Options of the workflows; None sets only whether there is a calculator."""
    require: Callable[[Manifest], None] = lambda manifest: None
    """Called before a deployment is looked for. Raises UsageError where runs could not be judged on
    this machine."""
    rescorer: Callable[[Manifest], AbstractContextManager[Rescorer]] | None = None
    """Scorer of stored predictions; None where a judge needs what a run did, which an output
    directory does not hold."""
    needs_judge_worker: bool = False
    """Whether its runs ask a worker of the kind `judge` while they are under way."""
    team: bool = False
    """Whether workflow `pair` plays it: a report then has success by policy version, and pass@k."""
    attempts: bool = False
    """Whether its items are attempts: attempts at the same question share `attempt_of` in their
    known facts."""
    players_by_hand: Callable[[JsonObject], str] = lambda reference: _CONSTANT
    """Describes the players in a data set's `baselines`, given its `reference`; empty for none."""
    origin: Origin | None = None
    """Place to find it again; None where the name is enough. Set by `loopline.bench.registry`."""

    def arms_for(self, choices: JsonObject) -> Arms:
        """Return the arms for these options, or for a data set with this `reference`. Raises
        UsageError."""
        return self.arms if self.arms_of is None else self.arms_of(choices)

    def parse_arms(self, text: str | None, choices: JsonObject) -> tuple[Arm, ...]:
        """Return the arms that a command line names; None means the default ones, or the first of
        all. Raises UsageError."""
        arms = self.arms_for(choices)
        return arms.parse(text or self.default_arms or next(iter(arms.listed)))

    @property
    def class_meanings(self) -> dict[str, str]:
        """Return the meaning of every class that a result may have, in a report's order."""
        return {**{str(name): meaning for name, meaning in MEANINGS.items()}, **self.classes}


def by_signals(class_of: Callable[[Outcome, bool, Collection[str]], Class]) -> Classifier:
    """Return the classifier of a judge that names the applicable classes as signals."""
    return lambda result, gold: class_of(result.outcome, result.right, result.signals)


def options_of(model: type[R], choices: Mapping[str, Any]) -> R:
    """Return the options of a command line. Raises UsageError, naming the option."""
    try:
        return model.model_validate(choices)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]).replace("_", "-")
        raise UsageError(f"--{where}: {first['msg']}; got {first['input']!r}") from error
