"""llama.cpp's context, reduced to what continuous batching needs: decode tokens of many sequences
in one call, copy and drop a sequence's cells. Owned by one thread.

The structures of llama.cpp change between releases, so the constraints file pins the exact version.
Its functions are typed `Any`, so that all other types can be checked without the package.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loopline.workers.engines.protocol import EngineError

llama: Any = import_module("llama_cpp")
chat_format: Any = import_module("llama_cpp.llama_chat_format")

MAX_SEQUENCES = 256
"""LLAMA_MAX_SEQ, a constant of llama.cpp's sources."""

_ERROR_LEVEL = 4
_errors: deque[str] = deque(maxlen=4)
"""The last errors that llama.cpp logged: its functions return no reasons."""


@llama.llama_log_callback
def _collect(level: int, text: bytes, _: object) -> None:
    if level == _ERROR_LEVEL and text.strip():
        _errors.append(text.decode(errors="replace").strip())


def begin_listening() -> None:
    """Keep llama.cpp's log off the terminal, and collect its errors for `last_error`."""
    llama.llama_log_set(_collect, ctypes.c_void_p(0))
    _errors.clear()


def last_error() -> str:
    """The errors that llama.cpp has logged since `begin_listening`."""
    return "; ".join(_errors) or "llama.cpp gave no reason"


class CellsFull(Exception):
    """The cache has no room for the batch; nothing was changed."""


@dataclass
class Feed:
    """Tokens of one sequence in a batch, at the positions from `start` on. Logits are needed after
    each of the last `wanted` tokens."""

    sequence: int
    start: int
    tokens: Sequence[int]
    wanted: int = 0


class LlamaContext:
    """Room for `cells` tokens, shared by up to `sequences` sequences (a token that several of them
    share is stored once), and batches of up to `batch` tokens."""

    def __init__(
        self, model: Any, *, cells: int, sequences: int, batch: int, threads: int, exact: bool
    ) -> None:
        """`exact`: attention in float32 throughout (logits within 1e-5 of torch's on float32
        weights, instead of 1e-2). Raises EngineError."""
        parameters = llama.llama_context_default_params()
        parameters.n_ctx = cells
        parameters.n_batch = batch
        parameters.n_ubatch = min(batch, parameters.n_ubatch)
        parameters.n_seq_max = sequences
        parameters.kv_unified = True
        parameters.n_threads = parameters.n_threads_batch = threads
        if exact:
            # Flash attention would compute in float16 even with a float32 cache.
            parameters.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
            parameters.type_k = parameters.type_v = llama.GGML_TYPE_F32
        begin_listening()
        context = llama.llama_init_from_model(model, parameters)
        if context is None:
            raise EngineError(
                f"a cache for {cells} tokens cannot be allocated: {last_error()}; lower "
                "max_tokens_in_flight or max_context of this pool",
                kind="unavailable",
                retryable=True,
            )
        self._context = context
        memory = llama.llama_get_memory(context)
        assert memory is not None
        self._memory = memory
        vocab = llama.llama_model_get_vocab(model)
        assert vocab is not None
        self._vocabulary = llama.llama_vocab_n_tokens(vocab)
        self.cells = llama.llama_n_ctx(context)
        self.batch = batch
        self._tokens = np.zeros(batch, dtype=np.int32)
        self._positions = np.zeros(batch, dtype=np.int32)
        self._sequences = np.zeros(batch, dtype=np.int32)
        self._wanted = np.zeros(batch, dtype=np.int8)
        self._ones = np.ones(batch, dtype=np.int32)
        integer = ctypes.POINTER(ctypes.c_int32)
        step = self._sequences.itemsize
        self._each_sequence = (integer * batch)(
            *(
                ctypes.cast(self._sequences.ctypes.data + step * place, integer)
                for place in range(batch)
            )
        )
        self._batch = llama.llama_batch(
            n_tokens=0,
            token=self._tokens.ctypes.data_as(integer),
            embd=None,
            pos=self._positions.ctypes.data_as(integer),
            n_seq_id=self._ones.ctypes.data_as(integer),
            seq_id=self._each_sequence,
            logits=self._wanted.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def decode(self, feeds: Sequence[Feed]) -> NDArray[np.float32]:
        """Run the model over all feeds in one call.

        Returns the wanted logits [sum of wanted, vocabulary] in the order of the feeds; the next
        call overwrites them. Raises CellsFull, or EngineError if the model fails: then the feeds'
        sequences are in an unknown state.
        """
        size = 0
        self._wanted[:] = 0
        for feed in feeds:
            end = size + len(feed.tokens)
            self._tokens[size:end] = feed.tokens
            self._positions[size:end] = np.arange(feed.start, feed.start + len(feed.tokens))
            self._sequences[size:end] = feed.sequence
            self._wanted[end - feed.wanted : end] = 1
            size = end
        self._batch.n_tokens = size
        code = llama.llama_decode(self._context, self._batch)
        if code == 1:
            raise CellsFull
        if code != 0:
            raise EngineError(f"llama.cpp cannot decode (code {code}): {last_error()}")
        rows = sum(feed.wanted for feed in feeds)
        if rows == 0:
            return np.empty((0, self._vocabulary), dtype=np.float32)
        logits = llama.llama_get_logits(self._context)
        return np.ctypeslib.as_array(logits, shape=(rows, self._vocabulary))

    def use_adapter(self, adapter: Any) -> None:
        """Use this adapter in all following calls of `decode` (None: no adapter)."""
        if adapter is None:
            code = llama.llama_set_adapters_lora(self._context, None, 0, None)
        else:
            pointer = (llama.llama_adapter_lora_p_ctypes * 1)(adapter)
            code = llama.llama_set_adapters_lora(
                self._context, pointer, 1, (ctypes.c_float * 1)(1.0)
            )
        if code != 0:
            raise EngineError(f"llama.cpp cannot use the adapter (code {code}): {last_error()}")

    def copy(self, source: int, target: int, length: int) -> None:
        """Share the first `length` tokens of `source` with `target`; no data is moved."""
        llama.llama_memory_seq_cp(self._memory, source, target, 0, length)

    def length(self, sequence: int) -> int:
        """The number of tokens that llama.cpp itself has of this sequence."""
        return llama.llama_memory_seq_pos_max(self._memory, sequence) + 1

    def drop(self, sequence: int) -> None:
        """Release the cells that only this sequence uses."""
        llama.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def close(self) -> None:
        llama.llama_free(self._context)
