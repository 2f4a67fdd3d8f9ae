"""Both agents: K completions of one observation, each scored on a copy, the best one executed."""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.environments.game import (
    PLAN,
    Agent,
    Applied,
    Episode,
    ProgrammedEpisode,
    Taken,
    taken_by,
)
from loopline.agents.environments.puzzle_splits import content_hash
from loopline.agents.environments.tool_program import ProgramRun
from loopline.agents.errors import environment_code
from loopline.agents.judging import ProgramRuns, RunPrograms, ask_judge
from loopline.agents.prompts import Prompt, load_prompt
from loopline.agents.protocols import Host
from loopline.agents.records import Call, Decision, JsonObject, json_object
from loopline.agents.roles.pair.candidates import Scored, choose
from loopline.agents.roles.pair.episode import episode_of
from loopline.agents.roles.pair.settings import options_of
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.roles.umi.step import refuse_other_payloads

Trial = tuple[Episode, Applied]
"""A copy of the episode on which a completion was applied, and what came of it."""


class PuzzleAgent:
    """Decides `acted` {turn, observed, done, solved, reason, next, reward}, and for a plan agent
    {agrees}: whether it did what was proposed to it. `observed` is a hash of what the candidates
    answer to: steps with the same one can share a group. A tool agent that writes programs also
    says {judged}: what came of the executed one, so that the run can be played again."""

    version = 1

    def __init__(self, agent: Agent) -> None:
        self.name = agent
        self._agent: Agent = agent

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """For calls, and for programs."""
        names = (self.name, f"{self.name}_python")
        return tuple(load_prompt(name, "loopline.agents.roles.pair") for name in names)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        refuse_other_payloads(context, self.name)
        options = options_of(context.run)
        episode = episode_of(context.run, context.journal)
        environment = context.run.task.environment
        with environment_code(environment, f"as {self.name} observed"):
            text = episode.observe(self._agent)
            by_program = isinstance(episode, ProgrammedEpisode) and episode.by_program
        of_calls, of_programs = self.prompts
        prompt = of_programs if by_program else of_calls
        entries: list[JsonObject] = []

        async def tried(calls: Sequence[Call]) -> list[Scored[Trial]]:
            runs = await self._run(context, host, episode, calls, entries)
            return [
                self._tried(context, episode, call, ran)
                for call, ran in zip(calls, runs, strict=True)
            ]

        choice = await choose(context, host, prompt, text, options, tried)
        after, applied = choice.found
        with environment_code(environment, f"as what {self.name} did was verified"):
            verdict, done = after.verify(), after.done
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
        if self._agent == PLAN:
            data["agrees"] = self._agrees(context, _action(applied))
        ran = after.taken[-1].ran
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
        episode: Episode,
        calls: Sequence[Call],
        entries: list[JsonObject],
    ) -> list[ProgramRun | None]:
        """What came of each completion's program, where it has one; the judge is asked once for all
        of them, and `entries` gets what it was asked. Raises `EnvironmentFault`."""
        with environment_code(context.run.task.environment, f"on an action of {self.name}"):
            if not isinstance(episode, ProgrammedEpisode):
                return [None] * len(calls)
            wanted = [episode.to_run(self._agent, call.said) for call in calls]
        first = next((one for one in wanted if one is not None), None)
        if first is None:
            return [None] * len(calls)
        # All candidates answer to one observation: input and time are the same.
        programs = tuple(dict.fromkeys(one.program for one in wanted if one is not None))
        asked = RunPrograms(programs=programs, stdin=first.stdin, seconds=first.seconds)
        reply, entry = await ask_judge(host, asked, ProgramRuns)
        entries.append(entry)
        runs = dict(zip(programs, reply.runs, strict=True))
        return [None if one is None else runs[one.program] for one in wanted]

    def _tried(
        self, context: StepContext, episode: Episode, call: Call, ran: ProgramRun | None
    ) -> Scored[Trial]:
        """Raises `EnvironmentFault`."""
        environment = context.run.task.environment
        with environment_code(environment, f"as the episode was copied for {self.name}"):
            trial = episode.copy()
        with environment_code(environment, f"on an action of {self.name}"):
            applied = taken_by(trial, Taken(self._agent, call.said, ran))
        return Scored(call, _action(applied), applied.rewards, (trial, applied))

    def _agrees(self, context: StepContext, action: JsonObject) -> bool | None:
        """`None` where nothing was proposed: the agent is alone, or the calls were refused, or they
        only looked."""
        before = next((step for step in context.journal if step.turn == context.turn - 1), None)
        if before is None or before.agent == self.name:
            return None
        proposed = before.candidates[before.selected].action.get("did")
        if not isinstance(proposed, dict) or not any(proposed.values()):
            return None
        return action.get("did") == proposed


def _action(applied: Applied) -> JsonObject:
    """`did`: the action as the environment read it; `refused`: the reasons, by name."""
    observation = applied.observation
    return {"did": observation.action, "refused": [one.reason for one in observation.refusals]}
