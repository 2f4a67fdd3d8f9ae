"""One stream of instructions: the team plays, the world's verifier judges, unsolved instructions go
to the big model, the loop runs its rounds, and the team is measured.

    FOLDER/settings.json     the stream's settings
    FOLDER/admitted.jsonl    the ids of each instruction's runs, before the bus hears of them
    FOLDER/served.jsonl      the result of each instruction
    FOLDER/looks.jsonl       after which instructions it was checked whether a round is due
    FOLDER/attacks.jsonl     attacks on the deployment, batch by batch
    FOLDER/cpu.jsonl         CPU seconds of each sitting
    FOLDER/deployment/       see `loopline.bench.improve.deployment`
    FOLDER/loop/             see `loopline.trainers.improve.team`
    FOLDER/alone/            the team's own runs on the held-out instructions
    FOLDER/result.json       the source of all figures, once the stream is complete
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from loopline.agents.environments.api_worlds import Instance
from loopline.agents.records import Record, Trajectory
from loopline.agents.usage import UsageEntry
from loopline.bench.append_log import read_log
from loopline.bench.improve.deployment import StreamDeployment
from loopline.bench.improve.profiles import BIG, team_profile
from loopline.bench.improve.sitting import (
    SERVED,
    Timed,
    admitted_runs,
    attack_counts,
    play_once,
    serve_in_batches,
    serve_under_attack,
    served_before_rounds,
    until_recorded,
)
from loopline.bench.improve.worlds.big_team import BigTeam
from loopline.bench.improve.worlds.instructions import (
    OLD_KIND,
    Instructions,
    draw_instructions,
    is_kept_back,
    kind_of,
)
from loopline.bench.improve.worlds.lessons import lessons_of
from loopline.bench.improve.worlds.playing import (
    Played,
    is_lost,
    is_solved,
    new_run,
    play,
)
from loopline.bench.improve.worlds.settings import WorldsSettings
from loopline.runtime.client.client import Client
from loopline.runtime.observe.cost_words import format_dollars
from loopline.runtime.run_driver import RunDriver
from loopline.trainers.data.datasets import DataSet
from loopline.trainers.improve.team import TeamDecision, TeamLoop, Trial


class ServedInstruction(Record):
    """Result of an instruction."""

    index: int
    run: str
    """Run that solved the instruction; the last run if none did."""
    kind: str
    kept_back: bool
    right: bool
    """Whether the team or the big model solved the instruction."""
    accepted: bool
    """Whether the team solved the instruction."""
    altered: bool
    """Whether the instruction is unsolved although the big model followed the oracle's way."""
    lost: int
    """Number of interrupted runs."""
    micro_dollars: int


class WorldsResult(Timed):
    """Result of one seed."""

    settings: WorldsSettings
    questions: tuple[ServedInstruction, ...]
    rounds: tuple[tuple[int, TeamDecision], ...]
    """Rounds, each with the number of instructions served before it."""
    new_before: tuple[bool, ...]
    """Whether the pool's own model solves each held-out instruction of the new kinds."""
    new_after: tuple[bool, ...]
    """The same for the version that serves at the end."""
    old_before: tuple[bool, ...]
    """The same for the old kinds."""
    old_after: tuple[bool, ...]
    poisoned: TeamDecision | None
    """Decision on the batch with swapped steps."""
    serving_at_end: str
    attacks: dict[str, int]
    """Number of attacks on the deployment while it served, by name."""
    lost: int
    """Number of runs without a regular end, plus instructions that were not served."""
    altered: int
    """Number of instructions that the big model did not solve although it follows the oracle's
    way."""


def play_stream(folder: Path, settings: WorldsSettings, say: Callable[[str], None]) -> WorldsResult:
    """Resume the stream in `folder`, or start it. Raises `FixableError`s."""
    return play_once(folder, settings, WorldsResult, lambda: _play(folder, settings, say))


def _play(
    folder: Path, settings: WorldsSettings, say: Callable[[str], None]
) -> tuple[WorldsResult, float]:
    instructions = draw_instructions(settings)
    big = BigTeam(instructions, settings.accuracy)
    deployment = StreamDeployment(
        folder / "deployment",
        lambda url: team_profile(settings.loop, settings.prices, url),
        big.reply,
        settings.attack_every,
    )
    with deployment:
        stream = _Stream(folder, settings, instructions, big, deployment, say)
        result = asyncio.run(stream.run())
    return result, deployment.uncounted_seconds


