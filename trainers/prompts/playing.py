"""Runs of a search on the running deployment, each paid for once.

A run's id is on disk before the run is sent to the bus, so a killed search requests the same run
again when it resumes: the bus returns the existing run, or admits it now. Ended runs are in the log
and are not requested again.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, Self

from pydantic import TypeAdapter, ValidationError

from loopline.agents.answers import final_text
from loopline.agents.records import Budget, JsonObject, Outcome, Record, Run, Trajectory
from loopline.agents.usage import deduplicate_usage
from loopline.agents.workflows import prompt_hashes
from loopline.bus import tasks
from loopline.runtime.append_log import AppendLog, damaged_line_message, read_log
from loopline.runtime.client.run_client import RunClient
from loopline.runtime.run_driver import RunDriver, lapsed, seed_of
from loopline.trainers.data.questions import Question, fault
from loopline.trainers.errors import TrainingError
from loopline.trainers.prompts.proposals import WRITER

LOG = "runs.jsonl"

MAX_TEXT = 2_000
"""Most characters kept of an answer or a fault."""

Key = tuple[str, str]
"""Key of a request to a deployment: a digest of all prompts in use, and a question's id. For a
proposal: the name of the prompt, and its number."""


class RunAdmission(Record):
    """A run that is about to be sent to the bus."""

    type: Literal["admitted"] = "admitted"
    key: Key
    run_id: str


class ExpiredRun(Record):
    """A run whose time ran out while the search was not waiting for it. It contains no information
    on a prompt, so it is requested again; its cost still counts."""

    type: Literal["lapsed"] = "lapsed"
    key: Key
    run_id: str
    tokens: int
    micro_dollars: int


class FinishedRun(Record):
    """A run that ended."""

    type: Literal["played"] = "played"
    key: Key
    run_id: str
    fault: str
    """The fault in the answer; empty if the question is solved. A proposal solves none."""
    outcome: Outcome
    reason: str
    answer: str
    """Whole answer of a proposal, otherwise its beginning."""
    cut: bool
    """Whether the last completion reached its token limit."""
    by: str
    """Policy and version that wrote a proposal."""
    tokens: int
    micro_dollars: int

    @property
    def solved(self) -> bool:
        return not self.fault


_RECORD: TypeAdapter[RunAdmission | ExpiredRun | FinishedRun] = TypeAdapter(
    RunAdmission | ExpiredRun | FinishedRun
)


class RunLog:
    """The runs of one output folder. A context manager; the folder's lock ensures a single
    writer."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOG
        self._log = AppendLog(self.path, resume="the same command", failure=TrainingError)
        self.admitted: dict[Key, str] = {}
        """Ids of the runs that have not ended."""
        self.played: dict[Key, FinishedRun] = {}
        self._lapsed: dict[Key, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        """Open the log. Raises `TrainingError` for a damaged line."""
        self._read()
        self._log.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    @property
    def notice(self) -> str | None:
        """A notice of lines that had to be dropped to open the log."""
        return self._log.notice

    async def note(self, record: RunAdmission | ExpiredRun | FinishedRun) -> None:
        """Add a record; it is on disk when this returns."""
        self._log.append(record.model_dump(mode="json"))
        await asyncio.to_thread(self._log.sync)
        self._apply_record(record)

    def lapsed(self, key: Key) -> tuple[int, int]:
        """Tokens and micro-dollars of the runs that lapsed."""
        return self._lapsed.get(key, (0, 0))

    def _read(self) -> None:
        for number, line in read_log(self.path, TrainingError):
            try:
                self._apply_record(_RECORD.validate_python(line))
            except ValidationError as error:
                why = error.errors(include_url=False)[0]["msg"]
                raise TrainingError(damaged_line_message(self.path, number, why)) from error

    def _apply_record(self, record: RunAdmission | ExpiredRun | FinishedRun) -> None:
        match record:
            case RunAdmission():
                self.admitted[record.key] = record.run_id
            case ExpiredRun():
                self.admitted.pop(record.key, None)
                tokens, money = self.lapsed(record.key)
                self._lapsed[record.key] = (
                    tokens + record.tokens,
                    money + record.micro_dollars,
                )
            case FinishedRun():
                self.played[record.key] = record


class RunListener(Protocol):
    """Callbacks that report progress."""

    def planned(self, runs: int) -> None:
        """`runs` further runs will be played."""
        ...

    def ended(self, played: FinishedRun) -> None: ...

    def say(self, text: str) -> None: ...


class Player:
    """Plays runs, `concurrency` at a time, and counts their usage: each run once, even if it serves
    several comparisons."""

    def __init__(
        self,
        client: RunClient,
        log: RunLog,
        watch: RunListener,
        *,
        workflow: str,
        options: JsonObject,
        policies: Mapping[str, str],
        seed: int,
        run_seconds: float,
        concurrency: int,
    ) -> None:
        self._client = client
        self._log = log
        self._watch = watch
        self._driver = RunDriver(client, watch.say)
        self._workflow = workflow
        self._options = options
        self._policies = dict(policies)
        self._seed = seed
        self._run_seconds = run_seconds
        self._places = asyncio.Semaphore(concurrency)
        self._began = time.time()
        self._counted: set[Key] = set()
        self.runs = 0
        self.tokens = 0
        self.micro_dollars = 0

    async def play(
        self, files: Mapping[str, str], questions: Sequence[Question]
    ) -> tuple[FinishedRun, ...]:
        """Play every question once, with these prompt files in place of the shipped ones; in order.

        Raises `BusUnavailable` if the bus stays away; ended runs are in the log.
        """
        environment = questions[0].task.environment if questions else None
        hashes = sorted(prompt_hashes(self._workflow, files, environment, self._options).items())
        digest = hashlib.sha256(repr(hashes).encode()).hexdigest()[:16]

        def run(question: Question, run_id: str | None) -> Run:
            task = question.task
            return self._client.new_run(
                task.prompt,
                workflow=self._workflow,
                policies=self._policies,
                options=self._options,
                seed=seed_of(self._seed, question.id),
                budget=Budget(seconds=self._run_seconds),
                tags={"train": "prompts", "question": question.id},
                environment=task.environment,
                instance=task.instance,
                run_id=run_id,
                prompt_files=files,
            )

        working = [
            asyncio.create_task(
                self._play_once(
                    (digest, question.id),
                    lambda run_id, question=question: run(question, run_id),
                    lambda ended, question=question: fault(question, ended),
                )
            )
            for question in questions
        ]
        try:
            return tuple(await asyncio.gather(*working))
        finally:
            await tasks.end(working)

    async def propose(self, prompt: str, number: int, policy: str, request: str) -> FinishedRun:
        """The answer of `policy` to a proposer's request."""

        def run(run_id: str | None) -> Run:
            return self._client.new_run(
                request,
                workflow="completion",
                policies={"completion": policy},
                options={"prompt": WRITER},
                seed=seed_of(self._seed, f"{prompt}/{number}"),
                budget=Budget(seconds=self._run_seconds),
                tags={"train": "prompts", "proposal": prompt},
                run_id=run_id,
            )

        return await self._play_once(
            (prompt, str(number)), run, lambda ended: "no question", whole=True
        )

    async def _play_once(
        self,
        key: Key,
        make: Callable[[str | None], Run],
        judge: Callable[[Trajectory], str],
        *,
        whole: bool = False,
    ) -> FinishedRun:
        played = self._log.played.get(key)
        if played is None:
            async with self._places:
                played = await self._play(key, make, judge, whole)
        if key not in self._counted:
            self._counted.add(key)
            self.runs += 1
            self.tokens += played.tokens
            self.micro_dollars += played.micro_dollars
            self._watch.ended(played)
        return played

    async def _play(
        self,
        key: Key,
        make: Callable[[str | None], Run],
        judge: Callable[[Trajectory], str],
        whole: bool,
    ) -> FinishedRun:
        admission = self._log.admitted.get(key)
        run = make(admission)
        if admission is None:
            await self._log.note(RunAdmission(key=key, run_id=run.id))
        ended, entries = await self._driver.finish(lambda: make(run.id))
        calls = deduplicate_usage(entries)
        tokens = sum(call.usage.prompt + call.usage.completion for call in calls if call.usage)
        # A call without known usage counts as the most that it can have cost.
        money = sum(
            call.unknown.micro_dollars if call.unknown else call.cost_micro_dollars or 0
            for call in calls
        )
        if admission and lapsed(ended, self._began):
            await self._log.note(
                ExpiredRun(key=key, run_id=run.id, tokens=tokens, micro_dollars=money)
            )
            return await self._play(key, make, judge, whole)
        wrong = await asyncio.to_thread(judge, ended)
        lapsed_tokens, lapsed_money = self._log.lapsed(key)
        calls = ended.steps[-1].calls if ended.steps else ()
        answer = (final_text(ended) if whole else ended.answer) or ""
        played = FinishedRun(
            key=key,
            run_id=run.id,
            fault=wrong[:MAX_TEXT],
            outcome=ended.outcome,
            reason=(ended.reason or "")[:MAX_TEXT],
            answer=answer if whole else answer[:MAX_TEXT],
            cut=bool(calls) and calls[-1].finish_reason == "length",
            by=f"{calls[-1].policy.name} version {calls[-1].policy.version}" if calls else "",
            tokens=tokens + lapsed_tokens,
            micro_dollars=money + lapsed_money,
        )
        await self._log.note(played)
        return played
