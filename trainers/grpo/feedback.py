"""Prepares recorded runs for grouping: single calls of a client become conversations, and posted
rewards replace recorded ones on request."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from loopline.agents.records import Trajectory
from loopline.trainers.data.feedback import NO_FEEDBACK, PostedFeedback
from loopline.trainers.data.json_files import Reading, Skipped, Unreadable
from loopline.trainers.data.samples import AnyRun
from loopline.trainers.data.sessions import CHAT, ChatCall, chat_calls, conversations
from loopline.trainers.data.store import require_usable
from loopline.trainers.grpo.sequences import Belongs, require_learnable
from loopline.workers.store.rewards import rewarded_by


def samples_of(
    trajectories: Iterable[AnyRun],
    belongs_to: Callable[[str], Belongs],
    feedback: PostedFeedback | None,
) -> Reading[AnyRun]:
    """The samples that compete: runs, and conversations in place of the calls that they consist of.
    `belongs_to` returns, for an agent, which calls its model can learn from. With `feedback`, only
    samples with a posted reward are returned, with only the posted rewards."""
    skipped: list[Skipped] = []
    samples: list[AnyRun] = []
    calls: list[ChatCall] = []
    for trajectory in trajectories:
        if trajectory.run.workflow == CHAT:
            assert isinstance(trajectory, Trajectory)  # as `parse_sample` reads them
            calls += _usable_calls(trajectory, belongs_to, skipped)
        elif feedback is None:
            samples.append(trajectory)
        elif not isinstance(trajectory, Trajectory):
            raise TypeError("posted rewards are joined to whole records")
        elif feedback_of_run := feedback.of_run(trajectory.run):
            samples.append(rewarded_by(trajectory, feedback_of_run))
        else:
            skipped.append(Skipped(trajectory.run.id, NO_FEEDBACK))
    for conversation in conversations(calls):
        merged = conversation.trajectory()
        if feedback is None:
            samples.append(merged)
        elif of_conversation := conversation.feedback(feedback.by_target):
            samples.append(rewarded_by(merged, of_conversation))
        else:
            skipped += [Skipped(run, NO_FEEDBACK) for run in conversation.runs]
    return Reading(tuple(samples), tuple(skipped))


def _usable_calls(
    trajectory: Trajectory, belongs_to: Callable[[str], Belongs], skipped: list[Skipped]
) -> list[ChatCall]:
    """The calls of a run that can be learned from; in a conversation that continues, other calls
    are only context."""
    usable: list[ChatCall] = []
    try:
        require_usable(trajectory, whole=True)
    except Unreadable as error:
        skipped.append(error.at(trajectory.run.id))
        return usable
    for call in chat_calls(trajectory):
        try:
            require_learnable(call.call, belongs_to(call.agent))
        except Unreadable as error:
            skipped.append(error.at(trajectory.run.id))
        else:
            usable.append(call)
    return usable
