"""Loads a GGUF file with llama.cpp: weights, tokenizer and chat template all come from the file."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jinja2

from loopline.agents.records import Message, ToolSpec
from loopline.agents.template_options import TemplateValue
from loopline.workers.engines.llama_cpp.context import (
    begin_listening,
    chat_format,
    last_error,
    llama,
)
from loopline.workers.engines.local.adapter_base import (
    WEIGHTS_KEY,
    gguf_adapter_file,
)
from loopline.workers.engines.local.model_files import (
    check_gguf,
    find_gguf,
    model_name,
    unusable_error,
    usable_context,
)
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.text.chat_prompt import (
    TextCodec,
    looks_like_control,
    template_messages,
    template_tools,
)
from loopline.workers.engines.text.sentencepiece import (
    BLANK,
    BLANK_AT_BEGINNING_KEY,
    SentencePieceCodec,
)
from loopline.workers.engines.text.template_habits import (
    EVERYTHING,
    TemplateHabits,
    TemplateRefuses,
    adapt_messages,
    habits_of,
)
from loopline.workers.engines.text.template_options import combined_options, unread_option
from loopline.workers.engines.text.tokenizer_codec import COMPOSED_KEY, compose_codec

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_PIECE_BYTES = 16 * 1024
"""Longest text of one token."""


class VocabCodec:
    """A `TextCodec` over the tokenizer in the file: control tokens are text like any other.

    A SentencePiece-style tokenizer needs a `SentencePieceCodec` on top.
    """

    def __init__(self, vocab: Any) -> None:
        self._vocab = vocab
        self._buffer = ctypes.create_string_buffer(_PIECE_BYTES)
        self._pieces: dict[int, bytes] = {}

    def encode(self, text: str, after: int | None = None) -> list[int]:
        raw = text.encode()
        room = len(raw) + 8
        while True:
            ids = (ctypes.c_int32 * room)()
            # Without the file's own beginning-of-text token, which chat templates write themselves,
            # but with control tokens recognized.
            count = llama.llama_tokenize(self._vocab, raw, len(raw), ids, room, False, True)
            if count >= 0:
                return list(ids[:count])
            room = -count

    def decode(self, ids: Sequence[int], after: int | None = None) -> str:
        return b"".join(map(self.piece, ids)).decode(errors="replace")

    def piece(self, token: int) -> bytes:
        """The bytes of one token, which may be an incomplete character."""
        piece = self._pieces.get(token)
        if piece is None:
            size = llama.llama_token_to_piece(
                self._vocab, token, self._buffer, _PIECE_BYTES, 0, True
            )
            piece = self._pieces[token] = self._buffer.raw[: max(size, 0)]
        return piece


@dataclass(frozen=True)
class LoadedGguf:
    """See `loopline.workers.engines.local.backend.Loaded`."""

    base: str
    weights_sha256: str | None
    """The recorded hash of the weights that the file was made from."""
    model: Any
    vocab: Any
    codec: TextCodec
    formatter: Any
    tool_formatter: Any
    """Formatter of requests with tools, for which some models have a separate chat template."""
    end_ids: frozenset[int]
    max_context: int
    vocabulary: int
    control_tokens: tuple[str, ...]
    """The tokenizer's control tokens, longest first."""
    template_options: dict[str, TemplateValue] = field(default_factory=dict[str, TemplateValue])
    habits: TemplateHabits = EVERYTHING
    """What its chat template accepts."""

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        options: Mapping[str, TemplateValue] | None = None,
    ) -> str:
        """See `Loaded.render`."""
        shaped: Any = template_messages(adapt_messages(messages, self.habits), self.control_tokens)
        offered: Any = template_tools(tools, self.control_tokens)
        templates = [self.formatter.template, self.tool_formatter.template]
        formatter = self.tool_formatter if tools else self.formatter
        try:
            switches = combined_options(self.template_options, options or {}, templates)
            rendered = formatter(messages=shaped, tools=offered, **switches)
            return rendered.prompt
        except jinja2.TemplateError as error:
            raise ValueError(str(error)) from error

    def grammar_tokenizer(self) -> LLTokenizer:
        """See `Loaded.grammar_tokenizer`."""
        from llguidance.llamacpp import lltokenizer_from_vocab

        return lltokenizer_from_vocab(self.vocab, eos_token=sorted(self.end_ids) or None)

    def close(self) -> None:
        """Release the weights; the model must not be used afterwards."""
        llama.llama_model_free(self.model)