class _Trials:
    """Plays the stream's kept-back instructions, and those of the guard."""

    def __init__(self, stream: _Stream, client: Client) -> None:
        self._stream = stream
        self._client = client

    async def play(self, version: str, pin: str) -> Trial:
        new = await self._stream.play(
            self._client, pin, self._stream.kept_back(), f"{version}-new", "loop/trials"
        )
        old = await self._stream.play(
            self._client, pin, self._stream.guard, f"{version}-old", "loop/trials"
        )
        return Trial(
            new=[entry.solved for entry in new],
            old=[entry.solved for entry in old],
            micro_dollars=sum(entry.micro_dollars for entry in (*new, *old)),
        )


class _Stream:
    def __init__(
        self,
        folder: Path,
        settings: WorldsSettings,
        instructions: Instructions,
        big: BigTeam,
        deployment: StreamDeployment,
        say: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._instructions = instructions
        self._big = big
        self._deployment = deployment
        self._say = say

    @property
    def guard(self) -> tuple[Instance, ...]:
        return self._instructions.guard

    def kept_back(self) -> tuple[Instance, ...]:
        """Served instructions on which versions are compared."""
        results = self._results()
        return tuple(
            self._instructions.stream[index]
            for index in sorted(results)
            if results[index].kept_back
        )

    async def play(
        self,
        client: Client,
        policy: str,
        instances: tuple[Instance, ...],
        name: str,
        folder: str = "alone",
    ) -> list[Played]:
        """Play instructions: see `loopline.bench.improve.worlds.playing.play`."""
        path = self._folder / folder / f"{name}.jsonl"
        return await play(client, policy, instances, path, self._say)

    async def run(self) -> WorldsResult:
        settings = self._settings
        async with Client.of(self._deployment.settings) as client:
            loop = TeamLoop(
                settings.loop,
                self._folder / "loop",
                client=client,
                trials=_Trials(self, client),
                say=self._say,
            )
            await serve_in_batches(
                self._folder,
                settings.questions,
                settings.batch,
                lambda indices: self._serve(client, indices),
                lambda noted: self._run_due_round(loop, noted),
            )
            return await self._measure(client, loop)

    async def _run_due_round(self, loop: TeamLoop, noted: Collection[int | None]) -> int | None:
        """Run a round if one is due, and return its number; return that of an earlier round first
        if it ended without being `noted`."""
        for decision in loop.decisions():
            if decision.number not in noted:
                return decision.number
        runs = await self._lessons()
        if not loop.is_due(len(runs)):
            return None
        decision = await loop.run_round(len(runs), lambda: self._data(runs, loop))
        return decision.number

    async def _lessons(self) -> frozenset[str]:
        """Return the runs that solved an instruction from which a version may learn, once all are
        in the store."""
        results = self._results().values()
        runs = frozenset(entry.run for entry in results if entry.right and not entry.kept_back)
        await until_recorded(self._deployment.store, runs)
        return runs

    def _data(self, runs: frozenset[str], loop: TeamLoop, *, swapped: bool = False) -> DataSet:
        settings = self._settings
        # Each round has different instructions, to cover more of the team's first training.
        number = len(loop.decisions()) + 1
        return lessons_of(
            self._deployment.store,
            runs,
            rehearsal=0 if swapped else settings.rehearsal,
            new_share=settings.new_share,
            seed=1_000 * settings.seed + number,
            swapped=swapped,
        )

    async def _measure(self, client: Client, loop: TeamLoop) -> WorldsResult:
        settings, instructions = self._settings, self._instructions
        rounds = served_before_rounds(self._folder)
        decisions = loop.decisions()
        promoted = any(entry.promoted for entry in decisions if entry.number in rounds)
        new_before = await self._alone(client, settings.loop.pool, "new-before", instructions.new)
        old_before = await self._alone(client, settings.loop.pool, "old-before", instructions.old)
        new_after, old_after = new_before, old_before
        if promoted:
            # Measured before the poisoned round, whose candidate must not affect these figures.
            policy = settings.loop.policy
            new_after = await self._alone(client, policy, "new-after", instructions.new)
            old_after = await self._alone(client, policy, "old-after", instructions.old)
        poisoned = None
        if settings.poison:
            done = [entry for entry in decisions if entry.number not in rounds]
            runs = await self._lessons()
            self._say(f"a poisoned batch: {len(runs):,} lessons with swapped steps")
            poisoned = (
                done[0]
                if done
                else await loop.run_round(len(runs), lambda: self._data(runs, loop, swapped=True))
            )
        results = self._results()
        return WorldsResult(
            settings=settings,
            questions=tuple(results[index] for index in sorted(results)),
            rounds=tuple((rounds[d.number], d) for d in decisions if d.number in rounds),
            new_before=new_before,
            new_after=new_after,
            old_before=old_before,
            old_after=old_after,
            poisoned=poisoned,
            serving_at_end=loop.serving,
            attacks=attack_counts(self._folder),
            lost=sum(entry.lost for entry in results.values()) + settings.questions - len(results),
            altered=sum(entry.altered for entry in results.values()),
            cpu_seconds=0.0,
        )

    async def _alone(
        self, client: Client, policy: str, name: str, instances: tuple[Instance, ...]
    ) -> tuple[bool, ...]:
        played = await self.play(client, policy, instances, name)
        solved = tuple(entry.solved for entry in played)
        self._say(f"the team alone, {name}: {sum(solved) / len(solved):.1%} of {len(solved):,}")
        return solved

    async def _serve(self, client: Client, indices: range) -> None:
        results = self._results()
        if all(index in results for index in indices):
            return
        driver = RunDriver(client, self._say)
        with admitted_runs(self._folder) as runs:

            async def ask(index: int) -> ServedInstruction:
                first, second = runs.run_id(str(index)), runs.run_id(f"{index} escalated")
                return await self._ask(client, driver, index, first, second)

            attacked = self._deployment.attacked(self._settings.seed, f"from {indices.start}")
            await serve_under_attack(self._folder, indices, attacked, ask)
        self._say(self._words(indices))

    async def _ask(
        self, client: Client, driver: RunDriver, index: int, first: str, second: str
    ) -> ServedInstruction:
        """Ask the team, then the big model if the team fails."""
        instance = self._instructions.stream[index]
        tags = {"kind": kind_of(instance)}

        async def finish(run_id: str, policy: str | None) -> tuple[Trajectory, list[UsageEntry]]:
            return await driver.finish(
                lambda: new_run(client, instance, policy, tags=tags, run_id=run_id)
            )

        run, (trajectory, usage) = first, await finish(first, None)
        accepted = solved = is_solved(trajectory, instance)
        lost, spent = int(is_lost(trajectory)), [*usage]
        altered = False
        if not accepted:
            run, (trajectory, usage) = second, await finish(second, BIG)
            solved = is_solved(trajectory, instance)
            lost += is_lost(trajectory)
            altered = not solved and self._big.is_sure(instance)
            spent += usage
        return ServedInstruction(
            index=index,
            run=run,
            kind=tags["kind"],
            kept_back=is_kept_back(instance, self._settings),
            right=solved,
            accepted=accepted,
            altered=altered,
            lost=lost,
            micro_dollars=sum(entry.cost_micro_dollars or 0 for entry in spent),
        )

    def _words(self, indices: range) -> str:
        results = self._results()
        batch = [results[index] for index in indices]
        new = [entry for entry in batch if entry.kind != OLD_KIND]
        old = [entry for entry in batch if entry.kind == OLD_KIND]
        dollars = sum(entry.micro_dollars for entry in batch) / len(batch) / 1e6

        def by_team(part: list[ServedInstruction]) -> str:
            return f"{sum(entry.accepted for entry in part)} of {len(part)}"

        return (
            f"instructions {indices.start + 1:,}–{indices.stop:,}: the team alone solved "
            f"{by_team(new)} new ones and {by_team(old)} of old kinds; "
            f"{sum(entry.right for entry in batch) / len(batch):.1%} solved, "
            f"{format_dollars(dollars)} each"
        )

    def _results(self) -> dict[int, ServedInstruction]:
        return {
            line["index"]: ServedInstruction.model_validate(line)
            for _, line in read_log(self._folder / SERVED)
        }
