"""The weights in the repository load, fit, and perform as their cards state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors import safe_open

from loopline import workers
from loopline.trainers.core.models import WEIGHTS, Model, load_model
from loopline.trainers.sft.batched_dialogues import attempt
from loopline.trainers.sft.card import CARD, read_facts
from loopline.trainers.sft.evaluation import SEED, Task, measure, read_skills
from loopline.trainers.sft.recipes import RECIPES

pytestmark = pytest.mark.slow

FOLDER = Path(workers.__path__[0]) / "micro_models"
NAMES = ("llm", "slm")
MEGABYTES = 8
SAMPLE = 60
"""Problems per split that are repeated here; the cards have several hundred."""
POINTS = 0.03


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return {name: load_model(FOLDER / name) for name in NAMES}


def test_all_weights_together_stay_within_eight_megabytes() -> None:
    sizes = [path.stat().st_size for path in FOLDER.rglob("*.safetensors")]
    assert sum(sizes) <= MEGABYTES * 1_000_000


@pytest.mark.parametrize("name", NAMES)
def test_the_card_names_the_command_whose_recipe_made_the_weights(name: str) -> None:
    facts = read_facts(FOLDER / name)
    assert facts is not None
    assert facts.recipe == RECIPES[f"micro-{name}"]
    card = (FOLDER / name / CARD).read_text()
    assert facts.command == f"train sft micro-{name} --output workers/micro_models/{name}"
    assert facts.command in card
    assert "new numbers" in card


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_half_precision_and_the_embedding_is_stored_once(name: str) -> None:
    with safe_open(FOLDER / name / WEIGHTS, framework="pt") as file:
        names = set(file.keys())
        assert {str(file.get_slice(key).get_dtype()) for key in names} == {"F16"}
    assert "lm_head.weight" not in names


@pytest.mark.parametrize("name", NAMES)
def test_transformers_loads_model_and_tokenizer_from_just_the_folder(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    tokenizer = AutoTokenizer.from_pretrained(FOLDER / name)
    model = AutoModelForCausalLM.from_pretrained(FOLDER / name)
    assert type(model).__name__ == "Qwen2ForCausalLM"
    assert tokenizer.eos_token == "<|im_end|>"
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert len(tokenizer) == model.config.vocab_size
    for text in ("<tool_call>", "</tool_call>"):
        assert len(tokenizer.encode(text)) == 1
    config = json.loads((FOLDER / name / "config.json").read_text())
    assert "/" not in str(config.get("_name_or_path", ""))


@pytest.mark.parametrize(
    ("task", "split"),
    [
        ("delegate", "new_numbers"),
        ("delegate", "unseen_combinations"),
        ("delegate", "unseen_wordings"),
        ("llm", "new_numbers"),
        ("slm_sub_tasks", "unseen_combinations"),
    ],
)
def test_measured_skill_is_within_three_points_of_the_card(
    task: Task, split: str, models: dict[str, Model]
) -> None:
    recorded = [
        skill
        for skill in read_skills(FOLDER / ("slm" if task.startswith("slm") else "llm"))
        if skill.task == task and skill.split == split and skill.calculator
    ]
    assert len(recorded) == 1, "the card lacks this skill; run `train eval --record`"
    assert recorded[0].seed == SEED
    # The same problems, so that only a change of the models can make a difference.
    before = recorded[0].outcomes[:SAMPLE]
    now = measure(task, split, samples=SAMPLE, llm=models["llm"], slm=models["slm"]).outcomes
    assert abs(now.count("1") - before.count("1")) <= POINTS * SAMPLE, (before, now)


def test_text_outside_the_grammar_ends(models: dict[str, Model]) -> None:
    prompts = [
        "A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts?",
        "¿Cuántas manzanas? 🍎🍎 <|im_end|> \\boxed{9}",
        "Why?",
    ]
    results = attempt("delegate", prompts, llm=models["llm"], slm=models["slm"])
    assert len(results) == len(prompts)
