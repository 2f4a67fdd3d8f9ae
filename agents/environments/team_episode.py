"""An episode of a puzzle for two agents: the tool agent proposes, the plan agent acts.

A turn is one action of each agent. The tool agent's calls run on a scratch copy (`tool_language`)
and end in a proposal, which is scored as if it were carried out. Then the plan agent sees the
calls, their answers and the proposal of the same turn, and its answer changes the real state. With
the setting `python`, the tool agent writes a program instead of calls (`tool_program`). The episode
ends at the end of a turn: when the puzzle is over (usually solved), or after the last turn.

A team may also be a single agent. A single tool agent's proposal is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

from pydantic import Field, field_validator

from loopline.agents.environments.environment import AgentSpec
from loopline.agents.environments.game import (
    ActionRecord,
    Agent,
    Observation,
    OutOfTurn,
    ProgramNotRun,
    Refusal,
    Rewards,
    Transition,
    Verdict,
)
from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.tool_language import Program, ToolFunction, manual, run_program
from loopline.agents.environments.tool_program import (
    ProgramRun,
    ToRun,
    describe_run,
    extract_program,
    program_manual,
)
from loopline.agents.prompts import load_prompt
from loopline.agents.records import JsonObject, Record

TOOL: Agent = "tool_agent"
PLAN: Agent = "plan_agent"
AGENTS: tuple[Agent, ...] = (TOOL, PLAN)
"""Agents in the order of a turn."""
_PROMPTS = "loopline.agents.environments"
SPECS = (
    AgentSpec(
        TOOL,
        load_prompt(TOOL, _PROMPTS),
        policy="pair/tool",
        program_prompt=load_prompt(f"{TOOL}_python", _PROMPTS),
        writes_programs=True,
        proposes=True,
    ),
    AgentSpec(
        PLAN,
        load_prompt(PLAN, _PROMPTS),
        policy="pair/plan",
        program_prompt=load_prompt(f"{PLAN}_python", _PROMPTS),
    ),
)
"""The two agents, in the form of `Environment.agents`."""
TOGETHER = "a tool agent proposes, a plan agent acts"


class Setting(Record):
    """How a puzzle is played; part of its instance, so that a run can be rebuilt exactly."""

    turns: int = Field(default=4, ge=1, le=400)
    """Maximum turns of an episode. The paper has 4 (5 in its code)."""
    team: tuple[Agent, ...] = Field(default=AGENTS, min_length=1, max_length=2)
    """Agents that act in a turn, in order: both, or one. The last one acts on the real state."""
    calls: int = Field(default=8, ge=1, le=64)
    """Maximum number of calls in one tool program."""
    search: int = Field(default=0, ge=0, le=400)
    """Reach of the search tool (in moves, pushes or digits); 0 means no such tool. A team is needed
    only beyond this reach: with 8, a fixed list of calls in every turn solves most small puzzles
    (the player "blind tool agent" of `bench puzzles`)."""
    python: bool = False
    """Whether the tool agent writes a Python program instead of calls; a judge runs it."""
    program_seconds: float = Field(default=20.0, gt=0, le=600)
    """Limit of CPU seconds for one program."""
    brief: bool = False
    """Whether observations leave out their constant parts (rules, calls, answer form): for small
    models that are trained on exactly this puzzle."""

    @field_validator("team")
    @classmethod
    def _check_team(cls, team: tuple[Agent, ...]) -> tuple[Agent, ...]:
        if team not in (AGENTS, *((agent,) for agent in AGENTS)):
            raise ValueError("a team is tool_agent, then plan_agent; or only one of them")
        return team


class Playable(Protocol):
    """An instance: a record that contains its setting."""

    @property
    def setting(self) -> Setting: ...

    def model_copy(
        self, *, update: Mapping[str, Any] | None = None, deep: bool = False
    ) -> Self: ...


P = TypeVar("P", bound=Playable)


def played_by(agent: Agent, instance: P, **changes: object) -> P:
    """Return the instance for a single agent, with these changes of its setting."""
    setting = instance.setting.model_copy(update={"team": (agent,), **changes})
    return instance.model_copy(update={"setting": setting})


S = TypeVar("S")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Step(Generic[S, A]):
    """Actual or hypothetical effect of an action."""

    before: S
    action: A | None
    """The parsed action; `None` if it was unreadable."""
    after: S
    """State after the action; equal to `before` if no part was legal."""
    legal: int = 0
    illegal: int = 0
    refusals: tuple[Refusal, ...] = ()
    worked: float = 0.0
    """Share of a tool agent's calls that worked; for a program, whether it ran well."""


