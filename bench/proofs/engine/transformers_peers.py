"""Peers of `bench engine` in transformers itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import ContinuousBatchingConfig, GenerationConfig, PreTrainedTokenizerFast

from loopline.bench.proofs.engine.workload import Ask, Measured, Timing

LONGEST_WAIT = 600.0

PAGE = 32
"""Tokens in a block of the paged cache."""

PAGES_PER_PLACE = 40
"""Pages of the cache for each place: twice the need of a request, so that its scheduler may take
more at once than ours."""


class _Transformers:
    """The model, and prompts with its chat template."""

    def __init__(self, folder: Path, *, threads: int) -> None:
        self._folder = folder
        self._threads = threads

    async def start(self) -> None:
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self._tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(
            self._folder, padding_side="left"
        )
        self._model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            self._folder, dtype=torch.float32
        ).eval()

    async def close(self) -> None:
        del self._model

    def _prompt(self, ask: Ask) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                [{"role": "user", "content": ask.text}],
                add_generation_prompt=True,
                tokenize=False,
            )
        )

    def _ids(self, ask: Ask) -> list[int]:
        return list(self._tokenizer.encode(self._prompt(ask), add_special_tokens=False))


class StaticBatch(_Transformers):
    """Static batches, each with as many requests as may be in flight; a batch ends with its longest
    answer."""

    name = "generate"
    about = "transformers' generate on static batches of as many requests as may be in flight"

    async def run(self, asks: Sequence[Ask], concurrency: int) -> Measured:
        return await asyncio.to_thread(self._run, asks, concurrency)

    @torch.inference_mode()
    def _run(self, asks: Sequence[Ask], concurrency: int) -> Measured:
        torch.set_num_threads(self._threads)
        end = self._model.generation_config.eos_token_id
        started = time.perf_counter()
        tokens = 0
        timings: list[Timing] = []
        for first in range(0, len(asks), concurrency):
            batch = asks[first : first + concurrency]
            sent = time.perf_counter()
            inputs = self._tokenizer(
                [self._prompt(ask) for ask in batch],
                return_tensors="pt", padding=True, add_special_tokens=False,
            )  # fmt: skip
            inputs.pop("token_type_ids", None)
            outputs = self._model.generate(
                **inputs,
                max_new_tokens=max(ask.max_tokens for ask in batch),
                do_sample=False,
                pad_token_id=self._tokenizer.pad_token_id,
            )
            finish_time = time.perf_counter()
            for ask, row in zip(batch, outputs[:, inputs["input_ids"].shape[1] :], strict=True):
                wanted: list[int] = row[: ask.max_tokens].tolist()
                useful = wanted.index(end) + 1 if end in wanted else len(wanted)
                tokens += useful
                # A single time: the whole answer arrives at once, without times for its tokens.
                timings.append(Timing(sent, [finish_time]))
        return Measured(time.perf_counter() - started, tokens, timings)


class ContinuousBatch(_Transformers):
    """Continuous batching: all requests are submitted at once, and its scheduler takes as many as
    it likes. The start of a request is not observable, so there are no latencies."""

    name = "continuous batching"
    about = "transformers' ContinuousBatchingManager, given all requests at once"

    def __init__(self, folder: Path, *, threads: int, places: int) -> None:
        super().__init__(folder, threads=threads)
        self._places = places

    async def start(self) -> None:
        await super().start()
        torch.set_num_threads(self._threads)
        self._manager: Any = self._model.init_continuous_batching(
            generation_config=GenerationConfig(
                do_sample=False,
                eos_token_id=self._model.generation_config.eos_token_id,
                pad_token_id=self._tokenizer.pad_token_id,
            ),
            # The fastest settings of those tried on 2 cores. By default it fills the machine's
            # memory with pages of 256 tokens, and is a third slower.
            continuous_batching_config=ContinuousBatchingConfig(
                page_size=PAGE,
                num_blocks=PAGES_PER_PLACE * max(4, self._places),
                max_batch_tokens=max(256, 2 * self._places),
            ),
        )
        self._manager.start()

    async def close(self) -> None:
        self._manager.stop(block=True)
        await super().close()

    async def run(self, asks: Sequence[Ask], concurrency: int) -> Measured:
        return await asyncio.to_thread(self._run, asks)

    def _run(self, asks: Sequence[Ask]) -> Measured:
        prompts = [self._ids(ask) for ask in asks]
        started = time.perf_counter()
        for ids, ask in zip(prompts, asks, strict=True):
            self._manager.add_request(ids, max_new_tokens=ask.max_tokens)
        tokens = finished = 0
        while finished < len(asks):
            result = self._manager.get_result(timeout=LONGEST_WAIT)
            if result is None:
                raise TimeoutError(f"no result within {LONGEST_WAIT:g} s")
            if result.is_finished():
                tokens += len(result.generated_tokens)
                finished += 1
        return Measured(time.perf_counter() - started, tokens)
