"""Benchmarks whose answers are texts, compared with the gold answer or scored by a function
`score(item, answer)`.

The answer is the run's answer: the content of the last box, if the model wrote one, else the whole
text. The item has `id`, `question`, `gold` and `about` (the further fields of its line). A run
without an answer is wrong and not scored.
"""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loopline.agents.records import Trajectory
from loopline.bench.benchmark import Benchmark, Rescorer
from loopline.bench.datasets import Dataset, Request
from loopline.bench.errors import JudgingError
from loopline.bench.judgement import ENDED_WITH_AN_ANSWER, Judge, Judgement, Question
from loopline.bench.output import Manifest
from loopline.bench.results import Result
from loopline.bench.taxonomy import ENDED_OTHERWISE, Class

Score = Callable[[Any, str], object]
"""Maps an item and an answer to a bool (right or wrong) or to a share from 0 to 1, where only 1 is
right. The item is a `loopline.bench.judgement.Question`; a user's function need not declare that
type."""

EXACT = "exact"
EXACT_RULE = "the same text as the gold answer, ignoring case and white space"
SCORE = "score"
SCORE_RULE = "the user's function decides; if it returns a share from 0 to 1, only 1 is right"

CLASSES = {
    str(Class.NO_ANSWER): "the run ended without an answer",
    str(Class.WRONG_ANSWER): "the answer is not right",
}


def text_benchmark(
    name: str,
    title: str,
    load: Callable[[Request], Dataset],
    score: Score | None = None,
    **changes: Any,
) -> Benchmark:
    """Return a benchmark whose gold answers are texts; without `score`, answers are compared as
    texts. `changes`: further fields of `Benchmark`."""
    rule = SCORE_RULE if score else EXACT_RULE
    return scored_benchmark(name, title, load, lambda: score, rule, **changes)


def scored_benchmark(
    name: str,
    title: str,
    load: Callable[[Request], Dataset],
    scorer: Callable[[], Score | None],
    rule: str,
    **changes: Any,
) -> Benchmark:
    """Benchmark like `text_benchmark`, with a scorer. `scorer` is called whenever a judge is
    needed; None means that texts are compared. `rule` describes the scoring in a report."""

    def text_judge() -> TextJudge:
        score = scorer()
        return TextJudge(same_text, EXACT) if score is None else TextJudge(score, SCORE)

    @contextmanager
    def judge(manifest: Manifest, problems: Path) -> Generator[Judge]:
        yield text_judge()

    @contextmanager
    def rescorer(manifest: Manifest) -> Generator[Rescorer]:
        yield text_judge().rescore

    return Benchmark(
        name=name,
        title=title,
        load=load,
        judge=judge,
        checkers={EXACT if rule is EXACT_RULE else SCORE: rule},
        class_of=_class_of,
        classes=CLASSES,
        rescorer=rescorer,
        **changes,
    )


def same_text(item: Question, answer: str) -> bool:
    """Whether the answer is the gold answer."""
    return _normalize(answer) == _normalize(item.gold)


class TextJudge:
    """Judges a run: verdict `exact` or `score`; measure `score` if the function returns a share."""

    def __init__(self, score: Score, checker: str) -> None:
        self._score = score
        self._checker = checker

    def judge(self, trajectory: Trajectory, question: Question) -> Judgement:
        """Score an answer. Raises JudgingError if the function fails."""
        ended = trajectory.outcome in ENDED_WITH_AN_ANSWER
        answer = trajectory.answer if ended else None
        verdicts, measures = self._score_answer(question, answer)
        return Judgement(
            verdicts=verdicts,
            prediction=answer,
            answer=(answer or "")[:200],
            where="text" if answer else "none",
            measures=measures,
        )

    def rescore(self, result: Result, item: Question) -> Result:
        """Return the result with today's score. Raises JudgingError."""
        verdicts, measures = self._score_answer(item, result.prediction)
        other_measures = {name: value for name, value in result.measures.items() if name != SCORE}
        return result.model_copy(
            update={"verdicts": verdicts, "measures": other_measures | measures}
        )

    def _score_answer(
        self, item: Question, answer: str | None
    ) -> tuple[dict[str, bool], dict[str, float]]:
        if not answer or not answer.strip():
            return {self._checker: False}, {}
        try:
            value: object = self._score(item, answer)
        except (Exception, SystemExit) as error:
            raise self._failure(item, f"{type(error).__name__}: {error}", error) from error
        if isinstance(value, bool):
            return {self._checker: value}, {}
        if isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 1:
            return {self._checker: value == 1}, {SCORE: float(value)}
        value_text = repr(value)[:80]
        raise self._failure(item, f"it returned {value_text}, not a bool or a number from 0 to 1")

    def _failure(
        self, item: Question, why: str, error: BaseException | None = None
    ) -> JudgingError:
        return JudgingError(
            f"{place_of(self._score, error)}: score failed on item {item.id!r}: {why}. The answer "
            "is not counted as wrong: the run is collected and scored by `bench resume DIRECTORY` "
            "once the function is corrected (a file of yours is put in place of the earlier one "
            "by `bench rescore DIRECTORY --scorer FILE`)"
        )


def place_of(score: Score, error: BaseException | None) -> str:
    """Return file and line of a function, or of its last statement before an error."""
    source = inspect.unwrap(score)
    code = getattr(source, "__code__", None) or getattr(type(source).__call__, "__code__", None)
    file, line = (code.co_filename, code.co_firstlineno) if code else ("score", 0)
    frames = traceback.extract_tb(error.__traceback__) if error else []
    lines = [frame.lineno for frame in frames if frame.filename == file and frame.lineno]
    return f"{file}:{lines[-1] if lines else line}"


def _normalize(text: str) -> str:
    return " ".join(text.split()).casefold()


def _class_of(result: Result, gold: str) -> Class:
    if result.right:
        return Class.RIGHT
    if result.outcome in ENDED_OTHERWISE:
        return ENDED_OTHERWISE[result.outcome]
    if result.prediction is None and result.outcome == "gave_up":
        return Class.GAVE_UP
    return Class.WRONG_ANSWER if (result.prediction or "").strip() else Class.NO_ANSWER