def load_gguf(settings: ModelSettings) -> LoadedGguf:
    """Read the model into memory. Blocks for seconds.

    Raises EngineError: `bad_request` for a missing or incomplete file, or a GPU that llama.cpp was
    not built for; `unavailable` (retryable) if the hub cannot be reached.
    """
    kind, _, number = settings.device.partition(":")
    if kind == "cuda" and not llama.llama_supports_gpu_offload():
        raise unusable_error(
            settings.model,
            f"device is {settings.device!r}, but llama-cpp-python was built without GPU support: "
            "build it with CMAKE_ARGS=-DGGML_CUDA=on, or leave device out",
        )
    path = find_gguf(settings)
    begin_listening()
    llama.llama_backend_init()
    parameters = llama.llama_model_default_params()
    parameters.n_gpu_layers = 0 if kind == "cpu" else -1
    if number:
        # Otherwise llama.cpp uses all GPUs.
        parameters.split_mode = llama.LLAMA_SPLIT_MODE_NONE
        parameters.main_gpu = int(number)
    model = llama.llama_model_load_from_file(str(path).encode(), parameters)
    if model is None:
        raise unusable_error(settings.model, f"llama.cpp refuses {path.name}: {last_error()}")
    with ExitStack() as on_failure:
        on_failure.callback(llama.llama_model_free, model)
        loaded = _with_its_text(model, settings)
        on_failure.pop_all()
    return loaded


def _with_its_text(model: Any, settings: ModelSettings) -> LoadedGguf:
    """The model with its text side from the file. Raises EngineError for a file without a chat
    template, or with a tokenizer that is not exact."""
    vocab = llama.llama_model_get_vocab(model)
    template = llama.llama_model_chat_template(model, None)
    if vocab is None or template is None:
        raise unusable_error(
            settings.model, "the file has no chat template; use an instruct model's GGUF file"
        )
    tool_template = llama.llama_model_chat_template(model, b"tool_use") or template
    wrong = unread_option(settings.template_options, [template.decode(), tool_template.decode()])
    if wrong is not None:
        raise unusable_error(settings.model, wrong)
    count = int(llama.llama_vocab_n_tokens(vocab))
    codec = _codec(model, vocab, count)
    if codec is None:
        raise unusable_error(
            settings.model, "it has a SentencePiece tokenizer without byte fallback"
        )
    # llama.cpp has a token for both, even if the file names none.
    eos, bos = (
        codec.decode(_optional_token(int(token)))
        if _metadata(model, f"tokenizer.ggml.{name}_token_id", 12)
        else ""
        for name, token in (
            ("eos", llama.llama_vocab_eos(vocab)),
            ("bos", llama.llama_vocab_bos(vocab)),
        )
    )
    formatter, tool_formatter = (
        chat_format.Jinja2ChatFormatter(text.decode(), eos_token=eos, bos_token=bos)
        for text in (template, tool_template)
    )
    loaded = LoadedGguf(
        base=model_name(settings.model),
        weights_sha256=_metadata(model, WEIGHTS_KEY, 64),
        model=model,
        vocab=vocab,
        codec=codec,
        formatter=formatter,
        tool_formatter=tool_formatter,
        end_ids=frozenset(
            token for token in range(count) if llama.llama_vocab_is_eog(vocab, token)
        ),
        max_context=usable_context(int(llama.llama_model_n_ctx_train(model)), settings),
        vocabulary=count,
        control_tokens=_control_tokens(vocab, codec, count),
        template_options=settings.template_options,
    )
    try:
        return replace(loaded, habits=habits_of(loaded.render))
    except TemplateRefuses as error:
        raise unusable_error(settings.model, str(error)) from error


