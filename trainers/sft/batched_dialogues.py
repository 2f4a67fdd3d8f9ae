"""Whole dialogues at once: greedy completions in batches, tools answered exactly, no bus.

This measures models during their training. It follows the rules of the role workers: a call of
`calculate` is answered and the model continues; `delegate` hands over to the other model, whose
answer must be a boxed number with correct equations, otherwise the first model solves the sub-task.
Unlike with role workers, a number need not be of the requested type, and is passed on as written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from loopline.agents.answers import last_boxed, parse_number
from loopline.agents.arithmetic import ExpressionError, evaluate, format_number
from loopline.agents.equations import first_wrong
from loopline.trainers.core.models import Model
from loopline.trainers.core.tokenizer import END, START
from loopline.trainers.sft.dialogues import (
    CALCULATOR,
    PLANNER_TOOLS,
    PLANNER_TOOLS_WITHOUT_CALCULATOR,
    question_with_type,
    system_line,
)
from loopline.workers.engines.text.tool_markup import parse_tool_calls

if TYPE_CHECKING:
    import torch

Arm = Literal["delegate", "llm", "slm"]

MAX_COMPLETIONS = 12
MAX_HAND_OVERS = 8
MAX_NEW_TOKENS = 256
ROWS = 96
"""Number of conversations decoded at the same time."""


@dataclass
class Conversation:
    """Ids so far, and the model's last action."""

    tools: tuple[str, ...]
    ids: list[int]
    text: str = ""
    """The last completion."""
    completions: int = 0
    texts: list[str] = field(default_factory=list[str])


def attempt(
    arm: Arm, prompts: Sequence[str], *, llm: Model | None, slm: Model | None,
    calculator: bool = True,
) -> list[str | None]:  # fmt: skip
    """Give every prompt to the arm. Returns the content of each final box, `None` without one."""
    if arm == "delegate":
        return _delegate(prompts, _require_model(llm), _require_model(slm), calculator)
    model = _require_model(llm if arm == "llm" else slm)
    tools = CALCULATOR if calculator else ()
    talks = [_begin(model, tools, prompt) for prompt in prompts]
    _complete_until_handover(model, talks)
    return [last_boxed(talk.text) for talk in talks]


def _require_model(model: Model | None) -> Model:
    if model is None:
        raise ValueError("this arm needs a model that was not given")
    return model


def _delegate(prompts: Sequence[str], llm: Model, slm: Model, calculator: bool) -> list[str | None]:
    tools = PLANNER_TOOLS if calculator else PLANNER_TOOLS_WITHOUT_CALCULATOR
    talks = [_begin(llm, tools, prompt) for prompt in prompts]
    active = list(range(len(prompts)))
    for _ in range(MAX_HAND_OVERS):
        _complete_until_handover(llm, [talks[i] for i in active])
        sub_problems = [(i, _sub_problems(talks[i].text)) for i in active]
        active = [i for i, problems in sub_problems if problems]
        if not active:
            break
        jobs = [(i, problem) for i, problems in sub_problems for problem in problems or ()]
        answers = _solve_sub_tasks([problem for _, problem in jobs], llm, slm, calculator)
        for i, problems in sub_problems:
            if problems:
                mine = [a for (j, _), a in zip(jobs, answers, strict=True) if j == i]
                several = [f"{n}: {a}" for n, a in enumerate(mine, 1)]
                _append_tool(llm, talks[i], "\n".join(several) if len(mine) > 1 else mine[0])
    return [last_boxed(talk.text) for talk in talks]


def _solve_sub_tasks(
    problems: Sequence[tuple[str, str]], llm: Model, slm: Model, calculator: bool
) -> list[str]:
    tools = CALCULATOR if calculator else ()
    questions = [question_with_type(*problem) for problem in problems]
    talks = [_begin(slm, tools, question) for question in questions]
    _complete_until_handover(slm, talks)
    answers = [accepted_answer(talk) for talk in talks]
    refused = [n for n, answer in enumerate(answers) if answer is None]
    if refused:
        experts = [_begin(llm, tools, questions[n]) for n in refused]
        _complete_until_handover(llm, experts)
        for n, talk in zip(refused, experts, strict=True):
            answers[n] = last_boxed(talk.text)
    return [answer or "error: the solver gave no answer" for answer in answers]


def accepted_answer(talk: Conversation) -> str | None:
    """The small model's boxed number; `None` if the big one has to solve the sub-task."""
    answer = last_boxed(talk.text)
    if answer is None or parse_number(answer) is None:
        return None
    return None if any(first_wrong(text) for text in talk.texts) else answer


