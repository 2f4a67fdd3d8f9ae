"""Weights in 8 and 4 bits: refused where unavailable, and adapters on top of them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch
from transformers import AutoModelForCausalLM

from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch import loading as torch_loading
from loopline.workers.engines.torch.engine import TorchEngine
from loopline.workers.engines.torch.loading import quantization_config
from loopline.workers.engines.torch.lora import LoraLayers
from tests.workers.engines.asking import ask

GPU = torch.device("cuda", 0)
Bits = Literal["int8", "int4"]


def settings(folder: Path, **fields: object) -> ModelSettings:
    return ModelSettings.model_validate({"engine": "torch", "model": str(folder), **fields})


@pytest.mark.parametrize("bits", ["int8", "int4"])
async def test_the_error_without_a_gpu_names_the_alternatives(tiny_model: Path, bits: Bits) -> None:
    engine = TorchEngine(settings(tiny_model, quantization=bits, device="cpu"))
    with pytest.raises(EngineError, match=r"the device is 'cpu'; .*quantized GGUF") as caught:
        await engine.start()
    assert caught.value.kind == "bad_request"
    await engine.close()


def test_the_error_without_the_package_names_the_extra(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_loading, "find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType]
    with pytest.raises(EngineError, match=r"\(bitsandbytes, .*'\.\[quantized\]'") as caught:
        quantization_config(settings(tiny_model, quantization="int8"), GPU)
    assert caught.value.kind == "bad_request"


def test_full_precision_needs_no_package(tiny_model: Path) -> None:
    assert quantization_config(settings(tiny_model), GPU) is None


class Int8Linear(torch.nn.Linear):
    """A stand-in for bitsandbytes' layers: a Linear whose weights are integers."""

    def __init__(self, original: torch.nn.Linear) -> None:
        super().__init__(original.in_features, original.out_features, bias=False)
        self._bias = original.bias
        self.scale = original.weight.detach().abs().amax() / 127
        quantized = (original.weight.detach() / self.scale).round().to(torch.int8)
        self.weight = torch.nn.Parameter(quantized, requires_grad=False)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(input, self.weight * self.scale, self._bias)


def test_an_adapter_has_the_same_effect_on_a_quantized_layer(
    tiny_model: Path, tiny_loras: list[Path]
) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    layer = model.model.layers[0].mlp
    x = torch.randn(2, 3, layer.down_proj.in_features, generator=torch.Generator().manual_seed(1))

    def added(quantize: bool) -> torch.Tensor:
        if quantize:
            layer.down_proj = Int8Linear(layer.down_proj)
        with torch.inference_mode():
            plain = layer.down_proj(x)
            layers = LoraLayers(model, torch.device("cpu"))
            lora = layers.read(str(tiny_loras[0]))
            layers.use([None, lora])
            difference = layer.down_proj(x) - plain
            layers.use([])
            return difference

    exact, quantized = added(False), added(True)
    assert exact[0].abs().max() == 0
    assert exact[1].abs().max() > 0.1
    torch.testing.assert_close(quantized, exact, atol=1e-4, rtol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("bits", ["int8", "int4"])
async def test_a_quantized_model_answers_and_accepts_an_adapter(
    tiny_model: Path, tiny_loras: list[Path], bits: Bits
) -> None:
    pytest.importorskip("bitsandbytes", reason="needs the extra quantized")
    engine = TorchEngine(settings(tiny_model, quantization=bits))
    await engine.start()
    try:
        plain = await ask(engine)
        assert "89" in plain.text
        await engine.load_adapter("red", str(tiny_loras[0]), 1)
        assert (await ask(engine, adapter="red")).output_ids != plain.output_ids
    finally:
        await engine.close()
