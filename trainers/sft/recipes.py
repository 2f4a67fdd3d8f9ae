"""Named trainings: sizes, schedule and the mix of dialogues."""

from __future__ import annotations

from pydantic import Field

from loopline.agents.records import Record
from loopline.trainers.errors import UnknownModel


class Recipe(Record):
    """One model's training; only the command line overrides parts of it."""

    name: str
    title: str
    purpose: str
    """One paragraph for the model card."""
    vocabulary: int
    """Size of the vocabulary, added tokens included."""
    hidden: int
    layers: int
    heads: int
    feed_forward: int
    context: int = 1024
    steps: int
    batch: int = 32
    """Dialogues per step."""
    learning_rate: float = 2e-3
    """Learning rate of embeddings, biases and norms (AdamW)."""
    matrix_learning_rate: float = 6e-3
    """Learning rate of the matrices inside the layers (Muon, in units of AdamW's step)."""
    warmup: int = 100
    weight_decay: float = 0.05
    clip: float = 1.0
    """Largest norm of the gradient."""
    seed: int = 1
    mix: dict[str, float] = Field(default_factory=dict)
    """Share of each kind of dialogue (see `loopline.trainers.sft.dialogues`)."""


RECIPES: dict[str, Recipe] = {
    "micro-llm": Recipe(
        name="micro-llm",
        title="Loopline micro-LLM",
        purpose=(
            "The broader of the two micro models. Offered `delegate`, it reads a word problem, "
            "names the next step and hands it on or calculates it; offered only `calculate`, or "
            "nothing, it solves the problem itself."
        ),
        vocabulary=2048,
        hidden=192,
        layers=4,
        heads=3,
        feed_forward=512,
        steps=4000,
        mix={
            "planner": 0.48,
            "planner_without_calculator": 0.08,
            "solo": 0.31,
            "solo_without_tools": 0.05,
            "sub_task": 0.06,
            "sub_task_without_tools": 0.02,
        },
    ),
    "micro-slm": Recipe(
        name="micro-slm",
        title="Loopline micro-SLM",
        purpose=(
            "The narrower of the two micro models. It solves the sub-task that the micro-LLM "
            "hands to it, with or without the calculator, and the shortest of the word problems."
        ),
        vocabulary=2048,
        hidden=128,
        layers=3,
        heads=2,
        feed_forward=352,
        steps=2800,
        mix={
            "sub_task": 0.66,
            "sub_task_without_tools": 0.14,
            "short_solo": 0.14,
            "short_solo_without_tools": 0.06,
        },
    ),
}


def recipe(name: str) -> Recipe:
    """The recipe of that name. Raises `UnknownModel`, which lists the available names."""
    model_recipe = RECIPES.get(name)
    if model_recipe is None:
        raise UnknownModel(
            f"there is no recipe for a model {name!r}; choose one of: {', '.join(RECIPES)}"
        )
    return model_recipe
