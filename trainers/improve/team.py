"""The closed loop of a team that shares its weights (`umi`): planner, caller and summarizer are one
policy, so a version is tried out, serves, and is rolled back for all three at once.

    OUTPUT/settings.json               the settings that determine it
    OUTPUT/rounds/0001/data/           the candidate's data: a data set of `train glpft`
    OUTPUT/rounds/0001/training/       the folder of `train glpft`
    OUTPUT/rounds/0001/decision.json   the decision on the candidate; written last

A candidate starts from the serving version and is trained on the three roles' own texts, like its
base (`--method multitask`, micro schedules at a part of their rates). It must be better at the new
kinds than that version, and not worse at the old ones than the pool's own model. A team's data
matter more than its method: its own solved runs contain nothing new, and a stage that teaches
another form (the backbone of `--method glpft`) makes it forget the roles.

A killed round is repeated, as in `loopline.trainers.improve.loop`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from loopline.agents.records import Record
from loopline.runtime.client.client import Client
from loopline.trainers.core.checkpoints import claimed_settings, require_same_recipe
from loopline.trainers.core.json_records import find_record, write_record
from loopline.trainers.data.datasets import DataSet, write
from loopline.trainers.glpft.report import read_facts
from loopline.trainers.improve.gate import GateResult, compare
from loopline.trainers.improve.loop import DECISION, SETTINGS
from loopline.trainers.improve.team_settings import STAGE, TeamLoopSettings
from loopline.trainers.improve.versions import BASE, Versions, run_training


@dataclass(frozen=True)
class Trial:
    """The instructions of the new kinds and of the old ones that a version solved."""

    new: Sequence[bool]
    old: Sequence[bool]
    micro_dollars: int


class Trials(Protocol):
    """Instructions that no version learns from, and their judge."""

    async def play(self, version: str, pin: str) -> Trial:
        """Play with the policy `pin`; always the same instructions in the same order. Instructions
        that the `version` has already played are not played again."""
        ...


class TeamDecision(Record):
    """Decision on a candidate."""

    number: int
    lessons: int
    """Trajectories that it learned from."""
    gate: GateResult
    """Comparison on the new kinds."""
    guard: GateResult
    """Comparison on the old kinds; its `serving` is the share that the pool's own model solves."""
    promoted: bool
    serving: str
    """Version that serves from now on: the name of its round, or `base`."""
    cpu_seconds: float
    """CPU seconds of the training, without parts of it that were killed."""
    micro_dollars: int
    """Cost of the candidate's runs."""


def remembers(guard: GateResult, settings: TeamLoopSettings) -> bool:
    """Whether a candidate is not worse at the old kinds by more than the margin, according to the
    estimate: an interval over a few instructions would let nothing pass."""
    enough = guard.questions >= settings.least
    return enough and guard.candidate - guard.serving >= -settings.old_margin


class TeamLoop:
    """A team's loop whose rounds `run_round` takes. `settings.policy` is the policy of the team's
    roles."""

    def __init__(
        self,
        settings: TeamLoopSettings,
        output: Path,
        *,
        client: Client,
        trials: Trials,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Raises `TrainingError` for a folder of other settings."""
        self.settings = settings
        self.output = output.resolve()
        self._versions = Versions(client.bus, settings.wait)
        self._trials = trials
        self._say = say
        path = self.output / SETTINGS
        if path.exists():
            require_same_recipe(claimed_settings(path, TeamLoopSettings), settings, self.output)
        else:
            self.output.mkdir(parents=True, exist_ok=True)
            write_record(path, settings)

    def decisions(self) -> list[TeamDecision]:
        """Decisions of all rounds that have ended, in order."""
        files = sorted((self.output / "rounds").glob(f"*/{DECISION}"))
        records = [find_record(path, TeamDecision) for path in files]
        return [decision for decision in records if decision is not None]

    @property
    def serving(self) -> str:
        """Name of the version that serves."""
        decisions = self.decisions()
        return decisions[-1].serving if decisions else BASE

    def is_due(self, lessons: int) -> bool:
        """Whether there are enough lessons that no candidate has learned from."""
        decisions = self.decisions()
        return lessons - (decisions[-1].lessons if decisions else 0) >= self.settings.every

    async def run_round(self, lessons: int, data: Callable[[], DataSet]) -> TeamDecision:
        """Train a candidate on `data`, which has this many `lessons`, compare it with the serving
        version, and let it serve or not. Raises `TrainingError`."""
        number = len(self.decisions()) + 1
        folder = self.output / "rounds" / f"{number:04d}"
        weights = self._weights(folder.name)
        cpu_seconds = await self._train(folder, data)
        facts = read_facts(weights)
        assert facts is not None, "a finished training has its facts"
        self._say(
            f"round {number}: a candidate learned from {lessons:,} lessons, {facts.rows:,} rows, "
            f"in {facts.tokens:,} tokens"
        )
        before, name = self.serving, folder.name
        first = serving = await self._trials.play(BASE, self.settings.pool)
        if before != BASE:
            serving_pin = await self._versions.pin(self.settings.policy)
            serving = await self._trials.play(before, serving_pin)
        pin = await self._versions.publish(self.settings.candidate, weights)
        candidate = await self._trials.play(name, pin)
        gate = self._compare(candidate.new, serving.new, self.settings.margin)
        # Old kinds are compared with the team's initial results: a margin to the serving version
        # would let it forget the same amount in every round.
        guard = self._compare(candidate.old, first.old, self.settings.old_margin)
        self._say(f"round {number}: new kinds: {gate.verdict}")
        self._say(
            f"round {number}: old kinds: {guard.candidate:.1%} solved, at first it was "
            f"{guard.serving:.1%} of the same {guard.questions:,}"
        )
        promoted = gate.passed and remembers(guard, self.settings)
        if promoted:
            await self._versions.publish(self.settings.policy, weights)
        else:
            await self._versions.roll_back(self.settings.candidate, weights)
        decision = TeamDecision(
            number=number,
            lessons=lessons,
            gate=gate,
            guard=guard,
            promoted=promoted,
            serving=name if promoted else before,
            cpu_seconds=cpu_seconds,
            micro_dollars=candidate.micro_dollars,
        )
        write_record(folder / DECISION, decision)
        self._say(f"round {number}: {'promoted' if promoted else 'rolled back'}")
        return decision

    def _weights(self, version: str) -> Path:
        """Folder of the weights of a round's version."""
        return self.output / "rounds" / version / "training" / STAGE

    def _compare(
        self, candidate: Sequence[bool], serving: Sequence[bool], margin: float
    ) -> GateResult:
        return compare(candidate, serving, margin=margin, least=self.settings.least)

    async def _train(self, folder: Path, data: Callable[[], DataSet]) -> float:
        """Train in another process; returns its CPU seconds."""
        if not (folder / "data").exists():
            # Making the data takes seconds, during which the client must be served.
            await asyncio.to_thread(lambda: write(data(), folder / "data"))
        begin = self.settings.model if self.serving == BASE else str(self._weights(self.serving))
        arguments = self.settings.arguments(folder / "data", folder / "training", begin)
        return await asyncio.to_thread(
            run_training, arguments, folder / "training", folder / "training.log"
        )
