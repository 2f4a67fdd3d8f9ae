"""One stream: it serves questions, runs the loop's rounds, and measures the small model.

    FOLDER/settings.json     the stream's settings
    FOLDER/admitted.jsonl    the id of each question's run, before the bus hears of it
    FOLDER/served.jsonl      the result of each question
    FOLDER/looks.jsonl       after which questions it was checked whether a round is due
    FOLDER/cpu.jsonl         CPU seconds of each sitting
    FOLDER/attacks.jsonl     attacks on the deployment, batch by batch
    FOLDER/deployment/       see `loopline.bench.improve.deployment`
    FOLDER/loop/             see `loopline.trainers.improve.loop`
    FOLDER/alone/            the small model's own answers to the held-out questions
    FOLDER/result.json       the source of all figures, once the stream is complete

Every line is on disk before its consequences happen, so a killed stream resumes with the same
question and round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from loopline.agents.answers import last_boxed, parse_number
from loopline.agents.environments.word_problems import WordProblem
from loopline.agents.records import JsonObject, Outcome, Record, Trajectory
from loopline.agents.router.router import Router
from loopline.agents.usage import UsageEntry
from loopline.agents.workflows.cascade import is_audited
from loopline.bench.append_log import read_log
from loopline.bench.improve.big_model import BigModel
from loopline.bench.improve.deployment import StreamDeployment
from loopline.bench.improve.poison import write_swapped_store
from loopline.bench.improve.problems import Questions, draw_questions, kind_of
from loopline.bench.improve.profiles import cascade_profile
from loopline.bench.improve.settings import StreamSettings
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
from loopline.runtime.client.client import Client
from loopline.runtime.observe.cost_words import format_dollars
from loopline.runtime.run_driver import RunDriver
from loopline.trainers.core.json_records import find_record
from loopline.trainers.improve.asking import ask_small
from loopline.trainers.improve.loop import Decision, ImprovementLoop

_ENDS = (Outcome.ANSWERED, Outcome.SOLVED, Outcome.FAILED)
KIND = "kind"


class Served(Record):
    """Result of a question."""

    index: int
    run: str
    kind: str
    outcome: Outcome
    right: bool
    accepted: bool
    """Whether the small model's answer became the run's answer."""
    audited: bool
    micro_dollars: int
    unpriced: int = 0
    """Number of calls of unknown cost, because their worker was killed."""


class StreamResult(Timed):
    """Result of one seed."""

    settings: StreamSettings
    questions: tuple[Served, ...]
    rounds: tuple[tuple[int, Decision], ...]
    """Rounds, each with the number of questions served before it."""
    before: tuple[bool, ...]
    """Whether the pool's own model answers each held-out question correctly."""
    after: tuple[bool, ...]
    """The same for the version that serves at the end."""
    poisoned: Decision | None
    """Decision on the batch with swapped labels."""
    serving_at_end: str
    attacks: dict[str, int]
    """Number of attacks on the deployment while it served, by name."""
    lost: int
    """Number of questions whose run has no answer."""
    altered: int
    """Number of big-model answers that differ from the endpoint's answer to the same question."""


def play(folder: Path, settings: StreamSettings, say: Callable[[str], None]) -> StreamResult:
    """Resume the stream in `folder`, or start it. Raises `FixableError`s."""
    return play_once(folder, settings, StreamResult, lambda: _play(folder, settings, say))


def _play(
    folder: Path, settings: StreamSettings, say: Callable[[str], None]
) -> tuple[StreamResult, float]:
    questions = draw_questions(settings.seed, settings.questions, settings.held_out)
    problems = (*questions.stream, *questions.held_out)
    big = BigModel(problems, settings.accuracy, settings.seed)
    deployment = StreamDeployment(
        folder / "deployment",
        lambda url: cascade_profile(settings, url),
        big.reply,
        settings.attack_every,
    )
    with deployment:
        stream = _Stream(folder, settings, questions, big, deployment, say)
        result = asyncio.run(stream.run())
    return result, deployment.uncounted_seconds


