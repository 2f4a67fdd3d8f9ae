"""Worked dialogues for generated problems: the text that a model should have written.

A dialogue is a list of turns in ChatML. Only assistant turns are learned. The kinds:

* `planner`: tools `delegate`, `delegate_many`, `calculate`. Each link of the story becomes a
  turn: a single addition or subtraction is calculated, everything else is delegated, independent
  parts together.
* `planner_without_calculator`: the same without `calculate`; everything is delegated.
* `solo`, `solo_without_tools`: the whole problem, with or without the calculator.
* `sub_task`, `sub_task_without_tools`: one delegated piece, as the planner writes it.
* `short_solo`, `short_solo_without_tools`: like `solo`, for problems of one link.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from loopline.agents.environments.word_problems import Link, Split, SubTask, WordProblem, stream

SMALL = frozenset({
    "a", "an", "the", "of", "and", "is", "are", "that", "to", "in", "on", "at", "for", "with",
    "has", "have", "does", "do", "it", "this", "then", "so", "can", "all", "there", "them", "be",
    "was", "will", "she", "he", "her", "his",
})  # fmt: skip
"""Words that may be dropped without changing the meaning of a question."""
EMPTY = ("also", "really", "just", "again", "today", "now", "often", "usually", "carefully")
"""Words that may be added without changing the meaning."""

_DROP = 0.12
_INSERT = 0.03


def perturb_text(text: str, rng: random.Random) -> str:
    """Return `text` with some small words dropped and some empty ones added; numbers never
    change."""
    output_words: list[str] = []
    for word in text.split(" "):
        if word in SMALL and rng.random() < _DROP:
            continue
        if output_words and rng.random() < _INSERT:
            output_words.append(rng.choice(EMPTY))
        output_words.append(word)
    return " ".join(output_words)


PLANNER_TOOLS = ("delegate", "delegate_many", "calculate")
PLANNER_TOOLS_WITHOUT_CALCULATOR = ("delegate", "delegate_many")
CALCULATOR = ("calculate",)

_ERROR_CHANCE = 0.02
"""Chance that a delegated sub-task returns an error, so that a model learns to continue without
it."""
_ROUGH_CHANCE = 0.3
"""Chance that a whole problem is perturbed (see `perturb_text`)."""
_ERRORS = (
    "error: the solver gave no answer",
    "error: no answer in a box",
    "error: the answer is not an integer",
    "error: the solver is not available",
    "error: out of time",
)


@dataclass(frozen=True)
class Turn:
    """One message; `learned` turns are the model's own."""

    role: str
    text: str

    @property
    def learned(self) -> bool:
        return self.role == "assistant"


@dataclass(frozen=True)
class Dialogue:
    """A conversation with the tools that it offers."""

    tools: tuple[str, ...]
    turns: tuple[Turn, ...]


def system_line(tools: tuple[str, ...]) -> str:
    """The compact system text that the micro models' chat template writes."""
    return f"tools: {', '.join(sorted(tools))}" if tools else "tools: none"


def render(dialogue: Dialogue) -> str:
    """The dialogue as the chat template renders it."""
    parts = [f"<|im_start|>system\n{system_line(dialogue.tools)}<|im_end|>\n"]
    parts += [f"<|im_start|>{turn.role}\n{turn.text}<|im_end|>\n" for turn in dialogue.turns]
    return "".join(parts)


def tool_call(name: str, arguments: Mapping[str, object]) -> str:
    """Qwen's markup of one call."""
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


def question_with_type(problem: str, expected_type: str) -> str:
    """A sub-task as a solver receives it."""
    return f"{problem}\nAnswer type: {expected_type}."


def box_answer(answer: object) -> str:
    return f"The answer is \\boxed{{{answer}}}."


def dialogues(mix: Mapping[str, float], seed: int) -> Iterator[Dialogue]:
    """Endless training dialogues in the proportions of `mix`; the same ones for the same seed."""
    rng = random.Random(f"dialogues:{seed}")
    problems = stream(Split.TRAIN, seed)
    kinds, weights = tuple(mix), tuple(mix.values())
    while True:
        kind = rng.choices(kinds, weights)[0]
        problem = next(problems)
        while kind.startswith("short") and problem.steps > 1:
            problem = next(problems)
        new_dialogue = dialogue(kind, problem, rng)
        if not kind.startswith("sub_task") and rng.random() < _ROUGH_CHANCE:
            question = Turn("user", perturb_text(new_dialogue.turns[0].text, rng))
            new_dialogue = Dialogue(new_dialogue.tools, (question, *new_dialogue.turns[1:]))
        yield new_dialogue