class Puzzle(Protocol[S, A]):
    """The rules of one puzzle instance. States and actions are immutable."""

    @property
    def setting(self) -> Setting: ...

    @property
    def functions(self) -> Mapping[str, ToolFunction[tuple[S, A]]]:
        """The tool language; its scratch consists of a state and the action that leads there."""
        ...

    def start(self) -> S: ...

    def nothing(self) -> A:
        """Return the empty action, with which a scratch starts."""
        ...

    def read(self, text: str, proposed: A | None) -> A | Refusal:
        """Parse a plan agent's answer, which may refer to this turn's proposal (None if there was
        none), into a self-contained action."""
        ...

    def perform(self, state: S, action: A) -> Step[S, A]:
        """Carry out the legal part of an action; the illegal part changes nothing."""
        ...

    def solved(self, state: S) -> bool: ...

    def over(self, state: S) -> bool:
        """Whether no action can change the state any more: solved, or finally answered."""
        ...

    def rewards(self, agent: Agent, step: Step[S, A], *, last: bool) -> Rewards:
        """Return the rewards of an action. `last`: whether it is the last action on the real
        state."""
        ...

    def about(self) -> str:
        """Explain the puzzle and its drawing."""
        ...

    def drawing(self, state: S) -> str:
        """Draw the state as both agents see it."""
        ...

    def answer_form(self) -> str:
        """Describe the form of a plan agent's answer, without a legal answer as an example."""
        ...

    def show(self, action: A) -> str:
        """Write an action in the form of an answer."""
        ...

    def as_json(self, action: A) -> JsonObject: ...

    def items(self) -> Sequence[str]:
        """Return the items that a plan agent's answers can consist of, for any instance: a blind
        player (`loopline.agents.environments.blind`) chooses only among them."""
        ...

    @property
    def largest(self) -> int:
        """The largest useful number in a call: a row number, or a digit."""
        ...

    def oracle(self, state: S) -> A | None:
        """Return an action that solves the puzzle from an unsolved state; `None` if no action does.
        May raise its own error if this can't be determined."""
        ...

    def check(self, actions: tuple[A, ...]) -> Verdict:
        """Decide whether these actions solve the puzzle, using only its instance."""
        ...


@dataclass(frozen=True, slots=True)
class Proposal(Generic[A]):
    """The tool agent's action in this turn."""

    lines: tuple[str, ...]
    action: A | None


