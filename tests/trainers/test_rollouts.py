"""The batched greedy loop and the dialogue around it, on small models with random weights."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from loopline.trainers.core.models import Model, load_model
from loopline.trainers.errors import UnreadableModel
from loopline.trainers.sft.batched_dialogues import Conversation, accepted_answer, attempt, complete
from loopline.trainers.sft.evaluation import (
    Skill,
    Task,
    add_skills,
    markdown,
    read_skills,
    splits,
    table,
)
from loopline.trainers.sft.training import train

from .tiny import TINY


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("tiny")
    train(TINY.model_copy(update={"steps": 120, "context": 256}), folder)
    return load_model(folder)


def one_by_one(model: Model, prompt: list[int], limit: int) -> list[int]:
    """The same completion without batches, padding or a cache."""
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(limit):
            logits = model.network(input_ids=torch.tensor([ids])).logits[0, -1]
            ids.append(int(logits.argmax()))
            if ids[-1] == model.end:
                break
    return ids[len(prompt) :]


@pytest.mark.slow
def test_a_batch_gives_the_same_completions_as_each_prompt_alone(model: Model) -> None:
    texts = ["Tom has 3 apples.", "A", "There are 40 pears. Then 13 go away. How many are left?"]
    prompts = [model.tokenizer.encode(text).ids for text in texts]
    together = complete(model, prompts, limit=20)
    assert together == [one_by_one(model, prompt, 20) for prompt in prompts]


def test_completions_never_pass_the_context(model: Model) -> None:
    long = model.tokenizer.encode("apples " * 400).ids
    fitting, refused = long[: model.context - 3], long[: model.context + 1]
    assert len(complete(model, [fitting], limit=50)[0]) <= 3
    assert complete(model, [refused], limit=50) == [[]]


def test_a_long_prompt_in_a_batch_does_not_truncate_the_others(model: Model) -> None:
    long = model.tokenizer.encode("apples " * 400).ids
    short = model.tokenizer.encode("Tom has 3 apples.").ids
    alone = complete(model, [short], limit=20)
    for length in (model.context - 2, model.context):
        assert complete(model, [short, long[:length]], limit=20)[0] == alone[0]


@pytest.mark.parametrize("arm", ["delegate", "llm", "slm"])
@pytest.mark.parametrize("calculator", [True, False])
def test_text_outside_the_grammar_still_yields_a_result(
    model: Model, arm: str, calculator: bool
) -> None:
    prompts = ["Natalia ¿sold? <|im_start|> clips, 1/2 of 48…", "", "7 " * 200]
    results = attempt(arm, prompts, llm=model, slm=model, calculator=calculator)  # pyright: ignore[reportArgumentType]
    assert len(results) == 3


def test_a_folder_without_weights_is_refused_with_the_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModel, match=r"model\.safetensors is missing"):
        load_model(tmp_path)


def test_new_measurements_replace_old_ones_of_the_same_kind(tmp_path: Path) -> None:
    old = Skill(task="llm", split="new_numbers", calculator=True, outcomes="0011")
    new = Skill(task="llm", split="new_numbers", calculator=True, outcomes="1111")
    new_skill = Skill(task="llm", split="unseen_wordings", calculator=True, outcomes="01")
    add_skills(tmp_path, [old, new_skill])
    add_skills(tmp_path, [new])
    assert {s.outcomes for s in read_skills(tmp_path)} == {"1111", "01"}
    assert "100.0 %" in markdown(read_skills(tmp_path))


def test_the_table_for_a_terminal_fits_eighty_columns() -> None:
    tasks: tuple[Task, ...] = ("delegate", "slm_sub_tasks")
    skills = [
        Skill(task=task, split=split, calculator=True, outcomes="1" * 400)
        for task in tasks
        for split in splits()
    ]
    out = io.StringIO()
    Console(file=out, width=80).print(table(skills))
    assert out.getvalue().count("(99.0–100.0)") == 2 * len(splits())
    assert "sub-tasks" in out.getvalue()


def test_an_answer_is_accepted_exactly_when_its_equations_hold() -> None:
    """The role workers' rule: `1.5 * 4 = 6` holds, and is not read as `5 * 4 = 6`."""
    right = Conversation((), [], text=r"So \boxed{6}", texts=["1.5 * 4 = 6", r"So \boxed{6}"])
    wrong = Conversation((), [], text=r"So \boxed{7}", texts=["1.5 * 4 = 7", r"So \boxed{7}"])
    assert accepted_answer(right) == "6"
    assert accepted_answer(wrong) is None
