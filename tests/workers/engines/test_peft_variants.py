"""Adapters as PEFT saves them: each gives the same log-probabilities as PEFT, or is refused by the
name of its unsupported feature. None is loaded with different results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.torch.lora import LoraLayers
from loopline.workers.engines.vllm.adapters import read_weights

peft = pytest.importorskip("peft", reason="needs make install")

# Warnings of PEFT and transformers about each other and about odd variants.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

IDS = torch.arange(3, 38).unsqueeze(0)
"""One text of 35 tokens."""
NATS = 1e-4
Make = Callable[[Any], None]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(7)
    config = Qwen2Config(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        initializer_range=0.2, tie_word_embeddings=False,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("base")
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def noise(model: Any) -> None:
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.copy_(torch.randn(weight.shape, generator=rng) * 0.05)


def steps(model: Any) -> None:
    """Train five steps, from the initial state of the variant."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    for _ in range(5):
        model(IDS, labels=IDS).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def saved(base: Path, folder: Path, make: Make = noise, **variant: Any) -> Path:
    options = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]} | variant
    config = peft.LoraConfig(task_type="CAUSAL_LM", **options)
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    make(model)
    model.save_pretrained(folder)
    return folder


def log_probabilities(model: Any) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        return torch.log_softmax(model(IDS).logits, -1)


def served(base: Path, folder: Path) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(base)
    layers = LoraLayers(model, torch.device("cpu"))
    layers.use([layers.read(str(folder))])
    return log_probabilities(model)


def by_peft(base: Path, folder: Path) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(base)
    return log_probabilities(peft.PeftModel.from_pretrained(model, folder))


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"use_rslora": True},
        {"target_modules": "all-linear"},
        {"target_modules": "all-linear", "exclude_modules": ["down_proj"]},
        {"target_modules": [], "target_parameters": ["q_proj.weight"]},
        {"layers_to_transform": [1]},
        {"lora_dropout": 0.5},
        {"init_lora_weights": "gaussian"},
        {"init_lora_weights": "orthogonal"},
        {"init_lora_weights": False},
    ],
    ids=str,
)
def test_a_plain_lora_matches_peft(base: Path, tmp_path: Path, variant: dict[str, Any]) -> None:
    folder = saved(base, tmp_path / "lora", **variant)
    actual, wanted = served(base, folder), by_peft(base, folder)
    assert (wanted - log_probabilities(AutoModelForCausalLM.from_pretrained(base))).abs().max() > 0
    assert (actual - wanted).abs().max() < NATS


def stored_as(dtype: torch.dtype, factor: float = 1.0) -> Make:
    def make(model: Any) -> None:
        noise(model)
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.data = (weight.data * factor).to(dtype)

    return make


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize(
    "variant", [{}, {"lora_alpha": 10}, {"r": 8, "lora_alpha": 16, "use_rslora": True}], ids=str
)
def test_a_lora_in_any_type_and_with_any_scale_matches_peft(
    base: Path, tmp_path: Path, variant: dict[str, Any], dtype: torch.dtype
) -> None:
    folder = saved(base, tmp_path / "lora", stored_as(dtype), **variant)
    assert (served(base, folder) - by_peft(base, folder)).abs().max() < NATS


def test_large_numbers_in_16_bits_do_not_overflow_when_they_are_scaled(
    base: Path, tmp_path: Path
) -> None:
    def large(model: Any) -> None:
        noise(model)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.data = torch.full_like(weight, 4e4).half()
            elif "lora_A" in name:
                weight.data *= 1e-5

    folder = saved(base, tmp_path / "lora", large)
    assert (served(base, folder) - by_peft(base, folder)).abs().max() < NATS


def test_a_scale_beyond_all_numbers_is_refused(base: Path, tmp_path: Path) -> None:
    folder = saved(base, tmp_path / "lora", lora_alpha=1e300)
    with pytest.raises(EngineError, match=r"lora_alpha 1e\+300 .* exceed the range"):
        served(base, folder)


def test_pissa_that_was_converted_on_saving_is_a_plain_lora(base: Path, tmp_path: Path) -> None:
    def converted(model: Any) -> None:
        model.peft_config["default"].init_lora_weights = True
        model.save_pretrained(tmp_path / "initial")
        model.peft_config["default"].init_lora_weights = "pissa"
        steps(model)
        model.save_pretrained(
            tmp_path / "lora", path_initial_model_for_weight_conversion=tmp_path / "initial"
        )

    saved(base, tmp_path / "unconverted", converted, init_lora_weights="pissa")
    folder = tmp_path / "lora"
    assert json.loads((folder / "adapter_config.json").read_text())["init_lora_weights"] is True
    assert (served(base, folder) - by_peft(base, folder)).abs().max() < NATS


