"""Both agents: K completions of one observation, each scored on a copy, the best one executed."""

from __future__ import annotations

import zlib

from agents.environments.game import PLAN, Agent, Applied, Episode
from agents.environments.puzzle_splits import content_hash
from agents.errors import MalformedModelOutput
from agents.prompts import Prompt, load_prompt, prompt_for
from agents.protocols import Host
from agents.records import Call, Candidate, Decision, JsonObject, Message, SamplingParams
from agents.roles.pair.episode import episode_of
from agents.roles.pair.settings import PairOptions, options_of
from agents.roles.protocol import StepContext, StepResult
from agents.roles.umi.step import refuse_other_payloads


class PuzzleAgent:
    """Decides `acted` {turn, observed, done, solved, reason, next, reward}, and for a plan agent
    {agrees}: whether it did what was proposed to it. `observed` is a hash of what the candidates
    answer to: steps with the same one can share a group."""

    version = 1

    def __init__(self, agent: Agent) -> None:
        self.name = agent
        self._agent: Agent = agent

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (load_prompt(self.name, "agents.roles.pair"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        refuse_other_payloads(context, self.name)
        options = options_of(context.run)
        episode = episode_of(context.run, context.journal)
        text = episode.observe(self._agent)
        calls = await self._completions(context, host, options, text)
        trials = [self._tried(episode, call) for call in calls]
        totals = [applied.rewards.total(options.scheme, options.alpha) for _, applied in trials]
        selected = totals.index(max(totals))
        after, applied = trials[selected]
        action = _action(applied)
        data: JsonObject = {
            "turn": episode.turn,
            "observed": content_hash(text)[:16],
            "done": after.done,
            "solved": after.done and after.verify().solved,
            "reason": after.verify().reason,
            "next": None if after.done else after.agent,
            "reward": totals[selected],
        }
        if self._agent == PLAN:
            data["agrees"] = self._agrees(context, action)
        candidates = tuple(
            Candidate(
                calls=(call,),
                action=_action(trial),
                reward_parts={**trial.rewards.scores(), "total": total},
            )
            for call, (_, trial), total in zip(calls, trials, totals, strict=True)
        )
        return StepResult(
            candidates=candidates,
            decision=Decision(kind="acted", data=data),
            selected=selected,
            observation={"text": applied.observation.text},
        )

    async def _completions(
        self, context: StepContext, host: Host, options: PairOptions, text: str
    ) -> tuple[Call, ...]:
        """K completions of the same prompt. Raises `RequestFailed` if there are none.

        The seed differs from turn to turn: a turn that changed nothing would otherwise draw the
        very same candidates again.
        """
        wanted = 1 if options.greedy else options.candidates
        sampling = SamplingParams(
            temperature=0.0 if options.greedy else options.temperature,
            max_tokens=options.max_tokens,
            seed=zlib.crc32(f"{context.run.seed}/{self.name}/{context.turn}".encode()),
            n=wanted,
        )
        messages = [Message(role="user", content=text)]
        if options.instructions:
            prompt = prompt_for(context.run, self.prompts[0])
            messages.insert(0, Message(role="system", content=prompt))
        calls = await host.complete(messages, sampling=sampling)
        if len(calls) != wanted:
            raise MalformedModelOutput(
                f"{wanted} completions were asked for, {len(calls)} came back"
            )
        return calls

    def _tried(self, episode: Episode, call: Call) -> tuple[Episode, Applied]:
        """A copy of the episode on which the completion was applied, and what it earned."""
        trial = episode.copy()
        return trial, trial.apply(self._agent, call.text)

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
