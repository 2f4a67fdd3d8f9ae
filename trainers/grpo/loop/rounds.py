"""Runs the rounds: publish, roll out, train, record.

    publish the result of round n - 1, unless it was published before
    remove adapters of rounds long past
    evaluate on held-out tasks, if that is due
    start the waves of round n, and of as many later rounds as the staleness allows
    collect round n; make up for groups without a signal by further waves
    one step on all of its groups; the adapters, then the checkpoint that marks round n as trained

After a kill before the checkpoint, the step is repeated from the plans and the trajectories; after
a kill later on, only the publication remains to be done. With several processes, the first one does
all this; the others compute their share of each step (`follower_rank`).
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from loopline.bus import BusError, BusUnavailable, retry_during_outage
from loopline.runtime.client.client import Client
from loopline.runtime.config.settings import Settings
from loopline.runtime.errors import UserError
from loopline.runtime.run_driver import RunDriver
from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.core.checkpoints import forget_work
from loopline.trainers.core.curves import DEFAULT_TRACKERS, Curves
from loopline.trainers.core.interruption import deferred_interrupt
from loopline.trainers.core.memory import peak_memory_mb
from loopline.trainers.core.output_folder import guard_disk_writes
from loopline.trainers.core.processes import Processes
from loopline.trainers.core.publishing import Publication
from loopline.trainers.data.questions import Question, Questions
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.facts import PolicyFacts
from loopline.trainers.grpo.groups import Sealing
from loopline.trainers.grpo.kept_ratios import KeptRatios
from loopline.trainers.grpo.learnable import TRUNCATED
from loopline.trainers.grpo.learner import NotFinite
from loopline.trainers.grpo.loop.asked import judged
from loopline.trainers.grpo.loop.clock import Clock
from loopline.trainers.grpo.loop.gpu_sharing import GpuSharing
from loopline.trainers.grpo.loop.leader_channel import LeaderChannel
from loopline.trainers.grpo.loop.looks import Looks
from loopline.trainers.grpo.loop.loop_state import LoopState, learner_of
from loopline.trainers.grpo.loop.page import render
from loopline.trainers.grpo.loop.planning import TooFewPuzzles, further_puzzles, plan_batch
from loopline.trainers.grpo.loop.pruning import prune_old_versions
from loopline.trainers.grpo.loop.report import LoopReport, RoundFacts, Seconds
from loopline.trainers.grpo.loop.rollouts import Rollouts
from loopline.trainers.grpo.loop.round_facts import (
    RoundRollouts,
    facts_of_round,
    nothing_to_learn,
)
from loopline.trainers.grpo.loop.round_groups import RoundGroups, seal_round
from loopline.trainers.grpo.loop.run_directory import (
    RolloutBatch,
    RunDirectory,
    SealedRound,
    write_page,
)
from loopline.trainers.grpo.loop.serving import PUBLISH_SECONDS, serve, serve_chosen
from loopline.trainers.grpo.loop.settings import Look, LoopSettings
from loopline.trainers.grpo.page import PAGE
from loopline.trainers.grpo.pipeline import CHECKPOINTS, POLICIES
from loopline.trainers.grpo.publishing import publications
from loopline.trainers.grpo.report import REPORT, StepFacts
from loopline.trainers.grpo.storing import (
    folder_name,
    require_room,
    restore,
    save,
    write_policies,
)
from loopline.workers.atomic_files import write_atomic
from loopline.workers.engines.torch.loading import LoadedModel

PATIENCE_SECONDS = 300.0
"""Longest absence of the bus before the loop exits, so that it can be resumed."""
RETRY_SECONDS = 0.5
"""Seconds between two attempts to connect: a server that is down refuses them at once."""
LOOK_SECONDS = 0.1

T = TypeVar("T")


@dataclass(frozen=True)
class LoopWatch:
    """Callbacks that report progress."""

    rolled: Callable[[RolloutBatch, int], None] = lambda wave, ended: None
    round: Callable[[RoundFacts, int], None] = lambda facts, rounds: None
    say: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class Retention:
    """Data that is kept besides the state that the training resumes from."""

    ratios: int = 0
    """Tokens per round and policy whose importance ratios are kept: see `KeptRatios`."""
    published: int = 20
    """Rounds whose adapters or models can be chosen on the bus; at least 2."""
    trackers: tuple[str, ...] = DEFAULT_TRACKERS
    """Trackers that draw curves: see `Curves`."""


class Loop:
    """One training on one deployment."""

    def __init__(
        self,
        settings: LoopSettings,
        loaded: LoadedModel,
        sealing: Sealing,
        directory: RunDirectory,
        deployed: Settings,
        wait: float,
        watch: LoopWatch,
        keeping: Retention | None = None,
        channel: LeaderChannel | None = None,
        questions: Questions | None = None,
    ) -> None:
        """`channel`: leads to the processes that train with this one. `questions`: those of the
        file, if one is played, and the held-out ones for evaluations."""
        self.settings, self.sealing, self.directory = settings, sealing, directory
        self.questions: Sequence[Question] = questions.train if questions else ()
        self.looks = Looks(settings, directory, questions.held_out if questions else ())
        self.deployed, self.wait, self.watch = deployed, wait, watch
        self.keeping = keeping or Retention()
        self.channel = channel or LeaderChannel(Processes())
        self.ratios = KeptRatios(directory.output, self.keeping.ratios)
        self.learner = learner_of(settings, loaded, self.ratios, self.channel.processes)
        self.policies = self.learner.policies
        self.gpu = GpuSharing.of(settings.policies.values(), deployed.models)
        self.gpu.bound_memory(self.policies.network.device)
        self.work = directory.output / CHECKPOINTS
        self.state = LoopState(step=0, settings=settings, history=())
        self.asked_to_stop: Callable[[], bool] = lambda: False
        self.clock = Clock()

    def run(self) -> LoopReport:
        """Train to the last round. Ctrl-C raises KeyboardInterrupt: at once while waiting for runs,
        otherwise after the step. Raises `TrainingError`s."""
        self.clock = Clock()
        require_room(self.work, self.policies, self._future_version_count())
        self.state = restore(self.work, LoopState, self.policies) or self.state
        self.ratios.forget_after(self.state.step)
        self.directory.forget_trajectories(self.state.step)
        if not self.directory.published(self.state.step).exists():
            self._write(self.state.step)
        with ExitStack() as open_curves, deferred_interrupt() as interruption:
            self.asked_to_stop = lambda: self.channel.stopped(interruption.requested)
            # Wait here, not on the bus, for other processes that are still loading their base.
            self._raise_if_stopped()
            with guard_disk_writes(self.directory.output / "curves"):
                curves = {
                    name: open_curves.enter_context(
                        Curves(self._curves(name), self.state.step, self.keeping.trackers)
                    )
                    for name in ("rounds", *self.policies.names)
                }
            while self.state.step < self.settings.rounds:
                self._look(curves)
                if self.looks.has_stalled:
                    break
                self._round(self.state.step + 1, curves)
                self._raise_if_stopped()
            self._look(curves, last=True)
            # An evaluation published its version; by now somebody may have chosen another one.
            versions = self._run_on_bus(self._publish if not self.looks.best else self._serve_best)
        with guard_disk_writes(self.directory.output):
            return self._report(versions, self.clock.lap())

    def _look(self, curves: dict[str, Curves], *, last: bool = False) -> None:
        """Evaluate the result of the last trained round on held-out tasks, if that is due."""
        number = self.state.step
        if not self.looks.is_due(number, last=last):
            return
        self.clock.turn("rollout")
        look = self._run_on_bus(self._play_held_out)
        with guard_disk_writes(self.directory.output / "curves"):
            curves["rounds"].add(number, {"held out/solved": look.success})
        best = self.looks.best
        assert best is not None
        self.watch.say(
            f"round {number}: solves {look.success:.1%} of "
            f"{format_count(len(look.outcomes), 'held-out task')}; best: round {best.round} with "
            f"{best.success:.1%}"
        )

    async def _play_held_out(self, client: Client) -> Look:
        await self._publish(client)
        self.clock.turn("rollout")
        driver = RunDriver(client, self.watch.say)
        rollouts = Rollouts(
            client, self.settings, self.watch.rolled, driver, self.directory.training, looks=True
        )
        return await self.looks.look(rollouts, self.state.step)

    async def _serve_best(self, client: Client) -> dict[str, int]:
        """Let the deployment answer with the best version of all evaluations."""
        self.clock.turn("publish")
        return await serve_chosen(client.bus, self._publications(self._final), self.wait)

    @property
    def _final(self) -> int:
        """The round whose version is the loop's result."""
        best = self.looks.best
        return self.state.step if best is None else best.round

    def _future_version_count(self) -> int:
        """Number of versions that will still take room. When as many versions exist as are kept, a
        new one replaces the oldest, but is written before the oldest is removed."""
        there = [number for number, _ in self.directory.published_rounds()]
        remaining = self.settings.rounds - max(there, default=-1)
        return min(remaining, max(1, self.keeping.published - len(there)))

    def _raise_if_stopped(self) -> None:
        if self.asked_to_stop():
            raise KeyboardInterrupt

    def _round(self, number: int, curves: dict[str, Curves]) -> None:
        rolled = self._run_on_bus(partial(self._roll_out, number))
        self.clock.turn("train")
        self._report_broken(number, rolled)
        version = self._first_version() + number - 1
        batch = rolled.harvest.batch(version, self.settings.grpo.seed)
        try:
            turn = self.gpu.turn(self.policies.network.device, self.clock, self._raise_if_stopped)
            with turn, self.channel.hand_over_step(number, batch):
                policy_steps = self.learner.step(batch, self.settings.rate_of(number))
                self.ratios.write(number)
                # When a checkpoint marks a round as done, all processes have written their records
                # of it.
                self.channel.processes.wait()
        except NotFinite as error:
            lower = f"Lower --learning-rate ({self.settings.grpo.learning_rate:.1e})"
            raise NotFinite(
                f"round {number}: {error}. {lower}; {self._last_good_notice()}"
            ) from error
        step = self.learner.facts(batch, policy_steps)
        records = tuple(record for _, record in rolled.harvest.groups)
        runs = tuple(trajectory.run.id for trajectory in rolled.trajectories)
        self.directory.seal(SealedRound(round=number, runs=runs, groups=records))
        self._write(number, step)
        facts = facts_of_round(number, rolled, step, self.clock.lap())
        self.state = self.state.model_copy(
            update={"step": number, "history": (*self.state.history, facts)}
        )
        # Before the checkpoint: if that is never written, a resume withdraws the points.
        with guard_disk_writes(self.directory.output / "curves"):
            curves["rounds"].add(number, facts.curves())
            for name, drawn in step.curves().items():
                curves[name].add(number, drawn)
        with self.channel.gather("checkpoint"):
            save(self.work, self.state, self.policies)
        self.directory.forget_trajectories(number)
        self.watch.round(facts, self.settings.rounds)

    def _last_good_notice(self) -> str:
        """A notice of where the weights of the last trained round are."""
        number = self.state.step
        version = f"the result of round {number}" if number else "the initial version"
        return (
            f"{version} is the last good version: the deployment serves it, and it is in "
            f"{self.directory.published(number)}, from which --init-from can continue in another "
            "folder"
        )

    def _report_broken(self, number: int, rolled: RoundRollouts) -> None:
        """Report runs and groups without information, even if others of the round have some."""
        for reason, count, example in rolled.harvest.broken:
            self.watch.say(f"round {number}: left out {count:,} × {reason}, such as {example}")
        if cut := rolled.harvest.counts["truncated"]:
            self.watch.say(f"round {number}: left out {cut:,} × {TRUNCATED}")

    def _first_version(self) -> int:
        """The trainer's number of the first version. It is counted as the deployment counts, so
        that a training from its store has the same numbers."""
        return min(self.directory.served(0).versions[0].values())

    def _run_on_bus(self, phase: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Connect, and survive an outage of the bus: a phase that breaks off is started again and
        resumes where it was. Ctrl-C cancels it."""
        away: float | None = None
        while True:
            began = time.monotonic()
            self.clock.turn("wait")
            try:
                return asyncio.run(self._run_unless_stopped(phase))
            except UserError as error:
                raise TrainingError(f"loop: {error}") from error
            except BusUnavailable as error:
                now = time.monotonic()
                if away is None or now - began > PATIENCE_SECONDS:
                    # A phase that had worked for this long has met a new outage.
                    away = now
                    self.watch.say(f"waiting for the bus: {error}")
                if now - away > PATIENCE_SECONDS:
                    raise TrainingError(
                        f"loop: {error}. Then resume with the same command"
                    ) from error
                self._raise_if_stopped()
                time.sleep(RETRY_SECONDS)
            except BusError as error:
                raise TrainingError(f"loop: {error}") from error

    async def _run_unless_stopped(self, phase: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        async def connected() -> T:
            prompt_files = self.deployed.prompt_files
            async with Client.connect(
                self.deployed.bus, prompt_files=prompt_files, writes=True
            ) as client:
                return await phase(client)

        work = asyncio.create_task(connected())
        while not work.done():
            await asyncio.wait([work], timeout=LOOK_SECONDS)
            if not work.done() and self.asked_to_stop():
                work.cancel()
                await asyncio.wait([work])
                # Runs that were started continue without this process.
                raise KeyboardInterrupt
        return work.result()

    async def _publish(self, client: Client) -> dict[str, int]:
        """Let the deployment answer with the result of the last trained round."""
        self.clock.turn("publish")
        number = self.state.step
        versions = await serve(
            client.bus,
            self.directory,
            number,
            self._publications(number),
            self._publications(number - 1) if number else (),
            self.wait,
            self.watch.say,
        )
        best = self.looks.best
        best_round = None if best is None else best.round
        await retry_during_outage(
            "give up old versions",
            lambda: prune_old_versions(
                client.bus, self.directory, number, versions, self.keeping.published, best_round
            ),
            give_up_after=PUBLISH_SECONDS,
            where=client.bus.settings.safe_url,
        )
        return versions

    async def _roll_out(self, number: int, client: Client) -> RoundRollouts:
        versions = await self._publish(client)
        self.clock.turn("rollout")
        driver = RunDriver(client, self.watch.say)
        training = self.directory.training
        rollouts = Rollouts(client, self.settings, self.watch.rolled, driver, training)
        last = min(number + self.settings.rounds_ahead, self.settings.rounds)
        for ahead in range(number, last + 1):
            if not self.directory.waves(ahead):
                self._plan(ahead, 1, 0, self.settings.puzzles)
        for ahead in range(number, last + 1):
            for wave in self.directory.waves(ahead):
                if self.directory.trajectories(wave) is None:
                    await rollouts.begin(wave)
        rolled = RoundRollouts(RoundGroups((), ()), [], [], versions)
        for wave in self.directory.waves(number):
            await self._gather(rollouts, wave, rolled)
        while more := self._plan_further_batch(number, rolled):
            await rollouts.begin(more)
            await self._gather(rollouts, more, rolled)
        return rolled

    async def _gather(self, rollouts: Rollouts, wave: RolloutBatch, rolled: RoundRollouts) -> None:
        """Add a wave to the round's rollouts."""
        self.clock.turn("train")
        trajectories = self.directory.trajectories(wave)
        if trajectories is None:
            self.clock.turn("rollout")
            began = time.time()
            trajectories = await rollouts.collect(wave)
            if self.settings.asks:
                trajectories = judged(wave.runs, trajectories)
            collected = time.time()
            # They may have ended before the trainer waited for them.
            self.clock.count_as_waiting(
                collected - max(began, *(trajectory.ended for trajectory in trajectories))
            )
            self.clock.turn("train")
            self.directory.keep(wave, trajectories)
        rolled.waves.append(wave)
        rolled.trajectories += trajectories
        rolled.harvest = seal_round(
            rolled.trajectories,
            self.sealing,
            self.directory.rounds_by_version(wave.round - 1),
            first=self._first_version(),
            number=wave.round,
            settings=self.settings.grpo,
            learning=self.settings.learning(wave.round),
        )

    def _plan_further_batch(self, number: int, rolled: RoundRollouts) -> RolloutBatch | None:
        """A further wave if too few groups have a signal. Raises `TrainingError` if none has one
        and no further puzzle is left or allowed."""
        played = sum(wave.puzzles for wave in rolled.waves)
        counts = rolled.harvest.counts
        count = further_puzzles(self.settings, played=played, group_count=counts["trained"])
        bound = "--most-puzzles"
        if count > 0:
            try:
                return self._plan(number, len(rolled.waves) + 1, played, count)
            except TooFewPuzzles as error:
                # Existing groups are not discarded because further ones are unavailable.
                if counts["trained"] == 0:
                    raise
                bound = str(error)
        if counts["trained"] == 0:
            raise nothing_to_learn(self.settings, number, played, rolled.harvest)
        if counts["trained"] < self.settings.grpo.batch:
            self.watch.say(
                f"round {number}: {format_count(counts['trained'], 'group')} with a signal of "
                f"{self.settings.grpo.batch:,} wanted, after "
                f"{format_count(played, self.settings.noun)} ({bound})"
            )
        return None

    def _plan(self, number: int, wave: int, played: int, count: int) -> RolloutBatch:
        self.clock.turn("rollout")
        planned = plan_batch(
            self.settings, number, wave, played=played, count=count, questions=self.questions,
            shares=self.settings.shares([facts.levels for facts in self.state.history]),
            before=self.directory.levels_played(number),
        )  # fmt: skip
        self.directory.plan(planned)
        return planned

    def _publications(self, number: int) -> tuple[Publication, ...]:
        folder = self.directory.published(number)
        return publications(self.settings.grpo, self.settings.policies, folder)

    def _write(self, number: int, *steps: StepFacts) -> None:
        """Write the result of a round in the engines' format."""
        final = self.directory.published(number)
        all_steps = (*(round_facts.step for round_facts in self.state.history), *steps)
        facts_of = partial(
            PolicyFacts.of,
            settings=self.settings.grpo,
            version=all_steps[-1].version + 1 if all_steps else 0,
            steps=all_steps,
        )
        with self.channel.gather("policies"):
            write_policies(self.policies, final, facts_of)

    def _curves(self, name: str) -> Path:
        return self.directory.output / "curves" / folder_name(name)

    def _report(self, versions: dict[str, int], closing: Seconds) -> LoopReport:
        report = LoopReport(
            settings=self.settings,
            version=self._first_version() + self._final,
            served=versions,
            rounds=self.state.history,
            closing=closing,
            peak_memory_mb=peak_memory_mb(self.policies.network.device),
            parameters=self.policies.parameters,
            trained_parameters=self.policies.most_trained_parameters,
            looks=tuple(self.looks.directory.looks()),
            best=self.looks.best,
        )
        output = self.directory.output
        shutil.rmtree(output / POLICIES, ignore_errors=True)
        shutil.copytree(self.directory.published(self._final), output / POLICIES)
        write_atomic(output / PAGE, render(report))
        write_page(output / REPORT, report)
        forget_work(self.work)
        return report