class _Stream:
    def __init__(
        self,
        folder: Path,
        settings: StreamSettings,
        questions: Questions,
        big: BigModel,
        deployment: StreamDeployment,
        say: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._questions = questions
        self._big = big
        self._deployment = deployment
        self._say = say
        self._router = (folder / "cascade.router.json").resolve()

    async def run(self) -> StreamResult:
        settings = self._settings
        async with Client.of(self._deployment.settings) as client:
            loop = ImprovementLoop(
                settings.loop,
                self._folder / "loop",
                client=client,
                store=self._deployment.store,
                router=self._router,
                judge=self._judge,
                say=self._say,
            )

            async def look(noted: Collection[int | None]) -> int | None:
                ended = [d for d in loop.decisions() if d.number not in noted]
                decision = ended[0] if ended else await loop.look()
                return None if decision is None else decision.number

            await serve_in_batches(
                self._folder,
                settings.questions,
                settings.batch,
                lambda indices: self._serve(client, indices),
                look,
            )
            return await self._measure(client, loop)

    async def _measure(self, client: Client, loop: ImprovementLoop) -> StreamResult:
        settings = self._settings
        rounds = served_before_rounds(self._folder)
        decisions = loop.decisions()
        promoted = [d for d in decisions if d.promoted and d.number in rounds]
        end_version = promoted[-1].serving if promoted else None
        before = await self._alone(client, settings.loop.pool, "before")
        # Measured before the poisoned round, whose candidate must not affect this figure.
        after = (
            before
            if end_version is None
            else await self._alone(client, settings.loop.policy, "after")
        )
        poisoned = None
        if settings.poison:
            swapped_store = self._folder / "poisoned"
            count = await write_swapped_store(self._deployment.store, swapped_store)
            self._say(f"a poisoned batch: {count:,} escalations with swapped answers")
            done = [d for d in decisions if d.number not in rounds]
            poisoned = done[0] if done else await loop.run_round(examples=swapped_store)
        results = self._results()
        return StreamResult(
            settings=settings,
            questions=tuple(results[index] for index in sorted(results)),
            rounds=tuple((rounds[d.number], d) for d in decisions if d.number in rounds),
            before=before,
            after=after,
            poisoned=poisoned,
            serving_at_end=loop.serving,
            attacks=attack_counts(self._folder),
            lost=sum(entry.outcome not in _ENDS for entry in results.values())
            + settings.questions
            - len(results),
            altered=sum(map(self._is_altered, results.values())),
            cpu_seconds=0.0,
        )

    async def _alone(self, client: Client, policy: str, name: str) -> tuple[bool, ...]:
        problems = self._questions.held_out
        prompts = {problem.id: (problem.prompt, {}) for problem in problems}
        path = self._folder / "alone" / f"{name}.jsonl"
        answers = await ask_small(client, policy, prompts, path, say=self._say)
        return tuple(_is_right(answers[problem.id].text, problem) for problem in problems)

    async def _serve(self, client: Client, indices: range) -> None:
        results = self._results()
        if all(index in results for index in indices):
            return
        options: JsonObject = {"router": str(self._router), "audit": self._audit_share()}
        driver = RunDriver(client, self._say)
        with admitted_runs(self._folder) as runs:

            async def ask(index: int) -> Served:
                problem = self._questions.stream[index]
                run_id = runs.run_id(str(index))
                trajectory, usage = await driver.finish(
                    lambda: client.new_run(
                        problem.prompt,
                        workflow="cascade",
                        options=options,
                        tags={KIND: kind_of(problem)},
                        run_id=run_id,
                    )
                )
                return _served(index, problem, trajectory, usage)

            attacked = self._deployment.attacked(self._settings.seed, f"from {indices.start}")
            await serve_under_attack(self._folder, indices, attacked, ask)
        self._say(self._words(indices))
        ended = {entry.run for entry in self._results().values()}
        await until_recorded(self._deployment.store, ended)

    def _words(self, indices: range) -> str:
        results = self._results()
        batch = [results[index] for index in indices]
        dollars = sum(entry.micro_dollars for entry in batch) / len(batch) / 1e6
        right = sum(entry.right for entry in batch) / len(batch)
        accepted = sum(entry.accepted for entry in batch) / len(batch)
        return (
            f"questions {indices.start + 1:,}–{indices.stop:,}: {right:.1%} right, "
            f"{accepted:.1%} by the small model, {format_dollars(dollars)} each"
        )

    def _is_altered(self, entry: Served) -> bool:
        if entry.accepted or entry.outcome not in _ENDS:
            return False
        return entry.right != self._big.is_right(self._questions.stream[entry.index])

    def _results(self) -> dict[int, Served]:
        return {
            line["index"]: Served.model_validate(line)
            for _, line in read_log(self._folder / SERVED)
        }

    def _audit_share(self) -> float:
        """Share of runs to audit. An audit costs money only if the small answer is accepted, so a
        higher acceptance rate means fewer audits."""
        router = find_record(self._router, Router)
        accepted = 0.0
        if router is not None and router.threshold is not None:
            accepted = router.guarantee.accepted / max(1, router.guarantee.calibration)
        early, late = self._settings.early_audit, self._settings.audit
        return early + (late - early) * accepted

    def _judge(self, question: str, answer: str) -> bool | None:
        gold = self._questions.answers.get(question)
        return None if gold is None else _matches(answer, gold)


def _served(
    index: int, problem: WordProblem, trajectory: Trajectory, usage: Sequence[UsageEntry]
) -> Served:
    answer = trajectory.answer or ""
    number = parse_number(answer)
    return Served(
        index=index,
        run=trajectory.run.id,
        kind=kind_of(problem),
        outcome=trajectory.outcome,
        right=number is not None and number.value == int(problem.answer),
        accepted=len(trajectory.steps) == 1,
        audited=is_audited(trajectory.run),
        micro_dollars=sum(entry.cost_micro_dollars or 0 for entry in usage),
        unpriced=sum(entry.cost_micro_dollars is None for entry in usage),
    )


def _is_right(text: str, problem: WordProblem) -> bool:
    return _matches(text, problem.answer)


def _matches(text: str, gold: str) -> bool:
    number = parse_number(last_boxed(text) or "")
    return number is not None and number.value == int(gold)
