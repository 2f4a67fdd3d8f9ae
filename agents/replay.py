"""Runs from only the journal: replay a finished run, or fork it at a turn.

A replay repeats every step with the current roles and workflow, and answers their requests from the
recorded calls. It shows whether the code still behaves as the journal recorded; it calls no model,
costs nothing and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pydantic import JsonValue

from loopline.agents.approvals import digest_of
from loopline.agents.errors import AgentError, ForkImpossible, ReplayDiverged, RequestFailed
from loopline.agents.frontier import Frontier, OpenJoin, frontier_of, handoff_of
from loopline.agents.prompts import prompt_set_of
from loopline.agents.protocols import Host
from loopline.agents.records import (
    Approval,
    Call,
    GenerationOptions,
    JsonObject,
    Message,
    Outcome,
    Run,
    SamplingParams,
    Step,
    Task,
    ToolSpec,
    Trajectory,
)
from loopline.agents.stepping import take_step
from loopline.agents.versions import changed_versions, versions_of, without_unknown_fields
from loopline.agents.workflows import policies_for, prompt_hashes, workflows
from loopline.agents.workflows.routing import ChoosingPrompts, Handoff, capability

_ENDED_FROM_OUTSIDE = frozenset(
    {Outcome.CANCELLED, Outcome.DEADLINE, Outcome.BUDGET, Outcome.ERROR}
)
"""Outcomes that may end a run between two steps; its journal then simply stops."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """Inputs of a recorded completion."""

    first: int
    """Index of its first answer among the step's calls."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]


class RecordedHost:
    """Answers one step's requests from its record. Raises `ReplayDiverged` for a request that is
    not in the record."""

    def __init__(self, step: Step) -> None:
        self.prompts: list[tuple[Message, ...]] = []
        """The requests of the completions, in order."""
        self.requests: list[RecordedRequest] = []
        """The same requests with the tools that were offered."""
        self._where = f"turn {step.turn}, branch {step.branch} ({step.agent})"
        self._step = step
        self._calls = list(step.calls)
        self._outputs = list(recorded_tools(step))
        self._approvals = step.approvals
        failure = step.observation.get("failure")
        self._failure = failure if isinstance(failure, dict) else None

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: SamplingParams | None = None,
        previous: Call | None = None,
        json_schema: JsonObject | None = None,
        options: GenerationOptions | None = None,
    ) -> tuple[Call, ...]:
        self.prompts.append(tuple(messages))
        first = len(self._step.calls) - len(self._calls)
        self.requests.append(RecordedRequest(first, tuple(messages), tuple(tools)))
        wanted = max(sampling.n if sampling else 1, options.n if options else 1)
        if not self._calls and self._failure is not None:
            raise RequestFailed(str(self._failure.get("kind")), str(self._failure.get("message")))
        if len(self._calls) < wanted:
            raise ReplayDiverged(
                f"{self._where}: the role asks for more completions than were recorded"
            )
        answer, self._calls = tuple(self._calls[:wanted]), self._calls[wanted:]
        return answer

    def of_agent(self, agent: str) -> Host:
        """The host itself: the record determines which agent's completion is next."""
        return self

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        if not self._outputs:
            raise ReplayDiverged(f"{self._where}: the role calls {name!r}, which was not recorded")
        recorded, recorded_arguments, output = self._outputs.pop(0)
        if (recorded, recorded_arguments) != (name, arguments):
            raise ReplayDiverged(
                f"{self._where}: the role calls {name}({arguments}), but the record has "
                f"{recorded}({recorded_arguments})"
            )
        return output

    async def approve(self, agent: str, answer: JsonObject, seconds: float) -> Approval:
        """The recorded decision about the answer."""
        digest = digest_of("answer", agent, answer)
        for approval in self._approvals:
            if approval.digest == digest:
                return approval
        raise ReplayDiverged(f"{self._where}: no decision is recorded about {agent}'s answer")

    def unused(self) -> str | None:
        """A description of recorded data that was never requested, or `None`."""
        if self._calls or self._outputs:
            return (
                f"{len(self._calls)} recorded completions and {len(self._outputs)} tool results "
                "were not requested"
            )
        return None


def recorded_tools(step: Step) -> Iterable[tuple[str, JsonObject, JsonObject]]:
    """Name, arguments and output of each tool that a step has called, in order."""
    turns = step.observation.get("turns")
    if not isinstance(turns, list):
        return
    for call, entries in zip(step.calls, turns, strict=False):
        if not isinstance(entries, list):
            continue
        for position, entry in enumerate(entries):
            name, output = _split_entry(entry)
            if name is not None and output is not None:
                yield name, _arguments(call, position, entry), output


