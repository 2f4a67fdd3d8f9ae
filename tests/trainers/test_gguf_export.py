"""`train export` writes the same model: llama.cpp reads it and computes the same logits."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGUFReader
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from loopline.trainers import cli
from loopline.trainers.errors import TrainingError
from loopline.trainers.export import gguf_tokenizer
from loopline.trainers.export.gguf import export_gguf, export_gguf_adapter
from loopline.trainers.export.precision import Precision
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.local.model_files import MICRO_MODELS
from loopline.workers.engines.settings import ModelSettings
from tests.forked import TRAIN, forked
from tests.workers.engines.tiny_lora import make_tiny_lora

SHAPE: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "eos_token_id": 2,
    "bos_token_id": None,
    # Far from the flat logits and the zero biases of a fresh model, which agree with anything.
    "initializer_range": 0.5,
}
WIDER: dict[str, Any] = {**SHAPE, "vocab_size": 2056, "tie_word_embeddings": True}
LLAMA: dict[str, Any] = {**SHAPE, "rope_theta": 5e5}
MODELS: dict[str, Any] = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=True)),
    "qwen2 untied": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=False)),
    "qwen2 with more rows": lambda: Qwen2ForCausalLM(Qwen2Config(**WIDER)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=32)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
    "llama with biases": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, attention_bias=True)),
}


def run_train(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forked("loopline.trainers.cli", TRAIN, arguments, timeout=100)


def with_tokenizer(folder: Path) -> Path:
    """Give a model the micro-LLM's tokenizer and chat template."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(MICRO_MODELS / "llm" / name, folder)
    return folder


def model(folder: Path, kind: str) -> Path:
    torch.manual_seed(3)
    network = MODELS[kind]()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.5)
    network.save_pretrained(folder)
    return with_tokenizer(folder)


@pytest.mark.parametrize("kind", list(MODELS))
async def test_an_exported_model_scores_text_as_before(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("llama_cpp", reason="needs make gguf")
    folder, file = model(tmp_path / "model", kind), tmp_path / "model.gguf"
    export_gguf(folder, file, Precision.F32)
    ids = torch.randint(20, 2000, (60,), generator=torch.Generator().manual_seed(1)).tolist()
    scores: list[list[float]] = []
    for engine, place in (("torch", folder), ("llama_cpp", file)):
        loaded = build_engine(ModelSettings(engine=engine, model=str(place), dtype="float32"))
        await loaded.start()
        scores.append(await loaded.score(ids))
        await loaded.close()
    assert scores[1] == pytest.approx(scores[0], abs=2e-3)


@pytest.mark.parametrize("tensor", ["attn_q", "attn_k"])
def test_a_llama_s_biases_are_permuted_like_its_weights(tmp_path: Path, tensor: str) -> None:
    network: Any = MODELS["llama with biases"]()
    with torch.no_grad():
        for layer in network.model.layers:
            for part in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                part.bias.copy_(part.weight[:, 0])
    network.save_pretrained(tmp_path / "model")
    export_gguf(with_tokenizer(tmp_path / "model"), tmp_path / "model.gguf", Precision.F32)
    tensors = {tensor.name: tensor.data for tensor in GGUFReader(tmp_path / "model.gguf").tensors}
    weight, bias = tensors[f"blk.1.{tensor}.weight"], tensors[f"blk.1.{tensor}.bias"]
    assert bias.tolist() == weight[:, 0].tolist()


@pytest.mark.parametrize("precision", list(Precision))
def test_the_command_line_offers_every_precision(tmp_path: Path, precision: Precision) -> None:
    if precision is Precision.Q4_K_M:
        pytest.importorskip("llama_cpp", reason="needs make gguf")
    file = tmp_path / "deep" / "slm.gguf"
    process = run_train("export", "micro:slm", "--gguf", str(file), "--precision", precision)
    assert process.returncode == 0, process.stderr
    assert [path.name for path in file.parent.iterdir()] == ["slm.gguf"]
    assert file.read_bytes()[:4] == b"GGUF"


def test_a_tokenizer_that_llama_cpp_would_split_differently_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MICRO_MODELS / "slm", folder)
    saved = json.loads((folder / "tokenizer.json").read_text())
    saved["pre_tokenizer"]["pretokenizers"][0] = {"type": "Whitespace"}
    (folder / "tokenizer.json").write_text(json.dumps(saved))
    with pytest.raises(TrainingError, match="the way in which it splits text"):
        export_gguf(folder, tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gpt_neox"}, "'gpt_neox' cannot be exported"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "scaled rotary positions"),
        ({"rope_parameters": {"type": "linear", "factor": 2.0}}, "scaled rotary positions"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "scaled rotary positions"),
        ({"rms_norm_eps": None}, "config.json does not describe a model"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' cannot be exported"),
        ({"use_sliding_window": True, "sliding_window": 64}, "sliding window"),
        (
            {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
            "sliding window",
        ),
    ],
)
def test_a_model_that_cannot_be_exported_exactly_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MICRO_MODELS / "slm", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(TrainingError, match=words):
        export_gguf(folder, tmp_path / "model.gguf")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    process = run_train("export", str(tmp_path), "--gguf", str(tmp_path / "x.gguf"))
    assert process.returncode != 0
    assert "config.json is missing: name a model's folder" in process.stderr


def named(*words: str) -> Callable[[Path], list[str]]:
    return lambda _: [*words]


def pickled(folder: Path) -> list[str]:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return [str(folder)]


def cut_off(folder: Path) -> list[str]:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    return [str(folder)]


def too_small(folder: Path) -> list[str]:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 100}))
    return [str(folder)]