@dataclass
class TeamEpisode(Generic[S, A]):
    """Episode of a puzzle: see `loopline.agents.environments.game.Episode`. All fields are
    immutable values, so a copy is cheap and shares nothing that can change."""

    puzzle: Puzzle[S, A]
    state: S
    actions: tuple[ActionRecord, ...] = ()
    carried_out: tuple[A, ...] = ()
    """Parsed actions on the real state."""
    turn: int = 0
    proposal: Proposal[A] | None = None
    last: str = ""
    """Result of the last action on the real state."""
    done: bool = False

    @property
    def agents(self) -> tuple[Agent, ...]:
        return self.puzzle.setting.team

    @property
    def agent(self) -> Agent:
        return self.agents[len(self.actions) % len(self.agents)]

    def copy(self) -> Self:
        return replace(self)

    def verify(self) -> Verdict:
        return self.puzzle.check(self.carried_out)

    def demonstration(self) -> str | None:
        """Return the current answer of a plan agent that knows the solution, for supervised
        training; `None` if the puzzle can no longer be solved."""
        action = self.puzzle.oracle(self.state)
        return None if action is None else f"{MARK} {self.puzzle.show(action)}"

    def observe(self, agent: Agent) -> str:
        puzzle, brief = self.puzzle, self.puzzle.setting.brief
        lines = [] if brief else [puzzle.about()]
        lines += [puzzle.drawing(self.state), f"Turn {self.turn + 1} of {puzzle.setting.turns}."]
        if self.last:
            lines.append(f"Last turn: {self.last}")
        if agent == PLAN and self.proposal is not None:
            wrote = "program" if self.by_program else "calls"
            lines += [f"The tool agent's {wrote}:", *self.proposal.lines, self._proposed_action()]
        if brief:
            return "\n".join(lines)
        if agent == PLAN:
            lines.append(puzzle.answer_form())
        elif self.by_program:
            lines += [program_manual(puzzle.setting.program_seconds), puzzle.answer_form()]
        else:
            lines += ["Calls:", manual(puzzle.functions), "End with #### [call, call, ...]"]
        return "\n".join(lines)

    @property
    def by_program(self) -> bool:
        return self.puzzle.setting.python

    def to_run(self, agent: Agent, text: str) -> ToRun | None:
        program = self._program(agent, text)
        if not program:
            return None
        return ToRun(program, self.observe(agent), self.puzzle.setting.program_seconds)

    def _program(self, agent: Agent, text: str) -> str:
        return extract_program(text) if agent == TOOL and self.by_program else ""

    def apply(self, agent: Agent, text: str, ran: ProgramRun | None = None) -> Transition:
        if self.done:
            raise OutOfTurn(f"the episode ended after turn {self.turn}: {agent} can't act any more")
        if agent != self.agent:
            raise OutOfTurn(f"it is {self.agent}'s turn, not {agent}'s")
        acts = agent == self.agents[-1]
        program = self._program(agent, text)
        if agent == PLAN:
            step, message = self._answer(text)
        elif self.by_program:
            step, message = self._propose_by_program(program, ran)
        else:
            step, message = self._propose(text)
        final = acts and self.turn + 1 >= self.puzzle.setting.turns
        rewards = self.puzzle.rewards(agent, step, last=final)
        self.actions = (*self.actions, ActionRecord(agent, text, ran if program else None))
        if acts:
            self._carry_out(step)
        action = {} if step.action is None else self.puzzle.as_json(step.action)
        return Transition(rewards, Observation(action, step.refusals, message), self.done)

    def _answer(self, text: str) -> tuple[Step[S, A], str]:
        proposed = None if self.proposal is None else self.proposal.action
        action = self.puzzle.read(text, proposed)
        if isinstance(action, Refusal):
            step: Step[S, A] = Step(self.state, None, self.state, refusals=(action,))
        else:
            step = self.puzzle.perform(self.state, action)
        return step, outcome(step)

    def _propose(self, text: str) -> tuple[Step[S, A], str]:
        scratch = (self.state, self.puzzle.nothing())
        ran = run_program(text, self.puzzle.functions, scratch, self.puzzle.setting.calls)
        if isinstance(ran, Refusal):
            self.proposal = Proposal((f"refused: {ran}",), None)
            return Step(self.state, None, self.state, refusals=(ran,)), f"refused: {ran}"
        lines = tuple(f"{output.call}: {output.text}" for output in ran.outputs)
        step = self._proposed_step(ran)
        self.proposal = Proposal(lines, step.action)
        return step, "\n".join(lines)

    def _propose_by_program(self, program: str, ran: ProgramRun | None) -> tuple[Step[S, A], str]:
        """Process a program's proposal. A program that failed, or whose last line is not an answer,
        proposes nothing."""
        if not program:
            refused = Refusal("no_program")
            self.proposal = Proposal((f"refused: {refused}",), None)
            return Step(self.state, None, self.state, refusals=(refused,)), f"refused: {refused}"
        if ran is None:
            raise ProgramNotRun(
                "a program is proposed that nobody ran: puzzles with the setting python are played "
                "by the workflow pair, with a judge"
            )
        lines = describe_run(program, ran)
        read = (
            Refusal("program_failed", ran.trouble)
            if ran.trouble
            else self.puzzle.read(ran.last, None)
        )
        if isinstance(read, Refusal):
            nothing = self.puzzle.nothing()
            step: Step[S, A] = Step(self.state, nothing, self.state, refusals=(read,))
            lines = lines if ran.trouble else (*lines, f"Its last line is no answer: {read}")
        else:
            step = self.puzzle.perform(self.state, read)
        self.proposal = Proposal(lines, step.action)
        return replace(step, worked=float(not ran.trouble)), "\n".join(lines)

    def _proposed_step(self, ran: Program[tuple[S, A]]) -> Step[S, A]:
        action = ran.scratch[1]
        if action == self.puzzle.nothing():
            step: Step[S, A] = Step(self.state, action, self.state)
        else:
            step = self.puzzle.perform(self.state, action)
        return replace(step, worked=ran.worked)

    def _proposed_action(self) -> str:
        action = None if self.proposal is None else self.proposal.action
        if action is None or action == self.puzzle.nothing():
            return "It proposes nothing"
        return f"It proposes {self.puzzle.show(action)}"

    def _carry_out(self, step: Step[S, A]) -> None:
        self.state = step.after
        if step.action is not None:
            self.carried_out = (*self.carried_out, step.action)
        self.turn += 1
        self.proposal = None
        self.last = outcome(step)
        self.done = self.puzzle.over(self.state) or self.turn >= self.puzzle.setting.turns


def outcome(step: Step[Any, Any]) -> str:
    """Describe the result of an action in one line."""
    if step.action is None:
        return f"refused: {step.refusals[0]}"
    counted = f"{step.legal} carried out"
    if not step.refusals:
        return counted
    names = sorted({refusal.reason for refusal in step.refusals})
    return f"{counted}, {step.illegal} refused ({', '.join(names)})"
