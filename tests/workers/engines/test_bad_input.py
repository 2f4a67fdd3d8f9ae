"""Files that no engine can serve: each raises an error that explains the problem. None may end the
process, and no code from a file is run."""

from __future__ import annotations

import json
import pickle
import random
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx2
import pytest
import torch
from huggingface_hub.errors import RevisionNotFoundError
from safetensors.torch import load_file, save_file

from loopline.agents.records import Message
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.local import model_files
from loopline.workers.engines.local.gguf_header import DamagedHeader, check_header
from loopline.workers.engines.local.model_files import find_folder, find_gguf, local_folder
from loopline.workers.engines.protocol import Engine, EngineError
from loopline.workers.engines.settings import ModelSettings
from tests.workers.engines.asking import ask, failure, request, user
from tests.workers.engines.tiny_model import CONTEXT

Damage = Callable[[Path], object]


class Payload:
    """A class whose code a pickle would run when it is read."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return (pytest.fail, ("code in a file was run",))


def replaced(name: str, content: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content)


def cut(name: str, length: int) -> Damage:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:length])


def renamed(name: str, new_name: str) -> Damage:
    return lambda folder: (folder / name).rename(folder / new_name)


def both(first: Damage, second: Damage) -> Damage:
    return lambda folder: (first(folder), second(folder))


def config(name: str, **fields: object) -> Damage:
    def change(folder: Path) -> None:
        document = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(document | fields))

    return change


def tensors(name: str, change: Callable[[torch.Tensor], torch.Tensor], only: str = "") -> Damage:
    def rewrite(folder: Path) -> None:
        weights = load_file(folder / name)
        changed = {
            key: change(tensor) if only in key else tensor for key, tensor in weights.items()
        }
        save_file(changed, folder / name, metadata={"format": "pt"})

    return rewrite


def zipped(name: str) -> Damage:
    def write(folder: Path) -> None:
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(Payload()))

    return write


def instead_a_folder(name: str) -> Damage:
    def make(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return make


def link_to_itself(name: str) -> Damage:
    def make(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(folder / name)

    return make


async def refused(engine: str, model: Path | str) -> str:
    """Return the reason why this model is refused; any other error fails the test."""
    started = build_engine(ModelSettings(engine=engine, model=str(model)))
    with pytest.raises(EngineError) as caught:
        await started.start()
    assert caught.value.kind == "bad_request"
    assert not caught.value.retryable
    return str(caught.value)


WEIGHTS = "model.safetensors"
UP = "model.layers.0.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (replaced(WEIGHTS, b""), f"{WEIGHTS} is damaged"),
        (replaced(WEIGHTS, b"this is a text file"), f"{WEIGHTS} is damaged"),
        (replaced(WEIGHTS, b"\xff" * 8 + b"{}"), "header too large"),
        (replaced(WEIGHTS, struct.pack("<Q", 4) + b"\x80abc"), "invalid UTF-8"),
        (cut(WEIGHTS, -1000), "not fully covered"),
        (replaced(WEIGHTS, pickle.dumps(Payload())), f"{WEIGHTS} is damaged"),
        (zipped(WEIGHTS), f"{WEIGHTS} is damaged"),
        (instead_a_folder(WEIGHTS), f"{WEIGHTS} is damaged"),
        (link_to_itself(WEIGHTS), f"{WEIGHTS} is damaged"),
        (tensors(WEIGHTS, lambda _: torch.zeros(3, 5), only=UP), UP),
        (replaced("config.json", b"[]"), "model_type"),
        (replaced("config.json", b"[" * 100_000), "config.json cannot be read"),
        (replaced("config.json", b"\xff\xfe{"), "config.json cannot be read"),
        (config("config.json", num_attention_heads=0), "ZeroDivisionError"),
        (config("config.json", num_hidden_layers="two"), "num_hidden_layers"),
        (config("config.json", vocab_size=10), "model.embed_tokens.weight"),
        (config("config.json", max_position_embeddings=0), "a context of 0 tokens"),
        (config("config.json", max_position_embeddings=-5), "a context of -5 tokens"),
        (
            both(
                tensors(WEIGHTS, lambda tensor: tensor[:200].clone(), only="embed_tokens"),
                config("config.json", vocab_size=200, eos_token_id=2),
            ),
            "but its embedding has 200 rows",
        ),
        (tensors(WEIGHTS, lambda tensor: tensor * float("nan"), only=UP), "not finite"),
        (tensors(WEIGHTS, lambda tensor: tensor + float("inf"), only="embed_tokens"), "not finite"),
        (config("generation_config.json", eos_token_id="end"), "'end'"),
        (replaced("tokenizer.json", b'{"a":'), "Expecting value"),
        (replaced("tokenizer.json", b"{}"), "added_tokens"),
        (replaced("tokenizer_config.json", b"[]"), "cannot be loaded"),
    ],
)
async def test_a_damaged_model_folder_is_refused(
    tiny_model_copy: Path, damage: Damage, words: str
) -> None:
    damage(tiny_model_copy)
    error = await refused("torch", tiny_model_copy)
    assert tiny_model_copy.name in error
    assert words in error


ADAPTER = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


def removed(folder: Path) -> None:
    shutil.rmtree(folder)


def other_base(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros(4, 999) if tensor.shape[0] == 4 else tensor


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (replaced(ADAPTER, b""), f"{ADAPTER} is damaged"),
        (cut(ADAPTER, -500), f"{ADAPTER} is damaged"),
        (renamed(ADAPTER, "adapter_model.bin"), "pickle format"),
        (renamed(ADAPTER, "x.safetensors"), f"no {ADAPTER}"),
        (removed, "no such folder"),
        (renamed(CONFIG, "other.json"), f"{CONFIG} cannot be read"),
        (replaced(CONFIG, b"{"), f"{CONFIG} is wrong: Invalid JSON"),
        (replaced(CONFIG, b"[" * 100_000), f"{CONFIG} is wrong: Invalid JSON"),
        (replaced(CONFIG, b"[]"), f"{CONFIG} is wrong: Input should be an object"),
        (replaced(CONFIG, b'{"peft_type": "LORA"}'), r"(r): Field required"),
        (config(CONFIG, r=0), "(r): Input should be greater than or equal to 1"),
        (config(CONFIG, r="four"), "(r): Input should be a valid integer"),
        (config(CONFIG, r=8), "says rank 8"),
        (config(CONFIG, lora_alpha=float("nan")), "(lora_alpha): Input should be a finite number"),
        (config(CONFIG, peft_type="IA3"), "'IA3', not LORA"),
        (config(CONFIG, use_dora=True), "use_dora"),
        (tensors(ADAPTER, other_base), "it is for another model"),
        (tensors(ADAPTER, torch.flatten), "not matrices"),
        (tensors(ADAPTER, torch.Tensor.char), "not matrices of floating-point"),
        (tensors(ADAPTER, lambda tensor: tensor * float("nan")), "not finite"),
    ],
)
async def test_a_damaged_adapter_is_refused_and_the_model_continues(
    torch_engine: Engine, tiny_loras: list[Path], tmp_path: Path, damage: Damage, words: str
) -> None:
    folder = Path(shutil.copytree(tiny_loras[0], tmp_path / "lora"))
    damage(folder)
    with pytest.raises(EngineError) as caught:
        await torch_engine.load_adapter("red", str(folder), 1)
    assert caught.value.kind == "bad_request"
    assert str(caught.value).startswith("the adapter ")
    assert words in str(caught.value)
    assert (await failure(torch_engine, request(adapter="red"))).kind == "unknown_adapter"
    assert (await ask(torch_engine, sampling={"max_tokens": 2})).usage.completion == 2


Change = Callable[[bytes], bytes]


def only(content: bytes) -> Change:
    return lambda _: content


def up_to(length: int) -> Change:
    return lambda file: file[:length]


def ending(content: bytes) -> Change:
    return lambda file: file[: -len(content)] + content


def header(at: int, content: bytes) -> Change:
    return lambda file: file[:at] + content + file[at + len(content) :]


def text(word: bytes) -> bytes:
    return struct.pack("<Q", len(word)) + word


def said(key: bytes, value: int) -> Change:
    """Replace the integer value of a key."""

    def change(file: bytes) -> bytes:
        at = file.index(text(key)) + 8 + len(key) + 4
        return file[:at] + struct.pack("<I", value) + file[at + 4 :]

    return change


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (only(b""), "not a GGUF file"),
        (only(b"this is a text file"), "not a GGUF file"),
        (header(0, b"GGML"), "not a GGUF file"),
        (only(b"GGUF"), "damaged at byte 4"),
        (header(4, b"\0\0\0\3"), "GGUF version is 50331648"),
        (header(16, struct.pack("<Q", 1 << 60)), f"announces {1 << 60} keys"),
        (header(24, struct.pack("<Q", 1 << 62)), f"{1 << 62} bytes should follow"),
        (up_to(3000), "its header is damaged"),
        (up_to(-10_000), "file bounds"),
        (said(b"qwen2.context_length", 0), "a context of 0 tokens"),
        (said(b"qwen2.context_length", 3), "a context of 3 tokens"),
    ],
)
async def test_a_damaged_gguf_file_is_refused(
    tiny_gguf: Path, tmp_path: Path, damage: Change, words: str
) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(damage(tiny_gguf.read_bytes()))  # noqa: ASYNC240
    error = await refused("llama_cpp", file)
    assert "broken.gguf" in error
    assert words in error


def number(key: bytes, value: int) -> bytes:
    return text(key) + struct.pack("<II", 4, value)


def gguf(*keys: bytes) -> bytes:
    body = [text(b"general.architecture") + struct.pack("<I", 8) + text(b"qwen2"), *keys]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(body)) + b"".join(body)


def strings(key: bytes, words: Sequence[bytes]) -> bytes:
    return text(key) + struct.pack("<IIQ", 9, 8, len(words)) + b"".join(map(text, words))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (gguf(number(b"qwen2.block_count", 0)), "announces 0 layers"),
        (gguf(number(b"qwen2.block_count", 2**31)), "announces 2147483648 layers"),
        (gguf(strings(b"tokenizer.ggml.tokens", [b"a", b"b", b"a"])), "token 2 ('a') is in the"),
        (
            gguf(
                number(b"qwen2.embedding_length", 64),
                number(b"qwen2.attention.head_count", 4),
                number(b"qwen2.rope.dimension_count", 8),
            ),
            "heads are 16 wide, but 8 are rotated",
        ),
        (gguf(text(b"x") + struct.pack("<I", 77)), "'x' has the unknown type 77"),
        (gguf(text(b"x") + struct.pack("<IIQ", 9, 4, 1 << 61)), "bytes should follow"),
        (gguf(text(b"x") + struct.pack("<IIQ", 9, 8, 1 << 40)), "bytes should follow"),
    ],
)
def test_a_header_that_would_crash_llama_cpp_is_refused_first(
    tmp_path: Path, content: bytes, words: str
) -> None:
    """Without the check, llama.cpp would hit an assertion or allocate unbounded memory; the first
    cases break its own rules."""
    file = tmp_path / "broken.gguf"
    file.write_bytes(content)
    with pytest.raises(DamagedHeader) as caught:
        check_header(file)
    assert words in str(caught.value)


LOAD_ALL = """
import asyncio, sys
from pathlib import Path
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings

async def load(file):
    engine = build_engine(ModelSettings(engine="llama_cpp", model=str(file), device="cpu"))
    try:
        await engine.start()
    except EngineError as error:
        return error.kind
    await engine.close()
    return "loaded"

for file in sorted(Path(sys.argv[1]).glob("*.gguf")):
    print(file.name, flush=True)
    print(asyncio.run(load(file)), flush=True)
"""


def test_no_damaged_header_crashes_the_process(tiny_gguf: Path, tmp_path: Path) -> None:
    """Random bytes change, in another process, which must survive to report every file."""
    good = tiny_gguf.read_bytes()
    for seed in range(60):
        rng = random.Random(seed)
        data = bytearray(good)
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.randrange(8, 4096)
            data[at : at + 4] = rng.choice((b"\xff" * 4, b"\0" * 4, rng.randbytes(4)))
        (tmp_path / f"{seed:02}.gguf").write_bytes(data)
    process = subprocess.run(
        [sys.executable, "-c", LOAD_ALL, str(tmp_path)], capture_output=True, text=True, check=False
    )
    lines = process.stdout.splitlines()
    assert process.returncode == 0, f"{lines[-1]} ended the process: {process.stderr[-1500:]}"
    assert len(lines) == 2 * 60
    assert set(lines[1::2]) <= {"bad_request", "unavailable", "loaded"}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (up_to(-500), "file bounds"),
        (ending(struct.pack("<f", float("nan")) * 16), "not finite"),
        (up_to(100), "its header is damaged"),
        (only(b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0)), "general.architecture"),
        (only(b"a text"), "not a GGUF file"),
        (None, "general.type"),
    ],
)
async def test_a_damaged_gguf_adapter_is_refused_and_the_model_continues(
    llama_engine: Engine,
    tiny_gguf: Path,
    tiny_gguf_loras: list[Path],
    tmp_path: Path,
    damage: Change | None,
    words: str,
) -> None:
    """The last file is a whole model instead of an adapter."""
    file = tmp_path / "adapter.gguf"
    good = (tiny_gguf_loras[0] / "adapter.gguf").read_bytes()
    file.write_bytes(tiny_gguf.read_bytes() if damage is None else damage(good))  # noqa: ASYNC240
    with pytest.raises(EngineError) as caught:
        await llama_engine.load_adapter("red", str(file), 1)
    assert caught.value.kind == "bad_request"
    assert str(caught.value).startswith("the adapter ")
    assert words in str(caught.value)
    assert (await failure(llama_engine, request(adapter="red"))).kind == "unknown_adapter"
    assert (await ask(llama_engine, sampling={"max_tokens": 2})).usage.completion == 2


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for x in %}", "Expected an expression"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ nope.x }}", "'nope' is undefined"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.getcwd() }}", "unsafe"),
        ("{% for i in range(10 ** 9) %}x{% endfor %}", "Range too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "maximum recursion depth"),
        ("{# nothing #}", "leaves out a part of the conversation"),
    ],
)
async def test_a_template_that_fails_or_accesses_internals_is_refused(
    tiny_model_copy: Path, template: str, words: str
) -> None:
    (tiny_model_copy / "chat_template.jinja").write_text(template)
    engine = build_engine(ModelSettings(engine="torch", model=str(tiny_model_copy)))
    with pytest.raises(EngineError) as caught:
        await engine.start()
    assert caught.value.kind == "bad_request"
    assert words in str(caught.value)


async def test_a_template_with_endless_output_is_refused_before_tokenization(
    tiny_model_copy: Path,
) -> None:
    (tiny_model_copy / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message.role + message.content }}{% endfor %}"
        "{% if messages[-1].content == 'at length' %}"
        "{% for i in range(600) %}{% for j in range(600) %}x{% endfor %}{% endfor %}{% endif %}"
    )
    engine = build_engine(ModelSettings(engine="torch", model=str(tiny_model_copy)))
    await engine.start()
    error = await failure(engine, request([user("at length")]))
    await engine.close()
    assert error.kind == "context_overflow"
    assert f"characters, more than the model's context of {CONTEXT} tokens" in str(error)


async def test_a_token_without_an_embedding_row_is_refused_with_its_position(
    tiny_model_copy: Path,
) -> None:
    """An example is the padding token of a fine-tuned model whose embedding was not enlarged."""
    saved = json.loads((tiny_model_copy / "tokenizer.json").read_text())
    added = saved["added_tokens"]
    beyond = max(token["id"] for token in added) + 1
    added.append({**added[0], "id": beyond, "content": "[PAD]"})
    (tiny_model_copy / "tokenizer.json").write_text(json.dumps(saved))
    engine = build_engine(ModelSettings(engine="torch", model=str(tiny_model_copy)))
    await engine.start()
    short = {"max_tokens": 2}
    assert (await ask(engine, sampling=short)).usage.completion == 2
    assert (await ask(engine, "[PAD]", sampling=short)).usage.completion == 2
    system = Message(role="system", content="[PAD]")
    error = await failure(engine, request([system, user("What is 1 + 1?")]))
    await engine.close()
    assert error.kind == "bad_request"
    assert f"{beyond} is not a token id" in str(error)


@pytest.mark.parametrize("name", ["micro:../micro_models/llm", "micro:..", "micro:/etc", "micro:"])
def test_a_micro_model_s_name_is_not_a_path(name: str) -> None:
    with pytest.raises(EngineError, match="there is no micro model"):
        local_folder(name)


def test_a_revision_missing_on_the_hub_is_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(model: str, **_: object) -> str:
        hub_request = httpx2.Request("GET", f"https://huggingface.co/api/models/{model}")
        raise RevisionNotFoundError("404", response=httpx2.Response(404, request=hub_request))

    monkeypatch.setattr(model_files, "snapshot_download", fetch)
    with pytest.raises(EngineError, match="it has no revision 'mian'") as caught:
        find_folder(ModelSettings(engine="torch", model="someone/small", revision="mian"))
    assert (caught.value.kind, caught.value.retryable) == ("bad_request", False)


@pytest.mark.parametrize("proxy", ["ftp://proxy.example:1", "socks4://proxy.example:1"])
def test_a_proxy_that_the_hub_can_t_be_reached_through_is_reported_by_name(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(EngineError, match=f"from the hub: ALL_PROXY is {proxy}"):
        model_files.fetch(ModelSettings(engine="torch", model="someone/some-model"))


@pytest.mark.parametrize("error", [httpx2.ProxyError("no way"), httpx2.ReadError("cut")])
def test_an_interrupted_download_may_be_retried(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fetch(model: str, **_: object) -> str:
        raise error

    monkeypatch.setattr(model_files, "snapshot_download", fetch)
    with pytest.raises(EngineError, match="the hub cannot be reached") as caught:
        find_folder(ModelSettings(engine="torch", model="someone/small"))
    assert (caught.value.kind, caught.value.retryable) == ("unavailable", True)


@pytest.mark.parametrize("name", ["../../x.gguf", "/nowhere/x.gguf", "a/../b.gguf", "a/b\n/x.gguf"])
def test_a_name_that_is_neither_a_file_nor_a_hub_name_is_not_requested(name: str) -> None:
    with pytest.raises(EngineError, match="there is no such file"):
        find_gguf(ModelSettings(engine="llama_cpp", model=name))
