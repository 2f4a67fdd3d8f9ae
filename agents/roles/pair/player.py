"""An agent of an environment: K completions of one observation, each scored on a copy, the best
one executed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from loopline.agents.environments.environment import AnyEnvironment
from loopline.agents.environments.game import (
    ActionRecord,
    Agent,
    Episode,
    ProgrammedEpisode,
    Transition,
    replay_action,
)
from loopline.agents.environments.puzzle_splits import content_hash
from loopline.agents.environments.team_episode import SPECS
from loopline.agents.environments.tool_program import ProgramRun
from loopline.agents.errors import UnexpectedPayload, environment_code
from loopline.agents.judging import ProgramRuns, RunPrograms, ask_judge
from loopline.agents.payloads import PLAYER, TurnPayload
from loopline.agents.prompts import Prompt
from loopline.agents.protocols import Host
from loopline.agents.records import Call, Decision, JsonObject
from loopline.agents.roles.pair.candidates import ScoredCandidate, choose_candidate
from loopline.agents.roles.pair.episode import environment_of, episode_of
from loopline.agents.roles.pair.settings import options_of
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.tools.json_arguments import json_object

P = ParamSpec("P")
T = TypeVar("T")

Trial = tuple[Episode, Transition]
"""A copy of the episode to which a completion was applied, and the result."""


class PlayerRole:
    """Takes the turns of all agents of all environments; the hand-over names the agent.

    Decides `acted` {turn, observed, done, solved, reason, next, reward}. `observed` is a hash of
    the candidates' input: steps with the same hash can share a group. If agents make proposals, an
    acting agent adds {agrees}: whether it followed the proposal. An agent that writes programs adds
    {judged}: the result of the executed program, so that the run can be replayed.
    """

    name = PLAYER
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """Prompts of the two agents that this package's environments share, for calls and for
        programs. Other agents' prompts belong to their environments
        (`loopline.agents.workflows`)."""
        return tuple(
            prompt
            for spec in SPECS
            for prompt in (spec.prompt, spec.program_prompt)
            if isinstance(prompt, Prompt)
        )

    async def step(self, context: StepContext, host: Host) -> StepResult:
        payload = context.payload
        if not isinstance(payload, TurnPayload):
            raise UnexpectedPayload(f"role {self.name!r} takes turns, not {payload.type_name!r}")
        agent, options = payload.agent, options_of(context.run)
        environment = environment_of(context.run)
        episode = await _call_episode(environment, episode_of, context.run, context.journal)
        spec = environment.agent(agent)
        with environment_code(environment.key, f"while {agent} observed"):
            text = await _call_episode(environment, episode.observe, agent)
            by_program = isinstance(episode, ProgrammedEpisode) and episode.by_program
        prompt = environment.prompt(spec, by_program=by_program)
        entries: list[JsonObject] = []

        async def tried(calls: Sequence[Call]) -> list[ScoredCandidate[Trial]]:
            runs = await self._run(context, host, agent, episode, calls, entries)
            return [
                await _call_episode(
                    environment, self._try_candidate, context, agent, episode, call, ran
                )
                for call, ran in zip(calls, runs, strict=True)
            ]

        choice = await choose_candidate(context, host, prompt, text, options, tried)
        after, applied = choice.facts
        with environment_code(environment.key, f"while the action of {agent} was verified"):
            verdict = await _call_episode(environment, after.verify)
            done = after.done
            following = None if done else after.agent
        data: JsonObject = {
            "turn": episode.turn,
            "observed": content_hash(text)[:16],
            "done": done,
            "solved": done and verdict.solved,
            "reason": verdict.reason,
            "next": following,
            "reward": choice.reward,
        }
        if not spec.proposes and any(other.proposes for other in environment.agents):
            data["agrees"] = _agrees(context, environment, _action(applied))
        ran = after.actions[-1].ran
        if ran is not None:
            data["judged"] = json_object(ran)
        observation: JsonObject = {"text": applied.observation.text}
        if entries:
            observation["turns"] = [list(entries)]
        return StepResult(
            candidates=choice.candidates,
            decision=Decision(kind="acted", data=data),
            selected=choice.selected,
            observation=observation,
        )

    async def _run(
        self,
        context: StepContext,
        host: Host,
        agent: Agent,
        episode: Episode,
        calls: Sequence[Call],
        entries: list[JsonObject],
    ) -> list[ProgramRun | None]:
        """Result of each completion's program, if it has one; the judge is asked once for all of
        them, and the request is added to `entries`. Raises `EnvironmentFault`."""
        with environment_code(context.run.task.environment, f"on an action of {agent}"):
            if not isinstance(episode, ProgrammedEpisode):
                return [None] * len(calls)
            wanted = [episode.to_run(agent, call.said) for call in calls]
        first = next(
            (program_request for program_request in wanted if program_request is not None), None
        )
        if first is None:
            return [None] * len(calls)
        # All candidates answer the same observation: input and time are the same.
        programs = tuple(
            dict.fromkeys(
                program_request.program for program_request in wanted if program_request is not None
            )
        )
        batch_request = RunPrograms(programs=programs, stdin=first.stdin, seconds=first.seconds)
        reply, entry = await ask_judge(host, batch_request, ProgramRuns)
        entries.append(entry)
        runs = dict(zip(programs, reply.runs, strict=True))
        return [
            None if program_request is None else runs[program_request.program]
            for program_request in wanted
        ]

    def _try_candidate(
        self,
        context: StepContext,
        agent: Agent,
        episode: Episode,
        call: Call,
        ran: ProgramRun | None,
    ) -> ScoredCandidate[Trial]:
        """Apply a completion to a copy of the episode. Raises `EnvironmentFault`."""
        environment = context.run.task.environment
        with environment_code(environment, f"while the episode was copied for {agent}"):
            trial = episode.copy()
        with environment_code(environment, f"on an action of {agent}"):
            applied = replay_action(trial, ActionRecord(agent, call.said, ran))
        return ScoredCandidate(call, _action(applied), applied.rewards, (trial, applied))


async def _call_episode(
    environment: AnyEnvironment, function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs
) -> T:
    """Call a part of an episode, in a thread if it may wait for a server."""
    if environment.outside:
        return await asyncio.to_thread(function, *arguments, **keywords)
    return function(*arguments, **keywords)


def _agrees(context: StepContext, environment: AnyEnvironment, action: JsonObject) -> bool | None:
    """Whether an action follows the proposal. `None` if there was none: no proposing agent acted
    just before, or its calls were refused or only inspected the state."""
    before = next((step for step in context.journal if step.turn == context.turn - 1), None)
    if before is None or not environment.agent(before.agent).proposes:
        return None
    proposed = before.candidates[before.selected].action.get("did")
    if not isinstance(proposed, dict) or not any(proposed.values()):
        return None
    return action.get("did") == proposed


def _action(applied: Transition) -> JsonObject:
    """The action as JSON. `did`: the action as the environment interpreted it; `refused`: the
    reasons, by name."""
    observation = applied.observation
    return {
        "did": observation.action,
        "refused": [refusal.reason for refusal in observation.refusals],
    }
