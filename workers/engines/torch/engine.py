"""Models in this process, by transformers: full precision, any Qwen, Llama and the like."""

from __future__ import annotations

from workers.engines.local.engine import LocalEngine
from workers.engines.settings import ModelSettings
from workers.engines.torch.decoder import TorchDecoder
from workers.engines.torch.loading import LoadedModel


class TorchEngine(LocalEngine[LoadedModel]):
    """See `LocalEngine`."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings, TorchDecoder)


def engine(settings: ModelSettings) -> TorchEngine:
    """Entry point of the factory."""
    return TorchEngine(settings)
