"""The features that a learned score reads: numbers by name, and hashed words.

Every feature is defined for any evidence and any text: an absent quantity is 0 and has a feature
that states its absence. `FEATURE_VERSION` is incremented when a feature changes its meaning: a
router file of another version is refused.
"""

from __future__ import annotations

import itertools
import math
import re
import zlib
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from loopline.agents.router.numbers import (
    calculations,
    number_words_in,
    numbers_in,
    stated_number,
    unexplained,
    unused_results,
    without_annotations,
    wrong_equations,
)
from loopline.agents.router.signs import sign_features

MAX_EVIDENCE_CHARS = 20_000
"""Maximum number of characters of a question, an answer or a sample that are read for features; the
rest is ignored."""
MAX_SAMPLES = 64
_HEAD_CHARS = 12_000


@dataclass(frozen=True, slots=True)
class AnswerEvidence:
    """One question, the small model's answer, and further data from its engine."""

    question: str
    text: str
    """Whole answer, including the work."""
    logprobs: tuple[float, ...] = ()
    """Natural log-probability of each token of the answer; empty if the engine returned none."""
    samples: tuple[str, ...] = ()
    """Further answers of the same model to the same question; empty if none were drawn."""


def clip(text: str) -> str:
    """The part of a text that is read: for a long text, its start and its end, which contains its
    answer."""
    if len(text) <= MAX_EVIDENCE_CHARS:
        return text
    tail = MAX_EVIDENCE_CHARS - _HEAD_CHARS - 1
    return f"{text[:_HEAD_CHARS]}\n{text[-tail:]}"


FEATURE_VERSION = 2
HASH_BUCKETS = 4096

_WORD = re.compile(r"[^\W\d_]+|[0-9]+|[%$/]")
_SENTENCE = re.compile(r"[.!?](?:\s|$)|\n")
_HEDGE = re.compile(
    r"\b(?:maybe|perhaps|probably|approximately|about|around|roughly|assume|assuming|not sure|"
    r"unclear|i think|it seems|cannot|can't|unknown|sorry|wait|mistake|actually)\b",
    re.IGNORECASE,
)
_QUESTION_MARKS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("percent", r"%|\bpercent"),
        ("fraction", r"\b[0-9]+/[0-9]+|\bhalf\b|\bthird|\bquarter|\bfifth"),
        ("money", r"\$|\bdollar|\bcents?\b|\bcost|\bprice"),
        ("rate", r"\bper\b|\beach\b|\bevery\b"),
        ("conditional", r"\bif\b"),
        ("difference", r"\bmore than\b|\bless than\b|\bfewer\b|\blonger\b|\bolder\b|\btaller\b"),
        ("multiple", r"\btimes\b|\btwice\b|\bdouble|\btriple"),
        ("remaining", r"\bleft\b|\bremain|\brest\b"),
        ("total", r"\btotal\b|\baltogether\b|\bin all\b|\bcombined\b"),
        ("average", r"\baverage\b|\bmean\b"),
        ("time", r"\bhours?\b|\bminutes?\b|\bdays?\b|\bweeks?\b|\byears?\b|\bmonths?\b"),
        ("age", r"\bage\b|\byears? old\b|\bago\b"),
        ("speed", r"\bspeed\b|\bmph\b|\bmiles?\b|\bkm\b"),
        ("ratio", r"\bratio\b"),
        ("count", r"\bhow many\b"),
        ("amount", r"\bhow much\b"),
    )
)
_STOP = frozenset(
    [
        "the", "a", "an", "of", "to", "and", "in", "is", "are", "was", "were", "he", "she", "it",
        "his", "her", "they", "for", "on", "at", "with", "that", "this", "by", "from", "has",
        "have", "had", "be", "as", "there", "their", "how", "many", "much", "what", "if", "then",
        "so", "will", "would", "do", "does", "did",
    ]
)  # fmt: skip
"""Words that do not indicate the topic of a question."""


def numeric_features(evidence: AnswerEvidence) -> dict[str, float]:
    """Numeric features by name; all evidence has the same names."""
    question = clip(evidence.question)
    text = clip(evidence.text)
    values = question_features(question)
    values |= _working_features(question, text)
    values |= _logprob_features(evidence.logprobs)
    values |= _agreement_features(text, evidence.samples)
    return values


