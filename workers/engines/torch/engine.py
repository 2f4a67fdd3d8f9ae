"""Models in this process, by transformers: full precision, any Qwen, Llama and the like."""

from __future__ import annotations

from loopline.workers.engines.local.engine import LocalEngine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.decoder import TorchDecoder
from loopline.workers.engines.torch.loading import LoadedModel


class TorchEngine(LocalEngine[LoadedModel]):
    """See `LocalEngine`."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings, TorchDecoder)


def engine(settings: ModelSettings) -> TorchEngine:
    """Entry point of the factory."""
    return TorchEngine(settings)
