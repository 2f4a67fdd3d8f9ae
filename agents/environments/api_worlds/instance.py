"""An instruction in a world: the offered tools, the oracle's way, and the verification of a run.

An instance is rebuilt from its `Recipe`, a few numbers and names in `records.Task.instance`, which
do not include the answer.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import Field

from loopline.agents.environments.api_worlds.domains import APIS
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Intent,
    Slots,
    Thought,
    ToolError,
    Unsolvable,
    render_instruction,
)
from loopline.agents.environments.api_worlds.intents import INTENTS
from loopline.agents.environments.api_worlds.splits import Split, split_of
from loopline.agents.environments.api_worlds.verification import (
    AnswerGoal,
    Verdict,
    check_answer,
    check_world,
    is_name,
    rows_of,
    values_outside_lists,
)
from loopline.agents.environments.api_worlds.world import (
    World,
    keys,
    leaf_values,
)
from loopline.agents.records import JsonObject, Record, Task, ToolCall, ToolSpec

ENVIRONMENT = "api_worlds"
MAX_CALLS = 6
"""Turn limit of a run; the oracle needs at most five calls."""
NO_TOOL = "No tool here can do that."


class Recipe(Record):
    """Everything needed to rebuild an instance."""

    world: int = Field(ge=0)
    intent: str
    wording: str
    draw: int = Field(ge=0)
    """Seed of the slots and of the choices in the wording."""
    trouble: bool = False
    """Whether the slots have no solution in the world."""
    tools: tuple[str, ...]
    """Names of the offered APIs, in order."""


@dataclass(frozen=True)
class OracleStep:
    """One step of the oracle."""

    rationale: str
    call: ToolCall
    observation: str


@dataclass(frozen=True)
class Oracle:
    """A way to solve the instruction, found using only the slots and the observations."""

    steps: tuple[OracleStep, ...]
    rationale: str
    """Reason for the end."""
    answer: str | None
    """`None` means that there is no way, and giving up is right."""
    facts: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(step.call for step in self.steps)


@dataclass(frozen=True)
class Instance:
    """An instruction with its offered tools and its verification."""

    recipe: Recipe
    split: Split
    instruction: str
    oracle: Oracle

    @property
    def id(self) -> str:
        """First 16 hex digits of the SHA-256 of world, instruction and tools."""
        key = json.dumps([self.recipe.world, self.instruction, self.recipe.tools])
        return hashlib.sha256(key.encode()).hexdigest()[:16]

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The offered tools."""
        return tuple(APIS[name].spec for name in self.recipe.tools)

    @property
    def task(self) -> Task:
        """The task record, without the answer."""
        return Task(
            environment=ENVIRONMENT,
            instance=self.recipe.model_dump(mode="json"),
            prompt=self.instruction,
        )

    def world(self) -> World:
        """Return the world before any call, with the offered tools."""
        return World(self.recipe.world, self.recipe.tools)

    @cached_property
    def goal(self) -> AnswerGoal:
        """Required and allowed contents of an answer."""
        steps, facts = self.oracle.steps, self.oracle.facts
        observed = [json.loads(step.observation) for step in steps]
        values = [v for step in steps for v in (step.call.arguments or {}).values()]
        key_values = {*facts, *(str(value) for value in values if is_name(value))}
        # If no fact is requested, observations of all calls are allowed.
        action_observations = [
            observation
            for step, observation in zip(steps, observed, strict=True)
            if not facts or APIS[step.call.name].changes or "error" in observation
        ]
        near = {*rows_of(observed, key_values), *values_outside_lists(action_observations)}
        texts = [self.instruction, self.oracle.answer or ""]
        allowed = [*texts, *(str(value) for value in values), *near]
        strings = {value for value in leaf_values(observed) if isinstance(value, str)}
        return AnswerGoal(
            facts=facts,
            allowed=tuple(allowed),
            rivals=frozenset(strings.difference(allowed)),
            wrong=frozenset(self.oracle.wrong),
            keys=frozenset(keys(observed)),
        )

    def verify(
        self, answer: str | None, calls: Sequence[ToolCall], world: World | None = None
    ) -> Verdict:
        """Decide whether a run solved the instruction. `answer` is `None` for a run that gave up;
        `calls` are all its calls; `world` is the resulting world (rebuilt from the calls if not
        given)."""
        calls_verdict = self.verify_calls(calls, world)
        return self.verify_answer(answer, calls) if calls_verdict.solved else calls_verdict

    def verify_calls(self, calls: Sequence[ToolCall], world: World | None = None) -> Verdict:
        """Decide whether a run's calls left the world as the instruction requires."""
        if len(calls) > MAX_CALLS:
            return Verdict(f"{len(calls)} calls, at most {MAX_CALLS} are allowed")
        after = world or World.after(self.recipe.world, calls, self.recipe.tools)
        right = World.after(self.recipe.world, self.oracle.calls, self.recipe.tools)
        domains = after.used_domains | right.used_domains
        return check_world(right.snapshot(domains), after.snapshot(domains))

    def verify_answer(self, answer: str | None, calls: Sequence[ToolCall]) -> Verdict:
        """Decide whether a run with these correct calls ended correctly."""
        if answer is None and self.oracle.answer is not None:
            return Verdict("gave up, but there is a way")
        if answer is not None and self.oracle.answer is None:
            return Verdict("answered, but there is no way")
        if self.oracle.steps and not self._called_relevant_api(calls):
            return Verdict("no tool was asked that could know")
        return Verdict() if answer is None else check_answer(answer, self.goal)

    def _called_relevant_api(self, calls: Iterable[ToolCall]) -> bool:
        """Whether a call used a domain of the intent."""
        wanted = {APIS[name].domain for name in INTENTS[self.recipe.intent].tools}
        return any(
            APIS[call.name].domain in wanted for call in calls if call.name in self.recipe.tools
        )