def dialogue(kind: str, problem: WordProblem, rng: random.Random) -> Dialogue:
    """The worked dialogue of that kind. Raises ValueError for an unknown kind."""
    match kind:
        case "planner":
            return _planner(problem, rng, PLANNER_TOOLS)
        case "planner_without_calculator":
            return _planner(problem, rng, PLANNER_TOOLS_WITHOUT_CALCULATOR)
        case "solo" | "short_solo":
            return _calculator_dialogue(problem.prompt, problem.links)
        case "solo_without_tools" | "short_solo_without_tools":
            return _mental_dialogue(problem.prompt, problem.links)
        case "sub_task" | "sub_task_without_tools":
            part = rng.choice(problem.sub_tasks)
            expected = "integer" if rng.random() < 0.9 else "number"
            question = question_with_type(part.problem, expected)
            links = (Link("", "", (part,), ((0,),)),)
            solve = _calculator_dialogue if kind == "sub_task" else _mental_dialogue
            return solve(question, links)
        case _:
            raise ValueError(f"unknown kind of dialogue: {kind!r}")


def _planner(problem: WordProblem, rng: random.Random, tools: tuple[str, ...]) -> Dialogue:
    turns = [Turn("user", problem.prompt)]
    for link in problem.links:
        label = f"{link.label}."
        for stage in link.stages:
            parts = [link.parts[index] for index in stage]
            turns += _stage(label, parts, rng, tools)
            label = "Next."
    turns.append(Turn("assistant", box_answer(problem.answer)))
    return Dialogue(tools, _merge_turns(turns))


def _stage(
    label: str, parts: list[SubTask], rng: random.Random, tools: tuple[str, ...]
) -> list[Turn]:
    if len(parts) > 1:
        sub_problems = [{"problem": p.problem, "expected_type": "integer"} for p in parts]
        call = tool_call("delegate_many", {"problems": sub_problems})
        answers = "\n".join(f"{i}: {part.answer}" for i, part in enumerate(parts, 1))
        return [Turn("assistant", f"{label}\n{call}"), Turn("tool", answers)]
    part = parts[0]
    simple = len(part.equations) == 1 and part.equations[0].op in "+-"
    if simple and "calculate" in tools:
        return _calculations(label, part)
    call = tool_call("delegate", {"problem": part.problem, "expected_type": "integer"})
    asking = Turn("assistant", f"{label}\n{call}")
    if rng.random() >= _ERROR_CHANCE:
        return [asking, Turn("tool", str(part.answer))]
    error = Turn("tool", rng.choice(_ERRORS))
    if "calculate" in tools:
        return [asking, error, *_calculations("I do it myself.", part)]
    equations = " ".join(f"{equation}." for equation in part.equations)
    return [asking, error, Turn("assistant", f"I do it myself. {equations}")]


def _calculations(label: str, part: SubTask) -> list[Turn]:
    turns: list[Turn] = []
    for equation in part.equations:
        call = tool_call("calculate", {"expression": equation.expression})
        turns += [Turn("assistant", f"{label}\n{call}"), Turn("tool", str(equation.result))]
        label = "Next."
    return turns


def _merge_turns(turns: list[Turn]) -> tuple[Turn, ...]:
    """Merge two assistant turns in a row into one."""
    joined: list[Turn] = []
    for turn in turns:
        if joined and joined[-1].learned and turn.learned:
            joined[-1] = Turn("assistant", f"{joined[-1].text} {turn.text}")
        else:
            joined.append(turn)
    return tuple(joined)


def _calculator_dialogue(question: str, links: tuple[Link, ...]) -> Dialogue:
    turns = [Turn("user", question)]
    sentence = ""
    for link in links:
        label = f"{link.label}." if link.label else ""
        for equation in (e for part in link.parts for e in part.equations):
            call = tool_call("calculate", {"expression": equation.expression})
            text = " ".join(piece for piece in (sentence, label) if piece)
            turns.append(Turn("assistant", f"{text}\n{call}" if text else call))
            turns.append(Turn("tool", str(equation.result)))
            sentence, label = f"{equation}.", ""
    turns.append(Turn("assistant", f"{sentence} {box_answer(links[-1].parts[-1].answer)}"))
    return Dialogue(CALCULATOR, tuple(turns))


def _mental_dialogue(question: str, links: tuple[Link, ...]) -> Dialogue:
    sentences: list[str] = []
    for link in links:
        if link.label:
            sentences.append(f"{link.label}.")
        sentences += [f"{equation}." for part in link.parts for equation in part.equations]
    sentences.append(box_answer(links[-1].parts[-1].answer))
    return Dialogue((), (Turn("user", question), Turn("assistant", " ".join(sentences))))