def _arguments(call: Call, position: int, entry: JsonValue) -> JsonObject:
    """The entry's own arguments if it has some, else those of the model's tool call that it
    answers."""
    arguments = entry.get("arguments") if isinstance(entry, dict) else None
    if isinstance(arguments, dict):
        return arguments
    tool_calls = call.tool_calls[position : position + 1]
    return (tool_calls[0].arguments or {}) if tool_calls else {}


def _split_entry(entry: JsonValue) -> tuple[str | None, JsonObject | None]:
    if not isinstance(entry, dict):
        return None, None
    name, output = entry.get("tool"), entry.get("output")
    return (
        name if isinstance(name, str) else None,
        output if isinstance(output, dict) else None,
    )


@dataclass(frozen=True, slots=True)
class Replay:
    """Results of a replay."""

    steps: int
    """Number of steps that were reproduced as recorded."""
    divergences: tuple[str, ...]
    """Differences in words; empty if the run was reproduced."""

    @property
    def reproduced(self) -> bool:
        return not self.divergences


async def replay(trajectory: Trajectory) -> Replay:
    """Repeat every step of a run in the recorded order, up to the first that differs.

    Prompts that have changed since, and that the run does not contain (`Run.prompt_files`), are a
    divergence too, and so are roles and workflows of a version that does not continue the run; but
    neither stops the replay. Fields that this version does not know are not compared.
    """
    trajectory = without_unknown_fields(trajectory)
    run = trajectory.run
    divergences = (*_changed_prompts(run), *_changed_versions(run))
    run = run.model_copy(update={"prompts": {}})
    same = 0
    for position, recorded in enumerate(trajectory.steps):
        difference = await _step_difference(run, trajectory.steps[:position], recorded)
        if difference is not None:
            where = f"turn {recorded.turn}, branch {recorded.branch} ({recorded.agent})"
            return Replay(same, (*divergences, f"{where}: {difference}"))
        same += 1
    return Replay(same, (*divergences, *_end_differences(run, trajectory)))


async def recorded_prompts(
    run: Run, journal: tuple[Step, ...], recorded: Step
) -> list[tuple[Message, ...]]:
    """Prompts of each completion of a recorded step, in order: a journal contains the models'
    outputs, and the current roles rebuild their inputs. Shorter if the roles make different
    requests now."""
    host = RecordedHost(recorded)
    with suppress(AgentError, RequestFailed):
        await take_step(
            run, journal, handoff_of(recorded), host, worker="", clock=lambda: run.created
        )
    return host.prompts


async def _step_difference(run: Run, journal: tuple[Step, ...], recorded: Step) -> str | None:
    host = RecordedHost(recorded)
    try:
        frontier = frontier_of(run, journal)
        wake_recorded(frontier, (recorded,))
        expected = {
            (waiting_handoff.turn, waiting_handoff.branch): waiting_handoff
            for waiting_handoff in frontier.waiting
        }
        handoff = expected.get((recorded.turn, recorded.branch))
        if frontier.finish is not None or handoff is None:
            return "the workflow hands nothing over there"
        if not _same_handoff(handoff, recorded):
            return "the workflow's hand-over differs from the recorded one"
        step_result = await take_step(
            run, journal, handoff, host, worker=recorded.worker, clock=lambda: run.created
        )
    except ReplayDiverged as error:
        return str(error)
    except AgentError as error:
        return f"the step cannot be repeated: {error}"
    for field in ("decision", "candidates", "selected", "observation"):
        if getattr(step_result.step, field) != getattr(recorded, field):
            return f"{field} came out differently"
    return host.unused()


def wake_recorded(frontier: Frontier, steps: Iterable[Step]) -> None:
    """End the waits before these steps in the same way as recorded."""
    places = {(wait.turn, wait.branch) for wait in frontier.waits}
    for step in steps:
        if (step.turn, step.branch) in places:
            frontier.wake(handoff_of(step))


def _same_handoff(handoff: Handoff, recorded: Step) -> bool:
    """Whether two records are equal in the fields that the record's version and this one both
    know."""
    recorded_handoff = handoff_of(recorded)
    payload = recorded_handoff.payload
    if type(handoff.payload) is not type(payload):
        return False
    same_place = (handoff.role, handoff.turn, handoff.branch) == (
        recorded_handoff.role,
        recorded_handoff.turn,
        recorded_handoff.branch,
    )
    both = {*recorded.input} & {*type(payload).model_fields}
    return same_place and (
        handoff.payload.model_dump(include=both) == payload.model_dump(include=both)
    )