def load_gguf_adapter(loaded: LoadedGguf, path: str) -> Any:
    """A LoRA for this model, from a GGUF file or a folder with an `adapter.gguf`.

    Raises EngineError `bad_request` for one that is missing, incomplete, or made for another model.
    """
    file = gguf_adapter_file(path)
    check_gguf(file, path, "adapter")
    begin_listening()
    adapter = llama.llama_adapter_lora_init(loaded.model, str(file).encode())
    if not adapter:  # a null pointer, which is not None
        raise unusable_error(path, f"llama.cpp refuses {file.name}: {last_error()}", "adapter")
    return adapter


def free_gguf_adapter(adapter: Any) -> None:
    """Free the memory of an adapter."""
    llama.llama_adapter_lora_free(adapter)


def _metadata(model: Any, key: str, chars: int) -> str | None:
    """A value of the file's header, truncated to that many ASCII characters; None if it is
    missing."""
    value = ctypes.create_string_buffer(chars + 1)
    length = llama.llama_model_meta_val_str(model, key.encode(), value, len(value))
    return value.value.decode("ascii", "replace") if length > 0 else None


def _optional_token(token: int) -> list[int]:
    """A special token, which the file may leave unset (-1)."""
    return [token] if token >= 0 else []


def _codec(model: Any, vocab: Any, count: int) -> TextCodec | None:
    """None for a tokenizer without tokens for some bytes: llama.cpp would abort the process."""
    plain = VocabCodec(vocab)
    kinds = [int(llama.llama_vocab_get_attr(vocab, token)) for token in range(count)]
    if llama.llama_vocab_type(vocab) != llama.LLAMA_VOCAB_TYPE_SPM:
        if _metadata(model, COMPOSED_KEY, 4) != "true":
            return plain
        added_kinds = llama.LLAMA_TOKEN_ATTR_CONTROL | llama.LLAMA_TOKEN_ATTR_USER_DEFINED
        added_ids = (token for token, kind in enumerate(kinds) if kind & added_kinds)
        return compose_codec(plain, [plain.decode([token]) for token in added_ids])
    if sum(kind & llama.LLAMA_TOKEN_ATTR_BYTE != 0 for kind in kinds) != 256:
        return None
    added_kinds = (
        llama.LLAMA_TOKEN_ATTR_CONTROL
        | llama.LLAMA_TOKEN_ATTR_UNKNOWN
        | llama.LLAMA_TOKEN_ATTR_USER_DEFINED
    )
    added = {token for token, kind in enumerate(kinds) if kind & added_kinds}
    pieces = [plain.piece(token) for token in range(count)]

    def with_blank(text: str) -> list[int]:
        ids = plain.encode(text)
        if not ids or ids[0] in added or text.startswith((" ", BLANK)):
            return ids
        return plain.encode(f" {text}")

    if _metadata(model, BLANK_AT_BEGINNING_KEY, 4) == "true":
        return SentencePieceCodec(with_blank, pieces, added, [None])
    everywhere = pieces[plain.encode("a")[0]].startswith(b" ")
    return SentencePieceCodec(plain.encode, pieces, added, [None, *added] if everywhere else [])


def _control_tokens(vocab: Any, codec: TextCodec, count: int) -> tuple[str, ...]:
    special = llama.LLAMA_TOKEN_ATTR_CONTROL | llama.LLAMA_TOKEN_ATTR_UNKNOWN
    added = llama.LLAMA_TOKEN_ATTR_USER_DEFINED
    names: set[str] = set()
    for token in range(count):
        attributes = llama.llama_vocab_get_attr(vocab, token)
        name = codec.decode([token]) if attributes & (special | added) else ""
        if attributes & special or looks_like_control(name):
            names.add(name)
    return tuple(sorted((name for name in names if len(name) > 1), key=len, reverse=True))
