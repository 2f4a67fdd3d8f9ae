"""Assembles conversations from single calls.

A gateway records each call of a client as its own run, with the tag `session`. If a call's prompt
starts with the ids that an earlier call of the session read and wrote, it continues that call's
conversation: both are one sample, and the earlier part is not tokenized or learned a second time.

    call 1    prompt ids | output ids
    call 2    prompt ids | output ids | a tool's result | output ids
              observed     learned      observed          learned

A call that extends no other starts a conversation. If several calls extend the same one, or read
the same prompt, the first continues it; each other one starts a sibling, in which the common ids
are observed. So every call is learned from exactly once.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loopline.agents.records import Call, Candidate, PolicyRef, Step, Task, Trajectory
from loopline.agents.rewards import Reward
from loopline.workers.store.rewards import (
    Feedback,
    add,
    mean,
    own_targets,
    session_targets,
    targets_of,
)

CHAT = "chat"
"""Workflow of a run that is one call of a client."""
AGENT_TAG = "agent"
GROUP_TAGS = "group", "task"
"""Tags that show which sessions are about the same task; the first one that is set counts."""


@dataclass(frozen=True)
class ChatCall:
    """One call, and the run that recorded it."""

    trajectory: Trajectory
    step: Step
    number: int
    """Number among the calls of its step: a client may request several answers."""
    call: Call

    @property
    def session(self) -> str:
        """Session that the call belongs to: a run without one counts as its own session."""
        return targets_of(self.trajectory.run)[-1]

    @property
    def agent(self) -> str:
        return self.trajectory.run.tags.get(AGENT_TAG) or self.step.agent

    @property
    def place(self) -> tuple[float, str, int, int]:
        """Sort key in time, different for any two calls."""
        return self.step.timings.started, self.trajectory.run.id, self.step.turn, self.number

    @property
    def ids(self) -> tuple[int, ...]:
        """Token ids that the call read and wrote."""
        return (*self.call.prompt_ids, *self.call.output_ids)


@dataclass(frozen=True)
class Conversation:
    """A sequence of calls, each of which extends the previous one."""

    calls: tuple[ChatCall, ...]
    part: int
    """Number among its agent's conversations of the session, in the order of their start."""

    @property
    def first(self) -> ChatCall:
        return self.calls[0]

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of the runs that it consists of."""
        return tuple(dict.fromkeys(call.trajectory.run.id for call in self.calls))

    @property
    def ids(self) -> tuple[int, ...]:
        """Token ids that were read and written."""
        return self.calls[-1].ids

    @property
    def learned(self) -> tuple[bool, ...]:
        """Whether a call of this conversation wrote the id, one flag for each id."""
        mask: list[bool] = []
        for call in self.calls:
            mask += [False] * (len(call.call.prompt_ids) - len(mask))
            mask += [True] * len(call.call.output_ids)
        return tuple(mask)

    def feedback(self, by_target: Mapping[str, Sequence[Reward]]) -> Feedback:
        """The feedback for the conversation, by run and session: the session's, and the mean over
        its runs that have one."""
        agent, run = self.first.agent, self.first.trajectory.run
        of_session = Feedback.of(
            reward for target in session_targets(run) for reward in by_target.get(target, ())
        )
        team: list[float | None] = []
        agent_values: list[float | None] = []
        for call in {call.trajectory.run.id: call for call in self.calls}.values():
            of_run = Feedback.of(
                reward
                for target in own_targets(call.trajectory.run)
                for reward in by_target.get(target, ())
            )
            team.append(of_run.team)
            turn = of_run.of_turn(agent, call.step.turn)
            agent_values.append(add(of_run.agents.get(agent), turn))
        earned = add(of_session.agents.get(agent), mean(agent_values))
        return Feedback(add(of_session.team, mean(team)), {} if earned is None else {agent: earned})

    def trajectory(self) -> Trajectory:
        """The conversation as one run of one step, under the id of its first run. Its task is
        common to the conversations that it is compared with: the tag `group` or `task` and the
        number of its part, otherwise the messages at its start."""
        first, last = self.first, self.calls[-1]
        run = first.trajectory.run
        tag = next((run.tags[name] for name in GROUP_TAGS if run.tags.get(name)), None)
        if tag is None:
            task = Task(prompt=run.task.prompt, messages=run.task.messages)
        else:
            task = Task(instance={"group": tag, "part": self.part}, prompt=tag)
        step = first.step.model_copy(
            update={
                "turn": 0,
                "branch": 0,
                "agent": first.agent,
                "candidates": (Candidate(calls=tuple(call.call for call in self.calls)),),
                "selected": 0,
                "decision": last.step.decision,
                "timings": first.step.timings.model_copy(update={"ended": last.step.timings.ended}),
            }
        )
        return last.trajectory.model_copy(
            update={
                "run": run.model_copy(update={"task": task, "options": {}}),
                "steps": (step,),
                "team_reward": None,
                "agent_rewards": {},
            }
        )


def chat_calls(trajectory: Trajectory) -> Iterator[ChatCall]:
    """The calls of a run."""
    for step in trajectory.steps:
        for number, call in enumerate(step.calls):
            yield ChatCall(trajectory, step, number, call)


def chosen_calls(trajectory: Trajectory) -> Iterator[ChatCall]:
    """Calls of the candidates that the run's steps selected."""
    for step in trajectory.steps:
        if step.selected < len(step.candidates):
            for number, call in enumerate(step.candidates[step.selected].calls):
                yield ChatCall(trajectory, step, number, call)