def question_features(question: str) -> dict[str, float]:
    """Features that are known before the small model is asked."""
    question = clip(question)
    words = _WORD.findall(question)
    numbers, spelled = numbers_in(question), number_words_in(question)
    values = {
        "question.characters": math.log1p(len(question)),
        "question.words": float(len(words)),
        "question.sentences": float(len(_SENTENCE.findall(question))),
        "question.numbers": float(len(numbers)),
        "question.number_words": float(len(spelled)),
        "question.quantities": float(len(numbers) + len(spelled)),
        "question.distinct_numbers": float(len({*numbers, *spelled})),
        "question.largest": _log(max(map(abs, numbers), default=Fraction(0))),
        "question.decimals": float(sum(number.denominator != 1 for number in numbers)),
        "question.names": float(len(set(re.findall(r"\b[A-Z][a-z]+", question)))),
        "question.commas": float(question.count(",")),
        "question.word_length": sum(map(len, words)) / max(1, len(words)),
    }
    for name, pattern in _QUESTION_MARKS:
        values[f"question.{name}"] = float(min(3, len(pattern.findall(question))))
    return values


def _working_features(question: str, text: str) -> dict[str, float]:
    visible = without_annotations(text)
    lines = [line.strip() for line in visible.splitlines() if line.strip()]
    steps, marked = calculations(text)
    numbers = {*map(abs, numbers_in(question))}
    stated_values = numbers | set(number_words_in(question))
    stated = stated_number(text)
    answer = stated.value
    results = [step.result for step in steps]
    operators = Counter("".join(step.operators for step in steps))
    used = {abs(operand) for step in steps for operand in step.operands}
    used |= {abs(number) for number in numbers_in(visible)}
    unused = len(numbers - used)
    quantities = max(1, len(stated_values))
    question_words = {word.lower() for word in _WORD.findall(question) if word.isalpha()} - _STOP
    text_words = {word.lower() for word in _WORD.findall(visible) if word.isalpha()} - _STOP
    shared = len(question_words & text_words)
    unexplained_count = unexplained(steps, stated_values)
    largest = max(map(abs, numbers), default=Fraction(0))
    magnitude = Fraction(0) if answer is None else abs(answer)
    asks_count = re.search(r"\bhow many\b", question, re.IGNORECASE) is not None
    return {
        "answer.characters": math.log1p(len(visible)),
        "answer.lines": float(len(lines)),
        "answer.steps": float(len(steps)),
        "answer.marked_steps": float(marked),
        "answer.steps_per_quantity": len(steps) / quantities,
        "answer.steps_less_quantities": float(len(steps) - len(stated_values)),
        "answer.wrong_steps": float(sum(not step.holds for step in steps)),
        "answer.wrong_equations": float(wrong_equations(text)),
        "answer.additions": float(operators["+"]),
        "answer.subtractions": float(operators["-"]),
        "answer.multiplications": float(operators["*"]),
        "answer.divisions": float(operators["/"]),
        "answer.kinds_of_operators": float(len(operators)),
        "answer.present": float(answer is not None),
        **{
            f"answer.in_{place}": float(stated.place == place)
            for place in ("box", "mark", "phrase", "bold", "text")
        },
        "answer.whole": float(answer is not None and answer.denominator == 1),
        "answer.fractional_count": float(
            asks_count and answer is not None and answer.denominator != 1
        ),
        "answer.sub_cents": float(answer is not None and (answer * 100).denominator != 1),
        "answer.not_positive": float(answer is not None and answer <= 0),
        "answer.magnitude": _log(magnitude),
        "answer.magnitude_to_question": _log(magnitude) - _log(largest),
        "answer.above_all_given": float(magnitude > largest),
        "answer.given_in_question": float(answer in stated_values),
        "answer.is_last_result": float(bool(results) and results[-1] == answer),
        "answer.is_a_result": float(answer in results),
        "answer.round": float(magnitude != 0 and magnitude % 10 == 0),
        "working.unused_numbers": float(unused),
        "working.unused_share": unused / max(1, len(numbers)),
        "working.unexplained": float(unexplained_count),
        "working.unexplained_share": unexplained_count
        / max(1, sum(len(s.operands) for s in steps)),
        "working.unused_results": float(unused_results(steps, answer)),
        "working.negative_results": float(sum(result < 0 for result in results)),
        "working.fractional_results": float(sum(result.denominator != 1 for result in results)),
        "working.sub_cent_results": float(sum((r * 100).denominator != 1 for r in results)),
        "working.largest_result": _log(max(map(abs, results), default=Fraction(0))),
        "working.repeated_results": float(len(results) - len(set(results))),
        "working.repeated_lines": float(len(lines) - len(set(lines))),
        "working.repeated_steps": float(len(steps) - len({(s.left, s.result) for s in steps})),
        "working.operands_per_step": sum(len(s.operands) for s in steps) / max(1, len(steps)),
        "working.characters_per_step": math.log1p(len(visible) / max(1, len(steps))),
        "working.hedges": float(len(_HEDGE.findall(visible))),
        "working.variables": float(len(re.findall(r"\b[xyzn]\b\s*[=+*/-]", visible))),
        "working.question_words_said": shared / max(1, len(question_words)),
        "working.words_from_question": shared / max(1, len(text_words)),
        "working.asks_back": float(visible.count("?")),
        "working.length_to_question": math.log((1 + len(visible)) / (1 + len(question))),
        **sign_features(question, text, visible, steps, stated, numbers),
    }


