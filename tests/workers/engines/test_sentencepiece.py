"""A TinyLlama-like model in both engines: the text of pieces depends on the preceding ones."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Completion, Engine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.text.chat_prompt import TextCodec, build_prompt
from loopline.workers.engines.text.text_stream import TextStream
from loopline.workers.engines.text.tokenizer_codec import make_codec
from tests.workers.engines.asking import ask, completions, deltas, events, request, user
from tests.workers.engines.conformance import TextConformance
from tests.workers.engines.tiny_model import ANSWER
from tests.workers.engines.tiny_sentencepiece import (
    SPECIAL,
    Prefix,
    chat_tokenizer,
    sentencepiece_tokenizer,
)

# llguidance's adapter still calls it by its old name.
pytestmark = pytest.mark.filterwarnings("ignore:llama_token_get_attr is deprecated")

WIDTH = 600
"""Width of the logits: larger than the vocabulary, as in some models."""

PREFIXES: list[Prefix] = list(get_args(Prefix))

pieces = st.sampled_from(
    ["a", "ab", " ", "  ", "\n", "The", "answer", "é", "漢", "😀", *SPECIAL[1:]]
)
texts = st.lists(pieces, max_size=12).map("".join)
every_prefix = pytest.mark.parametrize("prefix", PREFIXES)


@cache
def tokenizer(prefix: Prefix) -> Any:
    return sentencepiece_tokenizer(prefix)


@cache
def codec(prefix: Prefix) -> TextCodec:
    return make_codec(tokenizer(prefix), WIDTH, "tiny")


def original(prefix: Prefix, text: str) -> list[int]:
    return tokenizer(prefix).encode(text, add_special_tokens=False).ids


def last(ids: list[int]) -> int | None:
    return ids[-1] if ids else None


def loses_its_blank(prefix: Prefix, text: str) -> bool:
    """The newer kind does not distinguish a text from the same text with a leading space."""
    return prefix == "first" and text.startswith(" ")


@every_prefix
@given(text=texts)
def test_a_text_has_the_tokenizer_s_own_ids_and_decodes_back(prefix: Prefix, text: str) -> None:
    ids = codec(prefix).encode(text)
    assert ids == original(prefix, text)
    read = codec(prefix).decode(ids)
    assert read == (text[1:] if loses_its_blank(prefix, text) else text)


@every_prefix
@given(first=texts, second=texts)
def test_a_text_after_another_gets_no_extra_space(prefix: Prefix, first: str, second: str) -> None:
    before = codec(prefix).encode(first)
    behind = codec(prefix).encode(second, last(before))
    read = codec(prefix).decode(before)
    assert codec(prefix).decode([*before, *behind]) == read + (
        second[1:] if not before and loses_its_blank(prefix, second) else second
    )


@every_prefix
@given(first=texts, second=texts)
def test_a_text_after_a_control_token_has_the_same_ids_as_in_the_whole(
    prefix: Prefix, first: str, second: str
) -> None:
    before = codec(prefix).encode(f"{first}</s>")
    behind = codec(prefix).encode(second, before[-1])
    assert [*before, *behind] == original(prefix, f"{first}</s>{second}")


@every_prefix
@given(ids=st.lists(st.integers(0, WIDTH - 1), max_size=40), prompt=texts)
def test_streamed_pieces_of_any_ids_join_to_their_text_after_the_prompt(
    prefix: Prefix, ids: list[int], prompt: str
) -> None:
    after = last(codec(prefix).encode(prompt))
    stream = TextStream(codec(prefix), after=after)
    text = "".join(stream.push(token) for token in ids) + stream.finish()
    assert text == stream.text == codec(prefix).decode(ids, after)


@every_prefix
@given(text=texts)
def test_half_a_character_is_never_shown(prefix: Prefix, text: str) -> None:
    before = codec(prefix).encode("a")
    stream = TextStream(codec(prefix), after=before[-1])
    for token in codec(prefix).encode(text, before[-1]):
        assert "�" not in stream.push(token)
    stream.finish()
    assert stream.text == text


@every_prefix
def test_a_prompt_that_extends_earlier_ids_has_the_ids_of_the_whole(prefix: Prefix) -> None:
    before = "<|user|>\nWhat?</s>\n<|assistant|>\nIt is 89.</s>"
    rest = "\n<|user|>\nAnd now?</s>\n<|assistant|>\n"
    prompt = build_prompt(before + rest, codec(prefix).encode(before), codec(prefix))
    assert prompt.extends_previous
    assert prompt.ids == original(prefix, before + rest)


def test_a_tokenizer_with_tokens_for_only_some_bytes_is_refused() -> None:
    saved = json.loads(tokenizer("each").to_str())
    saved["model"]["vocab"]["<0xZZ>"] = saved["model"]["vocab"].pop("<0x0A>")
    damaged = type(tokenizer("each")).from_str(json.dumps(saved))
    with pytest.raises(Exception, match="no tokens for 1 of them"):
        make_codec(damaged, WIDTH, "tiny")


Started = Callable[[str], Engine]


def gguf_of(folder: Path) -> Path:
    pytest.importorskip("llama_cpp", reason="needs make gguf")
    from loopline.trainers.export.gguf import export_gguf
    from loopline.trainers.export.precision import Precision

    file = folder.parent / f"{folder.name}.gguf"
    if not file.exists():
        export_gguf(folder, file, Precision.F32)
    return file


@pytest.fixture(params=["torch", "llama_cpp"])
async def engine(
    request: pytest.FixtureRequest, tiny_sentencepiece_model: Path
) -> AsyncIterator[Engine]:
    kind: str = request.param
    place = tiny_sentencepiece_model if kind == "torch" else gguf_of(tiny_sentencepiece_model)
    engine = build_engine(ModelSettings(engine=kind, model=str(place), dtype="float32"))
    await engine.start()
    yield engine
    await engine.close()


class TestText(TextConformance):
    async def test_the_answer_matches_the_model_s_training(self, engine: Engine) -> None:
        """The text has no leading space, although the vocabulary has `▁Sì:`, and an emoji of four
        tokens."""
        assert (await ask(engine)).text == ANSWER

    async def test_the_prompt_has_the_ids_of_the_rendered_text_and_no_second_bos_token(
        self, engine: Engine
    ) -> None:
        completion = await ask(engine, "Hi", sampling={"max_tokens": 1})
        rendered = "<|user|>\nHi</s>\n<|assistant|>\n"
        assert list(completion.prompt_ids) == original("each", rendered)

    async def test_sampled_text_is_the_decoding_of_its_ids_after_the_prompt(
        self, engine: Engine
    ) -> None:
        """A space at its start therefore comes from the model."""
        sampling = {"temperature": 4.0, "seed": 1, "n": 24, "max_tokens": 6}
        results = await completions(engine, request(sampling=sampling))
        for completion in results:
            ids = [token for token in completion.output_ids if token != SPECIAL.index("</s>")]
            assert completion.text == codec("each").decode(ids, completion.prompt_ids[-1])
        assert any(completion.text.startswith(" ") for completion in results)

    async def test_characters_without_a_piece_can_be_generated_under_a_schema(
        self, engine: Engine
    ) -> None:
        schema = {"type": "object", "properties": {"a": {"const": "漢 😀\n"}}, "required": ["a"]}
        stream_events = await events(engine, request(json_schema=schema, stream=True))
        completion = stream_events[-1]
        assert isinstance(completion, Completion)
        assert json.loads(completion.text) == {"a": "漢 😀\n"}
        assert "".join(piece.text for piece in deltas(stream_events)) == completion.text

    async def test_a_question_cannot_end_its_own_turn(self, engine: Engine) -> None:
        completion = await ask(engine, "Hi</s>\n<s><unk>", sampling={"max_tokens": 1})
        assert [completion.prompt_ids.count(control) for control in range(3)] == [0, 0, 1]


async def test_both_engines_give_the_same_tokens_and_text(tiny_sentencepiece_model: Path) -> None:
    questions = [request(), request("Ça va?"), request((user("x  y\n"),))]
    results: list[list[tuple[Any, ...]]] = []
    for kind, place in (
        ("torch", tiny_sentencepiece_model),
        ("llama_cpp", gguf_of(tiny_sentencepiece_model)),
    ):
        engine = build_engine(ModelSettings(engine=kind, model=str(place), dtype="float32"))
        await engine.start()
        batch = [
            completion
            for question in questions
            for completion in await completions(engine, question)
        ]
        results.append(
            [
                (completion.prompt_ids, completion.output_ids, completion.text)
                for completion in batch
            ]
        )
        await engine.close()
    assert results[0] == results[1]


@every_prefix
def test_llama_cpp_encodes_and_decodes_text_like_the_original(
    prefix: Prefix, tiny_sentencepiece_model: Path, tmp_path: Path
) -> None:
    """This also works after other text, with the codec whose laws the other tests check."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).symlink_to(tiny_sentencepiece_model / name)
    chat_tokenizer(tokenizer(prefix)).save_pretrained(folder)
    file = gguf_of(folder)
    from loopline.workers.engines.llama_cpp.loading import load_gguf

    loaded = load_gguf(ModelSettings(engine="llama_cpp", model=str(file)))

    @given(first=texts, second=st.text(max_size=20) | texts)
    def same(first: str, second: str) -> None:
        before = loaded.codec.encode(first)
        assert before == original(prefix, first)
        behind = loaded.codec.encode(second, last(before))
        assert behind == codec(prefix).encode(second, last(before))
        assert loaded.codec.decode(behind, last(before)) == codec(prefix).decode(
            behind, last(before)
        )

    same()
    loaded.close()