class UnfitRecipe(ValueError):
    """A recipe without an instance; the message states the reason."""


def rebuild(instance: JsonObject) -> Instance:
    """Rebuild the instance of `records.Task.instance`. Raises `pydantic.ValidationError` for an
    object that is not a recipe, and `UnfitRecipe` for a recipe without an instance."""
    return build(Recipe.model_validate_json(json.dumps(instance)))


def build(recipe: Recipe) -> Instance:
    """Build the instance of a recipe. Raises `UnfitRecipe`."""
    intent = INTENTS.get(recipe.intent)
    wording = next((w for w in intent.wordings if w.id == recipe.wording), None) if intent else None
    if intent is None or wording is None:
        raise UnfitRecipe(f"no intent {recipe.intent!r} with a wording {recipe.wording!r}")
    unknown = [name for name in recipe.tools if name not in APIS]
    if unknown:
        raise UnfitRecipe(f"there is no API {unknown[0]!r}")
    rng = random.Random(recipe.draw)
    world = World(recipe.world, recipe.tools)
    # A combination's findings are resolved while slots are drawn: they may use every API.
    slots = draw_slots(intent, rng, World(recipe.world), trouble=recipe.trouble)
    if slots is None:
        raise UnfitRecipe(f"world {recipe.world} has nothing for {recipe.intent!r}")
    split = split_of(intent, wording, recipe.world, slots, recipe.tools)
    if split is None:
        raise UnfitRecipe("the instance belongs to no split")
    instruction = render_instruction(wording, slots, rng)
    return Instance(recipe, split, instruction, solve(intent, slots, world, recipe.tools))


def draw_slots(intent: Intent, rng: random.Random, world: World, *, trouble: bool) -> Slots | None:
    """Draw slots of an intent in a world; `None` if nothing in the world fits."""
    draw = intent.trouble if trouble else intent.draw
    return None if draw is None else draw(rng, world)


def solve(intent: Intent, slots: Slots, world: World, offered: Sequence[str]) -> Oracle:
    """Run the program of an intent against a world."""
    if not set(intent.tools) <= set(offered):
        return Oracle((), NO_TOOL, None)
    steps: list[OracleStep] = []
    program = intent.program(slots)
    thoughts: list[str] = []

    def rationale(conclusion: str) -> str:
        reasoning = " ".join((*thoughts, conclusion))
        thoughts.clear()
        return reasoning

    try:
        step = next(program)
        while True:
            if isinstance(step, Thought):
                thoughts.append(step.text)
                step = next(program)
                continue
            observation = world.call(step.tool, step.arguments)
            call = ToolCall(
                id=str(len(steps)),
                name=step.tool,
                arguments=step.arguments,
                raw_arguments=json.dumps(step.arguments),
            )
            steps.append(OracleStep(rationale(step.rationale), call, observation))
            result = json.loads(observation)
            if "error" in result:
                step = program.throw(ToolError(f"The tool says: {result['error']}."))
            else:
                step = program.send(result)
    except StopIteration as done:
        answer: Answer = done.value
        return Oracle(
            tuple(steps),
            rationale(answer.rationale),
            answer.text,
            tuple(str(fact) for fact in answer.facts),
            tuple(str(value) for value in answer.wrong),
        )
    except Unsolvable as reason:
        return Oracle(tuple(steps), rationale(str(reason)), None)
