"""The closed loop of a team that shares its weights (`umi`): planner, caller and summarizer are one
policy, so a version is tried out, serves, and is rolled back for all three at once.

    OUTPUT/settings.json               what determines it
    OUTPUT/rounds/0001/data/           what the candidate learns: a data set of `train glpft`
    OUTPUT/rounds/0001/training/       the folder of `train glpft`
    OUTPUT/rounds/0001/blend-70/       70 % of what was trained, 30 % of the version that serves
    OUTPUT/rounds/0001/decision.json   the decision on the candidate; written last

A candidate begins with the version that serves and is trained on the three roles' own texts, as its
base was (`--method multitask`, micro schedules at a part of their rates). It must be better at the
new kinds, and not worse at the old ones. What a team learns from matters more than how: its own
solved runs hold nothing new, and a stage that teaches another form (the backbone of `--method
glpft`) makes it forget the roles.

A round that was killed is repeated, as in `loopline.trainers.improve.loop`.
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
from loopline.trainers.core.network import base_folder
from loopline.trainers.data.datasets import DataSet, write
from loopline.trainers.glpft.facts import read_facts
from loopline.trainers.improve.blends import write_blend
from loopline.trainers.improve.gate import GateResult, compare
from loopline.trainers.improve.loop import DECISION, SETTINGS
from loopline.trainers.improve.team_settings import STAGE, TeamLoopSettings
from loopline.trainers.improve.versions import BASE, Versions, run_training


@dataclass(frozen=True)
class Trial:
    """What a version solved of the new kinds, and of the old ones."""

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
    """Comparison on the old kinds."""
    share: float = 1.0
    """Share of the trained weights in the candidate; the rest is of the version that served."""
    promoted: bool
    serving: str
    """Version that serves from now on: the name of its round, or `base`."""
    cpu_seconds: float
    """CPU seconds of the training, without parts of it that were killed."""
    micro_dollars: int
    """Cost of the candidate's runs, those of all blends."""


def remembers(guard: GateResult, settings: TeamLoopSettings) -> bool:
    """Whether a candidate is not worse at the old kinds by more than the margin, by the estimate:
    an interval of few instructions would let nothing pass."""
    enough = guard.questions >= settings.least
    return enough and guard.candidate - guard.serving >= -settings.old_margin


@dataclass(frozen=True)
class _Tried:
    """A candidate that was tried out."""

    share: float
    gate: GateResult
    guard: GateResult
    passed: bool
    micro_dollars: int


def _weights(folder: Path, share: float) -> Path:
    """Folder of the weights of a round of which this share is what was trained."""
    return folder / "training" / STAGE if share == 1 else folder / f"blend-{share * 100:.0f}"


class TeamLoop:
    """A team's loop whose rounds `run_round` takes. The team's roles have the policy
    `settings.policy`."""

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
        """Train a candidate on `data`, which has this many `lessons`, compare it with the version
        that serves, and let it serve or not. Raises `TrainingError`."""
        number = len(self.decisions()) + 1
        folder = self.output / "rounds" / f"{number:04d}"
        trained = folder / "training" / STAGE
        cpu_seconds = await self._train(folder, data)
        facts = read_facts(trained)
        assert facts is not None, "a finished training has its facts"
        self._say(
            f"round {number}: a candidate learned from {lessons:,} lessons, {facts.rows:,} rows, "
            f"in {facts.tokens:,} tokens"
        )
        before = self.serving
        serving = await self._trials.play(before, await self._serving_pin(before))
        first, *others = self.settings.blends
        tried = [await self._try_out(number, folder, first, serving)]
        for share in others:
            # Less of what is not better at the new kinds is not better, either.
            if tried[-1].passed or not tried[-1].gate.passed:
                break
            tried.append(await self._try_out(number, folder, share, serving))
        last = tried[-1]
        if last.passed:
            await self._versions.publish(self.settings.policy, _weights(folder, last.share))
        decision = TeamDecision(
            number=number,
            lessons=lessons,
            gate=last.gate,
            guard=last.guard,
            share=last.share,
            promoted=last.passed,
            serving=folder.name if last.passed else before,
            cpu_seconds=cpu_seconds,
            micro_dollars=sum(entry.micro_dollars for entry in tried),
        )
        write_record(folder / DECISION, decision)
        self._say(f"round {number}: {'promoted' if last.passed else 'rolled back'}")
        return decision

    async def _try_out(self, number: int, folder: Path, share: float, serving: Trial) -> _Tried:
        """Publish this share of what was trained as the candidate and compare it with the version
        that serves; it is rolled back where it does not pass."""
        weights = await self._blend(folder, share)
        pin = await self._versions.publish(self.settings.candidate, weights)
        name = folder.name if share == 1 else f"{folder.name}-{weights.name}"
        candidate = await self._trials.play(name, pin)
        gate = self._compare(candidate.new, serving.new, self.settings.margin)
        guard = self._compare(candidate.old, serving.old, self.settings.old_margin)
        what = f"round {number}" if share == 1 else f"round {number}, {share:.0%} of it"
        self._say(f"{what}: new kinds: {gate.verdict}")
        self._say(
            f"{what}: old kinds: {guard.candidate:.1%} solved, the serving version "
            f"{guard.serving:.1%} of the same {guard.questions:,}"
        )
        passed = gate.passed and remembers(guard, self.settings)
        if not passed:
            await self._versions.roll_back(self.settings.candidate, weights)
        return _Tried(share, gate, guard, passed, candidate.micro_dollars)

    async def _blend(self, folder: Path, share: float) -> Path:
        """Weights of a round of which this share is what was trained."""
        weights = _weights(folder, share)
        if share != 1:
            trained, serving = _weights(folder, 1.0), base_folder(self._serving_weights())
            await asyncio.to_thread(write_blend, serving, trained, share, weights)
        return weights

    def _serving_weights(self) -> str:
        """The weights that serve: a folder, or the pool's own model."""
        if self.serving == BASE:
            return self.settings.model
        [decision] = [entry for entry in self.decisions() if entry.number == int(self.serving)]
        return str(_weights(self.output / "rounds" / self.serving, decision.share))

    def _compare(
        self, candidate: Sequence[bool], serving: Sequence[bool], margin: float
    ) -> GateResult:
        return compare(candidate, serving, margin=margin, least=self.settings.least)

    async def _train(self, folder: Path, data: Callable[[], DataSet]) -> float:
        """Train in another process; returns its CPU seconds."""
        if not (folder / "data").exists():
            # Making the data takes seconds, in which the client has to be served.
            await asyncio.to_thread(lambda: write(data(), folder / "data"))
        begin = self._serving_weights()
        arguments = self.settings.arguments(folder / "data", folder / "training", begin)
        return await asyncio.to_thread(
            run_training, arguments, folder / "training", folder / "training.log"
        )

    async def _serving_pin(self, version: str) -> str:
        """The policy pinned to a version. The pool's own model is asked by the pool's name: before
        the first version the policy has none to pin."""
        if version == BASE:
            return self.settings.pool
        return await self._versions.pin(self.settings.policy)
