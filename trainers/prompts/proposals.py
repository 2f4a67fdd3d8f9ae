"""Candidates that a model writes after reading the best one so far and its failures.

The method follows OPRO (Yang et al. 2024: texts tried so far, with their scores) and GEPA (Agrawal
et al. 2025: failures in words). A proposal is a candidate like any other: it is measured on the
same questions, and never adopted unmeasured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopline.agents.errors import InvalidPrompt
from loopline.agents.prompts import Prompt, parse_replacement_prompt
from loopline.trainers.prompts.candidates import Candidate

MAX_FAILURES = 8
MAX_TRIED = 8
MAX_SHOWN = 1_500
"""Most characters of a question, an answer or a fault that the proposer reads."""

WRITER = "prompt_writer"
"""The prompt of the workflow `completion` that a proposer reads."""

_BEGIN, _END = "<prompt>", "</prompt>"


@dataclass(frozen=True)
class EvaluatedCandidate:
    """A candidate with its solved questions."""

    text: str
    solved: int
    questions: int


@dataclass(frozen=True)
class Failure:
    """A question that failed under the best candidate so far."""

    question: str
    answer: str
    fault: str


def request(
    best: EvaluatedCandidate, others: Sequence[EvaluatedCandidate], failures: Sequence[Failure]
) -> str:
    """The request to the proposer."""
    parts = [
        f"The instructions as they are solved {best.solved} of {best.questions} questions:",
        f"{_BEGIN}\n{best.text}\n{_END}",
    ]
    if others:
        parts.append("Other instructions that were tried on the same questions:")
        parts += [
            f"solved {entry.solved} of {entry.questions}:\n{_BEGIN}\n{entry.text}\n{_END}"
            for entry in others[:MAX_TRIED]
        ]
    parts.append("Questions that went wrong under the first ones:")
    parts += [
        f"Question {number}: {_truncate(entry.question)}\n"
        f"Answer: {_truncate(entry.answer) or '(none)'}\n"
        f"Wrong: {_truncate(entry.fault)}"
        for number, entry in enumerate(failures[:MAX_FAILURES], start=1)
    ]
    parts.append("Write better instructions.")
    return "\n\n".join(parts)


def _truncate(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} …"


def read_proposal(
    answer: str, *, of: Prompt, label: str, origin: str, candidates: Sequence[Candidate], cut: bool
) -> Candidate:
    """The candidate in a proposer's answer. Raises `InvalidPrompt`, which explains why it contains
    none.

    `cut`: the answer reached its token limit.
    """
    if cut:
        raise InvalidPrompt(
            "the answer was cut off at the pool's max_tokens: raise it for the proposer's pool"
        )
    # The last ones, found without backtracking: the answer is untrusted.
    end = answer.rfind(_END)
    begin = answer.rfind(_BEGIN, 0, max(0, end))
    if begin < 0:
        raise InvalidPrompt(f"the answer has no text between {_BEGIN} and {_END}")
    text = answer[begin + len(_BEGIN) : end].strip()
    content = f"---\nname: {of.name}\nversion: {of.version + 1}\n---\n{text}\n"
    prompt = parse_replacement_prompt(content, of.name, origin=label)
    same = next(
        (candidate for candidate in candidates if candidate.prompt.text == prompt.text), None
    )
    if same is not None:
        raise InvalidPrompt(f"the text is that of {same.label}")
    return Candidate(label, origin, prompt, content)
