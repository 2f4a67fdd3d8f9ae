"""Searches in this process: real roles, workflows and the scripted engine, no bus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loopline.agents.prompts import parse_replacement_prompt, prompt_in
from loopline.agents.records import Task
from loopline.trainers.data.questions import Question, Questions
from loopline.trainers.prompts.candidates import Candidate, current_candidate
from loopline.trainers.prompts.playing import FinishedRun, Player, RunLog
from loopline.trainers.prompts.search import Search, SearchResult
from loopline.trainers.prompts.settings import CandidateFile, SearchSettings
from loopline.workers.engines.settings import ModelSettings
from tests.bench.local_client import LocalClient

NO_IDEA = "I have no idea."
SOLO = prompt_in("mathematics", "solo")


def client(heeds: Sequence[Mapping[str, object]] = (), **scripted: object) -> LocalClient:
    """A deployment whose pool `llm` obeys these phrases."""
    model = ModelSettings.model_validate(
        {
            "engine": "scripted",
            "model": "scripted-llm",
            "scripted": {"heeds": list(heeds), **scripted},
        }
    )
    return LocalClient({"llm": model})


@dataclass
class Watched:
    """A watch that remembers."""

    messages: list[str] = field(default_factory=list[str])
    runs: int = 0
    expected: int = 0

    def planned(self, runs: int) -> None:
        self.expected += runs

    def ended(self, played: FinishedRun) -> None:
        self.runs += 1

    def say(self, text: str) -> None:
        self.messages.append(text)


def variant(label: str, text: str, *, name: str = "solo") -> Candidate:
    content = f"---\nname: {name}\nversion: 2\n---\n{text}\n"
    return Candidate(
        label, f"{label}.md", parse_replacement_prompt(content, name, origin=label), content
    )


def sums(train: int, held_out: int) -> Questions:
    """Questions that the scripted engine answers correctly under any prompt."""

    def one(at: int) -> Question:
        a, b = at + 3, 2 * at + 5
        return Question(id=str(at), task=Task(prompt=f"What is {a} * {b}?"), gold=str(a * b))

    questions = [one(at) for at in range(train + held_out)]
    return Questions("sums", "answer", tuple(questions[:train]), tuple(questions[train:]))


def log_in(folder: Path) -> RunLog:
    folder.mkdir(exist_ok=True)
    return RunLog(folder)


async def searched(
    folder: Path,
    deployment: LocalClient,
    variants: Sequence[Candidate],
    *,
    questions: Questions | None = None,
    watch: Watched | None = None,
    concurrency: int = 8,
    **changes: object,
) -> SearchResult:
    """A search for the prompt of `solo`, which resumes from the folder."""
    candidates = {"solo": [current_candidate(SOLO, None), *variants]}
    question_set = questions or sums(40, 20)
    settings = SearchSettings.model_validate(
        {
            "workflow": "solo",
            "options": {"prompts": "mathematics"},
            "policies": {"solo": "llm"},
            "models": {"llm": "scripted:scripted-llm"},
            "prompts": {
                name: tuple(
                    CandidateFile(label=variant.label, hash=variant.hash)
                    for variant in prompt_variants
                )
                for name, prompt_variants in candidates.items()
            },
            "source": question_set.source,
            "questions_sha256": question_set.sha256,
            "runs": 24,
            "held_out": len(question_set.held_out),
            **changes,
        }
    )
    watched = watch or Watched()
    with log_in(folder) as log:
        player = Player(
            deployment,
            log,
            watched,
            workflow="solo",
            options=settings.options,
            policies=settings.policies,
            seed=settings.seed,
            run_seconds=60.0,
            concurrency=concurrency,
        )
        return await Search(settings, question_set, candidates, {}, player, watched).run()
