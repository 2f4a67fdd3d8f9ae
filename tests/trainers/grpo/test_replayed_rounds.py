"""A training from the store of a loop in which workers were late: it learns from the same samples
as the loop, in the same order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from loopline.agents.records import PolicyRef, Trajectory
from loopline.trainers.grpo.data import read_data
from loopline.trainers.grpo.groups import INCOMPLETE, LOOP_TAG, ROUND_TAG, Sealing, seal
from loopline.trainers.grpo.loop.round_groups import seal_round
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.trainers.grpo.stream import StepBatch, batches_of

from .recorded import a_call, a_candidate, a_run, a_step, record
from .tiny_grpo import settings_of

SEALING = Sealing(size=2, belongs=lambda call: True, max_context=64)
MANY = 10_000
"""All groups of a batch."""
ROUNDS = 4


def a_game(number: int, versions: dict[str, int], instance: int | None = None) -> Trajectory:
    """A step of each agent, by an adapter of that name in that version, with its own rewards."""
    steps = [
        a_step(
            [a_candidate(reward, a_call(policy=sampled_by(agent, version), version=version))
             for reward in (0.0, 1.0 + number)],
            agent=agent, turn=turn,
        )
        for turn, (agent, version) in enumerate(versions.items())
    ]  # fmt: skip
    return a_run(number, *steps, instance=number if instance is None else instance)


def sampled_by(agent: str, version: int) -> PolicyRef:
    return PolicyRef(name="pair", base="micro", adapter=agent, version=version)


def tagged(run: Trajectory, number: int, loop: str = "one") -> Trajectory:
    """Played in a round of a loop."""
    tags = {LOOP_TAG: loop, ROUND_TAG: str(number)}
    return run.model_copy(update={"run": run.run.model_copy(update={"tags": tags})})


def by_loop(rounds: Sequence[Sequence[Trajectory]], settings: GrpoSettings) -> list[StepBatch]:
    """The batches of a loop whose round n was published as version n."""
    came_of = {(name, n): n for name in ("tool", "plan") for n in range(len(rounds) + 1)}
    return [
        seal_round(runs, SEALING, came_of, first=0, number=number, settings=settings).batch(
            number - 1, settings.seed
        )
        for number, runs in enumerate(rounds, start=1)
    ]


def by_replay(store: Path, runs: Sequence[Trajectory], settings: GrpoSettings) -> list[StepBatch]:
    asyncio.run(record(store, runs))
    return list(batches_of(read_data(store, None, SEALING).groups, settings).steps)


def games(late: Sequence[tuple[int, int, str, int]]) -> list[list[Trajectory]]:
    """Rounds of five games whose agents all serve the version of the round before, except these:
    (round, game, agent, version)."""
    rounds: list[list[Trajectory]] = []
    for number in range(1, ROUNDS + 1):
        runs: list[Trajectory] = []
        for game in range(5):
            versions = {"tool": number - 1, "plan": number - 1}
            versions |= {entry[2]: entry[3] for entry in late if entry[:2] == (number, game)}
            runs.append(tagged(a_game(10 * number + game, versions), number))
        rounds.append(runs)
    return rounds


@pytest.mark.parametrize(
    ("staleness", "late"),
    [
        (0, []),
        (0, [(2, 1, "tool", 0), (4, 0, "plan", 2), (4, 3, "tool", 1)]),
        # One of the adapters was late for all of its requests in the round.
        (0, [(3, game, "plan", 1) for game in range(5)]),
        (1, [(2, 1, "tool", 0), (4, 0, "plan", 2), (4, 3, "tool", 1)]),
        # A round that started before the previous round's version was there.
        (1, [(3, game, agent, 1) for game in range(5) for agent in ("tool", "plan")]),
    ],
)
def test_a_replay_learns_the_same_from_each_round_as_the_loop_even_if_a_worker_was_late(
    staleness: int, late: list[tuple[int, int, str, int]], tmp_path: Path
) -> None:
    settings, rounds = settings_of(staleness=staleness, batch=MANY), games(late)
    learned = by_loop(rounds, settings)
    assert sum(batch.stale for batch in learned) == sum(
        number - 1 - version > staleness for number, _, _, version in late
    )
    shape = [[(m.origin, m.reward) for g in b.groups for m in g.members] for b in learned]
    runs = [run for round_runs in rounds for run in round_runs]
    replayed = by_replay(tmp_path, runs, settings)
    assert [[(m.origin, m.reward) for g in b.groups for m in g.members] for b in replayed] == shape
    about = [(batch.version, batch.zero_variance, batch.stale) for batch in replayed]
    assert about == [(batch.version, batch.zero_variance, batch.stale) for batch in learned]


def test_rounds_of_two_loops_are_distinguished_even_if_they_have_the_same_numbers(
    tmp_path: Path,
) -> None:
    """The second loop continues from the first one's result."""
    runs = [
        tagged(a_game(10 * version, {"tool": version}), version % 2 + 1, loop)
        for loop, versions in (("one", (0, 1)), ("two", (2, 3)))
        for version in versions
    ]
    batches = by_replay(tmp_path, runs, settings_of(staleness=0, batch=MANY))
    assert [(b.version, b.groups[0].policy.version, b.stale) for b in batches] == [
        (version, version, 0) for version in range(4)
    ]


def test_a_fork_of_a_run_does_not_belong_to_its_round() -> None:
    """It was played later, and by a newer version."""
    first = tagged(a_game(1, {"tool": 0}), 1)
    later = tagged(a_game(2, {"tool": 7}), 1)
    fork = later.model_copy(update={"run": later.run.model_copy(update={"parent": first.run.id})})
    batches = batches_of(seal([first, fork], SEALING).records, settings_of(staleness=0)).steps
    assert [(batch.version, batch.stale) for batch in batches] == [(0, 0), (7, 0)]


def test_halves_of_a_group_from_two_rounds_do_not_form_a_group() -> None:
    """The loop had a complete group in neither of them."""
    halves = [
        tagged(
            run.model_copy(
                update={"steps": (run.steps[0].model_copy(
                    update={"candidates": run.steps[0].candidates[:1]}
                ),)}
            ),
            number,
        )
        for number in (1, 2)
        for run in [a_game(number, {"tool": 0}, instance=0)]
    ]  # fmt: skip
    sealed = seal(halves, SEALING)
    assert sealed.records == ()
    assert [skip.reason for skip in sealed.skipped] == [INCOMPLETE]
    untold = [run.model_copy(update={"run": run.run.model_copy(update={"tags": {}})})
              for run in halves]  # fmt: skip
    assert len(seal(untold, SEALING).records) == 1
