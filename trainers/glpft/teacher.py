"""A model that judges, token by token, what another model has written. It is run by an engine in
this process, or by a vLLM server, which returns the log-probabilities of prompts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from loopline.trainers.core.background_loop import BackgroundLoop
from loopline.trainers.errors import TrainingError
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.local.model_files import find_text_folder
from loopline.workers.engines.local.model_text import ModelText, read_text_files
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings, VllmSettings

WAIT_SECONDS = 30.0
"""Seconds that a server has for its first answer."""


class Teacher:
    """Context manager within which the teacher's engine runs, in its own event loop."""

    def __init__(self, model: str, url: str | None = None) -> None:
        """`model`: a folder, a hub id or a micro model; with `url` it is served there, and only its
        tokenizer is read here. Raises `TrainingError` for an invalid address."""
        if url is None:
            self._settings = ModelSettings(engine="torch", model=model)
            return
        try:
            self._settings = ModelSettings(
                engine="vllm", model=model, base_url=url,
                vllm=VllmSettings(start_seconds=WAIT_SECONDS),
            )  # fmt: skip
        except ValidationError as error:
            why = error.errors(include_url=False)[0]["msg"]
            raise TrainingError(f"--teacher-url {url}: {why}") from error

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._loop = stack.enter_context(BackgroundLoop())
            try:
                self._engine = build_engine(self._settings)
                self._loop.run(self._engine.start())
            except EngineError as error:
                raise TrainingError(f"the teacher can't be used: {error}") from error
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        with self._open:
            self._loop.run(self._engine.close())

    def require_vocabulary_of(self, student: ModelText) -> None:
        """Raise `TrainingError` unless every token of the student is the same token here."""
        try:
            text = read_text_files(find_text_folder(self._settings), self._settings)
        except EngineError as error:
            raise TrainingError(f"the teacher can't be used: {error}") from error
        require_same_vocabulary(student, text)

    def score(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """Natural log-probability of each id of a row, from the second on, given the ids before it.
        Raises `TrainingError`."""

        async def score_all() -> list[list[float]]:
            return await asyncio.gather(*(self._engine.score(row) for row in rows))

        try:
            return self._loop.run(score_all())
        except EngineError as error:
            raise TrainingError(f"the teacher returned no log-probabilities: {error}") from error


def require_same_vocabulary(student: ModelText, teacher: ModelText) -> None:
    """Raise `TrainingError` unless every id that the student can write is the same token to the
    teacher, which may have more."""
    student_ids: dict[str, int] = student.tokenizer.get_vocab()
    teacher_ids: dict[str, int] = teacher.tokenizer.get_vocab()
    apart = sorted(
        token for token, number in student_ids.items() if teacher_ids.get(token) != number
    )
    if apart:
        token = apart[0]
        there = teacher_ids.get(token)
        raise TrainingError(
            f"{student.base} and its teacher {teacher.base} have different vocabularies: "
            f"{len(apart):,} of {len(student_ids):,} tokens, such as {token!r}, which is "
            f"{student_ids[token]} here and {'not there' if there is None else there} there. A "
            "teacher scores the exact tokens that the student wrote: choose one of the same model "
            "family, or learn its answers as text with --objective sft"
        )
    if student.vocabulary > teacher.vocabulary:
        raise TrainingError(
            f"{student.base} can write ids up to {student.vocabulary - 1:,}, but its teacher "
            f"{teacher.base} only knows ids up to {teacher.vocabulary - 1:,}: choose a teacher "
            "whose embedding has as many rows"
        )
