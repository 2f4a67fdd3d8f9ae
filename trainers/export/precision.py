"""Options of `train export`, separate from the writing of GGUF files, which imports torch."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from loopline.runtime.config.options import Argument, Options


class Precision(StrEnum):
    """How the matrices are stored; vectors are always float32."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"
    Q4_K_M = "q4_k_m"


class ExportOptions(Options):
    """A model or an adapter, and the output file."""

    model: Annotated[str, Argument()]
    """Folder of a model or a LoRA adapter, micro:llm or micro:slm."""
    gguf: Path
    """GGUF file to write, for llama.cpp."""
    precision: Precision = Precision.F16
    """Precision of a model's matrices."""
    base: str | None = None
    """Model that an adapter is for; needed for adapters."""
