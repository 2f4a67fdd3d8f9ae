"""Labelled answers to GSM8K by two made-up models: published solutions with slips like those of
language models. The texts are the only evidence."""

from __future__ import annotations

import json
import lzma
import os
import random
import re
from pathlib import Path
from typing import Any, Literal

from loopline.agents.arithmetic import evaluate, format_number

Style = Literal["marks", "prose", "latex"]
_MARK = re.compile(r"<<([^<>=\n]+)=([^<>=\n]+)>>([0-9][0-9,.]*)?")
_HEDGES = ("Probably ", "I think ", "About ", "Let me assume ")


def problems(count: int, seed: int, split: str = "test") -> list[tuple[str, list[str], str]]:
    """Question, lines of the solution, answer."""
    path = Path(os.environ["LOOPLINE_DATA"]) / "math" / "gsm8k" / f"{split}.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    random.Random(seed).shuffle(rows)
    parts = [(row["question"], *row["answer"].split("\n#### ")) for row in rows[:count]]
    return [(question, working.split("\n"), answer) for question, working, answer in parts]


def gsm8k_rows(
    count: int, *, seed: int = 1, small: float = 0.7, big: float = 0.93, style: Style = "marks"
) -> list[dict[str, Any]]:
    """Hard questions are wrong more often. Two slips in three show in the text."""
    rng = random.Random(seed)
    drawn = problems(count, seed)
    rows: list[dict[str, Any]] = []
    for at, (question, lines, answer) in enumerate(drawn):
        hard = (len(lines) - 3.5) * 0.07
        small_right = rng.random() < small - hard
        big_right = rng.random() < big - hard / 3
        rows.append(
            {
                "id": at,
                "question": question,
                "small": {
                    "text": _written(rng, question, lines, answer, small_right, style),
                    "right": small_right,
                },
                "big": {
                    "text": _written(rng, question, lines, answer, big_right, style),
                    "right": big_right,
                },
            }
        )
    return rows


def _written(
    rng: random.Random, question: str, lines: list[str], answer: str, right: bool, style: Style
) -> str:
    lines = list(lines)
    if not right:
        lines, answer = _slipped(rng, question, lines, answer)
    text = "\n".join(lines)
    match style:
        case "marks":
            return f"{text}\n#### {answer}"
        case "prose":
            return _MARK.sub(r"\3", text) + f"\nThe answer is {answer}."
        case "latex":
            plain = _MARK.sub(r"\3", text).replace(" * ", r" \times ")
            return f"{plain}\nSo the answer is \\boxed{{{answer}}}."


def _slipped(
    rng: random.Random, question: str, lines: list[str], answer: str
) -> tuple[list[str], str]:
    """The solution with a slip in one line. Half of the slips leave a text that agrees with
    itself."""
    marked = [at for at, line in enumerate(lines) if _MARK.search(line)]
    wrong = str(_number(answer) + rng.choice((-10, -2, -1, 1, 2, 5, 10)))
    if not marked:
        return lines, wrong
    at, last = rng.choice(marked), marked[-1]
    match rng.choice(("answer", "arithmetic", "stops", "hedge", "operand", "operator") * 2):
        case "arithmetic":
            lines[at] = _MARK.sub(lambda match: _miscalculated(rng, match), lines[at], count=1)
        case "stops":
            lines = lines[: at + 1]
            wrong = _last_result(lines)
        case "operand":
            numbers = [*re.findall(r"[0-9]+", question), str(rng.randrange(2, 60))]
            lines[last] = _rewritten(lines[last], r"[0-9]+", rng.choice(numbers))
            wrong = _last_result(lines)
        case "operator":
            lines[last] = _rewritten(lines[last], r"(?<=[0-9])[-+*/]", rng.choice("+-*"))
            wrong = _last_result(lines)
        case "hedge":
            lines[at] = rng.choice(_HEDGES) + lines[at]
        case _:
            pass
    return lines, wrong


def _number(text: str) -> int:
    return int(re.sub(r"[^0-9-]", "", text) or 0)


def _last_result(lines: list[str]) -> str:
    results = [match[2] for line in lines for match in _MARK.finditer(line)]
    return results[-1].strip() if results else "0"


def _miscalculated(rng: random.Random, match: re.Match[str]) -> str:
    wrong = _number(match[2]) + rng.choice((-10, -1, 1, 10))
    return f"<<{match[1]}={wrong}>>{wrong}"


def _rewritten(line: str, pattern: str, replacement: str) -> str:
    """The line's last calculation with one part of it replaced, and its result."""
    *_, match = _MARK.finditer(line)
    left = re.sub(pattern, replacement, match[1], count=1)
    try:
        result = format_number(evaluate(left))
    except ValueError:
        return line
    head = re.sub(r"[$0-9][-+*/x().,$0-9 %]*=?\s*[$]?$", "", line[: match.start()])
    return f"{head}{left} = <<{left}={result}>>{result}{line[match.end() :]}"
