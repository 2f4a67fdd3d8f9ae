"""One object that closes the loop: collect, train, gate, promote, repeat.

    OUTPUT/settings.json               the settings that determine it
    OUTPUT/answers/VERSION.jsonl       answers of a version to held-back questions
    OUTPUT/rounds/0001/training/       the folder of `train distill`
    OUTPUT/rounds/0001/gate.json       its comparison; written before it has any effect
    OUTPUT/rounds/0001/decision.json   the decision on the candidate; written last

A killed round is repeated: its training resumes from its checkpoint, recorded answers are not
requested again, and publishing a folder that is already published changes nothing.

A router's bound is valid for one version, so the order matters: the router is closed before another
version serves, and opened with a calibration on that version's own answers. In between, all
questions go to the big model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from loopline.agents.records import JsonObject, Record
from loopline.agents.router.router import Router
from loopline.runtime.client.client import Client
from loopline.trainers.core.checkpoints import claimed_settings, require_same_recipe
from loopline.trainers.core.curves import DEFAULT_TRACKERS
from loopline.trainers.core.json_records import find_record, write_record
from loopline.trainers.distill.escalations import read_escalations
from loopline.trainers.glpft.report import read_facts
from loopline.trainers.improve.asking import SmallAnswer, ask_small
from loopline.trainers.improve.gate import GateResult, compare
from loopline.trainers.improve.held_back import (
    HeldBack,
    Judge,
    labelled,
    read_held_back,
)
from loopline.trainers.improve.settings import LoopSettings
from loopline.trainers.improve.versions import BASE, Versions, run_training
from loopline.trainers.router.labelled import without_waiting
from loopline.trainers.router.policy import LEAST_QUESTIONS
from loopline.trainers.router.training import describe, first_run_id, train_router
from loopline.workers.store.records import has_records

SETTINGS = "settings.json"
GATE, DECISION = "gate.json", "decision.json"
CALIBRATED_EVERY = 20
"""Number of further held-back questions after which the router is calibrated again."""
STAGE = "single"
"""Folder of the result of `train distill`."""


class Decision(Record):
    """Decision on a candidate."""

    number: int
    escalations: int
    """Escalations that it learned from."""
    gate: GateResult
    promoted: bool
    serving: str
    """Version that serves from now on: the name of its round, or `base`."""
    router: str
    """Description of the router's behaviour from now on."""
    accepted_share: float
    """Share of the calibration answers that the router accepts; 0 if it accepts nothing."""
    cpu_seconds: float
    """CPU seconds of the training, without parts of it that were killed."""
    micro_dollars: int
    """Cost of the candidate's answers."""


