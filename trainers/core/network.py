"""The model that is trained, all of its weights or an adapter, written in a format that the engines
read: a model folder, or an adapter in PEFT's format."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from loopline.agents.template_options import TemplateValue
from loopline.trainers.core.last_layer import hidden_at
from loopline.trainers.core.processes import Processes, whole
from loopline.trainers.errors import TrainingError, UnreadableModel
from loopline.workers.engines.local.model_files import find_folder
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.loading import LoadedModel, load_model
from loopline.workers.installation import install_hint

if TYPE_CHECKING:
    import torch

_COPIED = (
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json",
    "generation_config.json",
)  # fmt: skip
ADAPTER = "adapter_model.safetensors"
_CHANGES_LOGITS = ("final_logit_softcapping", "logits_scaling", "logit_scale")
"""Settings of models that process the output layer's logits further."""


def base_folder(model: str) -> Path:
    """Folder of a model given by path, hub id or micro name. Raises `UnreadableModel`."""
    try:
        return find_folder(ModelSettings(engine="torch", model=model))
    except EngineError as error:
        raise UnreadableModel(str(error)) from error


def load_base(
    model: str,
    dtype: Literal["float32", "bfloat16"] = "float32",
    template_options: Mapping[str, TemplateValue] | None = None,
    *,
    device: str = "auto",
) -> LoadedModel:
    """Load a model with the code that serves it, which renders prompts with these options of its
    chat template; `auto` is a GPU if there is one. Raises `UnreadableModel`."""
    options = dict(template_options or {})
    try:
        return load_model(
            ModelSettings(
                engine="torch", model=model, dtype=dtype, template_options=options, device=device
            )
        )
    except EngineError as error:
        raise UnreadableModel(str(error)) from error