def _end_differences(run: Run, trajectory: Trajectory) -> tuple[str, ...]:
    finish = frontier_of(run, trajectory.steps).finish
    if finish is None:
        if trajectory.outcome in _ENDED_FROM_OUTSIDE:
            return ()
        return (f"the journal stops before the run's end, yet the outcome is {trajectory.outcome}",)
    # An answer is judged later, by a program that has the reference; the workflow judges a game.
    judged = (Outcome.SOLVED, Outcome.FAILED) if finish.outcome is Outcome.ANSWERED else ()
    same = trajectory.outcome in (finish.outcome, *judged)
    # A record does not distinguish an empty answer from a missing one.
    if not same or (finish.answer or None) != (trajectory.answer or None):
        return (
            f"the end is {finish.outcome} {finish.answer!r}, but the record has "
            f"{trajectory.outcome} {trajectory.answer!r}",
        )
    return ()


def _changed_prompts(run: Run) -> tuple[str, ...]:
    environment = run.task.environment
    current = prompt_hashes(run.workflow, run.prompt_files, environment, _options_of(run))
    return tuple(
        f"prompt {file} has changed since: {admitted[:12]} → {current.get(file, 'missing')[:12]}"
        for file, admitted in sorted(run.prompts.items())
        if current.get(file) != admitted
    )


def _changed_versions(run: Run) -> tuple[str, ...]:
    return tuple(
        f"{name} has changed since: version {began} → {here}"
        for name, (began, here) in sorted(changed_versions(run).items())
    )


def _options_of(run: Run) -> JsonObject:
    """The run's options with the selected prompt set, even if the run was admitted before the
    option existed."""
    chooses = capability(workflows.get(run.workflow), ChoosingPrompts) is not None
    return {**run.options, **({"prompts": prompt_set_of(run)} if chooses else {})}


@dataclass(frozen=True, slots=True)
class Fork:
    """A new run that starts with part of another run's journal."""

    run: Run
    journal: tuple[Step, ...]
    """The steps that are kept, which now belong to the new run."""
    handoffs: tuple[Handoff, ...]
    """Hand-overs that have to be published to continue."""
    joins: dict[str, OpenJoin]
    """Fan-outs that are not complete yet."""


def _asking(task: Task, question: str) -> Task:
    """The task with another question, which is its user's last message."""
    messages = list(task.messages)
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "user":
            messages[index] = messages[index].model_copy(update={"content": question})
            break
    return task.model_copy(update={"prompt": question, "messages": tuple(messages)})


def fork(
    trajectory: Trajectory,
    at_turn: int,
    *,
    run_id: str,
    created: float,
    seed: int | None = None,
    policies: dict[str, str] | None = None,
    tags: dict[str, str] | None = None,
    prompt_files: dict[str, str] | None = None,
    question: str | None = None,
) -> Fork:
    """Keep every step before turn `at_turn`, and repeat that turn in a new run.

    The new run gets the same time as its parent, the current prompts, and the other arguments:
    `prompt_files` replace the shipped prompts and the parent's; `question` replaces the question,
    if no kept step has answered it. Raises `ForkImpossible` if the run never got that far, or a
    kept step has read the question, and `UnknownName` for a policy or a prompt of a role that its
    workflow does not have.
    """
    parent = trajectory.run
    last = max((step.turn for step in trajectory.steps), default=0)
    if not 0 <= at_turn <= last:
        raise ForkImpossible(
            f"run {parent.id} has the turns 0 to {last}: it cannot be forked at {at_turn}"
        )
    if question is not None and at_turn > 0:
        raise ForkImpossible(
            "another question requires a fork at turn 0: a kept step has read the old question"
        )
    files = {**parent.prompt_files, **(prompt_files or {})}
    task = parent.task if question is None else _asking(parent.task, question)
    options = _options_of(parent)
    version, role_versions = versions_of(parent.workflow)
    run = Run.model_validate(
        {
            **parent.model_dump(),
            "task": task.model_dump(),
            "prompt_files": files,
            "id": run_id,
            "parent": parent.id,
            "created": created,
            "deadline": created + (parent.deadline - parent.created),
            "options": options,
            "prompts": prompt_hashes(parent.workflow, files, parent.task.environment, options),
            "role_versions": role_versions,
            "workflow_version": version,
            "seed": parent.seed if seed is None else seed,
            "policies": policies_for(
                parent.workflow,
                {**parent.policies, **(policies or {})},
                parent.task.environment,
                parent.options,
            ),
            "tags": {**parent.tags, **(tags or {})},
        }
    )
    journal = tuple(
        step.model_copy(update={"run_id": run_id})
        for step in trajectory.steps
        if step.turn < at_turn
    )
    frontier = frontier_of(run, journal)
    wake_recorded(frontier, trajectory.steps)
    if frontier.waits:
        signals = ", ".join(wait.signal for wait in frontier.waits)
        raise ForkImpossible(f"run {parent.id} never got past its wait for {signals}")
    if frontier.finish is not None or not frontier.waiting:
        raise ForkImpossible(f"run {parent.id} has nothing left to do at turn {at_turn}")
    return Fork(run, journal, frontier.waiting, frontier.joins)
