"""A real model of 120 thousand parameters, created on the spot: a Qwen2 with a byte-level BPE.

It is trained for a second or two on three conversations, so that it generates text with characters
of several bytes, a tool call, and an end of turn.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config

QUESTION = "What is 12 * 7 + 5?"
ANSWER = "Sì: 12 * 7 = 84 😀 and 84 + 5 = 89.\n\n\\boxed{89}"
TOOL_CALL = (
    '<tool_call>\n{"name": "calculate", "arguments": {"expression": "12 * 7 + 5"}}\n</tool_call>'
)
AFTER_TOOL = "It is 89.\n\n\\boxed{89}"

TEMPLATE = """\
{%- if tools %}<|im_start|>tools
{%- for tool in tools %} {{ tool.function.name }}{%- endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role not in ["system", "user", "assistant", "tool"] %}
{{- raise_exception("unknown role") }}
{%- endif %}
{{- "<|im_start|>" + message.role + "\\n" + message.content + "<|im_end|>\\n" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\\n" }}{% endif %}"""
NO_THOUGHT = "<think>\n\n</think>\n\n"
THINKING_TEMPLATE = f"""\
{TEMPLATE}
{{%- if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}}
{{{{- {NO_THOUGHT!r} }}}}
{{%- endif %}}"""
"""A template with Qwen3's switch: when off, an answer starts after an empty thought."""

CONTEXT = 512


def make_tiny_model(folder: Path, heads: int = 4) -> Path:
    """Train and save; return the folder. Each attention head has 64 / `heads` dimensions."""
    samples = [_sample(False, ANSWER), _sample(True, TOOL_CALL), _after_tool()]
    tokenizer = _tokenizer([before + after for before, after in samples])
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
        bos_token_id=None,
    )
    encoded = [(tokenizer.encode(before), tokenizer.encode(after)) for before, after in samples]
    model = train(config, encoded)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_pickle_checkpoint(source: Path, folder: Path) -> Path:
    """Save the same model in the old way, as a pickle, which engines must refuse."""
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    torch.save({"weight": torch.zeros(1)}, folder / "pytorch_model.bin")
    return folder


def _sample(with_tool: bool, answer: str) -> tuple[str, str]:
    tools = "<|im_start|>tools calculate<|im_end|>\n" if with_tool else ""
    return (
        f"{tools}<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n",
        f"{answer}<|im_end|>",
    )


def _after_tool() -> tuple[str, str]:
    before, call = _sample(True, TOOL_CALL)
    return (
        f"{before}{call}\n<|im_start|>tool\n89<|im_end|>\n<|im_start|>assistant\n",
        f"{AFTER_TOOL}<|im_end|>",
    )


def _tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    backend.add_special_tokens([AddedToken(token_text, special=True) for token_text in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def train(config: Any, samples: list[tuple[list[int], list[int]]]) -> Any:
    """Train a new model that continues the first ids of each sample with the second."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    longest = max(len(before) + len(after) for before, after in samples)
    # Padding follows the end; no label counts it.
    ids = torch.tensor([[*b, *a, *[0] * (longest - len(b) - len(a))] for b, a in samples])
    labels = torch.tensor(
        [[*[-100] * len(b), *a, *[-100] * (longest - len(b) - len(a))] for b, a in samples]
    )
    for _ in range(600):
        loss = model(input_ids=ids, labels=labels).loss
        if loss.item() < 0.003:
            return model.eval()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    raise AssertionError("the tiny model did not learn its three conversations")


def special_ids(folder: Path) -> dict[str, int]:
    """Ids of the special tokens, by their text."""
    saved = json.loads((folder / "tokenizer.json").read_text())
    return {token["content"]: token["id"] for token in saved["added_tokens"]}
