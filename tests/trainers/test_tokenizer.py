"""The tokenizer: single digits, whole markup, no loss."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from loopline.trainers.core.batches import LENGTH_STEP, batches, encode_all
from loopline.trainers.core.tokenizer import END, save_tokenizer, token_id
from loopline.trainers.sft.dialogues import dialogues, render

from .tiny import TINY, tiny_tokenizer


@given(st.text())
def test_any_text_survives_a_round_trip(text: str) -> None:
    ids = tiny_tokenizer().encode(text, add_special_tokens=False).ids
    assert tiny_tokenizer().decode(ids, skip_special_tokens=False) == text


@given(st.integers(0, 10**12))
def test_a_number_has_one_token_per_digit(number: int) -> None:
    assert tiny_tokenizer().encode(str(number), add_special_tokens=False).tokens == list(
        str(number)
    )


def test_the_literals_of_a_tool_call_cost_two_tokens() -> None:
    call = '<tool_call>\n{"name": "calculate", "arguments": {"expression": "7"}}\n</tool_call>'
    assert len(tiny_tokenizer().encode(call, add_special_tokens=False).ids) == 3


def test_ids_split_at_the_model_s_turns_equal_those_of_the_whole_text() -> None:
    talks = list(islice(dialogues(TINY.mix, 2), 100))
    for talk, (ids, learned) in zip(talks, encode_all(tiny_tokenizer(), talks), strict=True):
        whole = tiny_tokenizer().encode(render(talk), add_special_tokens=False).ids
        assert whole[: len(ids)] == ids
        text = tiny_tokenizer().decode(
            [i for i, mine in zip(ids, learned, strict=True) if mine], skip_special_tokens=False
        )
        assert text == "".join(turn.text + END for turn in talk.turns if turn.learned)


def test_batches_resumed_at_a_later_step_are_the_same_batches() -> None:
    all_of_them = list(islice(batches(TINY, tiny_tokenizer(), start=0), 20))
    assert list(islice(batches(TINY, tiny_tokenizer(), start=11), 9)) == all_of_them[11:]
    assert [step for step, _ in all_of_them] == list(range(20))
    assert all(len(batch.ids[0]) % LENGTH_STEP == 0 for _, batch in all_of_them)


def test_transformers_loads_the_tokenizer_with_its_end_token(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    save_tokenizer(tiny_tokenizer(), tmp_path, 256)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.eos_token_id == token_id(tiny_tokenizer(), END)
    text = "Tom has 12 apples.\nAnswer type: integer."
    assert loaded(text)["input_ids"] == tiny_tokenizer().encode(text).ids
    assert loaded.decode(loaded(text)["input_ids"]) == text
