"""The configuration of a LoRA adapter in PEFT's format: which ones are plain LoRAs.

PEFT has many variants, and more with every version. They load without an error wherever the shapes
fit, and generate other text. So only known fields may be set.
"""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loopline.workers.engines.local.model_files import unusable_error
from loopline.workers.engines.protocol import EngineError

_IRRELEVANT = frozenset({
    "auto_mapping", "base_model_name_or_path", "corda_config", "eva_config", "exclude_modules",
    "inference_mode", "layers_pattern", "layers_to_transform", "loftq_config", "lora_dropout",
    "lora_ga_config", "megatron_core", "peft_version", "qalora_group_size", "revision",
    "runtime_config", "target_modules", "target_parameters", "task_type",
})  # fmt: skip
"""Fields of adapter_config.json that do not affect the computation with the stored weights: which
layers were trained and how, and details of features that other fields turn on."""

_PLAIN_BEGINNINGS = (True, False, "gaussian", "orthogonal", "eva")
"""Values of `init_lora_weights` that leave the base unchanged. PiSSA, OLoRA, CorDA, LoftQ and
LoRA-GA move a part of the base's weights into the adapter: on the full base, that part counts
twice."""


class _Kind(BaseModel):
    """The field that PEFT writes for every kind of adapter."""

    model_config = ConfigDict(extra="ignore")

    peft_type: str


class LoraConfig(BaseModel):
    """The fields of PEFT's adapter_config.json that are used here. Any other field that is set
    makes the adapter something other than a LoRA, or may do so in a future version of PEFT."""

    model_config = ConfigDict(extra="allow")

    peft_type: str
    r: int = Field(ge=1)
    lora_alpha: float = Field(allow_inf_nan=False)
    use_rslora: bool = False
    bias: str = "none"
    init_lora_weights: bool | str | None = True

    @property
    def scale(self) -> float:
        """Factor of the product B A."""
        return self.lora_alpha / (math.sqrt(self.r) if self.use_rslora else self.r)

    def unknown(self) -> list[str]:
        """Names of the fields that are set but not supported."""
        fields = (self.model_extra or {}).items()
        unknown = [name for name, value in fields if value and name not in _IRRELEVANT]
        return sorted(unknown) + ["bias"] * (self.bias != "none")


def read_lora_config(folder: Path, path: str) -> LoraConfig:
    """Read the configuration of the adapter in `folder`, which the user calls `path`. Raises
    EngineError `bad_request`."""
    try:
        content = (folder / "adapter_config.json").read_bytes()
        kind = _Kind.model_validate_json(content).peft_type
        if kind != "LORA":
            raise bad_adapter_error(path, f"its peft_type is {kind[:40]!r}, not LORA")
        config = LoraConfig.model_validate_json(content)
    except OSError as error:
        raise bad_adapter_error(
            path, f"adapter_config.json cannot be read: {error.strerror}"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f" ({key})" for key in first["loc"])
        raise bad_adapter_error(
            path, f"adapter_config.json is wrong{place}: {first['msg']}"
        ) from error
    if config.init_lora_weights not in (None, *_PLAIN_BEGINNINGS):
        raise bad_adapter_error(
            path,
            f"init_lora_weights is {str(config.init_lora_weights)[:40]!r}: it was trained on a "
            "base that was changed for it. Save it with PEFT's "
            "path_initial_model_for_weight_conversion, which makes a LoRA of the unchanged base",
        )
    if unknown := config.unknown():
        raise bad_adapter_error(path, f"it uses {', '.join(unknown)[:200]}, which is not supported")
    return config


def bad_adapter_error(path: str, reason: str) -> EngineError:
    """The refusal of the adapter that the user calls `path`."""
    return unusable_error(path, reason, "adapter")