@dataclass(frozen=True)
class Network:
    """A loaded model, and the part of it that is trained."""

    loaded: LoadedModel
    adapter: Any = None
    """The PeftModel around it; None when all weights are trained."""
    processes: Processes = field(default_factory=Processes)
    """Processes that train it together."""

    @property
    def whole(self) -> Any:
        """The transformers model; PEFT puts its layers into it."""
        return self.loaded.model

    @property
    def device(self) -> torch.device:
        return self.loaded.device

    def trained(self) -> list[tuple[str, torch.nn.Parameter]]:
        """Parameters that learn, by name."""
        module = self.whole if self.adapter is None else self.adapter
        return [
            (name, parameter)
            for name, parameter in module.named_parameters()
            if parameter.requires_grad
        ]

    def layer_matrices(self) -> list[torch.nn.Parameter]:
        """The weight matrices inside the layers of a whole model."""
        layers = getattr(self.whole, self.whole.base_model_prefix).layers
        return [parameter for parameter in layers.parameters() if parameter.dim() == 2]

    def learned_logits(self, ids: torch.Tensor, learned: torch.Tensor) -> torch.Tensor:
        """Logits [learned tokens, vocabulary] from which the marked tokens are predicted. `ids`
        [rows, length] are token ids; `learned` [rows, length - 1] marks tokens from the second one
        on."""
        if self.processes.sharded:
            return self.whole(self._learned_logits, ids, learned)
        return self._learned_logits(self.whole, ids, learned)

    @property
    def has_full_attention(self) -> bool:
        """Whether every layer attends to all earlier tokens, without a window or a state."""
        kinds: list[str] | None = getattr(self.whole.config, "layer_types", None)
        if kinds is not None:
            return set(kinds) <= {"full_attention"}
        return getattr(self.whole.config, "sliding_window", None) is None

    def tree_logits(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        sees: torch.Tensor,
        parents: torch.Tensor,
    ) -> torch.Tensor:
        """Logits [n, vocabulary] at `parents` [n] of trees of ids: see
        `loopline.trainers.grpo.prefix_trees.TreeMicroBatch`."""
        if self.processes.sharded:
            return self.whole(self._tree_logits, ids, positions, sees, parents)
        return self._tree_logits(self.whole, ids, positions, sees, parents)

    def _tree_logits(
        self,
        forward: Callable[..., Any],
        ids: torch.Tensor,
        positions: torch.Tensor,
        sees: torch.Tensor,
        parents: torch.Tensor,
    ) -> torch.Tensor:
        if any(getattr(self.whole.config, name, None) for name in _CHANGES_LOGITS):
            output = forward(
                input_ids=ids, position_ids=positions, attention_mask=sees, use_cache=False
            )
            return output.logits.flatten(0, 1)[parents]
        return self.head(self.tree_hidden(ids, positions, sees, parents))

    def tree_hidden(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        sees: torch.Tensor,
        parents: torch.Tensor,
    ) -> torch.Tensor:
        """Inputs of the output layer [n, width] for the logits of `tree_logits`."""
        import torch

        read = torch.zeros_like(ids, dtype=torch.bool).flatten()
        read[parents] = True
        hidden = hidden_at(
            self.whole,
            read.view_as(ids),
            input_ids=ids,
            position_ids=positions,
            attention_mask=sees,
        )
        # An id that several learned ids follow is computed once.
        return hidden[(read.cumsum(0) - 1)[parents]]

    def learned_hidden(self, ids: torch.Tensor, learned: torch.Tensor) -> torch.Tensor:
        """Inputs of the output layer [learned tokens, width] for the logits of `learned_logits`.
        The weights must not be sharded."""
        read = learned.new_zeros(ids.shape)
        read[:, :-1] = learned
        return hidden_at(self.whole, read, input_ids=ids)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """The output layer: logits [n, vocabulary] from [n, width]."""
        return self.whole.get_output_embeddings()(hidden)

    @property
    def has_plain_head(self) -> bool:
        """Whether logits are the output layer's result, without further operations on them."""
        return not any(getattr(self.whole.config, name, None) for name in _CHANGES_LOGITS)

    def checkpoint_layers(self) -> None:
        """Keep only each layer's input for the backward pass from now on, and recompute the rest
        there. Raises `TrainingError` for a model that does not support this, or one with dropout,
        which would draw again."""
        config = self.whole.config
        dropout = [name for name in vars(config) if "drop" in name and getattr(config, name)]
        if dropout or not self.whole.supports_gradient_checkpointing:
            why = (
                f"its configuration has {dropout[0]}"
                if dropout
                else "its class does not support them"
            )
            raise TrainingError(
                f"checkpointed activations do not work with {config.model_type}: {why}; leave out "
                "--checkpoint-activations"
            )
        # The method's name differs between versions of Transformers.
        name = "activation_checkpointing_enable"
        enable = getattr(self.whole, name, None) or self.whole.gradient_checkpointing_enable
        enable({"use_reentrant": False})
        # Transformers checkpoints only in training mode, which differs only in dropout.
        self.whole.train()

    def gather_parameter(self, tensor: torch.Tensor) -> torch.Tensor:
        """A weight or one of its moments, gathered if it is sharded over the processes; in that
        case all of them must call this."""
        return whole(tensor) if self.processes.sharded else tensor

    def shard(self) -> None:
        """Shard the weights over the processes. They are gathered in the model's own `forward`, to
        which the function to compute within it is passed from now on."""
        self.whole.forward = partial(_within, self.whole.forward)
        self.processes.shard(self.whole)

    def _learned_logits(
        self, forward: Callable[..., Any], ids: torch.Tensor, learned: torch.Tensor
    ) -> torch.Tensor:
        if any(getattr(self.whole.config, name, None) for name in _CHANGES_LOGITS):
            return forward(input_ids=ids, use_cache=False).logits[:, :-1][learned]
        # The output layer is a large part of a small model: only learned positions go through it.
        return self.head(self.learned_hidden(ids, learned))

    def write(self, folder: Path, base: Path) -> None:
        """Write the model into an empty folder; the first process writes, all must call this.
        `base` is the folder that the model was loaded from.

        Weights are written as they are trained, in float32 even if the base is stored with less
        precision: to reproduce the trainer's log-probabilities, an engine needs the trainer's
        weights.
        """
        if self.adapter is not None:
            state = {
                name: self.gather_parameter(parameter).detach().float()
                for name, parameter in self.trained()
            }
            if not self.processes.is_first:
                return
            self.adapter.save_pretrained(folder, state_dict=state, save_embedding_layers=False)
            (folder / "README.md").unlink(missing_ok=True)
            (folder / ADAPTER).chmod(0o644)
            return
        weights: dict[str, torch.Tensor] = {}
        tensor_ids: set[int] = set()
        for name, tensor in self.whole.state_dict(keep_vars=True).items():
            # An embedding that is also the output layer is stored once.
            if id(tensor) not in tensor_ids:
                tensor_ids.add(id(tensor))
                weights[name] = self.gather_parameter(tensor).detach()
        if not self.processes.is_first:
            return
        self.whole.save_pretrained(folder, state_dict=weights)
        for path in folder.glob("*.safetensors"):
            path.chmod(0o644)
        for name in _COPIED:
            if (base / name).is_file():
                shutil.copyfile(base / name, folder / name)


def _within(forward: Callable[..., Any], computed: Callable[..., Any], *arguments: Any) -> Any:
    return computed(forward, *arguments)


def network_of(
    loaded: LoadedModel,
    *,
    adapter: bool,
    rank: int,
    begins_from: Path | None,
    base: str,
    processes: Processes | None = None,
) -> Network:
    """A loaded model with the part of it that `processes` train together; None: only this process.
    With `begins_from`, an adapter starts from the weights of that adapter; a new one from random A
    and zero B, from torch's current random state. Raises `TrainingError` without the package
    peft."""
    loaded.model.requires_grad_(requires_grad=not adapter)
    around = _adapter(loaded, rank, begins_from, base) if adapter else None
    network = Network(loaded, around, processes or Processes())
    if network.processes.sharded:
        network.shard()
    return network


def _adapter(loaded: LoadedModel, rank: int, begins_from: Path | None, base: str) -> Any:
    """The PeftModel around a model."""
    try:
        from peft import LoraConfig, PeftModel, get_peft_model
    except ImportError as error:
        raise TrainingError(
            f"training an adapter needs the package peft; {install_hint('train')}"
        ) from error
    with warnings.catch_warnings():
        # peft 0.21 uses the name that transformers 5 is going to drop.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        if begins_from is not None:
            # Either way peft keeps the adapter in float32, regardless of the type of its base.
            return PeftModel.from_pretrained(loaded.model, begins_from, is_trainable=True)
        loaded.model.name_or_path = base
        config = LoraConfig(
            r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        return get_peft_model(loaded.model, config)
