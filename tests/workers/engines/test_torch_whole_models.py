"""Whole models in the place of adapters: the results of training all weights, swapped into a
running engine, several of them in one batch."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.local.adapter_base import require_base_on_disk
from loopline.workers.engines.local.engine import LocalEngine
from loopline.workers.engines.protocol import Engine, EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.loading import load_model
from loopline.workers.engines.torch.whole_models import WholeModel, WholeModels, read_whole_model
from tests.workers.engines.adapter_conformance import AdapterConformance, alike_alone_and_together
from tests.workers.engines.asking import ask

LONG = {"max_tokens": 30}


def settings(model: Path, **fields: object) -> ModelSettings:
    return ModelSettings.model_validate({"engine": "torch", "model": str(model), **fields})


def changed_model(
    model: Path, folder: Path, change: Callable[[dict[str, torch.Tensor]], object]
) -> Path:
    """Save a copy with other tensors."""
    shutil.copytree(model, folder)
    [path] = folder.glob("*.safetensors")
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


def shaken(model: Path, folder: Path, seed: int) -> Path:
    """Save the model with other numbers in every tensor, including embedding and norms."""
    rng = torch.Generator().manual_seed(seed)

    def shake(tensors: dict[str, torch.Tensor]) -> None:
        for tensor in tensors.values():
            tensor += torch.randn(tensor.shape, generator=rng) * tensor.abs().mean()

    return changed_model(model, folder, shake)


@pytest.fixture(scope="session")
def shaken_models(tiny_model: Path) -> list[Path]:
    """Three models that could result from training all weights of the tiny one."""
    return [shaken(tiny_model, tiny_model.parent / f"whole-{seed}", seed) for seed in range(3)]


def whole_models_in_memory() -> int:
    gc.collect()
    return sum(type(item) is WholeModel for item in gc.get_objects())


class TestWholeModels(AdapterConformance):
    @pytest.fixture
    def adapters(self, shaken_models: list[Path]) -> list[Path]:
        return shaken_models

    @pytest.fixture
    async def engine(self, tiny_model: Path) -> AsyncIterator[Engine]:
        engine = build_engine(settings(tiny_model))
        await engine.start()
        yield engine
        await engine.close()

    async def test_a_swapped_model_answers_like_an_engine_started_with_it(
        self, equipped: Engine, shaken_models: list[Path]
    ) -> None:
        for name, folder in zip(("red", "green", "blue"), shaken_models, strict=True):
            own_engine = build_engine(settings(folder))
            await own_engine.start()
            wanted = await ask(own_engine, sampling=LONG)
            await own_engine.close()
            completion = await ask(equipped, adapter=name, sampling=LONG)
            assert (completion.output_ids, completion.logprobs) == (
                wanted.output_ids,
                wanted.logprobs,
            )

    async def test_whole_models_adapters_and_the_pool_s_own_model_share_a_batch(
        self, equipped: Engine, tiny_loras: list[Path]
    ) -> None:
        await equipped.load_adapter("lora", str(tiny_loras[0]), 1)
        await alike_alone_and_together(equipped, ("red", "lora", "red", None, "blue", "red"))

    async def test_unloading_the_last_model_restores_the_pool_s_own_weights(
        self, engine: Engine, shaken_models: list[Path]
    ) -> None:
        before = await ask(engine, sampling=LONG)
        await engine.load_adapter("red", str(shaken_models[0]), 1)
        red = await ask(engine, adapter="red", sampling=LONG)
        await engine.unload_adapter("red")
        after = await ask(engine, sampling=LONG)
        # Some processors add numbers in an order that depends on their memory addresses.
        wanted = pytest.approx(before.logprobs, abs=1e-6)
        assert (after.output_ids, after.logprobs) == (before.output_ids, wanted)
        assert red.logprobs != wanted

    async def test_a_model_unloaded_after_the_last_pass_leaves_memory(
        self, engine: Engine, shaken_models: list[Path]
    ) -> None:
        """In a mixed batch the network holds one model and the pass the others."""
        before = whole_models_in_memory()
        for name, folder in zip(("red", "green"), shaken_models, strict=False):
            await engine.load_adapter(name, str(folder), 1)
        names = ("red", "green", "red", "green", "red")
        await asyncio.gather(*(ask(engine, adapter=name, sampling=LONG) for name in names))
        for name in ("red", "green"):
            await engine.unload_adapter(name)
        assert isinstance(engine, LocalEngine)
        assert not any((await engine.in_use()).values())
        assert whole_models_in_memory() <= before

    async def test_plain_logprobs_come_from_the_row_s_own_model(
        self, tiny_model: Path, shaken_models: list[Path]
    ) -> None:
        engine = build_engine(settings(tiny_model, plain_logprobs=True))
        await engine.start()
        names = ("red", "green")
        for name, folder in zip(names, shaken_models, strict=False):
            await engine.load_adapter(name, str(folder), 1)
        alone = {name: await ask(engine, adapter=name, sampling=LONG) for name in names}
        results = await asyncio.gather(
            *(ask(engine, adapter=name, sampling=LONG) for name in names * 4)
        )
        await engine.close()
        for completion in results:
            assert completion.adapter is not None
            assert completion.logprobs == alone[completion.adapter].logprobs


def test_a_model_is_read_correctly_while_the_network_s_weights_change(
    tiny_model: Path, shaken_models: list[Path]
) -> None:
    """The decoding thread may be between two layers of an exchange."""
    loaded = load_model(settings(tiny_model))
    models = WholeModels(loaded.model, loaded.device)
    red = read_whole_model(str(shaken_models[0]), loaded, models.original)
    embedding = "model.embed_tokens"
    loaded.model.get_submodule(embedding).weight = red.layers[embedding]["weight"]
    again = read_whole_model(str(shaken_models[0]), loaded, models.original)
    assert all(
        torch.equal(again.layers[layer][part], tensor)
        for layer, parts in red.layers.items()
        for part, tensor in parts.items()
    )


def edited(file: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        values: dict[str, Any] = json.loads((folder / file).read_text())
        change(values)
        (folder / file).write_text(json.dumps(values))

    return edit


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        [path] = folder.glob("*.safetensors")
        weights = load_file(path)
        change(weights)
        save_file(weights, path, metadata={"format": "pt"})

    return edit


NORM = "model.norm.weight"
FAULTS: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "another tokenizer": (
        edited("tokenizer.json", lambda values: values["model"]["vocab"].popitem()),
        "its tokenizer.json differs from that of .*tiny-qwen2",
    ),
    "another configuration": (
        edited("config.json", lambda values: values.update(rms_norm_eps=0.1)),
        "its config.json differs from that of tiny-qwen2",
    ),
    "another shape": (
        tensors(lambda weights: weights.update({NORM: torch.ones(65)})),
        r"its model.norm.weight has the shape \(65,\), but that of tiny-qwen2 has \(64,\)",
    ),
    "a tensor missing": (
        tensors(lambda weights: weights.pop(NORM)),
        "it has no tensor 'model.norm.weight'",
    ),
    "a tensor too many": (
        tensors(lambda weights: weights.update(more=torch.ones(1))),
        "tiny-qwen2 has no tensor 'more'",
    ),
    "not a number": (
        tensors(lambda weights: weights[NORM].fill_(torch.nan)),
        "are not finite",
    ),
    "a damaged file": (
        lambda folder: next(folder.glob("*.safetensors")).write_bytes(b"\x08"),
        "is damaged",
    ),
    "a configuration that is none": (
        lambda folder: (folder / "config.json").write_text("{"),
        "config.json cannot be read",
    ),
}


@pytest.mark.parametrize(("damage", "words"), FAULTS.values(), ids=FAULTS)
async def test_an_incompatible_model_is_refused_and_the_previous_one_continues(
    torch_engine: Engine,
    shaken_models: list[Path],
    tmp_path: Path,
    damage: Callable[[Path], object],
    words: str,
) -> None:
    await torch_engine.load_adapter("red", str(shaken_models[0]), 1)
    before = await ask(torch_engine, adapter="red")
    folder = shutil.copytree(shaken_models[1], tmp_path / "damaged")
    damage(folder)
    with pytest.raises(EngineError, match=words) as caught:
        await torch_engine.load_adapter("red", str(folder), 2)
    assert caught.value.kind == "bad_request"
    after = await ask(torch_engine, adapter="red")
    assert (after.adapter_version, after.output_ids) == (1, before.output_ids)


def test_a_model_with_another_tokenizer_is_refused_where_the_pool_s_files_are(
    tiny_model: Path, shaken_models: list[Path], tmp_path: Path
) -> None:
    require_base_on_disk(settings(tiny_model), str(shaken_models[0]))
    folder = shutil.copytree(shaken_models[1], tmp_path / "other")
    damage, words = FAULTS["another tokenizer"]
    damage(folder)
    with pytest.raises(EngineError, match=words):
        require_base_on_disk(settings(tiny_model), str(folder))
