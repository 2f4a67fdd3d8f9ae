"""Token ids with a mask for the rows of a data set, exactly the ids that an engine would feed: the
messages go through the engine's own rendering and tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from loopline.agents.records import Message
from loopline.trainers.data.datasets import DataSet
from loopline.trainers.data.examples import Example
from loopline.trainers.data.token_rows import RecordedRows, TokenRow
from loopline.trainers.errors import TrainingError
from loopline.trainers.glpft.stages import Stage, is_in_part, is_validation
from loopline.workers.engines.text.chat_prompt import as_plain_text
from loopline.workers.engines.torch.loading import LoadedModel


@dataclass(frozen=True)
class StageRows:
    """Rows that a stage learns from, and rows on which its loss is measured."""

    training: tuple[TokenRow, ...]
    validation: tuple[TokenRow, ...]
    too_long: int
    """Rows left out because they do not fit into the model's context."""

    @property
    def tokens(self) -> int:
        """Tokens of the training rows, without padding."""
        return sum(len(row.ids) for row in self.training)


TrainingData = DataSet | RecordedRows


def sha256_of(data: TrainingData) -> str:
    """Hash of the data, which a training's settings record."""
    return data.sha256 if isinstance(data, RecordedRows) else data.card.sha256


def rows_of(
    data: TrainingData,
    stage: Stage,
    model: LoadedModel,
    validation: float,
    on_row: Callable[[], None] = lambda: None,
) -> StageRows:
    """The rows of a stage. Raises `TrainingError` if none is left to learn from."""
    training: list[TokenRow] = []
    kept_out: list[TokenRow] = []
    too_long = 0
    for instruction_id, example in _examples(data, stage):
        held_out = is_validation(instruction_id, validation)
        if held_out or is_in_part(instruction_id, stage.part):
            row = token_row(example, model) if isinstance(example, Example) else example
            if len(row.ids) > model.max_context:
                too_long += 1
            else:
                (kept_out if held_out else training).append(row)
        on_row()
    if not training:
        raise TrainingError(
            f"stage {stage.name}: no rows are left to learn from; {too_long:,} are longer than "
            f"the model's context of {model.max_context:,} tokens. Use more data, shorter rows "
            "(`train data --tool-style signatures`), or a model with a longer context"
        )
    return StageRows(tuple(training), tuple(kept_out), too_long)


def token_row(example: Example, model: LoadedModel) -> TokenRow:
    """The prompt, the target, and the token that ends a turn.

    Text is split where an engine splits it: after the prompt, and around text that the model does
    not write itself.
    """
    messages = (
        Message(role="system", content=example.system),
        Message(role="user", content=example.input),
    )
    ids = model.codec.encode(model.render(messages, ()))
    learned = [False] * len(ids)
    for span in example.target:
        if span.text:
            # A data set's text may contain a control token that is meant as plain text.
            text = as_plain_text(span.text, model.control_tokens)
            piece = model.codec.encode(text, ids[-1])
            ids += piece
            learned += [span.learned] * len(piece)
    return TokenRow((*ids, end_of_turn(model)), (*learned, True))


def end_of_turn(model: LoadedModel) -> int:
    """The id that ends a completion of this model. Raises `TrainingError` if it has none."""
    eos_id = model.tokenizer.eos_token_id
    if eos_id is None or int(eos_id) not in model.end_ids:
        raise TrainingError(f"the tokenizer of {model.base} has no eos_token to end a turn with")
    return int(eos_id)


def _examples(data: TrainingData, stage: Stage) -> Iterable[tuple[str, Example | TokenRow]]:
    """Examples, each with the id of its instruction. From recorded rows, a stage reads those of its
    agent, or all of them."""
    if isinstance(data, RecordedRows):
        for recorded in data.rows:
            if stage.agent in (None, recorded.agent):
                yield recorded.instruction_id, recorded.row
        return
    for name in stage.sets:
        for example in data.sets[name]:
            yield example.instruction_id, example
