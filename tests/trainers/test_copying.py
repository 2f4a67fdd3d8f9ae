"""Copying comes first: rows that consist of copies, heads that look back, and equal tokens in a
sentence and in a call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from loopline.trainers.core.network import load_base
from loopline.trainers.errors import TrainingError
from loopline.trainers.glpft.copying import LOOKS_BACK, copying_rows
from loopline.trainers.glpft.from_scratch import GLUES, frequent_json_separators, write_new_model
from loopline.trainers.glpft.stages import COPYING, ROLES, Stage
from loopline.workers.engines.torch.loading import LoadedModel

from .tiny_glpft import DATA, SETTINGS, SIZE

STAGE = Stage(COPYING, ROLES, 0.2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = tmp_path_factory.mktemp("copying") / "initial"
    write_new_model(DATA, SIZE.model_copy(update={"heads": 4}), 1, folder)
    return load_base(str(folder))


def test_every_learned_token_follows_the_same_two_tokens_earlier_in_its_row(
    model: LoadedModel,
) -> None:
    rows = copying_rows(DATA, STAGE, model, SETTINGS, 40_000).training
    assert len(rows) > 40
    for row in rows:
        assert any(row.learned)
        for at, learned in enumerate(row.learned):
            if learned:
                three = row.ids[at - 2 : at + 1]
                assert any(row.ids[n : n + 3] == three for n in range(at - 2)), (row, at)


def test_the_rows_fill_the_token_budget_and_follow_from_the_seed(
    model: LoadedModel,
) -> None:
    few = copying_rows(DATA, STAGE, model, SETTINGS, 1_000)
    assert 5 <= len(few.training) <= 20
    assert few.validation
    again = copying_rows(DATA, STAGE, model, SETTINGS, 1_000)
    assert again == few
    other_settings = SETTINGS.model_copy(update={"seed": 2})
    assert copying_rows(DATA, STAGE, model, other_settings, 1_000) != few


def test_a_data_set_with_nothing_to_copy_from_is_refused(model: LoadedModel) -> None:
    empty = replace(DATA, sets={**DATA.sets, **dict.fromkeys(ROLES, ())})
    with pytest.raises(TrainingError, match=r"copying: no rows .*planner, caller, summarizer"):
        copying_rows(empty, STAGE, model, SETTINGS, 1_000)


def test_the_first_heads_of_random_weights_attend_to_the_preceding_tokens(
    model: LoadedModel,
) -> None:
    network = model.model
    network.set_attn_implementation("eager")
    ids = torch.arange(40)[None] + 20
    with torch.no_grad():
        first = network(input_ids=ids, output_attentions=True).attentions[0][0]
    for head in range(LOOKS_BACK):
        back = head + 1
        on_it = first[head].diagonal(-back)[8:]
        assert float(on_it.mean()) > 0.7, f"head {head}"


def test_a_name_has_the_same_tokens_in_a_sentence_and_in_a_call(model: LoadedModel) -> None:
    encode = model.codec.encode
    for name in ("Madrid", "Oslo", "Max"):
        alone = encode(name)
        for text in (f"I fly to {name}.", f'{{"city": "{name}"}}'):
            ids = encode(text)
            places = range(len(ids))
            assert any(ids[at : at + len(alone)] == alone for at in places), (name, text)


def test_a_frequent_word_and_the_blank_before_it_are_one_token(model: LoadedModel) -> None:
    tokens = model.tokenizer.tokenize("the price of the flight")
    assert "Ġof" in tokens
    assert "Ġthe" in tokens


def test_the_json_between_two_values_is_one_token(model: LoadedModel) -> None:
    glue, *_ = frequent_json_separators([row.input for row in DATA.sets["planner"]])
    pieces = [model.codec.decode([token]) for token in model.codec.encode(f"AB12{glue}AB12")]
    assert pieces == [*pieces[: len(pieces) // 2], glue, *pieces[: len(pieces) // 2]]


def test_the_most_frequent_json_separators_get_the_limited_number_of_tokens() -> None:
    texts = ['{"day":"Monday","due":"Friday"}'] * 2 + [
        f'{{"menu":1,"dish{"x" * size}":1}}' for size in range(GLUES)
    ]
    glues = frequent_json_separators(texts)
    assert len(glues) == GLUES
    assert '","due":"' in glues[:3]
