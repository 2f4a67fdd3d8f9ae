"""Whole runs in the API simulator: is the instruction carried out, and the answer right?

A question is an instance of a held-out split. The judge rebuilds its world, repeats the run's calls
in it, and compares state and answer with those that the instruction requires
(`loopline.agents.environments.api_worlds.verification`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

from loopline.agents.environments.api_worlds import (
    ENVIRONMENT,
    HELD_OUT,
    Instance,
    Split,
    World,
    instances,
    rebuild,
)
from loopline.agents.records import JsonObject, Outcome, Step, ToolCall, Trajectory
from loopline.agents.roles.umi.backbone import read_step
from loopline.agents.roles.umi.output import Unreadable, read_action, read_plan
from loopline.agents.roles.umi.transcript import CALLING, calls_of
from loopline.bench.arms import TOOL_ARMS
from loopline.bench.benchmark import Benchmark, by_signals
from loopline.bench.datasets import Dataset, Item, Request
from loopline.bench.errors import OutputError, UsageError
from loopline.bench.judgement import Judgement, Question
from loopline.bench.taxonomy import CALLED, Class
from loopline.bench.tools import TEAM_OPTIONS
from loopline.bench.tools.baselines import baselines_of
from loopline.bench.tools.classes import class_of

MIXED = "held_out"
DEFAULT_SAMPLES = 200
MAX_SAMPLES = 100_000
NO_WAY = "there is no way"

_BLIND = (
    "none reads its instruction. Players with the oracle's calls only have to answer, which is an "
    "upper bound, because the calls are most of the work. With them, 'Done.' solves instructions "
    "that ask for no fact. Only the best of the players with their own calls is listed"
)
_CYCLE = "times the same call and observation"
_LIMIT = "which is the limit"


def load(request: Request) -> Dataset:
    """Return instances: the same for the same split, number and seed. Raises UsageError."""
    if request.data is not None:
        raise UsageError("--data has no effect here: worlds are generated, not read")
    instances = instances_in_turn(splits_of(request.split), samples_of(request), request.seed)
    items = tuple(map(_item, instances))
    source = f"generated from seed {request.seed}"
    reference: JsonObject = {"instances": len(instances), "baselines": baselines_of(instances)}
    return Dataset("worlds", request.split, items, len(items), source, reference)


def instances_in_turn(splits: Sequence[Split], samples: int, seed: int) -> tuple[Instance, ...]:
    """Return this number of instances of these splits, in equal parts and alternating, so that a
    run that stops early has seen all splits equally."""
    shares = [samples // len(splits) + (at < samples % len(splits)) for at in range(len(splits))]
    groups = [instances(split, seed, share) for split, share in zip(splits, shares, strict=True)]
    return tuple(group[at] for at in range(max(shares)) for group in groups if at < len(group))


def items_in_turn(splits: Sequence[Split], samples: int, seed: int) -> tuple[Item, ...]:
    """Return `instances_in_turn` as questions."""
    return tuple(map(_item, instances_in_turn(splits, samples, seed)))


def samples_of(request: Request) -> int:
    """Number of requested samples. Raises UsageError."""
    samples = DEFAULT_SAMPLES if request.samples is None else request.samples
    if not 1 <= samples <= MAX_SAMPLES:
        raise UsageError(f"--samples must lie between 1 and {MAX_SAMPLES}; got {samples}")
    return samples


def splits_of(name: str) -> tuple[Split, ...]:
    """Return the splits of a name; `held_out` means all that training never sees. Raises
    UsageError."""
    if name == MIXED:
        return HELD_OUT
    if name not in set(Split):
        split_names = ", ".join((MIXED, *Split))
        raise UsageError(f"the simulator has no split {name!r}; there are: {split_names}")
    return (Split(name),)


def _item(instance: Instance) -> Item:
    task = instance.task
    return Item(
        id=f"worlds/{instance.split}/{instance.id}",
        question=instance.instruction,
        gold=instance.oracle.answer or NO_WAY,
        about={
            "split": str(instance.split),
            "steps": len(instance.oracle.steps),
            "task": {"environment": ENVIRONMENT, "instance": task.instance},
        },
    )


class WorldsJudge:
    """Judges a run: verdict `solved`; measures `calls` and `hallucination` (1 for a run that named
    a tool that is not offered)."""

    def judge(self, trajectory: Trajectory, question: Question) -> Judgement:
        instance = instance_of(question)
        calls = calls_of(trajectory.steps)
        answer = trajectory.answer if trajectory.outcome is Outcome.ANSWERED else None
        ended = trajectory.outcome in (Outcome.ANSWERED, Outcome.GAVE_UP)
        verdict = instance.verify(answer, calls)
        invented = names_unoffered(trajectory.steps, instance.recipe.tools)
        solved = ended and verdict.solved
        signals = [CALLED] if calls else []
        if not solved:
            signals += _failure_classes(trajectory, instance, answer, calls, invented=invented)
        return Judgement(
            verdicts={"solved": solved},
            prediction=answer,
            answer=(answer or "gave up")[:200] if ended else "",
            signals=tuple(signals),
            measures={"calls": float(len(calls)), "hallucination": float(invented)},
            detail="" if solved or not ended else verdict.reason,
        )


def instance_of(question: Question) -> Instance:
    """Return the item's instance. Raises OutputError for a damaged item."""
    match question.about.get("task"):
        case {"instance": dict(recipe)}:
            return rebuild(recipe)
        case _:
            raise OutputError("the item is not an instance of a world: its manifest is damaged")