def adapter(*, base: str, **changes: object) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        lora = make_tiny_lora(folder, folder.parent / "lora", 1)
        config = json.loads((lora / "adapter_config.json").read_text())
        (lora / "adapter_config.json").write_text(json.dumps({**config, **changes}))
        return [str(lora), *(["--base", base] if base else [])]

    return make


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (named("/nowhere"), "config.json is missing: name a model's folder"),
        (named("micro:big"), "there is no micro model 'micro:big'; shipped: micro:llm"),
        (named("micro:slm", "--precision", "q9"), "--precision q9: Input should be 'f32', 'f16'"),
        (pickled, "in pickle format (pytorch_model.bin)"),
        (cut_off, "model.safetensors is damaged"),
        (too_small, "its embedding has 100 rows"),
        (adapter(base=""), "name its model with --base"),
        (adapter(base="micro:big"), "there is no micro model 'micro:big'"),
        (adapter(base="micro:llm"), "it belongs to another model"),
        (adapter(base="micro:slm", r="four"), "adapter_config.json is wrong (r)"),
        (adapter(base="micro:slm", r=8), "needs (8, "),
        (adapter(base="micro:slm", rank_pattern={"q_proj": 2}), "it uses rank_pattern"),
    ],
)
def test_a_failed_export_prints_one_error_and_leaves_no_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: Callable[[Path], list[str]],
    words: str,
) -> None:
    folder = Path(shutil.copytree(MICRO_MODELS / "slm", tmp_path / "model"))
    file = tmp_path / "out" / "x.gguf"
    argv = ["train", "export", *arguments(folder), "--gguf", str(file)]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    output = capsys.readouterr().err
    assert ended.value.code not in (0, None)
    assert output.count("error: ") == 1
    assert words in output
    assert not list(file.parent.glob("*"))


def test_a_folder_in_place_of_the_file_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train", "export", "micro:slm", "--gguf", str(tmp_path)])
    with pytest.raises(SystemExit):
        cli.main()
    assert f"{tmp_path} is a folder: name the file to write" in capsys.readouterr().err


