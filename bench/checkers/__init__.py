"""Answer checkers: they compare a prediction with the gold answer.

`numeric` is the primary one; the others are reported alongside it, so that published figures can be
reproduced and every disagreement can be inspected. A missing answer is wrong for all checkers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Self

from loopline.agents.records import Trajectory
from loopline.bench.checkers import delegate, lm_eval, numeric
from loopline.bench.judgement import Judgement, Question, prediction_of
from loopline.workers.judging.expressions import same
from loopline.workers.judging.math_verify import MathVerifier
from loopline.workers.judging.written_numbers import quantities_agree

CHECKERS = ("numeric", "strict", "flexible", "math_verify", "delegate")
PRIMARY = "numeric"

DESCRIPTIONS = {
    "numeric": "last \\boxed{}, else the text after #### or “the answer is”, else the last number; "
    "compared as an exact number, or as an expression if the gold answer is not a number (primary)",
    "strict": "lm-eval strict-match: the first “#### number”, compared as text",
    "flexible": "lm-eval flexible-extract: the last number-like text, compared as text",
    "math_verify": "Math-Verify: LaTeX and expression patterns, compared by SymPy",
    "delegate": "Delegate without its “answer is” rule: the last run of digits",
}


@dataclass(frozen=True)
class Verdicts:
    """Verdicts of all checkers on one prediction."""

    numeric: bool
    strict: bool
    flexible: bool
    math_verify: bool
    delegate: bool

    def as_dict(self) -> dict[str, bool]:
        return asdict(self)

    @property
    def disagree(self) -> bool:
        """Whether a checker that reads the same kind of answer differs from the primary one.

        `strict` is left out: it requires a `####` marker that no workflow here asks for.
        """
        return len({self.numeric, self.flexible, self.math_verify, self.delegate}) > 1


@dataclass(frozen=True)
class Score:
    """Verdicts, and the answer that the primary checker saw."""

    verdicts: Verdicts
    answer: str
    """Answer as written; empty if there is none."""
    value: str | None
    """Answer as an exact number, for example `7/2`; None if it is not a number."""
    where: str
    """Place of the answer: `box`, `text` or `none`."""


class Scorer:
    """Scores predictions with every checker. A context manager that owns the Math-Verify child
    process."""

    def __init__(self) -> None:
        self._math_verify = MathVerifier()

    def prepare(self) -> None:
        """Start the Math-Verify child now, alongside other work, instead of at the first score."""
        self._math_verify.start()

    def score(self, prediction: str | None, gold: str) -> Score:
        """Return the verdicts on one prediction. Raises ValueError if the gold answer is empty."""
        text = prediction or ""
        final = numeric.final_part(gold)
        extraction = numeric.extract(text)
        wanted = numeric.gold_number(gold)
        right = quantities_agree(extraction.expression, final)
        if right is None and wanted is not None:
            right = numeric.matches_gold(extraction, wanted)
        elif right is None:
            right = same(extraction.expression, final, self._math_verify)
        verdicts = Verdicts(
            numeric=right,
            strict=lm_eval.strict(text, gold),
            flexible=lm_eval.flexible(text, gold),
            math_verify=self._math_verify.check(text, final),
            delegate=delegate.check(text, gold),
        )
        number = extraction.number
        value = None if number is None or number.value is None else str(number.value)
        return Score(verdicts, extraction.text[:200], value, extraction.where)

    def judge(self, trajectory: Trajectory, question: Question) -> Judgement:
        """Score the last text of a run, as `score` does."""
        prediction = prediction_of(trajectory)
        score = self.score(prediction, question.gold)
        return Judgement(
            verdicts=score.verdicts.as_dict(),
            prediction=prediction,
            answer=score.answer,
            value=score.value,
            where=score.where,
        )

    def close(self) -> None:
        """Stop the Math-Verify child."""
        self._math_verify.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
