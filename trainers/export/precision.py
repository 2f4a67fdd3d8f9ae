"""Precisions of a GGUF file. Apart from their making, which imports torch."""

from __future__ import annotations

from enum import StrEnum


class Precision(StrEnum):
    """How the matrices are stored; vectors are always float32."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"
    Q4_K_M = "q4_k_m"