def changed(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """The model of `folder` with other tensors."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


async def scores_of(engine: str, place: Path, ids: list[int]) -> list[float]:
    loaded = build_engine(ModelSettings(engine=engine, model=str(place), dtype="float32"))
    await loaded.start()
    try:
        return await loaded.score(ids)
    finally:
        await loaded.close()


async def test_a_head_in_the_files_is_exported_even_if_the_configuration_ties_it(
    tmp_path: Path,
) -> None:
    pytest.importorskip("llama_cpp", reason="needs make gguf")
    folder, file = model(tmp_path / "model", "qwen2 untied"), tmp_path / "model.gguf"
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "tie_word_embeddings": True}))
    export_gguf(folder, file, Precision.F32)
    assert "output.weight" in {tensor.name for tensor in GGUFReader(file).tensors}
    ids = list(range(30, 60))
    with torch.no_grad():
        logits = Qwen2ForCausalLM.from_pretrained(folder)(torch.tensor([ids])).logits[0]
    wanted = torch.log_softmax(logits.float(), -1)[range(len(ids) - 1), ids[1:]].tolist()
    scores = await scores_of("llama_cpp", file, ids)
    assert scores[-len(wanted) :] == pytest.approx(wanted, abs=2e-3)


def test_a_head_tied_to_the_embedding_is_not_written_twice(tmp_path: Path) -> None:
    def doubled(tensors: dict[str, torch.Tensor]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    export_gguf(changed(model(tmp_path / "model", "qwen2"), doubled), tmp_path / "m", Precision.F32)
    assert "output.weight" not in {tensor.name for tensor in GGUFReader(tmp_path / "m").tensors}


DOWN = "model.layers.0.mlp.down_proj.weight"


def entry(value: float) -> Callable[[dict[str, torch.Tensor]], object]:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[DOWN][3, 5] = value

    return change


def without(tensors: dict[str, torch.Tensor]) -> None:
    del tensors[DOWN]


def shorter(tensors: dict[str, torch.Tensor]) -> None:
    tensors[DOWN] = tensors[DOWN][:-1].clone()


@pytest.mark.parametrize(
    ("change", "precision", "words"),
    [
        (entry(float("nan")), Precision.F32, "not finite"),
        (entry(float("-inf")), Precision.Q8_0, "not finite"),
        (entry(7e4), Precision.F16, "up to 70000, which f16 cannot hold"),
        (entry(1e7), Precision.Q8_0, "which q8_0 cannot hold"),
        (without, Precision.F32, "1 tensors .* are missing"),
        (shorter, Precision.F32, "contradicts config.json"),
    ],
)
def test_weights_that_cannot_be_exported_are_refused_by_name(
    tmp_path: Path,
    change: Callable[[dict[str, torch.Tensor]], object],
    precision: Precision,
    words: str,
) -> None:
    folder = changed(model(tmp_path / "model", "qwen2"), change)
    with pytest.raises(TrainingError, match=words) as caught:
        export_gguf(folder, tmp_path / "model.gguf", precision)
    assert DOWN in str(caught.value)
    assert list(tmp_path.iterdir()) == [folder]


def test_weights_beyond_the_range_of_4_bits_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs make gguf")
    folder = changed(model(tmp_path / "model", "qwen2"), entry(1e12))
    with pytest.raises(TrainingError, match="could not quantize"):
        export_gguf(folder, tmp_path / "model.gguf", Precision.Q4_K_M)
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.F32])
def test_large_weights_fit_if_exponents_are_large(tmp_path: Path, precision: Precision) -> None:
    folder = changed(model(tmp_path / "model", "qwen2"), entry(7e4))
    export_gguf(folder, tmp_path / "model.gguf", precision)


def test_a_file_that_would_crash_llama_cpp_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llama_cpp", reason="needs make gguf")

    def as_they_are(named: dict[int, str], width: int) -> list[str]:
        return [named[place] for place in range(width - 1)] + [named[0]]

    monkeypatch.setattr(gguf_tokenizer, "_pad", as_they_are)
    folder = model(tmp_path / "model", "qwen2")
    with pytest.raises(TrainingError, match=r"llama\.cpp crashes on"):
        export_gguf(folder, tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == [folder]


Saved = dict[str, Any]


def with_added(**fields: Any) -> Callable[[Saved], object]:
    added = {
        "id": 2048, "content": "<new>", "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": False, "special": True,
    }  # fmt: skip
    return lambda saved: saved["added_tokens"].append({**added, **fields})


def compatible(saved: Saved) -> None:
    saved["normalizer"] = {"type": "NFKC"}


def whole_words(saved: Saved) -> None:
    saved["model"]["ignore_merges"] = True


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_added(content="<|im_end|>"), r"the text '<\|im_end\|>' has two ids, \d+ and 2048"),
        (with_added(lstrip=True), "'<new>' sets lstrip"),
        (with_added(rstrip=True, single_word=True), "'<new>' sets rstrip and single_word"),
        (compatible, "the way in which it splits text"),
        (whole_words, "ignore_merges"),
    ],
)
def test_a_byte_level_tokenizer_that_llama_cpp_would_read_differently_is_refused(
    tmp_path: Path, change: Callable[[Saved], object], words: str
) -> None:
    folder = model(tmp_path / "model", "qwen2 with more rows")
    saved = json.loads((folder / "tokenizer.json").read_text())
    change(saved)
    (folder / "tokenizer.json").write_text(json.dumps(saved))
    with pytest.raises(TrainingError, match=words):
        export_gguf(folder, tmp_path / "model.gguf")


@pytest.mark.parametrize(
    "name", ["rms_norm_eps", "max_position_embeddings", "rope_parameters", "hidden_act"]
)
def test_a_field_that_config_json_lacks_has_transformers_default(tmp_path: Path, name: str) -> None:
    folder, file = model(tmp_path / "model", "qwen2"), tmp_path / "model.gguf"
    config = json.loads((folder / "config.json").read_text())
    del config[name]
    (folder / "config.json").write_text(json.dumps(config))
    export_gguf(folder, file, Precision.F32)
    epsilon = GGUFReader(file).fields["qwen2.attention.layer_norm_rms_epsilon"].contents()
    assert epsilon == pytest.approx(1e-6)


@pytest.mark.parametrize("keep", ["lora_A", "nothing"])
def test_an_adapter_without_both_halves_is_not_exported(tmp_path: Path, keep: str) -> None:
    folder = model(tmp_path / "model", "qwen2")
    lora = make_tiny_lora(folder, tmp_path / "lora", 1)
    file = lora / "adapter_model.safetensors"
    save_file({name: value for name, value in load_file(file).items() if keep in name}, file)
    with pytest.raises(TrainingError, match="it has no pair of lora_A and lora_B for"):
        export_gguf_adapter(lora, folder, tmp_path / "adapter.gguf")
    assert not (tmp_path / "adapter.gguf").exists()


def test_a_tokenizer_that_composes_text_gives_the_same_ids_in_llama_cpp(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs make gguf")
    from loopline.workers.engines.llama_cpp.loading import load_gguf

    folder = model(tmp_path / "model", "qwen2")
    saved = json.loads((folder / "tokenizer.json").read_text())
    saved["normalizer"] = {"type": "NFC"}
    (folder / "tokenizer.json").write_text(json.dumps(saved))
    export_gguf(folder, tmp_path / "model.gguf")
    loaded = load_gguf(ModelSettings(engine="llama_cpp", model=str(tmp_path / "model.gguf")))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    try:
        for text in (
            "cafe\u0301",
            "caf\u00e9",
            "a<|im_end|>\u0338b",
            "<|im_start|>e\u0301\u0323 x",
        ):
            assert loaded.codec.encode(text) == tokenizer.encode(text, add_special_tokens=False).ids
    finally:
        loaded.close()