def _sub_problems(text: str) -> list[tuple[str, str]] | None:
    """The (problem, expected type) pairs of a hand-over; `None` for another call."""
    for call in parse_tool_calls(text, id_seed=""):
        arguments = call.arguments or {}
        if call.name == "delegate":
            listed: object = [arguments]
        elif call.name == "delegate_many":
            listed = arguments.get("problems")
        else:
            continue
        if isinstance(listed, list):
            pairs = [
                (str(p["problem"]), str(p.get("expected_type", "number")))
                for p in listed  # pyright: ignore[reportUnknownVariableType]
                if isinstance(p, dict) and "problem" in p
            ]
            return pairs or None
    return None


def _begin(model: Model, tools: tuple[str, ...], question: str) -> Conversation:
    text = (
        f"{START}system\n{system_line(tools)}{END}\n{START}user\n"
        f"{question.replace('<|im_', '< |im_')}{END}\n{START}assistant\n"
    )
    return Conversation(tools, model.tokenizer.encode(text, add_special_tokens=False).ids)


def _append_tool(model: Model, talk: Conversation, content: str) -> None:
    text = f"\n{START}tool\n{content}{END}\n{START}assistant\n"
    talk.ids += model.tokenizer.encode(text, add_special_tokens=False).ids


def _complete_until_handover(model: Model, talks: Sequence[Conversation]) -> None:
    """Complete each conversation until its last turn does not call `calculate`."""
    active = list(talks)
    for talk in active:
        talk.completions = 0
    while active:
        completed = complete(model, [talk.ids for talk in active])
        unfinished: list[Conversation] = []
        for talk, new in zip(active, completed, strict=True):
            ended = bool(new) and new[-1] == model.end
            talk.ids += new if ended else [*new, model.end]
            talk.completions += 1
            talk.text = model.tokenizer.decode(new, skip_special_tokens=True)
            talk.texts.append(talk.text)
            result = _calculator_result(talk) if ended else None
            if result is not None and talk.completions < MAX_COMPLETIONS:
                _append_tool(model, talk, result)
                unfinished.append(talk)
        active = unfinished


def _calculator_result(talk: Conversation) -> str | None:
    """The calculator's answer to the last turn; `None` without a call."""
    if "calculate" not in talk.tools:
        return None
    for call in parse_tool_calls(talk.text, id_seed=""):
        if call.name == "calculate":
            try:
                return format_number(evaluate(str((call.arguments or {}).get("expression", ""))))
            except ExpressionError as error:
                return f"error: {error}"
    return None


def complete(
    model: Model, prompts: Sequence[Sequence[int]], *, limit: int = MAX_NEW_TOKENS
) -> list[list[int]]:
    """Greedy completions, each up to and including the end token, with at most `limit` tokens and
    never beyond the model's context."""
    results: list[list[int]] = [[] for _ in prompts]
    fits = [i for i, prompt in enumerate(prompts) if len(prompt) < model.context]
    order = sorted(fits, key=lambda i: len(prompts[i]))
    for at in range(0, len(order), ROWS):
        rows = order[at : at + ROWS]
        for row, ids in zip(rows, _decode(model, [prompts[i] for i in rows], limit), strict=True):
            results[row] = ids
    return results


def _decode(model: Model, prompts: list[Sequence[int]], limit: int) -> list[list[int]]:
    import torch
    from transformers import DynamicCache

    results: list[list[int]] = [[] for _ in prompts]
    longest = max(len(prompt) for prompt in prompts)
    # Each row has its own room for a prompt: a long neighbour must not truncate it.
    room = [min(limit, model.context - len(prompt)) for prompt in prompts]
    # Padding on the left puts every row's next token in the same column.
    ids = torch.tensor([[model.padding] * (longest - len(p)) + list(p) for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache = DynamicCache()
    rows = list(range(len(prompts)))
    with torch.inference_mode():
        for length in range(1, max(room) + 1):
            next_tokens = _next_tokens(model, ids, mask, positions, cache)
            for row, token in zip(rows, next_tokens, strict=True):
                results[row].append(token)
            keep = [
                n
                for n, token in enumerate(next_tokens)
                if token != model.end and length < room[rows[n]]
            ]
            if not keep:
                break
            ids = torch.tensor([[next_tokens[n]] for n in keep])
            positions = positions[keep, -1:] + 1
            mask = torch.cat([mask[keep], torch.ones(len(keep), 1, dtype=mask.dtype)], dim=1)
            if len(keep) < len(rows):
                cache.batch_select_indices(torch.tensor(keep))
                rows = [rows[n] for n in keep]
    return results


def _next_tokens(
    model: Model,
    ids: torch.Tensor,
    mask: torch.Tensor,
    positions: torch.Tensor,
    cache: object,
) -> list[int]:
    """Most probable next token of each row; `ids` is [rows, new tokens]."""
    hidden = model.network.model(
        input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache,
        use_cache=True,
    ).last_hidden_state  # fmt: skip
    return model.network.lm_head(hidden[:, -1]).argmax(-1).tolist()
