"""`pair`: a team solves a task turn by turn (PettingLLMs, AT-GRPO). The task's environment defines
the team's members, and whose turn is next.

    puzzles   tool_agent ──▶ plan_agent ──▶ tool_agent … solved | out of turns
    code      coder ──▶ tester ──▶ coder …               program and test agree | out of turns
    math      reasoner ──▶ tool_user ──▶ reasoner …      both answers agree | out of turns

Each agent draws K completions from one observation. Each is scored: a puzzle's on a copy of the
episode (a tool agent's program after the judge ran it), the others by the judge. The best one is
executed before the next agent observes (Algorithm 1 of AT-GRPO). All K stay in the journal with
their reward parts: a group of `train grpo` is one step. If a task's instance names one agent, only
that agent plays it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from loopline.agents.environments import math_team
from loopline.agents.environments.code import team as code_team
from loopline.agents.environments.environment import AnyEnvironment
from loopline.agents.environments.game import Agent, ProgrammedEpisode
from loopline.agents.environments.registry import find
from loopline.agents.environments.team_episode import SPECS
from loopline.agents.errors import UnknownName, environment_code
from loopline.agents.payloads import PLAYER, QuestionPayload, TurnPayload
from loopline.agents.prompts import Prompt
from loopline.agents.records import JsonObject, Outcome, Run, Step, Trajectory
from loopline.agents.roles.pair.code_team import code_instance
from loopline.agents.roles.pair.episode import environment_of, episode_of, text_of
from loopline.agents.roles.pair.math_team import math_instance
from loopline.agents.roles.pair.settings import PairOptions
from loopline.agents.workflows.routing import (
    Continue,
    Finish,
    Handoff,
    Routing,
    no_route_error,
    parse_options,
)


class PairWorkflow:
    """Ends `solved`, or `failed` with the verifier's reason. A puzzle's answer is the last action's
    text; its verifier is the environment itself, which uses only the instance (a word problem's
    instance contains the solution, which agents don't see). The other teams hand in a program or an
    answer, which the judge has compared with references that only it knows."""

    name = "pair"
    roles = (PLAYER, *code_team.MEMBERS, *math_team.MEMBERS)
    default_policies: Mapping[str, str] = {
        **{spec.name: spec.default_policy for spec in SPECS},
        "coder": "pair/coder",
        "tester": "pair/tester",
        "reasoner": "pair/reasoner",
        "tool_user": "pair/tool_user",
    }

    def players(self, environment: str) -> Mapping[str, str]:
        """Agents of an environment: see `loopline.agents.workflows.routing.Playing`."""
        definition = _find(environment)
        return {} if definition is None else {a.name: a.default_policy for a in definition.agents}

    def player_prompts(self, environment: str) -> tuple[Prompt, ...]:
        """Prompts of an environment's agents: see `loopline.agents.workflows.routing.Playing`."""
        definition = _find(environment)
        return () if definition is None else definition.prompts

    @property
    def honoured(self) -> frozenset[str]:
        """Caller's options that apply: only those for one agent, and the seed. Otherwise the
        workflow's own options determine how candidates are drawn."""
        return frozenset({"seed", "agents"})

    def answering(self, options: JsonObject) -> tuple[str, ...]:
        """Each candidate has its own seed."""
        return ()

    def check_options(self, options: JsonObject) -> JsonObject:
        return parse_options(self.name, PairOptions, options).model_dump(mode="json")

    def first(self, run: Run) -> tuple[Handoff, ...]:
        """The first hand-over. Raises `InvalidTask` or `EnvironmentFault`: a run whose task can't
        be played is refused."""
        return (_handoff(run, team_of(run)[0], 0),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        data = step.decision.data
        if step.decision.kind != "acted" or not _plays(run, step.agent):
            raise no_route_error(self.name, step)
        if data.get("done") is True:
            submitted = data.get("answer")
            answer = submitted if isinstance(submitted, str) else text_of(step)
            if data.get("solved") is True:
                return Finish(Outcome.SOLVED, answer=answer)
            return Finish(Outcome.FAILED, answer=answer, reason=str(data.get("reason")))
        following = data.get("next")
        if not isinstance(following, str) or not _plays(run, following):
            raise no_route_error(self.name, step)
        return Continue((_handoff(run, following, step.turn + 1),))

    def rewarded(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with its rewards, by `rewarded` below."""
        return rewarded(trajectory)


_JUDGED = {code_team.ENVIRONMENT: code_team.MEMBERS, math_team.ENVIRONMENT: math_team.MEMBERS}
"""Members of teams that are not part of an environment; each of them is a role."""


def _find(environment: str) -> AnyEnvironment | None:
    """The environment with that name; None if `first` will refuse the task, or another team plays
    it. Raises `PluginError`."""
    try:
        return find(environment)
    except UnknownName:
        return None


def _handoff(run: Run, agent: Agent, turn: int) -> Handoff:
    if run.task.environment in _JUDGED:
        return Handoff(agent, turn, QuestionPayload())
    return Handoff(PLAYER, turn, TurnPayload(agent=agent))


def _plays(run: Run, agent: Agent) -> bool:
    members = _JUDGED.get(run.task.environment)
    if members is None:
        members = tuple(spec.name for spec in environment_of(run).agents)
    return agent in members


def needs_judge(run: Run) -> bool:
    """Whether a run needs a judge: for a team of code or mathematics, or one whose agent writes
    programs."""
    if run.task.environment in _JUDGED:
        return True
    episode = episode_of(run)
    writers = {spec.name for spec in environment_of(run).agents if spec.writes_programs}
    by_program = isinstance(episode, ProgrammedEpisode) and episode.by_program
    return by_program and not writers.isdisjoint(episode.agents)


def team_of(run: Run) -> tuple[str, ...]:
    """Agents that play a run's task, in the order of a turn. Raises `InvalidTask`,
    `EnvironmentFault`."""
    match run.task.environment:
        case code_team.ENVIRONMENT:
            return code_instance(run).setting.team
        case math_team.ENVIRONMENT:
            return math_instance(run).setting.team
        case environment:
            episode = episode_of(run)
            with environment_code(environment, "while its team was requested"):
                return episode.agents


def rewarded(trajectory: Trajectory) -> Trajectory:
    """The trajectory with its rewards: the team's is 1 if the episode ends solved, else 0; an
    agent's is the mean over its executed actions (`total` of their reward parts). A sum would
    reward wandering."""
    earned: dict[str, list[float]] = {}
    for step in trajectory.steps:
        # A step that failed has no candidates.
        if step.decision.kind == "acted":
            total = step.candidates[step.selected].reward_parts["total"]
            earned.setdefault(step.agent, []).append(total)
    rewards = {
        agent: math.fsum(agent_rewards) / len(agent_rewards)
        for agent, agent_rewards in earned.items()
    }
    solved = float(trajectory.outcome is Outcome.SOLVED)
    return trajectory.model_copy(update={"team_reward": solved, "agent_rewards": rewards})


def agreement_rate(*trajectories: Trajectory) -> float | None:
    """Share of proposals that agents followed exactly; an agent that always agrees adds nothing.
    `None` without any proposal."""
    agreements = [
        agrees
        for trajectory in trajectories
        for step in trajectory.steps
        if isinstance(agrees := step.decision.data.get("agrees"), bool)
    ]
    return sum(agreements) / len(agreements) if agreements else None
