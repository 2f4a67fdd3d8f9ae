"""An adapter that records its base is served on no other, whatever the shapes."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from loopline.bus import Policy
from loopline.trainers.errors import TrainingError
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.local import adapter_base
from loopline.workers.engines.local.adapter_base import require_base_on_disk, weights_sha256
from loopline.workers.engines.protocol import Engine, EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.policies import PolicyFollower
from tests.workers.engines.asking import ask
from tests.workers.engines.tiny_lora import make_tiny_lora

ANOTHER = "it is an adapter of another base than"


@pytest.fixture
def other_model(tiny_model: Path, tmp_path: Path) -> Path:
    """Save a model of the same shapes with one different number."""
    folder = Path(shutil.copytree(tiny_model, tmp_path / "other"))
    [path] = folder.glob("*.safetensors")
    tensors = load_file(path)
    next(iter(tensors.values())).view(-1)[0] += 1
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


def trained_on(base: Path, folder: Path, seed: int = 1) -> Path:
    """Save an adapter that records its base, as `train glpft` leaves it."""
    make_tiny_lora(base, folder, seed)
    (folder / "training.json").write_text(
        json.dumps({"stage": "caller", "base_sha256": weights_sha256(base)})
    )
    return folder


def published(*paths: Path) -> Policy:
    policy = Policy(name="slm/caller")
    for path in paths:
        policy = policy.published(str(path), time.time())
    return policy


async def the_second_is_refused(engine: Engine, own_path: Path, foreign: Path) -> None:
    """A gpu worker does the same: both are published, and the first keeps serving."""
    follower = PolicyFollower("slm", engine)
    await follower.apply([published(own_path)])
    before = await ask(engine, adapter="slm/caller")
    await follower.apply([published(own_path, foreign)])
    state = follower.state()["slm/caller"]
    assert (state["version"], state["refused"]) == (1, 2)
    for text in (ANOTHER, str(foreign), weights_sha256(foreign.parent / "other")[:12]):
        assert text in str(state["reason"])
    after = await ask(engine, adapter="slm/caller")
    assert (after.adapter_version, after.output_ids) == (1, before.output_ids)


@pytest.mark.slow
async def test_torch_refuses_an_adapter_of_another_base_and_keeps_the_previous_one(
    torch_engine: Engine, tiny_model: Path, other_model: Path, tmp_path: Path
) -> None:
    own_path, foreign = (
        trained_on(tiny_model, tmp_path / "own"),
        trained_on(other_model, tmp_path / "foreign", 2),
    )
    await the_second_is_refused(torch_engine, own_path, foreign)


async def test_llama_cpp_refuses_an_adapter_of_another_base_and_keeps_the_previous_one(
    llama_engine: Engine, tiny_model: Path, other_model: Path, tmp_path: Path
) -> None:
    from loopline.trainers.export.gguf import export_gguf_adapter

    folders = (tmp_path / "own", tmp_path / "foreign")
    for seed, (folder, base) in enumerate(zip(folders, (tiny_model, other_model), strict=True)):
        export_gguf_adapter(make_tiny_lora(base, folder, seed), base, folder / "adapter.gguf")
    await the_second_is_refused(llama_engine, *folders)


async def test_an_adapter_without_a_recorded_base_is_loaded(
    llama_engine: Engine, other_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loopline.trainers.export import gguf as gguf_export

    monkeypatch.setattr(gguf_export, "BASE_KEY", "somebody.else")
    folder = make_tiny_lora(other_model, tmp_path / "lora", 1)
    gguf_export.export_gguf_adapter(folder, other_model, folder / "adapter.gguf")
    await llama_engine.load_adapter("red", str(folder), 1)
    assert (await ask(llama_engine, adapter="red")).adapter_version == 1


async def test_the_base_is_hashed_once_on_first_use_and_off_the_engine_s_thread(
    tiny_model: Path, tiny_loras: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread_names: list[str] = []

    def noted(folder: Path) -> str:
        thread_names.append(threading.current_thread().name)
        return weights_sha256(folder)

    monkeypatch.setattr(adapter_base, "weights_sha256", noted)
    engine = build_engine(ModelSettings(engine="torch", model=str(tiny_model)))
    await engine.start()
    await engine.load_adapter("red", str(tiny_loras[0]), 1)
    assert thread_names == []
    for seed, name in enumerate(("green", "blue")):
        await engine.load_adapter(name, str(trained_on(tiny_model, tmp_path / name, seed)), 1)
    await engine.close()
    [thread] = thread_names
    assert thread != threading.main_thread().name
    assert not thread.startswith("torch-")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ("{", "training.json is wrong: Invalid JSON"),
        ('{"base_sha256": "abc"}', "training.json is wrong (base_sha256): String should match"),
        ("[]", "training.json is wrong"),
    ],
)
async def test_unreadable_facts_of_an_adapter_are_reported(
    torch_engine: Engine, tiny_model: Path, tmp_path: Path, facts: str, words: str
) -> None:
    folder = make_tiny_lora(tiny_model, tmp_path / "lora", 1)
    (folder / "training.json").write_text(facts)
    with pytest.raises(EngineError) as caught:
        await torch_engine.load_adapter("red", str(folder), 1)
    assert words in str(caught.value)
    assert caught.value.kind == "bad_request"


def test_an_adapter_is_exported_only_for_its_own_base(
    tiny_model: Path, other_model: Path, tmp_path: Path
) -> None:
    from loopline.trainers.export.gguf import export_gguf_adapter

    folder = trained_on(other_model, tmp_path / "lora")
    with pytest.raises(TrainingError, match=ANOTHER):
        export_gguf_adapter(folder, tiny_model, tmp_path / "adapter.gguf")
    assert not (tmp_path / "adapter.gguf").exists()


@pytest.mark.parametrize("engine", ["torch", "llama_cpp"])
def test_the_base_can_be_checked_without_an_engine_if_the_model_is_local(
    tiny_model: Path, tiny_gguf: Path, other_model: Path, tmp_path: Path, engine: str
) -> None:
    from loopline.trainers.export.gguf import export_gguf_adapter

    model = {"torch": tiny_model, "llama_cpp": tiny_gguf}[engine]
    settings = ModelSettings(engine=engine, model=str(model))
    for name, base in (("own", tiny_model), ("foreign", other_model)):
        folder = trained_on(base, tmp_path / name)
        export_gguf_adapter(folder, base, folder / "adapter.gguf")
    require_base_on_disk(settings, str(tmp_path / "own"))
    with pytest.raises(EngineError, match=ANOTHER):
        require_base_on_disk(settings, str(tmp_path / "foreign"))
    elsewhere = settings.model_copy(update={"model": "someone/model-on-the-hub.gguf"})
    require_base_on_disk(elsewhere, str(tmp_path / "foreign"))


@pytest.mark.parametrize("engine", ["torch", "llama_cpp"])
def test_an_adapter_with_inaccessible_files_is_refused_before_publication(
    tiny_model: Path, tmp_path: Path, engine: str
) -> None:
    file = tmp_path / "model.gguf"
    file.touch()
    model = {"torch": tiny_model, "llama_cpp": file}[engine]
    settings = ModelSettings.model_validate({"engine": engine, "model": str(model)})
    with pytest.raises(EngineError, match=r"the adapter '/xxx.* cannot be read .*too long"):
        require_base_on_disk(settings, "/" + "x" * 300)