def conversations(calls: Iterable[ChatCall]) -> tuple[Conversation, ...]:
    """The conversations of any sessions, in the order of their start. Pure: the order of the calls
    does not matter, and each is in exactly one conversation. Only calls of one session, one agent
    and one version of one policy continue each other."""
    threads: dict[tuple[str, str, PolicyRef], list[ChatCall]] = defaultdict(list)
    for call in calls:
        threads[call.session, call.agent, call.call.policy].append(call)
    chains = [chain for thread in threads.values() for chain in _chains(thread)]
    parts: dict[tuple[str, str], int] = defaultdict(int)
    result: list[Conversation] = []
    for chain in sorted(chains, key=lambda chain: chain[0].place):
        agent_of_session = chain[0].session, chain[0].agent
        result.append(Conversation(tuple(chain), parts[agent_of_session]))
        parts[agent_of_session] += 1
    return tuple(result)


def _chains(thread: Sequence[ChatCall]) -> list[list[ChatCall]]:
    """Calls that extend each other. Shorter prompts are taken first: a call's prompt is longer than
    that of the call it extends, even if the clocks of two machines differ."""
    lengths = sorted({len(call.ids) for call in thread})
    chains: list[list[ChatCall]] = []
    ends: dict[bytes, list[list[ChatCall]]] = defaultdict(list)
    """Chains by the digest of the ids at their end."""
    for call in sorted(thread, key=lambda call: (len(call.call.prompt_ids), call.place)):
        prompt = call.call.prompt_ids
        ending = [ends[digest] for digest in _digests(prompt, lengths) if digest in ends]
        # An empty list: chains ended there, and all of them have been continued.
        if ending and ending[-1]:
            chain = ending[-1].pop(0)
            chain.append(call)
        else:
            chains.append(chain := [call])
        if call.ids:
            ends[_digest(call.ids)].append(chain)
    return chains


def _digests(ids: Sequence[int], lengths: Sequence[int]) -> Iterator[bytes]:
    """Digests of the prefixes of these lengths, the shortest first."""
    data, digest, begin = array("q", ids).tobytes(), hashlib.sha256(), 0
    for length in lengths:
        end = length * 8
        if end > len(data):
            return
        digest.update(data[begin:end])
        begin = end
        yield digest.copy().digest()


def _digest(ids: Sequence[int]) -> bytes:
    return hashlib.sha256(array("q", ids).tobytes()).digest()