def _logprob_features(logprobs: tuple[float, ...]) -> dict[str, float]:
    tokens = [max(-50.0, min(0.0, value)) for value in logprobs]
    count = len(tokens)
    last = tokens[-8:]
    return {
        "logprob.absent": float(count == 0),
        "logprob.mean": sum(tokens) / max(1, count),
        "logprob.least": max(-20.0, min(tokens, default=0.0)),
        "logprob.sum": -math.log1p(-sum(tokens)),
        "logprob.last": sum(last) / max(1, len(last)),
        "logprob.doubtful_tokens": math.log1p(sum(value < -0.7 for value in tokens)),
        "logprob.very_doubtful_tokens": math.log1p(sum(value < -2.3 for value in tokens)),
    }


def _agreement_features(text: str, samples: tuple[str, ...]) -> dict[str, float]:
    answers = [comparable_answer(clip(sample)) for sample in samples[:MAX_SAMPLES]]
    answer_key, count = comparable_answer(text), max(1, len(answers))
    votes = Counter(answers)
    entropy = -sum(n / count * math.log(n / count) for n in votes.values())
    most = max(votes.values(), default=0)
    return {
        "agreement.absent": float(not answers),
        "agreement.share": votes[answer_key] / count,
        "agreement.entropy": entropy,
        "agreement.majority": most / count,
        "agreement.is_majority": float(bool(answers) and votes[answer_key] == most),
    }


def comparable_answer(text: str) -> str:
    """A text that is equal for two texts with the same answer."""
    value = stated_number(text).value
    return " ".join(text.split()).casefold() if value is None else str(value)


def hashed_words(evidence: AnswerEvidence) -> dict[int, float]:
    """Weights by bucket for the words and word pairs of question and answer, as a vector of length
    1. All numbers count as one word."""
    weights: Counter[int] = Counter()
    parts = (("q", clip(evidence.question)), ("a", without_annotations(clip(evidence.text))))
    for prefix, text in parts:
        words = ["0" if word[0].isdigit() else word.lower() for word in _WORD.findall(text)]
        terms = {*words, *(f"{a} {b}" for a, b in itertools.pairwise(words))}
        for term in terms:
            weights[zlib.crc32(f"{prefix}:{term}".encode()) % HASH_BUCKETS] += 1
    length = math.sqrt(sum(value * value for value in weights.values()))
    return {bucket: value / length for bucket, value in weights.items()} if length else {}


def _log(value: Fraction) -> float:
    # A Fraction with thousands of digits can't be converted to a float.
    return min(60.0, math.log1p(min(value, Fraction(10**26))))
