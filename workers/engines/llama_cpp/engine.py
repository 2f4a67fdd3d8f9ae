"""Models in this process, by llama.cpp: quantized or full, any architecture it knows (GGUF)."""

from __future__ import annotations

from loopline.workers.engines.llama_cpp.decoder import LlamaDecoder
from loopline.workers.engines.llama_cpp.loading import LoadedGguf
from loopline.workers.engines.local.engine import LocalEngine
from loopline.workers.engines.settings import ModelSettings


class LlamaCppEngine(LocalEngine[LoadedGguf]):
    """See `LocalEngine`."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings, LlamaDecoder)


def engine(settings: ModelSettings) -> LlamaCppEngine:
    """Entry point of the factory."""
    return LlamaCppEngine(settings)