@pytest.mark.parametrize(
    "details",
    [
        {"corda_config": {"cache_file": None, "corda_method": "ipm"}},
        {"lora_ga_config": {"direction": "ArB2r", "scale": "stable", "stable_gamma": 16}},
        {"eva_config": {"rho": 2.0}},
        {"loftq_config": {"loftq_bits": 4}},
    ],
    ids=str,
)
def test_details_that_a_converted_lora_keeps_do_not_matter(
    base: Path, tmp_path: Path, details: dict[str, Any]
) -> None:
    """PEFT leaves them in the file that `path_initial_model_for_weight_conversion` writes."""
    folder = saved(base, tmp_path / "lora")
    wanted = by_peft(base, folder)
    config = folder / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **details}))
    assert (served(base, folder) - wanted).abs().max() < NATS


@pytest.mark.parametrize(
    ("kind", "options"),
    [("LoHaConfig", {}), ("LoKrConfig", {}), ("IA3Config", {"feedforward_modules": []}),
     ("VeraConfig", {}), ("OFTConfig", {}), ("AdaLoraConfig", {"total_step": 10})],
)  # fmt: skip
def test_an_adapter_of_another_type_is_refused_by_its_type(
    base: Path, tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    config = getattr(peft, kind)(target_modules=["q_proj", "v_proj"], **options)
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    model.save_pretrained(tmp_path / "adapter")
    with pytest.raises(EngineError, match=f"its peft_type is '{config.peft_type.value}'"):
        served(base, tmp_path / "adapter")


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights is 'pissa_niter_4'"),
        ({"init_lora_weights": "olora"}, "init_lora_weights is 'olora'"),
        ({"init_lora_weights": "mica"}, "init_lora_weights is 'mica'"),
        ({"layer_replication": [[0, 1], [0, 2]]}, "layer_replication"),
        ({"alora_invocation_tokens": [5, 6]}, "alora_invocation_tokens"),
        ({"use_dora": True}, "use_dora"),
        ({"alpha_pattern": {"q_proj": 64}}, "alpha_pattern"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"trainable_token_indices": [1, 2]}, "trainable_token_indices"),
        ({"bias": "all"}, "bias"),
        ({"bias": "lora_only"}, "bias"),
        ({"lora_bias": True}, "lora_bias"),
        ({"target_modules": ["q_proj", "embed_tokens"]}, "embed_tokens"),
    ],
    ids=str,
)
def test_an_adapter_other_than_a_plain_lora_is_refused_by_name(
    base: Path, tmp_path: Path, variant: dict[str, Any], words: str
) -> None:
    folder = saved(base, tmp_path / "lora", **variant)
    with pytest.raises(EngineError, match="cannot be loaded") as caught:
        served(base, folder)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("init_lora_weights", name) for name in ("corda", "loftq", "lora_ga", "of_next_year")),
        ("use_qalora", True), ("arrow_config", {"top_k": 3}), ("fan_in_fan_out", True),
        ("a_variant_of_next_year", {"on": True}),
    ],
)  # fmt: skip
def test_an_unknown_field_is_refused_by_name(
    base: Path, tmp_path: Path, name: str, value: object
) -> None:
    folder = saved(base, tmp_path / "lora")
    config = folder / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), name: value}))
    with pytest.raises(EngineError, match=name):
        served(base, folder)


def test_an_unknown_field_that_is_off_is_accepted(base: Path, tmp_path: Path) -> None:
    folder = saved(base, tmp_path / "lora")
    config = folder / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "of_next_year": None}))
    served(base, folder)


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
        ({"layer_replication": [[0, 1], [0, 2]]}, "layer_replication"),
        ({"alpha_pattern": {"q_proj": 64}}, "alpha_pattern"),
    ],
    ids=str,
)
def test_vllm_and_sglang_get_only_plain_loras(
    base: Path, tmp_path: Path, variant: dict[str, Any], words: str
) -> None:
    """They ignore the fields that they do not know."""

    def read(folder: Path) -> object:
        return read_weights("slm", 1, str(folder), base, lambda: None, "base")

    read(saved(base, tmp_path / "plain"))
    with pytest.raises(EngineError, match=words):
        read(saved(base, tmp_path / "lora", **variant))
