"""The model card, written by the command that made and measured the model."""

from __future__ import annotations

from pathlib import Path

from loopline.agents.environments.word_problems import schemes
from loopline.agents.records import Record
from loopline.trainers.core.json_records import find_record, write_record
from loopline.trainers.sft.evaluation import SKILLS, markdown, read_skills
from loopline.trainers.sft.recipes import Recipe

FACTS = "training.json"
CARD = "README.md"


class TrainingFacts(Record):
    """How a finished model was trained."""

    recipe: Recipe
    command: str
    parameters: int
    steps: int
    tokens: int
    """Tokens that went through the model, padding included."""
    seconds: float
    """Seconds of one thread."""
    last_loss: float
    """Loss of the last interval, nats per learned token."""
    torch: str
    transformers: str


def read_facts(folder: Path) -> TrainingFacts | None:
    """The facts of a finished training in `folder`, or `None`."""
    return find_record(folder / FACTS, TrainingFacts)


def write_facts(folder: Path, facts: TrainingFacts) -> None:
    """Write the facts, complete or not at all: half a file would look like a damaged finished
    training. Raises OSError."""
    write_record(folder / FACTS, facts)


def remove_facts(folder: Path) -> None:
    """Remove the record that the training in `folder` is finished, and its measurements."""
    for name in (FACTS, SKILLS):
        (folder / name).unlink(missing_ok=True)


def write_card(folder: Path) -> None:
    """Render the card from the records in the folder; does nothing before training has finished."""
    facts = read_facts(folder)
    if facts is None:
        return
    recipe = facts.recipe
    count = len(schemes())
    wordings = sum(len(scheme.wordings) for scheme in schemes())
    held_out = sum(scheme.held_out for scheme in schemes())
    size = sum(p.stat().st_size for p in folder.iterdir() if p.suffix in (".safetensors", ".json"))
    mix = ", ".join(f"{kind} {share:.0%}" for kind, share in recipe.mix.items())
    text = f"""# {recipe.title}

{recipe.purpose}

It solves problems of the grammar of `agents/environments/word_problems` ({count} schemes in
{wordings} wordings, {held_out} schemes and every fifth wording held out) and nothing else. On any
other text it returns an answer that is most likely wrong.

## How it was made

    {facts.command}

Qwen2 architecture, {facts.parameters:,} parameters ({recipe.layers} layers, width {recipe.hidden},
{recipe.heads} heads), trained from random weights on generated dialogues: {facts.steps:,} steps of
{recipe.batch} dialogues, {facts.tokens:,} tokens, {facts.seconds / 60:.0f} minutes on one thread,
last loss {facts.last_loss:.4f} nats per learned token. Mix: {mix}. Seed {recipe.seed},
torch {facts.torch}, transformers {facts.transformers}. The tokenizer was trained by the same
command. Weights are stored in fp16; {size / 1e6:.1f} MB with the tokenizer.

## Measured skill

Greedy decoding, success with 95 % Wilson intervals. *new numbers*: known stories with other
numbers; *unseen combinations*: known links in an order that training never shows; *unseen
wordings*: every sentence in a wording that training never shows; *unseen structures*: at least
one link that training never shows.

{markdown(read_skills(folder)) if read_skills(folder) else "Not measured yet: run `train eval`."}

## Use

ChatML with Qwen's tool-call markup. The template ignores the system text and lists only the names
of the offered tools. Trained on text from this repository's generator; same licence as the
repository.
"""
    (folder / CARD).write_text(text)
