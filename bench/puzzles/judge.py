"""Judges whether a puzzle is solved by replaying the run's actions on the question's instance.

The run's own statements are not trusted (`loopline.bench.teams.playing`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from loopline.agents.environments.game import (
    Episode,
    Observation,
    OutOfTurn,
    ProgramNotRun,
    replay_action,
)
from loopline.agents.environments.registry import find
from loopline.agents.errors import (
    EnvironmentFault,
    InvalidTask,
    JournalIncomplete,
    PluginError,
    UnknownName,
    environment_code,
)
from loopline.agents.records import Outcome, Trajectory
from loopline.agents.roles.pair.episode import executed_action
from loopline.bench.errors import OutputError
from loopline.bench.judgement import Judgement, Question
from loopline.bench.taxonomy import ENDED_OTHERWISE, Class
from loopline.bench.teams.playing import OTHER_INSTANCE, played_instance, unsolved_judgement

CHECKERS = {
    "solved": "the run's actions, replayed on the instance, solve it according to its verifier"
}

_IN_ORDER = (Class.UNREADABLE, Class.WRONG_ANSWER, Class.ILLEGAL)


class PuzzlesJudge:
    """Judges a run: verdict `solved`; measures `turns`, `refused` (share of the actions on the real
    state that were fully or partly refused), the verifier's measures of a solution
    (`moves_over_shortest`) and, if an agent proposed anything, `agreement` (share of the proposals
    that the next agent carried out exactly)."""

    def judge(self, trajectory: Trajectory, question: Question) -> Judgement:
        instance = played_instance(trajectory, question)
        if instance is None:
            return unsolved_judgement(OTHER_INSTANCE)
        # A failed step has no action.
        steps = [step for step in trajectory.steps if step.decision.kind == "acted"]
        environment = trajectory.run.task.environment
        try:
            with environment_code(environment, "while the judge replayed the run"):
                played = find(environment)
                episode = played.reset(instance)
                agent_observations: list[tuple[str, Observation]] = []
                for step in sorted(steps, key=lambda step: step.turn):
                    action = executed_action(step)
                    agent_observations.append(
                        (action.agent, replay_action(episode, action).observation)
                    )
                verdict = episode.verify()
        except (UnknownName, PluginError, InvalidTask, EnvironmentFault) as error:
            raise OutputError(f"the item can't be played: {error}") from error
        except (OutOfTurn, ProgramNotRun, JournalIncomplete) as error:
            return unsolved_judgement(str(error))
        proposing = {spec.name for spec in played.agents if spec.proposes}
        acting = set(episode.agents) - proposing or {*episode.agents}
        real = [observation for agent, observation in agent_observations if agent in acting]
        last_text = episode.actions[-1].text if episode.actions else None
        return Judgement(
            verdicts={"solved": verdict.solved},
            prediction=last_text,
            answer=(last_text or "")[:200],
            signals=() if verdict.solved else tuple(_failure_classes(real)),
            measures={
                **_measures(episode, agent_observations, real, proposing),
                **verdict.measures,
            },
            detail=verdict.reason,
        )


def class_of(outcome: Outcome, right: bool, signals: Collection[str]) -> Class:
    """Return the class of one finished run: how it ended, else what its actions were like."""
    if right:
        return Class.RIGHT
    if outcome in ENDED_OTHERWISE:
        return ENDED_OTHERWISE[outcome]
    return next((name for name in _IN_ORDER if name in signals), Class.OUT_OF_TURNS)


def _failure_classes(real: Sequence[Observation]) -> list[str]:
    """Return the classes that apply."""
    facts = {
        Class.UNREADABLE: bool(real) and not real[-1].action,
        # An answer is final in puzzles that are answered instead of played to the end.
        Class.WRONG_ANSWER: bool(real) and _is_answered(real[-1]),
        Class.ILLEGAL: any(observation.action and observation.refusals for observation in real),
    }
    return [str(name) for name, holds in facts.items() if holds]


def _measures(
    episode: Episode,
    agent_observations: Sequence[tuple[str, Observation]],
    real: Sequence[Observation],
    proposing: Collection[str],
) -> dict[str, float]:
    measures = {"turns": float(episode.turn)}
    if real:
        measures["refused"] = sum(bool(observation.refusals) for observation in real) / len(real)
    agreed = [
        execution.action == proposed.action
        for (first, proposed), (second, execution) in pairwise(agent_observations)
        if first in proposing and second not in proposing and any(proposed.action.values())
    ]
    if agreed:
        measures["agreement"] = sum(agreed) / len(agreed)
    return measures


def _is_answered(last: Observation) -> bool:
    return bool(last.action.get("answer")) and not last.refusals
