"""A trainer publishes exactly its weights: an engine computes the trainer's own log-probabilities,
whatever the base's format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from loopline.trainers.core.network import load_base, network_of
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.local.model_files import MICRO_MODELS
from loopline.workers.engines.settings import ModelSettings

NATS = 1e-5
IDS = list(range(20, 60))


def stored_in(folder: Path, dtype: torch.dtype) -> Path:
    shutil.copytree(MICRO_MODELS / "slm", folder)
    file = folder / "model.safetensors"
    save_file({name: tensor.to(dtype) for name, tensor in load_file(file).items()}, file)
    config = json.loads((folder / "config.json").read_text())
    config["dtype"] = str(dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
async def test_an_engine_with_published_weights_has_the_log_probabilities_of_the_trainer(
    tmp_path: Path, dtype: torch.dtype, kind: str
) -> None:
    if kind == "lora":
        pytest.importorskip("peft", reason="needs make install")
    base = stored_in(tmp_path / "base", dtype)
    network = network_of(
        load_base(str(base)), adapter=kind == "lora", rank=2, begins_from=None, base=str(base)
    )
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for _, weight in network.trained():
            weight += 0.02 * torch.randn(weight.shape, generator=rng)
        logits = network.whole(input_ids=torch.tensor([IDS])).logits[0]
    trained = torch.log_softmax(logits, -1)[range(len(IDS) - 1), IDS[1:]].tolist()
    (tmp_path / "new").mkdir()
    network.write(tmp_path / "new", base)
    engine = build_engine(ModelSettings(engine="torch", model=str(base), dtype="float32"))
    await engine.start()
    try:
        await engine.load_adapter("new", str(tmp_path / "new"), 1)
        logprobs = await engine.score(IDS, adapter="new")
    finally:
        await engine.close()
    assert logprobs[-len(trained) :] == pytest.approx(trained, abs=NATS)