def names_unoffered(steps: Sequence[Step], offered: Sequence[str]) -> bool:
    """Whether a call names a tool that is not offered."""
    return any(name not in offered for name in _called_names(steps))


def _called_names(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        if step.agent in CALLING and step.decision.kind in ("call", "refused") and step.calls:
            action = read_action(step.calls[-1].text)
            if not isinstance(action, Unreadable):
                yield action.name


def _failure_classes(
    trajectory: Trajectory,
    instance: Instance,
    answer: str | None,
    calls: Sequence[ToolCall],
    *,
    invented: bool,
) -> list[str]:
    """Return the classes that apply to an unsolved run."""
    reason, is_possible = trajectory.reason or "", instance.oracle.answer is not None
    gave_up = trajectory.outcome is Outcome.GAVE_UP
    damaged, incomplete = _unwanted_changes(instance, calls)
    needs_a_try = bool(instance.oracle.steps) and not calls
    facts = {
        Class.CYCLE: gave_up and _CYCLE in reason,
        Class.CALL_LIMIT: gave_up and _LIMIT in reason,
        Class.DAMAGE: damaged,
        Class.HALLUCINATED: invented,
        Class.UNREADABLE: gave_up and _ends_unreadably(trajectory.steps),
        Class.GAVE_UP: gave_up and is_possible,
        Class.NO_WAY: answer is not None and not is_possible,
        Class.NOT_TRIED: needs_a_try,
        Class.NOT_DONE: incomplete,
        Class.WRONG_ANSWER: answer is not None and is_possible,
    }
    return [str(name) for name, holds in facts.items() if holds]


def _unwanted_changes(instance: Instance, calls: Sequence[ToolCall]) -> tuple[bool, bool]:
    """Whether a table is neither unchanged nor as expected, and whether a table that should have
    changed is unchanged."""
    recipe = instance.recipe
    after = World.after(recipe.world, calls, recipe.tools)
    right = World.after(recipe.world, instance.oracle.calls, recipe.tools)
    domains = after.used_domains | right.used_domains
    before, actual, wanted = (world.snapshot(domains) for world in (instance.world(), after, right))
    wrong = [table for table in wanted if actual.get(table) != wanted[table]]
    return (
        any(actual.get(table) != before.get(table) for table in wrong),
        any(actual.get(table) == before.get(table) for table in wrong),
    )


def _ends_unreadably(steps: Sequence[Step]) -> bool:
    last = steps[-1] if steps else None
    if last is None or not last.calls:
        return False
    text = last.calls[-1].text
    match last.agent:
        case "umi_planner":
            return isinstance(read_plan(text), Unreadable)
        case "umi_single":
            return isinstance(read_step(text), Unreadable)
        case _:
            # A summarizer gives up on a text that has no answer or was truncated.
            return last.decision.kind == "give_up"


BENCHMARK = Benchmark(
    name="worlds",
    title="Instructions in simulated worlds",
    load=load,
    judge=lambda manifest, _: nullcontext(WorldsJudge()),
    checkers={
        "solved": "the world is as the instruction requests, and the answer states the requested "
        "facts and no others; giving up is right if the instruction is impossible"
    },
    class_of=by_signals(class_of),
    arms=TOOL_ARMS,
    default_arms="umi",
    default_split="unseen_worlds",
    workflow_options=TEAM_OPTIONS,
    players_by_hand=lambda reference: _BLIND,
)