class ImprovementLoop:
    """A loop whose rounds `run_round` takes. In the cascade that it serves, `settings.policy` is
    the policy of `first`, and `router` is the option `router`."""

    def __init__(
        self,
        settings: LoopSettings,
        output: Path,
        *,
        client: Client,
        store: Path,
        router: Path,
        judge: Judge | None = None,
        say: Callable[[str], None] = lambda text: None,
        trackers: tuple[str, ...] = DEFAULT_TRACKERS,
    ) -> None:
        """`trackers` receive the curves of each training. Raises `TrainingError` for a folder of
        other settings."""
        self.settings = settings
        self.output = output.resolve()
        self._client = client
        self._store = store
        self._router = router
        self._judge = judge
        self._say = say
        self._trackers = trackers
        self._versions = Versions(client.bus, settings.wait)
        self._calibrated_on = 0
        """Number of held-back questions when the router was last calibrated."""
        self._claim()

    def decisions(self) -> list[Decision]:
        """Decisions of all rounds that have ended, in order."""
        files = sorted((self.output / "rounds").glob(f"*/{DECISION}"))
        records = [find_record(path, Decision) for path in files]
        return [decision for decision in records if decision is not None]

    @property
    def serving(self) -> str:
        """Name of the version that serves."""
        decisions = self.decisions()
        return decisions[-1].serving if decisions else BASE

    def is_due(self) -> bool:
        """Whether there are enough new escalations, and enough questions for a comparison."""
        decisions = self.decisions()
        before = decisions[-1].escalations if decisions else 0
        new = len(read_escalations(self._store).records) - before
        held_back = len(read_held_back(self._store, self.settings.held_back))
        return new >= self.settings.every and held_back >= self.settings.least_held_back

    async def look(self) -> Decision | None:
        """Take a round if it is due; otherwise calibrate the router again if enough further
        questions were held back. Raises `TrainingError`."""
        if not has_records(self._store):
            return None
        # Reading a store and fitting a router take seconds, during which the client must be served.
        if await asyncio.to_thread(self.is_due):
            return await self.run_round()
        questions = await self._held_back()
        if self.serving != BASE and len(questions) >= self._calibrated_on + CALIBRATED_EVERY:
            pin = await self._versions.pin(self.settings.policy)
            answers = await self._answers(self.serving, pin, questions)
            self._say((await asyncio.to_thread(self._calibrate, questions, answers))[0])
        return None

    async def run_round(self, *, examples: Path | None = None) -> Decision:
        """Train a candidate on all escalations of the store, or on those of the store `examples`,
        compare it with the serving version, and let it serve or not. Raises `TrainingError`."""
        number = len(self.decisions()) + 1
        folder = self.output / "rounds" / f"{number:04d}"
        cpu_seconds = await self._train(folder / "training", examples or self._store)
        weights = folder / "training" / STAGE
        facts = read_facts(weights)
        assert facts is not None, "a finished training has its facts"
        self._say(f"round {number}: a candidate learned from {facts.rows:,} escalations")
        questions = await self._held_back()
        pin = await self._versions.publish(self.settings.candidate, weights)
        before, name = self.serving, folder.name
        answers = new = await self._answers(name, pin, questions)
        # A round that was killed after its comparison continues with that comparison: the candidate
        # may serve already, and would be compared with itself.
        gate = find_record(folder / GATE, GateResult)
        if gate is None or not gate.passed:
            serving_pin = await self._versions.pin(self.settings.policy)
            answers = await self._answers(before, serving_pin, questions)
        if gate is None:
            gate = compare(
                self._right(questions, new),
                self._right(questions, answers),
                margin=self.settings.margin,
                least=self.settings.least_held_back,
            )
            write_record(folder / GATE, gate)
        self._say(f"round {number}: {gate.verdict}")
        if gate.passed:
            answers = new
            self._shut_router()
            await self._versions.publish(self.settings.policy, weights)
        else:
            await self._versions.roll_back(self.settings.candidate, weights)
        words, accepted = await asyncio.to_thread(self._calibrate, questions, answers)
        decision = Decision(
            number=number,
            escalations=facts.rows,
            gate=gate,
            promoted=gate.passed,
            serving=name if gate.passed else before,
            router=words,
            accepted_share=accepted,
            cpu_seconds=cpu_seconds,
            micro_dollars=sum(answer.micro_dollars for answer in new.values()),
        )
        write_record(folder / DECISION, decision)
        self._say(f"round {number}: {'promoted' if gate.passed else 'rolled back'}. {words}")
        return decision

    async def _held_back(self) -> Sequence[HeldBack]:
        return await asyncio.to_thread(read_held_back, self._store, self.settings.held_back)

    def _claim(self) -> None:
        path = self.output / SETTINGS
        if path.exists():
            require_same_recipe(claimed_settings(path, LoopSettings), self.settings, self.output)
            return
        self.output.mkdir(parents=True, exist_ok=True)
        write_record(path, self.settings)

    async def _train(self, folder: Path, store: Path) -> float:
        """Train in another process; returns its CPU seconds."""
        before = self.serving
        begin = None if before == BASE else self.output / "rounds" / before / "training" / STAGE
        arguments = self.settings.training.arguments(store, folder, begin)
        arguments += ["--track", ",".join(self._trackers)]
        log = folder.parent / "training.log"
        return await asyncio.to_thread(run_training, arguments, folder, log)

    async def _answers(
        self, version: str, pin: str, questions: Sequence[HeldBack]
    ) -> dict[str, SmallAnswer]:
        """Answers of a version, by the ids of the questions' runs. Answers that it gave while it
        served are reused."""
        recorded = {
            entry.run.id: SmallAnswer.of(entry.small)
            for entry in questions
            if _pin_of(entry, self.settings.policy) == pin
        }
        questions_left = {
            entry.run.id: (entry.question, _solo_options(entry.run.options))
            for entry in questions
            if entry.run.id not in recorded
        }
        path = self.output / "answers" / f"{version}.jsonl"
        return {
            **await ask_small(self._client, pin, questions_left, path, say=self._say),
            **recorded,
        }

    def _right(
        self, questions: Sequence[HeldBack], answers: dict[str, SmallAnswer]
    ) -> list[bool | None]:
        return [entry.is_right(answers[entry.run.id].text, self._judge) for entry in questions]

    def _shut_router(self) -> None:
        router = find_record(self._router, Router)
        if router is not None:
            write_record(self._router, router.model_copy(update={"threshold": None}))

    def _calibrate(
        self, questions: Sequence[HeldBack], answers: dict[str, SmallAnswer]
    ) -> tuple[str, float]:
        rows, by_feedback = without_waiting(labelled(questions, answers, self._judge))
        self._calibrated_on = len(questions)
        if len(rows) < LEAST_QUESTIONS:
            self._shut_router()
            return (
                f"The router accepts nothing: {len(rows):,} labelled questions of "
                f"{LEAST_QUESTIONS}.",
                0.0,
            )
        router = train_router(
            rows,
            alpha=self.settings.alpha,
            delta=self.settings.delta,
            seed=1,
            where="the questions that were kept back",
            watched_after=first_run_id(self._client.bus.clock.now()),
            by_feedback=by_feedback,
        )
        write_record(self._router, router)
        promise = router.guarantee
        accepts = router.threshold is not None
        share = promise.accepted / max(1, promise.calibration) if accepts else 0.0
        return describe(router), share


def _pin_of(entry: HeldBack, policy: str) -> str | None:
    """The version that answered a question while it served."""
    call = entry.first_call
    if call is None:
        return None
    name = call.policy.adapter or call.policy.name
    # Before the first version, the pool's own model answers for the adapter's policy.
    if name != policy and call.policy.version != 0:
        return None
    return f"{policy}@{call.policy.version}"


def _solo_options(options: JsonObject) -> JsonObject:
    """Options of a cascade that determine how a model is asked."""
    return {name: options[name] for name in ("calculator", "prompts") if name in options}
