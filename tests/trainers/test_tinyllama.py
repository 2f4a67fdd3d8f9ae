"""TinyLlama-1.1B's own architecture with random weights: `train glpft` trains it, the adapters are
published, and a gpu worker serves its three roles.

In the suite it is reduced to 2 of its 22 layers. The whole model is trained and served if there is
a CUDA GPU, or if WHOLE_TINYLLAMA is set.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from typer.testing import CliRunner

from loopline.agents.records import ToolSpec
from loopline.agents.roles.umi.output import Action
from loopline.agents.roles.umi.settings import UmiOptions
from loopline.runtime.client.client import Client
from loopline.trainers.cli import app
from loopline.trainers.core.network import load_base, network_of
from loopline.trainers.data.datasets import build, write
from loopline.trainers.data.sources import Source
from loopline.trainers.data.trajectories import Step, Trajectory
from loopline.trainers.glpft.report import StageFacts, read_facts
from loopline.trainers.glpft.stages import ROLES
from loopline.workers.engines.torch.lora import LoraLayers
from tests.runtime.conftest import Deployment
from tests.runtime.conftest import deployment as deployment
from tests.workers.engines.tiny_sentencepiece import chat_tokenizer, sentencepiece_tokenizer

from .umi_team import LED, SHORTEST, ask, bus_of, up, weights_of

pytestmark = pytest.mark.slow

PUBLISHED: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 5632,
    "max_position_embeddings": 2048,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 22,
    "num_key_value_heads": 4,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 32000,
}
"""config.json of TinyLlama/TinyLlama-1.1B-Chat-v1.0."""
LAYERS = 2
PER_LAYER = 44_044_288
AROUND = 131_074_048
"""Parameters of a layer, and of the embedding, the last norm and the output layer: 1,100,048,384 in
all."""
WHOLE = torch.cuda.is_available() or "WHOLE_TINYLLAMA" in os.environ
LOOKUP = Action("hours", {"shop": "Ink"})
SHORT = Trajectory(
    source="short",
    id="short",
    instruction_id="short",
    instruction="When is Ink open?",
    tools=(
        ToolSpec(
            name="hours",
            description="Opening hours",
            parameters={"type": "object", "properties": {"shop": {"type": "string"}}},
        ),
    ),
    steps=(
        Step("I look it up.", "call", LOOKUP, output={"result": '{"hours":"9-17"}'}),
        Step("That is it.", "conclude", answer="From 9 to 17."),
    ),
)
DATA = build([Source("short", {}, (SHORT,))], UmiOptions(tool_style="signatures"))


@pytest.fixture(
    scope="module",
    params=[
        LAYERS,
        pytest.param(
            PUBLISHED["num_hidden_layers"],
            marks=[
                pytest.mark.skipif(not WHOLE, reason="needs a CUDA GPU, or minutes of a CPU"),
                pytest.mark.timeout(1800),
            ],
        ),
    ],
)
def layers(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module")
def trained(layers: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the base, a data set, and `out`, the adapters of one step of each stage."""
    pytest.importorskip("peft", reason="needs make install")
    folder = tmp_path_factory.mktemp("tinyllama")
    write_base(layers, folder / "base")
    write(DATA, folder / "data")
    # A separate process, which returns its memory.
    ended = subprocess.run(
        [sys.executable, "-m", "loopline.trainers.cli", "glpft", *arguments(folder)],
        capture_output=True,
        check=False,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    yield folder
    # Larger than pytest should keep from its last runs.
    shutil.rmtree(folder)


def write_base(layers: int, folder: Path) -> None:
    """As published: config.json, weights in bf16, a tokenizer of SentencePiece's kind."""
    config = transformers.LlamaConfig.from_dict({**PUBLISHED, "num_hidden_layers": layers})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({**PUBLISHED, "num_hidden_layers": layers}))
    # A tokenizer of the rows' own words, so that they are short.
    words = [
        text for rows in DATA.sets.values() for row in rows for text in (row.system, row.input)
    ]
    chat_tokenizer(sentencepiece_tokenizer("each", texts=words)).save_pretrained(folder)


def arguments(folder: Path) -> list[str]:
    """One step for each stage, at a rate at which one step is measurable."""
    return [
        *(str(folder / "out"), "--data", str(folder / "data"), "--base", str(folder / "base")),
        *("--weights", "lora", "--rank", "2", "--rate", "100", "--batch", "1", "--tokens", "4"),
    ]


def facts_of(folder: Path, stage: str) -> StageFacts:
    facts = read_facts(folder / "out" / stage)
    assert facts is not None
    return facts


def test_the_model_has_tinyllama_s_size_and_each_stage_steps(trained: Path, layers: int) -> None:
    for stage in ("backbone", *ROLES):
        facts = facts_of(trained, stage)
        assert facts.parameters - facts.trained_parameters == AROUND + layers * PER_LAYER
        assert facts.steps == 1


def test_the_engine_applies_to_each_row_of_a_batch_its_own_trained_adapter(
    trained: Path,
) -> None:
    """One pass over rows without an adapter and with each of the three, compared with PEFT row by
    row."""
    loaded = load_base(str(trained / "base"))
    ids = torch.arange(5, 25, device=loaded.device).repeat(1 + len(ROLES), 1)
    lora = LoraLayers(loaded.model, loaded.device)
    lora.use([None, *(lora.read(str(trained / "out" / role)) for role in ROLES)])
    with torch.inference_mode():
        plain, *role_rows = loaded.model(ids).logits
    lora.use([])
    for role, row in zip(ROLES, role_rows, strict=True):
        peft = network_of(
            loaded, adapter=True, rank=2, begins_from=trained / "out" / role, base="base"
        )
        with torch.inference_mode():
            peft.whole.eval()
            expected = peft.whole(ids[:1]).logits[0]
        assert torch.allclose(row, expected, atol=1e-3)
        others = [plain, *(other_row for other_row in role_rows if other_row is not row)]
        assert min(float((row - other_row).abs().max()) for other_row in others) > 0.1
        peft.adapter.unload()


@pytest.fixture
def serving(trained: Path, deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """A deployment to which the training command announced the adapters."""
    gc.collect()
    up(
        deployment,
        trained / "base",
        "models.umi.max_tokens=8",
        "models.umi.dtype=bfloat16",
        "workers.recorder.count=0",
    )
    monkeypatch.setenv("LOOPLINE_STATE", str(deployment.state.path))
    ended = CliRunner().invoke(app, ["glpft", *arguments(trained), "--publish"])
    assert ended.exit_code == 0, ended.output
    assert ended.output.count("serves version 1") == len(ROLES)
    return deployment


async def test_an_engine_serves_three_roles_each_with_its_own_adapter(serving: Deployment) -> None:
    async with Client.connect(bus_of(serving)) as client:
        runs = [await ask(client, SHORTEST, policies) for policies in (None, LED)]
    weights = {role: ref for run in runs for role, ref in weights_of(run)}
    assert {role: (ref.base, ref.adapter, ref.version) for role, ref in weights.items()} == {
        f"umi_{role}": ("base", f"umi/{role}", 1) for role in ROLES
    }
