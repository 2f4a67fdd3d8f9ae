"""An exported model has its source's text side: tokens, ends of turns, templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopline.agents.records import Message, ToolSpec
from loopline.trainers.errors import TrainingError
from loopline.trainers.export.gguf import export_gguf
from loopline.workers.engines.settings import ModelSettings
from tests.trainers.test_gguf_export import model


def edited(folder: Path, name: str, **fields: Any) -> None:
    """Set fields of a JSON file; None removes one."""
    file = folder / name
    saved = {**(json.loads(file.read_text()) if file.exists() else {}), **fields}
    file.write_text(json.dumps({key: value for key, value in saved.items() if value is not None}))


def text_sides(folder: Path, file: Path) -> tuple[Any, Any]:
    """The model of `folder` as the torch engine reads it, and `file`, its export, as llama.cpp
    does."""
    pytest.importorskip("llama_cpp", reason="needs make gguf")
    from loopline.workers.engines.llama_cpp.loading import load_gguf
    from loopline.workers.engines.torch.loading import load_model

    export_gguf(folder, file)
    return (
        load_model(ModelSettings(engine="torch", model=str(folder))),
        load_gguf(ModelSettings(engine="llama_cpp", model=str(file))),
    )


NEW = {
    "content": "<new>", "single_word": False, "lstrip": False, "rstrip": False,
    "normalized": False, "special": True,
}  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {"additional_special_tokens": ["<|im_start|>", "<new>"]},
        {"extra_special_tokens": {"image_token": "<new>"}},
        {"bos_token": "<new>"},
        {"added_tokens_decoder": {"2048": NEW}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_token_that_only_tokenizer_config_names_is_exported(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    folder = model(tmp_path / "model", "qwen2 with more rows")
    edited(folder, "tokenizer_config.json", **fields)
    source, exported = text_sides(folder, tmp_path / "model.gguf")
    assert exported.codec.encode("<new>") == source.codec.encode("<new>") == [2048]
    exported.close()


def test_an_added_token_has_the_id_that_transformers_gives_it(tmp_path: Path) -> None:
    """tokenizers ignores an id that another text has, and one after a gap."""
    folder = model(tmp_path / "model", "qwen2 with more rows")
    saved = json.loads((folder / "tokenizer.json").read_text())
    saved["added_tokens"] += [{**NEW, "id": 2000}, {**NEW, "id": 2055, "content": "<newer>"}]
    edited(folder, "tokenizer.json", **saved)
    source, exported = text_sides(folder, tmp_path / "model.gguf")
    for text in ("<new>", "<newer>", exported.codec.decode([2000])):
        assert exported.codec.encode(text) == source.codec.encode(text)
    exported.close()


def test_an_option_that_tokenizer_config_gives_a_token_is_refused(tmp_path: Path) -> None:
    folder = model(tmp_path / "model", "qwen2")
    end = {**NEW, "content": "<|im_end|>", "lstrip": True}
    edited(folder, "tokenizer_config.json", added_tokens_decoder={"2": end})
    with pytest.raises(TrainingError, match=r"'<\|im_end\|>' sets lstrip"):
        export_gguf(folder, tmp_path / "model.gguf")


@pytest.mark.parametrize("named", [{"eos_token": "<|im_end|>"}, {"eos_token": None}], ids=str)
def test_every_token_that_ends_a_turn_does_so_in_llama_cpp(
    tmp_path: Path, named: dict[str, Any]
) -> None:
    """llama.cpp would take token 11 in place of a missing one."""
    folder = model(tmp_path / "model", "qwen2")
    edited(folder, "tokenizer_config.json", **named)
    edited(folder, "generation_config.json", eos_token_id=[2, 300, 301])
    source, exported = text_sides(folder, tmp_path / "model.gguf")
    assert source.end_ids == {2, 300, 301}
    assert exported.end_ids - source.end_ids == {0}  # <|endoftext|>, which llama.cpp knows
    exported.close()


@pytest.mark.parametrize(("ends", "count"), [(None, 0), ([2, 300, 301, 302], 4)])
def test_a_model_with_no_or_too_many_tokens_that_end_a_turn_is_refused(
    tmp_path: Path, ends: list[int] | None, count: int
) -> None:
    folder = model(tmp_path / "model", "qwen2")
    edited(folder, "tokenizer_config.json", eos_token=None)
    edited(folder, "generation_config.json", eos_token_id=ends)
    with pytest.raises(TrainingError, match=f"it has {count} tokens that end a turn"):
        export_gguf(folder, tmp_path / "model.gguf")


def test_a_template_with_a_token_that_is_not_set_renders_none_in_its_place(tmp_path: Path) -> None:
    folder = model(tmp_path / "model", "qwen2")
    template = folder / "chat_template.jinja"
    template.write_text("{{ bos_token }}" + template.read_text())
    source, exported = text_sides(folder, tmp_path / "model.gguf")
    turns = [Message(role="user", content="Hello")]
    assert exported.render(turns, []) == source.render(turns, [])
    exported.close()


def test_a_separate_template_for_tools_is_used_for_them(tmp_path: Path) -> None:
    """As Hermes' and Command R's models have one."""
    folder = model(tmp_path / "model", "qwen2")
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    both = [{"name": name, "template": name + template} for name in ("default", "tool_use")]
    edited(folder, "tokenizer_config.json", chat_template=both)
    source, exported = text_sides(folder, tmp_path / "model.gguf")
    turns = [Message(role="user", content="Hello")]
    tool = ToolSpec(name="now", description="", parameters={"type": "object", "properties": {}})
    for tools, name in (([], "default"), ([tool], "tool_use")):
        assert exported.render(turns, tools) == source.render(turns, tools)
        assert exported.render(turns, tools).startswith(name)
    exported.close()


def test_a_tokenizer_that_cuts_or_pads_reads_the_whole_text(tmp_path: Path) -> None:
    folder = model(tmp_path / "model", "qwen2")
    cut = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    pad = {
        "strategy": {"Fixed": 20}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
        "pad_type_id": 0, "pad_token": "<|endoftext|>",
    }  # fmt: skip
    edited(folder, "tokenizer.json", truncation=cut, padding=pad)
    source, exported = text_sides(folder, tmp_path / "model.gguf")
    text = "one two three four five six"
    assert source.codec.decode(source.codec.encode(text)) == text
    assert source.codec.encode(text) == exported.codec.encode(text)
    exported.close()
